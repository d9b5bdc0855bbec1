"""Several consumers of one group: who gets what when members and topics come and go; over both clusters."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from kafkalike.admin.testing import ManualClock
from kafkalike.consumer import KafkaConsumer
from kafkalike.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    NonEmptyGroupError,
    TopicDeletedError,
    UnknownMemberIdError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.assignors import PartitionAssignor
from kafkalike.log.group.exclusive_lock import held_alone
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.groups.group_protocol import Subscriber
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import GroupState, OffsetAndMetadata, TopicPartition
from tests.tools.consumer import Diary, Make, outlive, turns

EAGER = ("range", "roundrobin", "sticky")
STRATEGIES = (*EAGER, "cooperative-sticky")


def tp(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, partition)


def tps(*partitions: int) -> set[TopicPartition]:
    return {tp(p) for p in partitions}


def write(cluster: Cluster, topic: str = "t", each: int = 1) -> None:
    """The same records to every partition of a topic."""
    log = cluster.log(topic)
    batch = RecordBatch()
    for p in log.info.partitions:
        for n in range(each):
            batch.add(p, None, b"%d-%d" % (p, n), 1000)
    log.append(batch)


def shares(consumers: Iterable[KafkaConsumer]) -> list[set[TopicPartition]]:
    return [consumer.assignment() for consumer in consumers]


# --- who gets what ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_share_the_partitions_and_every_record_is_read_once(
    cluster: Cluster, consumer_of: Make, strategy: str
) -> None:
    """One, then three, then five, then two members on four partitions."""
    cluster.create_topic("t", 4, {})
    members: list[KafkaConsumer] = []
    found: dict[TopicPartition, list[int]] = {tp(p): [] for p in range(4)}

    for size in (1, 3, 5, 2):
        while len(members) > size:
            members.pop(0).close()
        while len(members) < size:
            members.append(consumer_of("t", group_id="g", partition_assignment_strategy=[strategy]))
        turns(members)
        write(cluster, each=3)
        for where, offsets in turns(members).items():
            found[where] += offsets
        owned = shares(members)
        assert set().union(*owned) == tps(0, 1, 2, 3)
        assert sorted(map(len, owned)) == {1: [4], 2: [2, 2], 3: [1, 1, 2], 5: [0, 1, 1, 1, 1]}[size]

    assert found == {tp(p): list(range(12)) for p in range(4)}
    assert cluster.groups.refresh().group("g").state is GroupState.STABLE


def test_groups_do_not_disturb_each_other(cluster: Cluster, consumer_of: Make) -> None:
    """Each gets everything."""
    cluster.create_topic("t", 2, {})
    write(cluster, each=2)
    one, two = consumer_of("t", group_id="one"), consumer_of("t", group_id="two")

    assert turns([one]) == turns([two]) == {tp(0): [0, 1], tp(1): [0, 1]}


def test_added_partitions_and_new_topics_of_a_pattern_are_shared_out(cluster: Cluster, consumer_of: Make) -> None:
    """Whoever polls first finds them; the other one follows."""
    cluster.create_topic("t", 1, {})
    members = [consumer_of(group_id="g", partition_assignment_strategy="cooperative-sticky") for _ in range(2)]
    for member in members:
        member.subscribe(pattern="t")
    turns(members)

    cluster.add_partitions("t", 2)
    cluster.create_topic("t2", 2, {})
    turns(members)

    assert set().union(*shares(members)) == {tp(0), tp(1), tp(0, "t2"), tp(1, "t2")}
    assert list(map(len, shares(members))) == [2, 2]


def test_a_changed_subscription_rebalances(cluster: Cluster, consumer_of: Make) -> None:
    """A member gets only topics that it subscribed to."""
    for topic in ("t", "u"):
        cluster.create_topic(topic, 2, {})
    one, two = members = [consumer_of("t", group_id="g") for _ in range(2)]
    turns(members)

    two.subscribe(["u"])
    turns(members)

    assert shares(members) == [tps(0, 1), {tp(0, "u"), tp(1, "u")}]
    one.subscribe(["t", "u"])
    turns(members)
    first, second = shares(members)
    assert first | second == {tp(0), tp(1), tp(0, "u"), tp(1, "u")}
    assert (len(first), len(second)) == (3, 1)


def test_a_topic_that_is_deleted_leaves_the_group(cluster: Cluster, consumer_of: Make) -> None:
    """And one of its name is another topic, which begins by the reset policy."""
    cluster.create_topic("t", 1, {})
    cluster.create_topic("u", 1, {})
    write(cluster, each=3)
    consumer = consumer_of("t", "u", group_id="g")
    turns([consumer])
    cluster.delete_topic("t")
    with pytest.raises(TopicDeletedError):
        turns([consumer])
    turns([consumer])
    without = consumer.assignment()

    cluster.create_topic("t", 1, {})
    write(cluster)

    assert without == {tp(0, "u")}
    assert turns([consumer]) == {tp(0): [0]}


class ByNumber(PartitionAssignor):
    """Partition n to the member whose client id ends in n; the rest to nobody."""

    name = "by-number"
    twice = False

    def assign(
        self, partitions: Mapping[str, int], members: Mapping[str, Subscriber]
    ) -> dict[str, list[TopicPartition]]:
        return {
            i: [TopicPartition(t, 0 if self.twice else int(i[1])) for t in partitions if int(i[1]) < partitions[t]]
            for i in members
        }


class Twice(ByNumber):
    """Gives the first partition to everybody."""

    name = "twice"
    twice = True


def test_an_assignor_of_the_users_own_shares_out(cluster: Cluster, consumer_of: Make) -> None:
    """Given as a class; its name stands in the group."""
    cluster.create_topic("t", 3, {})
    members = [
        consumer_of("t", group_id="g", client_id=f"c{n}", partition_assignment_strategy=[ByNumber]) for n in (2, 0)
    ]

    turns(members)

    assert shares(members) == [tps(2), tps(0)]
    assert cluster.groups.refresh().group("g").protocol == "by-number"


def test_an_assignor_that_gives_a_partition_to_two_is_refused(cluster: Cluster, consumer_of: Make) -> None:
    """The group stays as it was."""
    cluster.create_topic("t", 2, {})
    one, two = (
        consumer_of("t", group_id="g", client_id=f"c{n}", partition_assignment_strategy=[Twice]) for n in range(2)
    )
    turns([one])

    with pytest.raises(IllegalStateError, match="'twice'"):
        two.poll()

    assert len(cluster.groups.refresh().group("g").members) == 1
    assert one.assignment() == tps(0)


def test_members_without_a_common_assignor_cannot_be_in_one_group(
    cluster: Cluster, consumer_of: Make, clock: ManualClock
) -> None:
    """The one that comes later is told, once it is sure that the others live; a common one is found by votes."""
    cluster.create_topic("t", 2, {})
    often = {"group_id": "g", "heartbeat_interval_ms": 3000}
    first = consumer_of("t", **often, partition_assignment_strategy=["range", "sticky"])
    first.poll()
    other = consumer_of("t", **often, partition_assignment_strategy=["roundrobin"])

    other.poll()
    clock.sleep(4)
    first.poll()
    clock.sleep(1)
    with pytest.raises(InconsistentGroupProtocolError):
        turns([other], 2)
    third = consumer_of("t", group_id="g", partition_assignment_strategy=["roundrobin", "sticky"])
    turns([first, third])

    assert cluster.groups.refresh().group("g").protocol == "sticky"
    assert shares([first, third]) != [set(), set()]


# --- the order of a rebalance ----------------------------------------------------------------


@pytest.mark.parametrize("strategy", EAGER)
def test_an_eager_rebalance_stops_everybody_first(cluster: Cluster, consumer_of: Make, strategy: str) -> None:
    """All is revoked, then all is assigned; nobody gets anything until everybody has given up."""
    cluster.create_topic("t", 2, {})
    write(cluster, each=2)
    diary = Diary()
    one, two = (consumer_of(group_id="g", partition_assignment_strategy=[strategy]) for _ in range(2))
    one.subscribe(["t"], listener=diary)
    two.subscribe(["t"])
    one.poll()

    while_waiting = two.poll()
    nothing = two.assignment()
    turns([one, two])

    assert while_waiting == {}
    assert nothing == set()
    mine = one.assignment()
    assert diary.entries == [
        ("revoked", set()),
        ("assigned", tps(0, 1)),
        ("revoked", tps(0, 1)),
        ("assigned", mine),
    ]
    assert len(mine) == 1


def test_a_cooperative_rebalance_leaves_alone_what_stays(cluster: Cluster, consumer_of: Make) -> None:
    """Only what moves is revoked, and the rest is read on, by the member that had it, at the position it had."""
    cluster.create_topic("t", 4, {})
    diary = Diary()
    settings = {"group_id": "g", "partition_assignment_strategy": ["cooperative-sticky"], "enable_auto_commit": False}
    one, two = consumer_of(**settings), consumer_of(**settings)
    one.subscribe(["t"], listener=diary)
    two.subscribe(["t"])
    write(cluster)
    one.poll()
    two.poll()
    write(cluster)

    during = turns([one], 1)
    turns([one, two])

    moved = two.assignment()
    stayed = one.assignment()
    assert {where: offsets for where, offsets in during.items() if where in stayed} == {w: [1] for w in stayed}
    assert diary.entries == [("assigned", tps(0, 1, 2, 3)), ("revoked", moved)]
    assert len(moved) == len(stayed) == 2


def test_paused_partitions_stay_paused_through_a_cooperative_rebalance(cluster: Cluster, consumer_of: Make) -> None:
    """They were never given up."""
    cluster.create_topic("t", 2, {})
    one, two = (consumer_of("t", group_id="g", partition_assignment_strategy="cooperative-sticky") for _ in range(2))
    one.poll()
    one.pause(tp(0), tp(1))

    turns([one, two])

    assert one.paused() == one.assignment()
    assert len(one.paused()) == 1


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_listener_commits_what_is_revoked(cluster: Cluster, consumer_of: Make, strategy: str) -> None:
    """The next owner goes on from there, so nothing is read twice without automatic commits either."""
    cluster.create_topic("t", 2, {})
    write(cluster, each=3)
    settings = {"group_id": "g", "partition_assignment_strategy": [strategy], "enable_auto_commit": False}
    one, two = consumer_of(**settings), consumer_of("t", **settings)
    diary = Diary()
    diary.on_revoked = one.commit
    one.subscribe(["t"], listener=diary)
    first = turns([one])

    later = turns([two, one])

    assert first == {tp(0): [0, 1, 2], tp(1): [0, 1, 2]}
    assert later == {}
    assert len(two.assignment()) == 1


def test_a_member_that_does_not_poll_keeps_what_it_has_until_its_session_is_over(
    cluster: Cluster, consumer_of: Make, clock: ManualClock
) -> None:
    """Nobody else gets it meanwhile, and its commits count."""
    cluster.create_topic("t", 1, {})
    write(cluster)
    one, two = (consumer_of("t", group_id="g", enable_auto_commit=False, client_id=f"c{1 - n}") for n in range(2))
    one.poll()

    turns([two])
    one.commit()
    nobody = two.assignment()
    outlive([two], clock)

    assert nobody == set()
    assert two.assignment() == tps(0)
    assert one.committed(tp(0)) == 1
    with pytest.raises(CommitFailedError) as caught:
        one.commit()
    assert isinstance(caught.value, UnknownMemberIdError)


def test_a_member_that_polls_too_seldom_leaves_by_itself(
    cluster: Cluster, consumer_of: Make, clock: ManualClock
) -> None:
    """max_poll_interval_ms: it loses its partitions, may not commit, and joins again with its next poll."""
    cluster.create_topic("t", 1, {})
    diary = Diary()
    consumer = consumer_of(group_id="g", max_poll_interval_ms=10_000, enable_auto_commit=False)
    consumer.subscribe(["t"], listener=diary)
    consumer.poll()
    before = consumer.group_metadata()

    clock.sleep(11)
    consumer.poll()

    assert diary.entries[2:] == [("lost", tps(0)), ("revoked", set()), ("assigned", tps(0))]
    assert consumer.group_metadata().member_id != before.member_id
    assert consumer.group_metadata().generation_id > before.generation_id


# --- static members --------------------------------------------------------------------------


def static(make: Make, name: str, **more: Any) -> KafkaConsumer:
    return make("t", group_id="g", group_instance_id=name, **more)


def test_a_static_member_that_comes_back_rebalances_nothing(
    cluster: Cluster, consumer_of: Make, clock: ManualClock
) -> None:
    """Restarted one after the other within the session timeout: the generation and all assignments stay."""
    cluster.create_topic("t", 4, {})
    members = {name: static(consumer_of, name) for name in ("a", "b")}
    turns(members.values())
    generation = cluster.groups.refresh().group("g").generation
    before = {name: member.assignment() for name, member in members.items()}

    for name in ("a", "b"):
        members[name].close()
        clock.sleep(10)
        turns([m for n, m in members.items() if n != name], 1)
        members[name] = static(consumer_of, name)
        write(cluster)
        assert turns([members[name]], 1).keys() == before[name]

    assert {name: member.assignment() for name, member in members.items()} == before
    assert cluster.groups.refresh().group("g").generation == generation


def test_a_static_member_that_stays_away_is_dead_after_its_session(
    cluster: Cluster, consumer_of: Make, clock: ManualClock
) -> None:
    """Closing keeps its place only for so long."""
    cluster.create_topic("t", 2, {})
    one, two = members = [static(consumer_of, name) for name in ("a", "b")]
    turns(members)

    one.close()
    turns([two])
    kept = two.assignment()
    outlive([two], clock)

    assert len(kept) == 1
    assert two.assignment() == tps(0, 1)


def test_a_second_live_instance_fences_the_first(cluster: Cluster, consumer_of: Make) -> None:
    """The newer one goes on; the older one is told by commit and by poll, every time, and loses its partitions."""
    cluster.create_topic("t", 1, {})
    write(cluster)
    diary = Diary()
    old = consumer_of(group_id="g", group_instance_id="a", enable_auto_commit=False)
    old.subscribe(["t"], listener=diary)
    old.poll()
    new = static(consumer_of, "a", enable_auto_commit=False)
    new.poll()

    with pytest.raises(FencedInstanceIdError):
        old.commit()
    for _ in range(2):
        with pytest.raises(FencedInstanceIdError):
            old.poll()

    assert diary.entries[-1] == ("lost", tps(0))
    assert new.assignment() == tps(0)
    new.commit({tp(0): OffsetAndMetadata(1)})


# --- a group for oneself ---------------------------------------------------------------------


def test_a_batch_job_has_the_group_for_itself(cluster: Cluster, consumer_of: Make) -> None:
    """It commits as its one member, and whoever wants to join is told."""
    info = cluster.create_topic("t", 2, {})
    offsets = GroupOffsets.of(cluster, SYSTEM_CLOCK)

    with held_alone(cluster, "g", ["t"], "job", SYSTEM_CLOCK) as member:
        (shown,) = cluster.groups.refresh().group("g").members.values()
        offsets.commit(member, {tp(0): OffsetAndMetadata(7)}, {"t": info.topic_id})
        generation = cluster.groups.refresh().group("g").generation

    assert shown.assignment == (tp(0), tp(1))
    assert cluster.groups.refresh().group("g").state is GroupState.EMPTY
    assert cluster.groups.refresh().group("g").generation == generation + 1
    assert consumer_of("t", group_id="g").committed(tp(0)) == 7


def test_a_batch_job_is_refused_while_others_live(cluster: Cluster) -> None:
    """As soon as one of them gives a heartbeat."""
    cluster.create_topic("t", 1, {})
    with KafkaConsumer(
        "t", bootstrap_servers=cluster, group_id="g", session_timeout_ms=5000, heartbeat_interval_ms=20
    ) as consumer:
        consumer.poll()

        with pytest.raises(NonEmptyGroupError), held_alone(cluster, "g", ["t"], "job", SYSTEM_CLOCK):
            pytest.fail("it was let in")

        consumer.poll()
        assert consumer.assignment() == tps(0)
