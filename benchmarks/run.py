"""All benchmarks in one process: every row once in each round, so that a busy machine is busy for all of them alike.

    python benchmarks/run.py              measure, write results/<date>-<cpu>.json and .md, compare with the last run
    python benchmarks/run.py --short      few rows, nothing written; fails where a share of the triad has fallen, and
                                          still has when it is measured again
    python benchmarks/run.py --table      print the table of the newest results of this CPU, without measuring

A row's time is the median over the rounds; shares of the triad and ratios are medians of what each round gave. The
triad (a = b + s c on 1.2 GB, 24 bytes an element) is measured anew in each round. If a row's results differ from the
dense reference, nothing is reported.
"""

import argparse
import datetime
import json
import os
import platform
import re
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from peers import load
from rows import ALL, Disagreement, Row, calls_per_sample, fastcov_rows, partner, peer_rows, sample
from triad import Triad

RESULTS = Path(__file__).parent / "results"
ROUNDS, SHORT_ROUNDS = 9, 5
SECONDS_PER_ROW = 20.0  # a slow row takes part in fewer rounds
FALLEN = 0.6  # of the recorded share
ATTEMPTS, PAUSE = 6, 10.0  # to reach it, and seconds, more each time: others may be busy on the machine for a while
PACKAGES = ("fastcov", "numpy", "numba", "torch", "jax", "qftppy")


def cpu_name() -> str:
    """The model and the number of threads in use, as part of a file name."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists() and (found := re.search(r"model name\s*:\s*(.*)", info.read_text())):
        model = found[1]
    return re.sub(r"[^a-z0-9]+", "-", f"{model} {ALL} threads".lower().replace("(r)", "").replace("(tm)", "")).strip(
        "-"
    )


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def measure(rows: list[Row], rounds: int) -> tuple[list[dict[str, Any]], dict[int, float]]:
    """What each row and the triad gave. Raises Disagreement for a row whose results are wrong."""
    runs = {}
    for row in progress(rows, "check"):
        call = row.prepare()
        runs[row] = call, calls_per_sample(call)
    triad = Triad()
    bandwidths: dict[int, list[float]] = {threads: [] for threads in {row.threads for row in rows}}
    times: dict[Row, dict[int, float]] = {row: {} for row in rows}
    for round_number in range(rounds):
        for threads, values in bandwidths.items():
            values.append(triad.bandwidth(threads))
        for row in progress(rows, f"round {round_number + 1} of {rounds}"):
            if sum(times[row].values()) * runs[row][1] < SECONDS_PER_ROW:
                times[row][round_number] = sample(*runs[row])
    return [record(row, times, bandwidths[row.threads]) for row in rows], {n: median(b) for n, b in bandwidths.items()}


def record(row: Row, times: dict[Row, dict[int, float]], bandwidths: list[float]) -> dict[str, Any]:
    own = times[row]
    speed = row.bytes_per_event * row.events / median(own.values())
    shares = [row.bytes_per_event * row.events / t / bandwidths[n] for n, t in own.items()]
    values = {
        **{name: getattr(row, name) for name in KEY},
        "bytes_per_event": row.bytes_per_event,
        "ns_per_event": median(own.values()) / row.events * 1e9,
        "fastest_ns_per_event": min(own.values()) / row.events * 1e9,
        "gigabytes_per_second": speed / 1e9,
        "share_of_triad": median(shares),
        "best_share_of_triad": max(shares),
        "rounds": len(own),
    }
    if row.who != "fastcov" and (ours := partner(row, list(times))):
        ratios = [t / row.events * ours.events / times[ours][n] for n, t in own.items() if n in times[ours]]
        values["times_slower_than_fastcov"] = median(ratios)
    return values


KEY = ("problem", "who", "dtype", "arithmetic", "events", "threads", "layout", "output")


def key(record: dict[str, Any]) -> tuple:
    return tuple(record[name] for name in KEY)


def progress(rows: list[Row], what: str):
    """The rows, with a bar if tqdm is there and someone looks."""
    try:
        from tqdm import tqdm
    except ImportError:
        return rows
    return tqdm(rows, desc=what, leave=False, disable=None)


def newest(cpu: str) -> dict[str, Any] | None:
    """The newest recorded results of this CPU."""
    files = sorted(RESULTS.glob(f"*-{cpu}.json"))
    return json.loads(files[-1].read_text()) if files else None


def markdown(results: dict[str, Any]) -> str:
    triads = ", ".join(f"{speed / 1e9:.1f} GB/s with {n} threads" for n, speed in sorted(results["triad"].items()))
    packages = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    lines = [
        f"Measured on {results['date']}, {results['cpu']}, by `python benchmarks/run.py`. Triad: {triads}. "
        f"Load of the machine before: {results['load_average']:.1f}. {packages}.",
        "",
        "Share: bytes of inputs and outputs over the time, as a part of the triad's bandwidth with as many threads.",
        "",
    ]
    for problem in dict.fromkeys(r["problem"] for r in results["rows"]):
        lines += [
            f"### {problem}",
            "",
            "| who | storage | arithmetic | input | output | threads | events | ns per event | GB/s | share "
            "| slower than fastcov |",
            "|---|---|---|---|---|--:|--:|--:|--:|--:|--:|",
        ]
        for r in (r for r in results["rows"] if r["problem"] == problem):
            ratio = f"{r['times_slower_than_fastcov']:,.1f}x" if "times_slower_than_fastcov" in r else ""
            lines.append(
                f"| {r['who']} | {r['dtype']} | {r['arithmetic']} | {r['layout']} | {r['output']} | {r['threads']} "
                f"| {r['events']:,} | {r['ns_per_event']:,.1f} | {r['gigabytes_per_second']:.2f} "
                f"| {r['share_of_triad']:.2f} | {ratio} |"
            )
        lines.append("")
    return "\n".join(lines)


def comparison(results: dict[str, Any], old: dict[str, Any]) -> list[str]:
    """One line for each of fastcov's rows that both have."""
    recorded = {key(r): r for r in old["rows"]}
    lines = [f"Change since {old['date']}: ns per event and share of the triad, before -> now"]
    for r in results["rows"]:
        before = recorded.get(key(r))
        if before and r["who"].startswith("fastcov"):
            lines.append(
                f"  {before['ns_per_event']:10.1f} -> {r['ns_per_event']:10.1f} ns   "
                f"{before['share_of_triad']:.2f} -> {r['share_of_triad']:.2f}   {', '.join(map(str, key(r)))}"
            )
    return lines


def fallen(records: list[dict[str, Any]], old: dict[str, Any]) -> list[str]:
    """Rows that have not come near the recorded share in any round, each by its key and what it reached."""
    recorded = {key(r): r["share_of_triad"] for r in old["rows"]}
    return [
        f"{', '.join(map(str, key(r)))}: share {r['best_share_of_triad']:.2f} at best, recorded {recorded[key(r)]:.2f}"
        for r in records
        if key(r) in recorded and r["best_share_of_triad"] < FALLEN * recorded[key(r)]
    ]


def still_fallen(rows: list[Row], records: list[dict[str, Any]], old: dict[str, Any], rounds: int) -> list[str]:
    """`fallen`, for rows that are so in every one of ATTEMPTS measurements."""
    for attempt in range(1, ATTEMPTS):
        low = [row for row, one in zip(rows, records, strict=True) if fallen([one], old)]
        if not low:
            return []
        print(f"measured again: {len(low)} rows below {FALLEN} of the recorded share", flush=True)
        time.sleep(PAUSE * attempt)
        rows, (records, _) = low, measure(low, rounds)
    return fallen(records, old)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="few rows, nothing written, a check against the record")
    parser.add_argument("--table", action="store_true", help="print the newest table")
    parser.add_argument("--rounds", type=int, help=f"default {ROUNDS}, with --short {SHORT_ROUNDS}")
    options = parser.parse_args()
    cpu = cpu_name()
    if options.table:
        old = newest(cpu)
        if old is None:
            sys.exit(f"no results for {cpu} in {RESULTS}")
        print(markdown(old))
        return 0
    if options.short:
        rows = [row for row in fastcov_rows() if row.short]
    else:
        found, missing = load()
        for name, reason in missing.items():
            print(f"left out: {name}, {reason}")
        rows = fastcov_rows() + peer_rows(found)
    start, load_average = time.perf_counter(), os.getloadavg()[0]
    rounds = options.rounds or (SHORT_ROUNDS if options.short else ROUNDS)
    try:
        records, triads = measure(rows, rounds)
    except Disagreement as error:
        sys.exit(f"nothing reported: {error}")
    results = {
        "date": datetime.date.today().isoformat(),
        "cpu": cpu,
        "load_average": load_average,
        "seconds": time.perf_counter() - start,
        "versions": versions(),
        "triad": triads,
        "rows": records,
    }
    name = f"{results['date']}-{cpu}"
    print(markdown(results))
    old = newest(cpu)
    if old:
        print("\n".join(comparison(results, old)))
    if options.short:
        if not old:
            print(f"no results of this CPU to compare with ({cpu})")
            return 0
        worse = still_fallen(rows, records, old, rounds)
        print("\n".join([*worse, f"{len(worse)} of {len(rows)} rows below {FALLEN} of the recorded share"]))
        return 1 if worse else 0
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(markdown(results))
    print(f"written: {RESULTS / name}.json and .md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
