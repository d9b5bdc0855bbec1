"""Tour: a folder in, the steps of the demo one after the other, an exit code out."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console

from kafkalike.clock import SYSTEM_CLOCK, Clock
from kafkalike.demo.data import missing
from kafkalike.demo.folder import fresh_place
from kafkalike.demo.screen import Screen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS: Final = 7
PLOT: Final = "delays.png"
SPARK_LOG: Final = "spark.log"


def run(
    root: str | None = None,
    keep: bool = False,  # noqa: FBT001, FBT002 - the command's
    rows: int | None = None,
    *,
    console: Console | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> int:
    """Show what kafkalike does, on the 336,776 flights that left New York in 2013.

    What the demo writes stays in its folder, to look around in. The next demo removes it first.

    Args:
        root: folder for topics, plot and log; None for `./kafkalike-demo`. Or the URI of a place in an object store for
            the topics; plot and log are then in `./kafkalike-demo`.
        keep: keep what an earlier demo left there, and take the next free name (`kafkalike-demo-2`).
        rows: how many flights to take; None for all.
        console: where to write; standard output by default.
        clock: measures the steps.

    Returns:
        0 when everything added up, else 1.

    Raises:
        IllegalArgumentError: the folder is not the demo's to remove.
    """
    out = Console(highlight=False, soft_wrap=True) if console is None else console
    lacking = missing()
    if lacking:
        out.print(f"The demo needs {' and '.join(lacking)}: pip install 'kafkalike[demo]'", markup=False)
        return 1
    folder, place = fresh_place(root, keep=keep)
    screen = Screen(out, clock, STEPS)
    with _spark(folder, place, screen) as spark:
        _steps(spark, folder, place, screen, rows, clock)
    screen.summary()
    for failure in screen.failures:
        out.print(f"WRONG: {failure}", markup=False)
    shown = _shown(folder)
    where = shown if place == str(folder) else place
    out.print(f"Plot: {shown}/{PLOT}", f"Look around: kafkalike topics --describe --bootstrap-server {where}", sep="\n")
    return 1 if screen.failures else 0


def _steps(  # noqa: PLR0917 - one call
    spark: SparkSession, folder: Path, root: str, screen: Screen, rows: int | None, clock: Clock
) -> None:
    # These import Spark, the clients and matplotlib; `run` may end before they are needed.
    from kafkalike.demo import data, steps
    from kafkalike.demo.live import live
    from kafkalike.demo.plot import draw
    from kafkalike.demo.questions import ask, show_lag

    with screen.step("Produce: Spark writes DataFrames into topics"), tempfile.TemporaryDirectory() as csv:
        steps.create_topics(root, screen)
        count = data.unpack(Path(csv), rows)
        steps.produce(root, screen, data.records(spark, Path(csv)), count)
    with screen.step("Consume: a group stops half-way and goes on exactly there"):
        tally = steps.consume(root, screen, count, clock)
    with screen.step("Live: a producer sends while a consumer polls"):
        sent = live(root, screen, clock)
    with screen.step("Ask: SQL over topics"):
        answers = ask(spark, root, screen, tally)
        show_lag(spark, screen)
    with screen.step("Plot"):
        draw(answers, count, folder / PLOT)
        screen.say(f"{_shown(folder)}/{PLOT}")
    with screen.step("Verify: every offset of every partition, read from the files"):
        steps.verify(root, screen, count + sent)


@contextmanager
def _spark(folder: Path, root: str, screen: Screen) -> Iterator[SparkSession]:
    """A Spark of the demo's own, unless one runs already; what its JVM says goes to a file."""
    from pyspark.sql import SparkSession

    from kafkalike.spark import session

    running = SparkSession.getActiveSession()
    with screen.step("Start Spark"):
        with screen.waiting("Java starts"), _standard_error(folder / SPARK_LOG):
            spark = session("kafkalike-demo", bootstrap_servers=root, **{"spark.sql.shuffle.partitions": "4"})
        screen.say(f"Spark {spark.version} on {spark.sparkContext.master}; its log: {_shown(folder)}/{SPARK_LOG}")
    try:
        yield spark
    finally:
        if running is None:
            spark.stop()


@contextmanager
def _standard_error(path: Path) -> Iterator[None]:
    """Let processes that start meanwhile write their errors into a file: Java itself warns before any log is set up."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _shown(folder: Path) -> str:
    """A folder as the user would type it."""
    return str(folder.relative_to(Path.cwd())) if folder.is_relative_to(Path.cwd()) else str(folder)
