"""The closed form under jax.jit: vectors as arrays (events, 4), and as four separate columns."""

import operator

import jax
import jax.numpy as jnp

from . import Peer
from .closed_form import CONSTANTS, FORMS, Algebra, columns_algebra

jax.config.update("jax_enable_x64", True)


def _dot(a, b):
    products = a * b
    return products[:, 3:] - products[:, 0:1] - products[:, 1:2] - products[:, 2:3]


ARRAYS = Algebra(_dot, operator.add, operator.sub, operator.mul)
COLUMNS = columns_algebra()


def peer(form, algebra):
    function = jax.jit(lambda vectors: FORMS[form](algebra)(CONSTANTS, *vectors))

    def prepare(*vectors):
        on_device = jax.tree.map(jnp.asarray, vectors)
        return lambda: jax.block_until_ready(function(on_device))

    return prepare


DTYPES = ("float64", "float32")
PEERS = [
    Peer("JAX jit", form, DTYPES, peer(form, algebra), layout=layout)
    for form in FORMS
    for layout, algebra in (("packed", ARRAYS), ("columns", COLUMNS))
]
