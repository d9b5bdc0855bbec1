"""What tests with a JVM share: a cluster, lines to stream, a place for a checkpoint, faults of file operations."""

import re
from collections.abc import Generator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkalike.connect import open_cluster
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.spark.jvm.spark_version import MINOR
from tests.tools.lines import Lines
from tests.tools.shim import faultshim

__all__ = ["faultshim"]


@pytest.fixture
def cluster(root: str) -> Cluster:
    """The cluster of the test's root, as a new process opens it."""
    return open_cluster(root)


@pytest.fixture
def lines(spark: SparkSession, tmp_path: Path) -> Lines:
    return Lines(spark, tmp_path / "lines")


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """On another Spark than the locked one, skip a test of a feature that this Spark lacks; `make spark-matrix`."""
    try:
        return (yield)
    except Exception as error:
        lacks = re.search(r"[^:]* needs Spark 4\.\d or newer", str(error))
        if MINOR == "4.2" or lacks is None:
            raise
        pytest.skip(f"NOT SUPPORTED: {lacks[0].strip()}")
