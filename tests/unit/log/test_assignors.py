"""Assignors: Kafka's examples, and what must hold of every assignment."""

from collections.abc import Mapping
from typing import ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import given

from kafkalike.errors import KafkaConfigurationError
from kafkalike.log.group.assignors import (
    CooperativeStickyAssignor,
    PartitionAssignor,
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    StickyPartitionAssignor,
    schemes_of,
)
from kafkalike.model.groups.group_protocol import Subscriber
from kafkalike.model.structs import TopicPartition

Given = Mapping[str, list[TopicPartition]]

ALL: list[PartitionAssignor] = [
    RangePartitionAssignor(),
    RoundRobinPartitionAssignor(),
    StickyPartitionAssignor(),
    CooperativeStickyAssignor(),
]
STICKY = StickyPartitionAssignor()


def members(**topics: str) -> dict[str, Subscriber]:
    """Members by name, with their topics as text."""
    return {name: Subscriber(topics=tuple(sorted(wanted.split()))) for name, wanted in topics.items()}


def after(old: Mapping[str, Subscriber], made: Given) -> dict[str, Subscriber]:
    """The same members, owning what they were given."""
    return {i: Subscriber(topics=m.topics, owned=tuple(sorted(made[i]))) for i, m in old.items()}


def names(made: Given) -> dict[str, list[str]]:
    return {i: [f"{tp.topic}p{tp.partition}" for tp in sorted(owned)] for i, owned in made.items()}


# --- Kafka's own examples (the javadoc of its assignors) ---------------------------------------

SAME = members(C0="t0 t1", C1="t0 t1")
DIFFERENT = members(C0="t0", C1="t0 t1", C2="t0 t1 t2")


def test_range_gives_runs_topic_by_topic() -> None:
    """RangeAssignor: two members, two topics of three partitions."""
    made = RangePartitionAssignor().assign({"t0": 3, "t1": 3}, SAME)

    assert names(made) == {"C0": ["t0p0", "t0p1", "t1p0", "t1p1"], "C1": ["t0p2", "t1p2"]}


def test_round_robin_goes_on_over_topics() -> None:
    """RoundRobinAssignor: the same members and topics."""
    made = RoundRobinPartitionAssignor().assign({"t0": 3, "t1": 3}, SAME)

    assert names(made) == {"C0": ["t0p0", "t0p2", "t1p1"], "C1": ["t0p1", "t1p0", "t1p2"]}


def test_round_robin_passes_over_who_does_not_subscribe() -> None:
    """RoundRobinAssignor: subscriptions that differ."""
    made = RoundRobinPartitionAssignor().assign({"t0": 1, "t1": 2, "t2": 3}, DIFFERENT)

    assert names(made) == {"C0": ["t0p0"], "C1": ["t1p0"], "C2": ["t1p1", "t2p0", "t2p1", "t2p2"]}


def test_sticky_is_more_even_where_subscriptions_differ() -> None:
    """StickyAssignor, second example."""
    made = STICKY.assign({"t0": 1, "t1": 2, "t2": 3}, DIFFERENT)

    assert names(made) == {"C0": ["t0p0"], "C1": ["t1p0", "t1p1"], "C2": ["t2p0", "t2p1", "t2p2"]}


def test_sticky_moves_only_what_its_owner_left() -> None:
    """StickyAssignor, first example: of three members with four topics of two partitions, one leaves."""
    topics = {f"t{n}": 2 for n in range(4)}
    three = members(C0="t0 t1 t2 t3", C1="t0 t1 t2 t3", C2="t0 t1 t2 t3")
    before = STICKY.assign(topics, three)

    left = {i: m for i, m in after(three, before).items() if i != "C1"}
    made = STICKY.assign(topics, left)

    assert all(set(before[i]) <= set(made[i]) for i in left)
    assert {i: len(owned) for i, owned in made.items()} == {"C0": 4, "C2": 4}


def test_static_members_come_first_and_by_their_names() -> None:
    """So that a restart under another member id changes nothing."""
    three = {
        "a": Subscriber(topics=("t",)),
        "b": Subscriber(topics=("t",), group_instance_id="y"),
        "c": Subscriber(topics=("t",), group_instance_id="x"),
    }

    made = RangePartitionAssignor().assign({"t": 3}, three)

    assert names(made) == {"c": ["tp0"], "b": ["tp1"], "a": ["tp2"]}


# --- what must always hold -------------------------------------------------------------------

TOPICS = ("a", "b", "c")
partition_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7))
subscriptions = st.lists(st.sets(st.sampled_from(TOPICS)), min_size=1, max_size=6)


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, int], dict[str, Subscriber]]:
    """Topics, and members that own what they may or may not have any more, also the same partition twice."""
    counts = draw(partition_counts)
    owned = st.lists(st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 8)), max_size=6, unique=True)
    return dict(sorted(counts.items())), {
        f"m{n}": Subscriber(topics=tuple(sorted(topics)), owned=tuple(sorted(draw(owned))))
        for n, topics in enumerate(draw(subscriptions))
    }


@pytest.mark.parametrize("assignor", ALL, ids=lambda a: a.name)
@given(group=groups())
def test_every_wanted_partition_goes_to_one_member_that_wants_it(
    assignor: PartitionAssignor, group: tuple[dict[str, int], dict[str, Subscriber]]
) -> None:
    """Complete, disjoint, and nothing to those who did not ask; the order of the members does not count."""
    counts, those = group

    made = {i: list(owned) for i, owned in assignor.assign(counts, those).items()}

    wanted = {t for m in those.values() for t in m.topics} & counts.keys()
    assert sorted(tp for owned in made.values() for tp in owned) == [
        TopicPartition(t, p) for t in sorted(wanted) for p in range(counts[t])
    ]
    assert all(tp.topic in those[i].topics for i, owned in made.items() for tp in owned)
    turned = assignor.assign(counts, dict(reversed(those.items())))
    assert {i: sorted(owned) for i, owned in turned.items()} == {i: sorted(owned) for i, owned in made.items()}


@given(group=groups())
def test_sticky_leaves_nothing_that_could_be_more_even(group: tuple[dict[str, int], dict[str, Subscriber]]) -> None:
    """No partition could go to a member that subscribes to it and has two fewer."""
    counts, those = group

    made = STICKY.assign(counts, those)

    for i, owned in made.items():
        for tp in owned:
            assert all(len(owned) - len(made[j]) < 2 for j in those if tp.topic in those[j].topics), (i, tp)


@given(group=groups())
def test_sticky_is_at_rest_after_one_round(group: tuple[dict[str, int], dict[str, Subscriber]]) -> None:
    """An assignment that is even already is kept."""
    counts, those = group
    made = STICKY.assign(counts, those)

    again = STICKY.assign(counts, after(those, made))

    assert {i: set(owned) for i, owned in again.items()} == {i: set(owned) for i, owned in made.items()}


@given(count=st.integers(1, 30), size=st.integers(1, 8), data=st.data())
def test_sticky_moves_nothing_between_members_that_stay(count: int, size: int, data: st.DataObject) -> None:
    """Equal subscriptions: a member that leaves or joins moves only its own partitions."""
    those = members(**{f"m{n}": "t" for n in range(size)})
    before = STICKY.assign({"t": count}, those)
    owner = {tp: i for i, owned in before.items() for tp in owned}
    gone = data.draw(st.sampled_from([*sorted(those), None]))
    now = after(those, before)
    if gone is None:
        now["new"] = Subscriber(topics=("t",))
    elif size > 1:
        del now[gone]

    made = STICKY.assign({"t": count}, now)

    moved = {tp: (owner[tp], i) for i, owned in made.items() for tp in owned if owner[tp] != i}
    assert all(was == gone or now_owner == "new" for was, now_owner in moved.values())
    assert max(map(len, made.values())) - min(map(len, made.values())) <= 1


# --- what a user gives -----------------------------------------------------------------------


class Everything(PartitionAssignor):
    """Gives all to the first member."""

    name: ClassVar[str] = "everything"

    def assign(
        self, partitions: Mapping[str, int], members: Mapping[str, Subscriber]
    ) -> dict[str, list[TopicPartition]]:
        return {min(members): [TopicPartition(t, p) for t, count in partitions.items() for p in range(count)]}


def test_names_classes_and_instances_are_taken_in_their_order() -> None:
    """The one liked best first; one of them alone needs no list."""
    schemes = schemes_of(["cooperative-sticky", Everything, RangePartitionAssignor()])

    assert list(schemes) == ["cooperative-sticky", "everything", "range"]
    assert [scheme.cooperative for scheme in schemes.values()] == [True, False, False]
    assert list(schemes_of("sticky")) == ["sticky"]


class Nameless(PartitionAssignor):
    """Has no name."""

    def assign(
        self, partitions: Mapping[str, int], members: Mapping[str, Subscriber]
    ) -> dict[str, list[TopicPartition]]:
        raise NotImplementedError


class Reserved(Nameless):
    """Has the name of what batch jobs do."""

    name = "exclusive"


class Odd(Nameless):
    """Knows a protocol that nobody else does."""

    name = "odd"
    protocol = "lazy"  # type: ignore[assignment]


class Demanding(Nameless):
    """Cannot be made."""

    name = "demanding"

    def __init__(self, size: int) -> None:
        self.size = size


@pytest.mark.parametrize(
    "strategy", [[], "nearest", [3], [int], Nameless, Reserved, Odd, Demanding, ["range", "range"]]
)
def test_what_is_no_assignor_is_refused_by_name(strategy: object) -> None:
    """Before anything is joined."""
    with pytest.raises(KafkaConfigurationError, match="partition_assignment_strategy"):
        schemes_of(strategy)
