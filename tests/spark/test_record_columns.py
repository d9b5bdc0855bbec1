"""Rows of any DataFrame as JSON values: nothing that a column holds is cut off."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from kafkalike.spark.record_columns import RecordColumns, record_columns


def test_times_and_decimals_keep_all_their_digits(spark: SparkSession) -> None:
    """Spark's own default cuts times to the millisecond."""
    frame = spark.sql(
        "SELECT timestamp_micros(1500001) AS at, TIMESTAMP_NTZ'2026-01-02 03:04:05.000001' AS local, "
        "12345678901234567890.123456789BD AS price, named_struct('at', timestamp_micros(1)) AS inner"
    )

    (whole,) = record_columns(frame, RecordColumns()).collect()
    (part,) = record_columns(frame, RecordColumns(values=["inner"])).collect()

    found = json.loads(whole["value"], parse_float=str)
    assert found["at"].startswith(("1970-01-01T00:00:01.500001", "1970-01-01T01:00:01.500001"))
    assert found["local"] == "2026-01-02T03:04:05.000001"
    assert found["price"] == "12345678901234567890.123456789"
    assert ".000001" in json.loads(part["value"])["at"]
