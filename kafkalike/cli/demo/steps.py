"""Steps of the demo: each one shows a feature on the flights and checks the result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import SparkSession

from kafkalike.admin.admin_client import KafkaAdminClient
from kafkalike.cli.demo.screen import Place, Screen
from kafkalike.consumer.kafka_consumer import KafkaConsumer
from kafkalike.model.clock import Clock
from kafkalike.model.structs import ConsumerRecord, TopicPartition
from kafkalike.producer.kafka_producer import KafkaProducer
from kafkalike.spark import create_view, register_sql

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from kafkalike.cli.demo.data import Flights


FLIGHTS: Final = "flights"
AIRLINES: Final = "airlines"
WEATHER: Final = "weather"
DEPARTURES: Final = "departures"
GROUP: Final = "delay-report"

KEPT: Final = {"retention.ms": "-1", "compression.type": "zstd"}
"""The records are of 2013, so with Kafka's default of seven days the next retention run would delete them."""
TOPICS: Final[Mapping[str, Mapping[str, Any]]] = {
    FLIGHTS: {"num_partitions": 6, "configs": KEPT},
    AIRLINES: {"num_partitions": 1, "configs": {"cleanup.policy": "compact"}},
    WEATHER: {"num_partitions": 3, "configs": KEPT},
    DEPARTURES: {"num_partitions": 3, "configs": KEPT},
}

PATIENCE_MS: Final = 10_000
"""Timeout of polls for expected records (ms)."""


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
    """Statistics of the consumed flights."""

    records: int = 0
    distance: int = 0
    """Sum of miles, which shows a missing or duplicate record."""
    next_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    last_times: dict[bytes, int] = field(default_factory=dict)
    """Time of the latest flight by tail number."""
    gaps: int = 0
    """Records whose offset does not follow the previous record's."""
    disorder: int = 0
    """Records older than their predecessor with the same key."""

    def add(self, polled: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> int:
        """Add the records of a poll and return their number."""
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
    """Read half of the flights, close the consumer, and read the rest with a second consumer of the group."""
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
    """Read until the tally has `until` records; return the offsets that the group had committed before."""
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
    """Run `kafkalike verify` on all topics of the demo."""
    from kafkalike.connect import connect
    from kafkalike.maintenance.verify.verify import total_bytes
    from kafkalike.maintenance.verify.verify import verify as check

    cluster = connect(place.root, place.storage_options)
    topics = cluster.topics()
    size = total_bytes(cluster, topics)
    with screen.progress("bytes", size) as advance:
        report = check(cluster, topics, advance)
    screen.say(
        f"{report.topics} topics, {report.partitions} partitions, {report.segments} data files, "
        f"{report.records:,} records, {size / 1e6:.1f} MB"
    )
    screen.check("the log is sound", [str(finding) for finding in report.findings], [])
    screen.check("and holds what was produced", report.records >= at_least, wanted=True)


SHOWN: Final = 8
"""Carriers shown on the screen; the plot has all."""

FLOWN: Final = """
SELECT flight.* FROM (
  SELECT from_json(CAST(value AS STRING), '
    carrier STRING, origin STRING, hour INT, time_hour TIMESTAMP, dep_delay DOUBLE, arr_delay DOUBLE, distance INT'
  ) AS flight FROM flights
)
"""

TOTALS: Final = "SELECT count(*) AS flights, sum(distance) AS miles FROM flown"

CARRIERS: Final = """
SELECT airline.name, count(*) AS flights, avg(arr_delay) AS delay,
       100 * avg(CAST(arr_delay > 15 AS INT)) AS late, 100 * avg(CAST(dep_delay IS NULL AS INT)) AS cancelled
FROM flown JOIN (
  SELECT CAST(key AS STRING) AS carrier, get_json_object(CAST(value AS STRING), '$.name') AS name FROM airlines
) AS airline USING (carrier)
GROUP BY airline.name HAVING delay IS NOT NULL ORDER BY delay DESC
"""

HOURS: Final = """
SELECT hour, rain, avg(dep_delay) AS delay, count(dep_delay) AS flights
FROM flown JOIN (
  SELECT origin, time_hour, max(precip) > 0 AS rain FROM weather__values GROUP BY origin, time_hour
) USING (origin, time_hour)
GROUP BY hour, rain HAVING flights >= 30 ORDER BY hour
"""

LAG: Final = """
SELECT topic, partition, committed_offset, log_end_offset, lag
FROM kafkalike_lag WHERE group_id = :group ORDER BY partition
"""


class Carrier(NamedTuple):
    """Figures of a carrier's year."""

    name: str
    flights: int
    delay: float
    """Mean arrival delay, minutes."""
    late: float
    """Share of arrivals more than 15 minutes late, percent."""
    cancelled: float
    """Share of flights that never left, percent."""


class Hour(NamedTuple):
    """Figures of an hour of the day, with or without rain."""

    hour: int
    rain: bool
    delay: float
    """Mean departure delay, minutes."""
    flights: int


class Answers(NamedTuple):
    """Data of the plot."""

    carriers: Sequence[Carrier]
    hours: Sequence[Hour]


def ask(spark: SparkSession, place: Place, screen: Screen, tally: Tally) -> Answers:
    """Query the flights in SQL: check the totals of the consumers, and compute delays by carrier and hour."""
    with screen.waiting("Spark makes the views"):
        views = register_sql(spark, **place.named, temporary=True, topics=(FLIGHTS, AIRLINES, WEATHER))
        typed = create_view(spark, WEATHER, format="avro", **place.named)
    screen.say(f"views: {', '.join(sorted(views.values()))}; {typed}, with the columns of the weather's Avro schema;")
    screen.say(f"and of the cluster: {', '.join(sorted(views.tables.values())[:3])} and others")
    # Three queries read it, and the JSON is parsed once.
    flown = spark.sql(FLOWN).persist()
    flown.createOrReplaceTempView("flown")
    with screen.waiting("Spark counts"):
        totals = spark.sql(TOTALS).collect()[0]
    screen.check("SQL and the consumers counted the same flights", totals["flights"], tally.records)
    screen.check(f"and the same {tally.distance:,} miles", totals["miles"], tally.distance)
    with screen.waiting("Spark joins"):
        carriers = [Carrier(*row) for row in spark.sql(CARRIERS).collect()]
        hours = [Hour(*row) for row in spark.sql(HOURS).collect()]
    flown.unpersist()
    screen.say("Which carriers lose most time? Delays on arrival, flights joined with airlines:")
    screen.table(
        ("Carrier", "Flights", "Mean delay", "Over 15 min", "Cancelled"),
        [
            (c.name, f"{c.flights:,}", f"{c.delay:.1f} min", f"{c.late:.1f} %", f"{c.cancelled:.1f} %")
            for c in carriers[:SHOWN]
        ],
    )
    return Answers(carriers, hours)


def show_lag(spark: SparkSession, screen: Screen) -> None:
    """Show the lag of the consumers' group, which is 0."""
    with screen.waiting("Spark reads the lag"):
        rows = spark.sql(LAG, args={"group": GROUP}).collect()
    screen.say(f"The view kafkalike_lag, for group {GROUP!r}:")
    screen.table(
        ("Topic", "Partition", "Committed", "Log end", "Lag"),
        [tuple(f"{cell:,}" if isinstance(cell, int) else cell for cell in row) for row in rows],
    )
    screen.check("nothing is left to read", sum(row["lag"] for row in rows), 0)


LATE: Final = "#c8553d"
EARLY: Final = "#4a7c96"
TEXT: Final = "#333333"


def draw(answers: Answers, rows: int, path: Path) -> None:
    """Draw two panels: mean arrival delay by carrier, and mean departure delay by hour with and without rain.

    Args:
        answers: results of the queries.
        rows: number of flights, for the title.
        path: file to write.
    """
    from matplotlib.figure import Figure

    # Not pyplot, which looks for a display and keeps global state.
    figure = Figure(figsize=(13, 6), dpi=110, layout="constrained", facecolor="white")
    carriers, hours = figure.subplots(1, 2, width_ratios=(1.15, 1))
    figure.suptitle(
        f"Time lost by {rows:,} flights from New York, 2013", fontsize=15, fontweight="bold", x=0.01, ha="left"
    )
    _carriers(carriers, list(reversed(answers.carriers)))
    _hours(hours, answers.hours)
    for axes in (carriers, hours):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
    figure.savefig(path)


def _carriers(axes: Axes, carriers: list[Carrier]) -> None:
    names = [f"{c.name}  ({c.flights:,})" for c in carriers]
    delays = [c.delay for c in carriers]
    bars = axes.barh(names, delays, color=[LATE if delay > 0 else EARLY for delay in delays])
    axes.bar_label(bars, fmt="%.1f", padding=3, fontsize=9, color=TEXT)
    axes.axvline(0, color=TEXT, linewidth=0.8)
    axes.set_title("Arrival delay by carrier", loc="left")
    axes.set_xlabel("mean arrival delay, minutes (below 0: early)")
    axes.set_ylabel("carrier (flights)")
    axes.grid(axis="x", color="#dddddd", linewidth=0.7)
    axes.margins(x=0.1)


def _hours(axes: Axes, hours: Sequence[Hour]) -> None:
    for rain, colour, label in ((True, EARLY, "rain in that hour"), (False, LATE, "no rain")):
        points = [h for h in hours if h.rain is rain]
        axes.plot([h.hour for h in points], [h.delay for h in points], "o-", color=colour, label=label, markersize=4)
    axes.set_title("Departure delay by hour and weather", loc="left")
    axes.set_xlabel("scheduled hour of departure, New York time")
    axes.set_ylabel("mean departure delay, minutes")
    axes.set_xticks(range(5, 24, 3), [f"{hour}:00" for hour in range(5, 24, 3)])
    axes.set_ylim(bottom=min(0.0, *(h.delay for h in hours)) if hours else 0)
    axes.grid(color="#dddddd", linewidth=0.7)
    axes.legend(frameon=False, loc="upper left")


RECORDS: Final = 200
PAUSE: Final = 0.01
"""Seconds between two sends."""


def live(place: Place, screen: Screen, clock: Clock) -> int:
    """Send flights one by one, measure the time until a consumer polls them, and return their number."""
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
    """Send the flights and wait for all acknowledgements."""
    futures = []
    with KafkaProducer(**place.named) as producer:
        for number, flight in enumerate(flights):
            sent = json.dumps({"number": number, "at": clock.monotonic()}).encode()
            futures.append(producer.send(DEPARTURES, key=flight.key, value=flight.value, headers=[("sent", sent)]))
            clock.sleep(PAUSE)
        for future in futures:
            future.get(PATIENCE_MS / 1000)


def _received(batches: Iterable[Sequence[ConsumerRecord]], now: float) -> list[tuple[bytes | None, int, float]]:
    """Return key, number and age (ms) of each record."""
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
    # The sort is stable, so numbers of one key keep their order.
    in_order = sorted(keyed, key=itemgetter(0)) == sorted(keyed)
    screen.check("and in order for each key", in_order, wanted=True)
