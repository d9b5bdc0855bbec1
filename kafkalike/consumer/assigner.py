"""Assigner: the cluster's topics and the group's holder in, the partitions this consumer reads out."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import Literal

from kafkalike.consumer.commits import Commits
from kafkalike.consumer.context import Context
from kafkalike.consumer.positions import Positions
from kafkalike.consumer.subscription import Mode
from kafkalike.errors import KafkaError, TopicDeletedError
from kafkalike.group.offsets import holds
from kafkalike.model.structs import TopicPartition
from kafkalike.model.topic import TopicInfo

log = logging.getLogger(__name__)

Callback = Literal["on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost"]


class Assigner:
    """Keeps an assignment up with the cluster.

    A group has one member, which gets all partitions of its topics. Whoever polls first takes the group over; the
    member before it notices at its next look, loses its partitions, and stands by until the group is free again.
    """

    def __init__(self, context: Context, commits: Commits, positions: Positions) -> None:
        config = context.config
        self.in_callback = False
        """Whether the user's listener is being called."""
        self.member_id = f"{config.group_instance_id or config.client_id}-{uuid.uuid4()}"
        self._cluster = context.cluster
        self._subscription = context.subscription
        self._offsets = context.offsets
        self._config = config
        self._clock = context.clock
        self._metrics = context.metrics
        self._commits = commits
        self._positions = positions
        self._seen: int | None = None
        """Number of the metadata row up to which the assignment is right; None before the first one."""
        self._looked = 0.0
        self._standby = False
        self._warned: set[str | TopicPartition] = set()

    def renew(self) -> None:
        """Look again at the next need. Caller: client, when partitions were assigned by hand."""
        self._seen = None

    @property
    def stale(self) -> bool:
        """Whether the last look is too old, or there is something to be done.

        A consumer that shares out a group looks at each poll, as often as its cluster's tail may be looked at: one that
        lived on its buffer would go on with records that another member reads as well. Others look again after
        `metadata_max_age_ms`.
        """
        if self._seen is None or self._subscription.changed:
            return True
        in_group = self._subscription.automatic and self._config.group_id is not None
        oldest = self._cluster.tail_interval if in_group else self._config.metadata_max_age_ms / 1000
        return self._clock.monotonic() - self._looked >= oldest

    def look(self) -> None:
        """Compare the assignment with the cluster, and change it where it differs.

        Caller: client, in poll and position. Changes: subscription, membership.

        Raises:
            TopicDeletedError: a topic that was read is gone or another one by now; raised once. Its positions are
                forgotten, and the next look goes on with what there is.
            KafkaError: a listener failed, which is the cause.
        """
        state = self._cluster.metadata.refresh()
        self._looked = self._clock.monotonic()
        news = state.seq != self._seen
        if news:
            self._forget_deleted(state.topics)
        if self._subscription.mode is Mode.ASSIGNED:
            self._bind(state.topics)
        elif self._subscription.automatic and self._hold_group() and (news or self._subscription.changed):
            target = self._subscription.match(state.topics)
            self._await_missing(self._subscription.topics - state.topics.keys())
            self._rebalance(target)
        self._seen = state.seq

    def _forget_deleted(self, topics: Mapping[str, TopicInfo]) -> None:
        for tp, state in self._subscription.items():
            now = topics.get(tp.topic)
            if state.topic_id is not None and (now is None or now.topic_id != state.topic_id):
                error = TopicDeletedError(tp.topic, state.topic_id, None if now is None else now.topic_id)
                self._subscription.forget_topic(tp.topic)
                raise error

    # --- assign --------------------------------------------------------------------------------

    def _bind(self, topics: Mapping[str, TopicInfo]) -> None:
        """Tell partitions that were assigned by hand which topic they are of."""
        missing = set()
        for tp, state in self._subscription.items():
            if state.topic_id is not None:
                continue
            info = topics.get(tp.topic)
            if info is None:
                missing.add(tp.topic)
            elif tp.partition in info.partitions:
                state.topic_id = info.topic_id
            elif tp not in self._warned:
                self._warned.add(tp)
                log.warning("%s has no partition %s; waiting for it", tp.topic, tp.partition)
        self._await_missing(missing)

    def _await_missing(self, topics: set[str]) -> None:
        """Remember and say once that topics that were asked for by name do not exist yet."""
        for topic in sorted(topics):
            if topic not in self._warned:
                self._warned.add(topic)
                log.warning("topic %s does not exist; waiting for it", topic)
            if self._config.allow_auto_create_topics:
                self._positions.awaited.add(topic)

    # --- subscribe -----------------------------------------------------------------------------

    def _hold_group(self) -> bool:
        """Whether this consumer holds its group, joining it if need be. True when there is no group."""
        group_id = self._config.group_id
        if group_id is None:
            return True
        groups = self._offsets.groups.refresh()
        member = self._commits.membership
        if member is not None:
            if holds(groups, member):
                return True
            self._lose(group_id)
            groups = self._offsets.groups.refresh()
        if self._standby and groups.group(group_id).members:
            return False
        self._commits.membership = self._offsets.join(group_id, self.member_id, self._config.client_id)
        self._commits.forget()
        self._standby = False
        self._subscription.changed = True
        log.info("group %s: joined in generation %s", group_id, self._commits.membership.generation)
        return True

    def _lose(self, group_id: str) -> None:
        """Another member has taken the group over."""
        log.warning("group %s: another member took it over; its partitions are lost, standing by", group_id)
        held = set(self._subscription)
        self._commits.membership = None
        self._standby = True
        failed = self._call("on_partitions_lost", held) if held else None
        self._subscription.apply({})
        self._subscription.changed = True
        _raise(failed)

    def _rebalance(self, target: Mapping[TopicPartition, str]) -> None:
        """Give up what is held, take what is to be held. In Kafka's order; see `ConsumerRebalanceListener`."""
        held = {tp: state.topic_id for tp, state in self._subscription.items()}
        if held == target and not self._subscription.changed:
            return
        self._commits.commit_automatically()
        failed = self._call("on_partitions_revoked", set(held))
        self._subscription.apply(target)
        self._metrics.rebalances += 1
        self._commits.restart_timer()
        log.info("consumer %s: assigned %s partitions", self._config.client_id, len(target))
        _raise(self._call("on_partitions_assigned", set(target)) or failed)

    def release(self, timeout_ms: float | None = None) -> None:
        """Give partitions and group up. Caller: client, at unsubscribe and close, after the last commit."""
        held = set(self._subscription)
        failed = self._call("on_partitions_revoked", held) if self._subscription.automatic and held else None
        member, self._commits.membership = self._commits.membership, None
        self._subscription.unsubscribe()
        self._commits.forget()
        self._positions.awaited.clear()
        self._seen = None
        self._standby = False
        if member is not None:
            self._offsets.leave(member, timeout_ms)
        _raise(failed)

    def _call(self, name: Callback, partitions: set[TopicPartition]) -> Exception | None:
        """Call the user's listener; returns what it raised, so that the change can be finished first."""
        listener = self._subscription.listener
        if listener is None:
            return None
        self.in_callback = True
        try:
            getattr(listener, name)(partitions)
        except Exception as cause:
            log.exception("listener %r failed in %s", listener, name)
            return cause
        finally:
            self.in_callback = False
        return None


def _raise(cause: Exception | None) -> None:
    if cause is not None:
        raise KafkaError("the rebalance listener raised an error") from cause
