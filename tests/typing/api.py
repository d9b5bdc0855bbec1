"""The public names as a type checker sees them in a user's program; never run."""

from typing import Any, assert_type

import kafkalike
import kafkalike.spark as ks
from kafkalike import (
    ConsumerSettings,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    NewTopic,
    OffsetAndMetadata,
    ProducerSettings,
    RecordMetadata,
    TopicPartition,
)


def settings_have_names_and_types() -> None:
    """A typo and a wrong type are found; what is right passes."""
    KafkaProducer(bootstrap_servers="./root", linger_ms=5, acks="all", compression_type="zstd")
    KafkaProducer(lingr_ms=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    KafkaProducer(linger_ms="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    KafkaConsumer("orders", group_id="billing", max_poll_records=10, auto_offset_reset="earliest")
    KafkaConsumer("orders", group="billing")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    KafkaConsumer("orders", max_poll_records="10")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    KafkaAdminClient(bootstrap_servers="./root", client_id="ops")
    KafkaConsumer(bootstrap_servers="s3://bucket/log", storage_options={"region": "eu-west-1", "allow_http": True})
    KafkaAdminClient(bootstrap_server="./root")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def settings_can_be_kept_in_a_dict() -> None:
    """As values of a type, or as what a file gave."""
    mine: ProducerSettings = {"bootstrap_servers": "./root", "linger_ms": 20}
    KafkaProducer(**mine)
    theirs: ConsumerSettings = {"group_id": "billing"}
    KafkaConsumer("orders", **theirs)
    read: dict[str, Any] = {"bootstrap_servers": "./root"}
    KafkaProducer(**read)
    assert_type(KafkaProducer.DEFAULT_CONFIG, dict[str, Any])


def results_have_types(producer: KafkaProducer, consumer: KafkaConsumer, admin: KafkaAdminClient) -> None:
    """What a program goes on with."""
    assert_type(producer.send("orders", b"tea").get(timeout=1), RecordMetadata)
    assert_type(consumer.committed(TopicPartition("orders", 0)), int | None)
    consumer.commit({TopicPartition("orders", 0): OffsetAndMetadata(1, "", -1)})
    admin.create_topics([NewTopic("orders", num_partitions=2)])
    assert_type(kafkalike.__version__, str)
    for records in consumer.poll(100).values():
        for record in records:
            assert_type(record.offset, int)


def options_of_spark_have_names_and_types(frame: Any) -> None:
    """What belongs together is an object; words of other releases are found."""
    assert_type(ks.write(frame, "orders", "./root", schemas="avro"), ks.Written)
    ks.write(frame, "orders", "./root", producer_options=ks.ProducerOptions(compression_type="zstd"))
    ks.write(frame, "orders", schemas=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ks.write(frame, "orders", compression_type="zstd")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ks.ProducerOptions(compresion_type="zstd")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ks.QueryOptions(query_name=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ks.read(frame.sparkSession, "orders", as_of=1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
