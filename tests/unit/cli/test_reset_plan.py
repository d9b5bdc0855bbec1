"""Scenarios of a reset against records looked at one by one."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalike.admin import KafkaAdminClient
from kafkalike.admin.testing import MemoryCluster
from kafkalike.cli.groups.reset_plan import Resetter, Scenario, parse_topic
from kafkalike.errors import IllegalArgumentError, TopicDeletedError
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from tests.tools.effort import examples

P0 = TopicPartition("t", 0)
NOW_MS = 1_000


def ids(cluster: MemoryCluster) -> dict[str, str]:
    """Id of each topic."""
    return {name: info.topic_id for name, info in cluster.topics().items()}


@dataclass
class World:
    """A partition and a group."""

    times: list[int]
    start: int
    committed: int | None

    @property
    def end(self) -> int:
        return len(self.times)

    def first_at(self, at_ms: int) -> int:
        """The first live record at or after a time, else the log end."""
        return next((n for n in range(self.start, self.end) if self.times[n] >= at_ms), self.end)

    def within(self, offset: int) -> int:
        return min(max(offset, self.start), self.end)

    def resetter(self, warnings: list[str]) -> Resetter:
        cluster = MemoryCluster()
        cluster.create_topic("t", 1, {})
        batch = RecordBatch()
        for at in self.times:
            batch.add(0, b"k", b"v", at)
        if self.times:
            cluster.log("t").append(batch)
        if self.start:
            cluster.move_log_start("t", {0: self.start}, "test", "r")
        admin = KafkaAdminClient(bootstrap_servers=cluster)
        if self.committed is not None:
            admin.alter_group_offsets("g", {P0: OffsetAndMetadata(self.committed)})
        return Resetter(admin, ids(cluster), NOW_MS, warnings.append)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    times = draw(st.lists(st.integers(0, 2_000), max_size=8))
    start = draw(st.integers(0, len(times)))
    return World(times, start, draw(st.none() | st.integers(0, len(times) + 3)))


@pytest.mark.slow
@settings(max_examples=examples(150, 15))
@given(worlds(), st.integers(-10, 10), st.integers(0, 12), st.integers(0, 2_500))
def test_every_scenario_is_what_looking_at_each_record_gives(world: World, shift: int, offset: int, time: int) -> None:
    """Whatever log start, times and committed offset there are; a warning comes when an offset was out of the log."""
    expected = [
        (Scenario("to_earliest"), world.start),
        (Scenario("to_latest"), world.end),
        (Scenario("to_current"), world.end if world.committed is None else world.committed),
        (Scenario("to_offset", offset), world.within(offset)),
        (Scenario("shift_by", shift), None if world.committed is None else world.within(world.committed + shift)),
        (Scenario("to_datetime", time), world.first_at(time)),
        (Scenario("by_duration", time), world.first_at(max(0, NOW_MS - time))),
        (Scenario("from_file", plans={"g": {P0: offset}}), world.within(offset)),
    ]
    warnings: list[str] = []
    resetter = world.resetter(warnings)

    for scenario, wanted in expected:
        warnings.clear()
        if wanted is None:
            with pytest.raises(IllegalArgumentError, match="no current committed offset"):
                resetter.plan("g", scenario, [P0])
            continue
        assert resetter.plan("g", scenario, [P0]) == {P0: wanted}
        asked = {"to_offset": offset, "from_file": offset, "shift_by": (world.committed or 0) + shift}
        assert len(warnings) == (scenario.name in asked and asked[scenario.name] != wanted)


def test_a_plan_is_not_carried_out_for_a_topic_that_was_created_again() -> None:
    """The offset was found in the log before; it is deleted here while the user is warned."""
    cluster = MemoryCluster()
    cluster.create_topic("t", 1, {})
    admin = KafkaAdminClient(bootstrap_servers=cluster)
    warnings: list[str] = []

    def create_again(text: str) -> None:
        warnings.append(text)
        cluster.delete_topic("t")
        cluster.create_topic("t", 1, {})

    resetter = Resetter(admin, ids(cluster), NOW_MS, create_again)
    plan = resetter.plan("g", Scenario("to_offset", 5), [P0])

    done = resetter.execute("g", plan)

    assert len(warnings) == 1
    assert done == {P0: TopicDeletedError}
    assert admin.list_consumer_group_offsets("g") == {}


@given(st.text("aB9._-", min_size=1, max_size=20), st.lists(st.integers(0, 99), max_size=4))
def test_a_scope_is_a_topic_and_its_partitions(topic: str, numbers: list[int]) -> None:
    """Without numbers, all of them; one that is named twice counts once."""
    text = topic + (":" + ",".join(map(str, numbers)) if numbers else "")

    assert parse_topic(text) == (topic, tuple(dict.fromkeys(numbers)) if numbers else None)
