"""Harness: rivals in, medians and ratios out; printed as a table and kept as JSON.

Rivals run in turn (A B C, A B C, ...) in one process, after one warm-up round, so that a machine whose speed drifts
treats them alike. Ratios are made round by round and their median is what counts.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
MOST_SAMPLES = 20
"""Of one measurement, in the JSON file."""


@dataclass
class Figure:
    """Seconds per round of one rival."""

    name: str
    seconds: list[float] = field(default_factory=list)
    work: float = 1.0
    """Units done per round, for rates."""
    unit: str = "s"

    @property
    def median(self) -> float:
        """Median of the rounds."""
        return statistics.median(self.seconds)


def rounds(rivals: Mapping[str, Callable[[], object]], *, runs: int = 5, warmup: int = 1) -> dict[str, Figure]:
    """Run the rivals in turn and time each one."""
    figures = {name: Figure(name) for name in rivals}
    for number in range(warmup + runs):
        for name, run in rivals.items():
            start = time.perf_counter()
            run()
            taken = time.perf_counter() - start
            if number >= warmup:
                figures[name].seconds.append(taken)
    return figures


def ratio(ours: Figure, rival: Figure) -> float:
    """Median, over the rounds, of our time divided by the rival's: below 1 we are faster."""
    return statistics.median(a / b for a, b in zip(ours.seconds, rival.seconds, strict=True))


def percentile(samples: list[float], share: float) -> float:
    """The sample below which a share of all lies."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def kept(samples: object) -> object:
    """What the JSON file keeps of single samples: up to `MOST_SAMPLES` as they are, of more their percentiles."""
    if isinstance(samples, Mapping):
        return {name: kept(part) for name, part in samples.items()}
    if not isinstance(samples, list):
        return samples
    if len(samples) <= MOST_SAMPLES or not all(isinstance(sample, (int, float)) for sample in samples):
        return [kept(sample) for sample in samples]
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
    figures = {name: percentile(samples, share) for name, share in shares.items()}
    return {"samples": len(samples), "min": min(samples), **figures, "max": max(samples)}


def commit() -> str:
    """The commit of this checkout, with `+changes` if files that git knows differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=RESULTS.parent, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":(top)", ":(exclude,top)benchmarks/results")
    return git("rev-parse", "--short=8", "HEAD") + ("+changes" if changed else "")


def machine() -> str:
    """Processor, cores, memory, kernel and Python of this machine."""
    names = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    kernel = ".".join(platform.release().split(".")[:2])
    return (
        f"{names[0].strip() if names else platform.machine()}, {os.cpu_count()} cores, {gigabytes:.0f} GB, "
        f"Linux {kernel}, Python {platform.python_version()}"
    )


def command() -> str:
    """The command that runs this benchmark again: settings, module and arguments, without folders of this machine."""
    settings = [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if re.match("(KAFKALIKE_)?BENCH_|SPARK_AVRO$", name)
    ]
    spec = sys.modules["__main__"].__spec__
    words = [*settings, "python", "-m", spec.name if spec else "benchmarks", *sys.argv[1:]]
    return shlex.join(re.sub(r"(^|=)/.*", r"\1FOLDER", word) for word in words)


class Report:
    """Lines of a benchmark: what was measured, against what, and the aim."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[dict[str, str]] = []
        self.raw: dict[str, object] = {}

    def add(self, what: str, figure: str, rival: str = "", result: str = "", aim: str = "") -> None:
        """Add a line, which is shown at once: a run may take long, or be stopped."""
        print(f"{what}: {figure}", file=sys.stderr, flush=True)
        self.rows.append({"what": what, "figure": figure, "against": rival, "ratio": result, "aim": aim})

    def keep(self, key: str, figures: Mapping[str, Figure]) -> None:
        """Keep the single rounds for the JSON file."""
        self.raw[key] = [asdict(f) for f in figures.values()]

    def finish(self) -> None:
        """Print the table and write the JSON file."""
        heads = ["what", "figure", "against", "ratio", "aim"]
        widths = {h: max(len(h), *(len(row[h]) for row in self.rows)) for h in heads}
        print(f"\n{self.name} ({machine()})")
        print("  ".join(h.ljust(widths[h]) for h in heads))
        for row in self.rows:
            print("  ".join(row[h].ljust(widths[h]) for h in heads))
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.name}.json"
        raw = {what: kept(samples) for what, samples in self.raw.items()}
        made = {
            "date": datetime.now(UTC).date().isoformat(),
            "commit": commit(),
            "machine": machine(),
            "command": command(),
        }
        content = {**made, "rows": self.rows, "raw": raw}
        path.write_text(json.dumps(content, indent=1) + "\n")
        print(f"kept in benchmarks/results/{path.name}", flush=True)


def processes() -> dict[int, float]:
    """CPU seconds of this process's descendants, by id."""
    found: dict[int, tuple[int, float]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            ticks = int(fields[11]) + int(fields[12])
            found[int(stat.parent.name)] = int(fields[1]), ticks / os.sysconf("SC_CLK_TCK")
    own = {os.getpid()}
    while more := {pid for pid, (parent, _) in found.items() if parent in own} - own:
        own |= more
    return {pid: found[pid][1] for pid in own & found.keys()}


def private_mb(pid: int) -> float:
    """Memory that only this process has, MB; 0 if it has ended."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(one.split()[1]) for one in lines if one.startswith("Private_")) / 1024
    return 0.0
