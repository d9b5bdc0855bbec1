"""Consumer worker: polls a topic from its beginning until told to stop and until there is nothing more."""

from kafkalike import KafkaConsumer, TopicPartition
from tests.jepsen.history import Recorder
from tests.processes.workers.common import cluster, orders, told_to_stop, wait_for_go


def main() -> None:
    asked = orders()
    partitions = range(asked["partitions"])
    consumer = KafkaConsumer(
        bootstrap_servers=cluster(asked["root"], queue=asked.get("queue", True)),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=asked.get("max_poll_records", 37),
    )
    tps = [TopicPartition(asked["topic"], p) for p in partitions]
    consumer.assign(tps)
    wait_for_go()
    stop = told_to_stop()

    def poll() -> dict[int, list[tuple[int, str]]]:
        got = consumer.poll(timeout_ms=50)
        return {tp.partition: [(r.offset, r.value.decode()) for r in records] for tp, records in got.items()}

    def at_the_end() -> bool:
        return consumer.end_offsets(tps) == {tp: consumer.position(tp) for tp in tps}

    with Recorder(asked["history"], asked["name"], asked["topic"]) as recorder, consumer:
        recorder.assign(partitions)
        while True:
            last = stop.is_set()
            if not recorder.poll(poll) and last and at_the_end():
                break


if __name__ == "__main__":
    main()
