"""KafkaProducer over every kind of cluster: what a caller gives, what the log holds, what the future says."""

import math
import threading
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

from kafkalike.admin.testing import MemoryCluster
from kafkalike.errors import (
    IllegalArgumentError,
    IllegalStateError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
    TopicDeletedError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.topic.chunk import ChunkColumns
from kafkalike.model.config.server_config import ServerProperties
from kafkalike.model.partitioner import DefaultPartitioner, RoundRobinPartitioner, StickyPartitioner, partition_for_key
from kafkalike.producer import KafkaProducer
from kafkalike.producer import sender as open_logs
from kafkalike.schemas.serialization import JsonSerializer, StringSerializer
from tests.tools.kinds import only_in_memory
from tests.tools.partitions import partition_values
from tests.tools.producers import producers

WEIRD = bytes(range(256))
KEY_OF_1 = next(key for key in (b"a", b"b", b"c", b"d") if partition_for_key(key, 2) == 1)


@pytest.fixture
def make(cluster: Cluster) -> Iterator[Callable[..., KafkaProducer]]:
    """Makes producers that are closed after the test."""
    with producers(cluster) as make:
        yield make


@pytest.fixture
def producer(make: Callable[..., KafkaProducer]) -> KafkaProducer:
    """A producer with the defaults."""
    return make()


def stored(cluster: Cluster, topic: str, partition: int = 0) -> ChunkColumns | None:
    """What a partition holds; None when it is empty."""
    chunk = cluster.log(topic).reader(partition, 0).read(1 << 30)
    return None if chunk is None else chunk.columns()


def values(cluster: Cluster, topic: str, partition: int = 0) -> list[bytes | None]:
    """Values of a partition, in offset order."""
    found = stored(cluster, topic, partition)
    return [] if found is None else found.values


# --- what is stored -------------------------------------------------------------------------------


def test_a_record_is_stored_as_it_was_sent(cluster: Cluster, producer: KafkaProducer) -> None:
    """Key, value, headers with repeats and time, byte for byte."""
    headers = [("b", WEIRD), ("a", None), ("b", b"")]

    done = producer.send("orders", WEIRD, b"k", headers, 0, 123_456).get(60)

    found = stored(cluster, "orders")
    assert found is not None
    assert (found.keys, found.values, found.headers) == ([b"k"], [WEIRD], [headers])
    assert (found.offsets, found.timestamps, found.timestamp_types) == ([0], [123_456], [0])
    assert done == ("orders", 0, ("orders", 0), 0, 123_456, None, 1, 256, 259)


def test_no_key_an_empty_key_and_a_tombstone_stay_apart(cluster: Cluster, producer: KafkaProducer) -> None:
    """None is not the empty bytes."""
    sent = [
        producer.send("orders", b"", partition=0),
        producer.send("orders", b"v", key=b"", partition=0),
        producer.send("orders", key=b"k", partition=0),
    ]

    sizes = [(f.get(60).serialized_key_size, f.get().serialized_value_size) for f in sent]

    found = stored(cluster, "orders")
    assert found is not None
    assert list(zip(found.keys, found.values, strict=True)) == [(None, b""), (b"", b"v"), (b"k", None)]
    assert sizes == [(-1, 0), (0, 1), (1, -1)]


def test_no_headers_are_no_headers(cluster: Cluster, producer: KafkaProducer) -> None:
    """An empty list is stored as none at all, and has no size."""
    done = producer.send("orders", b"v", headers=[]).get(60)

    found = stored(cluster, "orders")
    assert found is not None
    assert found.headers is None
    assert done.serialized_header_size == -1


def test_a_list_of_headers_may_be_used_again(cluster: Cluster, producer: KafkaProducer) -> None:
    """What its owner does to it after send does not change the record."""
    headers: list[tuple[str, bytes | None]] = [("a", b"1")]

    sent = producer.send("orders", b"v", headers=headers)
    headers.clear()
    sent.get(60)

    found = stored(cluster, "orders")
    assert found is not None
    assert found.headers == [[("a", b"1")]]


@pytest.mark.parametrize("value", [bytearray(b"v"), memoryview(b"v"), np.bytes_(b"v")])
def test_other_forms_of_bytes_are_taken(cluster: Cluster, producer: KafkaProducer, value: Any) -> None:
    """They are copied, so their owner may change them."""
    producer.send("orders", value).get(60)

    assert values(cluster, "orders") == [b"v"]


def test_serializers_see_topic_headers_and_data(cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """Key and value have their own."""
    producer = make(key_serializer=StringSerializer(), value_serializer=JsonSerializer())

    producer.send("orders", {"n": 1}, "kéy").get(60)

    found = stored(cluster, "orders")
    assert found is not None
    assert (found.keys, found.values) == (["kéy".encode()], [b'{"n":1}'])


class Tagger:
    """Adds a header to each record that it serializes, as tracing does."""

    def serialize(self, topic: str, headers: Any, data: object) -> bytes:
        """The text of the data; its length becomes a header."""
        headers.append(("tag", f"{topic}/{data}".encode()))
        return str(data).encode()


def test_headers_a_serializer_adds_are_stored_with_their_record_alone(
    cluster: Cluster, make: Callable[..., KafkaProducer]
) -> None:
    given: list[tuple[str, bytes | None]] = [("own", b"1")]
    tagging, plain = make(value_serializer=Tagger()), make(value_serializer=StringSerializer())

    tagging.send("orders", "a").get(60)
    tagging.send("orders", "b", headers=given).get(60)
    size = tagging.send("orders", "c").get(60).serialized_header_size
    plain.send("orders", "d").get(60)

    found = stored(cluster, "orders")
    assert found is not None
    assert found.headers == [
        [("tag", b"orders/a")],
        [("own", b"1"), ("tag", b"orders/b")],
        [("tag", b"orders/c")],
        [],
    ]
    assert (given, size) == ([("own", b"1")], 11)


@pytest.mark.parametrize("header", [("tag", "text"), ("tag",), "tag"], ids=["text for bytes", "no pair", "no tuple"])
def test_bad_header_of_a_serializer_is_refused_before_anything_is_sent(
    cluster: Cluster, make: Callable[..., KafkaProducer], header: Any
) -> None:
    class Bad:
        def serialize(self, topic: str, headers: Any, data: object) -> bytes:
            del topic, data
            headers.append(header)
            return b""

    producer = make(key_serializer=Bad())

    with pytest.raises(TypeError, match="header"):
        producer.send("orders", b"v", "k")
    assert "orders" not in cluster.topics()


def test_a_plain_function_serialises(cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """kafka-python 2.x took functions."""
    producer = make(value_serializer=lambda value: str(value).encode())

    producer.send("orders", 17).get(60)

    assert values(cluster, "orders") == [b"17"]


@pytest.mark.parametrize("codec", [None, "none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_back(cluster: Cluster, make: Callable[..., KafkaProducer], codec: str | None) -> None:
    """Compression changes nothing that is read."""
    producer = make(compression_type=codec)

    producer.send("orders", WEIRD * 10).get(60)

    assert values(cluster, "orders") == [WEIRD * 10]


def test_the_time_of_send_is_the_default(cluster: Cluster, producer: KafkaProducer) -> None:
    """In a topic with CreateTime the future and the log agree."""
    done = producer.send("orders", b"v").get(60)

    found = stored(cluster, "orders")
    assert found is not None
    assert found.timestamps == [done.timestamp]


def test_append_time_is_told_where_the_topic_wants_it(cluster: Cluster, producer: KafkaProducer) -> None:
    """The metadata carries the log's time, not the record's."""
    cluster.create_topic("orders", 1, {"message.timestamp.type": "LogAppendTime"})

    done = producer.send("orders", b"v", timestamp_ms=5).get(60)

    found = stored(cluster, "orders")
    assert found is not None
    assert found.timestamps == [done.timestamp]
    assert done.timestamp > 5


# --- partitions -----------------------------------------------------------------------------------


def test_a_key_goes_where_kafka_would_put_it(cluster: Cluster, producer: KafkaProducer) -> None:
    """Murmur2 of the key, and the same for each record of a batch."""
    cluster.create_topic("orders", 7, {})

    sent = {b"key-%d" % n: producer.send("orders", b"v", key=b"key-%d" % n) for n in range(100)}

    assert {key: f.get(60).partition for key, f in sent.items()} == {key: partition_for_key(key, 7) for key in sent}


def test_records_without_key_are_spread(cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """At random, beside records with keys and with explicit partitions."""
    cluster.create_topic("orders", 3, {})
    producer = make(partitioner=DefaultPartitioner(rng=Random(1)), linger_ms=10_000)

    keyed = producer.send("orders", b"v", key=b"k")
    chosen = producer.send("orders", b"v", partition=2)
    spread = [producer.send("orders", b"v") for _ in range(100)]
    producer.flush(60)

    assert {f.get().partition for f in spread} == {0, 1, 2}
    assert (keyed.get().partition, chosen.get().partition) == (partition_for_key(b"k", 3), 2)


def test_a_partitioner_of_2x_is_asked(cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """A function of the key and the partitions."""
    cluster.create_topic("orders", 3, {})
    producer = make(partitioner=lambda key, everything, _available: everything[len(key or b"") % 3])

    done = producer.send("orders", b"v", key=b"12345").get(60)

    assert done.partition == 2


def test_round_robin_takes_turns(cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """Whatever the batches are."""
    cluster.create_topic("orders", 3, {})
    producer = make(partitioner=RoundRobinPartitioner())

    sent = [producer.send("orders", b"v") for _ in range(6)]

    assert [f.get(60).partition for f in sent] == [0, 1, 2, 0, 1, 2]


def test_a_sticky_partitioner_moves_on_with_each_batch(cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """Records of one batch stay together, the next batch goes elsewhere."""
    cluster.create_topic("orders", 2, {})
    producer = make(partitioner=StickyPartitioner(rng=Random(1)), linger_ms=10_000)

    batches = []
    for _ in range(3):
        sent = [producer.send("orders", b"v") for _ in range(5)]
        producer.flush(60)
        batches.append({f.get().partition for f in sent})

    assert [len(batch) for batch in batches] == [1, 1, 1]
    assert batches[0] != batches[1] != batches[2]


@pytest.mark.parametrize("chosen", [2, -1, None, "0", True])
def test_a_partitioner_that_chooses_nonsense_is_told(
    cluster: Cluster, make: Callable[..., KafkaProducer], chosen: Any
) -> None:
    """Nothing is queued."""
    cluster.create_topic("orders", 2, {})

    class Broken(DefaultPartitioner):
        def partition(self, *_: Any) -> Any:
            return chosen

    producer = make(partitioner=Broken())

    with pytest.raises(IllegalArgumentError):
        producer.send("orders", b"v")


def test_partitions_that_are_added_are_used(cluster: Cluster, producer: KafkaProducer) -> None:
    """By number at once, by key from the next append on."""
    cluster.create_topic("orders", 1, {})
    producer.send("orders", b"v").get(60)
    cluster.add_partitions("orders", 9)

    by_number = producer.send("orders", b"v", partition=8).get(60)
    by_key = producer.send("orders", b"v", key=b"k").get(60)

    assert by_number.partition == 8
    assert by_key.partition == partition_for_key(b"k", 9)


def test_numpy_integers_are_partitions_and_times(cluster: Cluster, producer: KafkaProducer) -> None:
    """They come out of data frames."""
    cluster.create_topic("orders", 3, {})

    done = producer.send("orders", b"v", partition=np.int64(2), timestamp_ms=np.int64(77)).get(60)  # type: ignore[arg-type]

    assert (done.partition, done.timestamp) == (2, 77)
    assert type(done.partition) is int


# --- what is refused ------------------------------------------------------------------------------


@only_in_memory("cluster")
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, ValueError),
        ({"value": "text"}, TypeError),
        ({"value": 17}, TypeError),
        ({"key": "text"}, TypeError),
        ({"value": b"v", "headers": {"a": b"1"}}, TypeError),
        ({"value": b"v", "headers": (("a", b"1"),)}, TypeError),
        ({"value": b"v", "headers": [["a", b"1"]]}, TypeError),
        ({"value": b"v", "headers": [("a",)]}, TypeError),
        ({"value": b"v", "headers": [(b"a", b"1")]}, TypeError),
        ({"value": b"v", "headers": [("a", "1")]}, TypeError),
        ({"value": b"v", "headers": [("\ud800", b"1")]}, ValueError),
        ({"value": b"v", "partition": -1}, ValueError),
        ({"value": b"v", "partition": 1}, ValueError),
        ({"value": b"v", "partition": 2**31}, ValueError),
        ({"value": b"v", "partition": True}, TypeError),
        ({"value": b"v", "partition": "0"}, TypeError),
        ({"value": b"v", "timestamp_ms": -1}, InvalidTimestampError),
        ({"value": b"v", "timestamp_ms": 2**63}, InvalidTimestampError),
        ({"value": b"v", "timestamp_ms": 1.5}, TypeError),
        ({"value": b"v", "timestamp_ms": math.nan}, TypeError),
        ({"value": b"v", "timestamp_ms": True}, TypeError),
        ({"value": b"v" * 1_048_576}, MessageSizeTooLargeError),
        ({"value": b"v", "headers": [("a", b"v" * 1_048_576)]}, MessageSizeTooLargeError),
    ],
    ids=lambda part: repr(part)[:60],
)
def test_a_bad_record_is_refused_before_it_is_queued(
    cluster: Cluster, producer: KafkaProducer, arguments: dict[str, Any], error: type[Exception]
) -> None:
    """By a named error, and the next record is fine."""
    cluster.create_topic("orders", 1, {})

    with pytest.raises(error):
        producer.send("orders", **arguments)

    assert producer.send("orders", b"good").get(60).offset == 0
    assert values(cluster, "orders") == [b"good"]


@only_in_memory("cluster")
@pytest.mark.parametrize(
    "topic",
    [
        *(None, 0, b"", "", ".", "..", "x" * 250, "a/b", "/a", "../x", "a b", "*", "é", "a\x00", "a\n"),
        *("`; DROP TABLE t--", "_delta_log", "__consumer_offsets"),
    ],
    ids=lambda topic: repr(topic)[:30],
)
def test_a_name_that_no_topic_can_have_is_refused(cluster: Cluster, producer: KafkaProducer, topic: Any) -> None:
    """And no topic is made."""
    with pytest.raises(InvalidTopicError):
        producer.send(topic, b"v")

    assert not cluster.topics()


def test_a_bad_record_of_a_batch_fails_alone(cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """The records around it are written in order, without a gap."""
    cluster.create_topic("orders", 1, {"max.message.bytes": "500"})
    producer = make(linger_ms=10_000)

    sent = [producer.send("orders", b"v" * (1000 if n in {0, 3, 4} else 10 + n)) for n in range(7)]
    producer.flush(60)

    assert [n for n, f in enumerate(sent) if isinstance(f.exception, MessageSizeTooLargeError)] == [0, 3, 4]
    assert [f.get().offset for n, f in enumerate(sent) if n not in {0, 3, 4}] == [0, 1, 2, 3]
    assert [len(v or b"") for v in values(cluster, "orders")] == [11, 12, 15, 16]


def test_each_bad_record_hears_its_own_reason(cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """Size, time and missing key in one batch of a compacted topic."""
    limits = {"max.message.bytes": "500", "message.timestamp.before.max.ms": "3600000", "cleanup.policy": "compact"}
    cluster.create_topic("orders", 1, limits)
    producer = make(linger_ms=10_000)

    sent = [
        producer.send("orders", b"v" * 1000, key=b"k"),
        producer.send("orders", b"v", key=b"k", timestamp_ms=5),
        producer.send("orders", b"v"),
        producer.send("orders", b"good", key=b"k"),
    ]
    producer.flush(60)

    reasons = [type(f.exception) for f in sent]
    assert reasons == [MessageSizeTooLargeError, InvalidTimestampError, InvalidRecordError, type(None)]
    assert values(cluster, "orders") == [b"good"]


def test_a_batch_of_bad_records_writes_nothing(cluster: Cluster, producer: KafkaProducer) -> None:
    """And the future says why, in words that fit one record."""
    cluster.create_topic("orders", 1, {"max.message.bytes": "500"})

    sent = producer.send("orders", b"v" * 1000)

    with pytest.raises(MessageSizeTooLargeError, match="orders: the record has 1070 bytes"):
        sent.get(60)
    assert values(cluster, "orders") == []


# --- topics that come and go ----------------------------------------------------------------------


def test_a_missing_topic_is_created(cluster: Cluster, producer: KafkaProducer) -> None:
    """With the server's defaults."""
    producer.send("orders", b"v").get(60)

    assert cluster.topic("orders").num_partitions == 1
    assert producer.partitions_for("orders") == {0}


def test_a_missing_topic_is_not_created_against_the_producers_will(
    cluster: Cluster, make: Callable[..., KafkaProducer]
) -> None:
    """It is unknown."""
    producer = make(allow_auto_create_topics=False)

    with pytest.raises(UnknownTopicOrPartitionError):
        producer.send("orders", b"v")
    with pytest.raises(UnknownTopicOrPartitionError):
        producer.partitions_for("orders")

    assert not cluster.topics()


def test_a_missing_topic_is_not_created_against_the_servers_will() -> None:
    """The operator's setting counts too."""
    server = ServerProperties.from_properties({"auto.create.topics.enable": "false"})

    with (
        KafkaProducer(bootstrap_servers=MemoryCluster(server)) as producer,
        pytest.raises(UnknownTopicOrPartitionError, match=r"auto\.create\.topics\.enable"),
    ):
        producer.send("orders", b"v")


def test_records_for_a_topic_that_was_made_anew_do_not_land_in_it(
    cluster: Cluster, make: Callable[..., KafkaProducer]
) -> None:
    """They were meant for the old one; later sends go to the new one."""
    cluster.create_topic("orders", 1, {})
    producer = make(linger_ms=10_000)
    producer.send("orders", b"before")
    producer.flush(60)
    queued = producer.send("orders", b"queued")

    cluster.delete_topic("orders")
    cluster.create_topic("orders", 2, {})
    producer.flush(60)
    later = producer.send("orders", b"later", key=KEY_OF_1)
    producer.flush(60)

    with pytest.raises(TopicDeletedError):
        queued.get()
    assert later.get().offset == 0
    assert (values(cluster, "orders", 0), values(cluster, "orders", 1)) == ([], [b"later"])


def test_the_first_record_of_a_topic_that_was_made_anew_does_not_land_in_it(
    cluster: Cluster, make: Callable[..., KafkaProducer]
) -> None:
    """Not even when no log was open yet."""
    cluster.create_topic("orders", 1, {})
    producer = make(linger_ms=10_000)
    queued = producer.send("orders", b"queued")

    cluster.delete_topic("orders")
    cluster.create_topic("orders", 1, {})
    producer.flush(60)

    with pytest.raises(TopicDeletedError):
        queued.get()
    assert values(cluster, "orders") == []


def test_records_for_a_deleted_topic_fail(cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """And are not tried again."""
    cluster.create_topic("orders", 1, {})
    producer = make(linger_ms=10_000)
    queued = producer.send("orders", b"queued")

    cluster.delete_topic("orders")
    producer.flush(60)

    with pytest.raises(TopicDeletedError):
        queued.get()
    assert not queued.retriable()


# --- many records, many threads -------------------------------------------------------------------


def test_threads_keep_their_order_and_lose_nothing(cluster: Cluster, producer: KafkaProducer) -> None:
    """Sixteen at once, over three partitions."""
    cluster.create_topic("orders", 3, {})

    def send(thread: int) -> None:
        for number in range(200):
            producer.send("orders", b"%d:%d" % (thread, number), key=b"%d" % (number % 5))

    threads = [threading.Thread(target=send, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush(60)

    total = 0
    for partition in range(3):
        per_thread: dict[int, list[int]] = {}
        for value in values(cluster, "orders", partition):
            thread_number, number = (value or b"").split(b":")
            per_thread.setdefault(int(thread_number), []).append(int(number))
        total += sum(map(len, per_thread.values()))
        assert all(numbers == sorted(set(numbers)) for numbers in per_thread.values())
    assert total == 3200


def test_futures_say_where_each_record_is(cluster: Cluster, producer: KafkaProducer) -> None:
    """Of 500 records over three partitions and several topics."""
    cluster.create_topic("orders", 3, {})
    cluster.create_topic("clicks", 2, {})

    sent = {(b"%d" % n): producer.send(("orders", "clicks")[n % 2], b"%d" % n) for n in range(500)}
    producer.flush(60)

    for topic, count in (("orders", 3), ("clicks", 2)):
        logs = {p: values(cluster, topic, p) for p in range(count)}
        found = {v: f.get() for v, f in sent.items() if f.get().topic == topic}
        assert all(logs[done.partition][done.offset] == value for value, done in found.items())
        assert sum(map(len, logs.values())) == len(found) == 250


def test_a_record_without_acknowledgement_is_done_at_once(cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """Its offset is not known, and it is written all the same."""
    cluster.create_topic("orders", 3, {})
    producer = make(acks=0)

    sent = producer.send("orders", b"v", key=b"k")

    done = sent.get(0)
    producer.flush(60)
    assert (done.offset, done.partition) == (-1, partition_for_key(b"k", 3))
    assert values(cluster, "orders", done.partition) == [b"v"]


def test_an_error_without_acknowledgement_is_logged(
    cluster: Cluster, make: Callable[..., KafkaProducer], caplog: pytest.LogCaptureFixture
) -> None:
    """There is nobody else to tell."""
    cluster.create_topic("orders", 1, {"max.message.bytes": "500"})
    producer = make(acks=0)

    producer.send("orders", b"v" * 1000)
    producer.flush(60)

    assert [(r.levelname, "1 records to 'orders' failed" in r.message) for r in caplog.records] == [
        ("WARNING", False),
        ("ERROR", True),
    ]


# --- the rest of the interface --------------------------------------------------------------------


def test_nothing_can_be_sent_after_close(cluster: Cluster, producer: KafkaProducer) -> None:
    """Closing twice, and flushing what is not there, is fine."""
    producer.close()
    producer.close()
    producer.flush()

    with pytest.raises(IllegalStateError, match="closed"):
        producer.send("orders", b"v")
    with pytest.raises(IllegalStateError, match="closed"):
        producer.partitions_for("orders")
    assert not cluster.topics()


def test_a_with_block_sends_everything(cluster: Cluster) -> None:
    """Leaving it closes the producer."""
    with KafkaProducer(bootstrap_servers=cluster, linger_ms=10_000) as producer:
        sent = producer.send("orders", b"v")

    assert sent.get(0).offset == 0


@pytest.mark.parametrize("timeout", [-1, math.nan, "1", True])
def test_a_timeout_that_is_none_is_refused(producer: KafkaProducer, timeout: Any) -> None:
    """By flush and by close."""
    with pytest.raises(ValueError, match="timeout"):
        producer.flush(timeout)
    with pytest.raises(ValueError, match="timeout"):
        producer.close(timeout)


def test_a_producer_without_a_transactional_id_has_no_transactions(producer: KafkaProducer) -> None:
    """As in Kafka, the calls are refused, and what they would have sent is nowhere."""
    calls: list[Callable[[], object]] = [
        producer.init_transactions,
        producer.begin_transaction,
        lambda: producer.send_offsets_to_transaction({}, "group"),
        producer.commit_transaction,
        producer.abort_transaction,
    ]

    for call in calls:
        with pytest.raises(IllegalStateError, match="no transactional_id"):
            call()


def test_metrics_have_kafkas_names(cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """Records, errors and bytes add up."""
    cluster.create_topic("orders", 1, {"max.message.bytes": "500"})
    producer = make(linger_ms=10_000)
    for size in (30, 30, 1000):
        producer.send("orders", b"v" * size)
    producer.flush(60)

    groups = producer.metrics()

    assert groups is not None
    totals = groups["producer-metrics"]
    assert (totals["record-send-total"], totals["record-error-total"], totals["request-total"]) == (2, 1, 1)
    assert (totals["batch-size-avg"], totals["record-size-avg"]) == (200, 100)
    assert groups["producer-topic-metrics.orders"]["record-send-total"] == 2
    assert (producer.metrics(raw=True) or {})["producer-metrics", "record-send-total"] == 2


def test_metrics_can_be_switched_off(make: Callable[..., KafkaProducer]) -> None:
    """Then there are none."""
    assert make(metrics_enabled=False).metrics() is None


def test_a_connected_producer_says_so(producer: KafkaProducer) -> None:
    """The root can be read."""
    assert producer.bootstrap_connected()


def test_every_error_of_a_future_is_a_kafka_error(cluster: Cluster, producer: KafkaProducer) -> None:
    """Whoever catches KafkaError catches all."""
    cluster.create_topic("orders", 1, {"cleanup.policy": "compact"})

    with pytest.raises(KafkaError):
        producer.send("orders", b"v").get(60)


def test_a_producer_of_many_topics_keeps_few_logs_open(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that was closed is opened again when its topic has its turn; no record is lost or out of order."""
    monkeypatch.setattr(open_logs, "MAX_OPEN_LOGS", 2)
    names = [f"t{number}" for number in range(6)]
    for name in names:
        cluster.create_topic(name, 1, {})
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        for nth in range(3):
            for name in names:
                producer.send(name, b"%d" % nth).get(60)
        open_now = len(producer._sender._logs._used)

    assert open_now <= 2
    for name in names:
        assert partition_values(cluster.log(name)) == [b"0", b"1", b"2"]
