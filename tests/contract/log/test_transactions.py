"""What `Transactions` promises, over the cluster in memory, tables on disk and object stores."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kafkalike.admin.testing import ManualClock, MemoryCluster
from kafkalike.consumer import KafkaConsumer
from kafkalike.errors import (
    CommitFailedError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    LogCorruptError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.log.transactions.session import TransactionSession
from kafkalike.log.transactions.transaction_files import Staging
from kafkalike.maintenance.verify.verify import verify
from kafkalike.model import faults
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.group_rows import roster_row
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.record_batch import Appended
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.model.transactions.group_claims import GroupClaim
from kafkalike.model.transactions.transaction_views import TransactionState
from kafkalike.model.transactions.transactional_id import StagedFile, TransactionAttempt
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.memory import MemoryStorage
from tests.tools.clusters import on_disk
from tests.tools.partitions import partition_records
from tests.tools.records import batch, fill

Opener = Callable[..., Cluster]

NONE: Mapping[GroupClaim, Mapping[TopicPartition, OffsetAndMetadata]] = {}


def soon() -> Deadline:
    return Deadline(SYSTEM_CLOCK, 60_000)


def session(cluster: Cluster, name: str = "id", timeout_ms: int = 60_000) -> TransactionSession:
    return cluster.transactions.begin_session(name, timeout_ms, "client", soon())


def values(cluster: Cluster, topic: str, partition: int = 0) -> list[bytes | None]:
    log = cluster.log(topic)
    log.refresh()
    found = partition_records(log, partition)
    assert [offset for offset, _ in found] == list(range(len(found)))
    return [value for _, value in found]


def two_topics(cluster: Cluster) -> tuple[TopicLog, TopicLog]:
    for name in "ab":
        cluster.create_topic(name, 2, {})
    return cluster.log("a"), cluster.log("b")


def ranges(places: Mapping[str, Appended]) -> dict[str, dict[int, range]]:
    return {topic: dict(place.ranges) for topic, place in places.items()}


def committed(cluster: Cluster, group: str = "g") -> dict[TopicPartition, int]:
    offsets = cluster.groups.refresh().group(group).offsets
    return {tp: offset.position.offset for tp, offset in offsets.items()}


# --- one transaction -----------------------------------------------------------------------------------


def test_a_transaction_comes_into_all_topics_with_its_offsets(open_log_cluster: Opener) -> None:
    cluster = open_log_cluster()
    a, b = two_topics(cluster)
    fill(cluster, "a", "before")
    one = session(cluster)
    one.stage(1, a, batch("1", (1, "2")))
    one.stage(1, b, batch("3", key=b"k", headers=[("h", None)]), codec="zstd")
    one.stage(1, a, batch("4"))
    assert values(cluster, "a") == [b"before"]
    assert values(cluster, "b") == []
    assert not one.decided(1)

    places = one.commit(1, {GroupClaim(group_id="g"): {TopicPartition("a", 0): OffsetAndMetadata(1, "m")}}, soon())

    assert ranges(places) == {"a": {0: range(1, 3), 1: range(1)}, "b": {0: range(1)}}
    other = open_log_cluster()
    assert values(other, "a") == [b"before", b"1", b"4"]
    assert values(other, "a", 1) == [b"2"]
    assert values(other, "b") == [b"3"]
    assert committed(other) == {TopicPartition("a", 0): 1}
    assert one.decided(1)
    assert one.commit(1, NONE, soon()) == places


def test_an_aborted_transaction_leaves_nothing(open_log_cluster: Opener) -> None:
    cluster = open_log_cluster()
    a, _ = two_topics(cluster)
    one = session(cluster)
    one.stage(1, a, batch("1"))
    one.abort(1, soon())
    one.abort(1, soon())

    with pytest.raises(InvalidTxnStateError):
        one.commit(1, NONE, soon())
    with pytest.raises(IllegalStateError):
        one.stage(1, a, batch("1"))
    assert cluster.transactions.described(["id"])["id"].state is TransactionState.COMPLETE_ABORT
    one.stage(2, a, batch("2"))
    assert ranges(one.commit(2, NONE, soon())) == {"a": {0: range(1)}}
    assert values(cluster, "a") == [b"2"]
    with pytest.raises(InvalidTxnStateError, match="committed"):
        one.abort(2, soon())


def test_many_transactions_keep_their_order_and_leave_no_files(open_log_cluster: Opener) -> None:
    cluster = open_log_cluster()
    a, b = two_topics(cluster)
    one, two = session(cluster, "one"), session(cluster, "two")
    for number in range(1, 4):
        for mine, name in ((one, "one"), (two, "two")):
            for log in (a, b):
                mine.stage(number, log, batch(f"{name}{number}"))
            mine.commit(number, NONE, soon())
    expected = [f"{name}{n}".encode() for n in range(1, 4) for name in ("one", "two")]

    assert values(cluster, "a") == values(cluster, "b") == expected
    assert cluster.transactions.open_for() == []
    assert {x.state for x in cluster.transactions.listed()} == {TransactionState.COMPLETE_COMMIT}
    assert cluster.transactions.maintain(soon()) == []


def test_only_offsets_or_nothing_at_all(open_log_cluster: Opener) -> None:
    cluster = open_log_cluster()
    two_topics(cluster)
    one = session(cluster)
    claim = GroupClaim(group_id="g", client_id="c")

    assert one.commit(1, NONE, soon()) == {}
    one.abort(2, soon())
    assert one.commit(3, {claim: {TopicPartition("b", 1): OffsetAndMetadata(7)}}, soon()) == {}

    assert committed(cluster) == {TopicPartition("b", 1): 7}
    found = cluster.transactions.described(["id", "other"])
    assert set(found) == {"id"}
    assert (found["id"].number, found["id"].groups) == (3, ("g",))


def test_what_a_topic_refuses_is_refused_when_it_is_staged(open_log_cluster: Opener) -> None:
    cluster = open_log_cluster()
    cluster.create_topic("a", 1, {"max.message.bytes": "100"})
    log = cluster.log("a")
    one = session(cluster)

    with pytest.raises(MessageSizeTooLargeError):
        one.stage(1, log, batch("x" * 100))
    with pytest.raises(UnknownTopicOrPartitionError):
        one.stage(1, log, batch("x", partition=1))
    one.stage(1, log, batch("ok"))
    cluster.set_configs("a", {"max.message.bytes": "1"})

    assert ranges(one.commit(1, NONE, soon())) == {"a": {0: range(1)}}


def test_settings_that_are_tightened_after_the_decision_count_no_more(
    open_log_cluster: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producer dies between its decision and the topic; what was checked when it was staged comes in whole."""
    cluster = open_log_cluster()
    a, _ = two_topics(cluster)
    one = session(cluster)
    one.stage(1, a, batch("1", "2", at_ms=5))
    monkeypatch.setenv("KAFKALIKE_FAULT", "transaction.before_apply:raise")
    with pytest.raises(faults.InjectedFaultError):
        one.commit(1, NONE, soon())
    monkeypatch.delenv("KAFKALIKE_FAULT")
    assert values(cluster, "a") == []

    # Each of the first four refuses both records by itself; the last two would remove them.
    tightened = {"max.message.bytes": "1", "cleanup.policy": "compact,delete", "retention.ms": "1"}
    tightened |= {"message.timestamp.before.max.ms": "1", "kafkalike.value.schema.validation": "true"}
    cluster.set_configs("a", {**tightened, "retention.bytes": "1"})
    later = open_log_cluster()
    assert later.transactions.maintain(soon()) == []

    assert values(later, "a") == [b"1", b"2"]
    with pytest.raises(MessageSizeTooLargeError):
        session(later).stage(1, later.log("a"), batch("3"))


def test_times_of_the_append_are_those_of_the_commit(open_log_cluster: Opener) -> None:
    cluster = open_log_cluster()
    cluster.create_topic("a", 1, {"message.timestamp.type": "LogAppendTime"})
    one = session(cluster)
    one.stage(1, cluster.log("a"), batch("1", at_ms=5))
    place = one.commit(1, NONE, soon())["a"]
    log = cluster.log("a")

    found = log.max_timestamp(0)
    assert found is not None
    assert found.timestamp == place.append_time_ms


# --- fencing -------------------------------------------------------------------------------------------


def test_a_newer_producer_of_the_id_fences_and_aborts(open_log_cluster: Opener) -> None:
    cluster = open_log_cluster()
    a, _ = two_topics(cluster)
    old = session(cluster)
    old.stage(1, a, batch("old"))
    new = session(open_log_cluster())

    assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 1)
    with pytest.raises(ProducerFencedError, match="nothing was committed"):
        old.commit(1, NONE, soon())
    with pytest.raises(ProducerFencedError):
        old.abort(1, soon())
    new.stage(1, a, batch("new"))
    new.commit(1, NONE, soon())
    assert values(cluster, "a") == [b"new"]


def test_a_zombie_that_stages_again_leaves_files_for_maintenance_alone(open_log_cluster: Opener) -> None:
    cluster = open_log_cluster()
    a, _ = two_topics(cluster)
    old = session(cluster)
    session(cluster)
    old.stage(1, a, batch("old"))

    assert cluster.transactions.open_for() == []
    assert cluster.transactions.maintain(soon()) == []
    assert cluster.transactions._staging.folders() == []
    with pytest.raises(ProducerFencedError):
        old.commit(1, NONE, soon())


def test_a_folder_that_a_killed_producer_left_empty_goes(tmp_path: Path) -> None:
    """Killed between making it and its first file; who stages at that moment makes it again."""
    cluster = on_disk(str(tmp_path))
    a, _ = two_topics(cluster)
    mine = session(cluster)
    mine.stage(1, a, batch("old"))
    mine.commit(1, NONE, soon())
    staged, empty, foreign = (Path(tmp_path, "__transactions", name) for name in ("9-0-1", "8-0-1", "other"))
    for folder in (staged, empty, foreign):
        folder.mkdir()
    put = LocalStorage.put_if_absent
    tried: list[str] = []

    def swept(store: LocalStorage, name: str, content: bytes) -> bool:
        if not tried and name.endswith(a.info.topic_id):
            tried.append(name)
            cluster.transactions.maintain(soon())
        return put(store, name, content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStorage, "put_if_absent", swept)
        mine.stage(2, a, batch("new"))
    mine.commit(2, NONE, soon())

    assert tried
    assert [folder.exists() for folder in (staged, empty, foreign)] == [False, False, True]
    assert values(cluster, "a") == [b"old", b"new"]


def test_an_administrator_aborts_what_is_open(open_log_cluster: Opener) -> None:
    cluster = open_log_cluster()
    a, _ = two_topics(cluster)
    one = session(cluster)
    one.stage(1, a, batch("old"))
    (opened,) = cluster.transactions.open_for()
    assert (opened.state, opened.number, dict(opened.topics)) == (TransactionState.ONGOING, 1, {"a": {}})
    assert opened.start_ms > 0

    assert cluster.transactions.fence("id", soon()) == one.epoch + 1

    with pytest.raises(InvalidProducerEpochError, match="administrator"):
        one.commit(1, NONE, soon())
    assert cluster.transactions.open_for() == []
    with pytest.raises(TransactionalIdNotFoundError):
        cluster.transactions.fence("other", soon())


def test_maintenance_aborts_what_is_open_for_too_long(open_log_cluster: Opener) -> None:
    cluster = open_log_cluster()
    a, _ = two_topics(cluster)
    one, two = session(cluster, "one", timeout_ms=1), session(cluster, "two")
    for mine in (one, two):
        mine.stage(1, a, batch("x"))
    while cluster.transactions.open_for()[0].start_ms + 1 >= SYSTEM_CLOCK.now_ms():
        SYSTEM_CLOCK.sleep(0.001)

    assert cluster.transactions.maintain(soon()) == []

    assert [d.transactional_id for d in cluster.transactions.open_for()] == ["two"]
    found = cluster.transactions.described(["one"])["one"]
    assert (found.state, found.reason, found.epoch) == (TransactionState.COMPLETE_ABORT, "timeout", one.epoch + 1)
    two.commit(1, NONE, soon())
    assert values(cluster, "a") == [b"x"]


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_is_checked_before_anything_is_written(open_log_cluster: Opener, timeout_ms: int) -> None:
    cluster = open_log_cluster()

    with pytest.raises(InvalidTransactionTimeoutError):
        session(cluster, timeout_ms=timeout_ms)
    with pytest.raises(IllegalArgumentError):
        session(cluster, "")
    assert cluster.groups.refresh().seq == 0


# --- groups --------------------------------------------------------------------------------------------


def join(cluster: Cluster, generation: int) -> GroupClaim:
    """A member of a new generation of the group."""
    name = f"m{generation}"
    member = Member(member_id=name, since=generation)

    def plan(state: Any) -> Any:
        roster = Roster(generation=generation, members={name: member}, protocol="range", changed_ms=1)
        return [roster_row(state.seq + 1, "g", roster)]

    cluster.groups.transact(plan)
    return GroupClaim(group_id="g", generation=generation, member_id=name)


def test_a_consumer_of_an_old_generation_commits_nothing(open_log_cluster: Opener) -> None:
    cluster = open_log_cluster()
    a, _ = two_topics(cluster)
    one, at = session(cluster), TopicPartition("a", 0)
    old, new = join(cluster, 1), join(cluster, 2)
    one.stage(1, a, batch("1"))

    with pytest.raises(CommitFailedError):
        one.commit(1, {old: {at: OffsetAndMetadata(1)}}, soon())
    one.abort(1, soon())
    assert (values(cluster, "a"), committed(cluster)) == ([], {})

    one.stage(2, a, batch("2"))
    one.commit(2, {new: {at: OffsetAndMetadata(2)}}, soon())
    assert (values(cluster, "a"), committed(cluster)) == ([b"2"], {at: 2})


def test_a_group_alone_is_not_checked(open_log_cluster: Opener) -> None:
    """As in Kafka: whoever sends only the group's id does without the check."""
    cluster = open_log_cluster()
    two_topics(cluster)
    join(cluster, 1)
    session(cluster).commit(1, {GroupClaim(group_id="g"): {TopicPartition("a", 0): OffsetAndMetadata(1)}}, soon())

    assert committed(cluster) == {TopicPartition("a", 0): 1}


# --- topics that go ------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_goes_during_the_transaction_stops_it(open_log_cluster: Opener, again: bool) -> None:  # noqa: FBT001
    cluster = open_log_cluster()
    a, b = two_topics(cluster)
    one = session(cluster)
    for log in (a, b):
        one.stage(1, log, batch("1"))
    cluster.delete_topic("b")
    if again:
        cluster.create_topic("b", 1, {})

    with pytest.raises(UnknownTopicOrPartitionError, match="'b'"):
        one.commit(1, NONE, soon())
    one.abort(1, soon())
    assert values(cluster, "a") == []


def test_offsets_of_a_topic_that_is_not_there_are_refused(open_log_cluster: Opener) -> None:
    cluster = open_log_cluster()
    one = session(cluster)

    with pytest.raises(UnknownTopicOrPartitionError):
        one.commit(1, {GroupClaim(group_id="g"): {TopicPartition("x", 0): OffsetAndMetadata(1)}}, soon())


# --- cuts ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_cut_shows_all_of_a_transaction_or_nothing(open_log_cluster: Opener) -> None:
    """Beside producers who never stop."""
    cluster = open_log_cluster()
    a, b = two_topics(cluster)
    stop = threading.Event()
    failures: list[BaseException] = []

    def produce(name: str) -> None:
        try:
            mine = session(cluster, name)
            number = 0
            while not stop.is_set():
                number += 1
                for log in (a, b):
                    mine.stage(number, log, batch(f"{name}{number}"))
                mine.commit(number, NONE, soon())
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=produce, args=(name,)) for name in ("x", "y")]
    for thread in threads:
        thread.start()
    cuts = [cluster.transactions.cut(["b", "a"], soon())]
    while len(cuts) < 8 or cuts[-1].topics["a"].ends[0] < cuts[0].topics["a"].ends[0] + 4:
        cuts.append(open_log_cluster().transactions.cut(["b", "a"], soon()))
        if failures:
            break
    stop.set()
    for thread in threads:
        thread.join(60)

    assert failures == []
    seen = {name: values(cluster, name) for name in "ab"}
    for cut in cuts:
        shown = {name: seen[name][: cut.topics[name].ends[0]] for name in "ab"}
        assert shown["a"] == shown["b"]
    assert [cut.seq for cut in cuts] == sorted(cut.seq for cut in cuts)


def test_a_cut_of_what_nobody_has_written(open_log_cluster: Opener) -> None:
    cluster = open_log_cluster()
    two_topics(cluster)
    fill(cluster, "a", "1")
    cut = cluster.transactions.cut(["a"], soon())

    assert (cut.seq, cut.groups_version, set(cut.topics)) == (0, 0, {"a"})
    assert dict(cut.topics["a"].ends) == {0: 1, 1: 0}
    with pytest.raises(UnknownTopicOrPartitionError):
        cluster.transactions.cut(["a", "x"], soon())


# --- what a killed producer leaves ---------------------------------------------------------------------


class Killed(BaseException):
    """Stands for the end of a process: nothing catches it."""


def kill_before_apply(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, mine: TransactionSession, visit: int) -> None:
    """Commit, and end for good before the n-th topic gets its records."""
    seen = 0

    def point(name: str) -> None:
        nonlocal seen
        seen += name == "transaction.before_apply"
        if name == "transaction.before_apply" and seen == visit:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(faults, "point", point)
        patch.setattr(type(cluster.transactions._staging), "far", False)
        with pytest.raises(Killed):
            mine.commit(1, {GroupClaim(group_id="g"): {TopicPartition("a", 0): OffsetAndMetadata(1)}}, soon())


Helper = Callable[[Cluster], object]


def by_init(cluster: Cluster) -> None:
    session(cluster)


def by_maintenance(cluster: Cluster) -> None:
    assert cluster.transactions.maintain(soon()) == []


def by_reader(cluster: Cluster) -> None:
    logs = [cluster.log(name) for name in "ab"]
    while not cluster.transactions.help(logs, soon()):
        # Young decisions are left to their producer.
        SYSTEM_CLOCK.sleep(0.05)


def by_cut(cluster: Cluster) -> None:
    cut = cluster.transactions.cut(["a", "b"], soon())
    assert [cut.topics[name].ends[0] for name in "ab"] == [1, 1]


def by_fence(cluster: Cluster) -> None:
    cluster.transactions.fence("id", soon())


def by_other_producer(cluster: Cluster) -> None:
    """Its own transaction comes after, and so brings the first one in."""
    other = session(cluster, "other")
    for name in "ab":
        other.stage(1, cluster.log(name), batch("later"))
    other.commit(1, NONE, soon())


@pytest.mark.parametrize("visit", [1, 2])
@pytest.mark.parametrize("helper", [by_init, by_maintenance, by_reader, by_cut, by_fence, by_other_producer])
def test_whoever_comes_brings_in_what_is_decided(
    open_log_cluster: Opener, monkeypatch: pytest.MonkeyPatch, helper: Helper, visit: int
) -> None:
    cluster = open_log_cluster()
    logs = two_topics(cluster)
    mine = session(cluster)
    for log in logs:
        mine.stage(1, log, batch("1"))
    kill_before_apply(cluster, monkeypatch, mine, visit)
    other = open_log_cluster()
    found = other.transactions.described(["id"])["id"]
    assert (found.state, len(found.unapplied)) == (TransactionState.PREPARE_COMMIT, 3 - visit)
    assert committed(other) == {TopicPartition("a", 0): 1}

    helper(other)

    for name in "ab":
        assert values(other, name)[0] == b"1"
        assert values(other, name)[1:] in ([], [b"later"])
    # The one that woke up late finds everything done.
    assert set(mine.commit(1, NONE, soon())) == {"a", "b"}
    assert values(other, "a")[:2].count(b"1") == 1
    by_maintenance(other)
    assert other.transactions._staging.folders() == []


@pytest.mark.slow
def test_polls_bring_in_what_is_decided(open_log_cluster: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two consumers of one client, each for its own topic."""
    cluster = open_log_cluster()
    mine = session(cluster)
    for log in two_topics(cluster):
        mine.stage(1, log, batch("1"))
    kill_before_apply(cluster, monkeypatch, mine, 1)
    shared = open_log_cluster()
    consumers = [
        KafkaConsumer(name, bootstrap_servers=shared, auto_offset_reset="earliest", group_id=None) for name in "ab"
    ]

    got: dict[str, bytes] = {}
    while len(got) < 2:
        for consumer in consumers:
            got |= {r.topic: r.value for some in consumer.poll(timeout_ms=50).values() for r in some}

    assert got == {"a": b"1", "b": b"1"}
    for consumer in consumers:
        consumer.close()


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_goes_after_the_decision_is_left_out(
    open_log_cluster: Opener,
    monkeypatch: pytest.MonkeyPatch,
    again: bool,  # noqa: FBT001
) -> None:
    cluster = open_log_cluster()
    logs = two_topics(cluster)
    mine = session(cluster)
    for log in logs:
        mine.stage(1, log, batch("1"))
    kill_before_apply(cluster, monkeypatch, mine, 1)
    cluster.delete_topic("a")
    if again:
        cluster.create_topic("a", 1, {})

    by_maintenance(open_log_cluster())

    assert values(cluster, "b") == [b"1"]
    assert not again or values(cluster, "a") == []
    assert set(mine.commit(1, NONE, soon())) == {"b"}


def test_a_damaged_staged_file_stops_its_topic_by_name_until_it_is_left_out(
    open_log_cluster: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = open_log_cluster()
    logs = two_topics(cluster)
    mine = session(cluster)
    for log in logs:
        mine.stage(1, log, batch("1"))
    kill_before_apply(cluster, monkeypatch, mine, 1)
    files = cluster.transactions._staging._files
    (name,) = [e.name for e in files.list(deep=True) if e.name.endswith(logs[0].info.topic_id)]
    content = files.read(name)
    files.replace(name, content[:-1] + b"?")
    other = open_log_cluster()

    with pytest.raises(LogCorruptError, match=rf"{name}.*'a'"):
        session(other)
    (problem,) = other.transactions.maintain(soon())
    assert name in problem
    assert values(other, "b") == [b"1"]
    assert "transaction-file" in {f.kind for f in verify(other, ["a", "b"]).findings}
    (lost,) = other.transactions.damaged()
    assert (lost.topic, lost.transactional_id, dict(lost.counts)) == ("a", "id", {0: 1})

    assert other.transactions.leave_out(lost, soon())
    assert not other.transactions.leave_out(lost, soon())

    assert other.transactions.damaged() == []
    new = session(other)
    new.stage(1, other.log("a"), batch("2"))
    new.commit(1, NONE, soon())
    assert (values(other, "a"), values(other, "b")) == ([b"2"], [b"1"])
    assert verify(other, ["a", "b"]).errors() == 0


@pytest.mark.parametrize("newer", [False, True])
def test_a_producer_in_doubt_learns_that_its_transaction_is_committed_though_a_topic_was_left_out(
    open_log_cluster: Opener,
    monkeypatch: pytest.MonkeyPatch,
    newer: bool,  # noqa: FBT001
) -> None:
    """And not that somebody else has the id; also when a newer producer of the id has come since."""
    cluster = open_log_cluster()
    logs = two_topics(cluster)
    mine = session(cluster)
    for log in logs:
        mine.stage(1, log, batch("1"))

    def point(name: str) -> None:
        if name == "transaction.after_commit":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(faults, "point", point)
        with pytest.raises(Killed):
            mine.commit(1, NONE, soon())
    files = cluster.transactions._staging._files
    (name,) = [e.name for e in files.list(deep=True) if e.name.endswith(logs[0].info.topic_id)]
    files.remove(name)
    other = open_log_cluster()
    (lost,) = other.transactions.damaged()
    assert other.transactions.leave_out(lost, soon())
    if newer:
        session(other)

    assert set(mine.commit(1, NONE, soon())) == {"b"}

    assert (values(other, "a"), values(other, "b")) == ([], [b"1"])


def test_a_clock_that_was_ahead_hides_no_decision_from_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer's clock is an hour ahead; it decides, and is killed."""
    clock = ManualClock(1_700_003_600)
    cluster = MemoryCluster(clock=clock)
    logs = two_topics(cluster)
    mine = session(cluster)
    for log in logs:
        mine.stage(1, log, batch("1"))
    kill_before_apply(cluster, monkeypatch, mine, 1)
    clock.seconds -= 3_600

    assert cluster.transactions.help(logs, soon())

    assert (values(cluster, "a"), values(cluster, "b")) == ([b"1"], [b"1"])


def test_a_staged_file_that_meets_itself_is_staged() -> None:
    """Storages retry: the one who put it is told that it exists."""

    class Retrying(MemoryStorage):
        def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
            made = super().put_if_absent(name, content, durable=durable)
            return made and super().put_if_absent(name, content, durable=durable)

    staging = Staging(Retrying())
    attempt = TransactionAttempt(1, 0, 1)

    staged = staging.put_content(attempt, 0, "topic", b"records", None)

    assert staged == StagedFile("0.topic", 7, zlib.crc32(b"records"))
    with pytest.raises(ProducerFencedError, match="fork"):
        staging.put_content(attempt, 0, "topic", b"others", None)


def test_a_groups_table_that_began_anew_is_not_believed(open_log_cluster: Opener) -> None:
    """Its numbers would be taken for decisions that the topics have."""
    cluster = open_log_cluster()
    assert isinstance(cluster, Cluster)
    a, _ = two_topics(cluster)
    if cluster.store.coordination.reach == "process":
        pytest.skip("one process that knows the table has it in memory: nobody opens it elsewhere")
    one = session(cluster)
    for number in range(1, 4):
        one.stage(number, a, batch("1"))
        one.commit(number, NONE, soon())
    for entry in cluster.store.list("__consumer_offsets", deep=True):
        cluster.store.remove(f"__consumer_offsets/{entry.name}")
    for entry in cluster.store.list("__consumer_offsets/_delta_log"):
        cluster.store.remove(f"__consumer_offsets/_delta_log/{entry.name}")
    other = open_log_cluster(elsewhere=True)
    two = session(other)
    two.stage(1, other.log("a"), batch("2"))

    with pytest.raises(LogCorruptError, match="removed or rewound"):
        two.commit(1, NONE, soon())
    assert "transaction-ahead" in {f.kind for f in verify(other, ["a"]).findings}


def test_an_id_that_is_not_used_is_forgotten_and_comes_back_with_another_number(open_log_cluster: Opener) -> None:
    cluster = open_log_cluster()
    a, _ = two_topics(cluster)
    one = session(cluster)
    one.stage(1, a, batch("1"))
    one.commit(1, NONE, soon())
    SYSTEM_CLOCK.sleep(0.01)
    cluster.edit_defaults(lambda _: {"transactional.id.expiration.ms": "1"})

    by_maintenance(cluster)

    assert cluster.transactions.listed() == []
    one.stage(2, a, batch("2"))
    with pytest.raises(ProducerFencedError):
        one.commit(2, NONE, soon())
    two = session(open_log_cluster())
    assert two.producer_id > one.producer_id
    assert two.epoch == 0


def test_whether_a_forgotten_transaction_was_committed_is_not_known(
    open_log_cluster: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producer has slept for a week after a commit without an answer; a new one has committed nothing yet."""
    cluster = open_log_cluster()
    a, b = two_topics(cluster)
    one = session(cluster)
    for log in (a, b):
        one.stage(1, log, batch("1"))

    def point(name: str) -> None:
        if name == "transaction.after_commit":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(faults, "point", point)
        with pytest.raises(Killed):
            one.commit(1, NONE, soon())
    by_maintenance(cluster)
    SYSTEM_CLOCK.sleep(0.01)
    cluster.edit_defaults(lambda _: {"transactional.id.expiration.ms": "1"})
    by_maintenance(cluster)
    assert cluster.transactions.listed() == []
    session(open_log_cluster())

    with pytest.raises(ProducerFencedError, match="not known any more"):
        one.commit(1, NONE, soon())
    assert values(cluster, "a") == [b"1"]
