"""Share sessions: fetches and acknowledgements of clients that are members of share groups, by KIP-932.

The locks are in the table of groups, so any gateway may continue after any other. Only the share sessions are in
memory: a client whose session is unknown makes a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalike import errors
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.api_versions import Answer
from kafkalike.gateway.error_codes import DONE, NONE, Outcome, attempt
from kafkalike.gateway.gateway_cluster import Call, GatewayCluster, Handler, Reply
from kafkalike.gateway.handlers.record_fetcher import ANSWER_BYTES, MAX_WAIT_SECONDS
from kafkalike.gateway.handlers.topic_tails import CHUNK_BYTES, TopicTails
from kafkalike.log.group.share_group import ShareGroup, ranges, undelivered
from kafkalike.log.share_exchange import ShareSource
from kafkalike.log.wire.record_encoder import encode
from kafkalike.model.group_state import GroupsState
from kafkalike.model.record_batch import due_ms
from kafkalike.model.shares.share_partition import Acknowledgement, RecordRun, RecordVerdict
from kafkalike.model.shares.share_runs import merged_offsets
from kafkalike.model.structs import AcknowledgeType, TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog

logger = logging.getLogger(__name__)

MOST_RECORDS: Final = 500
"""Most records that one ShareFetch acquires, whatever the client allows."""

MAX_SHARE_SESSIONS: Final = 10_000
MAX_PLACES: Final = 500_000
MAX_SESSION_PLACES: Final = 10_000
"""Share sessions, partitions in all of them, and partitions in a session. Beyond them, the oldest sessions end."""

LOOK_SECONDS: Final = 0.25
"""Time between two looks of a waiting ShareFetch for locks that have ended."""

FINAL_EPOCH: Final = -1

VERDICTS: Final = {0: RecordVerdict.REJECT, **{int(kind): RecordVerdict(kind.name.lower()) for kind in AcknowledgeType}}
"""Verdicts by Kafka's ids; 0 is a gap that compaction has left."""

UNKNOWN_TOPIC: Final = Outcome.of(errors.UnknownTopicIdError("no topic has this id"))
FORBIDDEN: Final = Outcome.of(errors.TopicAuthorizationFailedError("the user may not read this topic"))
NOT_SHARED: Final = Outcome.of(errors.UnknownTopicOrPartitionError("the group has no records of this partition"))
NOT_ACQUIRED: Final = Outcome.of(errors.InvalidRecordStateError("the member does not hold all of these records"))

NO_LEADER: Final = {"leader_id": -1, "leader_epoch": -1}

Acknowledgements = dict[TopicPartition, list[Acknowledgement]]

_Refused = dict[tuple[uuid.UUID | None, int], Outcome]
"""Outcomes by topic id and partition."""


@dataclass(slots=True)
class ShareSession:
    """Partitions that a client fetches from, so that later requests name only changes."""

    epoch: int = 1
    """Epoch of the next request."""
    places: dict[tuple[uuid.UUID | None, int], None] = field(default_factory=dict)
    """Topic ids and partitions, in the order of the client."""
    used: float = field(default_factory=time.monotonic)
    connection: int = 0
    """Connection of the last request."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while records are acquired, so that they are released after that."""
    lost: bool = False
    """True once the connection has ended: nothing may be acquired."""

    def use(self, named: Iterable[Any], forgotten: Iterable[Any]) -> None:
        """Apply the changes that a request names."""
        self.places |= {(topic.topic_id, int(p.partition_index)): None for topic in named for p in topic.partitions}
        for topic in forgotten:
            for partition in topic.partitions:
                self.places.pop((topic.topic_id, int(partition)), None)


class _Topic(NamedTuple):
    topic_id: uuid.UUID | None


class _Delivery(NamedTuple):
    """Records of one partition for an answer."""

    records: bytes = b""
    acquired: Sequence[Mapping[str, int]] = ()
    rest: Sequence[Acknowledgement] = ()
    """Acknowledgements of records that were not delivered."""


_Exchanged = tuple[dict[TopicPartition, Outcome], dict[TopicPartition, _Delivery], dict[TopicPartition, Outcome]]
"""Refused acknowledgements, records and errors, by partition."""


class ShareSessions:
    """Answers the requests of share sessions: fetches and acknowledgements.

    Args:
        home: the cluster.
        tails: open logs of topics.
    """

    def __init__(self, home: GatewayCluster, tails: TopicTails) -> None:
        self._home = home
        self._tails = tails
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by API key."""
        return {
            keys.SHARE_FETCH: self._fetch,
            keys.SHARE_ACKNOWLEDGE: self._home.in_thread(self._acknowledge),
        }

    # --- share sessions ----------------------------------------------------------------------------

    def _session(self, call: Call, *, fetches: bool) -> ShareSession:
        """Return the session of a request. A fetch begins a session, and changes its partitions.

        Raises:
            InvalidRequestError: the request names no group or member, or begins a session with acknowledgements.
            ShareSessionNotFoundError, InvalidShareSessionEpochError: the client has to make a new session.
        """
        body, epoch = call.body, int(call.body.share_session_epoch)
        if not body.group_id or not body.member_id:
            raise errors.InvalidRequestError("a share session needs a group and a member")
        if epoch == 0 and not fetches:
            raise errors.InvalidShareSessionEpochError("a share session begins with a fetch")
        if epoch == 0 and any(p.acknowledgement_batches for topic in body.topics for p in topic.partitions):
            raise errors.InvalidRequestError("a new share session has no records to acknowledge")
        key = body.group_id, body.member_id
        session = self._sessions.get(key)
        if epoch == 0:
            session = self._sessions[key] = ShareSession()
        elif session is None:
            raise errors.ShareSessionNotFoundError(f"share group {body.group_id!r}: {body.member_id!r} has no session")
        elif epoch == FINAL_EPOCH:
            self._sessions.pop(key, None)
        elif epoch != session.epoch:
            raise errors.InvalidShareSessionEpochError(f"epoch {session.epoch} comes next, not {epoch}")
        else:
            session.epoch += 1
        session.connection, session.used = call.connection, time.monotonic()
        if fetches:
            before = len(session.places)
            session.use(body.topics, body.forgotten_topics_data)
            if len(session.places) > before:
                self._limit_places(key, session)
        return session

    def _limit_places(self, key: tuple[str, str], session: ShareSession) -> None:
        """End the sessions that were used least recently while there are too many, or too many partitions.

        Raises:
            InvalidRequestError: this session alone has too many partitions.
        """
        if len(session.places) > MAX_SESSION_PLACES:
            self._sessions.pop(key, None)
            raise errors.InvalidRequestError(f"a share session has at most {MAX_SESSION_PLACES} partitions")
        by_use = sorted(self._sessions.items(), key=lambda known: known[1].used)
        places = sum(len(session.places) for _, session in by_use)
        for oldest, other in by_use:
            if len(self._sessions) <= MAX_SHARE_SESSIONS and places <= MAX_PLACES:
                return
            self._sessions.pop(oldest, None)
            places -= len(other.places)

    async def close_connection(self, connection: int) -> None:
        """Close the sessions of a connection that has ended, and release the records that their members have locked.

        The members stay in their groups until their sessions there expire.

        Args:
            connection: its number at this gateway.
        """
        known = list(self._sessions.items())  # threads close sessions, too
        lost = {key: session for key, session in known if session.connection == connection}
        for key, session in lost.items():
            self._sessions.pop(key, None)
            session.lost = True
        for (group_id, member_id), session in lost.items():
            await self._home.run(self._release, group_id, member_id, session)

    def _release(self, group_id: str, member_id: str, session: ShareSession) -> None:
        with session.lock:
            outcome, _ = attempt(self._home.share_group(group_id).leave, member_id, {})
        if outcome.code:
            # The locks end by time.
            logger.warning("gateway: share group %s keeps the locks of %r: %s", group_id, member_id, outcome.message)

    def _acknowledgements(self, call: Call) -> tuple[Acknowledgements, _Refused]:
        """Return a request's acknowledgements, and the outcomes of malformed ones and of unknown topics."""
        found: Acknowledgements = {}
        wrong: _Refused = {}
        renews = bool(call.field("is_renew_ack", default=False))
        for topic in call.body.topics:
            name, refusal = self._topic(call, topic.topic_id)
            for partition in topic.partitions:
                batches, index = partition.acknowledgement_batches, int(partition.partition_index)
                outcome, acks = (refusal, None) if refusal.code else attempt(_acks, batches, renews=renews)
                if acks is None:
                    wrong[topic.topic_id, index] = outcome
                elif acks and name is not None:
                    found.setdefault(TopicPartition(name, index), []).extend(acks)
        return found, wrong

    # --- fetching ------------------------------------------------------------------------------

    async def _fetch(self, call: Call) -> Reply | asyncio.Task[Reply]:
        outcome, session = attempt(self._session, call, fetches=True)
        if session is None:
            return _answer_of(outcome)
        return asyncio.create_task(self._poll(call, session))

    async def _poll(self, call: Call, session: ShareSession) -> Reply:
        body = call.body
        await self._home.topic_names([_Topic(topic_id) for topic_id, _ in session.places])
        acks, wrong = self._acknowledgements(call)
        closes = int(body.share_session_epoch) == FINAL_EPOCH
        places = {} if closes else self._places(call, session)
        loop = asyncio.get_running_loop()
        end = loop.time() + min(body.max_wait.total_seconds(), MAX_WAIT_SECONDS)
        with self._tails.waiter(list(places)) as event:
            while True:
                event.clear()
                outcome, done = await self._home.run(attempt, self._exchange, call, session, acks, places)
                if done is None:
                    return _answer_of(outcome)
                refused, delivered, problems = done
                call.memory.keep(sum(len(one.records) for one in delivered.values()))
                left = end - loop.time()
                if delivered or acks or wrong or problems or closes or left <= 0:
                    break
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), min(left, LOOK_SECONDS))
        if closes:
            await self._home.run(attempt, self._home.share_group(body.group_id).leave, body.member_id, {})
        return self._answer(call, session, wrong, (refused, delivered, problems))

    def _topic(self, call: Call, topic_id: uuid.UUID | None) -> tuple[str | None, Outcome]:
        """Return the topic with an id, and whether the user may read it. Does not wait."""
        name = self._home.topic_name(_Topic(topic_id))
        if name is None:
            return None, UNKNOWN_TOPIC
        return name, DONE if call.may_read(name) else FORBIDDEN

    def _places(self, call: Call, session: ShareSession) -> dict[str, list[int]]:
        """Return the session's partitions by topic, without unknown and forbidden topics."""
        found: dict[str, list[int]] = {}
        for topic_id, partition in session.places:
            name, refusal = self._topic(call, topic_id)
            if name is not None and not refusal.code:
                found.setdefault(name, []).append(partition)
        return found

    def _exchange(
        self, call: Call, session: ShareSession, acks: Acknowledgements, places: Mapping[str, Sequence[int]]
    ) -> _Exchanged:
        """Acknowledge and acquire in one commit, and read; return refusals, records and errors by partition."""
        with session.lock:
            return self._exchanged(call, acks, {} if session.lost else places)

    def _exchanged(self, call: Call, acks: Acknowledgements, places: Mapping[str, Sequence[int]]) -> _Exchanged:
        group, member_id = self._home.share_group(call.body.group_id), call.body.member_id
        state = group.groups.refresh(waiting=True)
        sources, problems = self._sources(group, state, places)
        if not acks and not group.is_ready(state, sources):
            return {}, {}, problems
        most = min(int(call.field("max_records", MOST_RECORDS)), MOST_RECORDS)
        done = group.exchange(member_id, acks, sources, most=max(0, most), whole=True)
        delivered: dict[TopicPartition, _Delivery] = {}
        back: dict[TopicPartition, Sequence[Acknowledgement]] = {}
        left = min(int(call.field("max_bytes", ANSWER_BYTES)), ANSWER_BYTES)
        for tp, runs in done.taken.items():
            read = partial(_read, tp=tp, runs=runs, left=left, now_ms=self._home.clock.now_ms())
            outcome, found = attempt(self._tails.use, tp.topic, read)
            if found is None:
                problems[tp] = outcome
                back[tp] = [Acknowledgement(run.first, run.last, RecordVerdict.RETURN) for run in runs]
                continue
            left -= len(found.records)
            if found.acquired:
                delivered[tp] = found
            if found.rest:
                back[tp] = found.rest
        if back:
            group.exchange(member_id, back)
        return _refusals(group, done.refused), delivered, problems

    def _sources(
        self, group: ShareGroup, state: GroupsState, places: Mapping[str, Sequence[int]]
    ) -> tuple[list[ShareSource], dict[TopicPartition, Outcome]]:
        """Look at the logs of the partitions of a session; return those to acquire from, and errors."""
        sources: list[ShareSource] = []
        problems: dict[TopicPartition, Outcome] = {}
        for name, partitions in places.items():
            outcome, found = attempt(self._tails.use, name, partial(group.sources, state, partitions))
            if found is None:
                problems |= {TopicPartition(name, p): outcome for p in partitions}
                continue
            sources += found
            missing = {TopicPartition(name, p) for p in partitions} - {source.tp for source in found}
            problems |= dict.fromkeys(missing, Outcome.of(errors.UnknownTopicOrPartitionError("no such partition")))
        return sources, problems

    def _answer(self, call: Call, session: ShareSession, wrong: _Refused, done: _Exchanged) -> Answer:
        refused, delivered, problems = done
        asked = {
            (topic.topic_id, int(p.partition_index)): bool(p.acknowledgement_batches)
            for topic in call.body.topics
            for p in topic.partitions
        }
        by_topic: dict[uuid.UUID | None, list[dict[str, Any]]] = {}
        for topic_id, partition in {**session.places, **asked}:
            name, refusal = self._topic(call, topic_id)
            tp = TopicPartition(name or "", partition)
            outcome = refusal if refusal.code else problems.get(tp, DONE)
            found = delivered.get(tp, _Delivery())
            acked = asked.get((topic_id, partition), False)
            if not (found.acquired or outcome.code or acked or int(call.body.share_session_epoch) == 0):
                continue
            ack = wrong.get((topic_id, partition)) or refused.get(tp) or DONE
            by_topic.setdefault(topic_id, []).append(
                {
                    "partition_index": partition,
                    "error_code": outcome.code,
                    "error_message": outcome.message,
                    "acknowledge_error_code": ack.code if acked else NONE,
                    "acknowledge_error_message": ack.message if acked else None,
                    "current_leader": NO_LEADER,
                    "records": found.records,
                    "acquired_records": found.acquired,
                }
            )
        return _answer_of(DONE, self._home.share_group(call.body.group_id).limits.lock_ms, by_topic)

    # --- acknowledging -------------------------------------------------------------------------

    def _acknowledge(self, call: Call) -> Answer:
        self._home.cluster.topics()
        outcome, session = attempt(self._session, call, fetches=False)
        if session is None:
            return _answer_of(outcome)
        acks, wrong = self._acknowledgements(call)
        group = self._home.share_group(call.body.group_id)
        outcome, done = attempt(lambda: group.exchange(call.body.member_id, acks, whole=True))
        if int(call.body.share_session_epoch) == FINAL_EPOCH:
            attempt(group.leave, call.body.member_id, {})
        refused = {} if done is None else _refusals(group, done.refused)
        by_topic: dict[uuid.UUID | None, list[dict[str, Any]]] = {}
        for topic in call.body.topics:
            name = self._home.topic_name(topic) or ""
            for p in topic.partitions:
                index = int(p.partition_index)
                ack = wrong.get((topic.topic_id, index)) or refused.get(TopicPartition(name, index)) or outcome
                if p.acknowledgement_batches:
                    part = {"partition_index": index, "error_code": ack.code, "current_leader": NO_LEADER}
                    by_topic.setdefault(topic.topic_id, []).append(part)
        return _answer_of(DONE, group.limits.lock_ms, by_topic)


def _answer_of(
    outcome: Outcome, lock_ms: int = 0, by_topic: Mapping[uuid.UUID | None, Sequence[Answer]] | None = None
) -> Answer:
    return {
        "error_code": outcome.code,
        "error_message": outcome.message,
        "acquisition_lock_timeout": lock_ms,
        "responses": [{"topic_id": topic, "partitions": parts} for topic, parts in (by_topic or {}).items()],
        "node_endpoints": (),
    }


def _acks(batches: Iterable[Any], *, renews: bool) -> list[Acknowledgement]:
    """Return a partition's acknowledgements; raise InvalidRequestError for malformed ones and unannounced renewals."""
    found: list[Acknowledgement] = []
    for batch in batches:
        first, last, types = int(batch.first_offset), int(batch.last_offset), [int(t) for t in batch.acknowledge_types]
        size = last - first + 1
        known = set(types) <= VERDICTS.keys() and (renews or AcknowledgeType.RENEW not in types)
        if size < 1 or len(types) not in {1, size} or not known:
            raise errors.InvalidRequestError(f"records {first} to {last} are acknowledged by {len(types)} types")
        if len(types) == 1:
            found.append(Acknowledgement(first, last, VERDICTS[types[0]]))
        else:
            said = ((first + nth, (VERDICTS[kind],)) for nth, kind in enumerate(types))
            found += [Acknowledgement(a, b, *facts) for a, b, facts in merged_offsets(said)]
    return found


def _refusals(group: ShareGroup, refused: Iterable[TopicPartition]) -> dict[TopicPartition, Outcome]:
    """Return the outcomes of partitions whose acknowledgements the group refuses."""
    known = group.shares(group.groups.state)
    return {tp: NOT_ACQUIRED if tp in known else NOT_SHARED for tp in refused}


def _read(log: TopicLog, tp: TopicPartition, runs: Sequence[RecordRun], left: int, now_ms: int) -> _Delivery:
    """Return the records of acquired runs."""
    batches: list[bytes] = []
    acquired: list[dict[str, int]] = []
    rest: list[Acknowledgement] = []
    for run in runs:
        at = run.first
        offsets: list[int] = []
        undue: list[tuple[int, tuple[int]]] = []
        while at <= run.last and left > 0:
            chunk = log.reader(tp.partition, at).read(min(CHUNK_BYTES, left))
            if chunk is None:
                at = run.last + 1
                break
            at = min(chunk.next_offset, run.last + 1)
            count = chunk.count_below(run.last + 1)
            if not count:
                continue
            part = chunk.split(count)[0]
            columns = part.columns()
            offsets += columns.offsets
            for offset, headers in zip(columns.offsets, columns.headers or repeat((), count), strict=True):
                due = due_ms(headers) if headers else 0
                if due > now_ms:
                    undue.append((offset, (due,)))
            records = encode(part)
            batches.append(records)
            left -= len(records)
        late = {offset for offset, _ in undue}
        acquired += [
            {"first_offset": a, "last_offset": b, "delivery_count": run.deliveries}
            for a, b, _ in ranges(offset for offset in offsets if offset not in late)
        ]
        rest += undelivered(run, offsets, at, None, undue)
    return _Delivery(b"".join(batches), acquired, rest)
