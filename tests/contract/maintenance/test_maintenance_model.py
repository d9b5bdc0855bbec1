"""A topic against a list, through appends, deletions, retention, compaction, merging and vacuum in any order."""

import shutil
import tempfile

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafkalike.errors import CorruptRecordError
from kafkalike.maintenance.maintenance_run import maintain
from tests.tools.effort import examples
from tests.tools.findings import errors_of
from tests.tools.upkeep import AT_ONCE, EAGER, HOUR_MS, ShiftedClock, keyed, open_cluster, pairs_of

Record = tuple[int, str, str | None, int]
"""Offset, key, value, and when it was appended."""

KINDS = {
    "delete": {**AT_ONCE, "retention.ms": str(HOUR_MS)},
    "compact": {**EAGER, "delete.retention.ms": str(HOUR_MS)},
    "compact,delete": {**EAGER, "cleanup.policy": "compact,delete", "retention.ms": str(3 * HOUR_MS)},
    "kept": {**AT_ONCE, "retention.ms": "-1", "kafkalike.merge.bytes": "5000"},
}


class Upkeep(RuleBasedStateMachine):
    """One partition, one policy, a clock that only goes on, and an open reader that follows the tail."""

    @initialize(kind=st.sampled_from(sorted(KINDS)))
    def start(self, kind: str) -> None:
        self.root = tempfile.mkdtemp()
        self.kind = kind
        self.clock = ShiftedClock()
        self.cluster = open_cluster(self.root, self.clock)
        self.cluster.create_topic("t", 1, KINDS[kind])
        self.log = self.cluster.log("t")
        self.written: list[Record] = []
        self.log_start = 0
        self.deleted_to = 0
        self.tail = self.log.reader(0, 0)
        self.followed: list[int] = []

    def teardown(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    @rule(pairs=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["1", "2", None])), min_size=1, max_size=3))
    def append(self, pairs: list[tuple[str, str | None]]) -> None:
        now = self.clock.now_ms()
        unique = [(k, None if v is None else f"{v}-{len(self.written) + at}") for at, (k, v) in enumerate(pairs)]

        done = self.log.append(keyed(*unique, at_ms=now))

        assert done.ranges == {0: range(len(self.written), len(self.written) + len(pairs))}
        self.written += [(len(self.written) + at, k, v, now) for at, (k, v) in enumerate(unique)]
        self.clock.ahead_ms += 10

    @rule(hours=st.floats(0.1, 2))
    def time_passes(self, hours: float) -> None:
        self.clock.ahead_ms += int(hours * HOUR_MS)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        self.deleted_to = max(self.log_start, int(len(self.written) * share))
        self.cluster.move_log_start("t", {0: self.deleted_to}, "delete_records", "r")

    @rule(works=st.sets(st.sampled_from(["retention", "compaction", "merge", "vacuum"]), min_size=1))
    def upkeep(self, works: set[str]) -> None:
        report = maintain(open_cluster(self.root, self.clock), ["t"], clock=self.clock, works=works)

        assert not report.failed, report

    @rule()
    def follow(self) -> None:
        self.log.refresh()
        start = self.log.log_start(0)
        if self.tail.position < start:
            self.tail = self.log.reader(0, start)
        while (chunk := self.tail.read(1 << 20)) is not None:
            self.followed += chunk.columns().offsets

    @rule()
    def everything_is_opened_afresh(self) -> None:
        position = self.tail.position
        self.log = open_cluster(self.root, self.clock).log("t")
        self.tail = self.log.reader(0, position)

    @invariant()
    def what_can_be_read_is_what_the_policy_leaves(self) -> None:
        self.log.refresh()
        start, end = self.log.log_start(0), self.log.log_end(0)
        assert end == len(self.written)
        assert self.log_start <= start <= end
        self.log_start = start
        self.only_the_expired_went(start)
        found = pairs_of(self.log)
        live = [(o, k, v) for o, k, v, _ in self.written[start:]]
        if "compact" not in self.kind:
            assert found == live
            return
        assert set(found) <= set(live)
        assert [o for o, _, _ in found] == sorted({o for o, _, _ in found})
        last = {r[1]: r for r in live}
        # A tombstone that is the last of its key may go, a value never.
        assert {r for r in last.values() if r[2] is not None} <= set(found)
        ends_with = {r[1]: r for r in found}
        assert [r for r in ends_with.values() if r[2] is not None and last[str(r[1])] != r] == []

    def only_the_expired_went(self, start: int) -> None:
        now = self.clock.now_ms()
        for offset, _, _, when in self.written[:start]:
            limit = {"delete": 1, "compact,delete": 3}.get(self.kind, 10**9) * HOUR_MS
            assert offset < self.deleted_to or now - when > limit

    @invariant()
    def a_reader_at_the_tail_goes_on_in_order(self) -> None:
        assert self.followed == sorted(set(self.followed))

    @rule()
    def verify(self) -> None:
        assert errors_of(self.root) == []


TestUpkeep = Upkeep.TestCase
TestUpkeep.settings = settings(max_examples=examples(15, 2), stateful_step_count=20)


def test_the_model_notices_a_lost_file() -> None:
    """The reader that it trusts raises for what is missing."""
    model = Upkeep()
    model.start("kept")
    for _ in range(3):
        model.append([("a", "1")])
    model.log.refresh()
    model.log.files.remove(model.log.segments(0)[1].path, quietly=True)

    with pytest.raises(CorruptRecordError):
        model.what_can_be_read_is_what_the_policy_leaves()

    model.teardown()
