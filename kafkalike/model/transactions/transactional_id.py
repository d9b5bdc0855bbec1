"""TransactionalId: the state of an id and its last decision, and JSON of its row in `__consumer_offsets`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalike.model.row_value import VERSION, as_text, as_whole, text, whole
from kafkalike.model.structs import TopicPartition

if TYPE_CHECKING:
    # Few programs need share groups.
    from kafkalike.model.shares.share_partition import SharePartition

BATCHES: Final = "batches"
"""Layout of a part whose files are producer batches: see `kafkalike.log.topic.batch_payload`."""


class Why(StrEnum):
    """Reason for the state of a transactional id."""

    INIT = "init"
    COMMIT = "commit"
    ABORT = "abort"
    TIMEOUT = "timeout"
    """Maintenance aborted a transaction that was open for too long; the epoch rose."""
    ADMIN = "admin"
    """An administrator aborted the open transaction; the epoch rose."""


class TransactionAttempt(NamedTuple):
    """One transaction of one producer, with at most one outcome."""

    producer_id: int
    epoch: int
    number: int
    """Counts from 1 in each epoch."""


class TopicLife(NamedTuple):
    """A topic from its creation to its deletion."""

    name: str
    topic_id: str


class WriteName(NamedTuple):
    """A Spark application's name for a write; repeating it is a rerun, which adds nothing (decision 012)."""

    app_id: str
    version: int


class StagedFile(NamedTuple):
    """A file in the folder of a transaction, as it was when the transaction was decided."""

    name: str
    size: int
    """Size of the file in bytes."""
    checksum: int
    """CRC-32 of the content."""


class TransactionPart(NamedTuple):
    """The records that a transaction brings into one topic."""

    topic: TopicLife
    counts: Mapping[int, int]
    """Number of records by partition."""
    files: tuple[StagedFile, ...]
    """In the order of their records."""
    layout: str = BATCHES
    """Format of the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedTransaction:
    """A transaction that is committed."""

    attempt: TransactionAttempt
    seq: int
    """Number of its row, which is its place among all transactions."""
    parts: tuple[TransactionPart, ...] = ()
    """Empty in later rows of the id, when all topics have them."""
    groups: tuple[str, ...] = ()
    """Groups whose offsets it has committed; empty in later rows."""
    name: WriteName | None = None
    """The application's name for it, if it has one; also in later rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalIdState:
    """State of a transactional id."""

    producer_id: int
    epoch: int
    number: int = 0
    """The last transaction of the epoch with an outcome; 0 if none has one."""
    why: Why
    timeout_ms: int
    client_id: str = ""
    changed_ms: int
    committed: CommittedTransaction | None = None
    """The last committed transaction of the id, whatever followed it."""
    follows: tuple[int, int] | None = None
    """Producer id and epoch that the same producer had before (KIP-360, KIP-890), until a transaction ends."""

    @property
    def unsettled(self) -> CommittedTransaction | None:
        """The decision that may not be in all topics yet. No row of the id may follow before it is."""
        return self.committed if self.why is Why.COMMIT else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionOffset:
    """An offset that a transaction commits."""

    group_id: str
    topic: TopicLife
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    generation: int
    member_id: str
    client_id: str


class ShareChange(NamedTuple):
    """A share partition after a transaction has acknowledged records of it."""

    group_id: str
    tp: TopicPartition
    share: SharePartition
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """Rows to write in one change of the groups' table: first the id's state, then offsets and share partitions."""

    transactional_id: str
    standing: TransactionalIdState | None
    """None deletes the id."""
    offsets: tuple[TransactionOffset, ...] = ()
    shares: tuple[ShareChange, ...] = ()
    now_ms: int


@dataclass(frozen=True, slots=True)
class StagedFolder:
    """Staged files of one transaction, as found in the storage."""

    attempt: TransactionAttempt
    age_ms: int
    """ms since the first of them was written, by the storage's clock."""
    topics: tuple[str, ...] = field(default=())
    """Ids of their topics."""


FORMAT: Final = 1
"""The newest format of rows of kind `transaction`."""

_NUMBER: Final = re.compile(r"0|[1-9][0-9]*")

DEAD: Final = "dead"
"""Reason in the row that deletes an id."""


def dump_standing(standing: TransactionalIdState, seq: int) -> str:
    """Return the `value` of row `seq`; its time and client are columns of the row."""
    found: dict[str, Any] = {
        VERSION: FORMAT,
        "why": standing.why.value,
        "producer_id": standing.producer_id,
        "epoch": standing.epoch,
        "number": standing.number,
        "timeout_ms": standing.timeout_ms,
    }
    if standing.follows is not None:
        found["continues"] = standing.follows[0] == standing.producer_id or list(standing.follows)
    committed = standing.committed
    if committed is not None:
        if committed.name is not None:
            found["name"] = list(committed.name)
        if standing.why is Why.COMMIT:
            found["parts"] = [_dump_part(part) for part in committed.parts]
            found["groups"] = list(committed.groups)
            if committed.seq != seq:
                # A topic was removed from it later; it keeps its old place among all transactions.
                found["seq"] = committed.seq
        else:
            found["committed"] = [*committed.attempt, committed.seq]
    return json.dumps(found, separators=(",", ":"))


def dump_dead() -> str:
    """Return the `value` of the row that deletes an id."""
    return json.dumps({VERSION: FORMAT, "why": DEAD}, separators=(",", ":"))


def load_standing(value: Mapping[str, Any], seq: int, time_ms: int, client_id: str) -> TransactionalIdState | None:
    """Parse a row; None if the row deletes the id.

    Args:
        value: its parsed `value`.
        seq: its number.
        time_ms: its time.
        client_id: its client id.

    Raises:
        ArithmeticError, LookupError, TypeError, ValueError: it is damaged.
    """
    if value["why"] == DEAD:
        return None
    why = Why(text(value, "why"))
    name = _load_name(value["name"]) if "name" in value else None
    producer_id, epoch, number = whole(value, "producer_id"), whole(value, "epoch"), whole(value, "number")
    committed = None
    if why is Why.COMMIT:
        committed = CommittedTransaction(
            attempt=TransactionAttempt(producer_id, epoch, as_whole(number, "number", at_least=1)),
            seq=min(whole(value, "seq"), seq) if "seq" in value else seq,
            parts=tuple([_load_part(part) for part in _items(value["parts"], "parts")]),
            groups=tuple([as_text(group, "groups") for group in _items(value["groups"], "groups")]),
            name=name,
        )
    elif "committed" in value:
        *attempt, at = (as_whole(n, "committed") for n in _items(value["committed"], "committed"))
        if at >= seq:
            raise ValueError(f"'committed' names row {at}, which does not come before it")
        committed = CommittedTransaction(attempt=TransactionAttempt(*attempt), seq=at, name=name)
    return TransactionalIdState(
        producer_id=producer_id,
        epoch=epoch,
        number=number,
        why=why,
        timeout_ms=whole(value, "timeout_ms"),
        client_id=client_id,
        changed_ms=time_ms,
        committed=committed,
        follows=_load_follows(value.get("continues"), producer_id, epoch),
    )


def _load_follows(found: object, producer_id: int, epoch: int) -> tuple[int, int] | None:
    if found is None or found is True:
        return None if found is None else (producer_id, epoch - 1)
    before, last = _items(found, "continues")
    return as_whole(before, "continues"), as_whole(last, "continues")


def _load_name(found: object) -> WriteName:
    app_id, version = _items(found, "name")
    return WriteName(as_text(app_id, "name"), as_whole(version, "name"))


def _dump_part(part: TransactionPart) -> dict[str, Any]:
    return {
        "topic": part.topic.name,
        "id": part.topic.topic_id,
        "layout": part.layout,
        "counts": {str(p): count for p, count in sorted(part.counts.items())},
        "files": [[_short(file.name, part.topic), file.size, file.checksum] for file in part.files],
    }


def _load_part(found: Any) -> TransactionPart:  # noqa: ANN401 - any JSON
    # Most of the time to read a table with many ids is spent here, so valid values cost no function call.
    name, topic_id, layout = found["topic"], found["id"], found["layout"]
    if not type(name) is type(topic_id) is type(layout) is str:
        name, topic_id, layout = as_text(name, "topic"), as_text(topic_id, "id"), as_text(layout, "layout")
    files = []
    for file in _items(found["files"], "files"):
        number, size, checksum = _items(file, "files")
        if type(number) is type(size) is type(checksum) is int and number >= 0 and size >= 0 and checksum >= 0:
            # The usual case; see `_short`.
            files.append(_new_file((f"{number}.{topic_id}", size, checksum)))
        else:
            files.append(_load_file(number, size, checksum, topic_id))
    counts: dict[int, int] = {}
    for number, count in found["counts"].items():
        partition = int(number)
        if partition < 0 or type(count) is not int or count < 1:
            as_whole(partition, "counts")
            as_whole(count, "counts", at_least=1)
        counts[partition] = count
    return _new_part((_topic(name, topic_id), counts, tuple(files), layout))


_new_part: Final[Callable[[tuple[TopicLife, dict[int, int], tuple[StagedFile, ...], str]], TransactionPart]] = partial(
    tuple.__new__, TransactionPart
)
_new_file: Final[Callable[[tuple[str, int, int]], StagedFile]] = partial(tuple.__new__, StagedFile)
"""Constructors without the Python function that NamedTuple generates."""
_topic: Final = lru_cache(maxsize=1024)(TopicLife)
"""Many ids write to a few topics, and a lookup is faster than creating a value."""


def _load_file(name: object, size: object, checksum: object, topic_id: str) -> StagedFile:
    if type(name) is int:
        name = f"{as_whole(name, 'files')}.{topic_id}"
    else:
        name = as_text(name, "files")
        if "/" in name or not name.strip("."):
            raise ValueError(f"{name!r} is not a file of the transaction's folder")
    return StagedFile(name, as_whole(size, "files"), as_whole(checksum, "files"))


def _short(name: str, topic: TopicLife) -> str | int:
    """Return a file's name, or only its number if that is enough, because a transaction may have very many files."""
    number, _, rest = name.partition(".")
    return int(number) if rest == topic.topic_id and _NUMBER.fullmatch(number) else name


def _items(found: object, name: str) -> list[Any]:
    if type(found) is not list:
        raise TypeError(f"{name!r} is {type(found).__name__}, not a list")
    return found
