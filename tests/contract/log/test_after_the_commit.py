"""What fails between the commit of an append and its return: the records are there, so no error invites a retry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalike.delta import log_cleaner
from kafkalike.delta.commit_file import CommitFile
from kafkalike.delta.table import Table
from kafkalike.errors import KafkaStorageError, NotEnoughReplicasAfterAppendError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.log.group.membership import Membership
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.group_rows import OFFSET, GroupRow
from kafkalike.model.group_state import GroupsState
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.producer import KafkaProducer
from kafkalike.storage.local import LocalStorage
from tests.tools.clusters import on_disk
from tests.tools.partitions import partition_records
from tests.tools.producers import raiser
from tests.tools.records import batch
from tests.tools.upkeep import AT_ONCE

REFUSED = KafkaStorageError("the storage does not answer")


def counts(*answers: Callable[[], object]) -> Callable[[object, object], object]:
    """Replicas in sync: what each call in turn says; the last one for ever."""
    left = list(answers)

    def count(_cluster: object, _info: object) -> object:
        return (left.pop(0) if len(left) > 1 else left[0])()

    return count


def offset(state: GroupsState) -> list[GroupRow]:
    """The commit of an offset, from outside the group."""
    return [GroupRow(seq=state.seq + 1, kind=OFFSET, group_id="g", topic="t", partition=0, offset=7, time_ms=1)]


def values(cluster: Cluster) -> list[bytes | None]:
    return [value for _, value in partition_records(cluster.log("t"), 0)]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster with a topic and a group, whose logs are looked after at each commit."""
    monkeypatch.setattr(log_cleaner, "CHECKPOINT_INTERVAL", 1)
    made = on_disk(str(tmp_path))
    made.create_topic("t", 1, {})
    made.groups.transact(offset)
    return made


def test_an_append_whose_replicas_cannot_be_counted_afterwards_says_that_it_is_written(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retriable error would make a producer write the records twice."""
    cluster.edit_configs("t", lambda _: {"min.insync.replicas": "2"})
    monkeypatch.setattr(Cluster, "_in_sync", counts(lambda: 2, raiser(REFUSED), lambda: 2))

    with KafkaProducer(bootstrap_servers=cluster) as producer:
        sent = producer.send("t", b"once")
        with pytest.raises(NotEnoughReplicasAfterAppendError, match=r"the records were written.*does not answer"):
            sent.get(30)
        assert not sent.retriable()

    assert values(cluster) == [b"once"]


@pytest.fixture
def state_lost(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After each commit, another thread has lost the table's state, and the storage does not answer."""
    go_on = Table._go_on

    def lost(table: Table, wanted: CommitFile) -> None:
        go_on(table, wanted)
        table.forget()
        monkeypatch.setattr(LocalStorage, "read", no_answer)

    def no_answer(_storage: object, name: str) -> bytes:
        raise OSError(f"no answer to the read of {name}")

    monkeypatch.setattr(Table, "_go_on", lost)
    yield
    monkeypatch.undo()


def test_an_append_whose_table_state_is_lost_afterwards_succeeds(cluster: Cluster, state_lost: None) -> None:
    """Only the upkeep of the log needs the state; a refusal would make a producer write the records twice."""
    del state_lost
    assert cluster.log("t").append(batch("v")).version == 1


def test_a_commit_of_offsets_whose_table_state_is_lost_afterwards_succeeds(cluster: Cluster, state_lost: None) -> None:
    del state_lost

    offsets = GroupOffsets(cluster.groups, SYSTEM_CLOCK)

    generation = offsets.commit(Membership(group_id="g"), {TopicPartition("t", 0): OffsetAndMetadata(8)}, {"t": "id"})

    assert generation == -1


def test_a_merge_whose_table_state_is_lost_after_its_commit_keeps_its_files(
    cluster: Cluster, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken for a refusal, it would have its files removed, and the table's newest version names only these."""
    cluster.edit_configs("t", lambda _: {**AT_ONCE, "retention.ms": "-1"})
    for value in "abcd":
        cluster.log("t").append(batch(value))
    request.getfixturevalue("state_lost")

    maintain(cluster, topics=["t"])
    monkeypatch.undo()

    fresh = on_disk(cluster.root)
    assert fresh.log("t").version == 5
    assert values(fresh) == [b"a", b"b", b"c", b"d"]
