"""Histories of mirrors: a source that much happens to, mirrors that are cut off anywhere, promotions at any moment."""

import pytest

from tests.tools.effort import seeds
from tests.tools.mirror_world import MirrorWorld


@pytest.mark.parametrize("seed", seeds(4, 2))
def test_a_target_that_is_promoted_at_any_moment_is_a_moment_of_its_source(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each transaction it has all or nothing, in all topics and groups; and what comes next has the next offsets."""
    world = MirrorWorld(seed)

    world.run(60, monkeypatch)
    world.check_promoted()
    world.check_same()
