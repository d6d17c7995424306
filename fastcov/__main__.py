"""The command line: `fastcov demo`, `fastcov check`, `fastcov backends`."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from .momenta import InputError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 if all is well, 1 if a result is out of its bound, 2 for input that cannot be used."""
    options = _parser().parse_args(arguments)
    command = options.command
    del options.command
    try:
        return int(command(**vars(options)))
    except InputError as error:
        print(f"fastcov: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fastcov", description="Covariant-tensor amplitudes for millions of events, on this machine."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    demo = commands.add_parser("demo", help="time phif243 and compare it with the dense reference")
    demo.add_argument("--events", type=_positive, default=800_000, metavar="N", help="default: 800000")
    demo.add_argument("--seed", type=_natural, default=0, metavar="N", help="of the generated momenta, default: 0")
    demo.add_argument("--input", metavar="FILE.npz", help="momenta: arrays kp, km, pip, pim of shape (events, 4)")
    demo.add_argument("--threads", type=_positive, metavar="N", help="at most so many")
    demo.add_argument("--backend", metavar="NAME", help="one that `fastcov backends` lists")
    demo.add_argument("--dtype", choices=("float64", "float32"), default="float64", help="of the arrays")
    demo.set_defaults(command=_demo)

    check = commands.add_parser("check", help="check momenta, and the waves on them")
    check.add_argument("input", nargs="?", metavar="FILE.npz", help="as for demo; default: generated events")
    check.add_argument("--order", default="xyzE", help="of the components in the file, default: xyzE")
    check.set_defaults(command=_check)

    commands.add_parser("backends", help="what can run here, or why not").set_defaults(command=_backends)
    return parser


def _positive(text: str) -> int:
    return _number(text, 1)


def _natural(text: str) -> int:
    return _number(text, 0)


def _number(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least {least}")
    return number


def _demo(**options: Any) -> int:
    from .demo import demo

    return demo(**options)


def _check(**options: Any) -> int:
    from .check import check

    return check(**options)


def _backends() -> int:
    from .dispatch import backends

    for name, report in backends().items():
        print(f"{name}: {report}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
