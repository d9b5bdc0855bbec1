"""Consuming: positions that a reader cannot have, and offsets that were not committed."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalike.errors.base import BrokerResponseError, KafkaError, RetriableError
from kafkalike.errors.groups import UnknownMemberIdError


class CommitFailedError(KafkaError):
    """Offsets were not committed: the group has moved on to a newer generation."""


class NoOffsetForPartitionError(KafkaError):
    """There is no committed offset, and `auto_offset_reset` is `none`."""


class OffsetOutOfRangeError(BrokerResponseError):
    """A position below the log start or above the log end.

    Args:
        offsets: the positions that are out of range, by partition name (`orders-3`).
        live: the offsets that exist: half-open range by partition name.
        reason: why the log start is where it is, when known.
    """

    errno = 1

    def __init__(
        self, offsets: Mapping[str, int] | str, live: Mapping[str, range] | None = None, reason: str = ""
    ) -> None:
        if isinstance(offsets, str):
            super().__init__(offsets)
            self.offsets: dict[str, int] = {}
            self.live: dict[str, range] = {}
            return
        self.offsets = dict(offsets)
        self.live = dict(live or {})
        parts = []
        for name, offset in self.offsets.items():
            run = self.live.get(name)
            parts.append(
                f"{name}: offset {offset} is not in " + ("the log" if run is None else f"[{run.start}, {run.stop})")
            )
        super().__init__("; ".join(parts) + (f" ({reason})" if reason else ""))


class OffsetMetadataTooLargeError(BrokerResponseError):
    """The metadata string of a committed offset is too long."""

    errno = 12


class UnknownMemberCommitError(CommitFailedError, UnknownMemberIdError):
    """Offsets were not committed: the consumer is not, or no longer, a member of the group; caught under both names."""

    errno = 25


class UnstableOffsetCommitError(RetriableError, BrokerResponseError):
    """An offset is part of an open transaction."""

    errno = 88
