"""Write ids: the application id and version that name one write across restarts, for batches and streams.

A stream's table transactions carry one application id, and this as version (63 bits, from the top):

    31 bits  number of the batch
    16 bits  of a hash of the query's id, which Spark keeps in the checkpoint
    16 bits  of a hash of the batch's offsets, as the checkpoint has them

So the table itself, and nothing beside it, can tell a batch that is run again after a crash (all three are the same)
from a checkpoint that begins anew under a used id, or one that was put back from a copy (decision 012).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kafkalike.errors import CheckpointMismatchError, IllegalArgumentError
from kafkalike.model.record_batch import TxnId
from kafkalike.model.transactions.transactional_id import WriteName

WHOLE: Final = "the cluster"
"""Stands for a topic's name where the latest version is that of a decision about several topics."""


@dataclass(frozen=True, slots=True)
class Naming:
    """The name of one write of an application."""

    app_id: str
    """The application."""
    version: int
    """Number of the write; rises with each one."""
    check: Callable[[str, int | None], TxnId]
    """Takes a topic, or `WHOLE`, and the latest version of the application there, None for none.

    Returns the name of the write to that topic; raises if the topic cannot have been waiting for it."""

    decided_as: str | None = None
    """Transactional id of the application's writes to several topics; None: one that is made of the application."""

    @classmethod
    def of(cls, txn: TxnId) -> Naming:
        """The same name everywhere, whatever was written before."""
        return cls(txn.app_id, txn.version, lambda topic, known: txn)  # noqa: ARG005

    @property
    def name(self) -> WriteName:
        """The name as a decision has it."""
        return WriteName(self.app_id, self.version)

    @property
    def transactional_id(self) -> str:
        """The id under which the application's writes to several topics are decided."""
        return f"spark {self.app_id}" if self.decided_as is None else self.decided_as


_BITS: Final = 16
_MASK: Final = (1 << _BITS) - 1

MAX_BATCH: Final = (1 << 31) - 1
"""Highest number of a batch: at ten batches a second, 6.8 years."""

APP_PREFIX: Final = "stream:"
"""Keeps the ids of streams apart from those of batch writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamVersion:
    """One batch of one query, short enough for a table transaction."""

    batch_id: int
    """Number of the batch."""
    query: int
    """16 bits that stand for the query's id."""
    offsets: int
    """16 bits that stand for the batch's offsets."""

    @classmethod
    def of(cls, batch_id: int, query_id: str, fingerprint: bytes) -> StreamVersion:
        """The version of a batch.

        Raises:
            IllegalArgumentError: the batch's number does not fit.
        """
        if not 0 <= batch_id <= MAX_BATCH:
            raise IllegalArgumentError(f"batch {batch_id} is not in [0, {MAX_BATCH}]; begin a new checkpoint")
        return cls(batch_id=batch_id, query=_short(query_id.encode()), offsets=_short(fingerprint))

    @classmethod
    def decode(cls, version: int) -> StreamVersion:
        """What a transaction's version says."""
        return cls(batch_id=version >> 2 * _BITS, query=version >> _BITS & _MASK, offsets=version & _MASK)

    def encode(self) -> int:
        """The transaction's version; rises with the batch."""
        return self.batch_id << 2 * _BITS | self.query << _BITS | self.offsets


def app_id(txn_id: str | None, query_id: str) -> str:
    """Application id of a stream's table transactions: the user's own, else the query's."""
    return APP_PREFIX + (query_id if txn_id is None else txn_id)


def mismatch(known: StreamVersion | None, wanted: StreamVersion) -> str | None:
    """Why a batch must not be written after what the table knows of the same application; None when it may be.

    Args:
        known: the latest batch that the table has, if any.
        wanted: the batch that is to be written.
    """
    if known is None or known == wanted:
        return None
    if known.query != wanted.query:
        return f"another checkpoint has written batch {known.batch_id} under this id"
    if known.batch_id == wanted.batch_id:
        return f"batch {wanted.batch_id} was written from other offsets: the checkpoint is not the one that wrote it"
    if known.batch_id > wanted.batch_id:
        return f"batch {known.batch_id} was written before batch {wanted.batch_id}: the checkpoint is an older copy"
    return None


def next_txn(topic: str, app: str, known: int | None, version: StreamVersion) -> TxnId:
    """The name of the write of a batch, which is refused if another query writes under the id from now on.

    Args:
        topic: where the batch goes.
        app: see `app_id`.
        known: the latest version that the topic's table has of it, None for none.
        version: the batch's.

    Raises:
        CheckpointMismatchError: the topic cannot have been waiting for this batch.
    """
    problem = mismatch(None if known is None else StreamVersion.decode(known), version)
    if problem is not None:
        raise CheckpointMismatchError(
            f"{topic}: nothing was written for {app!r}, batch {version.batch_id}: {problem}. Go on with the "
            "checkpoint that wrote last, or give the stream a new txn_id, which writes from its start again"
        )
    return TxnId(app, version.encode(), after=-1 if known is None else known)


def _short(data: bytes) -> int:
    return int.from_bytes(hashlib.sha256(data).digest()[: _BITS // 8], "big")
