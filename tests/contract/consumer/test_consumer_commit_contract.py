"""What the consumer commits, and in whose name; over both clusters."""

import logging
from typing import Any, cast

import numpy as np
import pytest

from kafkalike.admin.testing import ManualClock
from kafkalike.errors import (
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.group_offsets import GroupOffsets, Membership
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from tests.tools.consumer import T0, T1, Diary, Make, drain, outlive, values, write
from tests.tools.kinds import only_in_memory

# --- commits ---------------------------------------------------------------------------------


def test_a_group_goes_on_where_it_committed(cluster: Cluster, consumer_of: Make) -> None:
    """A clean end commits; the next consumer gets the rest."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b", b"c")
    with consumer_of("orders", group_id="g", max_poll_records=2) as first:
        first.poll()

    second = consumer_of("orders", group_id="g")

    assert values(second.poll()) == [b"c"]


def test_an_exception_inside_with_skips_the_last_commit(cluster: Cluster, consumer_of: Make) -> None:
    """A record that was not finished is handed out again."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a")

    def fail() -> None:
        with consumer_of("orders", group_id="g") as first:
            first.poll()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert values(consumer_of("orders", group_id="g").poll()) == [b"a"]


def test_poll_commits_at_intervals_what_was_handed_out_before(
    cluster: Cluster, consumer_of: Make, clock: ManualClock
) -> None:
    """Not the records that it is about to hand out."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b", b"c")
    consumer = consumer_of("orders", group_id="g", max_poll_records=1, auto_commit_interval_ms=1000)

    consumer.poll()
    consumer.poll()
    early = consumer.committed(T0)
    clock.seconds += 1
    consumer.poll()

    assert early is None
    assert (consumer.committed(T0), consumer.position(T0)) == (2, 3)


def test_an_automatic_commit_without_progress_writes_nothing(
    cluster: Cluster, consumer_of: Make, clock: ManualClock
) -> None:
    """Each commit is a table version, so an idle consumer makes none but one an hour."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a")
    consumer = consumer_of("orders", group_id="g", auto_commit_interval_ms=1000, max_poll_interval_ms=7_200_000)
    consumer.poll()
    clock.seconds += 2
    consumer.poll()
    rows = cluster.groups.refresh().seq

    clock.seconds += 2
    consumer.poll()
    idle = cluster.groups.refresh().seq
    for _ in range(90):  # within its session; one that was silent for longer must say that it lives
        clock.seconds += 40
        consumer.poll()

    assert idle == rows
    assert cluster.groups.refresh().seq == rows + 1


def test_an_automatic_commit_follows_an_explicit_one_of_other_offsets(
    cluster: Cluster, consumer_of: Make, clock: ManualClock
) -> None:
    """The positions are committed again though they did not move, since something else was committed meanwhile."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b")
    consumer = consumer_of("orders", group_id="g", auto_commit_interval_ms=1000)
    consumer.poll()
    clock.seconds += 2
    consumer.poll()

    consumer.commit({T0: OffsetAndMetadata(1)})
    clock.seconds += 2
    consumer.poll()

    assert consumer.committed(T0) == 2


def test_committed_offsets_come_back_with_their_metadata(cluster: Cluster, consumer_of: Make) -> None:
    """Any text is data, never code; committing twice is harmless."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of("orders", group_id="g'; DROP TABLE x--\nü", enable_auto_commit=False)
    consumer.poll()
    note = 'it\'s "quoted"\n; -- ü'

    consumer.commit({T0: OffsetAndMetadata(7, note)})
    consumer.commit({T0: OffsetAndMetadata(7, note)})

    assert consumer.committed(T0) == 7
    assert consumer.committed(T0, metadata=True) == OffsetAndMetadata(7, note, -1)


@only_in_memory("cluster")
@pytest.mark.parametrize(
    ("offsets", "error"),
    [
        ({T0: 5}, TypeError),
        ({("orders", 0): OffsetAndMetadata(5)}, TypeError),
        ({T0: OffsetAndMetadata(-1)}, ValueError),
        ({T0: OffsetAndMetadata(2**63)}, ValueError),
        ({T0: OffsetAndMetadata(offset=True)}, ValueError),
        ({T0: OffsetAndMetadata(cast("int", "5"))}, ValueError),
        ({T0: OffsetAndMetadata(5, cast("str", b"x"))}, TypeError),
        ({T0: OffsetAndMetadata(5, "\ud800")}, ValueError),
        ({T0: OffsetAndMetadata(5, "x" * 4097)}, OffsetMetadataTooLargeError),
        ({TopicPartition("orders", 9): OffsetAndMetadata(5)}, UnknownTopicOrPartitionError),
        ({T0: OffsetAndMetadata(5), TopicPartition("nowhere", 0): OffsetAndMetadata(5)}, UnknownTopicOrPartitionError),
    ],
)
def test_a_bad_commit_writes_nothing(cluster: Cluster, consumer_of: Make, offsets: Any, error: type[Exception]) -> None:
    """Each is refused by a named error before anything is written."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of(group_id="g")
    consumer.assign([T0])

    with pytest.raises(error):
        consumer.commit(offsets)

    assert cluster.groups.refresh().seq == 0


@only_in_memory("cluster")
@pytest.mark.parametrize("offsets", [5, [T0], "orders"])
def test_offsets_that_are_no_mapping_are_a_type_error(cluster: Cluster, consumer_of: Make, offsets: Any) -> None:
    """The message says what is needed."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of(group_id="g")
    consumer.assign([T0])

    for call in (consumer.commit, consumer.commit_async):
        with pytest.raises(TypeError, match="must map TopicPartition to OffsetAndMetadata"):
            call(offsets)


def test_position_finds_the_positions_of_all_partitions(cluster: Cluster, consumer_of: Make) -> None:
    """As in kafka-python and Java: a record that is written after it to another partition is delivered."""
    cluster.create_topic("orders", 2, {})
    consumer = consumer_of(auto_offset_reset="latest")
    consumer.assign([T0, T1])

    consumer.position(T0)
    write(cluster, b"later", partition=1)

    assert drain(consumer) == [b"later"]


def test_a_seek_to_the_end_that_is_looked_at_is_committed_for_all_partitions(
    cluster: Cluster, consumer_of: Make
) -> None:
    """`seek_to_end(); position(p0); commit()` is how ported code skips what is there."""
    cluster.create_topic("orders", 2, {})
    write(cluster, b"a", b"b")
    write(cluster, b"c", partition=1)
    consumer = consumer_of(group_id="g")
    consumer.assign([T0, T1])

    consumer.seek_to_end()
    consumer.position(T0)
    consumer.commit()

    assert (consumer.committed(T0), consumer.committed(T1)) == (2, 1)


def test_the_largest_offset_can_be_committed(cluster: Cluster, consumer_of: Make) -> None:
    """2**63-1 goes round; a commit beyond the log end is taken, as in Kafka."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of(group_id="g")
    consumer.assign([T0])

    consumer.commit({T0: OffsetAndMetadata(np.int64(2**63 - 1))})  # type: ignore[arg-type]

    assert consumer.committed(T0) == 2**63 - 1


def test_commits_need_a_group(cluster: Cluster, consumer_of: Make) -> None:
    """A consumer without a group reads all partitions and commits nothing."""
    cluster.create_topic("orders", 2, {})
    write(cluster, b"a")
    write(cluster, b"b", partition=1)
    consumer = consumer_of("orders")

    found = drain(consumer)

    assert sorted(found) == [b"a", b"b"]
    for call in (consumer.commit, consumer.commit_async, lambda: consumer.committed(T0)):
        with pytest.raises(IllegalStateError):
            call()
    assert consumer.group_metadata().group_id is None


def test_a_commit_before_the_first_poll_is_refused(cluster: Cluster, consumer_of: Make) -> None:
    """The consumer is not the group's member yet."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of("orders", group_id="g")

    with pytest.raises(CommitFailedError):
        consumer.commit({T0: OffsetAndMetadata(1)})


def test_commit_async_is_done_at_once_and_calls_back_at_the_next_poll(cluster: Cluster, consumer_of: Make) -> None:
    """The callback gets the offsets and None, from the consumer's own thread."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a")
    consumer = consumer_of("orders", group_id="g")
    consumer.poll()
    heard: list[Any] = []

    future = consumer.commit_async(callback=lambda *answer: heard.append(answer))
    before = list(heard)
    consumer.poll()

    assert future.is_done
    assert future.succeeded()
    assert before == []
    assert heard == [({T0: OffsetAndMetadata(1)}, None)]
    assert consumer.committed(T0) == 1


# --- in whose name ---------------------------------------------------------------------------


def test_a_member_whose_session_is_over_cannot_commit(cluster: Cluster, consumer_of: Make, clock: ManualClock) -> None:
    """The check is part of the transaction; the successor's offset stays."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b")
    zombie = consumer_of("orders", group_id="g", enable_auto_commit=False)
    zombie.poll(max_records=1)
    successor = consumer_of("orders", group_id="g", enable_auto_commit=False)
    got = outlive([successor], clock)
    successor.commit()

    future = zombie.commit_async()
    with pytest.raises(CommitFailedError) as caught:
        zombie.commit()

    assert got == [b"a", b"b"]
    assert isinstance(caught.value, UnknownMemberIdError)
    assert future.failed()
    assert isinstance(future.exception, CommitFailedError)
    assert successor.committed(T0) == 2
    assert successor.group_metadata().generation_id > zombie.group_metadata().generation_id


def test_a_member_whose_session_is_over_gets_nothing_from_its_buffer(
    cluster: Cluster, consumer_of: Make, clock: ManualClock
) -> None:
    """Records that it has fetched already are another member's by now; it joins again and waits for its turn."""
    cluster.create_topic("orders", 1, {})
    write(cluster, *[b"%d" % n for n in range(100)])
    diary = Diary()
    first = consumer_of(group_id="g", max_poll_records=10)
    first.subscribe(["orders"], listener=diary)
    assert len(values(first.poll())) == 10

    outlive([consumer_of("orders", group_id="g", max_poll_records=1)], clock)

    assert first.poll() == {}
    assert diary.entries[2] == ("lost", {T0})
    assert first.assignment() == set()


def test_a_client_without_membership_commits_only_to_an_empty_group(cluster: Cluster, consumer_of: Make) -> None:
    """As Kafka's broker has it."""
    cluster.create_topic("orders", 1, {})
    by_hand = consumer_of(group_id="g")
    by_hand.assign([T0])
    by_hand.commit({T0: OffsetAndMetadata(3)})
    member = consumer_of("orders", group_id="g")
    member.poll()

    with pytest.raises(CommitFailedError):
        by_hand.commit({T0: OffsetAndMetadata(4)})
    member.close(autocommit=False)
    by_hand.commit({T0: OffsetAndMetadata(5)})

    assert by_hand.committed(T0) == 5


def test_unsubscribing_leaves_the_group(cluster: Cluster, consumer_of: Make) -> None:
    """Nobody holds it afterwards, and the positions are committed."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a")
    consumer = consumer_of("orders", group_id="g")
    consumer.poll()

    consumer.unsubscribe()

    group = cluster.groups.refresh().group("g")
    assert (group.members, group.offsets[T0].position.offset) == ({}, 1)
    assert consumer.assignment() == set()


def test_a_failed_automatic_commit_is_told_to_the_callback(
    cluster: Cluster, consumer_of: Make, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Or logged when there is none; close goes on either way."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a")
    heard: list[Any] = []
    first = consumer_of("orders", group_id="g", default_offset_commit_callback=lambda *answer: heard.append(answer))
    second = consumer_of("orders", group_id="g", auto_commit_interval_ms=10**9)
    first.poll()
    outlive([second], clock)
    outlive([consumer_of("orders", group_id="g")], clock)

    with caplog.at_level(logging.WARNING):
        first.close()
        second.close()

    assert [isinstance(error, CommitFailedError) for _, error in heard] == [True]
    assert "were not committed" in caplog.text


def test_a_commit_under_an_old_generation_is_refused(cluster: Cluster, consumer_of: Make) -> None:
    """A member that has given partitions up cannot commit under the membership that it had before."""
    info = cluster.create_topic("orders", 2, {})
    groups = GroupOffsets.of(cluster, SYSTEM_CLOCK)
    first, second = (consumer_of("orders", group_id="g", enable_auto_commit=False) for _ in range(2))
    first.poll()
    was = first.group_metadata()
    for consumer in (second, first, second):
        consumer.poll()
    old = Membership(group_id="g", generation=was.generation_id, member_id=was.member_id)

    with pytest.raises(CommitFailedError) as caught:
        groups.commit(old, {T0: OffsetAndMetadata(1)}, {"orders": info.topic_id})

    assert isinstance(caught.value.__cause__, IllegalGenerationError)
    assert groups.committed("g", [T0], {"orders": info.topic_id}) == {}


def test_a_member_that_waits_for_its_partitions_cannot_commit(cluster: Cluster, consumer_of: Make) -> None:
    """It has nothing of its own; the next poll may change that, so the error may be retried."""
    cluster.create_topic("orders", 1, {})
    first, second = (consumer_of("orders", group_id="g") for _ in range(2))
    first.poll()
    cluster.add_partitions("orders", 2)
    second.poll()

    with pytest.raises(RebalanceInProgressError) as caught:
        second.commit({T0: OffsetAndMetadata(1)})

    assert not caught.value.retriable
    assert second.group_metadata().state == "<rebalancing>"
