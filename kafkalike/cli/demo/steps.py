"""Steps: a cluster and its flights in, each thing kafkalike does with them shown and checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kafkalike.admin import KafkaAdminClient
from kafkalike.consumer import KafkaConsumer
from kafkalike.model.clock import Clock
from kafkalike.model.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from kafkalike.cli.demo.data import Flights
    from kafkalike.cli.demo.screen import Place, Screen

FLIGHTS: Final = "flights"
AIRLINES: Final = "airlines"
WEATHER: Final = "weather"
DEPARTURES: Final = "departures"
GROUP: Final = "delay-report"

KEEP_FOREVER: Final = {"retention.ms": "-1"}
"""The records are of 2013: Kafka's seven days would let the next retention run delete them."""
TOPICS: Final[Mapping[str, Mapping[str, Any]]] = {
    FLIGHTS: {"num_partitions": 6, "configs": KEEP_FOREVER},
    AIRLINES: {"num_partitions": 1, "configs": {"cleanup.policy": "compact"}},
    WEATHER: {"num_partitions": 3, "configs": KEEP_FOREVER},
    DEPARTURES: {"num_partitions": 3, "configs": KEEP_FOREVER},
}

PATIENCE_MS: Final = 10_000
"""Ms to wait for records that must come."""


def create_topics(place: Place, screen: Screen) -> None:
    """Create the four topics."""
    with KafkaAdminClient(**place.named) as admin:
        admin.create_topics({name: dict(spec) for name, spec in TOPICS.items()})
    shown = [f"{name} ({spec['num_partitions']})" for name, spec in TOPICS.items()]
    screen.say(f"A cluster is a {'place in an object store' if '://' in place.root else 'folder'}: {place.root}")
    screen.say(f"Topics, with their number of partitions: {', '.join(shown)}")


def produce(place: Place, screen: Screen, data: Flights, rows: int) -> None:
    """Write the DataFrames into topics: one Delta commit each."""
    from kafkalike.spark import write

    for topic, frame, schema in (
        (FLIGHTS, data.flights, None),
        (AIRLINES, data.airlines, None),
        (WEATHER, data.weather, "avro"),
    ):
        with screen.waiting(f"Spark writes {topic}"):
            written = write(frame, topic, schemas=schema, **place.named)
        total = sum(map(len, written.values()))
        made = "Avro records, with the schema of their columns" if schema else "records"
        screen.say(f"{topic}: {total:,} {made}, one table commit")
        if topic == FLIGHTS:
            runs = ", ".join(f"{tp.partition}: {run.stop:,}" for tp, run in sorted(written.items()))
            screen.say(f"log end by partition: {runs}")
            screen.check(f"the topic has all {rows:,} flights", total, rows)
            screen.check("offsets begin at 0 in each partition", {run.start for run in written.values()}, {0})


@dataclass(slots=True)
class Tally:
    """What consumers have seen of the flights."""

    records: int = 0
    distance: int = 0
    """Miles flown, summed: a number that is wrong as soon as a record is missing or doubled."""
    next_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    last_times: dict[bytes, int] = field(default_factory=dict)
    """Time of the latest flight by tail number."""
    gaps: int = 0
    """Records whose offset is not the one after their predecessor's."""
    disorder: int = 0
    """Records that are older than one with the same key before them."""

    def add(self, polled: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> int:
        """Take in what a poll returned; says how many records that were."""
        count = 0
        for tp, batch in polled.items():
            following = self.next_offsets.get(tp, 0)
            for record in batch:
                self.gaps += record.offset != following
                following = record.offset + 1
                self.distance += record.value["distance"]
                if record.key is not None:
                    self.disorder += record.timestamp < self.last_times.get(record.key, 0)
                    self.last_times[record.key] = record.timestamp
            self.next_offsets[tp] = following
            count += len(batch)
        self.records += count
        return count


def consume(place: Place, screen: Screen, rows: int, clock: Clock) -> Tally:
    """Read half of the flights, close the consumer, and let a second one of the group read the rest."""
    tally = Tally()
    began = clock.monotonic()
    with screen.progress("flights", rows) as advance:
        first = _consume(place, tally, rows // 2, advance)
        half = tally.records
        stopped_at = dict(tally.next_offsets)
        found = _consume(place, tally, rows, advance)
    seconds = clock.monotonic() - began
    screen.say(f"first consumer of group {GROUP!r}: {half:,} flights, then closed; it committed its offsets")
    screen.say(f"second consumer: {tally.records - half:,} flights; {tally.records / seconds:,.0f} records/s in all")
    screen.check("the first began where nothing was committed", first, {})
    screen.check("the second began at the committed offsets", found, stopped_at)
    screen.check(f"{half:,} + {tally.records - half:,} flights are all {rows:,}", tally.records, rows)
    screen.check("no offset was skipped or came twice", tally.gaps, 0)
    screen.check("each plane's flights came in order", tally.disorder, 0)
    return tally


def _consume(place: Place, tally: Tally, until: int, advance: Callable[[int], None]) -> dict[TopicPartition, int]:
    """Read until so many records are in the tally, and give the offsets that the group had committed before."""
    with KafkaConsumer(
        FLIGHTS,
        **place.named,
        group_id=GROUP,
        auto_offset_reset="earliest",
        max_poll_records=max(1, min(5_000, until // 10)),
        value_deserializer=json.loads,
    ) as consumer:
        partitions = [TopicPartition(FLIGHTS, p) for p in sorted(consumer.partitions_for_topic(FLIGHTS))]
        committed = {tp: at for tp in partitions if (at := consumer.committed(tp)) is not None}
        while tally.records < until:
            polled = consumer.poll(PATIENCE_MS)
            if not polled:
                break
            advance(tally.add(polled))
    return committed


def verify(place: Place, screen: Screen, at_least: int) -> None:
    """Read all files and check them against what the log promises."""
    from kafkalike.connect import connect
    from kafkalike.maintenance.verify.verify import total_bytes
    from kafkalike.maintenance.verify.verify import verify as check

    cluster = connect(place.root, place.storage_options)
    size = total_bytes(cluster, TOPICS)
    with screen.progress("bytes", size) as advance:
        report = check(cluster, TOPICS, advance)
    screen.say(
        f"{report.topics} topics, {report.partitions} partitions, {report.segments} data files, "
        f"{report.records:,} records, {size / 1e6:.1f} MB"
    )
    screen.check("the log is sound", [str(finding) for finding in report.findings], [])
    screen.check("and holds what was produced", report.records >= at_least, wanted=True)
