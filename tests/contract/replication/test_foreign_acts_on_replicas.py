"""Another engine changes the table of one replica: the others get it, with its files, or that replica is taken out."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from tests.tools.away import away, back
from tests.tools.consumer import texts
from tests.tools.records import batch_now
from tests.tools.three_roots import opened

OPEN = {"kafkalike.foreign.writes": "allow"}


@pytest.fixture
def cluster(roots: list[Path]) -> ReplicatedCluster:
    """Three records in three files; broker 1 decides, broker 3 is read."""
    made = opened(roots)
    made.create_topic("t", 1, OPEN, assignments={0: [3, 1, 2]})
    for value in "abc":
        made.log("t").append(batch_now(value))
    return made


def chain(cluster: ReplicatedCluster) -> list[int]:
    """Brokers in the order in which they take a version: the head first, the leader last."""
    cluster.metadata.refresh()
    table = cluster.metadata.state.replicas[cluster.topic("t").location]
    return [replica.broker for replica in table.registration.chain]


def table_at(cluster: ReplicatedCluster, roots: list[Path], at: int) -> DeltaTable:
    """The table of the replica at a place of the chain."""
    return DeltaTable(str(roots[chain(cluster)[at] - 1] / cluster.topic("t").location))


PLACES = ("head", "middle", "leader")
# `make test` loses each root once beside one that is optimized, and once the optimized one itself.
OFTEN = {(0, 1), (1, 2), (2, 0), (2, 2)}
LOSSES = [
    pytest.param(
        at, lost, id=f"{PLACES[at]}-without the {PLACES[lost]}", marks=[] if (at, lost) in OFTEN else pytest.mark.full
    )
    for lost in range(3)
    for at in range(3)
]


@pytest.mark.slow
@pytest.mark.parametrize(("at", "lost"), LOSSES)
def test_records_survive_the_loss_of_a_root_after_another_engines_optimize(
    roots: list[Path], cluster: ReplicatedCluster, at: int, lost: int
) -> None:
    early = opened(roots)
    assert texts(early, "t") == ["a", "b", "c"]
    gone = roots[chain(cluster)[lost] - 1]
    table_at(cluster, roots, at).optimize.compact()
    cluster.log("t").append(batch_now("d"))

    away(gone)

    cluster.log("t").append(batch_now("e"))
    for client in (cluster, early, opened(roots)):
        assert texts(client, "t") == ["a", "b", "c", "d", "e"]
    back(gone)
    assert not opened(roots).replication.replicate().failed
    assert sorted(opened(roots).replication.replicas("t").isr) == [1, 2, 3]
    for root in roots:
        assert texts(opened([root, *(r for r in roots if r != root)]), "t") == ["a", "b", "c", "d", "e"]


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 1, 2], ids=["head", "middle", "leader"])
def test_each_replica_has_the_files_of_another_engines_version_that_it_was_given(
    roots: list[Path], cluster: ReplicatedCluster, at: int
) -> None:
    table_at(cluster, roots, at).optimize.compact()

    cluster.log("t").append(batch_now("d"))

    for broker in chain(cluster):
        table = DeltaTable(str(roots[broker - 1] / cluster.topic("t").location))
        assert sorted(table.to_pyarrow_table().column("value").to_pylist()) == [b"a", b"b", b"c", b"d"]


@pytest.mark.slow
def test_open_and_new_clients_see_the_same_after_a_failover_from_a_leader_that_was_changed(
    roots: list[Path], cluster: ReplicatedCluster
) -> None:
    """What stands at the leader alone was never published: the first client that sees it takes the leader out."""
    leader = chain(cluster)[-1]
    early = opened(roots)
    assert texts(early, "t") == ["a", "b", "c"]
    table_at(cluster, roots, 2).delete("offset = 1")

    assert texts(early, "t") == ["a", "b", "c"]
    assert texts(opened(roots), "t") == ["a", "b", "c"]
    assert leader not in chain(cluster)
    away(roots[leader - 1])
    assert texts(early, "t") == texts(opened(roots), "t") == ["a", "b", "c"]


@pytest.mark.slow
def test_different_versions_of_other_engines_at_head_and_leader_end_in_one(
    roots: list[Path], cluster: ReplicatedCluster
) -> None:
    leader = chain(cluster)[-1]
    table_at(cluster, roots, 0).optimize.compact()
    table_at(cluster, roots, 2).delete("offset = 1")

    cluster.log("t").append(batch_now("d"))

    assert leader not in chain(cluster)
    for client in (cluster, opened(roots)):
        assert texts(client, "t") == ["a", "b", "c", "d"]


@pytest.mark.slow
def test_seal_comes_after_another_engines_version_at_the_head(roots: list[Path], cluster: ReplicatedCluster) -> None:
    """The leader is lost before anybody passes that version on: whoever seals does, with its files."""
    head, _, leader = chain(cluster)
    table_at(cluster, roots, 0).optimize.compact()
    away(roots[leader - 1])

    cluster.log("t").append(batch_now("d"))

    # It votes, and has no replica in sync.
    back(roots[leader - 1])
    assert leader not in chain(cluster)
    away(roots[head - 1])
    assert texts(opened(roots), "t") == ["a", "b", "c", "d"]
