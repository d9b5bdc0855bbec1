"""Histories of two clusters between which topics go over and back, compared record by record to a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalike.delta.layout import METADATA_TABLE_PROPERTIES
from kafkalike.errors import KafkaError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.cluster.server_defaults import ServerDefaults
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from tests.tools.effort import seeds
from tests.tools.failback_world import FailbackWorld

pytestmark = pytest.mark.slow


def play(seed: int, acts: int, base: Path) -> FailbackWorld:
    """One history."""
    world = FailbackWorld(seed, base)
    try:
        world.run(acts)
    finally:
        world.close()
    return world


@pytest.mark.parametrize("seed", seeds(20, 2))
def test_topics_that_go_over_and_back_hold_what_was_acknowledged(seed: int, tmp_path: Path) -> None:
    world = play(seed, 40, tmp_path)

    assert sum(world.done.values()) > sum(world.failed.values())


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(500, 514))
def test_two_thousand_acts_hold_what_was_acknowledged(seed: int, tmp_path: Path) -> None:
    world = play(seed, 150, tmp_path)

    assert sum(world.done.values()) > sum(world.failed.values())


# --- faults that were there once -----------------------------------------------------------------


def read_the_files(patch: pytest.MonkeyPatch) -> None:
    """The defaults are those of the files that are there."""
    patch.setattr(ServerDefaults, "_decided", lambda _, __, files: files.merged())


def remember_the_roots(patch: pytest.MonkeyPatch) -> None:
    """A client takes what it saw of the roots when it was opened for true."""
    patch.setattr(ReplicatedCluster, "_look_again", lambda _: None)


def take_one_root_for_all(patch: pytest.MonkeyPatch) -> None:
    """A root of several is not told from a cluster of one."""
    patch.setattr(ReplicatedCluster, "metadata_properties", METADATA_TABLE_PROPERTIES)
    patch.setattr(Cluster, "_check_new_table", lambda _: None)


def keep_the_id(patch: pytest.MonkeyPatch) -> None:
    """A topic that comes back has the id of its earlier life."""
    patch.setattr("kafkalike.log.cluster.topic_changes.ids_of_mirror", lambda table_id, **_: (table_id, None))


def take_offsets_by_name(patch: pytest.MonkeyPatch) -> None:
    """Offsets in a transaction go to whichever topic has the name at the commit."""
    patch.setattr("kafkalike.producer.transaction_manager.with_lives", lambda offsets, _: offsets)


@pytest.mark.parametrize(
    ("plant", "likely"),
    [
        pytest.param(read_the_files, 2, id="read_the_files", marks=pytest.mark.full),
        pytest.param(remember_the_roots, 8, id="remember_the_roots", marks=pytest.mark.full),
        pytest.param(take_one_root_for_all, 1, id="take_one_root_for_all"),
        pytest.param(keep_the_id, 0, id="keep_the_id"),
        pytest.param(take_offsets_by_name, 0, id="take_offsets_by_name"),
    ],
)
def test_histories_notice_a_planted_fault(
    plant: Callable[[pytest.MonkeyPatch], None], likely: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seed that noticed it last is tried first, as a history takes seconds. What few histories notice is `full`."""
    plant(monkeypatch)

    for seed in dict.fromkeys((likely, *range(20))):
        try:
            play(seed, 40, tmp_path / str(seed))
        except (AssertionError, KafkaError, OSError):
            return

    pytest.fail("no history has noticed it")
