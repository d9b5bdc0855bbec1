"""Clients in asyncio: `await producer.send(…)` and `async for record in consumer`, in a plain loop and in a server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.admin.testing import MemoryCluster
from kafkalike.errors import MessageSizeTooLargeError, RecordDeserializationError
from kafkalike.log.cluster.cluster import Cluster
from tests.tools.consumer import T0, Make, write


def test_awaited_send_returns_the_metadata(cluster: Cluster) -> None:
    """Several at once, in the order of the sends."""

    async def work() -> list[int]:
        with KafkaProducer(bootstrap_servers=cluster) as producer:
            first = await producer.send("orders", b"a")
            both = await asyncio.gather(producer.send("orders", b"b"), producer.send("orders", b"c"))
        return [first.offset, *(metadata.offset for metadata in both)]

    assert asyncio.run(work()) == [0, 1, 2]


def test_awaited_send_raises_the_error_of_the_record(cluster: Cluster) -> None:
    cluster.create_topic("orders", 1, {"max.message.bytes": "100"})

    async def work() -> None:
        with KafkaProducer(bootstrap_servers=cluster) as producer:
            await producer.send("orders", b"x" * 1000)

    with pytest.raises(MessageSizeTooLargeError):
        asyncio.run(work())


@pytest.mark.slow
def test_record_of_a_cancelled_wait_is_sent_all_the_same() -> None:
    """The loop is gone when the record is written, and nobody is told."""
    cluster = MemoryCluster()
    producer = KafkaProducer(bootstrap_servers=cluster, linger_ms=60_000)

    async def work() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.send("orders", b"a"), 0.01)

    asyncio.run(work())
    producer.close()

    with KafkaConsumer("orders", bootstrap_servers=cluster, auto_offset_reset="earliest") as consumer:
        assert next(consumer).value == b"a"


def test_async_loop_yields_records_in_order_and_ends_after_its_timeout(cluster: Cluster, consumer_of: Make) -> None:
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b", b"c")
    consumer = consumer_of("orders", consumer_timeout_ms=1, max_poll_records=2)

    async def work() -> list[bytes | None]:
        return [record.value async for record in consumer]

    assert asyncio.run(work()) == [b"a", b"b", b"c"]


def test_event_loop_runs_while_a_consumer_waits() -> None:
    """The record that it waits for is sent by another task of the same loop."""
    cluster = MemoryCluster()

    async def work() -> list[bytes | None]:
        async def read() -> list[bytes | None]:
            settings: dict[str, Any] = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 500}
            with KafkaConsumer("orders", bootstrap_servers=cluster, **settings) as consumer:
                return [record.value async for record in consumer]

        with KafkaProducer(bootstrap_servers=cluster) as producer:
            waiting = asyncio.create_task(read())
            await asyncio.sleep(0)
            await producer.send("orders", b"tea")
            return await waiting

    assert asyncio.run(work()) == [b"tea"]


def test_cancelled_loop_loses_no_record_and_frees_the_consumer() -> None:
    """Neither of the records in its buffer, nor of one that comes while the poll of a cancelled task still runs."""
    cluster = MemoryCluster()
    seen: list[bytes | None] = []

    async def work(consumer: KafkaConsumer, producer: KafkaProducer) -> None:
        async def read() -> None:
            async for record in consumer:
                seen.append(record.value)

        for value in (b"a", b"b", b"c"):
            reading = asyncio.create_task(read())
            await asyncio.sleep(0)  # the poll is in its thread
            producer.send("orders", value)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            consumer.commit()  # is refused while a thread is inside

    with (
        KafkaProducer(bootstrap_servers=cluster) as producer,
        KafkaConsumer(
            "orders", bootstrap_servers=cluster, group_id="g", auto_offset_reset="earliest", consumer_timeout_ms=500
        ) as consumer,
    ):
        asyncio.run(work(consumer, producer))
        seen += [record.value for record in consumer]

    assert seen == [b"a", b"b", b"c"]


def test_loop_that_is_cancelled_twice_still_waits_for_its_poll(consumer_of: Make) -> None:
    """As at the end of `asyncio.run`, which cancels the tasks that are left: `close` finds no thread inside."""
    consumer = consumer_of("orders")

    async def read() -> None:
        async for _ in consumer:
            pass

    async def work() -> None:
        reading = asyncio.create_task(read())
        await asyncio.sleep(0)  # the poll is in its thread
        reading.cancel()
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        consumer.close()

    asyncio.run(work())


def test_position_stands_after_the_last_record_that_the_loop_got(cluster: Cluster, consumer_of: Make) -> None:
    """The other records of the poll are not counted as read."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b", b"c")
    consumer = consumer_of("orders", group_id="g")

    async def work() -> None:
        async for record in consumer:
            if record.value == b"b":
                break

    asyncio.run(work())
    consumer.commit()

    assert consumer.committed(T0) == 2


def test_error_of_a_poll_reaches_the_loop(cluster: Cluster, consumer_of: Make) -> None:
    cluster.create_topic("orders", 1, {})
    write(cluster, b"not a number")
    consumer = consumer_of("orders", value_deserializer=int)

    async def work() -> None:
        async for _ in consumer:
            pass

    with pytest.raises(RecordDeserializationError, match="orders-0: the value of the record at offset 0"):
        asyncio.run(work())


def test_closed_consumer_ends_the_loop(consumer_of: Make) -> None:
    consumer = consumer_of("orders")
    consumer.close()

    async def work() -> list[object]:
        return [record async for record in consumer]

    assert asyncio.run(work()) == []


def test_server_answers_with_offsets_and_follows_a_topic() -> None:
    """The program of docs/coming-from.md, in Starlette, on which FastAPI is built."""
    cluster = MemoryCluster()
    seen: list[bytes | None] = []
    complete = asyncio.Event()

    async def follow() -> None:
        with KafkaConsumer("orders", bootstrap_servers=cluster, auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                seen.append(record.value)
                if len(seen) == 2:
                    complete.set()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        with KafkaProducer(bootstrap_servers=cluster) as app.state.producer:
            task = asyncio.create_task(follow())
            yield
            await complete.wait()
            task.cancel()

    async def order(request: Request) -> JSONResponse:
        sent = await request.app.state.producer.send("orders", await request.body())
        return JSONResponse({"offset": sent.offset})

    with TestClient(Starlette(routes=[Route("/orders", order, methods=["POST"])], lifespan=lifespan)) as client:
        answers = [client.post("/orders", content=body).json() for body in (b"tea", b"milk")]

    assert answers == [{"offset": 0}, {"offset": 1}]
    assert seen == [b"tea", b"milk"]
