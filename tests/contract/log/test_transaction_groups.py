"""Offsets in transactions: members, static members, groups without members, zombies; and what consumers read."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalike.connect import connect
from kafkalike.consumer import KafkaConsumer
from kafkalike.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.producer import KafkaProducer
from kafkalike.spark import transaction
from tests.tools.records import batch
from tests.tools.transactional import T0, T1, U0, committed, polled, values


@pytest.fixture
def reader_of(log_cluster: Cluster) -> Iterator[Callable[..., KafkaConsumer]]:
    """Makes consumers with a group that commit nothing by themselves."""
    made: list[KafkaConsumer] = []

    def reader(*topics: str, **configs: Any) -> KafkaConsumer:
        settings: dict[str, Any] = {
            "bootstrap_servers": log_cluster,
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            **configs,
        }
        made.append(KafkaConsumer(*topics, **settings))
        return made[-1]

    yield reader
    for one in made:
        one.close(autocommit=False)


def copied(producer: KafkaProducer, consumer: KafkaConsumer, number: int) -> None:
    """Consume so many records of `t`, and produce them to `u` in one transaction."""
    records = polled(consumer, number)
    producer.begin_transaction()
    for record in records:
        producer.send("u", record.value)
    offsets = {tp: OffsetAndMetadata(consumer.position(tp)) for tp in consumer.assignment()}
    producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
    producer.commit_transaction()


@pytest.mark.parametrize("settings", [{}, {"group_instance_id": "one"}], ids=["member", "static member"])
def test_a_member_commits_its_offsets_in_a_transaction(
    log_cluster: Cluster,
    producer_of: Callable[..., KafkaProducer],
    producer: KafkaProducer,
    reader_of: Callable[..., KafkaConsumer],
    settings: dict[str, Any],
) -> None:
    """The consumer sees them as its own, and another one of the group goes on there."""
    plain = producer_of(transactional_id=None)
    for number in range(4):
        plain.send("t", str(number).encode(), partition=number % 2)
    plain.flush()
    consumer = reader_of("t", isolation_level="read_committed", **settings)

    copied(producer, consumer, 4)

    assert (consumer.committed(T0), consumer.committed(T1)) == (2, 2)
    assert sorted(value for value in values(log_cluster, "u") if value) == [b"0", b"1", b"2", b"3"]
    assert consumer.committed(T0, metadata=True) == OffsetAndMetadata(2)


def test_a_consumer_with_assigned_partitions_has_a_group_without_members(
    log_cluster: Cluster,
    producer_of: Callable[..., KafkaProducer],
    producer: KafkaProducer,
    reader_of: Callable[..., KafkaConsumer],
) -> None:
    """Its metadata have no generation; offsets are committed in the group's name."""
    producer_of(transactional_id=None).send("t", b"v", partition=0).get(60)
    consumer = reader_of()
    consumer.assign([T0])

    copied(producer, consumer, 1)

    assert committed(log_cluster) == {T0: OffsetAndMetadata(1)}


def test_a_consumer_that_was_taken_for_dead_commits_nothing(
    log_cluster: Cluster,
    producer_of: Callable[..., KafkaProducer],
    producer: KafkaProducer,
    reader_of: Callable[..., KafkaConsumer],
) -> None:
    """KIP-447: neither its offsets nor its records; its producer may go on after an abort."""
    producer_of(transactional_id=None).send("t", b"v", partition=0).get(60)
    zombie = reader_of("t")
    records = polled(zombie, 1)
    metadata = zombie.group_metadata()
    producer.begin_transaction()
    producer.send("u", records[0].value)
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, metadata)
    zombie.close(autocommit=False)

    with pytest.raises(CommitFailedError):
        producer.commit_transaction()
    with pytest.raises(TransactionAbortableError):
        producer.commit_transaction()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("u", b"next")
    producer.commit_transaction()

    assert (values(log_cluster, "u"), committed(log_cluster)) == ([b"next"], {})


@pytest.mark.parametrize("settings", [{}, {"group_instance_id": "one"}], ids=["member", "static member"])
def test_a_consumer_that_its_group_has_left_behind_is_told_when_it_gives_its_offsets(
    log_cluster: Cluster,
    producer_of: Callable[..., KafkaProducer],
    producer: KafkaProducer,
    reader_of: Callable[..., KafkaConsumer],
    settings: dict[str, Any],
) -> None:
    """As Kafka's brokers do, not only by the commit: the transaction must be aborted then."""
    producer_of(transactional_id=None).send("t", b"v", partition=0).get(60)
    first = reader_of("t", **settings)
    polled(first, 1)
    stale = first.group_metadata()
    if not settings:
        first.close(autocommit=False)
    second = reader_of("t", **settings)
    polled(second, 1)

    producer.begin_transaction()
    producer.send("u", b"v")
    with pytest.raises((CommitFailedError, FencedInstanceIdError)) as refused:
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, stale)
    with pytest.raises(TransactionAbortableError) as abortable:
        producer.commit_transaction()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, second.group_metadata())
    producer.commit_transaction()

    assert isinstance(refused.value, FencedInstanceIdError if settings else CommitFailedError)
    assert abortable.value.__cause__ is refused.value
    assert (values(log_cluster, "u"), committed(log_cluster)) == ([], {T0: OffsetAndMetadata(1)})


def test_a_generation_that_is_over_is_told_at_once(
    log_cluster: Cluster, producer: KafkaProducer, reader_of: Callable[..., KafkaConsumer]
) -> None:
    """With Kafka's error as the cause."""
    member = reader_of("t")
    member.poll(timeout_ms=100)
    known = member.group_metadata()
    log_cluster.groups.refresh()
    producer.begin_transaction()

    with pytest.raises(CommitFailedError) as refused:
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, known._replace(generation_id=987))

    assert isinstance(refused.value.__cause__, IllegalGenerationError)


def test_a_group_that_moved_on_in_another_process_is_told_at_once(
    log_cluster: Cluster, open_log_cluster: Callable[..., Cluster], producer_of: Callable[..., KafkaProducer]
) -> None:
    """Nobody in the producer's process has looked at the group since: the call does, as Kafka's asks the broker.

    In an object store within a second: one look serves all who ask in that time.
    """
    del producer_of
    elsewhere: Any = open_log_cluster(elsewhere=True)
    tries = 10_000 if getattr(elsewhere, "store", None) is not None and elsewhere.store.scheduler.is_remote else 1
    with (
        KafkaProducer(bootstrap_servers=elsewhere, transactional_id="elsewhere") as producer,
        KafkaConsumer("t", bootstrap_servers=log_cluster, group_id="g", enable_auto_commit=False) as member,
    ):
        producer.init_transactions()
        member.poll(timeout_ms=100)
        stale = member.group_metadata()
        elsewhere.groups.refresh()
        member.close(autocommit=False)

        def refused() -> bool:
            producer.begin_transaction()
            try:
                producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, stale)
            except CommitFailedError:
                return True
            finally:
                producer.abort_transaction()
            return False

        assert any(refused() for _ in range(tries))


def test_a_member_that_is_not_known_here_yet_is_looked_for(
    log_cluster: Cluster, open_log_cluster: Callable[[], Cluster], producer_of: Callable[..., KafkaProducer]
) -> None:
    """Its consumer may know more than the producer's process: the group is looked at before it is refused."""
    del producer_of
    with (
        KafkaProducer(bootstrap_servers=open_log_cluster(), transactional_id="elsewhere") as producer,
        KafkaConsumer("t", bootstrap_servers=log_cluster, group_id="g", enable_auto_commit=False) as member,
    ):
        producer.init_transactions()
        member.poll(timeout_ms=100)
        producer.begin_transaction()
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, member.group_metadata())
        producer.commit_transaction()

        assert member.committed(T0) == 1


def test_a_static_member_whose_name_was_taken_over_commits_nothing(
    log_cluster: Cluster,
    producer_of: Callable[..., KafkaProducer],
    producer: KafkaProducer,
    reader_of: Callable[..., KafkaConsumer],
) -> None:
    """`FencedInstanceIdError`, or what Kafka says of an unknown member."""
    producer_of(transactional_id=None).send("t", b"v", partition=0).get(60)
    first = reader_of("t", group_instance_id="one")
    polled(first, 1)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, first.group_metadata())
    second = reader_of("t", group_instance_id="one")
    polled(second, 1)

    with pytest.raises((FencedInstanceIdError, CommitFailedError)):
        producer.commit_transaction()
    producer.abort_transaction()

    assert committed(log_cluster) == {}


def test_the_groups_id_alone_is_not_looked_at(
    log_cluster: Cluster,
    producer_of: Callable[..., KafkaProducer],
    producer: KafkaProducer,
    reader_of: Callable[..., KafkaConsumer],
) -> None:
    """As in Kafka before KIP-447: nobody says which member it is, so nobody can be found to be none."""
    producer_of(transactional_id=None).send("t", b"v", partition=0).get(60)
    consumer = reader_of("t")
    polled(consumer, 1)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, "g")
    producer.commit_transaction()

    assert committed(log_cluster) == {T0: OffsetAndMetadata(1)}


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_both_isolation_levels_read_the_same_and_wait_for_nobody(
    producer_of: Callable[..., KafkaProducer],
    producer: KafkaProducer,
    reader_of: Callable[..., KafkaConsumer],
    level: str,
) -> None:
    """An open transaction holds up nobody who reads on behind it."""
    producer.begin_transaction()
    producer.send("u", b"open").get(60)
    producer_of(transactional_id=None).send("u", b"plain").get(60)
    consumer = reader_of("u", isolation_level=level)

    before = [record.value for record in polled(consumer, 1)]
    ends = consumer.end_offsets([U0])
    producer.commit_transaction()
    after = [record.value for record in polled(consumer, 1)]

    assert (before, ends, after) == ([b"plain"], {U0: 1}, [b"open"])


# --- topics that are deleted and created again ---------------------------------------------------


def create_again(cluster: Cluster, topic: str = "t", partitions: int = 2) -> None:
    """Another topic takes the name, with two records in its first partition."""
    cluster.delete_topic(topic)
    cluster.create_topic(topic, partitions, {})
    cluster.log(topic).append(batch((0, "new 0"), (0, "new 1")))


def check_refused_and_read_from_the_start(
    cluster: Cluster, producer: KafkaProducer, reader_of: Callable[..., KafkaConsumer]
) -> None:
    """The group has no offset in the new topic, so it skips none of its records."""
    with pytest.raises(UnknownTopicOrPartitionError, match="deleted and created again"):
        producer.commit_transaction()
    producer.abort_transaction()
    assert committed(cluster) == {}
    assert values(cluster, "u") == []
    assert [record.value for record in polled(reader_of("t"), 2)] == [b"new 0", b"new 1"]


@pytest.mark.parametrize("whose", ["group id", "consumer"])
def test_offsets_of_a_topic_that_is_created_again_before_the_commit_are_refused(
    log_cluster: Cluster, producer: KafkaProducer, reader_of: Callable[..., KafkaConsumer], whose: str
) -> None:
    reader = reader_of()
    reader.assign([T0])
    reader.seek(T0, 0)
    reader.poll(0)
    producer.begin_transaction()
    producer.send("u", b"made of t")

    producer.send_offsets_to_transaction(
        {T0: OffsetAndMetadata(1)}, "g" if whose == "group id" else reader.group_metadata()
    )
    create_again(log_cluster)

    check_refused_and_read_from_the_start(log_cluster, producer, reader_of)


def test_offsets_of_a_consumer_that_has_read_the_topic_before_it_was_created_again_are_refused(
    log_cluster: Cluster, producer: KafkaProducer, reader_of: Callable[..., KafkaConsumer]
) -> None:
    """Also where they are given after that: the consumer's metadata say which topic it has read."""
    reader = reader_of()
    reader.assign([T0])
    reader.seek(T0, 0)
    reader.poll(0)
    create_again(log_cluster)
    producer.begin_transaction()
    producer.send("u", b"made of t")

    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, reader.group_metadata())

    check_refused_and_read_from_the_start(log_cluster, producer, reader_of)


def test_offsets_of_a_partition_that_the_topic_has_no_more_are_refused(
    log_cluster: Cluster, producer: KafkaProducer, reader_of: Callable[..., KafkaConsumer]
) -> None:
    producer.begin_transaction()
    producer.send("u", b"made of t")
    producer.send_offsets_to_transaction({T1: OffsetAndMetadata(1)}, "g")
    create_again(log_cluster, partitions=1)

    with pytest.raises(UnknownTopicOrPartitionError):
        producer.commit_transaction()
    producer.abort_transaction()

    assert values(log_cluster, "u") == []


def test_offsets_of_both_topics_of_a_name_in_one_transaction_are_refused(
    log_cluster: Cluster, producer: KafkaProducer
) -> None:
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, "g")
    create_again(log_cluster)

    with pytest.raises(UnknownTopicOrPartitionError, match="abort it"):
        producer.send_offsets_to_transaction({T1: OffsetAndMetadata(1)}, "h")
    with pytest.raises(TransactionAbortableError):
        producer.commit_transaction()
    producer.abort_transaction()

    assert committed(log_cluster) == {}


def test_offsets_of_a_topic_that_is_created_after_they_were_given_are_refused(
    log_cluster: Cluster, producer: KafkaProducer
) -> None:
    """They cannot have been read from it."""
    log_cluster.delete_topic("t")
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, "g")
    log_cluster.create_topic("t", 2, {})

    with pytest.raises(UnknownTopicOrPartitionError):
        producer.commit_transaction()
    producer.abort_transaction()

    assert committed(log_cluster) == {}


def test_later_offsets_of_a_partition_take_the_place_of_earlier_ones(
    log_cluster: Cluster, producer: KafkaProducer
) -> None:
    """Whichever topics come along with them."""
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, "g")
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(3), U0: OffsetAndMetadata(0)}, "g")
    producer.commit_transaction()

    assert committed(log_cluster) == {T0: OffsetAndMetadata(3), U0: OffsetAndMetadata(0)}
    assert len([row for row in log_cluster.groups.rows if row.kind == "offset"]) == 2


@pytest.mark.parametrize("partition", [0, 1], ids=["partition there", "partition gone"])
def test_offsets_of_a_spark_transaction_whose_topic_is_created_again_are_refused(
    tmp_path: Path, partition: int
) -> None:
    cluster = connect(str(tmp_path), access="spark")
    for name in ("t", "u"):
        cluster.create_topic(name, 2, {})
    block = transaction("nightly", str(tmp_path))

    def commit_of_the_first_one() -> None:
        with block:
            block.commit_offsets("g", {TopicPartition("t", partition): 1})
            create_again(cluster, partitions=1)

    def commit_of_both() -> None:
        with block:
            block.commit_offsets("g", {T0: 1})
            create_again(cluster)
            block.commit_offsets("h", {T0: 1})

    with pytest.raises(UnknownTopicOrPartitionError):
        commit_of_the_first_one()
    with pytest.raises(UnknownTopicOrPartitionError, match="abort it"):
        commit_of_both()
    assert committed(cluster) == {}

    with block:
        block.commit_offsets("g", {T0: 1})
    assert committed(cluster) == {T0: OffsetAndMetadata(1)}
