"""Lag of a cluster's groups, over a cluster in memory and one on Delta tables."""

import pytest

from kafkalike.admin import KafkaAdminClient
from kafkalike.admin.group_lag import Lags, lag_history
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.lag import Lag
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from tests.tools.groups import commit_row
from tests.tools.records import fill_at

P0 = TopicPartition("t", 0)


def commit(cluster: Cluster, *offsets: tuple[int, int | None], group: str = "g", topic_id: str | None = None) -> None:
    """Commits of t-0 by time, each in a table commit of its own."""
    for at_ms, offset in offsets:
        commit_row(cluster, offset, group=group, topic_id=topic_id, at_ms=at_ms)


@pytest.fixture
def groups(cluster: Cluster) -> Cluster:
    """A topic with records of 1, 2 and 5 s in two segments, and a group that has read the first."""
    cluster.create_topic("t", 1, {})
    fill_at(cluster, "t", 1_000, 2_000)
    fill_at(cluster, "t", 5_000)
    commit(cluster, (1, 1))
    return cluster


def found(lags: Lags) -> list[tuple[str, TopicPartition, Lag]]:
    return [(lag.group_id, lag.partition, lag.lag) for lag in lags]


def test_lag_is_what_a_reader_would_find(groups: Cluster) -> None:
    """Offsets and records that wait, and how much older the last one read is than the newest."""
    assert found(Lags(groups)) == [("g", P0, Lag(offsets=2, records=2, behind_ms=4_000, oldest_ms=2_000))]


def test_looking_again_sees_what_came(groups: Cluster) -> None:
    """Records and commits; nothing changes without a refresh."""
    lags = Lags(groups)
    before = found(lags)
    fill_at(groups, "t", 6_000)
    commit(groups, (2, 3))
    assert found(lags) == before

    lags.refresh()

    assert found(lags) == [("g", P0, Lag(offsets=1, records=1, behind_ms=1_000, oldest_ms=6_000))]


def test_a_topic_that_was_created_again_has_no_lag_yet(groups: Cluster) -> None:
    """Nor has one that is gone; logs that were open before do not matter."""
    lags = Lags(groups)
    assert len(found(lags)) == 1
    groups.delete_topic("t")
    lags.refresh()
    assert (found(lags), lags.index(P0)) == ([], None)

    groups.create_topic("t", 1, {})
    fill_at(groups, "t", 1)
    lags.refresh()
    assert found(lags) == []

    commit(groups, (2, 0))
    lags.refresh()
    assert found(lags) == [("g", P0, Lag(offsets=1, records=1, behind_ms=0, oldest_ms=1))]


def test_a_topic_deleted_while_it_is_looked_at_is_left_out(groups: Cluster) -> None:
    """Its list was read, its log is gone."""
    fresh, open_before = Lags(groups), Lags(groups)
    open_before.index(P0)
    open_before.refresh()

    groups.delete_topic("t")

    assert (found(fresh), found(open_before)) == ([], [])


def test_history_tells_how_lag_moved(groups: Cluster) -> None:
    """At evenly spaced moments, for groups and topics that are there; deleted offsets leave a gap."""
    newest_ms = groups.log("t").segments(0)[-1].modification_ms
    minute = 60_000
    commit(groups, (newest_ms, 1), (newest_ms + minute, 2), (newest_ms + 3 * minute, None))
    commit(groups, (newest_ms + minute, 3), group="done")
    commit(groups, (newest_ms, 3), (newest_ms + 2 * minute, None), group="gone")
    commit(groups, (newest_ms, 9), group="done", topic_id="of an earlier life")
    groups.create_topic("u", 1, {})
    KafkaAdminClient(bootstrap_servers=groups).alter_group_offsets("g", {TopicPartition("u", 0): OffsetAndMetadata(0)})
    lags, now = Lags(groups), newest_ms + 3 * minute

    seen = list(
        lag_history(lags, now, span_ms=3 * minute, step_ms=minute, rate_ms=minute, wanted=lambda _, topic: topic == "t")
    )

    assert [(group, (m.time_ms - newest_ms) // minute, m.committed, m.lag) for group, _, m in seen] == [
        ("done", 1, 3, 0),
        ("done", 2, 3, 0),
        ("done", 3, 3, 0),
        ("g", 0, 1, 2),
        ("g", 1, 2, 1),
        ("g", 2, 2, 1),
    ]
    assert [m.consumed_per_second for group, _, m in seen if group == "g"][1:] == [1 / 60, 0.0]
    only = lag_history(lags, now, wanted=lambda group, _: group == "done")
    assert {group for group, _, _ in only} == {"done"}
