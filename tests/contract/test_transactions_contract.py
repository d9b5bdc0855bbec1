"""Transactions of KafkaProducer over every kind of cluster: what a program calls, what readers see, what it is told."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kafkalike
from kafkalike.config.server import ServerConfig
from kafkalike.consumer import KafkaConsumer
from kafkalike.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidGroupIdError,
    InvalidProducerEpochError,
    InvalidTransactionTimeoutError,
    KafkaError,
    MessageSizeTooLargeError,
    OffsetMetadataTooLargeError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnknownTopicOrPartitionError,
)
from kafkalike.clock import SYSTEM_CLOCK, Deadline
from kafkalike.group.offsets import GroupOffsets
from kafkalike.log.port import Cluster
from kafkalike.model.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafkalike.producer import FutureRecordMetadata, KafkaProducer
from kafkalike.testing import ManualClock, MemoryCluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
U0 = TopicPartition("u", 0)
PATIENCE_MS = 60_000


@pytest.fixture
def make(log_cluster: Cluster) -> Iterator[Callable[..., KafkaProducer]]:
    """Makes producers of one transactional id that are closed after the test; topics `t` (2 partitions) and `u`."""
    log_cluster.create_topic("t", 2, {})
    log_cluster.create_topic("u", 1, {})
    made: list[KafkaProducer] = []

    def producer(**configs: Any) -> KafkaProducer:
        made.append(KafkaProducer(bootstrap_servers=log_cluster, **{"transactional_id": "copier", **configs}))
        return made[-1]

    yield producer
    for one in made:
        one.close(60)


@pytest.fixture
def producer(make: Callable[..., KafkaProducer]) -> KafkaProducer:
    """An initialised producer."""
    one = make()
    one.init_transactions()
    return one


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


def values(cluster: Cluster, topic: str, partition: int = 0) -> list[bytes | None]:
    """Values of a partition, in offset order, which must be dense from 0 on."""
    log = cluster.log(topic)
    log.refresh()
    chunk = log.reader(partition, 0).read(1 << 30)
    if chunk is None:
        return []
    assert chunk.columns().offsets == list(range(log.log_end(partition)))
    return list(chunk.columns().values)


def committed(cluster: Cluster, group: str = "g") -> dict[TopicPartition, OffsetAndMetadata]:
    """What a group has committed."""
    ids = {name: info.topic_id for name, info in cluster.topics().items()}
    return GroupOffsets.of(cluster, SYSTEM_CLOCK).committed(group, [T0, T1, U0], ids)


def polled(consumer: KafkaConsumer, number: int) -> list[Any]:
    """So many records, from as many polls as it takes."""
    found: list[Any] = []
    while len(found) < number:
        found += [record for records in consumer.poll(timeout_ms=500).values() for record in records]
    return found


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
    log_cluster: Cluster, make: Callable[..., KafkaProducer], producer: KafkaProducer
) -> None:
    """There are no markers and no holes."""
    plain = make(transactional_id=None)
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


def test_an_empty_transaction_is_committed_and_aborted_at_no_cost(log_cluster: Cluster, producer: KafkaProducer) -> None:
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


def test_many_batches_of_many_sizes_come_in_order(log_cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """A buffer that holds a part of them only: they are staged bit by bit."""
    producer = make(buffer_memory=20_000)
    producer.init_transactions()
    producer.begin_transaction()
    sent = [str(number).encode().ljust(number * 7 % 300, b".") for number in range(500)]
    for number, value in enumerate(sent):
        producer.send("t", value, partition=number % 2)

    ranges = producer.commit_transaction()

    assert ranges == {T0: range(250), T1: range(250)}
    assert (values(log_cluster, "t"), values(log_cluster, "t", 1)) == (sent[::2], sent[1::2])


def test_keys_go_where_they_go_without_a_transaction(
    log_cluster: Cluster, make: Callable[..., KafkaProducer], producer: KafkaProducer
) -> None:
    """The partitioner is the same."""
    plain = make(transactional_id=None)
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


def test_nothing_works_before_init_transactions(make: Callable[..., KafkaProducer]) -> None:
    """Not even sending: the producer was made for transactions."""
    producer = make()

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


@pytest.mark.parametrize(
    ("offsets", "metadata", "error"),
    [
        ([T0], "g", TypeError),
        ({"t": OffsetAndMetadata(1)}, "g", TypeError),
        ({T0: 1}, "g", TypeError),
        ({T0: OffsetAndMetadata(-1)}, "g", IllegalArgumentError),
        ({T0: OffsetAndMetadata(1, "x" * 5000)}, "g", OffsetMetadataTooLargeError),
        ({T0: OffsetAndMetadata(1)}, "", InvalidGroupIdError),
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


# --- failures -------------------------------------------------------------------------------------


def test_a_record_that_the_topic_refuses_makes_the_transaction_one_to_be_aborted(
    log_cluster: Cluster, producer: KafkaProducer
) -> None:
    """Its future says why, the calls say to abort, and the producer goes on."""
    log_cluster.create_topic("small", 1, {"max.message.bytes": "500"})
    producer.begin_transaction()
    good = producer.send("t", b"good", partition=0)
    bad = producer.send("small", b"x" * 1000)
    producer.flush()
    with pytest.raises(TransactionAbortableError) as refused:
        producer.send("t", b"more")
    with pytest.raises(TransactionAbortableError):
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, "g")
    with pytest.raises(TransactionAbortableError):
        producer.commit_transaction()
    with pytest.raises(TransactionAbortableError):
        producer.begin_transaction()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("t", b"next", partition=0)
    producer.commit_transaction()

    assert good.succeeded()
    assert type(bad.exception) is MessageSizeTooLargeError
    assert type(refused.value.__cause__) is MessageSizeTooLargeError
    assert values(log_cluster, "t") == [b"next"]


def test_a_commit_finds_the_record_that_failed_while_it_waited(log_cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """Nothing of the transaction is written."""
    log_cluster.create_topic("small", 1, {"max.message.bytes": "500"})
    producer = make(linger_ms=5_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"good", partition=0)
    producer.send("small", b"x" * 1000)

    with pytest.raises(TransactionAbortableError, match="500"):
        producer.commit_transaction()
    producer.abort_transaction()

    assert (values(log_cluster, "t"), values(log_cluster, "small")) == ([], [])


def test_records_that_wait_are_aborted_with_their_transaction(make: Callable[..., KafkaProducer]) -> None:
    """KIP-654: they fail by a name of their own; what was staged has its outcome already."""
    producer = make(linger_ms=60_000, delivery_timeout_ms=120_000)
    producer.init_transactions()
    producer.begin_transaction()
    staged = producer.send("t", b"staged")
    producer.flush()
    waiting = producer.send("t", b"waiting")
    producer.abort_transaction()

    assert staged.succeeded()
    with pytest.raises(TransactionAbortedError):
        waiting.get(60)


def test_a_topic_that_is_deleted_before_the_commit(log_cluster: Cluster, producer: KafkaProducer) -> None:
    """Nothing of the transaction is committed, in no topic."""
    producer.begin_transaction()
    producer.send("t", b"v", partition=0)
    producer.send("u", b"v")
    producer.flush()
    log_cluster.delete_topic("u")

    with pytest.raises(UnknownTopicOrPartitionError):
        producer.commit_transaction()
    producer.abort_transaction()

    assert values(log_cluster, "t") == []


def test_a_timeout_above_the_servers_is_refused(make: Callable[..., KafkaProducer]) -> None:
    """15 minutes, unless the server says otherwise."""
    with pytest.raises(InvalidTransactionTimeoutError, match="900000"):
        make(transaction_timeout_ms=900_001).init_transactions()
    make(transaction_timeout_ms=900_000).init_transactions()


def test_the_servers_own_limit_counts() -> None:
    """`transaction.max.timeout.ms` of its properties."""
    server = ServerConfig.from_properties({"transaction.max.timeout.ms": "1000"})
    cluster = MemoryCluster(server=server)
    with KafkaProducer(bootstrap_servers=cluster, transactional_id="x") as producer:
        with pytest.raises(InvalidTransactionTimeoutError, match="1000"):
            producer.init_transactions()


# --- several producers of one id ------------------------------------------------------------------


@pytest.mark.parametrize("end", ["commit", "abort", "later"])
def test_a_newer_producer_of_the_id_fences_the_older_one(
    log_cluster: Cluster, make: Callable[..., KafkaProducer], producer: KafkaProducer, end: str
) -> None:
    """Whatever the older one does next, nothing of it is committed, and it is told so for good."""
    producer.begin_transaction()
    producer.send("t", b"old", partition=0).get(60)
    newer = make()
    newer.init_transactions()
    newer.begin_transaction()
    newer.send("t", b"new", partition=0)
    if end == "later":
        newer.commit_transaction()

    with pytest.raises(ProducerFencedError):
        producer.abort_transaction() if end == "abort" else producer.commit_transaction()
    calls: list[Callable[[], object]] = [
        producer.begin_transaction,
        producer.commit_transaction,
        producer.abort_transaction,
        producer.init_transactions,
        lambda: producer.send("t", b"more"),
        lambda: producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, "g"),
    ]
    for call in calls:
        with pytest.raises(ProducerFencedError):
            call()
    producer.close()
    if end != "later":
        newer.commit_transaction()

    assert values(log_cluster, "t") == [b"new"]


def test_an_administrator_may_end_a_transaction(log_cluster: Cluster, producer: KafkaProducer) -> None:
    """The producer hears another error than that of a newer producer."""
    producer.begin_transaction()
    producer.send("t", b"v", partition=0).get(60)
    log_cluster.transactions.fence("copier", Deadline(SYSTEM_CLOCK, PATIENCE_MS))

    with pytest.raises(InvalidProducerEpochError):
        producer.commit_transaction()
    with pytest.raises(InvalidProducerEpochError):
        producer.begin_transaction()
    assert values(log_cluster, "t") == []


def test_producers_of_different_ids_do_not_meet(log_cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """Each has its own transactions, open at the same time."""
    producers = [make(transactional_id=f"id-{number}") for number in range(3)]
    for number, one in enumerate(producers):
        one.init_transactions()
        one.begin_transaction()
        one.send("u", str(number).encode())
    for one in reversed(producers):
        one.commit_transaction()

    assert values(log_cluster, "u") == [b"2", b"1", b"0"]


def test_the_next_producer_of_an_id_goes_on_after_the_one_before(log_cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """Closed or not; what was open is nowhere."""
    for number in range(4):
        one = make()
        one.init_transactions()
        one.begin_transaction()
        one.send("u", f"kept-{number}".encode())
        one.commit_transaction()
        one.begin_transaction()
        one.send("u", f"lost-{number}".encode()).get(60)
        if number % 2:
            one.close()

    assert values(log_cluster, "u") == [f"kept-{number}".encode() for number in range(4)]


# --- close, threads -------------------------------------------------------------------------------


def test_close_aborts_the_open_transaction(log_cluster: Cluster, producer: KafkaProducer) -> None:
    """As Kafka's producer does; nothing is left open for its timeout."""
    producer.begin_transaction()
    future = producer.send("t", b"v", partition=0)
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, "g")
    producer.close()

    assert future.is_done
    assert (values(log_cluster, "t"), committed(log_cluster)) == ([], {})
    assert log_cluster.transactions.open_for() == []


def test_threads_send_into_one_transaction(log_cluster: Cluster, producer: KafkaProducer) -> None:
    """All of theirs is in it, each thread's in its order."""
    producer.begin_transaction()

    def send(name: int) -> None:
        for number in range(200):
            producer.send("t", f"{name}-{number}".encode(), partition=0)

    threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ranges = producer.commit_transaction()

    found = [value.decode() for value in values(log_cluster, "t") if value is not None]
    assert ranges == {T0: range(800)}
    for name in range(4):
        mine = [value for value in found if value.startswith(f"{name}-")]
        assert mine == [f"{name}-{number}" for number in range(200)]


def test_a_send_beside_a_commit_is_in_the_transaction_or_refused(log_cluster: Cluster, producer: KafkaProducer) -> None:
    """Never in the next one, never lost after its future was given."""
    taken: list[bytes] = []
    refused = 0
    stop = threading.Event()

    def send() -> None:
        nonlocal refused
        number = 0
        while not stop.is_set():
            value = str(number).encode()
            try:
                producer.send("u", value)
            except IllegalStateError:
                refused += 1
            else:
                taken.append(value)
                number += 1

    thread = threading.Thread(target=send)
    thread.start()
    total = 0
    try:
        for _ in range(10):
            producer.begin_transaction()
            total += len(producer.commit_transaction().get(U0, ()))
    finally:
        stop.set()
        thread.join()

    assert values(log_cluster, "u") == taken
    assert total == len(taken)


# --- consumer groups ------------------------------------------------------------------------------


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
    make: Callable[..., KafkaProducer],
    producer: KafkaProducer,
    reader_of: Callable[..., KafkaConsumer],
    settings: dict[str, Any],
) -> None:
    """The consumer sees them as its own, and another one of the group goes on there."""
    plain = make(transactional_id=None)
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
    make: Callable[..., KafkaProducer],
    producer: KafkaProducer,
    reader_of: Callable[..., KafkaConsumer],
) -> None:
    """Its metadata have no generation; offsets are committed in the group's name."""
    make(transactional_id=None).send("t", b"v", partition=0).get(60)
    consumer = reader_of()
    consumer.assign([T0])

    copied(producer, consumer, 1)

    assert committed(log_cluster) == {T0: OffsetAndMetadata(1)}


def test_a_consumer_that_was_taken_for_dead_commits_nothing(
    log_cluster: Cluster,
    make: Callable[..., KafkaProducer],
    producer: KafkaProducer,
    reader_of: Callable[..., KafkaConsumer],
) -> None:
    """KIP-447: neither its offsets nor its records; its producer may go on after an abort."""
    make(transactional_id=None).send("t", b"v", partition=0).get(60)
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


def test_a_static_member_whose_name_was_taken_over_commits_nothing(
    log_cluster: Cluster,
    make: Callable[..., KafkaProducer],
    producer: KafkaProducer,
    reader_of: Callable[..., KafkaConsumer],
) -> None:
    """`FencedInstanceIdError`, or what Kafka says of an unknown member."""
    make(transactional_id=None).send("t", b"v", partition=0).get(60)
    first = reader_of("t", group_instance_id="one")
    polled(first, 1)
    metadata = first.group_metadata()
    second = reader_of("t", group_instance_id="one")
    polled(second, 1)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, metadata)

    with pytest.raises((FencedInstanceIdError, CommitFailedError)):
        producer.commit_transaction()
    producer.abort_transaction()

    assert committed(log_cluster) == {}


def test_the_groups_id_alone_is_not_looked_at(
    log_cluster: Cluster,
    make: Callable[..., KafkaProducer],
    producer: KafkaProducer,
    reader_of: Callable[..., KafkaConsumer],
) -> None:
    """As in Kafka before KIP-447: nobody says which member it is, so nobody can be found to be none."""
    make(transactional_id=None).send("t", b"v", partition=0).get(60)
    consumer = reader_of("t")
    polled(consumer, 1)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, "g")
    producer.commit_transaction()

    assert committed(log_cluster) == {T0: OffsetAndMetadata(1)}


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_both_isolation_levels_read_the_same_and_wait_for_nobody(
    make: Callable[..., KafkaProducer], producer: KafkaProducer, reader_of: Callable[..., KafkaConsumer], level: str
) -> None:
    """An open transaction holds up nobody who reads on behind it."""
    producer.begin_transaction()
    producer.send("u", b"open").get(60)
    make(transactional_id=None).send("u", b"plain").get(60)
    consumer = reader_of("u", isolation_level=level)

    before = [record.value for record in polled(consumer, 1)]
    ends = consumer.end_offsets([U0])
    producer.commit_transaction()
    after = [record.value for record in polled(consumer, 1)]

    assert (before, ends, after) == ([b"plain"], {U0: 1}, [b"open"])


# --- the context manager --------------------------------------------------------------------------


def test_a_block_that_ends_well_is_committed(log_cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """`init_transactions` is done when nobody has done it."""
    producer = make()

    for number in range(2):
        with kafkalike.transaction(producer) as t:
            producer.send("t", str(number).encode(), partition=0)
            t.producer.send_offsets_to_transaction({T0: OffsetAndMetadata(number)}, "g")

    assert t.ranges == {T0: range(1, 2)}
    assert (values(log_cluster, "t"), committed(log_cluster)) == ([b"0", b"1"], {T0: OffsetAndMetadata(1)})


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_block_that_an_exception_leaves_is_aborted(
    log_cluster: Cluster, producer: KafkaProducer, error: type[BaseException]
) -> None:
    """The exception goes on its way, and the producer is ready for the next block."""
    with pytest.raises(error), kafkalike.transaction(producer):
        producer.send("t", b"v", partition=0)
        raise error
    with kafkalike.transaction(producer):
        producer.send("t", b"next", partition=0)

    assert values(log_cluster, "t") == [b"next"]


def test_a_block_whose_commit_is_refused_is_aborted(log_cluster: Cluster, producer: KafkaProducer) -> None:
    """And says why."""
    stranger = ConsumerGroupMetadata("g", 5, "nobody", None)
    with pytest.raises(CommitFailedError), kafkalike.transaction(producer):
        producer.send("t", b"v", partition=0)
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, stranger)
    with kafkalike.transaction(producer):
        producer.send("t", b"next", partition=0)

    assert values(log_cluster, "t") == [b"next"]


def test_a_block_of_a_fenced_producer_says_so(make: Callable[..., KafkaProducer], producer: KafkaProducer) -> None:
    """Also when it was fenced within the block, and the block fails for another reason."""
    with pytest.raises(ProducerFencedError), kafkalike.transaction(producer):
        producer.send("t", b"v").get(60)
        make().init_transactions()
    with pytest.raises(ProducerFencedError), kafkalike.transaction(producer):
        pass


def test_a_block_may_end_its_transaction_itself(log_cluster: Cluster, producer: KafkaProducer) -> None:
    """An abort on a condition, for example."""
    with kafkalike.transaction(producer):
        producer.send("t", b"v", partition=0)
        producer.abort_transaction()

    assert values(log_cluster, "t") == []


def test_a_block_within_a_transaction_is_refused_and_leaves_it_alone(log_cluster: Cluster, producer: KafkaProducer) -> None:
    """Transactions do not nest."""
    with kafkalike.transaction(producer):
        producer.send("t", b"v", partition=0)
        with pytest.raises(IllegalStateError), kafkalike.transaction(producer):
            raise AssertionError

    assert values(log_cluster, "t") == [b"v"]


def test_a_block_needs_a_transactional_producer(make: Callable[..., KafkaProducer]) -> None:
    """Else nothing would be atomic."""
    with pytest.raises(IllegalStateError, match="no transactional_id"), kafkalike.transaction(make(transactional_id=None)):
        raise AssertionError


def futures_of(producer: KafkaProducer, *sent: bytes) -> list[FutureRecordMetadata]:
    """Records of `u`, sent."""
    return [producer.send("u", value) for value in sent]


def test_an_open_transaction_past_its_timeout_is_not_committed(log_cluster: Cluster, clock: ManualClock) -> None:
    """By the producer's own clock, before maintenance has looked."""
    log_cluster.create_topic("u", 1, {})
    with KafkaProducer(bootstrap_servers=log_cluster, transactional_id="slow", transaction_timeout_ms=1000) as producer:
        del clock
        producer.init_transactions()
        producer.begin_transaction()
        futures_of(producer, b"v")[0].get(60)
        threading.Event().wait(1.2)
        with pytest.raises((TransactionAbortableError, KafkaError)):
            producer.commit_transaction()
        producer.abort_transaction()

    assert values(log_cluster, "u") == []
