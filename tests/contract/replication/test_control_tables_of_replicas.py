"""Control tables of a cluster of several roots, whose making was cut off, or which some root does not take."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalike import KafkaConsumer
from kafkalike.delta.layout import CONSUMER_OFFSETS
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from tests.tools.clusters import on_three_disks

T0 = TopicPartition("t", 0)


def opened(folder: Path) -> ReplicatedCluster:
    """The cluster as a process opens it that waits for nobody."""
    return on_three_disks(folder, **{"replica.lag.time.max.ms": "1"})


def commit(folder: Path, offset: int) -> None:
    """A group commits an offset."""
    with KafkaConsumer(bootstrap_servers=opened(folder), group_id="g") as consumer:
        consumer.assign([T0])
        consumer.commit({T0: OffsetAndMetadata(offset, "", -1)})


def committed(folder: Path) -> int | None:
    """What it committed last."""
    with KafkaConsumer(bootstrap_servers=opened(folder), group_id="g") as consumer:
        found: int | None = consumer.committed(T0)
        return found


@pytest.mark.slow
@pytest.mark.parametrize("hindered", [1, 2, 3])
def test_offsets_are_committed_where_a_root_does_not_take_their_table(tmp_path: Path, hindered: int) -> None:
    """It is left out, as one that is read-only or full, and let in again."""
    opened(tmp_path).create_topic("t", 1, {})
    hindrance = tmp_path / str(hindered) / CONSUMER_OFFSETS
    hindrance.write_text("in the way")

    commit(tmp_path, 1)

    hindrance.unlink()
    assert committed(tmp_path) == 1
    opened(tmp_path).replication.replicate()
    commit(tmp_path, 2)
    assert committed(tmp_path) == 2
    assert len(opened(tmp_path).metadata.refresh().replicas[CONSUMER_OFFSETS].isr) == 3


@pytest.mark.slow
@pytest.mark.parametrize("made_at", [0, 1, 2])
def test_a_table_is_made_whose_maker_was_killed(tmp_path: Path, made_at: int) -> None:
    """After it was registered, and before all had its first version."""
    opened(tmp_path).create_topic("t", 1, {})
    registered = opened(tmp_path)._controller_of(CONSUMER_OFFSETS).found()
    for replica in registered.chain[:made_at]:
        opened(tmp_path).store.replicas(CONSUMER_OFFSETS).roots.make_replica(replica)

    commit(tmp_path, 1)

    assert committed(tmp_path) == 1
