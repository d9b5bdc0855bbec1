"""The group protocol under a seeded scheduler: whatever happens in whatever order, no rule is broken, and it ends.

A failure names its seed; `World(seed, strategy).run(STEPS)` plays it again.
"""

import logging
from collections.abc import Iterator

import pytest

from tests.tools.effort import examples
from tests.tools.group_world import STRATEGIES, World

INTERLEAVINGS = examples(40_000, 2_000)
"""Of all strategies together."""
STEPS = 9
SETTLED = 40
"""One in so many is played to its end, which takes longer than all before."""
LONG = examples(60, 3)
"""Long histories of each strategy."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What members say of each other, many thousand times, would take most of the time."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def play(seed: int, strategy: str, steps: int, *, settle: bool) -> World:
    """One interleaving."""
    world = World(seed, strategy)
    try:
        world.run(steps)
        if settle:
            world.settle()
    except AssertionError as broken:
        message = f"seed {seed}, strategy {strategy!r}, {steps} steps: {broken}"
        raise AssertionError(message) from broken
    return world


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_interleaving_breaks_a_rule(strategy: str) -> None:
    """One owner at most, no commit of a zombie, nothing skipped, nothing committed backwards, generations that rise.

    Topics change in the middle of what members do, too.
    """
    share = INTERLEAVINGS // len(STRATEGIES)
    changes = topics = 0

    for seed in range(share):
        world = play(seed, strategy, STEPS, settle=seed % SETTLED == 0)
        changes += len(world.trace)
        topics += world.topic_changes

    assert changes > 2 * share
    assert topics > share // 10


@pytest.mark.timeout(300)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_long_histories_come_to_rest(strategy: str) -> None:
    """After a session without faults everybody who lives owns his part, and together they own everything."""
    worlds = [play(seed, strategy, 150, settle=True) for seed in range(10**6, 10**6 + LONG)]

    assert all(world.roster.generation > 0 for world in worlds)


def test_a_seed_plays_the_same_again() -> None:
    """So a failure can be looked at."""
    first, second = (play(7, "sticky", 200, settle=True) for _ in range(2))

    assert first.trace == second.trace
    assert first.trace


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_interleaving_breaks_a_rule_for_a_long_time(strategy: str) -> None:
    """Other seeds, more steps, five members."""
    for seed in range(2 * 10**6, 2 * 10**6 + 10_000):
        world = World(seed, strategy, actors=5)
        world.run(60)
        world.settle()
