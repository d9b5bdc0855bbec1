"""Parallel pages do not wait for each other."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from kafkalike.admin.testing import MemoryCluster
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.producer import KafkaProducer
from kafkalike.ui.cluster_view import ConsoleView


class SlowCluster(MemoryCluster):
    """Opens the log of the topic `slow` when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.let = threading.Event(), threading.Event()

    def log(self, name: str, *, since: float = float("inf")) -> TopicLog:
        """The log of a topic."""
        if name == "slow":
            self.asked.set()
            assert self.let.wait(60)
        return super().log(name, since=since)


@contextmanager
def meanwhile(work: Callable[[], Any], begun: threading.Event, go: threading.Event) -> Iterator[None]:
    """Something that has begun, and goes on until the block is left."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert begun.wait(60)
    try:
        yield
    finally:
        go.set()
        thread.join()


def in_time(work: Callable[[], Any]) -> Any:
    """What a piece of work gives, unless it waits for the one that goes on."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(10)
    assert found, "it waits"
    return found[0]


@pytest.fixture
def view() -> Iterator[ConsoleView]:
    """A view over two topics, one of which is slow."""
    cluster = SlowCluster()
    for name in ("slow", "t"):
        cluster.create_topic(name, 1, {})
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        producer.send("t", b"one").get()
    made = ConsoleView(cluster, SYSTEM_CLOCK)
    yield made
    made.close()


def test_a_slow_topic_holds_up_no_other_one(view: ConsoleView) -> None:
    """Neither its records nor its partitions; the overview shows what it knows."""
    cluster = view.cluster
    assert isinstance(cluster, SlowCluster)
    with meanwhile(view.overview, cluster.asked, cluster.let):
        assert in_time(view.overview).topics == {}
        assert in_time(lambda: view.partitions("t"))[0].log_end == 1
        assert in_time(lambda: view.with_log("t", lambda log: log.log_end(0))) == 1


def test_a_search_and_a_plot_hold_up_no_other_page(view: ConsoleView) -> None:
    """Of the same topic."""

    def search(ask: Callable[[Any], Any]) -> Any:
        return view.with_log("t", ask)

    for slow in (view.with_lags, search):
        begun, go = threading.Event(), threading.Event()

        def wait(_held: Any, begun: threading.Event = begun, go: threading.Event = go) -> None:
            begun.set()
            assert go.wait(60)

        with meanwhile(partial(slow, wait), begun, go):
            assert in_time(lambda: view.with_log("t", lambda log: log.log_end(0))) == 1
            assert in_time(view.group_ids) == []
            assert in_time(lambda: view.partitions("t"))[0].log_end == 1


def test_a_topic_that_is_created_again_is_the_new_one(view: ConsoleView) -> None:
    """Not the one that is kept open."""
    cluster = view.cluster
    assert view.with_log("t", lambda log: log.log_end(0)) == 1
    cluster.delete_topic("t")
    cluster.create_topic("t", 2, {})
    assert view.with_log("t", lambda log: [log.log_end(p) for p in log.info.partitions]) == [0, 0]
    assert [index.log_end for index in view.partitions("t").values()] == [0, 0]


def test_pages_that_send_at_once_share_one_producer(view: ConsoleView) -> None:
    """Another one would not be closed."""
    barrier = threading.Barrier(8)
    found: list[KafkaProducer] = []

    def ask() -> None:
        barrier.wait()
        found.append(view.producer)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(one) for one in found}) == 1
