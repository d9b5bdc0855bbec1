"""What tests of streaming queries share: lines to read, and a place for a checkpoint."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.tools.lines import Lines


@pytest.fixture
def lines(spark: SparkSession, tmp_path: Path) -> Lines:
    return Lines(spark, tmp_path / "lines")


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
