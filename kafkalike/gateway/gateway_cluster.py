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
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

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
"""Time of one call of a batch after which another thread continues behind it."""

MOST_BATCH_THREADS: Final = 4
"""Threads of one batch with slow calls."""

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
    may_read: Callable[[str], bool] = lambda _: True
    """Returns whether the user of a share group may read a topic. Thread-safe."""

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


_Gathered = tuple[Call, asyncio.Future[Reply]]
"""A call of a batch, and its reply."""

_Outcome = tuple[asyncio.Future[Reply], tuple[Reply] | None]
"""A reply of a thread; None for the call with which it failed."""


def _popped(calls: deque[_Gathered]) -> Iterator[_Gathered]:
    """Yield calls that no other thread has taken."""
    while True:
        try:
            one = calls.popleft()
        except IndexError:
            return
        yield one


def _settle(outcomes: Iterable[_Outcome], failure: BaseException | None = None) -> None:
    """Set the replies to calls whose clients have not disconnected."""
    for done, reply in outcomes:
        if done.done():
            continue
        if reply is not None:
            done.set_result(reply[0])
        elif failure is not None:
            done.set_exception(failure)


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
        at once, would cost several times as much. If a call is slow or fails, another thread continues behind it. If
        the storage is far, each call has a thread.

        Args:
            prepare: called in the thread before the first call of a batch.
            answer: answers a call with the result of `prepare`.
        """
        if self.cluster.store.coordination.reach == "everywhere":
            return self.in_thread(lambda call: answer(call, prepare()))
        gathered = deque[_Gathered]()
        tasks = set[asyncio.Task[None]]()

        async def work() -> None:
            await asyncio.sleep(GATHER_SECONDS)
            batch = _Batch(self, prepare, answer, gathered.copy())
            gathered.clear()
            await batch.work(MOST_BATCH_THREADS)

        async def handle(call: Call) -> Reply:
            loop = asyncio.get_running_loop()
            done: asyncio.Future[Reply] = loop.create_future()
            gathered.append((call, done))
            if len(gathered) == 1:
                task = loop.create_task(work())
                # The loop alone would not keep it alive.
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            return await done

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


class _Batch(Generic[T]):
    """Calls that came together.

    Args:
        home: runs the threads.
        prepare, answer: see `GatewayCluster.in_batches`.
        calls: the calls.
    """

    def __init__(
        self,
        home: GatewayCluster,
        prepare: Callable[[], T],
        answer: Callable[[Call, T], Reply],
        calls: deque[_Gathered],
    ) -> None:
        self._home, self._prepare, self._answer, self._calls = home, prepare, answer, calls
        self._prepared = list[T]()

    async def work(self, most: int) -> None:
        """Handle the calls in one thread, and in up to `most` threads while there are slow calls."""
        outcomes, seen = list[_Outcome](), -1
        thread = asyncio.ensure_future(self._home.run(self._in_turn, outcomes))
        while not thread.done() and (most == 1 or not self._prepared or seen < len(outcomes)):
            seen = len(outcomes)
            await asyncio.wait([thread], timeout=SLOW_SECONDS)
            _settle(outcomes)
        begun = self._prepared and (outcomes or not thread.done())
        behind = self.work(most if thread.done() else most - 1) if self._calls and begun else asyncio.sleep(0)
        failure, _ = await asyncio.gather(self._settled(thread, outcomes), behind)
        if not begun:
            _settle(((done, None) for _, done in _popped(self._calls)), failure)

    @staticmethod
    async def _settled(thread: asyncio.Future[None], outcomes: Sequence[_Outcome]) -> BaseException | None:
        while not thread.done():
            await asyncio.wait([thread], timeout=SLOW_SECONDS)
            # The thread may go on behind a slow call.
            _settle(outcomes)
        (failure,) = await asyncio.gather(thread, return_exceptions=True)
        _settle(outcomes, failure)
        return failure

    def _in_turn(self, outcomes: list[_Outcome]) -> None:
        if not self._prepared:
            self._prepared.append(self._prepare())
        for call, done in _popped(self._calls):
            reply: tuple[Reply] | None = None
            try:
                reply = (self._answer(call, self._prepared[0]),)
            finally:
                outcomes.append((done, reply))
