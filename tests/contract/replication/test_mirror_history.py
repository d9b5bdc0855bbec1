"""Histories of mirrors: a source that much happens to, mirrors that are cut off anywhere, promotions at any moment."""

from pathlib import Path

import pytest

from kafkalike.maintenance.verify.replica_check import check_replicas
from tests.tools.effort import seeds
from tests.tools.mirror_world import NAMES, MirrorWorld
from tests.tools.transactional import values


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(4, 2))
def test_a_target_that_is_promoted_at_any_moment_is_a_moment_of_its_source(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each transaction it has all or nothing, in all topics and groups; and what comes next has the next offsets."""
    world = MirrorWorld(seed)

    world.run(60, monkeypatch)
    world.check_promoted()
    world.check_same()


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True], ids=["one root", "three roots"])
@pytest.mark.parametrize("seed", seeds(4, 2))
def test_a_promotion_beside_mirrors_that_go_on_is_a_moment_and_nothing_comes_after(
    seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, several: bool
) -> None:
    """However often the promotion and the mirrors are cut off, and wherever; and replicas can join what it is then."""
    world = MirrorWorld(seed, tmp_path if several else None)

    world.run(20, monkeypatch)
    world.check_same()
    world.run(10, monkeypatch)
    world.promote_beside(60, monkeypatch)
    cluster = world.opened()
    if several:
        for name in NAMES:
            cluster.replication.reassign(name, [3, 2])
        assert not cluster.replication.replicate().failed
        assert list(check_replicas(cluster)) == []
        before = {name: values(cluster, name, 1) for name in NAMES}
        assert {name: values(world.opened(), name, 1) for name in NAMES} == before
