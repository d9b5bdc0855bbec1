"""Heartbeats that come together are handled together, and none waits for, or fails with, another one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kafkalike.gateway import gateway_cluster
from kafkalike.gateway.gateway_cluster import Call, GatewayCluster
from kafkalike.gateway.live_gateways import LiveGateways
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.clock import SYSTEM_CLOCK

MEMBERS = ["a", "b", "c", "d"]


@pytest.fixture
def home(served: tuple[Cluster, str]) -> Iterator[GatewayCluster]:
    """The cluster of a gateway without a port."""
    made = GatewayCluster(served[0], LiveGateways(served[0], ("127.0.0.1", 1), SYSTEM_CLOCK), SYSTEM_CLOCK)
    yield made
    made.close()


def nothing() -> None:
    """Prepare nothing."""


def test_slow_heartbeat_delays_no_other(home: GatewayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_cluster, "SLOW_SECONDS", 0.02)
    others_are_answered = threading.Event()

    def beat(call: Call, _: None) -> Mapping[str, Any]:
        if call.client_id == "b":
            assert others_are_answered.wait(20)
        return {"member_id": call.client_id}

    async def together() -> list[str]:
        handler, answered = home.in_batches(nothing, beat), list[str]()

        async def one(member: str) -> None:
            answer = await handler(Call(4, None, member, ""))
            assert answer == {"member_id": member}
            answered.append(member)
            if len(answered) == len(MEMBERS) - 1:
                others_are_answered.set()

        await asyncio.gather(*map(one, MEMBERS))
        return answered

    answered = asyncio.run(together())

    assert sorted(answered[:-1]) == ["a", "c", "d"]
    assert answered[-1] == "b"


def test_heartbeat_that_fails_fails_no_other(home: GatewayCluster) -> None:
    def beat(call: Call, _: None) -> Mapping[str, Any]:
        if call.client_id == "b":
            raise LookupError(call.client_id)
        return {"member_id": call.client_id}

    async def together() -> list[Any]:
        handler = home.in_batches(nothing, beat)
        return await asyncio.gather(*(handler(Call(4, None, m, "")) for m in MEMBERS), return_exceptions=True)

    found = asyncio.run(together())

    assert isinstance(found.pop(1), LookupError)
    assert found == [{"member_id": m} for m in ("a", "c", "d")]


def test_heartbeats_that_come_together_share_one_look(home: GatewayCluster) -> None:
    looks = list[int]()

    def beat(call: Call, look: int) -> Mapping[str, Any]:
        return {"member_id": call.client_id, "look": look}

    def prepared() -> int:
        looks.append(len(looks))
        return looks[-1]

    async def together() -> list[Any]:
        handler = home.in_batches(prepared, beat)
        return await asyncio.gather(*(handler(Call(4, None, m, "")) for m in MEMBERS))

    assert asyncio.run(together()) == [{"member_id": m, "look": 0} for m in MEMBERS]


def test_slow_look_is_taken_once_for_all_heartbeats(home: GatewayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_cluster, "SLOW_SECONDS", 0.01)
    looks, answered = list[int](), threading.Event()

    def beat(call: Call, look: int) -> Mapping[str, Any]:
        return {"member_id": call.client_id, "look": look}

    def prepared() -> int:
        looks.append(len(looks))
        assert answered.wait(20)
        return looks[-1]

    async def together() -> list[Any]:
        handler = home.in_batches(prepared, beat)
        waiting = asyncio.gather(*(handler(Call(4, None, m, "")) for m in MEMBERS))
        await asyncio.sleep(0.2)
        answered.set()
        return await waiting

    assert asyncio.run(together()) == [{"member_id": m, "look": 0} for m in MEMBERS]
    assert looks == [0]


def test_slow_heartbeats_take_few_threads(home: GatewayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_cluster, "SLOW_SECONDS", 0.01)
    running, answered = list[str](), threading.Event()

    def beat(call: Call, _: None) -> Mapping[str, Any]:
        running.append(call.client_id)
        assert answered.wait(20)
        return {"member_id": call.client_id}

    async def together() -> int:
        handler = home.in_batches(nothing, beat)
        waiting = asyncio.gather(*(handler(Call(4, None, str(n), "")) for n in range(20)))
        await asyncio.sleep(0.3)
        at_work = len(running)
        answered.set()
        assert len(await waiting) == 20
        return at_work

    assert asyncio.run(together()) <= gateway_cluster.MOST_BATCH_THREADS


def test_thread_that_goes_on_behind_a_slow_heartbeat_holds_no_answer_back(
    home: GatewayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_cluster, "SLOW_SECONDS", 0.01)
    second_thread_runs, first_thread_goes_on, first_is_answered = (threading.Event() for _ in range(3))

    def beat(call: Call, _: None) -> Mapping[str, Any]:
        if call.client_id == "a":
            assert second_thread_runs.wait(20)
        elif call.client_id == "b":
            second_thread_runs.set()
            assert first_thread_goes_on.wait(20)
        elif call.client_id == "c":
            first_thread_goes_on.set()
            assert first_is_answered.wait(20)
        return {"member_id": call.client_id}

    async def together() -> list[Any]:
        handler = home.in_batches(nothing, beat)

        async def one(member: str) -> Any:
            answer = await handler(Call(4, None, member, ""))
            if member == "a":
                first_is_answered.set()
            return answer

        return await asyncio.gather(*map(one, MEMBERS))

    assert asyncio.run(together()) == [{"member_id": m} for m in MEMBERS]
