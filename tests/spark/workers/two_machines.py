"""Two machines: in a namespace of its own, a Spark job and an S3 server; in another one, a producer and a consumer.

The job asks the server's loopback, the others a proxy at the end of the wire between the two. All write to one topic at
the same time, and then each machine reads all of it. Prints what they saw.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F  # noqa: N812

import kafkalike.spark as ks
from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.connect import connect
from tests.tools.children import PATIENCE
from tests.tools.fault_proxy import FaultProxy
from tests.tools.machines import ANOTHER, HERE, be_joined, bring_loopback_up, join
from tests.tools.object_servers import S3, running

WRITES, ROWS, SENDS = 4, 500, 200
SMALL = {"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}


def say(told: Any) -> None:
    """A line of JSON."""
    print(json.dumps(told), flush=True)  # noqa: T201 - who started this reads it


def other() -> None:
    """The other machine: a producer, then a consumer in a group."""
    bring_loopback_up()
    say("ready")
    asked = json.loads(sys.stdin.readline())
    be_joined()
    place: dict[str, Any] = {"bootstrap_servers": asked["root"], "storage_options": asked["options"]}
    with KafkaProducer(**place) as producer:
        sent = [producer.send("t", f"other-{n}".encode(), partition=n % 2).get() for n in range(SENDS)]
    say([[record.partition, record.offset] for record in sent])
    wanted = json.loads(sys.stdin.readline())
    with KafkaConsumer("t", **place, group_id="g", auto_offset_reset="earliest") as consumer:
        found: list[str] = []
        while len(found) < wanted:
            polled = consumer.poll(timeout_ms=PATIENCE * 1000)
            assert polled
            found += [record.value.decode() for records in polled.values() for record in records]
    say(sorted(found))


def main() -> None:
    bring_loopback_up()
    module = ["-m", "tests.spark.workers.two_machines", "other"]
    with (
        tempfile.TemporaryDirectory() as folder,
        running(S3, Path(folder)) as server,
        subprocess.Popen(
            [*ANOTHER, sys.executable, *module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as there,
    ):
        assert there.stdin is not None
        assert there.stdout is not None
        root = server.new_root()
        connect(root, server.options).create_topic("t", 2, {})
        spark = ks.session(master="local[2]", storage_options=server.options, **SMALL)
        frames = [
            spark.range(ROWS).select(F.concat(F.lit(f"here-{nth}-"), F.col("id")).alias("value")).coalesce(2)
            for nth in range(WRITES)
        ]
        assert json.loads(there.stdout.readline()) == "ready"
        join(there.pid)
        proxy = FaultProxy(server.port, 1, HERE)
        options = {**server.options, "endpoint": f"http://{HERE}:{proxy.port}"}
        there.stdin.write(json.dumps({"root": root, "options": options}) + "\n")
        there.stdin.flush()
        for frame in frames:
            ks.write(frame, "t", root, storage_options=server.options)
        sent = json.loads(there.stdout.readline())
        there.stdin.write(f"{WRITES * ROWS + SENDS}\n")
        there.stdin.flush()
        given = {"kafka.bootstrap.servers": root, "subscribe": "t"}
        rows = spark.read.format("kafkalike").options(**given).load().select("partition", "offset", "value").collect()
        here = [[row["partition"], row["offset"], row["value"].decode()] for row in rows]
        say({"sent": sent, "here": here, "there": json.loads(there.stdout.readline()), "asked": proxy.done.total()})
        spark.stop()
        proxy.close()


if __name__ == "__main__":
    other() if sys.argv[1:] == ["other"] else main()
