"""Views of transactions: what people and other rooms see of them, and versions of topics that are one moment.

A transaction reaches its topics one after the other, so their versions at one time may show a part of it. Whatever any
topic shows by then was decided by then, and all topics have it by now: `whole_versions` takes the other topics as much
later as they need to show it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple


class TransactionState(StrEnum):
    """State of a transactional id's last transaction, by Kafka's names."""

    EMPTY = "Empty"
    """No transaction since the last `init_transactions`."""
    ONGOING = "Ongoing"
    """Records are staged, and nothing is decided."""
    PREPARE_COMMIT = "PrepareCommit"
    """Committed, and not yet in all of its topics."""
    COMPLETE_COMMIT = "CompleteCommit"
    """Committed, and in all of its topics that still exist."""
    COMPLETE_ABORT = "CompleteAbort"
    """Aborted; nothing of it was ever visible."""
    PREPARE_ABORT = "PrepareAbort"
    """Never here, as an abort is one row; Kafka's tools may ask for it. The same goes for the next three."""
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    UNKNOWN = "Unknown"


class ProducerIdAndEpoch(NamedTuple):
    """The producer that a transactional id has at a time."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSummary:
    """A transactional id, in a list."""

    transactional_id: str
    producer_id: int
    state: TransactionState


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionReport:
    """A transactional id and its last transaction, or the one that is open."""

    transactional_id: str
    state: TransactionState
    producer_id: int
    epoch: int
    number: int
    """Number of that transaction in its epoch, from 1; 0 for none."""
    timeout_ms: int
    """`transaction_timeout_ms` of the producer."""
    client_id: str
    start_ms: int
    """When it began, ms; -1 where it is not open."""
    topics: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Records of a decided transaction, by topic and partition. Of an open one, its topics, each with an empty mapping,
    or with the records that are staged where these were looked at and say their partitions."""
    unapplied: tuple[str, ...] = ()
    """Topics that do not have a decided transaction yet."""
    groups: tuple[str, ...] = ()
    """Groups whose offsets a decided transaction committed."""
    reason: str = ""
    """Why it is in this state: `init`, `commit`, `abort`, `timeout`, `admin`."""
    changed_ms: int = 0
    """Time of the last change, ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCut:
    """A topic as of a cut."""

    topic_id: str
    version: int
    """Table version, for `VERSION AS OF`: the newest one that has no transaction decided after the cut."""
    ends: Mapping[int, int]
    """Log end of each partition in that version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Several topics and the groups as of one decision: of every transaction they show all or nothing."""

    seq: int
    """Number of the last row of the groups' table that counts; transactions decided by it are in, later ones not."""
    groups_version: int
    """Table version of `__consumer_offsets` that ends with this row; 0 when there is no such table."""
    topics: Mapping[str, TopicCut]
    """By name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostPart:
    """What a committed transaction was to bring into a topic, and cannot: its staged files are gone or damaged."""

    transactional_id: str
    seq: int
    """Number of the decision."""
    topic: str
    topic_id: str
    counts: Mapping[int, int]
    """Records by partition."""
    why: str


APPLIED: Final = "kafkalike.transactions"
"""Delta application whose version, in a topic's table, is the number of the last decision that the topic has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A topic's table at a time, and what came after it."""

    version: int
    """The newest version of that time."""
    applied: int
    """Number of the last decision that it has; 0 for none."""
    later: Sequence[tuple[int, int]] = ()
    """Versions above it that brought in a decision, and its number, in any order; all up to now."""


def whole_versions(pasts: Mapping[str, Past]) -> tuple[int, dict[str, int]]:
    """The first versions, not before those of the time, that show all or nothing of every transaction.

    Args:
        pasts: the topics; all that was decided has been brought into them.

    Returns:
        Number of the last decision that counts, and the version of each topic.
    """
    last = max((past.applied for past in pasts.values()), default=0)
    return last, {
        topic: max([past.version, *(version for version, applied in past.later if applied <= last)])
        for topic, past in pasts.items()
    }
