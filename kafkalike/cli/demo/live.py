"""Live: a producer in a thread and a consumer beside it; the time from send to poll."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from statistics import quantiles
from typing import Any, Final

from kafkalike.cli.demo.screen import Place, Screen
from kafkalike.cli.demo.steps import DEPARTURES, FLIGHTS, PATIENCE_MS
from kafkalike.consumer import KafkaConsumer
from kafkalike.model.clock import Clock
from kafkalike.model.structs import ConsumerRecord
from kafkalike.producer import KafkaProducer

RECORDS: Final = 200
PAUSE: Final = 0.02
"""Seconds between two sends."""


def live(place: Place, screen: Screen, clock: Clock) -> int:
    """Send flights again, one by one, while a consumer waits for them.

    Returns:
        How many records were sent.
    """
    flights = _first_flights(place)
    got: list[tuple[bytes | None, int, float]] = []
    settings: dict[str, Any] = {**place.named, "auto_offset_reset": "earliest", "max_poll_records": RECORDS}
    with (
        KafkaConsumer(DEPARTURES, **settings) as consumer,
        ThreadPoolExecutor(1, "departures") as pool,
        screen.progress("departures", len(flights)) as advance,
    ):
        consumer.poll()
        sending = pool.submit(_send, place, flights, clock)
        while len(got) < len(flights):
            polled = consumer.poll(PATIENCE_MS)
            if not polled:
                break
            got += _received(polled.values(), clock.monotonic())
            advance(sum(map(len, polled.values())))
        sending.result()
    _report(screen, got, len(flights))
    return len(flights)


def _first_flights(place: Place) -> list[ConsumerRecord]:
    with KafkaConsumer(FLIGHTS, **place.named, auto_offset_reset="earliest") as consumer:
        return [record for batch in consumer.poll(PATIENCE_MS).values() for record in batch][:RECORDS]


def _send(place: Place, flights: Sequence[ConsumerRecord], clock: Clock) -> None:
    """Send them, and wait until each one is in the log."""
    futures = []
    with KafkaProducer(**place.named) as producer:
        for number, flight in enumerate(flights):
            sent = json.dumps({"number": number, "at": clock.monotonic()}).encode()
            futures.append(producer.send(DEPARTURES, key=flight.key, value=flight.value, headers=[("sent", sent)]))
            clock.sleep(PAUSE)
        for future in futures:
            future.get(PATIENCE_MS / 1000)


def _received(batches: Iterable[Sequence[ConsumerRecord]], now: float) -> list[tuple[bytes | None, int, float]]:
    """Key, number and age (ms) of each record."""
    taken = []
    for record in (record for batch in batches for record in batch):
        sent = json.loads(dict(record.headers)["sent"] or b"")
        taken.append((record.key, sent["number"], (now - sent["at"]) * 1000))
    return taken


def _report(screen: Screen, got: Sequence[tuple[bytes | None, int, float]], sent: int) -> None:
    percentiles = quantiles([age for _, _, age in got] or [0.0, 0.0], n=100, method="inclusive")
    screen.say(
        f"from send() to poll(), a record every {PAUSE * 1000:.0f} ms: p50 {percentiles[49]:.0f} ms, "
        f"p95 {percentiles[94]:.0f} ms"
    )
    screen.check(f"{sent} sent, each of them polled once", sorted(number for _, number, _ in got), list(range(sent)))
    keyed = [(key, number) for key, number, _ in got if key is not None]
    # A stable sort: numbers of one key stay as they came.
    in_order = sorted(keyed, key=itemgetter(0)) == sorted(keyed)
    screen.check("and in order for each key", in_order, wanted=True)
