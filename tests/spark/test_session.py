"""A session: what its users count on besides Delta itself."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from kafkalike.spark.jvm.spark_session import FAR_OPEN_COST, OPEN_COST, delta_session


@pytest.mark.parametrize(
    ("query", "args"),
    [
        ("SELECT :name AS found", {"name": "a"}),
        ("SELECT ? AS found", ["a"]),
        ("SELECT IDENTIFIER(:f)('A') AS found", {"f": "lower"}),
    ],
)
def test_a_query_gets_its_arguments(spark: SparkSession, query: str, args: dict[str, str] | list[str]) -> None:
    """Named and positional markers are bound, which Delta's parser alone would undo."""
    rows = spark.sql(query, args=args).collect()

    assert [row["found"] for row in rows] == ["a"]


@pytest.fixture
def as_it_comes(spark: SparkSession) -> Iterator[SparkSession]:
    """The session without a cost of its own for opening a file, before and after."""
    spark.conf.unset(OPEN_COST)
    yield spark
    spark.conf.unset(OPEN_COST)


@pytest.mark.parametrize("root", ["s3://bucket/log", "az://container/log", "gs://bucket/log"])
def test_opening_a_file_weighs_more_where_that_means_to_wait(as_it_comes: SparkSession, root: str) -> None:
    delta_session(bootstrap_servers="some/folder")
    near = as_it_comes.conf.get(OPEN_COST)
    delta_session(bootstrap_servers=root)

    assert near == "4194304b"
    assert as_it_comes.conf.get(OPEN_COST) == FAR_OPEN_COST


def test_what_somebody_has_said_of_it_is_left(as_it_comes: SparkSession) -> None:
    as_it_comes.conf.set(OPEN_COST, "1m")

    delta_session(bootstrap_servers="s3://bucket/log")

    assert as_it_comes.conf.get(OPEN_COST) == "1m"


def test_a_task_may_return_more_than_kryo_takes_unless_told(spark: SparkSession) -> None:
    """64 MiB; results are as large as they were by Java's serializer."""
    size = 65 * 1024 * 1024

    (found,) = spark.sparkContext.range(1, numSlices=1).map(lambda _: os.urandom(size)).collect()

    assert len(found) == size
