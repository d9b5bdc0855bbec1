"""What may be asked of a cluster's transactions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    # Only for types: a program without transactions loads none of it.
    from kafkalike.log.port.topic import TopicLog
    from kafkalike.log.topic.decided import DecidedRecords
    from kafkalike.model.appends import Appended
    from kafkalike.model.batch import RecordBatch
    from kafkalike.model.clock import Deadline
    from kafkalike.model.transactions.claims import GroupOffsets
    from kafkalike.model.transactions.values import WriteName
    from kafkalike.model.transactions.views import (
        Cut,
        LostPart,
        ProducerIdAndEpoch,
        TransactionDescription,
        TransactionListing,
    )
    from kafkalike.storage.port import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesToStage:
    """Files with records of one topic, as a job has left them."""

    layout: str
    """How to read them; see `Part.layout`."""
    content: bytes
    """Says which files there are. It is stored beside them, and is what the decision names."""
    names: Sequence[str]
    """Names that the files get."""
    counts: Mapping[int, int]
    """Records by partition."""
    move: Callable[[Store], object]
    """Puts the files into the folder of the transaction; raises `OSError`."""


class TransactionSession(Protocol):
    """One producer id and epoch of a transactional id: what `init_transactions` has given.

    Transactions are numbered by the caller from 1 on, each number above the one before. One thread calls; `stage` may
    be called by several. After a fork only one of the processes may go on: the other one's calls fail.
    """

    @property
    def transactional_id(self) -> str:
        """Whose it is."""
        ...

    @property
    def producer_id(self) -> int:
        """Number of the transactional id; a new one when it was forgotten."""
        ...

    @property
    def epoch(self) -> int:
        """Which `init_transactions` of the id this is; a later one fences it."""
        ...

    def stage(
        self,
        number: int,
        log: TopicLog,
        batch: RecordBatch,
        *,
        codec: str = "none",
        deadline: Deadline | None = None,
        once: str = "",
    ) -> None:
        """Store records of a transaction beside the topics, where nobody reads them. They survive this process then.

        The topic's rules are checked now, and not again when the transaction is committed. Records of one topic keep
        the order of the calls. Nothing is looked up about the epoch: a producer that is fenced finds out at `commit`.

        Args:
            number: the transaction; the first call with a number begins it.
            log: the topic, as of its last `refresh`.
            batch: at least one record, with its partition.
            codec: see `TopicLog.append`.
            deadline: until when to try; None without end.
            once: names the records within transaction and topic: a second call with the name does nothing, so that
                one which was cut off may be made again. Calls with the same name take turns.

        Raises:
            IllegalStateError: the transaction is over, or an earlier one is not.
            MessageSizeTooLargeError, InvalidTimestampError, InvalidRecordError: as `TopicLog.append`; nothing was
                written, and the transaction may go on without the batch.
            KafkaStorageError, KafkaTimeoutError: the storage refused, or gave no answer. The batch is no part of the
                transaction: it may be staged again, or the transaction go on without it.
            ProducerFencedError: this is a copy of the producer, made by a fork.
        """
        ...

    def stage_files(self, number: int, log: TopicLog, files: FilesToStage, deadline: Deadline) -> None:
        """Make files that are stored somewhere else part of a transaction; like `stage`, for jobs of many tasks.

        Args:
            number: see `stage`.
            log: the topic whose records they have. All files of a topic have one layout.
            files: what is staged, checked by the topic's rules.
            deadline: until when to try.

        Raises:
            IllegalStateError, KafkaStorageError, KafkaTimeoutError, ProducerFencedError: see `stage`.
        """
        ...

    def commit(
        self,
        number: int,
        offsets: GroupOffsets,
        deadline: Deadline,
        *,
        name: WriteName | None = None,
        payloads: Mapping[str, DecidedRecords] | None = None,
    ) -> Mapping[str, Appended]:
        """Decide that the transaction is committed, with the offsets, and bring it into all of its topics.

        The decision is one row set in the groups' table: from then on the transaction *is* committed, and the offsets
        are visible; records follow at once, by this call or by anybody who comes. May be called again with the same
        arguments after `KafkaTimeoutError`, `UnknownOutcomeError` and errors of the storage: what is done is found.

        Args:
            number: the transaction; it may have no records, or no offsets.
            offsets: positions that were checked, by claim and partition.
            deadline: until when to try.
            name: what the application calls the transaction; it stays with the id's rows, and topics note it.
            payloads: by topic, the staged records in a form that the caller brings in faster than from the files.

        Returns:
            By topic, the offsets of the records. A topic that was deleted meanwhile is missing; ranges are empty where
            the topic's log has forgotten them. Empty when there was nothing to commit.

        Raises:
            ProducerFencedError: a later `init_transactions` of the id has come; nothing was committed. After an
                earlier call without an answer it may have been: the message says where that is not known any more.
            InvalidProducerEpochError: maintenance or an administrator has aborted it; nothing was committed.
            CommitFailedError, FencedInstanceIdError, RebalanceInProgressError: the group has moved on; nothing was
                committed, abort.
            TransactionAbortableError: it was open for longer than its timeout; nothing was committed, abort.
            UnknownTopicOrPartitionError: a topic of the records or offsets is gone; nothing was committed, abort.
            InvalidTxnStateError: it was aborted.
            KafkaTimeoutError, KafkaStorageError: not done in time; `decided` says whether it is committed all the same.
            LogCorruptError: it is committed, and one of its topics cannot get it, or an earlier one; says which file.
                Or nothing was committed, as the groups' table was rewound.
            UnknownOutcomeError: it may be committed; call again.
        """
        ...

    def decided(self, number: int) -> bool:
        """Whether a transaction is known to be committed, though maybe not in all topics yet. Asks nobody."""
        ...

    def forget(self, deadline: Deadline) -> None:
        """Forget the transactional id, which nobody uses again. Caller: has no transaction open.

        Raises:
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: not done, or not sure; maintenance does it later.
        """
        ...

    def abort(self, number: int, deadline: Deadline) -> None:
        """End the transaction without effect. May be called again after an error.

        Raises:
            InvalidTxnStateError: it is committed, as a call of `commit` without an answer has done it: commit again.
            ProducerFencedError, InvalidProducerEpochError: see `commit`; it is aborted all the same.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: not done, or not sure; call again.
        """
        ...


class Transactions(Protocol):
    """Transactions of a cluster. Thread-safe.

    A transaction is committed by one change of the groups' table; see `docs/decisions/030`. Its number there orders
    all transactions, and topics get them in that order, each in one table version.
    """

    def begin_session(
        self,
        transactional_id: str,
        timeout_ms: int,
        client_id: str,
        deadline: Deadline,
        *,
        longest_ms: int | None = None,
    ) -> TransactionSession:
        """What `init_transactions` does: finish what the id has decided, abort what is open, fence older producers.

        Args:
            transactional_id: not empty.
            timeout_ms: after so long maintenance may abort an open transaction, and the producer may not commit it.
            client_id: for people.
            deadline: until when to try.
            longest_ms: the longest timeout that is allowed; None takes the server's `transaction.max.timeout.ms`.

        Raises:
            InvalidTransactionTimeoutError: not from 1 to the longest that is allowed.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: not done, or not sure; call again.
            LogCorruptError: a decided transaction of the id cannot be brought into a topic; says which file.
        """
        ...

    def help(self, logs: Collection[TopicLog], deadline: Deadline, *, waiting: bool = False) -> bool:
        """Bring decided transactions into topics that do not have them, because their producer was stopped.

        For readers, who call it before they read. Costs a look at the groups' table, and nothing more when there is
        nothing to do. Transactions that were decided less than 1 s ago are left to their producer.

        Args:
            logs: the topics, as of their last `refresh`; what came in is seen at the next one.
            deadline: until when to try.
            waiting: the caller comes again. Then the table is looked at once a second at most, once in 10 s where a
                look is a request that costs money, by one of the readers that share this cluster for all of them; and
                what goes wrong is logged, and not tried again for a minute.

        Returns:
            Whether something was brought into one of the topics.

        Raises:
            KafkaTimeoutError, KafkaStorageError, LogCorruptError: see `begin_session`.
        """
        ...

    def cut(self, topics: Collection[str], deadline: Deadline) -> Cut:
        """Versions of several topics, and of the groups' table, that are one moment of all transactions.

        Needs no quiet moment: producers go on meanwhile.

        Args:
            topics: names.
            deadline: until when to try.

        Raises:
            UnknownTopicOrPartitionError, InvalidTopicError: no such topic.
            KafkaTimeoutError, KafkaStorageError, LogCorruptError: see `begin_session`.
        """
        ...

    def listed(self) -> Sequence[TransactionListing]:
        """All transactional ids that are not forgotten, fresh, in order of their names."""
        ...

    def described(
        self, transactional_ids: Collection[str], *, staged: bool = False
    ) -> Mapping[str, TransactionDescription]:
        """What is known of transactional ids, fresh; those that are not known are left out.

        Args:
            transactional_ids: the ids.
            staged: whether to look into the staged files of open transactions, for the partitions that they wrote to.

        Raises:
            KafkaStorageError, LogCorruptError: staged files or tables cannot be read.
        """
        ...

    def open_for(self) -> Sequence[TransactionDescription]:
        """Open transactions, those that began first first: what `find_hanging_transactions` chooses from."""
        ...

    def fence(self, transactional_id: str, deadline: Deadline, only: ProducerIdAndEpoch | None = None) -> int:
        """Abort what is open, finish what is decided, and shut the producer out: what an administrator asks for.

        Args:
            transactional_id: whose.
            deadline: until when to try.
            only: the producer that is meant; None means whoever has the id.

        Returns:
            The epoch from now on.

        Raises:
            TransactionalIdNotFoundError: no such id.
            InvalidProducerEpochError: it is another producer's than `only` by now; nothing was done.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError, LogCorruptError: see `begin_session`.
        """
        ...

    def maintain(self, deadline: Deadline) -> Sequence[str]:
        """Finish decided transactions, abort those past their timeout, forget unused ids, remove files nobody needs.

        Returns:
            What could not be done and why, a sentence each.
        """
        ...

    def damaged(self) -> Sequence[LostPart]:
        """What committed transactions were to bring into topics, and cannot, as staged files are gone or damaged.

        Reads all staged files of decisions that are not in all of their topics. For `kafkalike verify`.
        """
        ...

    def leave_out(self, lost: LostPart, deadline: Deadline) -> bool:
        """Give the records of a part up, so that later transactions can come into its topic.

        The rest of the transaction comes into its other topics as before. For `kafkalike verify --repair`.

        Returns:
            Whether it was still to come.

        Raises:
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: not done, or not sure; call again.
        """
        ...
