"""A record's way through a cluster of one root passes no module about replicas, voters, mirrors or hanging roots.

Who follows `send`, `poll`, `commit` or a maintenance run in a debugger, or with the documented walks, must not need to
know what a cluster of several roots does: it costs that reader nothing.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import kafkalike
from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.connect import connect
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.retention import maintain

ROOT = str(Path(kafkalike.__file__).parent.parent) + "/"

ELSEWHERE = re.compile(r"/replication/|replica|voter|quorum|mirror|broker|bounded|impatient|timeout|circuit")
"""Names of files about clusters of several roots, or about roots that hang."""


class Trace:
    """The files of the package whose functions are called, in the threads that are traced."""

    def __init__(self) -> None:
        self.functions: set[str] = set()
        self.on = False

    def __call__(self, frame: FrameType, event: str, _arg: object) -> None:
        """As `sys.setprofile` wants it."""
        name = frame.f_code.co_filename
        if self.on and event == "call" and name.startswith(f"{ROOT}kafkalike/"):
            self.functions.add(f"{name.removeprefix(ROOT)}:{frame.f_code.co_qualname}")

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Trace this thread, and those that were started under this trace."""
        self.on = True
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            self.on = False

    @property
    def files(self) -> set[str]:
        """Names of files of the package."""
        return {function.partition(":")[0] for function in self.functions}

    def elsewhere(self) -> list[str]:
        """Functions of files about other things than a record and one root."""
        return sorted(function for function in self.functions if ELSEWHERE.search(function.partition(":")[0]))


@pytest.fixture
def trace() -> Iterator[Trace]:
    """A trace that threads of this test are started under."""
    made = Trace()
    threading.setprofile(made)
    yield made
    threading.setprofile(None)


def record_path(root: Path, trace: Trace, act: str) -> None:
    """Do one act of a client that is warm, with the trace on."""
    with (
        KafkaProducer(bootstrap_servers=str(root)) as producer,
        KafkaConsumer(
            "t", bootstrap_servers=str(root), group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer,
    ):

        def send() -> None:
            assert producer.send("t", b"v").get(timeout=60).offset >= 0

        def polled() -> None:
            while not consumer.poll(timeout_ms=1000):
                pass

        def in_turn(*calls: Callable[[], object]) -> None:
            for call in calls:
                call()

        acts: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "send": (lambda: None, send),
            "poll": (send, polled),
            "idle poll": (lambda: in_turn(send, polled), lambda: consumer.poll(timeout_ms=0)),
            "commit": (lambda: in_turn(send, polled), consumer.commit),
            "maintain": (
                lambda: in_turn(send, polled, consumer.commit),
                lambda: maintain(connect(root), clock=SYSTEM_CLOCK),
            ),
        }
        before, call = acts[act]
        for _ in range(2):
            before()
            call()
        before()
        with trace.taken():
            call()


@pytest.mark.parametrize(
    ("act", "passes"),
    [
        pytest.param("send", "kafkalike/producer/kafka_producer.py", id="send"),
        pytest.param("poll", "kafkalike/consumer/kafka_consumer.py", id="poll"),
        pytest.param("idle poll", "kafkalike/consumer/kafka_consumer.py", id="idle-poll"),
        pytest.param("commit", "kafkalike/consumer/kafka_consumer.py", id="commit"),
        pytest.param("maintain", "kafkalike/maintenance/maintenance_run.py", id="maintain"),
    ],
)
def test_record_of_a_cluster_with_one_root_passes_no_module_about_several(
    tmp_path: Path, trace: Trace, act: str, passes: str
) -> None:
    record_path(tmp_path / "root", trace, act)

    assert passes in trace.files
    assert "kafkalike/delta/table.py" in trace.files or "kafkalike/delta/tailed_table.py" in trace.files
    assert trace.elsewhere() == []
