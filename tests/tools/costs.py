"""Costs: a plugin for pytest that lists the tests that take the most CPU and those that wait the longest.

`pytest -n 0 -p tests.tools.costs PATH` prints both lists at the end. CPU includes children, also those that live on, as
Spark's JVM does: `time` and `--durations` do not see them. Waiting is the time in which the test's thread neither ran
nor wanted to run, so a busy machine does not lengthen it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Generator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

import pytest

SHOWN: Final = 20
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass
class Costs:
    """Seconds; of a test, or since the start."""

    wall: float = 0.0
    cpu: float = 0.0
    waited: float = 0.0


_costs: Final[dict[str, Costs]] = defaultdict(Costs)


def now() -> Costs:
    """What this process and its descendants have taken so far."""
    times = os.times()
    wall = time.monotonic()
    ran, wanted, _ = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text("ascii").split()
    cpu = times.user + times.system + times.children_user + times.children_system + _alive()
    return Costs(wall, cpu, wall - (int(ran) + int(wanted)) / 1e9)


def _alive() -> float:
    """CPU of the descendants that have not ended."""
    children: dict[int, list[int]] = defaultdict(list)
    taken: dict[int, int] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - runs twice for each test
        try:
            fields = Path("/proc", entry, "stat").read_text("utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        children[int(fields[1])].append(int(entry))
        taken[int(entry)] = sum(map(int, fields[11:15]))
    found, total = children[os.getpid()], 0
    while found:
        process = found.pop()
        total += taken[process]
        found += children[process]
    return total / TICKS


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note what a test takes, with its fixtures."""
    before = astuple(now())
    try:
        return (yield)
    finally:
        _costs[item.nodeid] = Costs(*(end - begun for begun, end in zip(before, astuple(now()), strict=True)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the lists."""
    for title, figure in (("CPU", "cpu"), ("waiting", "waited")):
        terminalreporter.section(f"most {title}: seconds of CPU, waiting, clock")
        for name, costs in sorted(_costs.items(), key=lambda one: -getattr(one[1], figure))[:SHOWN]:
            terminalreporter.write_line(f"{costs.cpu:7.2f} {costs.waited:7.2f} {costs.wall:7.2f} {name}")
