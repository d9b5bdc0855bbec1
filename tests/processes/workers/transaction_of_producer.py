"""Transaction worker: one transaction into two topics and a group; a fault point of the test's choice may kill it."""

from kafkalike import KafkaProducer, OffsetAndMetadata, TopicPartition
from tests.processes.workers.common import cluster, orders, wait_for_go


def main() -> None:
    asked = orders()
    with KafkaProducer(bootstrap_servers=cluster(asked["root"]), transactional_id="x") as producer:
        wait_for_go()
        producer.init_transactions()
        producer.begin_transaction()
        for topic in asked["topics"]:
            for partition in range(2):
                producer.send(topic, b"v", partition=partition)
        producer.send_offsets_to_transaction({TopicPartition("in", 0): OffsetAndMetadata(1)}, "g")
        producer.flush()
        if asked["end"] == "commit":
            producer.commit_transaction()
        elif asked["end"] == "abort":
            producer.abort_transaction()


if __name__ == "__main__":
    main()
