"""An archive of the classes that Spark loads, for JVMs that live for seconds: `python scripts/archive_classes.py FILE`.

A JVM that reads it has a session in half the time: classes come parsed and verified (class-data sharing, JEP 350).
Java does not use an archive of other jars or of another Java, and says nothing of it with the options in
`tests/conftest.py`; so a stale one costs time and no more. It is no error when Java makes none.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path


def load_classes(folder: Path) -> None:
    """Do what most tests do, in a session that ends: batches, SQL, a stream, functions in Python."""
    from pyspark.sql import functions as f

    from kafkalike import KafkaAdminClient, NewTopic
    from kafkalike import spark as ks

    root = str(folder / "cluster")
    with KafkaAdminClient(bootstrap_servers=root) as admin:
        admin.create_topics([NewTopic("in", 2, 1), NewTopic("out", 2, 1)])
    scratch = {"spark.ui.enabled": "false", "spark.sql.warehouse.dir": str(folder), "spark.sql.shuffle.partitions": "2"}
    spark = ks.session("classes", master="local[2,4]", **scratch)
    records = spark.range(20).select(f.col("id").cast("string").alias("key"), f.lit("value").alias("value"))
    ks.write(records, "in", bootstrap_servers=root)
    options = {"kafka.bootstrap.servers": root, "startingOffsets": "earliest"}
    stream = spark.readStream.format("kafkalike").options(subscribe="in", **options).load()
    to = {"kafka.bootstrap.servers": root, "topic": "out", "checkpointLocation": str(folder / "checkpoint")}
    query = stream.select("key", "value").writeStream.format("kafkalike").options(**to)
    query.trigger(availableNow=True).start().awaitTermination()
    copied = spark.read.format("kafkalike").options(subscribe="out", **options).load()
    copied.groupBy("key").agg(f.max("value")).orderBy("key").collect()
    table = str(folder / "table")
    for _ in range(2):
        ks.read(spark, "in", bootstrap_servers=root).write.format("delta").mode("append").save(table)
    spark.read.format("delta").load(table).createOrReplaceTempView("rows")
    spark.sql("SELECT partition, count(*) FROM rows WHERE offset > 1 GROUP BY partition").collect()
    java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001 - PySpark does not show it
    spark.stop()
    # It ends when nobody writes to it any more, and makes the archive then.
    java.stdin.close()
    java.wait()


def main(archive: Path) -> int:
    """Make the archive; 0 always, as all works without it."""
    made = archive.with_suffix(f".{os.getpid()}")
    # Read by spark-submit, which the session starts. Without the last one Java names each class that it cannot archive.
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
    os.environ["SPARK_SUBMIT_OPTS"] = f"{options} -XX:ArchiveClassesAtExit={made}"
    with tempfile.TemporaryDirectory() as folder:
        load_classes(Path(folder))
    if made.exists():
        made.replace(archive)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
