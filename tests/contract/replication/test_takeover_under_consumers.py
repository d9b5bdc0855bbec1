"""Takeover under consumers: the leader of a topic is lost, or moved, just after others have written and committed.

An open client has not seen what they wrote, and for as long as the leader may lag nobody can tell it. What it does not
see is no reason to go back: nothing is read twice, nothing is passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalike.admin import KafkaAdminClient, OffsetSpec
from kafkalike.consumer import KafkaConsumer
from kafkalike.delta.layout import CONSUMER_OFFSETS
from kafkalike.errors import KafkaStorageError
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.log.group.membership import Membership
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.structs import OffsetAndMetadata
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from tests.tools.away import away
from tests.tools.clusters import on_three_disks
from tests.tools.records import batch_now
from tests.tools.transactional import T0

pytestmark = pytest.mark.slow

LEADER, OTHER, THIRD = 2, 1, 3
"""Broker 1 has the metadata."""


def opened(base: Path) -> ReplicatedCluster:
    """The cluster, as another process has it."""
    return on_three_disks(base, **{"replica.lag.time.max.ms": "200", "min.insync.replicas": "2"})


def commit(cluster: ReplicatedCluster, offset: int) -> None:
    """Commit an offset of the group `g`."""
    ids = {"t": cluster.topic("t").topic_id}
    GroupOffsets.of(cluster, SYSTEM_CLOCK).commit(Membership(group_id="g"), {T0: OffsetAndMetadata(offset)}, ids)


def lose_the_leader(base: Path, _: ReplicatedCluster) -> None:
    away(base / str(LEADER))


def move_the_leader(_: Path, cluster: ReplicatedCluster) -> None:
    cluster.replication.reassign("t", [OTHER, THIRD])
    assert not cluster.replication.replicate().failed


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
@pytest.mark.parametrize("change", [lose_the_leader, move_the_leader])
def test_consumer_behind_a_committed_offset_that_it_cannot_see_waits_for_the_next_leader(
    tmp_path: Path, policy: str, change: Callable[[Path, ReplicatedCluster], None]
) -> None:
    writer = opened(tmp_path)
    writer.create_topic("t", 1, {}, assignments={0: [LEADER, THIRD, OTHER]})
    client = opened(tmp_path)
    client.log("t").refresh()
    if change is move_the_leader:
        change(tmp_path, writer)
    writer.log("t").append(batch_now("0", "1"))
    commit(writer, 2)
    if change is lose_the_leader:
        change(tmp_path, writer)

    read: list[tuple[int, bytes | None]] = []
    with KafkaConsumer(
        bootstrap_servers=client, group_id="g", auto_offset_reset=policy, enable_auto_commit=False
    ) as consumer:
        consumer.assign([T0])
        for _ in range(3):
            read += [(r.offset, r.value) for records in consumer.poll(50).values() for r in records]
        assert (read, consumer.position(T0)) == ([], 2)
        writer.log("t").append(batch_now("2"))
        while not read:
            read += [(r.offset, r.value) for records in consumer.poll(500).values() for r in records]

    assert read == [(2, b"2")]


def test_committed_offsets_whose_leader_is_silent_are_not_said_to_be_older_ones(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    writer.create_topic("t", 1, {})
    commit(writer, 1)
    client = opened(tmp_path)
    with KafkaConsumer(bootstrap_servers=client, group_id="g") as consumer:
        assert consumer.committed(T0) == 1
    commit(writer, 2)
    away(tmp_path / str(writer.metadata.state.replicas[CONSUMER_OFFSETS].leader))

    found: list[object] = []
    with KafkaConsumer(bootstrap_servers=client, group_id="g") as consumer:
        while not found or found[-1] == "not now":
            try:
                found.append(consumer.committed(T0))
            except KafkaStorageError:
                found.append("not now")

    assert set(found) <= {"not now", 2}


@pytest.mark.parametrize("spec", [OffsetSpec.LATEST, 2], ids=["latest", "an offset"])
def test_reset_to_an_end_that_a_silent_leader_has_is_refused_until_another_one_leads(
    tmp_path: Path, spec: OffsetSpec | int
) -> None:
    writer = opened(tmp_path)
    writer.create_topic("t", 1, {}, assignments={0: [LEADER, THIRD, OTHER]})
    client = opened(tmp_path)
    client.log("t").refresh()
    writer.log("t").append(batch_now("0", "1"))
    away(tmp_path / str(LEADER))

    found: list[object] = []
    admin = KafkaAdminClient(bootstrap_servers=client)
    while not found or found[-1] == "not now":
        try:
            found.append(admin.reset_group_offsets("g", {T0: spec})[T0]["offset"])
        except KafkaStorageError:
            found.append("not now")

    assert set(found) <= {"not now", 2}
