"""What every test may ask for: a Spark, a fresh cluster root, Hypothesis settings."""

import gc
import os
import sys
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import Phase, settings
from pyspark.sql import SparkSession

from tests.tools import local_files, warm_worker
from tests.tools.case_ids import case_id
from tests.tools.effort import LEVEL
from tests.tools.kinds import ABOVE_THE_LOG, SEVERAL
from tests.tools.spread import spread

TESTS = Path(__file__).parent
DRIVER_PLANS = ("stream", "sink", "batch")
"""What the driver plans in place of the format's Python processes."""
FOLDER_MARKS = {"spark": "spark", "processes": "processes", "e2e": "e2e"}

# No deadline: two cores shared with a JVM say nothing about how long an example takes.
# CI takes the same examples each time, so that a red run is the change's doing; a developer's run takes others each
# time. `make check` takes a few of them, `make test-all` more.
COUNT = {"mutants": 8, "quick": 8, "usual": 25, "all": 100}[LEVEL]
settings.register_profile("dev", deadline=None, max_examples=COUNT)
settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True, max_examples=COUNT)
# A mutant is noticed by the first example that fails; nobody reads a smaller one.
settings.register_profile("mutants", settings.get_profile("ci"), phases=(Phase.explicit, Phase.generate))
CHOSEN = "mutants" if LEVEL == "mutants" else "ci" if LEVEL == "quick" or os.environ.get("CI") else "dev"
settings.load_profile(CHOSEN)

# A JVM of a test lives for seconds: what the better compiler gains later costs more than the test. Measured on a
# session and five small writes and reads: 29 instead of 46 seconds of processor time. spark-submit reads it.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# With that compiler Java has 48 MB for compiled code, which tests fill: it then sweeps, and compiles the same again.
# And it collects all garbage each time that classes need more room than some 20 MB, which Spark's do many times over.
SHORT_LIVED += " -XX:ReservedCodeCacheSize=256m -XX:MetaspaceSize=512m"
# `make classes` archives what Spark loads: a session in five seconds instead of nine. Java says nothing where it does
# not fit, as with the jars of another environment, and goes on without it.
CLASSES = Path(sys.prefix, "classes.jsa")
if CLASSES.exists():
    SHORT_LIVED += f" -XX:SharedArchiveFile={CLASSES} -Xlog:disable"
os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED)


@cache
def _folder(file: Path) -> str:
    """The folder of tests that a file stands in; many thousand tests ask for it."""
    return file.relative_to(TESTS).parts[0] if file.is_relative_to(TESTS) else ""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the garbage collector the tests that are collected, which live to the end; it took a sixth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Search no test file for examples in docstrings: tests/tools and the package have them."""
    found = yield
    return [one for one in found if not (file_path.name.startswith("test_") and isinstance(one, DoctestModule))]


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name each case by its value."""
    return case_id(val)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by its folder, so that `-m "not spark"` works without a line in each file; and those above the
    log: `make check` runs them in memory, `make test` over tables too, and `make test-all` over three roots."""
    for item in items:
        folder = _folder(item.path)
        if folder in FOLDER_MARKS:
            item.add_marker(FOLDER_MARKS[folder])
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        given = getattr(getattr(item, "callspec", None), "params", {}).values()
        if item.path.stem in ABOVE_THE_LOG:
            if any(value is SEVERAL for value in given):
                item.add_marker("full")
            if any(isinstance(value, str) and value == "delta" for value in given):
                item.add_marker("slow")


@pytest.fixture(scope="session", autouse=True)
def _spread_folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Make the folders of tests so that files in them are cheap to make."""
    spread(tmp_path_factory.getbasetemp())


@pytest.fixture
def root(tmp_path: Path) -> str:
    """The root of a cluster that does not exist yet."""
    return str(tmp_path / "cluster")


@pytest.fixture
def foreign_writes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Topics that the test creates are open to foreign writers, unless they say otherwise."""
    defaults = tmp_path / "foreign-writes.properties"
    defaults.write_text("log.kafkalike.foreign.writes=allow\n", encoding="utf-8")
    monkeypatch.setenv("KAFKALIKE_SERVER_PROPERTIES", str(defaults))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One small Spark for all tests. `local[2,2]`, as plain `local[2]` never tries a failed task again."""
    from kafkalike.spark import session

    scratch = tmp_path_factory.mktemp("spark")
    small = {
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "local"),
        "spark.ui.enabled": "false",
        # `make spark-engines` sets it.
        **{f"spark.kafkalike.{way}.driver": os.environ.get("KAFKALIKE_TESTS_DRIVER", "true") for way in DRIVER_PLANS},
    }
    with pytest.MonkeyPatch.context() as patch:
        # Spark reads it when it starts; a process that a test starts has the Python that a user has.
        patch.setenv("PYSPARK_PYTHON", warm_worker.python(scratch))
        spark = session("kafkalike-tests", master="local[2,2]", **small)
    local_files.install(spark)
    yield spark
    spark.stop()
