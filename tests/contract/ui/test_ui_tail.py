"""Records as they come, watched by many pages at once."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import pytest

from kafkalike.admin.testing import MemoryCluster
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.producer import KafkaProducer
from kafkalike.ui.access_control import AccessControl
from kafkalike.ui.app import console
from kafkalike.ui.cluster_view import ConsoleView
from kafkalike.ui.pages.record_pages import MOST_TAILS
from kafkalike.ui.value_tree import Decode

Message = MutableMapping[str, Any]


class Watcher:
    """A browser that watches a topic until it is told to go."""

    def __init__(self, gate: Callable[..., Awaitable[None]], topic: str, method: str = "GET") -> None:
        self.status = 0
        self.text = ""
        self.gone = asyncio.Event()
        self.heard = asyncio.Event()
        self._asked = False
        path = f"/topics/{topic}/tail/events"
        self._scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
            "scheme": "http",
            "server": ("localhost", 80),
            "asgi": {"version": "3.0", "spec_version": "2.3"},
        }
        self._gate = gate

    async def watch(self) -> None:
        """Ask, and hear what is told."""
        await self._gate(self._scope, self._receive, self._send)

    async def _receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.text += message.get("body", b"").decode()
            self.heard.set()

    async def until(self, text: str) -> None:
        """Wait for a text."""
        while text not in self.text:
            self.heard.clear()
            await asyncio.wait_for(self.heard.wait(), 20)


@pytest.fixture
def cluster() -> MemoryCluster:
    """With one topic."""
    made = MemoryCluster()
    made.create_topic("t", 2, {})
    return made


def test_no_more_pages_watch_than_may_and_each_gives_its_place_back(cluster: MemoryCluster) -> None:
    """Also when all of them ask in one moment, and leave without a word."""
    view = ConsoleView(cluster, SYSTEM_CLOCK)
    gate = console(view, AccessControl(token="", port=80))

    async def crowd() -> list[int]:
        watchers = [Watcher(gate, "t") for _ in range(MOST_TAILS * 2)]
        tasks = [asyncio.create_task(one.watch()) for one in watchers]
        for one in watchers:
            await asyncio.wait_for(one.heard.wait(), 20)
        for one in watchers:
            one.gone.set()
        await asyncio.gather(*tasks)
        left = Watcher(gate, "t")
        left.gone.set()
        await left.watch()
        await Watcher(gate, "none").watch()
        await asyncio.wait_for(Watcher(gate, "t", "HEAD").watch(), 20)
        return [one.status for one in watchers]

    statuses = asyncio.run(crowd())
    assert sorted(statuses) == [200] * MOST_TAILS + [503] * MOST_TAILS
    assert gate.app.state.tails == 0
    view.close()


def test_rows_are_made_where_no_other_page_waits_for_them(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the registry and the values takes its time."""
    view = ConsoleView(cluster, SYSTEM_CLOCK)
    gate = console(view, AccessControl(token="", port=80))
    threads: set[threading.Thread] = set()
    decode = view.decode

    def seen() -> Decode:
        threads.add(threading.current_thread())
        return decode()

    monkeypatch.setattr(view, "decode", seen)

    async def watched() -> str:
        watcher = Watcher(gate, "t")
        task = asyncio.create_task(watcher.watch())
        await watcher.until("ready")
        with KafkaProducer(bootstrap_servers=cluster) as producer:
            producer.send("t", b"<b>\r\nevent: x", headers=[("a\r\nevent: y", b"")])
        await watcher.until("</tr>")
        watcher.gone.set()
        await task
        return watcher.text

    text = asyncio.run(watched())
    assert "&lt;b&gt; event: x" in text
    assert [line for line in text.splitlines() if line.startswith("event: ")] == ["event: ready", "event: rows"]
    assert threads
    assert threading.main_thread() not in threads
    view.close()
