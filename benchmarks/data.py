"""Data: the records every benchmark uses: keys of 16 bytes, values of 100 bytes, made once per size."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.spark import session

KEYS = 100_000


def bench_session() -> SparkSession:
    """A session with all cores and room for 10 M records."""
    return session("kafkalike-bench", **{"spark.driver.memory": "10g", "spark.sql.shuffle.partitions": "4"})


def records(spark: SparkSession, rows: int) -> DataFrame:
    """`rows` records in memory: key 16 B, value 100 B of JSON, timestamp one ms apart."""
    number = F.col("id")
    key = F.substring(F.md5((number % KEYS).cast("string").cast("binary")), 1, 16)
    start = F.concat(F.lit('{"id":'), F.lpad(number.cast("string"), 10, "0"), F.lit(',"kind":"k'), number % 20)
    value = F.rpad(F.concat(start, F.lit('","pad":"'), F.sha2(number.cast("string"), 256)), 98, "x")
    frame = spark.range(rows).select(
        key.cast("binary").alias("key"),
        F.concat(value, F.lit('"}')).cast("binary").alias("value"),
        F.timestamp_millis(F.lit(1_700_000_000_000) + number).alias("timestamp"),
    )
    kept = frame.persist()
    kept.count()
    return kept


def sizes() -> list[int]:
    """1 M and 10 M records; the environment variable `BENCH_ROWS` names others."""
    import os

    return [int(n) for n in os.environ.get("BENCH_ROWS", "1000000,10000000").split(",")]


def fresh(folder: Path, name: str) -> str:
    """Path of something that does not exist."""
    import shutil

    path = folder / name
    shutil.rmtree(path, ignore_errors=True)
    return str(path)
