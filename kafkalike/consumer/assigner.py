"""Assigner: the cluster's topics and the group's roster in, the partitions this consumer reads out."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Literal

from kafkalike.consumer.commits import Commits
from kafkalike.consumer.context import Context
from kafkalike.consumer.guard import Running
from kafkalike.consumer.positions import Positions
from kafkalike.consumer.subscription import Mode
from kafkalike.errors import FencedInstanceIdError, KafkaError, TopicDeletedError
from kafkalike.group.member import GroupMember
from kafkalike.group.pacemaker import Pacemaker
from kafkalike.model.group_roster import Roster
from kafkalike.model.structs import TopicPartition
from kafkalike.model.topic import TopicInfo

log = logging.getLogger(__name__)

Callback = Literal["on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost"]


class Assigner:
    """Keeps an assignment up with the cluster and, for a member of a group, with the group's roster."""

    def __init__(self, context: Context, commits: Commits, positions: Positions) -> None:
        config = context.config
        self._calling = Running()
        """The user's listener."""
        self.waiting = False
        """Whether other members have to give up first what this one is to own."""
        self._cluster = context.cluster
        self._subscription = context.subscription
        self._member = context.member
        self._pacemaker = Pacemaker(context.member, context.clock)
        self._config = config
        self._clock = context.clock
        self._metrics = context.metrics
        self._commits = commits
        self._positions = positions
        self._seen: int | None = None
        """Number of the metadata row up to which the assignment is right; None before the first one."""
        self._looked = 0.0
        self._generation: int | None = None
        """Generation whose assignment is held; None when it is to be taken anew."""
        self._joined = False
        """Whether an assignment was taken since the last joining."""
        self._greeted = False
        """Whether the listener has been called since the last joining."""
        self._fenced: FencedInstanceIdError | None = None
        self._untold: frozenset[TopicPartition] | None = None
        """Held, but not told to the listener yet, as an interrupt came between; None when all is told."""
        self._bound = -1
        """Changes of the subscription up to which partitions assigned by hand know their topics."""
        self._warned: set[str | TopicPartition] = set()

    @property
    def in_callback(self) -> bool:
        """Whether the user's listener is being called."""
        return self._calling.now

    def renew(self) -> None:
        """Look again at the next need. Caller: client, when partitions were assigned by hand."""
        self._seen = None

    def give_sign_of_life(self) -> None:
        """Tell the group that the application works. Caller: poll."""
        if self._member is not None:
            if not self._pacemaker.running:
                self._member.beat()
            self._member.polled()

    @property
    def lapsed(self) -> bool:
        """Whether what is held may be another member's by now: this one gave no heartbeat for its session."""
        return self._member is not None and self._subscription.automatic and self._member.lapsed

    @property
    def stale(self) -> bool:
        """Whether the last look is too old, or there is something to be done.

        A consumer that shares out a group looks at each poll, as often as its cluster's tail may be looked at: one that
        lived on its buffer would go on with records that another member reads as well. Others look again after
        `metadata_max_age_ms`.
        """
        if self._seen is None or self._subscription.changed or self.lapsed:
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
            FencedInstanceIdError: another process has this consumer's static name.
            InconsistentGroupProtocolError: the group's members have no assignor in common with this consumer.
            KafkaError: a listener failed, which is the cause.
        """
        try:
            self._look()
        except BaseException:
            # Whatever was done by half is compared with the cluster and done again.
            self._seen = self._generation = None
            raise

    def _look(self) -> None:
        state = self._cluster.metadata.refresh()
        self._looked = self._clock.monotonic()
        news = state.seq != self._seen
        if news:
            self._forget_deleted(state.topics)
        if self._subscription.mode is Mode.ASSIGNED:
            if news or self._bound != self._subscription.changes.count:
                self._bind(state.topics)
                self._bound = self._subscription.changes.count
        elif self._subscription.automatic:
            if news or self._subscription.changed:
                target = self._subscription.match(state.topics)
                self._await_missing(self._subscription.topics - state.topics.keys())
                if self._member is None:
                    self._take_all(target)
            if self._member is not None:
                self._follow(self._member)
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
                state.bind(info.topic_id)
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

    # --- subscribe, without a group ----------------------------------------------------------

    def _take_all(self, target: Mapping[TopicPartition, str]) -> None:
        """Read all partitions of the topics: give up what is held, take what is to be held."""
        held = {tp: state.topic_id for tp, state in self._subscription.items()}
        if held == target and not self._subscription.changed:
            _raise(self._tell())
            return
        failed = self._call("on_partitions_revoked", set(held))
        self._untold = frozenset(target)
        self._subscription.apply(target)
        self._metrics.rebalances += 1
        log.info("consumer %s: assigned %s partitions", self._config.client_id, len(target))
        _raise(self._tell() or failed)

    def _tell(self) -> Exception | None:
        """Call `on_partitions_assigned`, unless that was done."""
        if self._untold is None:
            return None
        failed = self._call("on_partitions_assigned", set(self._untold))
        self._untold = None
        return failed

    # --- subscribe, as a member of a group ---------------------------------------------------

    def _follow(self, member: GroupMember) -> None:
        """Be a member, and do what the group's roster asks for. Who is none any more finds out at the next look."""
        wanted = tuple(sorted(self._subscription.topics))
        roster = self._still_a_member(member)
        if roster is None:
            self._commits.forget()
            self._joined = self._greeted = False
            roster = member.try_join(wanted)
        else:
            roster = member.follow(roster, wanted)
        if roster is None or member.lapsed:
            return
        self._pacemaker.start()
        self._subscription.changed = False
        failed = self._give_up(member, roster)
        owed = member.owes(roster)
        if owed:
            roster = member.release(owed)
        if roster is not None:
            self.waiting = member.waits(roster)
            if roster.generation != self._generation:
                failed = self._take(member, roster) or failed
        _raise(failed)

    def _still_a_member(self, member: GroupMember) -> Roster | None:
        """The roster; None when this consumer has to join.

        Raises:
            FencedInstanceIdError: another process has its static name; also at every later poll.
        """
        was = member.membership
        try:
            roster = member.look()
        except FencedInstanceIdError as error:
            self._fenced = error
            self._pacemaker.stop()
            self._lose()
            raise
        if self._fenced is not None:
            raise self._fenced
        if roster is None and (was is not None or len(self._subscription)):
            # Without `was` it was noticed by an earlier look, which was interrupted.
            name = self._config.client_id if was is None else was.member_id
            log.warning("group %s: %s is no member any more; joining again", self._config.group_id, name)
            self._lose()
        return roster

    def _lose(self) -> None:
        """What was held is another member's by now."""
        held = set(self._subscription)
        failed = self._call("on_partitions_lost", held) if held else None
        self._subscription.apply({})
        self._subscription.changed = True
        self._generation = self._untold = None
        self.waiting = False
        _raise(failed)

    def _give_up(self, member: GroupMember, roster: Roster) -> Exception | None:
        """Commit, tell the listener, and hold no more what is owed.

        The listener of an eager member hears of it also when it has joined, with nothing: as in kafka-python.
        """
        owed = member.owes(roster)
        if not owed and (self._greeted or roster.cooperative):
            self._greeted = True
            return None
        held = {tp: state.topic_id or "" for tp, state in self._subscription.items()}
        going = {tp for tp in held if tp in owed or (owed and not roster.cooperative)}
        first = not self._greeted and not roster.cooperative
        failed = None
        if going or first:
            self._commits.commit_automatically()
            failed = self._call("on_partitions_revoked", going)
            self._subscription.apply({tp: topic_id for tp, topic_id in held.items() if tp not in going})
            self._generation = None
        self._greeted = True
        return failed

    def _take(self, member: GroupMember, roster: Roster) -> Exception | None:
        """Hold what the roster says is owned."""
        if member.lapsed:
            return None  # it was stopped since it looked: the next look says whether this is still so
        if self.waiting and not roster.cooperative:
            self._generation = roster.generation
            return None
        target = {tp: roster.topics[tp.topic][0] for tp in member.owned(roster) if tp.topic in roster.topics}
        held = {tp: state.topic_id for tp, state in self._subscription.items()}
        if held == target and self._joined:
            self._generation = roster.generation
            return self._tell()
        new = {tp for tp, topic_id in target.items() if held.get(tp) != topic_id}
        told_of = new | (set(self._untold or ()) & target.keys()) if roster.cooperative else target
        self._untold = frozenset(told_of)
        self._subscription.apply(target)
        self._generation = roster.generation
        self._joined = True
        self._metrics.rebalances += 1
        self._commits.restart_timer()
        log.info(
            "group %s: %s has %s partitions in generation %s",
            member.settings.group_id,
            self._config.client_id,
            len(target),
            roster.generation,
        )
        return self._tell()

    def release(self, timeout_ms: float | None = None) -> None:
        """Give partitions and membership up. Caller: client, at unsubscribe and close, after the last commit.

        A static member stays one until its session is over, so that it can come back.
        """
        held = set(self._subscription)
        failed = self._call("on_partitions_revoked", held) if self._subscription.automatic and held else None
        self._subscription.unsubscribe()
        self._commits.forget()
        self._positions.awaited.clear()
        self._seen = self._generation = None
        self._joined = self._greeted = self.waiting = False
        self._fenced = self._untold = None
        self._pacemaker.stop()
        if self._member is not None and self._config.group_instance_id is not None:
            self._member.forget()
        elif self._member is not None:
            self._member.leave(timeout_ms)
        _raise(failed)

    def _call(self, name: Callback, partitions: set[TopicPartition]) -> Exception | None:
        """Call the user's listener; returns what it raised, so that the change can be finished first."""
        listener = self._subscription.listener
        if listener is None:
            return None
        try:
            with self._calling:
                getattr(listener, name)(partitions)
        except Exception as cause:
            log.exception("listener %r failed in %s", listener, name)
            return cause
        return None


def _raise(cause: Exception | None) -> None:
    if cause is not None:
        raise KafkaError("the rebalance listener raised an error") from cause
