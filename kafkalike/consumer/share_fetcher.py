"""ShareFetcher: keeps the membership of a share consumer, and acquires and reads its records."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING
from zlib import crc32

from kafkalike import errors
from kafkalike.consumer.consumer_context import OpenedLogs, RootCheck
from kafkalike.consumer.poll_loop import HELP_MS, REST, SLOWEST, FolderWatch, TransientErrors
from kafkalike.consumer.share_delivery import (
    HeldRecords,
    ShareMetrics,
    ShareReader,
    ShareSlice,
    divided,
    record_count,
    refusal,
)
from kafkalike.consumer.share_letters import NO_LIMIT, Outcome, ShareLetters
from kafkalike.log.call_view import CallView
from kafkalike.log.group.group_config import RESET
from kafkalike.log.group.member import GroupMember, HeartbeatThread
from kafkalike.log.group.membership import KnownTopics
from kafkalike.log.group.share_group import (
    MOST_AHEAD,
    ShareGroup,
    later_ranges,
    limits_of,
    member_settings,
    start_of,
    undelivered,
)
from kafkalike.log.share_exchange import ShareSource, share_of
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.model.config.consumer_config import ShareConsumerConfig
from kafkalike.model.group_state import GroupsState
from kafkalike.model.record_batch import due_ms
from kafkalike.model.shares import share_partition as rules
from kafkalike.model.shares.share_partition import Acknowledgement, Acknowledgements, RecordRun, RecordVerdict
from kafkalike.model.structs import ConsumerRecord, ShareGroupMetadata, TopicPartition

if TYPE_CHECKING:
    from kafkalike.consumer.record_builders import Build
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog


log = logging.getLogger(__name__)

Tell = Callable[[Acknowledgements, errors.KafkaError | None], object]


class ShareFetcher:
    """Belongs to its consumer's thread.

    Args:
        cluster: the cluster of topics and groups.
        config: the consumer's settings.
        member_id: id of the member, under which it locks records for as long as the consumer lives.
        held: the records that it holds.
        build: makes records.
        clock: time.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ShareConsumerConfig,
        *,
        member_id: str,
        held: HeldRecords,
        build: Build,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._clock = clock
        self._held = held
        self._member_id = member_id
        self.topics: tuple[str, ...] = ()
        """Names of the subscribed topics, sorted."""
        self.metrics = ShareMetrics()
        self._letters: ShareLetters | None = None
        if config.errors_deadletterqueue_topic_name is not None:
            member = ShareGroupMetadata(str(config.group_id), member_id, NO_LIMIT)
            self._letters = ShareLetters(cluster, config, member=member, clock=clock)
        self._configure({})
        self._member = self._new_member()
        self._heartbeat = HeartbeatThread(self._member, clock)
        self._logs = OpenedLogs(cluster)
        self._reader = ShareReader(build, config.max_partition_fetch_bytes)
        self._watch = FolderWatch()
        self._root = RootCheck(cluster, clock, opened=config.bootstrap_servers is cluster)
        self._transient_errors = TransientErrors(clock, config.default_api_timeout_ms)
        self._slice = ShareSlice()
        self._own: dict[TopicPartition, list[Acknowledgement]] = {}
        """Acknowledgements of records that the application never got."""
        self._unsure = False
        """True if an interrupted call may have acquired records that it did not return."""
        self._failed: errors.KafkaError | None = None
        """Error of a record that the next call raises."""
        self._turn = crc32(member_id.encode())
        """Number of the next partition to begin with, so that the members begin with different ones."""
        self._warned: set[str] = set()

    def _configure(self, configs: Mapping[str, str]) -> None:
        """Apply the group's settings. A member keeps the session with which it has joined."""
        group_id = str(self._config.group_id)
        limits = limits_of(self._cluster.server, configs, self._config)
        deliveries = limits.deliveries
        if self._letters is not None:
            self._letters.most_deliveries, deliveries = deliveries, NO_LIMIT
            limits = replace(limits, archives=False)
        self.metadata = ShareGroupMetadata(group_id, self._member_id, deliveries)
        self.group = ShareGroup(self._cluster.groups, group_id, self._clock, limits)
        self._configs = configs

    def _new_member(self) -> GroupMember:
        settings = member_settings(self._config, self._configs)
        return GroupMember.of(self._cluster, settings, self._clock, member_id=self._member_id)

    # --- polling -------------------------------------------------------------------------------

    def wait(self, deadline: Deadline, most: int, tell: Tell) -> list[ConsumerRecord]:
        """Commit the pending acknowledgements, then acquire records, and wait for them if necessary.

        Args:
            deadline: until when to wait.
            most: most records.
            tell: told the outcomes of the acknowledgements.
        """
        clock, pause = self._clock, self._cluster.tail_interval
        self.metrics.polls += 1
        while True:
            begun = clock.monotonic()
            if handed := self._hand_out(most, begun):
                return handed
            self._raise_failure()
            records, worked = self._answered(most, tell, begun)
            if records:
                return records
            remaining = deadline.remaining()
            if worked and remaining > 0:
                continue
            if remaining <= 0:
                self._raise_failure()
                return []
            looked = clock.monotonic() - begun
            self._pause(min(pause * (0.5 + random.random()), remaining))  # noqa: S311 - so that workers look apart
            pause = min(pause * 1.5, max(self._cluster.tail_interval * SLOWEST, looked * REST))

    def _hand_out(self, most: int, now: float) -> list[ConsumerRecord]:
        """Return records of the last acquisition that the application has not got."""
        # After an interrupt, the next exchange returns the records that were taken from the slice and not noted.
        was_unsure, self._unsure = self._unsure, True
        handed = self._slice.take(most, self.topics, now, self.group.limits.lock_ms)
        by_place = groupby(handed, key=lambda one: (one[0].topic, one[0].partition, one[1]))
        for (topic, partition, count), own in by_place:
            self._held.note(TopicPartition(topic, partition), [record.offset for record, _ in own], count)
        self._unsure = was_unsure
        self.metrics.records_delivered += len(handed)
        return [record for record, _ in handed]

    def _give_back(self) -> None:
        """Return the records that were not handed out, with the next exchange."""
        for tp, acks in self._slice.give_back().items():
            self._own.setdefault(tp, []).extend(acks)

    def _raise_failure(self) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def _pause(self, seconds: float) -> None:
        if self._clock is not SYSTEM_CLOCK:
            self._clock.sleep(seconds)
            return
        self._watch.wait(self._logs.opened, seconds)

    def _answered(self, most: int, tell: Tell, begun: float) -> tuple[list[ConsumerRecord], bool]:
        try:
            found = self._once(most, tell, begun)
        except errors.KafkaError as error:
            if not self._transient_errors.is_transient(error, begun):
                raise
            return [], False
        self._transient_errors.over()
        return found

    def _once(self, most: int, tell: Tell, begun: float) -> tuple[list[ConsumerRecord], bool]:
        """Look once; return records, and whether there may be more work at once."""
        self._root.check(begun)
        view = CallView(self._cluster, begun)
        if not self._heartbeat.running:
            self._member.beat()
        self._member.polled(begun)
        if not self._follow(view):
            return [], False
        logs = self._opened(view)
        state = view.groups()
        if state.unsettled and self._cluster.transactions.help_waiting(list(logs.values()), state, HELP_MS):
            for each in logs.values():
                each.refresh(metadata=False)
        sources = self._sources(state, logs, min(self.group.limits.locks, max(MOST_AHEAD, most)))
        if self._held.has_idle:
            shares = self.group.shares(state)
            self._held.keep({tp: rules.owned(share, self._member_id) for tp, share in shares.items()})
        acks, outcomes = self._bury_rejected(self._held.acknowledgements(), logs)
        for outcome in outcomes:
            tell(*outcome)
        if not (acks or self._slice.records or self._own or self._unsure or self.group.is_ready(state, sources)):
            return [], False
        alone = self._config.share_acquire_mode == "record_limit"
        largest = most if alone else self.group.fair_share(state, sources)
        size = self._slice.size(most, largest, begun, self.group.limits.lock_ms)
        self._give_back()
        taken = self._exchange(acks, sources, size, tell)
        worked = bool(taken)
        if self._letters is not None:
            taken, count = self._letters.bury_exhausted(taken, logs)
            self.metrics.records_archived += count
        records = self._read(taken, logs)
        self._slice.fill(records, self.topics, begun, now := self._clock.monotonic())
        self._unsure = False
        return self._hand_out(most, now), worked

    def _exchange(
        self, acks: Acknowledgements, sources: Sequence[ShareSource], most: int, tell: Tell
    ) -> dict[TopicPartition, Sequence[RecordRun]]:
        was_unsure, self._unsure = self._unsure, True
        known = self._held.ranges() if was_unsure else None
        done = self.group.exchange(
            self._member_id,
            self._all(acks),
            sources,
            most=most,
            known=known,
            timeout_ms=self._config.default_api_timeout_ms,
        )
        self._own = {}
        for outcome in self._settled(acks, done.refused):
            tell(*outcome)
        self.metrics.records_archived += sum(run.size for runs in done.archived.values() for run in runs)
        for tp, runs in done.archived.items():
            log.warning(
                "share group %s: %s-%s: archived after %s deliveries: %s",
                self.group.group_id,
                *tp,
                self.group.limits.deliveries,
                ", ".join(f"{run.first}-{run.last}" for run in runs),
            )
        self.metrics.records_acquired += sum(run.size for runs in done.taken.values() for run in runs)
        return dict(done.taken)

    def _all(self, acks: Acknowledgements) -> dict[TopicPartition, Sequence[Acknowledgement]]:
        return {tp: [*acks.get(tp, ()), *self._own.get(tp, ())] for tp in {**acks, **self._own}}

    def _settled(self, acks: Acknowledgements, refused: Acknowledgements) -> list[Outcome]:
        """Drop finished records; return the outcomes of the application's acknowledgements."""
        good, bad = divided(acks, refused)
        self._held.settle(good)
        self._held.settle({tp: [a._replace(verdict=RecordVerdict.RETURN) for a in said] for tp, said in bad.items()})
        self.metrics.acknowledgements += record_count(good)
        self.metrics.acknowledgements_refused += record_count(bad)
        outcomes: list[Outcome] = [(good, None)] if good else []
        if bad:
            outcomes.append((bad, refusal(bad)))
        return outcomes

    # --- membership and topics -----------------------------------------------------------------

    def _follow(self, view: CallView) -> bool:
        """Join the group or follow it; return whether this consumer is a member."""
        member = self._member
        known = view.metadata(waiting=True)
        roster, configs = None, view.groups().configs.get(self.group.group_id, {})
        if configs != self._configs:
            self._configure(configs)
            if member.membership is None:
                member = self._member = self._new_member()
                self._heartbeat = HeartbeatThread(member, self._clock)
        if member.membership is not None:
            roster = member.look(view.groups().group(self.group.group_id).roster)
            if roster is None:
                # The same id, because it owns the locks.
                log.warning(
                    "share group %s: %s has lost its membership; joining again", self.group.group_id, self._member_id
                )
                self._heartbeat.stop()
                member = self._member = self._new_member()
                self._heartbeat = HeartbeatThread(member, self._clock)
        if roster is None:
            roster = member.try_join(self.topics)
            view.seen_groups = None
        else:
            roster = member.follow(roster, self.topics, KnownTopics(known.topics, known.seq))
        if roster is None:
            return False
        self._heartbeat.start()
        return True

    def _opened(self, view: CallView) -> dict[str, TopicLog]:
        """Return the logs of the subscribed topics that exist."""
        known = view.metadata(waiting=True).topics
        found = {}
        self._logs.ahead([topic for topic in self.topics if topic in known], view, waiting=True)
        for topic in self.topics:
            info = known.get(topic)
            if info is None:
                if topic not in self._warned:
                    self._warned.add(topic)
                    log.warning("topic %s does not exist; waiting for it", topic)
                continue
            found[topic] = self._logs.of(topic, info.topic_id, view, waiting=True)
        return found

    def _sources(self, state: GroupsState, logs: dict[str, TopicLog], ahead: int) -> list[ShareSource]:
        sources = []
        shares = self.group.shares(state)
        started = {(tp.topic, share.topic_id) for tp, share in shares.items()}
        for topic, each in logs.items():
            topic_id = each.info.topic_id
            for partition in each.info.partitions:
                tp = TopicPartition(topic, partition)
                initial = 0
                share = share_of(state, self.group.group_id, tp, topic_id)
                if share is None:
                    # A partition that was added later is read from its beginning.
                    initial = 0 if (topic, topic_id) in started else self._initial(each, partition)
                end = initial if share is None else share.end
                later = later_ranges(each, partition, end, self._clock.now_ms(), ahead)
                log_start, log_end = each.log_start(partition), each.log_end(partition)
                sources.append(ShareSource(tp, topic_id, log_start, log_end, initial, later))
        if not sources:
            return []
        self._turn += 1
        first = self._turn % len(sources)
        return sources[first:] + sources[:first]

    def _initial(self, each: TopicLog, partition: int) -> int:
        return start_of(each, partition, self._config.share_auto_offset_reset or self._configs.get(RESET), self._clock)

    # --- reading -------------------------------------------------------------------------------

    def _read(
        self, taken: dict[TopicPartition, Sequence[RecordRun]], logs: dict[str, TopicLog]
    ) -> list[tuple[ConsumerRecord, int]]:
        """Read acquired records, with their deliveries. The next exchange returns the undelivered ones."""
        records: list[tuple[ConsumerRecord, int]] = []
        own: dict[TopicPartition, list[Acknowledgement]] = {}
        now_ms, room = self._clock.now_ms(), self._config.fetch_max_bytes
        for tp, runs in taken.items():
            for run in runs:
                if room <= 0 or self._failed is not None:
                    own.setdefault(tp, []).append(Acknowledgement(run.first, run.last, RecordVerdict.RETURN))
                    continue
                found, after, error = self._reader.read(logs[tp.topic], tp, run, room)
                kept, undue = [], []
                for record in found:
                    due = due_ms(record.headers) if record.headers else 0
                    if due > now_ms:
                        undue.append((record.offset, (due,)))
                    else:
                        kept.append(record.delivered(run.deliveries))
                        room -= max(0, record.serialized_value_size) + max(0, record.serialized_key_size)
                self._failed = error
                own.setdefault(tp, []).extend(
                    undelivered(run, [record.offset for record in found], after, error, undue)
                )
                records += [(record, run.deliveries) for record in kept]
        self._own = {tp: acks for tp, acks in own.items() if acks}
        return records

    def _bury_rejected(
        self, acks: Acknowledgements, logs: Mapping[str, TopicLog]
    ) -> tuple[Acknowledgements, list[Outcome]]:
        """Write the letters of rejected records; return the other acknowledgements, and the outcomes of these."""
        if self._letters is None:
            return acks, []
        others, outcomes = self._letters.bury_rejected(acks, logs)
        for said, error in outcomes:
            self._held.settle(said)
            count = record_count(said)
            if error is None:
                self.metrics.acknowledgements += count
            else:
                self.metrics.acknowledgements_refused += count
        return others, outcomes

    # --- commits -------------------------------------------------------------------------------

    def commit(self, timeout_ms: float | None) -> list[Outcome]:
        """Commit the pending acknowledgements; return their outcomes."""
        logs = {str(each.info.name): each for each in self._logs.opened}
        acks, outcomes = self._bury_rejected(self._held.acknowledgements(), logs)
        if not acks:
            return outcomes
        try:
            done = self.group.exchange(self._member_id, self._all(acks), timeout_ms=timeout_ms)
        except errors.UnknownOutcomeError as error:
            self._held.settle(acks)
            return [*outcomes, (acks, error)]
        except errors.KafkaError as error:
            return [*outcomes, (acks, error)]
        self._own = {}
        return outcomes + self._settled(acks, done.refused)

    def leave(self, timeout_ms: float) -> list[Outcome]:
        """Commit the pending acknowledgements, release all other records, and leave the group.

        Raises:
            KafkaError: the group could not be left.
        """
        self._give_back()
        acks = self._held.acknowledgements()
        limit = None if timeout_ms == float("inf") else timeout_ms
        outcomes: list[Outcome] = []
        self._heartbeat.stop()
        try:
            if self._member.membership is not None or self._held or self._own or self._unsure:
                outcomes = self.commit(limit) if acks else []
                self.group.leave(self._member_id, self._own, limit)
        finally:
            self._held.clear()
            self._own, self._unsure, self._failed = {}, False, None
            if self._member.membership is not None:
                self._member.leave(limit)
                self._member = self._new_member()
                self._heartbeat = HeartbeatThread(self._member, self._clock)
        return outcomes

    def close(self, timeout_ms: float) -> None:
        """Close the files and threads."""
        self._heartbeat.stop()
        self._watch.close()
        self._reader.clear()
        if self._letters is not None:
            self._letters.close()
        self._logs.forget()
        self._cluster.settle(timeout_ms / 1000)
