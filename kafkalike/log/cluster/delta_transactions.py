"""Delta transactions: a cluster of Delta tables in, its transactions out; loaded by who asks for them."""

from __future__ import annotations

from collections.abc import Callable

from kafkalike.log.port import TopicLog
from kafkalike.log.topic.decided import DeltaDecided
from kafkalike.log.topic.topic_log import DeltaTopicLog
from kafkalike.log.transactions.staging import Staging
from kafkalike.log.transactions.tables import Home, TopicLogs
from kafkalike.log.transactions.transactions import ClusterTransactions
from kafkalike.model.group_state import GroupsState
from kafkalike.storage.port import Store


def transactions_of(
    cluster: TopicLogs, store: Store, look_at_groups: Callable[[], tuple[int, GroupsState]]
) -> ClusterTransactions:
    """Transactions over several topics and groups of a cluster.

    Args:
        cluster: its topics are Delta tables.
        store: the root's files.
        look_at_groups: looks for new rows of the groups; returns the table's version and their state.
    """
    return ClusterTransactions(
        Home(cluster=cluster, decided=_decided, staging=Staging(store), look_at_groups=look_at_groups)
    )


def _decided(log: TopicLog) -> DeltaDecided:
    assert isinstance(log, DeltaTopicLog)
    return DeltaDecided(log)
