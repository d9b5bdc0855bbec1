"""Transactions of KafkaProducer over every kind of cluster: what a program calls, and what readers see."""

from collections.abc import Callable
from typing import Any

import pytest

from kafkalike.errors import (
    IllegalArgumentError,
    IllegalStateError,
    InvalidGroupIdError,
    KafkaConfigurationError,
    OffsetMetadataTooLargeError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafkalike.producer import KafkaProducer
from tests.tools.kinds import only_in_memory
from tests.tools.transactional import T0, T1, U0, committed, values

# --- what a transaction is ------------------------------------------------------------------------


def test_kafka_pythons_own_case(log_cluster: Cluster, producer: KafkaProducer) -> None:
    """Each send is waited for inside the transaction; what was aborted is nowhere."""
    producer.begin_transaction()
    producer.send("t", partition=0, value=b"msg1").get(60)
    producer.send("t", partition=0, value=b"msg2").get(60)
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("t", partition=0, value=b"msg3").get(60)
    producer.send("t", partition=0, value=b"msg4").get(60)
    producer.commit_transaction()

    assert values(log_cluster, "t") == [b"msg3", b"msg4"]


def test_records_of_several_topics_and_offsets_are_committed_together(
    log_cluster: Cluster, producer: KafkaProducer
) -> None:
    """Before the commit nobody sees any of them; afterwards everybody sees all, and the caller has the offsets."""
    producer.begin_transaction()
    futures = [producer.send("t", b"a0", partition=0), producer.send("t", b"b0", partition=1)]
    futures += [producer.send("u", b"c0"), producer.send("t", b"a1", partition=0)]
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(7, "note")}, "g")
    offsets = [future.get(60).offset for future in futures]
    seen = (values(log_cluster, "t"), values(log_cluster, "u"), committed(log_cluster))
    ranges = producer.commit_transaction()

    assert offsets == [-1, -1, -1, -1]
    assert seen == ([], [], {})
    assert ranges == {T0: range(2), T1: range(1), U0: range(1)}
    assert (values(log_cluster, "t"), values(log_cluster, "t", 1)) == ([b"a0", b"a1"], [b"b0"])
    assert values(log_cluster, "u") == [b"c0"]
    assert committed(log_cluster) == {T0: OffsetAndMetadata(7, "note")}


def test_a_future_says_where_the_record_goes_and_with_which_sizes(producer: KafkaProducer) -> None:
    """Everything but the offset, which the commit gives."""
    producer.begin_transaction()

    done = producer.send("t", b"value", b"k", [("h", b"xyz")], 1, 123).get(60)

    assert (done.topic, done.partition, done.offset, done.timestamp) == ("t", 1, -1, 123)
    assert (done.serialized_key_size, done.serialized_value_size, done.serialized_header_size) == (1, 5, 4)


def test_offsets_go_on_densely_over_commits_aborts_and_other_producers(
    log_cluster: Cluster, producer_of: Callable[..., KafkaProducer], producer: KafkaProducer
) -> None:
    """There are no markers and no holes."""
    plain = producer_of(transactional_id=None)
    plain.send("t", b"0", partition=0).get(60)
    found = []
    for number, commit in enumerate([True, False, True], start=1):
        producer.begin_transaction()
        producer.send("t", str(number).encode(), partition=0)
        if commit:
            found.append(producer.commit_transaction()[T0])
        else:
            producer.abort_transaction()
        plain.send("t", b"-", partition=0).get(60)

    assert found == [range(1, 2), range(4, 5)]
    assert values(log_cluster, "t") == [b"0", b"1", b"-", b"-", b"3", b"-"]


def test_an_empty_transaction_is_committed_and_aborted_at_no_cost(
    log_cluster: Cluster, producer: KafkaProducer
) -> None:
    """Kafka's client asks nobody, either."""
    before = log_cluster.groups.refresh().seq
    producer.begin_transaction()
    producer.send_offsets_to_transaction({}, "g")
    done = producer.commit_transaction()
    producer.begin_transaction()
    producer.abort_transaction()

    assert done == {}
    assert log_cluster.groups.refresh().seq == before


def test_a_transaction_of_offsets_alone(log_cluster: Cluster, producer: KafkaProducer) -> None:
    """What a program does that filters everything out; a later offset takes the place of an earlier one."""
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(1)}, "g")
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(6)}, "g")
    producer.send_offsets_to_transaction({U0: OffsetAndMetadata(2)}, "h")

    assert producer.commit_transaction() == {}
    assert committed(log_cluster) == {T0: OffsetAndMetadata(6), T1: OffsetAndMetadata(1)}
    assert committed(log_cluster, "h") == {U0: OffsetAndMetadata(2)}


def test_an_aborted_transaction_commits_no_offsets_and_keeps_those_before(
    log_cluster: Cluster, producer: KafkaProducer
) -> None:
    """As MockProducer has it: earlier commits stay."""
    for offset, end in ((3, producer.commit_transaction), (9, producer.abort_transaction)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(offset)}, "g")
        end()

    assert committed(log_cluster) == {T0: OffsetAndMetadata(3)}


def test_many_batches_of_many_sizes_come_in_order(
    log_cluster: Cluster, producer_of: Callable[..., KafkaProducer]
) -> None:
    """A buffer that holds a part of them only: they are staged bit by bit."""
    producer = producer_of(buffer_memory=20_000)
    producer.init_transactions()
    producer.begin_transaction()
    sent = [str(number).encode().ljust(number * 7 % 300, b".") for number in range(500)]
    for number, value in enumerate(sent):
        producer.send("t", value, partition=number % 2)

    ranges = producer.commit_transaction()

    assert ranges == {T0: range(250), T1: range(250)}
    assert (values(log_cluster, "t"), values(log_cluster, "t", 1)) == (sent[::2], sent[1::2])


def test_keys_go_where_they_go_without_a_transaction(
    log_cluster: Cluster, producer_of: Callable[..., KafkaProducer], producer: KafkaProducer
) -> None:
    """The partitioner is the same."""
    plain = producer_of(transactional_id=None)
    keys = [str(number).encode() for number in range(40)]
    expected = [plain.send("t", b"v", key).get(60).partition for key in keys]
    producer.begin_transaction()
    futures = [producer.send("t", b"v", key) for key in keys]
    producer.commit_transaction()

    assert [future.get(60).partition for future in futures] == expected


# --- order of calls -------------------------------------------------------------------------------


def test_calls_out_of_order_are_refused_and_change_nothing(log_cluster: Cluster, producer: KafkaProducer) -> None:
    """Java's MockProducer refuses the same; initialising again is fine, as in kafka-python."""
    calls: list[Callable[[], object]] = [
        producer.commit_transaction,
        producer.abort_transaction,
        lambda: producer.send("t", b"v"),
        lambda: producer.send("new", b"v"),
        lambda: producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, "g"),
    ]
    for call in calls:
        with pytest.raises(IllegalStateError):
            call()
    producer.init_transactions()
    producer.begin_transaction()
    with pytest.raises(IllegalStateError):
        producer.begin_transaction()
    producer.send("t", b"v", partition=0)
    producer.commit_transaction()

    assert values(log_cluster, "t") == [b"v"]
    assert "new" not in log_cluster.topics()


def test_nothing_works_before_init_transactions(producer_of: Callable[..., KafkaProducer]) -> None:
    """Not even sending: the producer was made for transactions."""
    producer = producer_of()

    for call in (producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(IllegalStateError, match="init_transactions"):
            call()
    with pytest.raises(IllegalStateError, match="init_transactions"):
        producer.send("t", b"v")


def test_nothing_works_after_close(producer: KafkaProducer) -> None:
    """As in MockProducer."""
    producer.close()

    calls: list[Callable[[], object]] = [
        producer.init_transactions,
        producer.begin_transaction,
        lambda: producer.send_offsets_to_transaction({}, "g"),
        producer.commit_transaction,
        producer.abort_transaction,
    ]
    for call in calls:
        with pytest.raises(IllegalStateError, match="closed"):
            call()


def test_a_callback_must_not_end_its_transaction(producer: KafkaProducer) -> None:
    """It runs in the thread that stages; waiting there would be waiting for itself."""
    found: list[BaseException] = []

    def commit(_: object) -> None:
        try:
            producer.commit_transaction()
        except IllegalStateError as error:
            found.append(error)

    producer.begin_transaction()
    producer.send("t", b"v").add_callback(commit)
    producer.flush()

    assert "callback" in str(found[0])
    assert sum(len(run) for run in producer.commit_transaction().values()) == 1


@pytest.mark.parametrize("partition", [2, 99, -1])
def test_offsets_of_a_partition_that_does_not_exist_are_refused(
    log_cluster: Cluster, open_log_cluster: Callable[[], Cluster], producer: KafkaProducer, partition: int
) -> None:
    """As by the consumer's commit; one that another process has just added is there."""
    if partition == 2:
        open_log_cluster().add_partitions("t", 3)
        partition = 3
    producer.begin_transaction()
    producer.send("t", b"v", partition=0)
    producer.send_offsets_to_transaction({TopicPartition("t", partition): OffsetAndMetadata(1)}, "g")

    with pytest.raises(UnknownTopicOrPartitionError, match=f"t-{partition} does not exist"):
        producer.commit_transaction()
    producer.abort_transaction()
    if partition == 3:
        producer.begin_transaction()
        producer.send_offsets_to_transaction({TopicPartition("t", 2): OffsetAndMetadata(1)}, "g")
        producer.commit_transaction()

    assert values(log_cluster, "t") == []


@only_in_memory("open_log_cluster")
@pytest.mark.parametrize("names", [{"transactional_id": "\ud800"}, {"client_id": "\ud800"}])
def test_a_name_that_cannot_be_stored_is_refused_by_name(
    producer_of: Callable[..., KafkaProducer], names: dict[str, str]
) -> None:
    """Half of a surrogate pair, as a broken decoder leaves it."""
    with pytest.raises(KafkaConfigurationError, match=next(iter(names))):
        producer_of(**names)


@only_in_memory("open_log_cluster")
@pytest.mark.parametrize(
    ("offsets", "metadata", "error"),
    [
        ([T0], "g", TypeError),
        ({"t": OffsetAndMetadata(1)}, "g", TypeError),
        ({T0: 1}, "g", TypeError),
        ({T0: OffsetAndMetadata(-1)}, "g", IllegalArgumentError),
        ({T0: OffsetAndMetadata(1, "x" * 5000)}, "g", OffsetMetadataTooLargeError),
        ({T0: OffsetAndMetadata(1)}, "", InvalidGroupIdError),
        ({T0: OffsetAndMetadata(1)}, "\ud800", InvalidGroupIdError),
        ({T0: OffsetAndMetadata(1)}, None, TypeError),
        ({T0: OffsetAndMetadata(1)}, ConsumerGroupMetadata(), InvalidGroupIdError),
        ({T0: OffsetAndMetadata(1)}, ConsumerGroupMetadata("g", 3), ValueError),
    ],
    ids=repr,
)
def test_offsets_that_cannot_be_meant_are_refused_and_the_transaction_goes_on(
    log_cluster: Cluster, producer: KafkaProducer, offsets: Any, metadata: Any, error: type[Exception]
) -> None:
    """By the call itself, before anything is written."""
    producer.begin_transaction()

    with pytest.raises(error):
        producer.send_offsets_to_transaction(offsets, metadata)
    producer.send("t", b"v", partition=0)
    producer.commit_transaction()

    assert (values(log_cluster, "t"), committed(log_cluster)) == ([b"v"], {})
