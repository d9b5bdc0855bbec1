"""Repartition: more partitions, the same records in order, and clients that go on where they were."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkalike import (
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    NewTopic,
    OffsetAndMetadata,
    TopicPartition,
    forget,
    repartition,
)
from kafkalike.connect import connect
from kafkalike.errors import (
    IllegalStateError,
    InvalidPartitionsError,
    KafkaError,
    MirrorTopicError,
    NotLeaderForPartitionError,
    PolicyViolationError,
    ReassignmentInProgressError,
    RebalanceInProgressError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.group_expiry import expire_offsets
from kafkalike.log.topic.column_batch import column_batch
from kafkalike.log.topic.producer_append import SentBatch, append_batches
from kafkalike.maintenance.repartition import QUIET_MS
from kafkalike.model.appends.producer_sequences import SequencedBatch
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.faults import InjectedFaultError
from kafkalike.model.murmur2 import partition_for_key
from kafkalike.model.structs import ConsumerRecord
from kafkalike.testing import ManualClock, MemoryCluster
from tests.tools.clusters import on_three_disks
from tests.tools.findings import errors_of
from tests.tools.interrupt_copies import Mirroring
from tests.tools.records import batch_now
from tests.tools.upkeep import EAGER, ShiftedClock, upkeep

KEYS = [f"key-{n}".encode() for n in range(12)]

Read = list[tuple[bytes | None, int]]


@pytest.fixture
def memory() -> MemoryCluster:
    cluster = MemoryCluster()
    cluster.create_topic("t", 2, {})
    return cluster


@pytest.fixture
def root(tmp_path: Path) -> str:
    root = str(tmp_path / "root")
    KafkaAdminClient(bootstrap_servers=root).create_topics([NewTopic("t", num_partitions=2)])
    return root


def send(producer: KafkaProducer, numbers: range) -> None:
    """Records with keys, and each fifth without one; the value is the number."""
    for n in numbers:
        producer.send("t", b"%d" % n, key=None if n % 5 == 4 else KEYS[n % 12], headers=[("n", b"%d" % n)])


def fill(cluster: Cluster | str, numbers: range) -> None:
    with KafkaProducer(bootstrap_servers=cluster, linger_ms=0) as producer:
        for at in range(numbers.start, numbers.stop, 10):
            send(producer, range(at, min(at + 10, numbers.stop)))
            producer.flush()


def consumer(cluster: Cluster | str, group: str | None = "g", **settings: Any) -> KafkaConsumer:
    given: dict[str, Any] = {"enable_auto_commit": False, "auto_offset_reset": "earliest", **settings}
    return KafkaConsumer("t", bootstrap_servers=cluster, group_id=group, **given)


def poll(reader: KafkaConsumer, most: int = 500) -> Read:
    """The records of one poll, by partition in order."""
    polled: dict[TopicPartition, list[ConsumerRecord]] = reader.poll(500, max_records=most)
    return [(record.key, int(record.value)) for records in polled.values() for record in records]


def read_all(reader: KafkaConsumer) -> Read:
    found: Read = []
    while part := poll(reader):
        found += part
    return found


def in_order(read: Read) -> bool:
    by_key: dict[bytes, list[int]] = defaultdict(list)
    for key, value in read:
        if key is not None:
            by_key[key].append(value)
    return all(values == sorted(values) for values in by_key.values())


def values(read: Read) -> list[int]:
    return sorted(value for _, value in read)


def test_records_keep_offset_time_and_headers_and_lie_where_their_keys_belong(root: str) -> None:
    fill(root, range(100))
    with consumer(root, None) as reader:
        before = {int(r.value): r for tp in reader.poll(500).values() for r in tp}

    done = repartition("t", 6, root)

    with consumer(root, None) as reader:
        after = {int(r.value): r for tp in reader.poll(500).values() for r in tp}
    assert (done.before, done.partitions, done.records) == (2, 6, 100)
    assert sorted(after) == list(range(100))
    for n, record in after.items():
        old = before[n]
        assert (record.offset, record.timestamp, record.headers) == (old.offset, old.timestamp, old.headers)
        assert record.partition % 2 == old.partition
        turn = old.partition + 2 * (old.offset % 3)
        assert record.partition == (turn if record.key is None else partition_for_key(record.key, 6))
    assert errors_of(root) == []


def test_group_and_producer_go_on_exactly_where_they_were(memory: MemoryCluster) -> None:
    fill(memory, range(100))
    with consumer(memory) as reader, KafkaProducer(bootstrap_servers=memory, linger_ms=0) as producer:
        read = poll(reader, 37)
        reader.commit()
        repartition("t", 4, memory)
        send(producer, range(100, 150))
        producer.flush()
        read += read_all(reader)
        reader.commit()

    assert values(read) == list(range(150))
    assert in_order(read)
    with consumer(memory) as reader:
        assert poll(reader) == []


def test_consumer_without_group_goes_on_at_its_positions(memory: MemoryCluster) -> None:
    fill(memory, range(60))
    with consumer(memory, None, auto_offset_reset="latest") as reader:
        assert poll(reader) == []
        fill(memory, range(60, 100))
        read = poll(reader, 15)
        repartition("t", 4, memory)
        fill(memory, range(100, 120))
        read += read_all(reader)

    assert values(read) == list(range(60, 120))
    assert in_order(read)


def test_partitions_assigned_by_hand_raise_once_and_keep_their_positions(memory: MemoryCluster) -> None:
    """Their moved records would not be read, and nobody would notice."""
    fill(memory, range(60))
    with KafkaConsumer(bootstrap_servers=memory, auto_offset_reset="earliest", group_id=None) as reader:
        reader.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
        read = poll(reader, 21)
        at = [reader.position(TopicPartition("t", p)) for p in (0, 1)]
        repartition("t", 4, memory)
        with pytest.raises(IllegalStateError, match=r"'t' was repartitioned and has 4 partitions.*assign them, too"):
            read_all(reader)

        reader.assign([TopicPartition("t", p) for p in range(4)])
        for p in range(4):
            reader.seek(TopicPartition("t", p), at[p % 2])
        read += read_all(reader)

    assert values(read) == list(range(60))


def test_batches_that_wait_go_to_the_new_partitions_in_order(memory: MemoryCluster) -> None:
    """Also those to which a partitioner, or the caller, has given a partition already."""
    with KafkaProducer(bootstrap_servers=memory, linger_ms=60_000) as producer:
        send(producer, range(10))
        producer.flush()
        send(producer, range(10, 30))
        sent = producer.send("t", b"30", key=KEYS[0], partition=partition_for_key(KEYS[0], 2))
        arrow = producer.send_arrow("t", pa.table({"key": [KEYS[0]], "value": [b"31"]}))
        repartition("t", 8, memory)
        send(producer, range(32, 50))
        producer.flush()

        assert sent.get(10).partition == partition_for_key(KEYS[0], 8)
        assert list(arrow.get(10).offsets) == [partition_for_key(KEYS[0], 8)]
    with consumer(memory) as reader:
        read = read_all(reader)
    assert values(read) == list(range(50))
    assert in_order(read)


STEPS = [
    "repartition.before_begin",
    "repartition.after_begin",
    "repartition.before_pass",
    "repartition.before_commit",
    "repartition.after_offsets",
    "repartition.after_seal",
    "repartition.after_copy",
    "repartition.before_end",
]


@pytest.mark.parametrize("step", STEPS)
def test_call_that_is_stopped_at_a_step_goes_on_when_called_again(
    memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Meanwhile a consumer that comes new finds its offsets, and maintenance removes nothing that is needed."""
    fill(memory, range(60))
    with consumer(memory) as reader:
        read = poll(reader, 25)
        reader.commit()
    monkeypatch.setenv("KAFKALIKE_FAULT", f"{step}:raise")
    with pytest.raises((InjectedFaultError, KafkaError)):
        repartition("t", 4, memory)
    monkeypatch.delenv("KAFKALIKE_FAULT")
    expire_offsets(memory, SYSTEM_CLOCK)
    with consumer(memory) as reader:
        # Uncommitted, so they are read again.
        assert set(values(poll(reader))) == set(range(60)) - set(values(read))

    done = repartition("t", 4, memory)

    with consumer(memory) as reader:
        read += read_all(reader)
    assert (done.before, done.partitions) == (2, 4)
    assert values(read) == list(range(60))
    assert in_order(read)
    assert repartition("t", 4, memory) == done or repartition("t", 4, memory).records == 0


def stopped_after(step: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("KAFKALIKE_FAULT", f"{step}:raise")
        with pytest.raises((InjectedFaultError, KafkaError)):
            repartition("t", 4, cluster)


def test_nothing_is_committed_or_appended_between_the_last_pass_and_the_switch(
    memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(memory, range(20))
    stopped_after("repartition.after_seal", memory, monkeypatch)

    with consumer(memory) as reader:
        assert values(poll(reader)) == list(range(20))
        with pytest.raises(RebalanceInProgressError, match="'t' is being repartitioned"):
            reader.commit()
    with pytest.raises(NotLeaderForPartitionError, match="is being repartitioned; nothing was written"):
        memory.log("t").append(batch_now("a"))
    with pytest.raises(RebalanceInProgressError, match="'t' is being repartitioned"):
        KafkaAdminClient(bootstrap_servers=memory).alter_group_offsets(
            "h", {TopicPartition("t", 0): OffsetAndMetadata(3)}
        )


def test_commit_of_records_read_before_the_switch_is_refused_and_they_come_again(memory: MemoryCluster) -> None:
    fill(memory, range(40))
    with consumer(memory) as reader:
        first = poll(reader, 20)
        reader.commit()
        second = poll(reader, 20)
        repartition("t", 4, memory)
        with pytest.raises(RebalanceInProgressError, match=r"'t' was repartitioned: no offset was committed; poll\(\)"):
            reader.commit()
    with consumer(memory) as reader:
        assert values(read_all(reader)) == values(second)
    assert values(first + second) == list(range(40))


def test_open_transaction_commits_nothing_and_can_be_begun_again(memory: MemoryCluster) -> None:
    with KafkaProducer(bootstrap_servers=memory, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        send(producer, range(10))
        producer.flush()
        repartition("t", 4, memory)
        with pytest.raises(RebalanceInProgressError, match="nothing was committed"):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        send(producer, range(10, 20))
        producer.commit_transaction()
    with consumer(memory) as reader:
        assert values(read_all(reader)) == list(range(10, 20))


def test_decided_transaction_that_was_not_applied_is_moved_with_the_rest(
    memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = KafkaProducer(bootstrap_servers=memory, transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    send(producer, range(10))
    with monkeypatch.context() as patch:
        patch.setenv("KAFKALIKE_FAULT", "transaction.before_apply:raise")
        with pytest.raises((OSError, KafkaError)):
            producer.commit_transaction()

    repartition("t", 4, memory)

    with consumer(memory) as reader:
        assert values(read_all(reader)) == list(range(10))


def test_two_calls_at_once_copy_each_record_once(root: str) -> None:
    fill(root, range(200))

    with ThreadPoolExecutor(2) as threads:
        done = list(threads.map(lambda _: repartition("t", 8, connect(root)), range(2)))

    assert {one.topic_id for one in done} == {str(connect(root).topic("t").topic_id)}
    with consumer(root, None) as reader:
        assert values(read_all(reader)) == list(range(200))
    assert errors_of(root) == []


def test_two_repartitions_and_a_deletion_leave_one_folder_and_then_none(root: str) -> None:
    fill(root, range(50))
    repartition("t", 4, root)
    fill(root, range(50, 80))
    repartition("t", 8, root)

    with consumer(root) as reader:
        read = read_all(reader)
    assert values(read) == list(range(80))
    assert in_order(read)
    folders = [path.name for path in Path(root).iterdir() if not path.name.startswith("__")]
    assert folders == [connect(root).topic("t").location]
    connect(root).delete_topic("t")
    assert [path.name for path in Path(root).iterdir() if not path.name.startswith("__")] == []


@pytest.mark.parametrize("step", ["repartition.after_begin", "repartition.after_seal"])
def test_topic_can_be_deleted_and_its_folders_go(root: str, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    fill(root, range(20))
    stopped_after(step, connect(root), monkeypatch)

    connect(root).delete_topic("t")
    KafkaAdminClient(bootstrap_servers=root).create_topics([NewTopic("t", num_partitions=2)])
    upkeep(root)

    folders = [path.name for path in Path(root).iterdir() if not path.name.startswith("__")]
    assert folders == [connect(root).topic("t").location]
    fill(root, range(10))
    assert errors_of(root) == []


def test_changes_that_the_copy_would_lose_are_refused_until_it_ends(
    memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(memory, range(20))
    stopped_after("repartition.after_begin", memory, monkeypatch)
    command = r"finish that first: `kafkalike topics --repartition --topic t --partitions 4`"

    with pytest.raises(ReassignmentInProgressError, match=command):
        forget("t", memory, keys=KEYS[0], dry_run=False)
    with pytest.raises(ReassignmentInProgressError, match=command):
        memory.add_partitions("t", 8)
    with pytest.raises(ReassignmentInProgressError, match=command):
        repartition("t", 8, memory)

    repartition("t", 4, memory)
    assert forget("t", memory, keys=KEYS[0], dry_run=False).records > 0


def test_log_start_and_compaction_stay_right(root: str) -> None:
    clock = ShiftedClock()
    cluster = connect(root)
    cluster.set_configs("t", {**EAGER, "kafkalike.merge.min.age.ms": "0"})
    fill(root, range(60))
    KafkaAdminClient(bootstrap_servers=root).delete_records({TopicPartition("t", 0): 7})

    repartition("t", 4, root)

    log = connect(root).log("t")
    assert {p: log.log_start(p) for p in range(4)} == {0: 7, 1: 0, 2: 7, 3: 0}
    fill(root, range(60, 80))
    clock.ahead_ms = 10_000
    upkeep(root, clock=clock)
    with consumer(root, None) as reader:
        last = {key: value for key, value in read_all(reader) if key is not None}
    assert last == {KEYS[n % 12]: n for n in range(80) if n % 5 != 4}
    assert errors_of(root) == []


@pytest.fixture
def late(memory: MemoryCluster) -> ManualClock:
    return ManualClock(memory.clock.now_ms())


def test_idempotent_producers_of_the_protocol_must_rest_and_are_recognized_afterwards(
    memory: MemoryCluster, late: ManualClock
) -> None:
    """Their batches have partitions already, so a batch under way would lie beside the records of its keys."""
    columns = pa.table({"key": [b"k"], "value": [b"a"], "partition": pa.array([0], pa.int32())})
    sent = SentBatch(column_batch(columns, memory.clock.now_ms()), SequencedBatch(7, 0, 0, 0, 1))
    append_batches(memory.log("t"), [sent])
    with pytest.raises(ReassignmentInProgressError, match=r"through a gateway within 2 minutes \(producer id 7\)"):
        repartition("t", 4, memory)
    assert memory.topic("t").target is None

    late.sleep(QUIET_MS / 1000 + 1)
    repartition("t", 4, memory, clock=late)

    (again,) = append_batches(memory.log("t"), [sent])
    assert (again.base_offset, again.duplicate) == (0, True)
    with consumer(memory, None) as reader:
        assert sum(len(records) for records in reader.poll(500).values()) == 1


@pytest.mark.parametrize("partitions", [0, 2, 1, 5, True, "4"], ids=repr)
def test_wrong_number_of_partitions_is_refused(memory: MemoryCluster, partitions: Any) -> None:
    with pytest.raises((InvalidPartitionsError, TypeError)):
        repartition("t", partitions, memory)
    assert memory.topic("t").target is None


def test_topics_that_cannot_be_repartitioned_are_refused_by_name(memory: MemoryCluster, tmp_path: Path) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="'u' does not exist"):
        repartition("u", 4, memory)
    memory.set_configs("t", {"kafkalike.foreign.writes": "allow"})
    with pytest.raises(PolicyViolationError, match=r"other engines may write to topic 't'.*foreign.writes=reject"):
        repartition("t", 4, memory)
    several = on_three_disks(str(tmp_path / "several"))
    several.create_topic("t", 2, {})
    with pytest.raises(PolicyViolationError, match="'t' has replicas at several roots"):
        repartition("t", 4, several)


def test_mirror_is_refused() -> None:
    mirrored = Mirroring()
    mirrored.operate()
    with pytest.raises(MirrorTopicError):
        repartition("m", 4, mirrored.target)
