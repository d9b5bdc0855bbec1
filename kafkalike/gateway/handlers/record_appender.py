"""Record appender: Produce requests, with one append at a time for each topic.

Requests that arrive during an append wait and go together into the next one. So the appends grow with the load, and
the table has fewer commits than there are requests.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kafkalike import errors
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.error_codes import DONE, Outcome
from kafkalike.gateway.gateway_cluster import UNUSED_SECONDS, Call, GatewayCluster, Handler, Reply
from kafkalike.gateway.handlers.transaction_requests import TransactionRequests
from kafkalike.log.topic.producer_append import SentBatch, append_batches
from kafkalike.log.wire.batch_heads import is_plain, read_batches
from kafkalike.log.wire.record_decoder import InflatedBatch, decode
from kafkalike.model.appends.producer_sequences import BatchPlace, SequencedBatch

if TYPE_CHECKING:
    from kafkalike.log.topic.column_batch import ColumnBatch
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.topic import TopicInfo

logger = logging.getLogger(__name__)

MIN_INFLATED_BYTES: Final = 16 * 1024 * 1024
"""Bytes to which any batch may inflate."""

MAX_APPEND_BYTES: Final = 16 * 1024 * 1024
"""Bytes of records from which waiting requests are left for the next append."""

MAX_REQUEST_BYTES: Final = 128 * 1024 * 1024
"""Bytes to which all compressed batches of a request may inflate."""

INLINE_BYTES: Final = 1024 * 1024
"""Bytes of a request without compression up to which checking it costs less than starting a thread's task."""

APPEND_TIMEOUT_MS: Final = 30_000.0
"""Most time of an append; Kafka's default of the producer's `request.timeout.ms`."""

ACKS: Final = {-1, 0, 1}


@dataclass(slots=True)
class _Part:
    """One record batch of a request, on its way into a topic."""

    batch: InflatedBatch
    records: ColumnBatch | None = None
    """None before it is decoded."""
    outcome: Outcome = DONE
    base_offset: int = -1
    append_time_ms: int = -1

    @property
    def sequence(self) -> SequencedBatch | None:
        """The batch's sequence; None if its producer is not idempotent."""
        wire = self.batch.wire
        if not wire.idempotent:
            return None
        return SequencedBatch(
            wire.producer_id, wire.producer_epoch, self.batch.partition, wire.base_sequence, wire.count
        )

    @property
    def sent(self) -> SentBatch:
        """The batch for an append; its records are decoded."""
        assert self.records is not None
        return SentBatch(self.records, self.sequence)


@dataclass(slots=True)
class _Waiting:
    """The batches of one request for one topic."""

    parts: list[_Part]
    topic_id: uuid.UUID | None
    done: asyncio.Future[None]

    @property
    def size(self) -> int:
        return sum(len(part.batch.content) for part in self.parts)


@dataclass(slots=True)
class _Topic:
    """The appends of one topic."""

    log: TopicLog | None = None
    waiting: list[_Waiting] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    expected: int = 1
    """Requests that will wait once the clients have replaced those of the last append."""
    took: float = 0.0
    """Duration of the last append, s."""
    ended: float = 0.0
    """Its end, s of the event loop's clock."""
    enough: asyncio.Future[None] | None = None
    """Ends the wait for more requests."""


@dataclass(slots=True)
class _Partition:
    """The part of a request for one partition, and its result."""

    index: int
    outcome: Outcome = DONE
    parts: list[_Part] = field(default_factory=list)

    def answer(self) -> dict[str, Any]:
        outcome = next((part.outcome for part in self.parts if part.outcome.code), self.outcome)
        first = self.parts[0] if self.parts and not outcome.code else None
        return {
            "index": self.index,
            "error_code": outcome.code,
            "error_message": outcome.message,
            "base_offset": -1 if first is None else first.base_offset,
            "log_append_time": -1 if first is None else first.append_time_ms,
            "log_start_offset": -1,
        }


class RecordAppender:
    """Answers Produce requests.

    Args:
        home: the cluster.
        transactions: takes the records of transactions.
        appended: called with a topic after each append, in the event loop.
    """

    def __init__(
        self, home: GatewayCluster, transactions: TransactionRequests, appended: Callable[[str], None]
    ) -> None:
        self._home = home
        self._transactions = transactions
        self._appended = appended
        self._topics: dict[str, _Topic] = {}
        self._most = MIN_INFLATED_BYTES

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by API key."""
        return {keys.PRODUCE: self._produce}

    @property
    def open_logs(self) -> int:
        """Number of topics whose logs are open."""
        return len(self._topics)

    def close_unused(self, ids: Mapping[str, uuid.UUID]) -> None:
        """Close the logs of topics that were deleted, or that nobody has appended to for a while.

        Args:
            ids: the topics of the cluster.
        """
        since = asyncio.get_running_loop().time() - UNUSED_SECONDS
        for name, topic in list(self._topics.items()):
            log = topic.log
            if topic.task is None and (
                log is None or topic.ended < since or ids.get(name) != uuid.UUID(log.info.topic_id)
            ):
                del self._topics[name]

    async def _produce(self, call: Call) -> Reply | asyncio.Task[Reply]:
        """Check the batches and queue them in the order of the connection's requests; the task waits for them."""
        body = call.body
        if body.acks not in ACKS:
            error = errors.InvalidRequiredAcksError(f"acks={body.acks}: -1, 0 or 1 is needed")
            return self._refused(call, Outcome.of(error))
        sent = [p.records or b"" for topic in body.topic_data for p in topic.partition_data]
        size = sum(map(len, sent))
        if size <= INLINE_BYTES and all(map(is_plain, sent)):
            inflated = self._inflated(body.topic_data, MAX_REQUEST_BYTES)
        else:
            # Nobody knows what batches inflate to. The records count until the request is answered.
            await call.memory.reserve(MAX_REQUEST_BYTES)
            inflated = await self._home.run(self._inflated, body.topic_data, MAX_REQUEST_BYTES)
            call.memory.keep(
                sum(len(part.batch.content) for _, found in inflated for one in found for part in one.parts)
            )
        queued = list[asyncio.Future[None]]()
        names = await self._home.topic_names(body.topic_data)
        for (topic, partitions), name in zip(inflated, names, strict=True):
            parts = [part for partition in partitions for part in partition.parts]
            if name is None:
                outcome = Outcome.of(errors.UnknownTopicIdError(f"no topic has the id {topic.topic_id}"))
                for part in parts:
                    part.outcome = outcome
            elif any(part.batch.wire.transactional for part in parts):
                places = [self._transactions.place(name, part.sequence) for part in parts]
                queued.append(asyncio.create_task(self._home.run(self._stage, call, name, parts, places)))
            elif parts:
                queued.append(self._queue(name, parts, getattr(topic, "topic_id", None)))
        return asyncio.create_task(self._answer(call, inflated, queued))

    def _inflated(self, topics: Sequence[Any], left: int) -> list[tuple[Any, list[_Partition]]]:
        """Check and inflate the batches of a request, which may inflate to `left` bytes together."""
        inflated = []
        for topic in topics:
            found = []
            for item in topic.partition_data:
                partition = _Partition(int(item.index))
                try:
                    batches = read_batches(item.records or b"")
                    if len(batches) > 1:
                        raise errors.InvalidRecordError(f"{len(batches)} record batches for a partition: send one")
                    for wire in batches:
                        compressed = wire.codec != "none"
                        content = wire.inflated(min(self._most, left) if compressed else len(wire.content))
                        left -= len(content) if compressed else 0
                        partition.parts.append(_Part(InflatedBatch(wire, partition.index, content)))
                except errors.KafkaError as error:
                    partition.outcome, partition.parts = Outcome.of(error), []
                found.append(partition)
            inflated.append((topic, found))
        return inflated

    async def _answer(
        self, call: Call, inflated: Sequence[tuple[Any, list[_Partition]]], queued: Sequence[asyncio.Future[None]]
    ) -> Reply:
        for done in queued:
            await done
        responses = []
        for topic, partitions in inflated:
            answers = [partition.answer() for partition in partitions]
            for answer in answers:
                if answer["error_code"]:
                    logger.info("gateway: records of %s refused: %s", call.host, answer["error_message"])
                    if call.version < 13 and answer["error_code"] == errors.TopicDeletedError.errno:  # noqa: PLR2004
                        answer["error_code"] = errors.UnknownTopicOrPartitionError.errno
            responses.append(_named(topic, answers))
        if call.body.acks:
            return {"responses": responses}
        if any(answer["error_code"] for response in responses for answer in response["partition_responses"]):
            # As in Kafka: the client expects no answer, and looks for the topic again when it connects again.
            raise ConnectionAbortedError("records of a producer with acks=0 were refused")
        return None

    @staticmethod
    def _refused(call: Call, outcome: Outcome) -> Reply:
        return {
            "responses": [
                _named(topic, [_Partition(int(p.index), outcome).answer() for p in topic.partition_data])
                for topic in call.body.topic_data
            ]
        }

    def _stage(self, call: Call, name: str, parts: Sequence[_Part], places: Sequence[BatchPlace | None]) -> None:
        """Stage the batches of a transaction, and note the outcome of each. They have no offsets before its end."""
        self._decode(parts)
        good = [(part, place) for part, place in zip(parts, places, strict=True) if not part.outcome.code]
        outcomes = self._transactions.stage(
            call,
            name,
            [part.sent for part, _ in good],
            [part.batch.wire.codec for part, _ in good],
            [place for _, place in good],
        )
        for (part, _), outcome in zip(good, outcomes, strict=True):
            part.outcome = outcome

    def _decode(self, parts: Sequence[_Part]) -> ColumnBatch | None:
        """Decode the records of batches; return all of them, or None after noting the outcome of wrong batches."""
        now_ms = self._home.clock.now_ms()
        try:
            whole = decode([part.batch for part in parts], now_ms=now_ms)
        except errors.KafkaError:
            for part in parts:
                try:
                    part.records = decode([part.batch], now_ms=now_ms)
                except errors.KafkaError as error:
                    part.outcome = Outcome.of(error)
            return None
        start = 0
        for part in parts:
            stop = start + part.batch.wire.count
            part.records = whole.part(start, stop)
            start = stop
        return whole

    # --- appends -------------------------------------------------------------------------------

    def _queue(self, name: str, parts: list[_Part], topic_id: uuid.UUID | None) -> asyncio.Future[None]:
        topic = self._topics.setdefault(name, _Topic())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        topic.waiting.append(_Waiting(parts, topic_id, done))
        if topic.enough is not None and len(topic.waiting) >= topic.expected and not topic.enough.done():
            topic.enough.set_result(None)
        if topic.task is None:
            topic.task = asyncio.create_task(self._work(name, topic))
        return done

    async def _work(self, name: str, topic: _Topic) -> None:
        """Append what waits, until nothing does."""
        try:
            loop = asyncio.get_running_loop()
            while topic.waiting:
                await self._gather(topic)
                taken = _next(topic.waiting)
                begun = loop.time()
                append = asyncio.ensure_future(self._home.run(self._append, name, topic, taken))
                await asyncio.wait([append])
                topic.expected, topic.ended = len(taken) + len(topic.waiting), loop.time()
                topic.took = topic.ended - begun
                self._appended(name)
                for waiting in taken:
                    if waiting.done.done():
                        continue
                    if (error := append.exception()) is None:
                        waiting.done.set_result(None)
                    else:
                        waiting.done.set_exception(error)
        finally:
            topic.task = None
            if topic.log is None:
                # The topic does not exist, so nothing of it is kept.
                self._topics.pop(name, None)

    @staticmethod
    async def _gather(topic: _Topic) -> None:
        """Wait until the clients of the last append, if it has just ended, have sent as many requests again.

        Clients with several requests in flight send the next ones when they get the answers, and one append of all
        costs half as much as two appends, for the first request and for the others. The wait takes at most half as long
        as the append did. A client that waits for each answer never waits.
        """
        loop = asyncio.get_running_loop()
        if len(topic.waiting) < topic.expected and loop.time() - topic.ended < topic.took:
            topic.enough = loop.create_future()
            try:
                await asyncio.wait([topic.enough], timeout=topic.took / 2)
            finally:
                topic.enough = None

    def _append(self, name: str, topic: _Topic, taken: Sequence[_Waiting]) -> None:
        """Append the batches of several requests, and note the outcome of each."""
        parts = [part for waiting in taken for part in waiting.parts]
        was_open = topic.log is not None
        try:
            log = self._log(name, topic, taken)
        except (errors.KafkaError, OSError) as error:
            _fail(parts, error)
            return
        for waiting in taken:
            self._check(log, waiting)
        # Batches of a partition keep their order. Beside each other, their rows go into a file without a copy.
        good = sorted((part for part in parts if not part.outcome.code), key=lambda part: part.batch.partition)
        whole = self._decode(good) if good else None
        good = [part for part in good if not part.outcome.code]
        if good and self._write(log, good, whole):
            topic.log = None
            if was_open:
                # Nothing was written, and a topic of the same name may be there.
                for part in good:
                    part.outcome = DONE
                self._append(name, topic, taken)

    def _log(self, name: str, topic: _Topic, taken: Sequence[_Waiting]) -> TopicLog:
        """Return the topic's log. It looks for a newer topic only if requests do not fit; the append looks anyway."""
        log = topic.log
        if log is not None and not all(
            _misfit(log.info, waiting, part) is None for waiting in taken for part in waiting.parts
        ):
            try:
                log.refresh_info()
            except errors.TopicDeletedError:
                topic.log = None
        if topic.log is None:
            topic.log = self._home.cluster.log(name)
        return topic.log

    def _check(self, log: TopicLog, waiting: _Waiting) -> None:
        self._most = max(self._most, 4 * log.config.max_message_bytes)
        for part in waiting.parts:
            error = _misfit(log.info, waiting, part)
            if error is not None:
                part.outcome = Outcome.of(error)

    @staticmethod
    def _write(log: TopicLog, parts: Sequence[_Part], whole: ColumnBatch | None) -> bool:
        """Append batches, and return whether the topic is deleted. An error of a batch leaves the others alone."""
        largest = max((part.batch for part in parts), key=lambda batch: len(batch.content))
        batches = [part.sent for part in parts]
        try:
            results = append_batches(log, batches, codec=largest.wire.codec, timeout_ms=APPEND_TIMEOUT_MS, whole=whole)
        except (errors.KafkaError, OSError) as error:
            if isinstance(error, errors.UnknownOutcomeError) and not all(part.batch.wire.idempotent for part in parts):
                logger.warning("gateway: retries of producers without idempotence may write twice: %s", error)
            _fail(parts, error)
            return isinstance(error, errors.TopicDeletedError)
        by_append = log.config.log_append_time
        for part, result in zip(parts, results, strict=True):
            if result.error is not None:
                part.outcome = Outcome.of(result.error)
            part.base_offset = result.base_offset
            part.append_time_ms = result.append_time_ms if by_append else -1
        return False


def _next(waiting: list[_Waiting]) -> list[_Waiting]:
    """Remove and return the requests of the next append: at least one."""
    count = size = 0
    while count < len(waiting) and size < MAX_APPEND_BYTES:
        size += waiting[count].size
        count += 1
    taken = waiting[:count]
    del waiting[:count]
    return taken


def _misfit(info: TopicInfo, waiting: _Waiting, part: _Part) -> errors.KafkaError | None:
    """Return the error of a batch for another topic, or for a partition that the topic lacks; None if it fits."""
    if waiting.topic_id is not None and uuid.UUID(info.topic_id) != waiting.topic_id:
        return errors.UnknownTopicIdError(f"{info.name}: its id is {info.topic_id}")
    if part.batch.partition not in info.partitions:
        return errors.UnknownTopicOrPartitionError(f"{info.name} has {info.num_partitions} partitions")
    return None


def _fail(parts: Sequence[_Part], error: BaseException) -> None:
    outcome = Outcome.of(error)
    for part in parts:
        part.outcome = outcome


def _named(topic: Any, answers: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: ANN401
    return {
        "name": getattr(topic, "name", ""),
        "topic_id": getattr(topic, "topic_id", None),
        "partition_responses": answers,
    }
