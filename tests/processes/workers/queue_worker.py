"""Queue worker: takes records of a share group, and writes their results or dead letters in transactions with the
acknowledgements.
"""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

from kafkalike import AcknowledgeType, KafkaProducer, KafkaShareConsumer, errors
from tests.processes.workers.common import cluster, orders, told_to_stop, wait_for_go


def main() -> None:
    asked = orders()
    chance = random.Random(asked["seed"])
    opened = cluster(asked["root"])
    consumer = KafkaShareConsumer(
        "jobs",
        bootstrap_servers=opened,
        client_id=asked["name"],
        group_id="work",
        share_auto_offset_reset="earliest",
        share_record_lock_duration_ms=asked["lock_ms"],
        share_delivery_count_limit=1_000_000,
        max_poll_records=asked["records"],
    )
    producer = KafkaProducer(bootstrap_servers=opened, transactional_id=asked["name"])
    while True:
        # A machine with forty runnable processes may take longer than `max_block_ms`.
        with contextlib.suppress(errors.KafkaTimeoutError):
            producer.init_transactions()
            break
    wait_for_go()
    stop = told_to_stop()
    # The seen deliveries are in the file before their result is anywhere.
    with Path(asked["seen"]).open("a", buffering=1, encoding="utf-8") as seen, producer, consumer:
        while not stop.is_set():
            records = consumer.poll(timeout_ms=200)
            seen.write("".join(f"{r.partition} {r.offset} {r.delivery_count}\n" for r in records))
            if not records:
                continue
            producer.begin_transaction()
            try:
                for record in records:
                    fate, place = chance.random(), f"{record.partition} {record.offset} {record.delivery_count}"
                    if fate < 0.05:
                        consumer.acknowledge(record, AcknowledgeType.RELEASE)
                    elif fate < 0.1:
                        consumer.acknowledge(record, AcknowledgeType.REJECT)
                        producer.send("dead", place.encode())
                    else:
                        producer.send("results", place.encode())
                time.sleep(chance.random() * 2 * asked["work_ms"] / 1000)
                acks = consumer.take_acknowledgements()
                producer.send_share_acknowledgements_to_transaction(acks, consumer.share_group_metadata())
                producer.commit_transaction()
            except errors.InvalidRecordStateError:
                producer.abort_transaction()
                for record in records:
                    with contextlib.suppress(errors.IllegalStateError):
                        consumer.acknowledge(record, AcknowledgeType.RELEASE)


if __name__ == "__main__":
    main()
