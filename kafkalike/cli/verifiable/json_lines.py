"""JSON lines: names and fields of events in, one line of JSON for each out, as Kafka's system tests read them."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import BinaryIO

from kafkalike.model.clock import WallClock


class JsonEvents:
    """Prints events, one line each, at once. Thread-safe: acknowledgements come from the producer's thread.

    Args:
        out: where the lines go.
        clock: where `timestamp` (ms) comes from.
    """

    def __init__(self, out: BinaryIO, clock: WallClock) -> None:
        self._out = out
        self._clock = clock
        self._lock = threading.Lock()

    def emit(self, name: str, **fields: object) -> None:
        """Print one event: `{"timestamp": ms, "name": name, ...fields}`."""
        self.emit_all(name, [fields])

    def emit_all(self, name: str, events: Sequence[dict[str, object]]) -> None:
        """Print several events of one name with one write."""
        now = self._clock.now_ms()
        lines = [json.dumps({"timestamp": now, "name": name, **fields}, separators=(",", ":")) for fields in events]
        with self._lock:
            self._out.write("".join(f"{line}\n" for line in lines).encode())
            self._out.flush()


def print_line(out: BinaryIO, fields: dict[str, object]) -> None:
    """Print one line with these fields and no others, at once."""
    out.write(f"{json.dumps(fields, separators=(',', ':'))}\n".encode())
    out.flush()


def as_text(data: bytes | None) -> str | None:
    """Bytes as text for JSON: UTF-8, with replacement characters where they are none; None stays None."""
    return None if data is None else data.decode("utf-8", errors="replace")
