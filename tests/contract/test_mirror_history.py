"""Histories of mirrors: a source that much happens to, mirrors that are cut off anywhere, promotions at any moment."""

import pytest

from tests.tools.effort import seeds
from tests.tools.mirror_world import MirrorWorld


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
@pytest.mark.parametrize("seed", seeds(4, 2))
def test_a_promotion_beside_mirrors_that_go_on_is_a_moment_and_nothing_comes_after(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the promotion and the mirrors are cut off, and wherever."""
    world = MirrorWorld(seed)

    world.run(20, monkeypatch)
    world.check_same()
    world.run(10, monkeypatch)
    world.promote_beside(60, monkeypatch)
