"""An object store that takes connections and answers nobody, for a while: what clients do until it answers again.

What was asked meanwhile is done when the silence ends, when nobody waits for it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.connect import connect
from kafkalike.errors import KafkaConnectionError, KafkaStorageError
from tests.tools.fault_proxy import FaultProxy, fault_proxy
from tests.tools.kinds import OBJECT_STORES
from tests.tools.object_servers import ObjectServer

pytestmark = [pytest.mark.objects, pytest.mark.slow]

LOOKS = 2
"""Each takes some ten seconds: a request is made again and again."""


@dataclass(frozen=True)
class Place:
    """A root with a topic, behind a proxy; who asks there gives up after a second."""

    root: str
    options: dict[str, str]
    proxy: FaultProxy

    def named(self) -> dict[str, Any]:
        """Arguments of a client."""
        return {"bootstrap_servers": self.root, "storage_options": self.options}


@pytest.fixture(params=OBJECT_STORES)
def place(request: pytest.FixtureRequest, object_server: Callable[[str], ObjectServer]) -> Iterator[Place]:
    server = object_server(request.param)
    with fault_proxy(server.port) as proxy:
        options = {**server.behind(proxy.port).options, "timeout": "1s"}
        root = server.new_root()
        connect(root, options).create_topic("t", 1, {})
        yield Place(root, options, proxy)


def values(consumer: KafkaConsumer, number: int) -> list[bytes]:
    """The values of so many records, in the order of offsets that follow each other."""
    found: list[Any] = []
    while len(found) < number:
        found += [record for records in consumer.poll(timeout_ms=1000).values() for record in records]
    assert [record.offset for record in found] == list(range(found[0].offset, found[0].offset + len(found)))
    return [record.value for record in found]


def poll_all(consumer: KafkaConsumer) -> list[Any]:
    """What some polls return."""
    return [consumer.poll(timeout_ms=100) for _ in range(LOOKS)]


def test_what_is_sent_into_a_silence_is_read_once_when_it_ends(place: Place) -> None:
    """Polls of a member return nothing, and no send fails."""
    with (
        KafkaProducer(**place.named()) as producer,
        KafkaConsumer("t", group_id="g", auto_offset_reset="earliest", **place.named()) as consumer,
    ):
        producer.send("t", b"before").get()
        before = values(consumer, 1)

        with place.proxy.silence():
            sent = [producer.send("t", str(number).encode()) for number in range(LOOKS)]
            polled = poll_all(consumer)
            waiting = [each.is_done for each in sent]
        offsets = [each.get().offset for each in sent]
        producer.send("t", b"after").get()

        assert before == [b"before"]
        assert polled == [{}] * LOOKS
        assert waiting == [False] * LOOKS
        assert offsets == [1, 2]
        assert values(consumer, LOOKS + 1) == [b"0", b"1", b"after"]
        assert consumer.poll(timeout_ms=0) == {}


def test_who_has_waited_for_its_time_is_told_and_may_go_on(place: Place) -> None:
    with (
        KafkaProducer(**place.named()) as producer,
        KafkaConsumer("t", default_api_timeout_ms=1, auto_offset_reset="earliest", **place.named()) as consumer,
    ):
        producer.send("t", b"before").get()
        found = values(consumer, 1)

        with place.proxy.silence(), pytest.raises(KafkaStorageError) as refused:
            poll_all(consumer)
        producer.send("t", b"after").get()

        assert refused.value.retriable
        assert [*found, *values(consumer, 1)] == [b"before", b"after"]


def test_nobody_connects_in_a_silence(place: Place) -> None:
    other = {**place.options, "timeout": "0.9s"}

    with place.proxy.silence(), pytest.raises(KafkaConnectionError, match="no answer"):
        connect(place.root, other)
