"""python -m fastcov.kernels --report [--all]"""

import argparse
import sys


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fastcov.kernels", description=__doc__)
    parser.add_argument("--report", action="store_true", required=True, help="compile shipped tapes and check the code")
    parser.add_argument("--all", action="store_true", help="every tape for every target")
    arguments = parser.parse_args()
    try:
        from . import report
    except ImportError as error:
        print(f"the report needs Triton ({error}): install fastcov[gpu]", file=sys.stderr)
        return 2
    return report.main(arguments.all)


if __name__ == "__main__":
    sys.exit(main())
