"""The plan of a table that follows the newest row of each key: it equals a merge of the whole topic in any history."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from kafkalike.model.maintenance.latest_position import LatestPosition, plan_refresh

KEYS = ("a", "b", "c")
Row = tuple[str, int, str | None]
"""Key, offset, value; None is a tombstone."""


@dataclass
class Topic:
    """One partition of a compacted topic."""

    rows: list[Row] = field(default_factory=list)
    start: int = 0
    end: int = 0
    cleaned: int = 0
    settled: int = 0
    corrections: int = 0

    def append(self, key: str, value: str | None) -> None:
        self.rows.append((key, self.end, value))
        self.end += 1

    def compact(self) -> None:
        """Remove records that a later one replaces, and tombstones that an earlier pass has cleaned."""
        last = {key: at for key, at, _ in self.rows}
        kept = [row for row in self.rows if row[1] == last[row[0]]]
        self.rows = [row for row in kept if row[2] is not None or row[1] >= self.cleaned]
        self.settled, self.cleaned = self.cleaned, self.end

    def delete_below(self, start: int) -> None:
        self.start = max(self.start, min(start, self.end))
        self.rows = [row for row in self.rows if row[1] >= self.start]

    def forget(self, key: str) -> None:
        self.rows = [row for row in self.rows if row[0] != key]
        self.corrections += 1

    def newest(self, run: range) -> dict[str, tuple[int, str | None]]:
        return {key: (at, value) for key, at, value in self.rows if at in run}

    def position(self) -> LatestPosition:
        return LatestPosition(
            topic_id="t", ends={0: self.end}, starts={0: self.start}, corrections=self.corrections, columns="c"
        )


@dataclass
class Table:
    """The table that follows it."""

    rows: dict[str, tuple[int, str]] = field(default_factory=dict)
    position: LatestPosition | None = None
    read: int = 0

    def refresh(self, topic: Topic) -> None:
        goal = topic.position()
        plan = plan_refresh(self.position, goal, {0: topic.settled})
        if not plan.due:
            return
        source = topic.newest(plan.ranges[0])
        self.read += len([row for row in topic.rows if row[1] in plan.ranges[0]])
        if plan.full:
            self.rows = {}
        self.rows = {key: row for key, row in self.rows.items() if row[0] >= plan.below.get(0, 0)}
        for key, (at, value) in source.items():
            self.rows.pop(key, None)
            if value is not None:
                self.rows[key] = (at, value)
        self.position = goal


ACTS = st.one_of(
    st.tuples(st.just("append"), st.sampled_from(KEYS), st.sampled_from(("x", "y", None))),
    st.tuples(st.just("refresh")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("delete"), st.integers(0, 12)),
    st.tuples(st.just("forget"), st.sampled_from(KEYS)),
)


@given(st.lists(ACTS, max_size=40))
def test_table_equals_newest_rows_of_the_topic_in_any_history(acts: list[tuple[object, ...]]) -> None:
    topic, table = Topic(), Table()
    for kind, *given_ in acts:
        if kind == "append":
            topic.append(*given_)  # type: ignore[arg-type]
        elif kind == "compact":
            topic.compact()
        elif kind == "delete":
            topic.delete_below(*given_)  # type: ignore[arg-type]
        elif kind == "forget":
            topic.forget(*given_)  # type: ignore[arg-type]
        else:
            table.refresh(topic)
            live = {key: row for key, row in topic.newest(range(topic.end)).items() if row[1] is not None}
            assert table.rows == live


def test_refresh_reads_only_new_records() -> None:
    topic, table = Topic(), Table()
    for at in range(1000):
        topic.append(f"key-{at}", "x")
    table.refresh(topic)
    topic.append("key-1", "y")

    table.refresh(topic)

    assert table.read == 1001
    assert table.rows["key-1"] == (1000, "y")


def test_position_survives_encoding_and_other_metadata_is_none() -> None:
    position = LatestPosition(topic_id="t", ends={0: 5, 11: 7}, starts={0: 1}, corrections=2, columns="c", run="r")

    assert LatestPosition.decode(position.encode()) == position
    others = (None, "", "{", "[]", "{}", '{"kafkalike.latest": {}}', '{"kafkalike.latest": 3}')
    assert [LatestPosition.decode(text) for text in others] == [None] * 7
