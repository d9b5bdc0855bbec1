"""A session: what its users count on besides Delta itself."""

import pytest
from pyspark.sql import SparkSession


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
