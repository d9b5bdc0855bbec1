"""Tables: what bringing decisions into topics asks of a cluster; one of tables and one in memory answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kafkalike.delta.control_log import ControlLog
    from kafkalike.log.topic.decided import DecidedRecords
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.log.transactions.staging import Staging
    from kafkalike.model.appends import Appended
    from kafkalike.model.clock import Clock, Deadline
    from kafkalike.model.cluster_state import ClusterState
    from kafkalike.model.config.server import ServerConfig
    from kafkalike.model.group_state import GroupRow, GroupsState
    from kafkalike.model.metadata_rows import MetadataRow
    from kafkalike.model.transactions.values import WriteName
    from kafkalike.model.transactions.views import TopicCut


class DecidedLog(Protocol):
    """Decisions in one topic. All may raise `TopicDeletedError`."""

    @property
    def last(self) -> int:
        """The last decision that it is known to have; 0 for none."""
        ...

    def look(self) -> int:
        """The last decision that it has now."""
        ...

    def bring(self, seq: int, payload: DecidedRecords, deadline: Deadline, also: WriteName | None) -> Appended:
        """Append a decision, unless the topic has it or a later one.

        Args:
            seq: its number.
            payload: the records.
            deadline: until when to try.
            also: what its application calls it; the topic notes that, too.

        Raises:
            LogCorruptError: the payload cannot be read; nothing was written. And see `TopicLog.append`.
        """
        ...

    def where(self, seq: int) -> Appended:
        """Where the records of a decision are that the topic has; without ranges where its log has forgotten them."""
        ...

    def as_of(self, seq: int) -> TopicCut | None:
        """The newest version without decisions after one; None when the log cannot say it any more."""
        ...


class TopicLogs(Protocol):
    """A cluster."""

    @property
    def root(self) -> str:
        """What it is called."""
        ...

    @property
    def server(self) -> ServerConfig:
        """Server defaults."""
        ...

    @property
    def clock(self) -> Clock:
        """Time."""
        ...

    @property
    def metadata(self) -> ControlLog[ClusterState, MetadataRow]:
        """Topics."""
        ...

    @property
    def groups(self) -> ControlLog[GroupsState, GroupRow]:
        """Groups and transactions."""
        ...

    def log(self, name: str) -> TopicLog:
        """Open the log of a topic."""
        ...


Decided = Callable[["TopicLog"], DecidedLog]
"""The decisions of a topic, by its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where transactions take place."""

    cluster: TopicLogs
    """Topics and groups."""
    decided: Decided
    """Decisions of a topic."""
    staging: Staging
    """Staged files."""
    look_at_groups: Callable[[], tuple[int, GroupsState]]
    """Looks at the groups' table; its version, and its state."""
