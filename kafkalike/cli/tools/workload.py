"""Parts of Kafka's test tools: send statistics, a rate limit, and events as lines of JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import BinaryIO, Final

import click

from kafkalike.model.clock import MonotonicClock, WallClock

MEGABYTE: Final = 1024 * 1024
PERCENTILES: Final = (0.5, 0.95, 0.99, 0.999)


class _Window:
    """Statistics of the sends since a moment."""

    def __init__(self, start: float) -> None:
        self.start = start
        self.count = 0
        self.bytes = 0
        self.latency_ms = 0.0
        self.max_ms = 0.0

    def add(self, latency_ms: float, size: int) -> None:
        self.count += 1
        self.bytes += size
        self.latency_ms += latency_ms
        self.max_ms = max(self.max_ms, latency_ms)

    def rates(self, now: float) -> tuple[float, float]:
        """Return records and megabytes per second."""
        elapsed = max(now - self.start, 1e-9)
        return self.count / elapsed, self.bytes / elapsed / MEGABYTE


class SendStats:
    """Statistics of sends. Thread-safe, because acknowledgements arrive in the producer's thread.

    Args:
        clock: measures latencies.
        interval_ms: interval of the printed lines.
        print_line: prints a line.
        warmup: number of first records that a second summary leaves out; 0: one summary only.
    """

    def __init__(
        self, clock: MonotonicClock, interval_ms: int, print_line: Callable[[str], object], *, warmup: int = 0
    ) -> None:
        self._clock = clock
        self._interval = interval_ms / 1000
        self._print = print_line
        self._warmup = warmup
        self._all = _Window(clock.monotonic())
        self._window = _Window(self._all.start)
        self._steady: _Window | None = None
        self._latencies: list[float] = []
        self._lock = threading.Lock()

    def record(self, sent_at: float, size: int) -> None:
        """Count an acknowledged record, sent at `sent_at` (`clock.monotonic`), with its size in bytes."""
        with self._lock:
            now = self._clock.monotonic()
            latency_ms = (now - sent_at) * 1000
            self._all.add(latency_ms, size)
            self._window.add(latency_ms, size)
            self._latencies.append(latency_ms)
            if self._warmup and self._all.count > self._warmup:
                if self._steady is None:
                    self._steady = _Window(now)
                self._steady.add(latency_ms, size)
            if now - self._window.start >= self._interval:
                self._print(_interval_line(self._window, now))
                self._window = _Window(now)

    def total(self) -> Iterator[str]:
        """Yield Kafka's summary, and a second one without the warm-up, if any."""
        with self._lock:
            now = self._clock.monotonic()
            yield _total_line(self._all, now, self._latencies, "")
            if self._steady is not None:
                yield _total_line(self._steady, now, self._latencies[self._warmup :], " steady state")


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which a share of the ordered values lies; 0 without values.

    >>> percentile([1, 2, 3, 4], 0.5)
    3
    """
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0


def _interval_line(window: _Window, now: float) -> str:
    records, megabytes = window.rates(now)
    return (
        f"{window.count} records sent, {records:.1f} records/sec ({megabytes:.2f} MB/sec), "
        f"{window.latency_ms / max(window.count, 1):.1f} ms avg latency, {window.max_ms:.1f} ms max latency."
    )


def _total_line(window: _Window, now: float, latencies: Sequence[float], kind: str) -> str:
    records, megabytes = window.rates(now)
    ordered = sorted(latencies)
    p50, p95, p99, p999 = (round(percentile(ordered, share)) for share in PERCENTILES)
    return (
        f"{window.count}{kind} records sent, {records:.6f} records/sec ({megabytes:.2f} MB/sec), "
        f"{window.latency_ms / max(window.count, 1):.2f} ms avg latency, {window.max_ms:.2f} ms max latency, "
        f"{p50} ms 50th, {p95} ms 95th, {p99} ms 99th, {p999} ms 99.9th."
    )


def print_metrics(metrics: Mapping[str, Mapping[str, object]]) -> None:
    """Print metrics as lines `group:name : value` with aligned values."""
    lines = {f"{group}:{name}": value for group, names in metrics.items() for name, value in names.items()}
    width = max(map(len, lines), default=0)
    click.echo(f"\n{'Metric Name':<{width}} Value")
    for name, value in sorted(lines.items()):
        click.echo(f"{name:<{width}} : {f'{value:.3f}' if isinstance(value, float) else value}")


class JsonEvents:
    """Prints each event as a line of JSON, unbuffered. Thread-safe: acknowledgements arrive in the producer's thread.

    Args:
        out: output of the lines.
        clock: for `timestamp` (ms).
    """

    def __init__(self, out: BinaryIO, clock: WallClock) -> None:
        self._out = out
        self._clock = clock
        self._lock = threading.Lock()

    def emit(self, name: str, **fields: object) -> None:
        """Print one event: `{"timestamp": ms, "name": name, ...fields}`."""
        self.emit_all(name, [fields])

    def emit_all(self, name: str, events: Sequence[dict[str, object]]) -> None:
        """Print several events of a name with one write."""
        now = self._clock.now_ms()
        lines = [json.dumps({"timestamp": now, "name": name, **fields}, separators=(",", ":")) for fields in events]
        with self._lock:
            self._out.write("".join(f"{line}\n" for line in lines).encode())
            self._out.flush()


def print_line(out: BinaryIO, fields: dict[str, object]) -> None:
    """Print the fields as one line of JSON, unbuffered."""
    out.write(f"{json.dumps(fields, separators=(',', ':'))}\n".encode())
    out.flush()


def as_text(data: bytes | None) -> str | None:
    """Decode bytes as UTF-8 with replacement characters; None stays None."""
    return None if data is None else data.decode("utf-8", errors="replace")


class RateLimit:
    """Limits the rate of sends.

    Args:
        clock: measures and sleeps.
        per_second: records per second; 0 or less: unlimited.
    """

    def __init__(self, clock: MonotonicClock, per_second: float) -> None:
        self._clock = clock
        self._per_second = per_second
        self._start = clock.monotonic()

    def wait(self, sent: int) -> None:
        """Sleep until the rate allows this number of records."""
        if self._per_second > 0:
            self._clock.sleep(self._start + sent / self._per_second - self._clock.monotonic())
