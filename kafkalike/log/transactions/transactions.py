"""Transactions: begin sessions, help readers, take cuts, fence, maintain, and describe transactional ids."""

from __future__ import annotations

import logging
import math
import sys
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkalike.errors import IllegalArgumentError, InvalidProducerEpochError, InvalidTransactionTimeoutError, KafkaError
from kafkalike.log.topic.transaction_append import StagedFileError
from kafkalike.log.transactions.effect_runner import EffectRunner, HeldTransaction, TransactionContext
from kafkalike.log.transactions.gateway_transactions import GatewayTransactions
from kafkalike.log.transactions.session import TransactionSession
from kafkalike.log.transactions.transaction_files import check_part, staged_counts
from kafkalike.model.clock import Deadline
from kafkalike.model.group_state import GroupsState
from kafkalike.model.names import check_topic_name, check_transactional_id, is_storable
from kafkalike.model.transactions import roll_forward
from kafkalike.model.transactions import transaction_protocol as protocol
from kafkalike.model.transactions import transaction_views as views
from kafkalike.model.transactions import transactional_id as txn
from kafkalike.model.transactions.roll_forward import looking
from kafkalike.model.transactions.rules import is_open

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog


_log = logging.getLogger(__name__)

OWNER_FIRST_MS: Final = 1_000
"""How long, ms, readers leave a decision to its producer, by their own clock. A decision further in the future does not
count as recent, because its producer's clock was wrong."""

AFTER_FAILURE_SECONDS: Final = 60.0
"""Seconds after a failure until a waiting reader retries, because an operator may have to repair the cause."""


class Transactions:
    """Transactions of a cluster. Thread-safe.

    A transaction is committed by one change of the groups' table; see `docs/decisions/030`. Its number there orders all
    transactions. Topics get them in that order, each in one table version.

    Args:
        home: topics, groups and staged files.
    """

    def __init__(self, home: TransactionContext) -> None:
        self._home = home
        self._cluster = home.cluster
        self._staging = home.staging
        self._failed: dict[str, float] = {}
        """Time of the last failure to apply decisions to a topic, by the topic's id."""

    def _driver(self, deadline: Deadline, held: HeldTransaction | None = None) -> EffectRunner:
        return EffectRunner(self._home, deadline, held)

    # --- producers ---------------------------------------------------------------------------------

    def begin_session(
        self,
        transactional_id: str,
        timeout_ms: int,
        client_id: str,
        deadline: Deadline,
        *,
        longest_ms: int | None = None,
        held: HeldTransaction | None = None,
        after: tuple[int, int] | None = None,
    ) -> TransactionSession:
        """Do the work of `init_transactions`: finish decided transactions, abort open ones, fence older producers.

        Args:
            transactional_id: not empty.
            timeout_ms: age after which maintenance may abort an open transaction, and the producer may not commit it.
            client_id: name of the client, shown to operators.
            deadline: until when to try.
            longest_ms: the longest allowed timeout; None takes the server's `transaction.max.timeout.ms`.
            held: the caller's open logs.
            after: producer id and epoch of a producer that asks for its next epoch, which repeated calls return, too.

        Raises:
            InvalidTransactionTimeoutError: the timeout is not from 1 to the longest allowed one.
            ProducerFencedError: the id has another producer or epoch than `after`; a deleted id gets a new producer.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: the session was not begun, or may not have been;
                call again.
            LogCorruptError: a decided transaction of the id cannot be applied to a topic; names the file.
        """
        check_transactional_id(transactional_id)
        if not is_storable(client_id):
            raise IllegalArgumentError(f"client_id {client_id!r} is not valid text")
        most = int(self._cluster.server.get("transaction.max.timeout.ms")) if longest_ms is None else longest_ms
        if not 1 <= timeout_ms <= most:
            raise InvalidTransactionTimeoutError(
                f"transaction_timeout_ms={timeout_ms} is not from 1 to {most}, the longest allowed timeout"
            )
        standing: txn.TransactionalIdState = self._driver(deadline, held).run(
            protocol.beginning(transactional_id, timeout_ms=timeout_ms, client_id=client_id, after=after)
        )
        return TransactionSession(transactional_id, standing, self._staging, self._driver, self._cluster.clock)

    def behind_gateway(self) -> GatewayTransactions:
        """Return the transactions of producers that use a gateway."""
        return GatewayTransactions(self._home)

    # --- readers -----------------------------------------------------------------------------------

    def help(self, logs: Collection[TopicLog], deadline: Deadline) -> bool:
        """Apply decided transactions to topics that do not have them because their producer was stopped.

        Readers call it before they read. Costs a look at the groups' table, and nothing more if all topics are
        complete. Transactions decided less than 1 s ago are left to their producer.

        Args:
            logs: the topics, as of their last `refresh`; the next one shows the applied records.
            deadline: until when to try.

        Returns:
            True if records were applied to any of the topics.

        Raises:
            KafkaTimeoutError, KafkaStorageError, LogCorruptError: see `begin_session`.
        """
        return self._help(logs, self._cluster.groups.refresh(), deadline)

    def help_waiting(self, logs: Collection[TopicLog], known: GroupsState, limit_ms: float) -> bool:
        """Do `help` for a polling reader; errors are logged, and the topics are not retried for a minute.

        Args:
            logs: the topics.
            known: the groups that the reader has just read.
            limit_ms: how long to try.
        """
        now = self._cluster.clock.monotonic()
        try:
            deadline = Deadline(self._cluster.clock, limit_ms)
            return self._help([log for log in logs if self._may_try(log, now)], known, deadline)
        except KafkaError as error:
            self._failed |= {log.info.topic_id: now for log in logs}
            _log.warning("%s: decided transactions were not applied to topics: %s", self._cluster.root, error)
            return False

    def _may_try(self, log: TopicLog, now: float) -> bool:
        return now - self._failed.get(log.info.topic_id, -math.inf) >= AFTER_FAILURE_SECONDS

    def _help(self, logs: Collection[TopicLog], known: GroupsState, deadline: Deadline) -> bool:
        late: dict[txn.TopicLife, int] = {}
        held = HeldTransaction()
        now_ms = self._cluster.clock.now_ms()
        for log in logs:
            topic_id = log.info.topic_id
            missing = roll_forward.pending(known, topic_id, log.last_transaction, known.seq)
            old = [due.seq for due in missing if _left_alone(due, now_ms)]
            if old:
                late[txn.TopicLife(log.info.name, topic_id)] = max(old)
                held.logs[topic_id] = log
        if not late:
            return False
        problems: Sequence[KafkaError] = self._driver(deadline, held).run(roll_forward.helping(late, known))
        for problem in problems:
            raise problem
        return True

    def cut(self, topics: Collection[str], deadline: Deadline) -> views.Cut:
        """Return versions of several topics and of the groups' table that are one moment of all transactions.

        Producers can go on meanwhile.

        Args:
            topics: names.
            deadline: until when to try.

        Raises:
            UnknownTopicOrPartitionError, InvalidTopicError: a topic does not exist, or its name is invalid.
            KafkaTimeoutError, KafkaStorageError, LogCorruptError: see `begin_session`.
        """
        state = self._cluster.metadata.refresh()
        wanted = [
            txn.TopicLife(info.name, info.topic_id) for info in (state.require(check_topic_name(n)) for n in topics)
        ]
        driver = self._driver(deadline)
        known, found = driver.run(roll_forward.cutting(wanted))
        return views.Cut(
            seq=known.seq,
            groups_version=driver.versions[known.seq],
            topics={topic.name: cut for topic, cut in zip(wanted, found, strict=True)},
        )

    # --- people and maintenance --------------------------------------------------------------------

    def listed(self, pattern: str | None = None) -> Sequence[views.TransactionSummary]:
        """Read and return all transactional ids that have not expired, in order of their names.

        Args:
            pattern: only ids that match this regular expression of RE2 as a whole; empty or None for all. RE2 takes
                linear time, as clients of a gateway name any pattern and any id.

        Raises:
            IllegalArgumentError: the pattern is not a regular expression.
        """
        known = describe(self._home)
        if pattern:
            known = {name: known[name] for name in _matching(list(known), pattern)}
        return [
            views.TransactionSummary(transactional_id=name, producer_id=found.producer_id, state=found.state)
            for name, found in sorted(known.items())
        ]

    def described(
        self, transactional_ids: Collection[str], *, staged: bool = False
    ) -> Mapping[str, views.TransactionReport]:
        """Read and describe transactional ids; unknown ones are left out.

        Args:
            transactional_ids: the ids.
            staged: whether to read the staged files of open transactions, for the partitions that they wrote to.

        Raises:
            KafkaStorageError, LogCorruptError: staged files or tables cannot be read.
        """
        return describe(self._home, set(transactional_ids), staged=staged)

    def open_for(self) -> Sequence[views.TransactionReport]:
        """Return the open transactions, oldest first, from which `find_hanging_transactions` selects."""
        found = describe(self._home).values()
        return sorted((d for d in found if d.state is views.TransactionState.ONGOING), key=lambda d: d.start_ms)

    def fence(self, transactional_id: str, deadline: Deadline, only: views.ProducerIdAndEpoch | None = None) -> int:
        """Abort an open transaction, finish a decided one, and fence the producer, on request of an administrator.

        Args:
            transactional_id: the id.
            deadline: until when to try.
            only: the producer to fence; None fences any.

        Returns:
            The new epoch.

        Raises:
            TransactionalIdNotFoundError: the id does not exist.
            InvalidProducerEpochError: the id belongs to another producer than `only`; nothing was done.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError, LogCorruptError: see `begin_session`.
        """
        # The highest number stands for any open transaction of this epoch.
        attempt = None if only is None else txn.TransactionAttempt(only.producer_id, only.epoch, sys.maxsize)
        standing: txn.TransactionalIdState | None = self._driver(deadline).run(
            protocol.fencing(transactional_id, txn.Why.ADMIN, attempt)
        )
        if standing is None:
            raise InvalidProducerEpochError(
                f"transactional id {transactional_id!r} belongs to another producer: that transaction has ended"
            )
        return standing.epoch

    def maintain(self, deadline: Deadline) -> Sequence[str]:
        """Finish decided transactions, abort timed-out ones, forget unused ids, and remove unneeded files.

        Returns:
            A sentence for each failure, with its reason.
        """
        expiration_ms = int(self._cluster.server.get("transactional.id.expiration.ms"))
        problems: Sequence[KafkaError] = []
        if self._cluster.groups.refresh().transactions or self._staging.folders():
            todo = protocol.maintaining(expiration_ms, self._cluster.clock.now_ms())
            problems = self._driver(deadline).run(todo)
        self._staging.remove_empty()
        return [f"{type(problem).__name__}: {problem}" for problem in problems]

    def damaged(self) -> Sequence[views.LostPart]:
        """Return the records of committed transactions that cannot be applied for want of intact staged files.

        Reads all staged files of decisions that are not in all of their topics. For `kafkalike verify`.
        """
        return lost_parts(self._home)

    def leave_out(self, lost: views.LostPart, deadline: Deadline) -> bool:
        """Give up a transaction's records for one topic, so that later transactions can be applied to the topic.

        The transaction's other topics get their records. For `kafkalike verify --repair`.

        Returns:
            True if the records had not been applied.

        Raises:
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: not done, or possibly not; call again.
        """
        return bool(self._driver(deadline).run(protocol.leaving_out(lost)))


def _left_alone(due: views.PendingDecision, now_ms: int) -> bool:
    """True if a decision is so old that its producer may have stopped."""
    return abs(now_ms - due.changed_ms) >= OWNER_FIRST_MS


def describe(
    home: TransactionContext, wanted: Collection[str] | None = None, *, staged: bool = False
) -> dict[str, views.TransactionReport]:
    """Describe transactional ids; unknown ones are left out.

    Args:
        home: topics, groups and staged files.
        wanted: the ids; None for all.
        staged: see `Transactions.described`.
    """
    folders: defaultdict[int, list[txn.StagedFolder]] = defaultdict(list)
    for folder in home.staging.folders():
        folders[folder.attempt.producer_id].append(folder)
    known = home.cluster.groups.refresh()
    describer = _Describer(home, staged=staged)
    found = {}
    for name in known.transactions if wanted is None else wanted:
        standing = known.transactions.get(name)
        if standing is not None:
            opened = [f for f in folders.get(standing.producer_id, ()) if is_open(standing, f.attempt)]
            found[name] = describer.described(name, standing, opened)
    return found


class _Describer:
    """Describes transactional ids, and looks at each topic once."""

    def __init__(self, home: TransactionContext, *, staged: bool) -> None:
        self._home = home
        self._staged = staged
        self._names: dict[str, str] = {
            info.topic_id: info.name for info in home.cluster.metadata.refresh().topics.values()
        }
        self._seen: dict[str, int | None] = {}
        """Newest decision in each topic, by topic id."""

    def described(
        self, name: str, standing: txn.TransactionalIdState, opened: Sequence[txn.StagedFolder]
    ) -> views.TransactionReport:
        about = views.TransactionReport(
            transactional_id=name,
            state=views.TransactionState.ONGOING,
            producer_id=standing.producer_id,
            epoch=standing.epoch,
            number=standing.number,
            timeout_ms=standing.timeout_ms,
            client_id=standing.client_id,
            start_ms=-1,
            changed_ms=standing.changed_ms,
            reason=standing.why.value,
        )
        if opened:
            first = max(opened, key=lambda folder: folder.age_ms)
            return replace(
                about,
                number=first.attempt.number,
                start_ms=self._home.cluster.clock.now_ms() - first.age_ms,
                topics=self._topics_of(first),
            )
        decision = standing.unsettled
        unapplied = self._unapplied(standing)
        return replace(
            about,
            state=_state(standing, unapplied),
            topics={} if decision is None else {p.topic.name: p.counts for p in decision.parts},
            unapplied=tuple(unapplied),
            groups=() if decision is None else decision.groups,
        )

    def _topics_of(self, folder: txn.StagedFolder) -> dict[str, Mapping[int, int]]:
        """Return the existing topics of an open transaction."""
        names = {topic_id: self._names[topic_id] for topic_id in folder.topics if topic_id in self._names}
        counts = staged_counts(self._home.staging, folder.attempt, names) if self._staged and names else {}
        return {name: counts.get(topic_id, {}) for topic_id, name in names.items()}

    def _unapplied(self, standing: txn.TransactionalIdState) -> list[str]:
        """Return the topics that lack the id's decided transaction."""
        found = []
        decision = standing.unsettled
        for part in () if decision is None else decision.parts:
            assert decision is not None
            topic = part.topic
            if self._names.get(topic.topic_id) != topic.name:
                continue
            if topic.topic_id not in self._seen:
                driver = EffectRunner(self._home, Deadline(self._home.cluster.clock, None))
                self._seen[topic.topic_id] = driver.run(looking(topic))
            last = self._seen[topic.topic_id]
            if last is not None and last < decision.seq:
                found.append(topic.name)
        return found


def _state(standing: txn.TransactionalIdState, unapplied: Sequence[str]) -> views.TransactionState:
    if standing.why is txn.Why.COMMIT:
        return views.TransactionState.PREPARE_COMMIT if unapplied else views.TransactionState.COMPLETE_COMMIT
    return views.TransactionState.EMPTY if standing.why is txn.Why.INIT else views.TransactionState.COMPLETE_ABORT


def lost_parts(home: TransactionContext) -> Sequence[views.LostPart]:
    """Return the records that `Transactions.damaged` reports.

    Args:
        home: topics, groups and staged files.
    """
    known = home.cluster.groups.refresh()
    driver = EffectRunner(home, Deadline(home.cluster.clock, None))
    found = []
    for dues in known.unsettled.values():
        # One look at each topic serves all ids that have written to it.
        topic = next(iter(dues)).part.topic
        last: int | None = driver.run(looking(topic))
        for due in () if last is None else dues.between(last, known.seq):
            why = _why(home, driver, due)
            if why is not None:
                found.append(
                    views.LostPart(
                        transactional_id=due.transactional_id,
                        seq=due.seq,
                        topic=topic.name,
                        topic_id=topic.topic_id,
                        counts=due.part.counts,
                        why=why,
                    )
                )
    return sorted(found, key=lambda lost: (lost.seq, lost.topic))


def _why(home: TransactionContext, driver: EffectRunner, due: views.PendingDecision) -> str | None:
    try:
        check_part(home.staging, due.committed, due.part)
    except StagedFileError as error:
        last: int | None = driver.run(looking(due.part.topic))
        # Another process may just have applied it and removed the file.
        return None if last is None or last >= due.seq else str(error)
    return None


def _matching(names: Sequence[str], pattern: str) -> Sequence[str]:
    texts = pa.array(names, pa.string())
    try:
        # By itself as well, because brackets around it could complete it; Arrow checks no pattern over an empty array.
        pc.match_substring_regex(pa.array([""]), pattern)
        found = pc.match_substring_regex(texts, rf"\A(?:{pattern})\z")
    except pa.ArrowException as cause:
        raise IllegalArgumentError(f"{pattern!r} is not a regular expression: {cause}") from cause
    matching: list[str] = texts.filter(found).to_pylist()
    return matching
