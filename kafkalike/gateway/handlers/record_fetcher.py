"""Record fetcher: Fetch requests."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from kafkalike import errors
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.byte_budget import RequestMemory
from kafkalike.gateway.error_codes import NONE, Outcome, attempt
from kafkalike.gateway.gateway_cluster import Call, GatewayCluster, Handler, Reply
from kafkalike.gateway.handlers.topic_tails import FRESH_SECONDS, FetchedPartition, TopicTails, WantedPartition

ANSWER_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of an answer, whatever the client allows, because answers are made in memory."""

SCARCE_BYTES: Final = 64 * 1024
"""Most bytes of an answer while answers that slow clients have not read fill the memory."""

MAX_WAIT_SECONDS: Final = 60.0
"""Longest wait of a long poll."""


class RecordFetcher:
    """Answers Fetch requests.

    Args:
        home: the cluster.
        tails: the open logs.
    """

    def __init__(self, home: GatewayCluster, tails: TopicTails) -> None:
        self._home = home
        self._tails = tails

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by API key."""
        return {keys.FETCH: self._fetch}

    async def _fetch(self, call: Call) -> Reply | asyncio.Task[Reply]:
        if call.field("session_id", 0) or call.field("session_epoch", -1) > 0:
            # Every request names all partitions, so fetch sessions are not kept.
            return {"error_code": errors.FetchSessionIdNotFoundError.errno, "session_id": 0, "responses": ()}
        return asyncio.create_task(self._poll(call))

    async def _poll(self, call: Call) -> Reply:
        body = call.body
        names = await self._home.topic_names(body.topics, "topic")
        by_name = list(zip(body.topics, names, strict=True))
        # Clients that rotate their partitions name a topic several times. It is answered once, as in Kafka.
        every: dict[str, dict[int, WantedPartition]] = {}
        for topic, name in by_name:
            if name is not None:
                every.setdefault(name, {}).update({int(p.partition): WantedPartition.of(p) for p in topic.partitions})
        wanted = {name: list(partitions.values()) for name, partitions in every.items()}
        ids = {name: topic.topic_id for topic, name in by_name if name is not None and hasattr(topic, "topic_id")}
        loop = asyncio.get_running_loop()
        wait = min(body.max_wait.total_seconds(), MAX_WAIT_SECONDS)
        end = loop.time() + wait
        # A poll that waits hears of what the latest look has missed; any other must look itself.
        waits = body.min_bytes > 0 and wait > FRESH_SECONDS
        max_bytes = min(int(call.field("max_bytes", ANSWER_BYTES)), ANSWER_BYTES)
        with self._tails.waiter(list(wanted)) as event:
            while True:
                event.clear()
                fetched = self._at_end(wanted, ids) if waits else None
                if fetched is None:
                    fetched = await self._home.run(self._read, wanted, ids, max_bytes, call.memory)
                size = sum(len(one.records) for found in fetched.values() for one in found)
                call.memory.keep(size)
                failed = any(one.outcome.code for found in fetched.values() for one in found)
                left = end - loop.time()
                if size >= body.min_bytes or failed or None in names or not wanted or left <= 0:
                    break
                try:
                    async with asyncio.timeout(left):
                        await event.wait()
                except TimeoutError:
                    break
        responses = []
        for topic, name in by_name:
            if name is None:
                outcome = Outcome.of(errors.UnknownTopicIdError(f"no topic has the id {topic.topic_id}"))
                found = [FetchedPartition(int(p.partition), outcome) for p in topic.partitions]
            elif name in fetched:
                found = fetched.pop(name)
            else:
                continue
            responses.append(
                {
                    "topic": getattr(topic, "topic", ""),
                    "topic_id": getattr(topic, "topic_id", None),
                    "partitions": [one.answer() for one in found],
                }
            )
        return {"error_code": NONE, "session_id": 0, "responses": responses}

    def _at_end(
        self, wanted: Mapping[str, list[WantedPartition]], ids: Mapping[str, uuid.UUID]
    ) -> dict[str, list[FetchedPartition]] | None:
        """Return empty answers for a client that is at the end of all of its partitions; None to read."""
        found = {}
        for name, partitions in wanted.items():
            tail = self._tails.known(name)
            if tail is None or ids.get(name, tail.topic_id) != tail.topic_id:
                return None
            answers = tail.at_end(partitions)
            if answers is None:
                return None
            found[name] = answers
        return found

    def _read(
        self,
        wanted: Mapping[str, list[WantedPartition]],
        ids: Mapping[str, uuid.UUID],
        left: int,
        memory: RequestMemory,
    ) -> dict[str, list[FetchedPartition]]:
        """Read the partitions of topics, by name; `ids` has the topics that the client names by id."""
        if memory.scarce:
            left = min(left, SCARCE_BYTES)
        found = {}
        for name, partitions in wanted.items():
            outcome, read = attempt(self._read_topic, name, ids.get(name), partitions, left)
            found[name] = [FetchedPartition(one.partition, outcome) for one in partitions] if read is None else read
            left -= sum(len(one.records) for one in found[name])
        return found

    def _read_topic(
        self, name: str, topic_id: uuid.UUID | None, partitions: Sequence[WantedPartition], left: int
    ) -> list[FetchedPartition]:
        try:
            tail = self._tails.tail(name)
            if topic_id not in {None, tail.topic_id}:
                # The id is known, so the open log may be that of a deleted topic of the same name.
                self._tails.forget(name)
                tail = self._tails.tail(name)
            if topic_id not in {None, tail.topic_id}:
                raise errors.UnknownTopicIdError(f"topic {name!r} was deleted and created again")
            return tail.read(partitions, left)
        except errors.TopicDeletedError:
            self._tails.forget(name)
            if topic_id is not None:
                raise
            # A topic of the same name may be there.
            return self._tails.tail(name).read(partitions, left)
