"""Values of the model: what they hold, how they compare, and what they say of things that are not there."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import IllegalArgumentError, IllegalStateError, LogCorruptError, UnsupportedVersionError
from kafkalike.model.cluster_state import ClusterState, MetadataRow
from kafkalike.model.group_rows import OFFSET, GroupRow, roster_row
from kafkalike.model.group_state import GroupsState
from kafkalike.model.groups.group_protocol import Assign, GroupFacts, Scheme, join
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.lag import CommitIndex, GrowthIndex, Moment, PartitionIndex, history
from kafkalike.model.metrics import Histogram
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.record_batch import HOLES, RecordBatch, TxnId, cleaner_app
from kafkalike.model.segments import SegmentIndex
from kafkalike.model.structs import (
    ConfigResource,
    ConfigResourceType,
    GroupState,
    NewPartitions,
    NewTopic,
    TopicPartition,
)
from kafkalike.model.topic import LogStart, TopicInfo
from tests.tools.segments import segment

# --- what an administrator gives ---------------------------------------------------------------


def test_a_new_topic_leaves_everything_but_its_name_to_the_cluster() -> None:
    """-1 asks for the cluster's default, as in Kafka."""
    topic = NewTopic("orders")

    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)
    assert (topic.replica_assignments, topic.topic_configs) == ({}, {})
    assert repr(topic) == "NewTopic(name='orders', num_partitions=-1, replication_factor=-1, topic_configs={})"


def test_a_new_topic_keeps_what_it_was_given() -> None:
    """Positional, in kafka-python's order."""
    topic = NewTopic("orders", 4, 1, {0: [1]}, {"retention.ms": "5"})

    assert (topic.num_partitions, topic.replication_factor) == (4, 1)
    assert (topic.replica_assignments, topic.topic_configs) == ({0: [1]}, {"retention.ms": "5"})


def test_new_partitions_keep_what_they_were_given() -> None:
    """Assignments are kept, though they mean nothing here."""
    assert (NewPartitions(3).total_count, NewPartitions(3).new_assignments) == (3, None)
    assert NewPartitions(3, [[1]]).new_assignments == [[1]]


def test_resources_of_one_kind_by_name_or_by_constant_are_equal() -> None:
    """Equal ones have one hash; other configs make another resource."""
    by_name, by_constant = ConfigResource("topic", "t"), ConfigResource(ConfigResourceType.TOPIC, "t")

    assert by_name == by_constant
    assert hash(by_name) == hash(by_constant)
    assert by_name != ConfigResource("topic", "u")
    assert by_name != ConfigResource("broker", "t")
    assert by_name != ConfigResource("topic", "t", {"retention.ms": "1"})
    assert by_name != "topic"
    assert repr(by_name) == "ConfigResource(TOPIC, 't', None)"


# --- topics ------------------------------------------------------------------------------------


def test_a_topic_says_who_moved_its_log_start_only_of_offsets_below_it() -> None:
    """With the reason, the run and the time."""
    moved = LogStart(offset=7, reason="retention", run="r1", time_ms=0)
    info = TopicInfo(name=TopicName("t"), topic_id=TopicId("id"), location="t", num_partitions=2, log_starts={0: moved})

    assert info.why_gone(0, 6) == "log start moved to 7 by retention, run r1, at 1970-01-01T00:00:00.000+00:00"
    assert info.why_gone(0, 7) == ""
    assert info.why_gone(1, 0) == ""
    assert (info.log_start(0), info.log_start(1)) == (7, 0)


def test_a_metadata_row_of_an_unknown_kind_is_refused() -> None:
    """A later version has written it: a client that does not know it must not go on."""
    state = ClusterState()

    with pytest.raises(UnsupportedVersionError, match="row 4 of __cluster_metadata is of kind 'quota'"):
        state.applied([MetadataRow(seq=4, time_ms=1, kind="quota", topic="t", topic_id="id", change="set", value="{}")])

    assert (state.seq, dict(state.topics)) == (0, {})


def test_the_cleaner_keeps_its_facts_by_partition() -> None:
    """A name for each fact, below the cleaner's own."""
    assert cleaner_app(3, HOLES) == "kafkalike.cleaner/3/holes"


# --- appends -----------------------------------------------------------------------------------


def test_records_of_a_batch_stand_in_columns() -> None:
    """In the order in which they were added; no headers are None."""
    records = RecordBatch()

    records.add(1, b"k", b"v", 5, [("h", None)])
    records.add(0, None, None, 4, [])

    assert (records.partitions, records.timestamps, len(records)) == ([1, 0], [5, 4], 2)
    assert (records.keys, records.values) == ([b"k", None], [b"v", None])
    assert records.headers == [[("h", None)], None]


def test_an_id_of_a_write_is_not_one_of_the_tables_own() -> None:
    """Under those a table keeps facts about itself."""
    said = "txn_id must not begin with 'kafkalike.', which is kafkalike's own, as 'kafkalike.end' does"

    with pytest.raises(IllegalArgumentError, match=said):
        TxnId("kafkalike.end", 1)
    assert TxnId("kafkalike", 1).after is None


# --- segments and lag --------------------------------------------------------------------------


def test_an_index_of_segments_knows_its_files() -> None:
    """One that is removed twice, or was never there, changes nothing."""
    index = SegmentIndex()
    index.add(segment(0, 3))
    index.add(segment(3, 5))

    index.remove("0")
    index.remove("0")
    index.remove("never")

    assert set(index.paths) == {"3"}
    assert (index.has("3"), index.has("0")) == (True, False)


def test_a_committed_offset_before_everything_waits_for_all_records() -> None:
    """The first segments were deleted; time passes from the oldest record that is there."""
    partition = PartitionIndex(4, 10, [segment(6, 10, times=(1_000, 4_000))])

    lag = partition.lag(5)

    assert (lag.offsets, lag.records, lag.behind_ms) == (5, 4, 3_000)
    assert partition.time_of(5) is None
    assert partition.time_of(6) == 1_000


def test_no_record_waits_in_an_empty_partition() -> None:
    """Offsets may: those whose records were deleted."""
    lag = PartitionIndex(10, 10, []).lag(4)

    assert (lag.offsets, lag.records, lag.behind_ms) == (6, 0, 0)


def test_a_group_that_never_committed_has_no_history() -> None:
    """Whatever moments are asked for."""
    assert list(history(CommitIndex([]), GrowthIndex(0, [segment(0, 5)]), [1, 2], 1)) == []


def test_without_a_rate_nobody_knows_when_a_group_has_caught_up() -> None:
    """It has when nothing waits."""
    waiting = Moment(time_ms=1, committed=5, log_end=9, consumed_per_second=None, produced_per_second=None)

    assert waiting.catch_up_seconds is None
    assert replace(waiting, log_end=5).catch_up_seconds == 0.0


# --- groups ------------------------------------------------------------------------------------


def commit(seq: int, offset: int | None, topic: str | None = "t") -> GroupRow:
    return GroupRow(seq=seq, kind=OFFSET, group_id="g", topic=topic, partition=0, offset=offset, time_ms=1)


def test_a_group_row_that_comes_again_changes_nothing() -> None:
    """And one of a commit without a topic is refused."""
    state = GroupsState()
    state = state.applied([commit(1, 5)])

    state = state.applied([commit(1, 9)])
    with pytest.raises(LogCorruptError, match="no topic or partition"):
        state.applied([commit(2, 9, topic=None)])

    assert {tp: found.position.offset for tp, found in state.groups["g"].offsets.items()} == {TopicPartition("t", 0): 5}
    assert state.seq == 1


def test_a_group_without_members_is_empty_and_its_generation_stays() -> None:
    """Its roster says so."""
    state = GroupsState()
    state = state.applied([commit(1, 5)])
    state = state.applied([roster_row(2, "g", Roster(generation=7, changed_ms=3))])

    group = state.groups["g"]

    assert (group.state, group.generation, group.protocol) == (GroupState.EMPTY, 7, "")


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"stranger": [TopicPartition("t", 0)]}, "gave t-0 to 'stranger': it did not subscribe to this topic"),
        ({"a": [TopicPartition("other", 0)]}, "gave other-0 to 'a': it did not subscribe to this topic"),
        ({"a": [TopicPartition("t", 2)]}, "gave t-2 to 'a': the topic does not have this partition"),
        ({"a": [TopicPartition("t", -1)]}, "gave t--1 to 'a': the topic does not have this partition"),
        ({"a": [TopicPartition("gone", 0)]}, "gave gone-0 to 'a': the topic does not have this partition"),
    ],
)
def test_what_an_assignor_gives_away_is_checked(given: dict[str, list[TopicPartition]], fault: str) -> None:
    """An assignor may be the application's own."""
    with pytest.raises(IllegalStateError, match=f"assignor 'own' {fault}"):
        joined(lambda *_: given, ["a"])


def test_an_assignor_that_gives_one_partition_to_two_is_refused() -> None:
    """The member that had it first is named."""
    both = {"a": [TopicPartition("t", 0)], "b": [TopicPartition("t", 0)]}

    with pytest.raises(IllegalStateError, match="gave t-0 to 'b': 'a' has it already"):
        joined(lambda _, members: {name: both[name] for name in members}, ["a", "b"])


def test_the_assignor_that_most_members_like_best_is_taken() -> None:
    """Of those that all have; members that list them in another order do not matter then."""
    roster = joined(lambda *_: {}, ["a", "b", "c"], lists=[("x", "own"), ("own", "y", "x"), ("own", "x")])

    assert roster.protocol == "own"


def joined(assign: Assign, ids: list[str], lists: list[tuple[str, ...]] | None = None) -> Roster:
    """The roster when these members have joined, one after the other."""
    schemes = {name: Scheme(name, assign) for name in ("own", "x", "y")}
    known = GroupFacts(schemes=schemes, topics={"t": ("id", 2)}, metadata_seq=1, now_ms=1)
    roster = Roster()
    for at, name in enumerate(ids):
        protocols = lists[at] if lists else ("own",)
        roster = join(roster, Member(member_id=name, subscription=("gone", "t"), protocols=protocols), known)
    return roster


# --- histograms --------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 9), unique=True).map(sorted), st.lists(st.integers(-1, 10)))
def test_a_histogram_counts_what_does_not_exceed_each_bound(bounds: list[int], values: list[int]) -> None:
    """A value counts at the bound that it is equal to; all of them do at infinity."""
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)

    seen = histogram.seen()

    assert seen.at_most == (
        *((bound, sum(value <= bound for value in values)) for bound in bounds),
        (float("inf"), len(values)),
    )
    assert (seen.total, seen.count) == (sum(values), len(values))
