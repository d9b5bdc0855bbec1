"""Transaction effects: carry the effects of the transaction protocol out on tables and staged files."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from kafkalike.errors import KafkaError, KafkaTimeoutError, TopicDeletedError, UnknownTopicOrPartitionError
from kafkalike.log.call_view import ControlTables
from kafkalike.log.topic.batch_payload import Loose
from kafkalike.log.topic.transaction_append import DecidedRecords, StagedFileError, TopicDecisions
from kafkalike.log.transactions.transaction_files import records_of
from kafkalike.model import faults
from kafkalike.model.clock import Deadline
from kafkalike.model.effects import run
from kafkalike.model.group_state import GroupRow, GroupsState, transaction_rows
from kafkalike.model.record_batch import Appended
from kafkalike.model.topic import TopicInfo
from kafkalike.model.transactions import roll_forward as effects
from kafkalike.model.transactions.group_claims import GroupOffsets, check_partitions
from kafkalike.model.transactions.transaction_views import TopicCut
from kafkalike.model.transactions.transactional_id import (
    CommittedTransaction,
    StagedFile,
    TopicLife,
    TransactionAttempt,
    TransactionPart,
)

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.log.transactions.transaction_files import Staging
    from kafkalike.model.clock import Clock
    from kafkalike.model.config.server_config import ServerProperties


T = TypeVar("T")

SIDE_BY_SIDE: Final = 16
"""Topics that get a decision at a time, where that takes requests."""


@dataclass
class HeldTransaction:
    """What a producer knows of its open transaction, and nobody else."""

    logs: dict[str, TopicLog] = field(default_factory=dict)
    """By topic id, logs that are open."""
    batches: dict[str, Loose] = field(default_factory=dict)
    """By the name of a staged file, what it holds."""
    payloads: Mapping[str, DecidedRecords] = field(default_factory=dict)
    """By topic, what it brings there, where the caller has something better than the staged files."""
    names: list[str] | None = None
    """All files that may be staged; None where that is not known."""
    attempt: TransactionAttempt | None = None
    """The transaction."""


class _Ids(Mapping[str, str]):
    """Ids of topics, looked up when they are asked for: a cluster may have very many topics."""

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
        held: what the caller has in hand.
    """

    def __init__(self, home: TransactionContext, deadline: Deadline, held: HeldTransaction | None = None) -> None:
        self._cluster = home.cluster
        self._staging = home.staging
        self.versions: dict[int, int] = {}
        """Versions of the groups' table that were seen, by the number of their last row."""
        self._deadline = deadline
        self._held = held or HeldTransaction()

    def check_partitions(self, offsets: GroupOffsets) -> None:
        """See `kafkalike.model.transactions.group_claims.check_partitions`."""
        metadata = self._cluster.metadata
        try:
            check_partitions(offsets, metadata.state.topics)
        except UnknownTopicOrPartitionError:
            # Somebody may have added it just now.
            check_partitions(offsets, metadata.refresh().topics)

    def run(self, todo: Generator[effects.TransactionEffect, Any, T]) -> T:
        """Run a protocol to its end.

        Raises:
            KafkaError: what the protocol raises.
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
            raise KafkaTimeoutError(f"{self._cluster.root}: time ran out before a transaction was through")
        return None if left == float("inf") else left * 1000

    def _asked(self, topic: TopicLife, ask: Callable[[TopicDecisions], T]) -> T | None:
        """Ask a topic something; None when it is gone."""
        try:
            log = self._held.logs.get(topic.topic_id)
            if log is None:
                log = self._cluster.log(topic.name)
                if log.info.topic_id != topic.topic_id:
                    return None
                self._held.logs[topic.topic_id] = log
            return ask(TopicDecisions(log))
        except (TopicDeletedError, UnknownTopicOrPartitionError):
            return None

    def _apply(self, log: TopicDecisions, committed: CommittedTransaction, part: TransactionPart) -> Appended:
        mine = self._held.attempt == committed.attempt

        def load(file: StagedFile) -> Loose:
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
            # Somebody else was faster, and has cleaned up.
            return log.where(committed.seq)
        faults.point("transaction.after_apply")
        return done

    def _cut(self, log: TopicDecisions, topic: TopicLife, seq: int) -> TopicCut:
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
            # Interrupted, what is under way goes on: anybody may do it.
            executor.shutdown(wait=False, cancel_futures=True)

    def _tried(self, todo: effects.TransactionProtocol) -> object:
        try:
            return self.run(todo)
        except KafkaError as error:
            return error


class TopicLogs(ControlTables, Protocol):
    """The part of a cluster, which stands above this room, that transactions use."""

    @property
    def root(self) -> str:
        """What it is called."""
        ...

    @property
    def server(self) -> ServerProperties:
        """Server defaults."""
        ...

    @property
    def clock(self) -> Clock:
        """Time."""
        ...

    def log(self, name: str) -> TopicLog:
        """Open the log of a topic."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionContext:
    """Where transactions take place."""

    cluster: TopicLogs
    """Topics and groups."""
    staging: Staging
    """Staged files."""
