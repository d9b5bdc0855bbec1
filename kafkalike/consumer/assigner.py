"""Assigner: derives this consumer's partitions from the cluster's topics and the group's roster.

`kafkalike.model.groups.assignment` has the rules; this module carries out their acts.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import assert_never

from kafkalike.consumer.consumer_context import ConsumerContext
from kafkalike.consumer.offset_commits import OffsetCommits, StartPositions
from kafkalike.consumer.subscription import Mode
from kafkalike.errors import FencedInstanceIdError, IllegalStateError, KafkaError, TopicDeletedError
from kafkalike.log.call_view import CallView
from kafkalike.log.group.member import GroupMember, HeartbeatThread
from kafkalike.log.group.membership import KnownTopics
from kafkalike.model.concurrency import ActiveBlock, ReportErrors
from kafkalike.model.group_state import GroupsState
from kafkalike.model.groups import assignment
from kafkalike.model.groups.partition_split import family
from kafkalike.model.groups.roster import Roster
from kafkalike.model.structs import TopicPartition
from kafkalike.model.topic import TopicInfo

log = logging.getLogger(__name__)


class Assigner:
    """Keeps the assignment up to date with the cluster and, for a member of a group, with the group's roster."""

    def __init__(self, context: ConsumerContext, commits: OffsetCommits, positions: StartPositions) -> None:
        config = context.config
        self._phase: assignment.Phase = assignment.Unassigned()
        """The phase of the assignment. Replaced before its acts are carried out."""
        self._calling = ActiveBlock()
        """Active while the user's listener runs."""
        self._cluster = context.cluster
        self._logs = context.logs
        self._subscription = context.subscription
        self._member = context.member
        self._heartbeat = HeartbeatThread(context.member, context.clock)
        self._config = config
        self._clock = context.clock
        self._metrics = context.metrics
        self._commits = commits
        self._positions = positions
        self._followed: Roster | None = None
        """The roster that needed no further acts; None if acts may be due."""
        self._groups: GroupsState | None = None
        """The state of the groups in which that roster was found."""
        self._seen: int | None = None
        """Number of the metadata row that the assignment is based on; None if a look is due."""
        self._begun = False
        self._looked = 0.0
        self._asked = 0.0
        """Time of the last look that surely asked the storage about the topics."""
        self._bound = -1
        """Subscription changes up to which manually assigned partitions know their topics."""
        self._warned: set[str | TopicPartition] = set()

    @property
    def waiting(self) -> bool:
        """True while other members must still give up partitions for this one. Any thread may ask."""
        return self._phase.waits

    def refuse_in_callback(self, call: str) -> None:
        """Prevent a rebalance listener from calls that change the assignment.

        Raises:
            IllegalStateError: the listener is running.
        """
        if self._calling.now:
            raise IllegalStateError(f"a rebalance listener cannot {call}")

    def renew(self) -> None:
        """Make the next call look again. Caller: client, after a manual assignment."""
        self._seen = None

    def send_heartbeat(self, now: float) -> None:
        """Record that the application is alive at a time (s of the monotonic clock). Caller: poll."""
        if self._member is not None:
            if not self._heartbeat.running:
                self._member.beat()
            self._member.polled(now)

    @property
    def lapsed(self) -> bool:
        """True if another member may own these partitions, because this one missed its session timeout."""
        return self._member is not None and self._subscription.automatic and self._member.lapsed

    def is_stale(self, now: float) -> bool:
        """Return True if the last look is too old at a time (s of the monotonic clock), or a rebalance is unfinished.

        A consumer of a shared group looks at each poll, as often as its cluster allows. If it only read from its
        buffer, it could continue with records that another member reads, too. Other consumers look again after
        `metadata_max_age_ms`.
        """
        if self._seen is None or self._subscription.changed or self.lapsed:
            return True
        in_group = self._subscription.automatic and self._config.group_id is not None
        if in_group and not assignment.settled(self._phase):
            return True
        oldest = self._cluster.tail_interval if in_group else self._config.metadata_max_age_ms / 1000
        return now - self._looked >= oldest

    def look(self, view: CallView) -> None:
        """Compare the assignment with the cluster, and update it if they differ.

        Caller: client, in poll and position. Changes: subscription, membership.

        Args:
            view: the call's.

        Raises:
            TopicDeletedError: a topic of the assignment was deleted or recreated; raised once. Its positions are
                forgotten, and the next look continues with the existing topics.
            FencedInstanceIdError: another process has this consumer's static name.
            InconsistentGroupProtocolError: the group's members have no assignor in common with this consumer.
            KafkaError: a listener failed, which is the cause.
        """
        # Reset until this look is complete, so that an interrupted look is repeated.
        seen, self._seen = self._seen, None
        self._looked = view.now
        waiting = self._looked - self._asked < self._config.metadata_max_age_ms / 1000
        if seen is None or self._subscription.changed or not waiting:
            waiting, self._asked = False, self._looked
        if not self._begun:
            # The metadata read at the client's start may be used once, but not for the next look.
            self._begun, self._asked = True, -math.inf
        state = view.metadata(waiting=waiting)
        news = state.seq != seen
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
                self._follow(self._member, view, news=news)
        self._seen = state.seq

    def _forget_deleted(self, topics: Mapping[str, TopicInfo]) -> None:
        self._follow_repartitions(topics)
        for tp, state in self._subscription.items():
            now = topics.get(tp.topic)
            if state.topic_id is not None and (now is None or now.topic_id != state.topic_id):
                error = TopicDeletedError(tp.topic, state.topic_id, None if now is None else now.topic_id)
                self._subscription.forget_topic(tp.topic)
                raise error

    def _follow_repartitions(self, topics: Mapping[str, TopicInfo]) -> None:
        """Go on with topics that were repartitioned: positions stay, and apply to the new partitions of the family.

        Raises:
            IllegalStateError: partitions were assigned by hand, so records that moved would not be read; raised once.
        """
        moved: dict[str, TopicInfo] = {}
        for tp, state in self._subscription.items():
            now = topics.get(tp.topic)
            before = None if now is None or state.topic_id is None else now.partitions_as(state.topic_id)
            if now is None or before is None:
                continue
            moved[tp.topic] = now
            for partition in family(tp.partition, before, now.num_partitions):
                if state.position is not None:
                    self._positions.carried[TopicPartition(tp.topic, partition), now.topic_id] = state.position
            # Last: an interrupted look is repeated.
            state.bind(now.topic_id)
        for name, now in moved.items():
            log.info("%s was repartitioned and has %s partitions", name, now.num_partitions)
        if moved and self._subscription.mode is Mode.ASSIGNED:
            name, now = next(iter(moved.items()))
            raise IllegalStateError(
                f"topic {name!r} was repartitioned and has {now.num_partitions} partitions: records of the assigned "
                "partitions have moved, at the same offsets, to those whose number has the old one as its remainder; "
                "assign them, too, and seek to the positions of the old ones"
            )

    # --- assign --------------------------------------------------------------------------------

    def _bind(self, topics: Mapping[str, TopicInfo]) -> None:
        """Record the topic ids of manually assigned partitions."""
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
        """Remember missing topics that were requested by name, and warn once about each."""
        for topic in sorted(topics):
            if topic not in self._warned:
                self._warned.add(topic)
                log.warning("topic %s does not exist; waiting for it", topic)
            if self._config.allow_auto_create_topics:
                self._positions.awaited.add(topic)

    # --- subscribe -------------------------------------------------------------------------------

    def _take_all(self, target: Mapping[TopicPartition, str]) -> None:
        """Take all partitions of the topics, for a consumer without a group."""
        subscription = self._subscription
        _raise(self._do(self._enter(assignment.Matched(target, subscription.held, subscription.changed))))

    def _follow(self, member: GroupMember, view: CallView, *, news: bool) -> None:
        """Join the group, and do the acts that its roster requires. A removed member finds out at the next look.

        Args:
            member: this consumer.
            view: the call's.
            news: True if the topics may have changed since the last look.
        """
        groups, news = view.groups(), news or self._subscription.changed
        # States and rosters are values: if they are the same ones, nothing has happened.
        if groups is self._groups and not news and member.membership is not None and not member.lapsed:
            return
        roster, self._groups = self._still_a_member(member, groups), None
        if roster is not None and roster is self._followed and not news:
            self._groups = groups
            return
        self._followed = None
        wanted = tuple(sorted(self._subscription.topics))
        if roster is None:
            self._commits.forget()
            roster = member.try_join(wanted)
        else:
            state = view.metadata(waiting=True)
            roster = member.follow(roster, wanted, KnownTopics(state.topics, state.seq))
        if roster is None or member.lapsed:
            return
        self._heartbeat.start()
        self._subscription.changed = False
        failed = None
        # A member whose session has lapsed must not act on an old roster: the next look decides.
        while roster is not None and not member.lapsed:
            match self._enter(assignment.RosterSeen(roster, member.member_id, self._subscription.held)):
                case ():
                    if assignment.settled(self._phase):
                        self._followed = roster
                    break
                case (assignment.Release(given_up),):
                    roster = member.release(given_up)
                case acts:
                    failed = self._do(acts) or failed
        _raise(failed)

    def _still_a_member(self, member: GroupMember, groups: GroupsState) -> Roster | None:
        """Return the roster; None if this consumer has to join.

        Raises:
            FencedInstanceIdError: another process has its static name; also at every later poll.
        """
        was = member.membership
        try:
            roster = None if was is None else member.look(groups.group(was.group_id).roster)
        except FencedInstanceIdError as error:
            acts = self._enter(assignment.TakenOver(error, self._subscription.held))
            member.forget()
            self._heartbeat.stop()
            _raise(self._do(acts))
            raise
        if roster is not None:
            return roster
        held = self._subscription.held
        if not isinstance(self._phase, assignment.Fenced) and (was is not None or held):
            # Without `was`, an earlier look noticed it and was interrupted.
            name = self._config.client_id if was is None else was.member_id
            log.warning("group %s: %s has lost its membership; joining again", self._config.group_id, name)
        _raise(self._do(self._enter(assignment.NotAMember(held))))
        if isinstance(self._phase, assignment.Fenced):
            raise self._phase.error
        return None

    def release(self, timeout_ms: float | None = None) -> None:
        """Give up partitions and membership. Caller: client, at unsubscribe and close, after the last commit.

        A static member stays a member until its session expires, so that it can return.
        """
        held = frozenset(self._subscription)
        failed = None
        if self._subscription.automatic and held:
            failed = self._call(assignment.CallListener("on_partitions_revoked", held))
        self._subscription.unsubscribe()
        self._commits.forget()
        self._positions.awaited.clear()
        self._seen = self._followed = self._groups = None
        self._phase = assignment.Unassigned()
        self._heartbeat.stop()
        if self._member is not None and self._config.group_instance_id is not None:
            self._member.forget()
        elif self._member is not None:
            self._member.leave(timeout_ms)
        _raise(failed)

    # --- what the rule says ------------------------------------------------------------------------

    def _enter(self, event: assignment.Event) -> assignment.Acts:
        """Replace the phase; return the acts of the new one."""
        self._phase, acts = assignment.step(self._phase, event)
        return acts

    def _do(self, acts: assignment.Acts) -> Exception | None:
        """Do all acts; return the last error of the user's listener."""
        failed = None
        for act in acts:
            match act:
                case assignment.CommitPositions():
                    self._commits.commit_automatically()
                case assignment.CallListener():
                    failed = self._call(act) or failed
                case assignment.HoldPartitions(target):
                    self._subscription.apply(target)
                case assignment.Take(target):
                    self._take(target)
                case assignment.Release():
                    raise AssertionError(act)  # it makes another roster: see `_follow`
                case _ as never:
                    assert_never(never)
        if acts:
            self._enter(assignment.Done())
        return failed

    def _take(self, target: assignment.Held) -> None:
        self._subscription.apply(target)
        self._metrics.rebalances += 1
        member, phase = self._member, self._phase
        if member is None or not isinstance(phase, assignment.Assigning):
            log.info("consumer %s: assigned %s partitions", self._config.client_id, len(target))
            return
        self._commits.restart_timer()
        log.info(
            "group %s: %s has %s partitions in generation %s",
            member.settings.group_id,
            self._config.client_id,
            len(target),
            phase.generation,
        )

    def _call(self, call: assignment.CallListener) -> Exception | None:
        """Call the user's listener; return its error, so that the caller can finish the change first."""
        listener = self._subscription.listener
        if listener is None:
            return None
        with ReportErrors(log, "listener %r failed in %s", listener, call.name) as reported, self._calling:
            getattr(listener, call.name)(set(call.partitions))
        return reported.error


def _raise(cause: Exception | None) -> None:
    if cause is not None:
        raise KafkaError("the rebalance listener raised an error") from cause
