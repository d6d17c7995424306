"""The user's momenta: a NumPy archive with the arrays kp, km, pip, pim."""

from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

NAMES = ("kp", "km", "pip", "pim")

Momenta = tuple[npt.NDArray[np.float64], ...]


class InputError(ValueError):
    """Something the user gave that cannot be used."""


def read_momenta(path: str | Path) -> Momenta:
    """The four arrays (events, 4) of an .npz file, as float64.

    Raises InputError, naming the file and the array, for a file that cannot be read, an array that is missing, has
    another shape or other numbers than integers and floats, and for arrays of different lengths or of no events.
    """
    try:
        with open(path, "rb") as file:
            archive = np.load(file)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array")
            momenta = tuple(_momentum(path, archive, name) for name in NAMES)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except InputError:
        raise
    except (OSError, EOFError, ValueError, BadZipFile) as error:
        raise InputError(f"{path}: not a readable .npz file ({error})") from None
    for name, p in zip(NAMES, momenta, strict=True):
        if len(p) != len(momenta[0]):
            raise InputError(f"{path}: {name} has {len(p)} events, {NAMES[0]} has {len(momenta[0])}")
    if not len(momenta[0]):
        raise InputError(f"{path}: {NAMES[0]} has no events")
    return momenta


def _momentum(path: str | Path, archive: np.lib.npyio.NpzFile, name: str) -> npt.NDArray[np.float64]:
    if name not in archive:
        raise InputError(f"{path}: no array {name!r}; it has {', '.join(archive.files) or 'none'}")
    try:
        array = archive[name]
    except (OSError, EOFError, ValueError, BadZipFile) as error:
        raise InputError(f"{path}: {name} cannot be read ({error})") from None
    if array.ndim != 2 or array.shape[1] != 4:
        raise InputError(f"{path}: {name} has shape {array.shape}, not (events, 4)")
    if array.dtype.kind not in "iuf":
        raise InputError(f"{path}: {name} has dtype {array.dtype}, not floats")
    return array.astype(np.float64, copy=False)
