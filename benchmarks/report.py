"""Figures of the newest results file into README.md and docs/performance.md, and the plot beside the latter.

python benchmarks/report.py            rewrite what stands between the markers, and draw docs/performance.png
python benchmarks/report.py --check    fail if that would change a text
"""

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
BEGIN, END = "<!-- figures: benchmarks/report.py -->", "<!-- end of figures -->"
FEW, MANY = 800_000, 8_000_000
ARITHMETIC = {
    "float64": ("float64", "float64"),
    "float32, computed in float64": ("float32", "float64"),
    "float32": ("float32", "float32"),
}
PROBLEMS = {
    "six vectors": "phif243 from six vectors",
    "four momenta": "phif243 from four momenta",
    "wave phif243": "phif243 with barrier factors",
    "7 waves psi -> phi f": "7 waves psi -> phi f, one bundle",
    "17 waves": "17 waves, one bundle",
    "vjp of six vectors": "gradients (vjp) of phif243, six vectors",
    "vjp of four momenta": "gradients (vjp) of phif243, four momenta",
    "posted": "the posted phif243",
}

Rows = list[dict[str, Any]]


def newest() -> dict[str, Any]:
    """The newest results file."""
    files = sorted(RESULTS.glob("*.json"), key=lambda path: path.name[:10])
    files = [path for path in files if "triad" in json.loads(path.read_text())]
    if not files:
        sys.exit(f"no results in {RESULTS}")
    return json.loads(files[-1].read_text())


def chosen(rows: Rows, **wanted: Any) -> Iterator[dict[str, Any]]:
    for row in rows:
        if all(row[name] == value for name, value in wanted.items()):
            yield row


def one(rows: Rows, threads: int, **wanted: Any) -> dict[str, Any] | None:
    return next(chosen(rows, threads=threads, layout="packed", **wanted), None)


def table(head: list[str], lines: list[list[str]]) -> str:
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, rule, *lines])


def fastcov_table(results: dict[str, Any], who: str = "fastcov") -> str:
    rows, threads = results["rows"], max(map(int, results["triad"]))
    lines = []
    for problem, words in PROBLEMS.items():
        cells = []
        for dtype, arithmetic in ARITHMETIC.values():
            row = one(rows, threads, who=who, problem=problem, dtype=dtype, arithmetic=arithmetic, events=FEW)
            cells.append(f"{row['ns_per_event']:.1f} ns, {row['share_of_triad']:.2f}" if row else "")
        if any(cells):
            lines.append([words, *cells])
    return table([f"{who}, {FEW:,} events", *ARITHMETIC], lines)


def peer_table(results: dict[str, Any]) -> str:
    rows = results["rows"]
    lines = []
    for problem in ("six vectors", "four momenta", "posted"):
        peers = dict.fromkeys(
            (r["who"], r["layout"]) for r in chosen(rows, problem=problem) if "fastcov" not in r["who"]
        )
        for who, layout in peers:
            cells = []
            for dtype in ("float64", "float32"):
                found = [
                    r for r in chosen(rows, problem=problem, who=who, layout=layout, dtype=dtype) if r["events"] <= FEW
                ]
                row = max(found, key=lambda r: r["events"], default=None)
                cells.append(f"{row['ns_per_event']:,.1f} ns, {row['times_slower_than_fastcov']:,.1f}x" if row else "")
            lines.append([who if layout == "packed" else f"{who}, {layout}", PROBLEMS[problem], *cells])
    return table(["instead of fastcov", "of", "float64", "float32"], lines)


def provenance(results: dict[str, Any]) -> str:
    triads = ", ".join(f"{speed / 1e9:.1f} GB/s with {n}" for n, speed in sorted(results["triad"].items()))
    return textwrap.fill(
        f"Measured {results['date']} by `make bench` on {results['cpu'].replace('-', ' ')}, a shared x86-64 server, in "
        f"one run of interleaved rounds, medians. The numbers are time per event and the share of the bandwidth of a "
        f"triad (a = b + s c) measured in the same rounds, {triads} threads; x: times fastcov's time on the same "
        f"problem and dtype, per event where a peer is too slow for so many.",
        width=118,
    )


def readme(results: dict[str, Any]) -> str:
    return "\n\n".join([provenance(results), fastcov_table(results), peer_table(results)])


def performance(results: dict[str, Any]) -> str:
    return "\n\n".join(
        [
            provenance(results),
            fastcov_table(results),
            "The same tapes through the interpreter, as every tape that is not built in:",
            fastcov_table(results, "fastcov, interpreted"),
            peer_table(results),
            f"### Bytes and operations\n\n{roofline_table(results)}",
        ]
    )


def roofline_table(results: dict[str, Any]) -> str:
    from problems import PROBLEMS as FUNCTIONS

    rows, threads = results["rows"], max(map(int, results["triad"]))
    lines = []
    for problem, words in PROBLEMS.items():
        row = one(rows, threads, who="fastcov", problem=problem, dtype="float64", arithmetic="float64", events=FEW)
        if row is None:
            continue
        cost = FUNCTIONS[problem].function.tape.cost()
        speed = cost.flops / row["ns_per_event"]
        lines.append([words, f"{cost.bytes}", f"{cost.flops}", f"{cost.flops / cost.bytes:.2f}", f"{speed:.1f}"])
    return table(
        ["float64", "bytes per event", "operations per event", "operations per byte", "10^9 operations/s"], lines
    )


def plot(results: dict[str, Any], path: Path) -> None:
    """Time per event against the number of events."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for axis, dtype in zip(axes, ("float64", "float32"), strict=True):
        rows = list(chosen(results["rows"], problem="six vectors", dtype=dtype, arithmetic=dtype))
        for who in dict.fromkeys(r["who"] for r in rows):
            best: dict[int, float] = {}
            for r in chosen(rows, who=who, threads=max(r["threads"] for r in rows)):
                best[r["events"]] = min(r["ns_per_event"], best.get(r["events"], float("inf")))
            if len(best) > 1:
                axis.loglog(
                    *zip(*sorted(best.items()), strict=True),
                    marker="o",
                    label=who,
                    linewidth=2 if who == "fastcov" else 1,
                )
        axis.set(title=dtype, xlabel="events")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("ns per event")
    axes[1].legend(fontsize="small")
    figure.suptitle("phif243 from six vectors")
    figure.savefig(path, dpi=80)


DOCUMENTS: dict[str, Callable[[dict[str, Any]], str]] = {"README.md": readme, "docs/performance.md": performance}


def rewritten(text: str, figures: str) -> str:
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{figures}\n\n{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    results = newest()
    stale = []
    for name, figures in DOCUMENTS.items():
        path = ROOT / name
        text = path.read_text()
        new = rewritten(text, figures(results))
        if new != text:
            stale.append(name)
            if not options.check:
                path.write_text(new)
    if options.check:
        print(f"out of date: {', '.join(stale)}" if stale else "the documents quote the newest results")
        return 1 if stale else 0
    plot(results, ROOT / "docs" / "performance.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
