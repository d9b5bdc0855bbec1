"""A simulated world in; one history of it, to its end, out: a failure names the seed that shows it again."""

from __future__ import annotations

from typing import Protocol, TypeVar


class Played(Protocol):
    """What a history is made of."""

    def run(self, steps: int) -> None:
        """Let everybody act."""

    def settle(self) -> None:
        """Let everybody come to an end, and judge."""


P = TypeVar("P", bound=Played)


def played(world: P, seed: int, steps: int) -> P:
    """Play a world of a seed to its end."""
    try:
        world.run(steps)
        world.settle()
    except AssertionError as failed:
        message = f"seed {seed}, {steps} steps: {failed}"
        raise AssertionError(message) from failed
    return world
