"""Transactions of a cluster: see `kafkalike.log.port.Transactions`."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from kafkalike.errors import (
    IllegalArgumentError,
    InvalidProducerEpochError,
    InvalidTransactionTimeoutError,
    KafkaError,
)
from kafkalike.log.port.topic import TopicLog
from kafkalike.log.transactions.describing import describe
from kafkalike.log.transactions.driver import Driver, Held
from kafkalike.log.transactions.lost import lost_parts
from kafkalike.log.transactions.session import Session
from kafkalike.log.transactions.tables import Home
from kafkalike.model.clock import Deadline
from kafkalike.model.group_state import GroupsState
from kafkalike.model.names import check_topic_name, check_transactional_id, is_storable
from kafkalike.model.transactions import course, settling, upkeep
from kafkalike.model.transactions.unsettled import Due
from kafkalike.model.transactions.values import Attempt, Standing, Topic, Why
from kafkalike.model.transactions.views import (
    Cut,
    LostPart,
    ProducerIdAndEpoch,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)

_log = logging.getLogger(__name__)

OWNER_FIRST_MS: Final = 1_000
"""How long, ms, a decision is left to its producer, by the clock of whoever looks. One whose time is further in the
future says nothing: its producer's clock was wrong."""

NEAR_LOOK_SECONDS: Final = 1.0
FAR_LOOK_SECONDS: Final = 10.0
"""Seconds between two looks of readers who wait for records; longer where a look is a request that costs money."""

AFTER_FAILURE_SECONDS: Final = 60.0
"""The same after a look that failed: what others have to mend is not tried all the time."""


class ClusterTransactions:
    """See `Transactions`.

    Args:
        home: topics, groups and staged files.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._cluster = home.cluster
        self._staging = home.staging
        # A reader of a far root who comes and goes looks at no table that it would not look at else.
        self._looked = home.cluster.clock.monotonic() if home.staging.far else -math.inf
        self._failed: dict[str, float] = {}
        """When a reader could not bring decisions into a topic, by its id."""

    def _driver(self, deadline: Deadline, held: Held | None = None) -> Driver:
        return Driver(self._home, deadline, held)

    # --- producers ---------------------------------------------------------------------------------

    def begin_session(
        self,
        transactional_id: str,
        timeout_ms: int,
        client_id: str,
        deadline: Deadline,
        *,
        longest_ms: int | None = None,
    ) -> Session:
        """See `Transactions.begin_session`."""
        check_transactional_id(transactional_id)
        if not is_storable(client_id):
            raise IllegalArgumentError(f"client_id {client_id!r} is no valid text")
        most = int(self._cluster.server.get("transaction.max.timeout.ms")) if longest_ms is None else longest_ms
        if not 1 <= timeout_ms <= most:
            raise InvalidTransactionTimeoutError(
                f"transaction_timeout_ms={timeout_ms} is not from 1 to {most}, the longest that is allowed"
            )
        standing: Standing = self._driver(deadline).run(
            course.beginning(transactional_id, timeout_ms=timeout_ms, client_id=client_id)
        )
        return Session(transactional_id, standing, self._staging, self._driver, self._cluster.clock)

    # --- readers -----------------------------------------------------------------------------------

    def help(self, logs: Collection[TopicLog], deadline: Deadline, *, waiting: bool = False) -> bool:
        """See `Transactions.help`."""
        if not waiting:
            return self._help(logs, self._cluster.groups.refresh(), deadline)
        now = self._cluster.clock.monotonic()
        due = now - self._looked >= (FAR_LOOK_SECONDS if self._staging.far else NEAR_LOOK_SECONDS)
        if due:
            self._looked = now
        try:
            # Each reader looks for its own topics in what one of them has seen.
            known = self._cluster.groups.refresh(waiting=True) if due else self._cluster.groups.state
            return self._help([log for log in logs if self._may_try(log, now)], known, deadline)
        except KafkaError as error:
            self._failed |= {log.info.topic_id: now for log in logs}
            _log.warning("%s: decided transactions were not brought into topics: %s", self._cluster.root, error)
            return False

    def _may_try(self, log: TopicLog, now: float) -> bool:
        return now - self._failed.get(log.info.topic_id, -math.inf) >= AFTER_FAILURE_SECONDS

    def _help(self, logs: Collection[TopicLog], known: GroupsState, deadline: Deadline) -> bool:
        late: dict[Topic, int] = {}
        held = Held()
        now_ms = self._cluster.clock.now_ms()
        for log in logs:
            topic_id = log.info.topic_id
            missing = settling.pending(known, topic_id, log.last_transaction, known.seq)
            old = [due.seq for due in missing if _left_alone(due, now_ms)]
            if old:
                late[Topic(log.info.name, topic_id)] = max(old)
                held.logs[topic_id] = log
        if not late:
            return False
        problems: Sequence[KafkaError] = self._driver(deadline, held).run(settling.helping(late, known))
        for problem in problems:
            raise problem
        return True

    def cut(self, topics: Collection[str], deadline: Deadline) -> Cut:
        """See `Transactions.cut`."""
        state = self._cluster.metadata.refresh()
        wanted = [Topic(info.name, info.topic_id) for info in (state.require(check_topic_name(n)) for n in topics)]
        driver = self._driver(deadline)
        known, found = driver.run(settling.cutting(wanted))
        return Cut(
            seq=known.seq,
            groups_version=driver.versions[known.seq],
            topics={topic.name: cut for topic, cut in zip(wanted, found, strict=True)},
        )

    # --- people and maintenance --------------------------------------------------------------------

    def listed(self) -> Sequence[TransactionListing]:
        """See `Transactions.listed`."""
        known = describe(self._home)
        return [
            TransactionListing(transactional_id=name, producer_id=found.producer_id, state=found.state)
            for name, found in sorted(known.items())
        ]

    def described(
        self, transactional_ids: Collection[str], *, staged: bool = False
    ) -> Mapping[str, TransactionDescription]:
        """See `Transactions.described`."""
        return describe(self._home, set(transactional_ids), staged=staged)

    def open_for(self) -> Sequence[TransactionDescription]:
        """See `Transactions.open_for`."""
        found = describe(self._home).values()
        return sorted((d for d in found if d.state is TransactionState.ONGOING), key=lambda d: d.start_ms)

    def fence(self, transactional_id: str, deadline: Deadline, only: ProducerIdAndEpoch | None = None) -> int:
        """See `Transactions.fence`."""
        # A number above all others: whatever is open in this epoch.
        attempt = None if only is None else Attempt(only.producer_id, only.epoch, sys.maxsize)
        standing: Standing | None = self._driver(deadline).run(course.fencing(transactional_id, Why.ADMIN, attempt))
        if standing is None:
            raise InvalidProducerEpochError(
                f"transactional id {transactional_id!r} has another producer by now: that transaction is over"
            )
        return standing.epoch

    def maintain(self, deadline: Deadline) -> Sequence[str]:
        """See `Transactions.maintain`."""
        expiration_ms = int(self._cluster.server.get("transactional.id.expiration.ms"))
        todo = upkeep.maintaining(expiration_ms, self._cluster.clock.now_ms())
        problems: Sequence[KafkaError] = self._driver(deadline).run(todo)
        self._staging.remove_empty()
        return [f"{type(problem).__name__}: {problem}" for problem in problems]

    def damaged(self) -> Sequence[LostPart]:
        """See `Transactions.damaged`."""
        return lost_parts(self._home)

    def leave_out(self, lost: LostPart, deadline: Deadline) -> bool:
        """See `Transactions.leave_out`."""
        return bool(self._driver(deadline).run(upkeep.leaving_out(lost)))


def _left_alone(due: Due, now_ms: int) -> bool:
    """Whether a decision was made so long ago that its producer may be gone."""
    return abs(now_ms - due.changed_ms) >= OWNER_FIRST_MS
