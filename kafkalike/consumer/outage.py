"""Outage: errors of polls in; out, whether a poll does better to return nothing, as the storage gives no answer."""

from __future__ import annotations

import logging
from typing import Final

from kafkalike.errors import KafkaError, KafkaTimeoutError
from kafkalike.model.clock import Clock

log = logging.getLogger(__name__)

WARN_SECONDS: Final = 30.0


class Outage:
    """How long the storage has been silent. Belongs to its consumer's thread.

    A poll of Kafka's returns nothing while no broker answers. So does one here, for a time; who has waited for long is
    told by an error, as nobody may read the log.

    Args:
        clock: time.
        patience_ms: how long it may be silent, from the beginning of the first look that failed to that of the last.
    """

    def __init__(self, clock: Clock, patience_ms: float) -> None:
        self._clock = clock
        self._patience = patience_ms / 1000
        self._since: float | None = None
        self._warned: float | None = None

    def over(self) -> None:
        """A look has ended well. Caller: poll."""
        if self._since is not None:
            self._since = self._warned = None
            log.info("the storage answers again")

    def bears(self, error: KafkaError, begun: float) -> bool:
        """Whether a poll goes on without an answer.

        Args:
            error: what the look raised.
            begun: when the look began, s of the monotonic clock.
        """
        if not _unanswered(error):
            return False
        since = begun if self._since is None else self._since
        self._since = since
        if begun - since >= self._patience:
            return False
        now = self._clock.monotonic()
        if self._warned is None or now - self._warned >= WARN_SECONDS:
            self._warned = now
            log.warning("the storage has given no answer for %.0f s: %s; polls return nothing", now - since, error)
        return True


def _unanswered(error: BaseException) -> bool:
    """Whether it may be raised again later, and comes of a request without an answer.

    That is also so of a change of the group whose time ran out: behind another one of this process, say, that waits for
    such an answer, as a commit does. Nothing was written then. What a folder's file system says is none of that: its
    `EIO` is a broken disk.
    """
    if isinstance(error, KafkaTimeoutError):
        return True
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TimeoutError):
            return isinstance(error, KafkaError) and error.retriable
        cause = cause.__cause__
    return False
