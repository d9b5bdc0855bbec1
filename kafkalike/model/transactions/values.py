"""Values: a transactional id and what it has decided, as the rows of the groups' table say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

BATCHES: Final = "batches"
"""Layout of a part whose files are each a producer's batch: see `kafkalike.log.topic.waiting_batch`."""


class Why(StrEnum):
    """What made a transactional id stand as it does."""

    INIT = "init"
    COMMIT = "commit"
    ABORT = "abort"
    TIMEOUT = "timeout"
    """Maintenance has aborted a transaction that was open for too long; the epoch rose."""
    ADMIN = "admin"
    """An administrator has aborted what was open; the epoch rose."""


class Attempt(NamedTuple):
    """One transaction of one producer: it has one outcome at most."""

    producer_id: int
    epoch: int
    number: int
    """From 1 on in each epoch."""


class Topic(NamedTuple):
    """One life of a topic."""

    name: str
    topic_id: str


class WriteName(NamedTuple):
    """What a Spark application calls a write: the same again is a rerun, which adds nothing (decision 012)."""

    app_id: str
    version: int


class StagedFile(NamedTuple):
    """A file in the folder of a transaction, exactly as it was when the transaction was decided."""

    name: str
    size: int
    """Bytes."""
    checksum: int
    """CRC-32 of all of them."""


class Part(NamedTuple):
    """What a transaction brings into one topic."""

    topic: Topic
    counts: Mapping[int, int]
    """Records by partition."""
    files: tuple[StagedFile, ...]
    """In the order of their records."""
    layout: str = BATCHES
    """How the files hold the records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A transaction that is committed."""

    attempt: Attempt
    seq: int
    """Number of its row, which is its place among all transactions."""
    parts: tuple[Part, ...] = ()
    """Empty in later rows of the id: then all topics have them."""
    groups: tuple[str, ...] = ()
    """Groups whose offsets it has committed; empty in later rows."""
    name: WriteName | None = None
    """What its application calls it, where that has a name for it; in later rows too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a transactional id stands."""

    producer_id: int
    epoch: int
    number: int = 0
    """The last transaction of the epoch that has an outcome; 0 when none has."""
    why: Why
    timeout_ms: int
    client_id: str = ""
    changed_ms: int
    committed: Committed | None = None
    """The last transaction of the id that was committed, whatever came after it."""

    @property
    def unsettled(self) -> Committed | None:
        """What is decided and may not be in all topics yet. No row of the id may follow before it is."""
        return self.committed if self.why is Why.COMMIT else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """An offset that a transaction commits."""

    group_id: str
    topic: Topic
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    generation: int
    member_id: str
    client_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """Rows that are to be written in one change of the groups' table: first the standing's, then the offsets'."""

    transactional_id: str
    standing: Standing | None
    """None forgets the id."""
    offsets: tuple[OffsetCommit, ...] = ()
    now_ms: int


@dataclass(frozen=True, slots=True)
class Folder:
    """Staged files of one transaction, as they were found."""

    attempt: Attempt
    age_ms: int
    """Since the first of them was written, by the storage's clock."""
    topics: tuple[str, ...] = field(default=())
    """Ids of the topics that they are for."""
