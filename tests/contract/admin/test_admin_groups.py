"""Groups seen and changed from outside, over a cluster in memory and one on Delta tables."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafkalike.admin import KafkaAdminClient
from kafkalike.admin.testing import ManualClock
from kafkalike.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalArgumentError,
    InvalidGroupIdError,
    NoError,
    OffsetMetadataTooLargeError,
    TopicDeletedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.group_expiry import ExpiredOffsets, expire_offsets
from kafkalike.model.group_rows import roster_row
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import (
    MemberToRemove,
    OffsetAndMetadata,
    OffsetSpec,
    OffsetTimestamp,
    TopicPartition,
)
from tests.tools.cli import call
from tests.tools.kinds import only_in_memory

P0, P1, NOWHERE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 9)
LONG_AGO_MS = 1


@pytest.fixture
def admin(cluster: Cluster) -> KafkaAdminClient:
    """A client of a cluster with a topic: times 100, 300, 200 in partition 0, whose first record is deleted."""
    cluster.create_topic("t", 2, {})
    batch = RecordBatch()
    for at in (100, 300, 200):
        batch.add(0, b"k", b"v", at)
    cluster.log("t").append(batch)
    cluster.move_log_start("t", {0: 1}, "test", "r")
    return KafkaAdminClient(bootstrap_servers=cluster)


def put(cluster: Cluster, group: str, *members: Member, alive: bool = True, changed_ms: int = LONG_AGO_MS) -> None:
    """Let these be the members of a group."""
    roster = Roster(
        generation=1,
        protocol="range" if members else "",
        members={member.member_id: member for member in members},
        changed_ms=changed_ms,
    )
    cluster.groups.transact(lambda state: [roster_row(state.seq + 1, group, roster)])
    for member in members:
        if alive:
            cluster.leases.renew(group, member.member_id)


ALICE = Member(
    member_id="alice-1",
    client_id="alice",
    client_host="host",
    subscription=("t",),
    protocols=("range",),
    assignment=(P0, P1),
    target=(P0, P1),
    heartbeat_interval_ms=1,
)


# --- looking -----------------------------------------------------------------------------------


def test_a_group_is_described_with_its_members(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """As dicts, in the words of kafka-python 3; as tuples, in those of 2."""
    put(cluster, "g", ALICE, replace(ALICE, member_id="bob-1", group_instance_id="bob", assignment=(), target=()))

    described = admin.describe_groups(["g"])["g"]

    assert (described["group_state"], described["protocol_data"], described["error"]) == ("Stable", "range", None)
    alice, bob = described["members"]
    assert (alice["member_id"], alice["client_id"], alice["client_host"]) == ("alice-1", "alice", "host")
    assert alice["member_metadata"]["topics"] == ["t"]
    assert alice["member_assignment"]["assigned_partitions"] == [{"topic": "t", "partitions": [0, 1]}]
    assert (bob["group_instance_id"], bob["member_assignment"]["assigned_partitions"]) == ("bob", [])
    (old,) = admin.describe_consumer_groups(["g"])
    assert (old.error_code, old.state, [m.member_id for m in old.members]) == (0, "Stable", ["alice-1", "bob-1"])


def test_a_group_that_does_not_exist_is_dead(admin: KafkaAdminClient) -> None:
    """And the description says why; others are described beside it."""
    described = admin.describe_groups(["nobody"])["nobody"]

    assert (described["group_state"], described["members"]) == ("Dead", [])
    assert "nobody" in described["error"]
    with pytest.raises(InvalidGroupIdError):
        admin.describe_groups([""])


def test_members_whose_session_is_over_are_not_shown(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """Nobody has taken them out yet, and looking does not either."""
    admin.alter_group_offsets("g", {P0: OffsetAndMetadata(2)})
    put(cluster, "g", ALICE, alive=False)
    put(cluster, "only members", ALICE, alive=False)

    assert [group["group_state"] for group in admin.list_groups()] == ["Empty"]
    assert admin.describe_groups(["g"])["g"]["members"] == []
    assert set(cluster.groups.refresh().group("g").members) == {"alice-1"}


# --- offsets -----------------------------------------------------------------------------------


def test_offsets_are_set_for_a_group_without_members(admin: KafkaAdminClient) -> None:
    """The group need not exist; partitions that do not are named and keep nothing back."""
    wanted = OffsetAndMetadata(2, "note", 7)

    done = admin.alter_group_offsets("g", {P0: wanted, NOWHERE: wanted})

    assert done == {P0: NoError, NOWHERE: UnknownTopicOrPartitionError}
    assert admin.list_consumer_group_offsets("g") == {P0: wanted}


def test_offsets_of_a_live_group_are_left_alone(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """Every partition is refused."""
    put(cluster, "g", ALICE)

    assert admin.alter_group_offsets("g", {P0: OffsetAndMetadata(2)}) == {P0: UnknownMemberIdError}
    assert admin.reset_group_offsets("g", {P0: 2}) == {P0: {"error": UnknownMemberIdError, "offset": 2}}
    assert admin.list_consumer_group_offsets("g") == {}


def test_dead_members_keep_nobody_from_setting_offsets(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """They are taken out in the same transaction, so that none of them can wake up and commit over it."""
    put(cluster, "g", ALICE, alive=False)

    assert admin.alter_group_offsets("g", {P0: OffsetAndMetadata(2)}) == {P0: NoError}

    group = cluster.groups.refresh().group("g")
    assert (group.members, group.generation) == ({}, 2)


def test_a_dead_member_is_taken_out_wherever_the_tables_are(open_control: Callable[[], Cluster]) -> None:
    """Leases are files, objects or values; what one process took out, another sees."""
    cluster = open_control()
    cluster.create_topic("t", 1, {})
    put(cluster, "g", replace(ALICE, session_timeout_ms=-1))
    put(cluster, "busy", ALICE)

    done = KafkaAdminClient(bootstrap_servers=cluster).alter_group_offsets("g", {P0: OffsetAndMetadata(2)})

    other = KafkaAdminClient(bootstrap_servers=open_control())
    assert done == {P0: NoError}
    assert [(g["group_id"], g["group_state"]) for g in other.list_groups()] == [("busy", "Stable"), ("g", "Empty")]
    assert other.delete_groups(["busy", "g"]) == {"busy": "NonEmptyGroupError", "g": "OK"}


@only_in_memory("cluster")
@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({P0: OffsetAndMetadata(-1)}, IllegalArgumentError),
        ({P0: OffsetAndMetadata(2**63)}, IllegalArgumentError),
        ({P0: 5}, TypeError),
    ],
)
def test_bad_offsets_are_refused_before_anything_is_written(
    admin: KafkaAdminClient, wanted: dict[TopicPartition, OffsetAndMetadata], error: type[Exception]
) -> None:
    """Also when a good one is beside them."""
    with pytest.raises(error):
        admin.alter_group_offsets("g", {P1: OffsetAndMetadata(0), **wanted})

    assert admin.list_groups() == []


def test_metadata_that_is_too_long_is_told_by_partition(admin: KafkaAdminClient) -> None:
    """As in kafka-python; the offsets beside it are set."""
    done = admin.alter_group_offsets("g", {P1: OffsetAndMetadata(0), P0: OffsetAndMetadata(1, "x" * 5000)})

    assert done == {P1: NoError, P0: OffsetMetadataTooLargeError}
    assert [group["group_id"] for group in admin.list_groups()] == ["g"]


@pytest.mark.parametrize(
    ("spec", "offset"),
    [
        (OffsetSpec.EARLIEST, 1),
        (OffsetSpec.LATEST, 3),
        (OffsetSpec.MAX_TIMESTAMP, 1),
        (OffsetTimestamp(150), 1),
        (OffsetTimestamp(301), 3),
        (0, 1),
        (2, 2),
        (99, 3),
    ],
)
def test_offsets_are_reset_within_the_live_log(admin: KafkaAdminClient, spec: int, offset: int) -> None:
    """Log start 1, log end 3; the note of the offset before stays."""
    admin.alter_group_offsets("g", {P0: OffsetAndMetadata(0, "note")})

    done = admin.reset_group_offsets("g", {P0: spec})

    assert done == {P0: {"error": NoError, "offset": offset}}
    assert admin.list_consumer_group_offsets("g") == {P0: OffsetAndMetadata(offset, "note")}


def test_an_offset_found_in_a_deleted_topic_is_not_set_for_the_next_one_of_its_name(
    cluster: Cluster, admin: KafkaAdminClient
) -> None:
    """The topic is created again after the offset was found in its log, and before that is written."""

    class CreateAgain(dict[TopicPartition, OffsetSpec]):
        """Specs whose end is the moment after the last one was looked up."""

        def items(self) -> Any:
            yield from super().items()
            cluster.delete_topic("t")
            cluster.create_topic("t", 2, {})

    done = admin.reset_group_offsets("g", CreateAgain({P0: OffsetSpec.LATEST}))

    assert done == {P0: {"error": TopicDeletedError, "offset": 3}}
    assert admin.list_consumer_group_offsets("g") == {}


def test_the_note_of_an_offset_stays_with_its_topic(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """The next topic of the name gets none."""
    admin.alter_group_offsets("g", {P0: OffsetAndMetadata(2, "note")})
    cluster.delete_topic("t")
    cluster.create_topic("t", 2, {})

    admin.reset_group_offsets("g", {P0: OffsetSpec.LATEST})

    assert admin.list_consumer_group_offsets("g") == {P0: OffsetAndMetadata(0)}


def test_a_reset_of_what_does_not_exist_changes_nothing(admin: KafkaAdminClient) -> None:
    """Neither a partition nor a kind of target."""
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.reset_group_offsets("g", {P0: 1, NOWHERE: 1})
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.reset_group_offsets("g", {TopicPartition("nowhere", 0): 1})
    with pytest.raises(TypeError):
        admin.reset_group_offsets("g", {P0: "earliest"})  # type: ignore[dict-item]

    assert admin.list_groups() == []


def test_deleted_offsets_are_gone(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """Those of topics that a member reads stay."""
    admin.create_topics(["other"])
    other = TopicPartition("other", 0)
    admin.alter_group_offsets("g", {P0: OffsetAndMetadata(1), other: OffsetAndMetadata(0)})
    put(cluster, "g", ALICE)

    done = admin.delete_group_offsets("g", [P0, other, NOWHERE])

    assert done == {P0: GroupSubscribedToTopicError, other: NoError, NOWHERE: UnknownTopicOrPartitionError}
    assert admin.list_consumer_group_offsets("g") == {P0: OffsetAndMetadata(1)}
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_group_offsets("nobody", [P0])


def test_a_member_that_sends_a_heartbeat_at_last_is_not_dead(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """A clock that was set forward, or a machine that slept, makes everybody look dead for a heartbeat."""
    put(cluster, "g", ALICE, alive=False)
    clock = ManualClock()
    clock.tasks.append(lambda: cluster.leases.renew("g", "alice-1"))

    done = KafkaAdminClient(bootstrap_servers=cluster, clock=clock).delete_groups(["g"])

    assert done == {"g": "NonEmptyGroupError"}
    assert set(cluster.groups.refresh().group("g").members) == {"alice-1"}


def test_a_member_that_joins_meanwhile_keeps_its_offsets(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """Whether anybody is there is looked at in the transaction; the dead one stays too, as nothing is written."""
    admin.alter_group_offsets("g", {P0: OffsetAndMetadata(1)})
    put(cluster, "g", ALICE, alive=False)
    both = (ALICE, replace(ALICE, member_id="bob-1", assignment=(), target=()))
    clock = ManualClock()
    clock.tasks.append(lambda: put(cluster, "g", *both, alive=False))

    done = KafkaAdminClient(bootstrap_servers=cluster, clock=clock).alter_group_offsets("g", {P0: OffsetAndMetadata(2)})

    assert done == {P0: UnknownMemberIdError}
    assert admin.list_consumer_group_offsets("g") == {P0: OffsetAndMetadata(1)}
    assert set(cluster.groups.refresh().group("g").members) == {"alice-1", "bob-1"}


# --- groups and members ------------------------------------------------------------------------


def test_only_groups_without_members_are_deleted(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """Each group's outcome is told; one that was left by all counts as one without."""
    for group in ("idle", "left", "busy"):
        admin.alter_group_offsets(group, {P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(0)})
    put(cluster, "left", ALICE, alive=False)
    put(cluster, "busy", ALICE)

    done = admin.delete_groups(["idle", "left", "busy", "nobody"])

    assert done == {"idle": "OK", "left": "OK", "busy": "NonEmptyGroupError", "nobody": "GroupIdNotFoundError"}
    assert admin.list_consumer_groups() == [("busy", "consumer")]
    assert admin.delete_consumer_groups(["idle"]) == [("idle", GroupIdNotFoundError)]
    assert cluster.groups.refresh().group("left").generation == 2


def test_members_are_removed_by_id_or_static_name(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """What they had is free, and the others are to share it."""
    static = replace(ALICE, member_id="bob-1", group_instance_id="bob", assignment=(P1,), target=(P1,))
    put(
        cluster,
        "g",
        replace(ALICE, assignment=(P0,), target=(P0,)),
        static,
        replace(ALICE, member_id="carol", assignment=(), target=()),
    )

    done = admin.remove_group_members(
        "g", [MemberToRemove("alice-1"), MemberToRemove(None, "bob"), MemberToRemove("x")]
    )

    assert done == {"alice-1": NoError, "bob": NoError, "x": UnknownMemberIdError}
    group = cluster.groups.refresh().group("g")
    assert (set(group.members), group.generation, group.state.value) == ({"carol"}, 2, "PreparingRebalance")
    with pytest.raises(IllegalArgumentError):
        admin.remove_group_members("g", [MemberToRemove()])
    with pytest.raises(GroupIdNotFoundError):
        admin.remove_group_members("nobody", [MemberToRemove("x")])


# --- expiry ------------------------------------------------------------------------------------


def test_what_nobody_needs_is_taken_away_in_one_commit(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """Dead members, old offsets, offsets of deleted topics; a live group keeps everything."""
    admin.create_topics(["gone", "unread"])
    gone, unread = TopicPartition("gone", 0), TopicPartition("unread", 0)
    for group in ("old", "fresh", "busy"):
        admin.alter_group_offsets(group, {P0: OffsetAndMetadata(1), gone: OffsetAndMetadata(0)})
    admin.alter_group_offsets("fresh", {unread: OffsetAndMetadata(0)})
    put(cluster, "old")
    put(cluster, "fresh", replace(ALICE, session_timeout_ms=-1))
    put(cluster, "busy", ALICE)
    admin.delete_topics(["gone"])
    in_eight_days = ManualClock(cluster.log("t").last_append_ms() / 1000 + 8 * 24 * 3600)

    done = expire_offsets(cluster, in_eight_days)

    assert done == ExpiredOffsets(
        members={"fresh": ["alice-1"]},
        expired={"old": [P0]},
        orphaned={"old": [gone], "fresh": [gone], "busy": [gone]},
    )
    assert admin.list_consumer_groups() == [("busy", "consumer"), ("fresh", "consumer")]
    assert cluster.leases.read("fresh", ["alice-1"]) == {}
    assert expire_offsets(cluster, in_eight_days) == ExpiredOffsets()
    in_eight_days.seconds += 8 * 24 * 3600
    assert expire_offsets(cluster, in_eight_days) == ExpiredOffsets(expired={"fresh": [P0, unread]})


def test_a_cluster_is_sound_whatever_an_administrator_did(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """`kafkalike verify` finds nothing after resets, removals and deletions."""
    put(cluster, "g", ALICE, replace(ALICE, member_id="bob-1", assignment=(), target=()))
    admin.remove_group_members("g", [MemberToRemove("alice-1"), MemberToRemove("bob-1")])
    for offset in (3, 1, 2):
        admin.reset_group_offsets("g", {P0: offset, P1: OffsetSpec.LATEST})
    admin.delete_group_offsets("g", [P1])
    admin.alter_group_offsets("h", {P0: OffsetAndMetadata(2)})
    admin.delete_groups(["h"])

    done = call(cluster, "verify", "--json")

    assert json.loads(done.out)["findings"] == []
    assert admin.list_group_offsets(["g", "h"]) == {"g": {P0: OffsetAndMetadata(2)}, "h": {}}
