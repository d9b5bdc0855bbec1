"""GatewayCluster: the cluster behind a gateway, its threads, and the topics by id."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from kafkalike.admin.admin_client import KafkaAdminClient
from kafkalike.gateway.api_versions import Answer
from kafkalike.gateway.byte_budget import RequestMemory
from kafkalike.gateway.live_gateways import LiveGateways
from kafkalike.log.group.share_group import ShareGroup, limits_of
from kafkalike.model.clock import Clock
from kafkalike.model.names import check_group_id

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.topic import TopicInfo

P = ParamSpec("P")
T = TypeVar("T")

THREADS: Final = 32
"""Threads for calls that wait for the storage. Waiting requests hold none of them."""

MAX_NAME: Final = 256
"""Characters of a client's id that are logged and recorded."""

GATHER_SECONDS: Final = 0.005
"""Time in which calls of `GatewayCluster.in_batches` are gathered."""

SLOW_SECONDS: Final = 1.0
"""Time of one call of a batch after which the calls behind it no longer wait for it."""

UNUSED_SECONDS: Final = 600.0
"""Time after which the log of a topic that nobody uses is closed."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Call:
    """One request of a client."""

    version: int
    body: Any
    """An object of a request class of kio; its fields depend on the version."""
    client_id: str
    host: str
    """Address of the client."""
    principal: str = ""
    """Name of the user; empty if clients need not authenticate."""
    connection: int = 0
    """Number of the connection at this gateway."""
    memory: RequestMemory = dataclasses.field(default_factory=RequestMemory)
    is_connected: Callable[[], bool] = lambda: True
    """Returns False once the client has closed its connection. Thread-safe."""

    def field(self, name: str, default: Any = None) -> Any:  # noqa: ANN401
        """Return a field of the request, or a default in versions without it."""
        return getattr(self.body, name, default)

    def check_connected(self) -> None:
        """Raise ConnectionAbortedError if the client has closed its connection, so that it no longer waits."""
        if not self.is_connected():
            raise ConnectionAbortedError(f"{self.client_id!r} of {self.host} has disconnected")


Reply = Answer | None
"""An answer; None if the client expects none (`acks=0`)."""

Handler = Callable[[Call], Awaitable["Reply | asyncio.Task[Reply]"]]
"""Handles a request. The next request of the connection is handled when it returns; a returned task continues."""


_Gathered = tuple[Call, asyncio.Future[Sequence[Reply]]]
"""A call of a batch, and its reply; nothing if it is to have a thread of its own."""


def _popped(pop: Callable[[], _Gathered]) -> Iterator[_Gathered]:
    """Yield calls that another thread does not pop at the same time."""
    while True:
        try:
            one = pop()
        except IndexError:
            return
        yield one


def _settle(gathered: Sequence[_Gathered], outcomes: Sequence[Sequence[Reply] | BaseException]) -> None:
    """Set the outcomes of the first calls, unless their clients have disconnected."""
    for (_, done), outcome in zip(gathered, outcomes, strict=False):
        if done.done():
            continue
        if isinstance(outcome, BaseException):
            done.set_exception(outcome)
        else:
            done.set_result(outcome)


class GatewayCluster:
    """The cluster of a gateway.

    Args:
        cluster: the cluster.
        gateways: the gateways that clients are told of.
        clock: time.
    """

    def __init__(self, cluster: Cluster, gateways: LiveGateways, clock: Clock) -> None:
        self.cluster = cluster
        self.gateways = gateways
        self.clock = clock
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop while the gateway serves clients."""
        self._names: tuple[Mapping[str, TopicInfo], Mapping[uuid.UUID | None, str]] = ({}, {})
        """Topics as of the last lookup by id, and their names by id."""
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="kafkalike-gateway")

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that may wait for the storage, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: call(*args, **kwargs))

    def in_thread(self, answer: Callable[[Call], Reply]) -> Handler:
        """Return the handler that calls a function in a thread."""

        async def handle(call: Call) -> Reply:
            return await self.run(answer, call)

        return handle

    def in_batches(self, prepare: Callable[[], T], answer: Callable[[Call, T], Reply]) -> Handler:
        """Return the handler that handles calls which come together in one thread, one after the other.

        The members of a group send their heartbeats together, because they have joined together. A thread for each, all
        at once, would cost several times as much. Calls behind a slow or a failing call get a thread each, as all do if
        the storage is far.

        Args:
            prepare: called in the thread before the first call of a batch.
            answer: answers a call with the result of `prepare`.
        """

        def alone(call: Call) -> Reply:
            return answer(call, prepare())

        if self.cluster.store.coordination.reach == "everywhere":
            return self.in_thread(alone)
        gathered = list[_Gathered]()
        tasks = set[asyncio.Task[None]]()

        def in_turn(calls: deque[_Gathered], replies: list[Reply]) -> None:
            prepared = prepare()
            for call, _ in _popped(calls.popleft):
                replies.append(answer(call, prepared))

        async def work() -> None:
            await asyncio.sleep(GATHER_SECONDS)
            taken = gathered[:]
            gathered.clear()
            calls, replies, seen = deque(taken), list[Reply](), -1
            thread = asyncio.ensure_future(self.run(in_turn, calls, replies))
            while not thread.done() and seen < len(replies):
                seen = len(replies)
                await asyncio.wait([thread], timeout=SLOW_SECONDS)
                _settle(taken, [(reply,) for reply in replies])
            rest = list(_popped(calls.pop))
            _settle(rest, [()] * len(rest))
            (failure,) = await asyncio.gather(thread, return_exceptions=True)
            _settle(taken, [(reply,) for reply in replies])
            if failure is not None:
                _settle(taken[len(replies) :], [failure])

        async def handle(call: Call) -> Reply:
            loop = asyncio.get_running_loop()
            done: asyncio.Future[Sequence[Reply]] = loop.create_future()
            gathered.append((call, done))
            if len(gathered) == 1:
                task = loop.create_task(work())
                # The loop alone would not keep it alive.
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            replies = await done
            return replies[0] if replies else await self.run(alone, call)

        return handle

    def admin(self) -> KafkaAdminClient:
        """Return an admin client, which belongs to one request."""
        return KafkaAdminClient(clock=self.clock, bootstrap_servers=self.cluster)

    def share_group(self, group_id: str) -> ShareGroup:
        """Return a share group with the limits of its settings.

        Raises:
            InvalidGroupIdError: the id is invalid.
        """
        cluster = self.cluster
        limits = limits_of(cluster.server, cluster.groups.state.configs.get(group_id, {}))
        return ShareGroup(cluster.groups, check_group_id(group_id), self.clock, limits)

    def topic_name(self, item: Any, attribute: str = "name") -> str | None:  # noqa: ANN401
        """Return the topic of an item of a request, which names it or gives its id. Does not wait.

        Args:
            item: the item.
            attribute: name of the item's field with the topic's name.

        Returns:
            The name, which may be unknown; None for an id that is unknown as of the last look.
        """
        name = getattr(item, attribute, None)
        if name is not None:
            return str(name)
        topics, names = self._names
        latest = self.cluster.metadata.state.topics
        if topics is not latest:
            names = {uuid.UUID(info.topic_id): known for known, info in latest.items()}
            # Replaced whole, because other threads read it.
            self._names = latest, names
        return names.get(getattr(item, "topic_id", None))

    def topic_ids(self) -> Mapping[str, uuid.UUID]:
        """Look at the topics, and return their ids. Call it in a thread."""
        return {name: uuid.UUID(info.topic_id) for name, info in self.cluster.topics().items()}

    async def topic_names(self, items: Iterable[Any], attribute: str = "name") -> list[str | None]:
        """Return the topics of items of a request, as `topic_name` does, after a look at the topics if one is unknown.

        Args:
            items: the items.
            attribute: name of the items' field with the topic's name.
        """
        names = [self.topic_name(item, attribute) for item in items]
        if None in names:
            # Created after the last look.
            await self.run(self.cluster.topics)
            names = [self.topic_name(item, attribute) for item in items]
        return names

    def close(self) -> None:
        """Wait for calls in progress, and end the threads."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self.cluster.settle()
