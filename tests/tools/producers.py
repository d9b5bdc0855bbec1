"""Producers of a cluster that are closed after a test, and calls that only raise."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from kafkalike.producer import KafkaProducer

Make = Callable[..., KafkaProducer]
"""Settings in, a producer out."""


@contextlib.contextmanager
def producers(cluster: Any, **settings: Any) -> Iterator[Make]:
    """Make producers with these settings and those of the call; close them at the end.

    Each has a minute for what it still has to send.

    Args:
        cluster: any, or one that only does what a test needs.
        settings: of all of them.
    """
    made: list[KafkaProducer] = []

    def producer(**configs: Any) -> KafkaProducer:
        made.append(KafkaProducer(bootstrap_servers=cluster, **{**settings, **configs}))
        return made[-1]

    yield producer
    for one in made:
        one.close(60)


def raiser(error: BaseException) -> Callable[[], object]:
    """A call that raises an error."""

    def run() -> None:
        raise error

    return run
