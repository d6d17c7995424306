"""The functions as posted in google/jax issue 1923: P4 of each event as an array of 4^8 components.

Under vmap, and under lax.map in chunks as was advised there. The permutations are those of the package's data file.
"""

import json
from fractions import Fraction
from importlib.resources import files

import jax
import jax.numpy as jnp

from . import Peer

jax.config.update("jax_enable_x64", True)

SUMS = json.loads(files("fastcov").joinpath("posted_permutations.json").read_text())["sums"]
METRIC = jnp.diag(jnp.array([-1.0, -1.0, -1.0, 1.0]))
EVENTS = {"vmap": 64, "lax.map": 256}
CHUNK = 32


def gt_cov(a):
    gt_con = METRIC - jnp.einsum("i,j", a, a) / jnp.einsum("i,j,ij", a, a, METRIC)
    return jnp.einsum("ij,ik,jl->kl", gt_con, METRIC, METRIC)


def p4(a):
    gt = gt_cov(a)
    gg = jnp.einsum("ij,kl->ijkl", gt, gt)
    gggg = jnp.einsum("ijkl,mnop->ijklmnop", gg, gg)
    return sum(
        float(Fraction(one["weight"]))
        * sum(jnp.einsum("ijklmnop->" + output, gggg) for output in one["output_subscripts"])
        for one in SUMS
    )


def phif243(a, r):
    gt = gt_cov(a)
    t1 = jnp.einsum("ij,j->i", gt, r)
    t2 = jnp.einsum("i,j->ij", t1, t1) - jnp.einsum("i,j,ij", t1, t1, METRIC) / 3 * gt
    t4 = jnp.einsum("ijklmnop,m,n,o,p->ijkl", p4(a), r, r, r, r)
    return jnp.einsum("ijkl,j,kl->i", t4, t1, t2)


_under_vmap = jax.jit(jax.vmap(phif243))
_under_map = jax.jit(lambda a, r: jax.lax.map(lambda pair: phif243(*pair), (a, r), batch_size=CHUNK))


def peer(function):
    def prepare(a, r):
        on_device = jnp.asarray(a), jnp.asarray(r)
        return lambda: jax.block_until_ready(function(*on_device))

    return prepare


PEERS = [
    Peer("JAX as posted, vmap", "posted", ("float64",), peer(_under_vmap), EVENTS["vmap"]),
    Peer(f"JAX as posted, lax.map in chunks of {CHUNK}", "posted", ("float64",), peer(_under_map), EVENTS["lax.map"]),
]
