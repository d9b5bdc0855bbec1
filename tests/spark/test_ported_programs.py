"""Programs written for Spark's Kafka connector, over format("kafkalike"): the rows that they are for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.tools import ported
from tests.tools.ported import Side

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def side(spark: SparkSession, tmp_path: Path) -> Side:
    folder = tmp_path / "l"
    folder.mkdir()
    return Side(spark, "kafkalike", str(tmp_path / "root"), folder)


@pytest.mark.parametrize(
    ("program", "expected", "changes"),
    [
        (ported.word_count_back_into_a_topic, [("a", "1"), ("b", "3"), ("c", "1")], {'`.mode("append")`'}),
        (ported.join_of_two_streams, [(1, 2.0), (3, 2.0)], set()),
        (ported.options_that_mean_nothing, [ported.event(1)], {'`.mode("append")`'}),
    ],
)
def test_a_ported_program_does_what_it_did(
    spark: SparkSession, tmp_path: Path, program: Callable[[Side], Any], expected: Any, changes: set[str]
) -> None:
    """Nothing but the mode of a batch write is to be changed in it."""
    mine = side(spark, tmp_path)

    assert program(mine) == expected
    assert mine.changes == changes


def test_the_documents_have_each_program() -> None:
    table = Path(__file__).parents[1].joinpath("spark_connector_checklist.md").read_text()

    assert [name for name in map(ported.titled, ported.PROGRAMS) if f"| {name} | " not in table] == []


@pytest.mark.soak
def test_all_ported_programs_give_the_same_rows_as_over_a_real_broker() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.tools.ported"], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
