"""A job over a queue: results go to a topic and to a Delta table, bad records to a topic of dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

import kafkalike.spark as ks
from tests.tools.orders import obey

RECORDS: Final = ["a", "bad", "c", "d", "bad", "f"]
RESULTS: Final = ["A", "C", "D", "F"]
LETTERS: Final = ["bad", "bad"]


def work(spark: SparkSession, orders: Mapping[str, str]) -> None:
    """Process the queue until nothing comes for two seconds."""
    root = orders["root"]
    while True:
        batch = ks.read_queue(
            spark,
            "jobs",
            root,
            group_id="workers",
            timeout_ms=2000,
            share_auto_offset_reset="earliest",
            share_record_lock_duration_ms=500,
            errors_deadletterqueue_topic_name="jobs.dlq",
        )
        with batch, ks.transaction("job", root) as t:
            if not batch:
                return
            done = batch.frame.selectExpr(
                "partition AS part",
                "offset",
                "upper(CAST(value AS STRING)) AS value",
                "if(value = X'626164', 'reject', 'accept') AS verdict",
            ).localCheckpoint()
            good = done.where("verdict = 'accept'")
            t.write(good.select("value"), "results")
            t.write_table(good.select("offset", "value"), orders["table"])
            t.acknowledge(batch, done.withColumnRenamed("part", "partition"))


if __name__ == "__main__":
    obey(work)
