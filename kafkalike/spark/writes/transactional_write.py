"""Transactions of Spark writes to several topics and groups, and the names by which a rerun is recognized.

Before a transaction is decided, its manifest (`run_manifest`) takes over the files that the jobs have staged. Once it
is decided, this or any other process commits the records to all topics without the jobs.

A write is named by an application id and a version. A stream's table transactions carry one application id, and this
version of 63 bits. From the top, 31 bits hold the number of the batch, 16 bits a hash of the query's id, which Spark
keeps in the checkpoint, and 16 bits a hash of the batch's offsets in the checkpoint.

So the table alone can tell a batch that is repeated after a crash (all three are equal) from a new checkpoint under a
used id, or a checkpoint restored from a copy (decision 012).
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalike import errors
from kafkalike.log.runs.run_manifest import LAYOUT, LargeRun, RunManifest, StagedRun, dump_manifest, move_runs
from kafkalike.log.runs.run_payload import DecidedRuns, Writing
from kafkalike.log.transactions.session import NO_ACKNOWLEDGEMENTS
from kafkalike.log.transactions.transaction_files import FilesToStage
from kafkalike.model import faults
from kafkalike.model.clock import RETRY_BACKOFF_SECONDS, Deadline
from kafkalike.model.record_batch import Appended, TxnId
from kafkalike.model.transactions.transactional_id import CommittedTransaction, TransactionAttempt, WriteName

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.log.transactions.session import TransactionSession
    from kafkalike.model.transactions.group_claims import GroupOffsets, ShareAcknowledgements
    from kafkalike.storage.port import Storage


_log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 7 * 24 * 60 * 60 * 1000
"""Time, ms, after which maintenance may abort a transaction of Spark. A job may take days, and readers do not wait for
it: the limit of producers protects a broker's readers, which stop at the first open transaction."""

_ABORT_MS: Final = 10_000

FATAL: Final = (errors.ProducerFencedError, errors.InvalidProducerEpochError)
"""Another process has the transactional id, or an administrator has aborted the transaction: it has ended."""


class Together:
    """Successive transactions of one transactional id. To be used by one thread.

    Args:
        cluster: cluster of the topics.
        transactional_id: other users of the id are fenced; None for an id of this object's own.
        client_id: for people.
    """

    def __init__(self, cluster: Cluster, transactional_id: str | None, client_id: str) -> None:
        self.transactional_id = f"spark write {uuid.uuid4().hex}" if transactional_id is None else transactional_id
        self._cluster = cluster
        self._client_id = client_id
        self._session: TransactionSession | None = None
        self._number = 0
        self._staged: dict[str, list[tuple[RunManifest, Writing | None]]] = {}
        """Staged manifests of the open transaction, by topic."""
        self._moved: set[str] = set()
        """Names of its files."""
        self._place: Storage | None = None
        self.refused = False
        """True if the last commit was refused, so that nothing of it is committed; False if that is unknown."""

    def begin(self, deadline: Deadline) -> None:
        """Begin a transaction; the first time, fence all other users of the id and complete their decided transactions.

        Raises:
            KafkaError: see `Transactions.begin_session`.
        """
        if self._session is None:
            self._session = self._cluster.transactions.begin_session(
                self.transactional_id, TIMEOUT_MS, self._client_id, deadline, longest_ms=TIMEOUT_MS
            )
            self._number = 0
        self._number += 1
        self._staged, self._moved, self._place, self.refused = {}, set(), None, False

    @property
    def last(self) -> CommittedTransaction | None:
        """The last known decision of the id. It stays the last one while a transaction of this object is open."""
        standing = self._cluster.groups.state.transactions.get(self.transactional_id)
        return None if standing is None else standing.committed

    def stage(  # noqa: PLR0917
        self,
        log: TopicLog,
        staged: Storage,
        runs: Sequence[StagedRun | LargeRun],
        codec: str,
        deadline: Deadline,
        write_all: Writing | None = None,
    ) -> None:
        """Move staged records of a topic into the transaction; the job's folder may be removed afterwards.

        Args:
            log: the topic.
            staged: the job's folder.
            runs: its runs of the topic; at least one.
            codec: compression, used when the topic says `producer`.
            deadline: when to stop trying.
            write_all: writes the segments, and keeps the staged files; see `DecidedRuns`.

        Raises:
            KafkaError: see `TransactionSession.stage_files`.
        """
        manifest = RunManifest(runs=tuple(runs), codec=codec, time_ms=self._cluster.clock.now_ms())

        content = dump_manifest(manifest)

        def move(place: Storage) -> None:
            # A task puts small runs of several topics into one file.
            move_runs(staged, [name for name in manifest.files if name not in self._moved], place)
            self._moved.update(manifest.files)
            self._place = place

        files = FilesToStage(layout=LAYOUT, content=content, names=manifest.files, counts=manifest.counts(), move=move)
        self.session.stage_files(self._number, log, files, deadline)
        self._staged.setdefault(log.info.name, []).append((manifest, write_all))
        faults.point("together.staged")

    @property
    def attempt(self) -> TransactionAttempt:
        """The open transaction, as its decision will name it."""
        session = self.session
        return TransactionAttempt(session.producer_id, session.epoch, self._number)

    def commit(
        self,
        offsets: GroupOffsets,
        deadline: Deadline,
        name: WriteName | None = None,
        *,
        acknowledgements: ShareAcknowledgements = NO_ACKNOWLEDGEMENTS,
        decide: bool = False,
    ) -> Mapping[str, Appended]:
        """Decide the transaction and apply it to its topics; after an error, abort it if it is still open.

        Args:
            offsets: of groups, decided with it.
            deadline: when to stop trying.
            name: the application's name of the write.
            acknowledgements: of records of share groups, decided with it.
            decide: see `TransactionSession.commit`.

        Returns:
            The offsets of the records by topic.

        Raises:
            KafkaError: see `TransactionSession.commit`. A note tells if the transaction was decided nevertheless.
        """
        session, number = self.session, self._number
        place = self._place
        payloads = {
            topic: DecidedRuns(place, [manifest for manifest, _ in known], known[0][1])
            for topic, known in self._staged.items()
            if place is not None
        }
        ask = partial(
            session.commit,
            number,
            offsets,
            name=name,
            payloads=payloads,
            acknowledgements=acknowledgements,
            decide=decide,
        )
        # An interrupt from here on drops the session. The next transaction then starts with a new epoch, which
        # completes or aborts this one.
        self._session = None
        doubt = False
        while True:
            try:
                done = ask(deadline)
            except errors.UnknownOutcomeError:
                doubt = True
                if deadline.expired():
                    raise
            except errors.KafkaError as cause:
                if session.decided(number):
                    cause.add_note(
                        f"the transaction of {self.transactional_id!r} is committed: its records reach all of its "
                        "topics as soon as the storage allows it; do not write them again"
                    )
                    raise
                if self._aborted(session):
                    doubt = doubt or isinstance(cause, (errors.KafkaTimeoutError, errors.KafkaStorageError))
                    self.refused = not doubt and self._session is not None
                    raise
            else:
                self._session = session
                return done
            self._cluster.clock.sleep(RETRY_BACKOFF_SECONDS)

    def forget(self) -> None:
        """Forget the transactional id, which will not be used again; if this fails, maintenance does it later."""
        try:
            self.session.forget(Deadline(self._cluster.clock, _ABORT_MS))
        except errors.KafkaError as cause:
            _log.debug("%s was not forgotten: %s", self.transactional_id, cause)

    def abort(self) -> None:
        """Abort the open transaction; if this fails, the next session or maintenance does it."""
        session, self._session = self._session, None
        if session is not None and self._number:
            self._aborted(session)

    def _aborted(self, session: TransactionSession) -> bool:
        """Abort, and return False if the transaction turned out to be committed. A usable session is kept."""
        try:
            session.abort(self._number, Deadline(self._cluster.clock, _ABORT_MS))
        except errors.InvalidTxnStateError:
            return False
        except FATAL:
            pass  # it stays fenced
        except errors.KafkaError as cause:
            _log.warning("the transaction of %s was not aborted: %s", self.transactional_id, cause)
            return True
        self._session = session
        return True

    @property
    def session(self) -> TransactionSession:
        """The session of the open transaction.

        Raises:
            IllegalStateError: no transaction was begun.
        """
        if self._session is None:
            raise errors.IllegalStateError("no transaction was begun")
        return self._session


WHOLE: Final = "the cluster"
"""Replaces a topic's name if the latest version comes from a transaction of several topics."""


@dataclass(frozen=True, slots=True)
class Naming:
    """The name of one write of an application."""

    app_id: str
    """Id of the writing application."""
    version: int
    """Number of the write; rises with each write."""
    check: Callable[[str, int | None], TxnId]
    """Takes a topic, or `WHOLE`, and the latest version of the application there, None for none.

    Returns the name of the write to that topic; raises if the write must not follow that version."""

    decided_as: str | None = None
    """Transactional id of the application's writes to several topics; None derives it from the application id."""

    @classmethod
    def of(cls, txn: TxnId) -> Naming:
        """Name a write identically for all topics, whatever was written before."""
        return cls(txn.app_id, txn.version, lambda topic, known: txn)  # noqa: ARG005

    @property
    def name(self) -> WriteName:
        """The name in a transaction's decision."""
        return WriteName(self.app_id, self.version)

    @property
    def transactional_id(self) -> str:
        """The transactional id of the application's writes to several topics."""
        return f"spark {self.app_id}" if self.decided_as is None else self.decided_as


_BITS: Final = 16
_MASK: Final = (1 << _BITS) - 1

MAX_BATCH: Final = (1 << 31) - 1
"""Highest number of a batch: at ten batches a second, 6.8 years."""

APP_PREFIX: Final = "stream:"
"""Separates the ids of streams from batch writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamVersion:
    """One batch of one query, short enough for a table transaction."""

    batch_id: int
    """Number of the batch."""
    query: int
    """16 bits of a hash of the query's id."""
    offsets: int
    """16 bits of a hash of the batch's offsets."""

    @classmethod
    def of(cls, batch_id: int, query_id: str, fingerprint: bytes) -> StreamVersion:
        """Build the version of a batch.

        Raises:
            IllegalArgumentError: the batch's number does not fit.
        """
        if not 0 <= batch_id <= MAX_BATCH:
            raise errors.IllegalArgumentError(f"batch {batch_id} is not in [0, {MAX_BATCH}]; begin a new checkpoint")
        return cls(batch_id=batch_id, query=_short(query_id.encode()), offsets=_short(fingerprint))

    @classmethod
    def decode(cls, version: int) -> StreamVersion:
        """Decode a table transaction's version."""
        return cls(batch_id=version >> 2 * _BITS, query=version >> _BITS & _MASK, offsets=version & _MASK)

    def encode(self) -> int:
        """Return the transaction's version, which rises with the batch."""
        return self.batch_id << 2 * _BITS | self.query << _BITS | self.offsets


def app_id(txn_id: str | None, query_id: str) -> str:
    """Return the application id of a stream's table transactions: the user's own, otherwise the query's."""
    return APP_PREFIX + (query_id if txn_id is None else txn_id)


def mismatch(known: StreamVersion | None, wanted: StreamVersion) -> str | None:
    """Return why a batch must not follow the application's latest batch in the table; None if it may.

    Args:
        known: the latest batch that the table has, if any.
        wanted: the batch to write.
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
    """Return the name of a batch's write, which fails if another query writes under the id from now on.

    Args:
        topic: the batch's topic.
        app: see `app_id`.
        known: the application's latest version in the topic's table, None for none.
        version: the batch's.

    Raises:
        CheckpointMismatchError: the topic's last batch comes from another checkpoint, or is a later one.
    """
    problem = mismatch(None if known is None else StreamVersion.decode(known), version)
    if problem is not None:
        raise errors.CheckpointMismatchError(
            f"{topic}: nothing was written for {app!r}, batch {version.batch_id}: {problem}. Go on with the "
            "checkpoint that wrote last, or give the stream a new txn_id, which writes from its start again"
        )
    return TxnId(app, version.encode(), after=-1 if known is None else known)


def _short(data: bytes) -> int:
    return int.from_bytes(hashlib.sha256(data).digest()[: _BITS // 8], "big")
