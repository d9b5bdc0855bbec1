"""Effect runner: run the transaction protocol's effects on tables and staged files."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from kafkalike.errors import KafkaError, KafkaTimeoutError, TopicDeletedError, UnknownTopicOrPartitionError
from kafkalike.log.call_view import ControlTables
from kafkalike.log.topic.batch_payload import Loose
from kafkalike.log.topic.transaction_append import DecidedRecords, StagedFileError, TopicDecisions
from kafkalike.log.transactions.transaction_files import Staging, records_of
from kafkalike.model import faults
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.effects import run
from kafkalike.model.group_rows import GroupRow, transaction_rows
from kafkalike.model.group_state import GroupsState
from kafkalike.model.record_batch import Appended
from kafkalike.model.topic import TopicInfo
from kafkalike.model.transactions import roll_forward as effects
from kafkalike.model.transactions import transactional_id as txn
from kafkalike.model.transactions.group_claims import GroupOffsets, check_partitions
from kafkalike.model.transactions.transaction_views import TopicCut

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.config.server_config import ServerProperties


T = TypeVar("T")

SIDE_BY_SIDE: Final = 16
"""Topics that a decision is applied to in parallel on remote storage."""


@dataclass
class HeldTransaction:
    """The parts of an open transaction that its producer holds in memory."""

    logs: dict[str, TopicLog] = field(default_factory=dict)
    """Open logs, by topic id."""
    batches: dict[str, Loose] = field(default_factory=dict)
    """Content of staged files, by file name."""
    payloads: Mapping[str, DecidedRecords] = field(default_factory=dict)
    """Records by topic, if the caller has a faster form than the staged files."""
    names: list[str] | None = None
    """All files that may be staged; None if unknown."""
    attempt: txn.TransactionAttempt | None = None
    """The producer's open transaction."""


class _Ids(Mapping[str, str]):
    """Ids of topics, looked up on access because a cluster may have very many topics."""

    def __init__(self, topics: Mapping[str, TopicInfo]) -> None:
        self._topics = topics

    def __getitem__(self, name: str) -> str:
        return self._topics[name].topic_id

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def __len__(self) -> int:
        return len(self._topics)


class EffectRunner:
    """Runs the protocols of transactions for one caller, on tables and staged files.

    Args:
        home: topics, groups and staged files.
        deadline: until when to try.
        held: the caller's parts in memory.
    """

    def __init__(self, home: TransactionContext, deadline: Deadline, held: HeldTransaction | None = None) -> None:
        self._cluster = home.cluster
        self._staging = home.staging
        self.versions: dict[int, int] = {}
        """Versions of the groups' table that were read, by the number of their last row."""
        self._deadline = deadline
        self._held = held or HeldTransaction()

    def check_partitions(self, offsets: GroupOffsets) -> None:
        """Check that the partitions of offsets exist; see `model.transactions.group_claims.check_partitions`."""
        metadata = self._cluster.metadata
        try:
            check_partitions(offsets, metadata.state.topics)
        except UnknownTopicOrPartitionError:
            # The partition may just have been added.
            check_partitions(offsets, metadata.refresh().topics)

    def run(self, todo: Generator[effects.TransactionEffect, Any, T]) -> T:
        """Run a protocol to its end.

        Raises:
            KafkaError: raised by the protocol.
        """
        return run(todo, self._done, KafkaError)

    def _done(self, act: effects.TransactionEffect) -> object:  # noqa: PLR0911 - a line for each effect
        match act:
            case effects.LookAtGroups():
                version, state = self._cluster.groups.look()
                self.versions[state.seq] = version
                return state
            case effects.LookAtTopics():
                return _Ids(self._cluster.metadata.refresh().topics)
            case effects.Write(plan, step):
                return self._write(plan, step)
            case effects.Beside(protocols):
                return self._beside(protocols)
            case effects.Remove(producer_id, epoch, number):
                self._remove(producer_id, epoch, number)
                return None
            case effects.ListFolders():
                return self._staging.folders()
            case _:
                return self._at_topic(act)

    def _at_topic(self, act: effects.LookAtTopic | effects.Apply | effects.Find | effects.CutAt) -> object:
        match act:
            case effects.LookAtTopic(topic, fresh):
                return self._asked(topic, lambda log: log.look() if fresh else log.last)
            case effects.Apply(committed, part):
                return self._asked(part.topic, lambda log: self._apply(log, committed, part))
            case effects.Find(committed, part):
                return self._asked(part.topic, lambda log: log.where(committed.seq))
            case effects.CutAt(topic, seq):
                return self._asked(topic, lambda log: self._cut(log, topic, seq))

    def _remove(self, producer_id: int, epoch: int, number: int | None) -> None:
        faults.point("transaction.before_remove")
        mine = number is not None and self._held.attempt == (producer_id, epoch, number)
        self._staging.remove(producer_id, epoch, number, self._held.names if mine else None)
        faults.point("transaction.after_remove")

    def _write(self, plan: effects.Plan, step: str) -> GroupsState:
        groups, last = self._cluster.groups, 0

        def rows(state: GroupsState) -> Sequence[GroupRow]:
            nonlocal last
            entries = plan(state, self._cluster.clock.now_ms())
            made = [] if entries is None else transaction_rows(state.seq + 1, entries)
            last = made[-1].seq if made else 0
            return made

        faults.point(f"transaction.before_{step}")
        groups.transact(rows, self._remaining_ms())
        faults.point(f"transaction.after_{step}")
        state = groups.state
        return state if state.seq >= last else groups.refresh()

    def _remaining_ms(self) -> float | None:
        left = self._deadline.remaining()
        if left <= 0:
            raise KafkaTimeoutError(f"{self._cluster.root}: time ran out before a transaction was finished; call again")
        return None if left == float("inf") else left * 1000

    def _asked(self, topic: txn.TopicLife, ask: Callable[[TopicDecisions], T]) -> T | None:
        """Query a topic; None if it was deleted."""
        try:
            log = self._held.logs.get(topic.topic_id)
            if log is None:
                log = self._cluster.log(topic.name)
                if log.info.topic_id != topic.topic_id:
                    return None
                self._held.logs[topic.topic_id] = log
            return ask(TopicDecisions(log))
        except (TopicDeletedError, UnknownTopicOrPartitionError):
            self._held.logs.pop(topic.topic_id, None)
            return None

    def _apply(self, log: TopicDecisions, committed: txn.CommittedTransaction, part: txn.TransactionPart) -> Appended:
        mine = self._held.attempt == committed.attempt

        def load(file: txn.StagedFile) -> Loose:
            known = self._held.batches.get(file.name) if mine else None
            return self._staging.load(committed, part, file) if known is None else known

        self._remaining_ms()
        faults.point("transaction.before_apply")
        try:
            payload: DecidedRecords | None = self._held.payloads.get(part.topic.name) if mine else None
            if payload is None:
                payload = records_of(self._staging, committed, part, load)
            done = log.bring(committed.seq, payload, self._deadline, committed.name)
        except StagedFileError:
            if log.look() < committed.seq:
                raise
            # Another process has applied the decision and removed the files.
            return log.where(committed.seq)
        faults.point("transaction.after_apply")
        return done

    def _cut(self, log: TopicDecisions, topic: txn.TopicLife, seq: int) -> TopicCut:
        found = log.as_of(seq)
        if found is None:
            raise KafkaTimeoutError(f"{topic.name}: its log has lost the commits after transaction {seq}; try again")
        return found

    def _beside(self, protocols: Sequence[effects.TransactionProtocol]) -> list[object]:
        if len(protocols) < 2 or not self._staging.far:  # noqa: PLR2004 - nothing to be beside
            return [self._tried(one) for one in protocols]
        executor = ThreadPoolExecutor(min(len(protocols), SIDE_BY_SIDE), "kafkalike-transaction")
        try:
            return list(executor.map(self._tried, protocols))
        finally:
            # After an interrupt running protocols continue, which is safe because any process may run them.
            executor.shutdown(wait=False, cancel_futures=True)

    def _tried(self, todo: effects.TransactionProtocol) -> object:
        try:
            return self.run(todo)
        except KafkaError as error:
            return error


class TopicLogs(ControlTables, Protocol):
    """The part of a cluster that transactions use; the cluster is in a layer above."""

    @property
    def root(self) -> str:
        """The cluster's name in messages."""
        ...

    @property
    def server(self) -> ServerProperties:
        """Cluster-wide server defaults."""
        ...

    @property
    def clock(self) -> Clock:
        """Source of the time."""
        ...

    def log(self, name: str) -> TopicLog:
        """Open the log of a topic."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionContext:
    """The tables and files that transactions use."""

    cluster: TopicLogs
    """The topics and groups."""
    staging: Staging
    """Storage of the staged files."""
