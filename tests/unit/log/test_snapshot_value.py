"""Snapshots as values: JSON and back, what they refuse; and versions of a time that are whole."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import IllegalArgumentError
from kafkalike.log.snapshots import Snapshot, TopicSnapshot
from kafkalike.model.structs import CommittedOffset, OffsetAndMetadata, TopicPartition
from kafkalike.model.transactions.transaction_views import Past, whole_versions

SNAPSHOT = Snapshot(
    root="/r",
    taken_ms=5,
    seq=7,
    groups_version=3,
    topics={"a": TopicSnapshot(topic_id="i", version=2, ends={0: 4, 1: 0})},
    offsets={
        "g": {
            TopicPartition("a", 0): CommittedOffset(
                position=OffsetAndMetadata(3, "why", 1), topic_id="i", time_ms=4, member_id="m", client_id="c"
            )
        },
        "unknown": {},
    },
)


def test_a_snapshot_survives_as_text() -> None:
    assert Snapshot.from_json(SNAPSHOT.to_json()) == SNAPSHOT


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"v": 1}', '{"v": 2}', SNAPSHOT.to_json().replace("version", "x")])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(IllegalArgumentError, match="snapshot"):
        Snapshot.from_json(text)


def test_a_topic_of_another_life_is_not_the_one_of_the_snapshot() -> None:
    assert SNAPSHOT.version_of("a", "i") == 2
    with pytest.raises(IllegalArgumentError, match="'a' with id i, which was deleted"):
        SNAPSHOT.version_of("a", "other")
    with pytest.raises(IllegalArgumentError, match="no topic 'b'"):
        SNAPSHOT.version_of("b", "i")


@dataclass
class Table:
    """A topic's table: what each version has done, and when."""

    times: list[int] = field(default_factory=lambda: [0])
    decisions: list[int] = field(default_factory=lambda: [0])
    """The decision that the version brought in; 0 for another append."""

    def past(self, at: int) -> Past:
        version = max(v for v, time in enumerate(self.times) if time <= at)
        return Past(
            version=version,
            applied=max(self.decisions[: version + 1]),
            later=[(v, d) for v, d in enumerate(self.decisions) if v > version and d],
        )


@given(st.data())
def test_versions_of_a_time_show_all_or_nothing_of_every_transaction(data: st.DataObject) -> None:
    """However late and in whatever order decisions reached their topics; and no less than what was there then."""
    names = ["a", "b", "c"]
    touched: list[set[str]] = data.draw(st.lists(st.sets(st.sampled_from(names), min_size=1), max_size=6))
    waiting = {name: [d for d, topics in enumerate(touched, start=1) if name in topics] for name in names}
    others = data.draw(st.lists(st.sampled_from(names), max_size=6))
    owed = [(name, True) for name, own in waiting.items() for _ in own]
    tables = {name: Table() for name in names}
    now = 0
    for now, (name, brings) in enumerate(data.draw(st.permutations([*owed, *((name, False) for name in others)])), 1):
        tables[name].times.append(now)
        tables[name].decisions.append(waiting[name].pop(0) if brings else 0)
    at = data.draw(st.integers(0, now))

    last, found = whole_versions({name: table.past(at) for name, table in tables.items()})

    for decision, topics in enumerate(touched, start=1):
        shown = {name for name in topics if decision in tables[name].decisions[: found[name] + 1]}
        assert shown == (topics if decision <= last else set())
    for name, table in tables.items():
        assert found[name] >= table.past(at).version
