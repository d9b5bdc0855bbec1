"""Spark worker: asks for sessions, tables and views in a JVM without Delta, and prints what comes of each step."""

import json
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

import kafkalike.spark as ks
from kafkalike.errors import KafkaError
from kafkalike.spark.jvm.spark_session import session_at_hand


def told(step: Callable[[], object]) -> str:
    """The error of a step."""
    try:
        step()
    except KafkaError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - the test shows it
        return f"not a KafkaError: {error!r}"
    return "no error"


def by_format(spark: SparkSession, root: str) -> list[str]:
    """Write a record and read the topic by the format."""
    ks.register_format(spark)
    options = {"kafka.bootstrap.servers": root}
    frame = spark.createDataFrame([("by format",)], "value STRING")
    frame.write.format("kafkalike").options(**options, topic="t").mode("append").save()
    found = spark.read.format("kafkalike").options(**options, subscribe="t").load()
    return sorted(bytes(row.value).decode() for row in found.collect())


def main() -> None:
    root, folder = sys.argv[1:]
    result: dict[str, Any] = {"first": told(ks.session)}
    spark = SparkSession.builder.getOrCreate()
    before = spark.conf.getAll
    result |= {
        "running": told(ks.session),
        "read": told(lambda: ks.read(spark, "t", root)),
        "in_sql": told(lambda: ks.register_sql(spark, root, temporary=True)),
        "in_database": told(lambda: ks.register_sql(spark, root, database="log")),
        "typed": told(lambda: ks.create_view(spark, "t", root, schema="id BIGINT")),
        "by_schema": told(lambda: ks.create_view(spark, "t", root, format="json-schema")),
        "streamed": told(lambda: ks.read_stream(spark, "t", root, engine="delta")),
    }
    result["settings"] = {name: value for name, value in spark.conf.getAll.items() if before.get(name) != value}
    result["sql"] = [spark.sql("SELECT 1").collect()[0][0], spark.sql("SHOW TABLES").collect()]
    result["databases"] = [row[0] for row in spark.sql("SHOW DATABASES").collect()]
    ks.write(spark.createDataFrame([("by write",)], "value STRING"), "t", root)
    result["format"] = by_format(spark, root)
    options = f"table 'partitions', root '{root}'"
    spark.sql(f"CREATE TEMPORARY VIEW kafkalike_partitions USING kafkalike_tables OPTIONS ({options})")
    result["live_view"] = spark.sql("SELECT topic, log_end_offset FROM kafkalike_partitions").first()
    query = ks.read_stream(spark, "t", root, starting_offsets="earliest").writeStream.format("memory").queryName("seen")
    query.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start().awaitTermination()
    result["stream"] = spark.table("seen").count()
    spark.stop()
    result["stopped"] = told(ks.session)
    held = session_at_hand("maintain")
    result["at_hand"] = None if held is None else held.sparkContext.parallelize([1, 2]).sum()
    print(json.dumps(result))  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main()
