"""Copier worker: a member of a group that copies records to two topics, one transaction for each poll.

It goes on after everything but the loss of its transactional id, and it may be killed at any moment.
"""

from typing import Any

import kafkalike
from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.consumer.offset_commits import Polled, offsets_after
from kafkalike.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError
from tests.processes.workers.common import cluster, orders, told_to_stop, wait_for_go


def copy(consumer: KafkaConsumer, producer: KafkaProducer, polled: Polled, asked: dict[str, Any]) -> None:
    """One transaction; after a refusal the records are read again, as far as they are still this member's."""
    try:
        with kafkalike.transaction(producer):
            for tp, records in polled.items():
                for record in records:
                    for topic in asked["outputs"]:
                        producer.send(topic, record.value, partition=tp.partition)
            producer.send_offsets_to_transaction(offsets_after(polled), consumer.group_metadata())
    except (ProducerFencedError, InvalidProducerEpochError):
        raise
    except KafkaError as error:
        print(f"again after {error!r}", flush=True)  # noqa: T201 - for a test that fails
        for tp, records in polled.items():
            if tp in consumer.assignment():
                consumer.seek(tp, records[0].offset)


def main() -> None:
    asked = orders()
    place = cluster(asked["root"])
    consumer = KafkaConsumer(
        asked["input"],
        bootstrap_servers=place,
        group_id="copiers",
        client_id=asked["name"],
        group_instance_id=asked.get("instance"),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        session_timeout_ms=asked["session_ms"],
        heartbeat_interval_ms=asked["session_ms"] / 5,
        partition_assignment_strategy=[asked["strategy"]],
        max_poll_records=asked["most"],
    )
    producer = KafkaProducer(bootstrap_servers=place, transactional_id=asked["name"])
    wait_for_go()
    stop = told_to_stop()
    with producer, consumer:
        while not stop.is_set():
            polled = consumer.poll(timeout_ms=100)
            if polled:
                copy(consumer, producer, polled, asked)


if __name__ == "__main__":
    main()
