"""Questions: topics as SQL views in, answers out: who loses time, when, and how far behind a group is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import SparkSession

from kafkalike.cli.demo.steps import GROUP, WEATHER, Tally
from kafkalike.spark import create_view, register_sql

if TYPE_CHECKING:
    from kafkalike.cli.demo.folder import Place
    from kafkalike.cli.demo.screen import Screen

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
    """A carrier's year."""

    name: str
    flights: int
    delay: float
    """Mean arrival delay, minutes."""
    late: float
    """Share of arrivals more than 15 minutes late, percent."""
    cancelled: float
    """Share of flights that never left, percent."""


class Hour(NamedTuple):
    """An hour of the day, with or without rain."""

    hour: int
    rain: bool
    delay: float
    """Mean departure delay, minutes."""
    flights: int


class Answers(NamedTuple):
    """What the plot shows."""

    carriers: Sequence[Carrier]
    hours: Sequence[Hour]


def ask(spark: SparkSession, place: Place, screen: Screen, tally: Tally) -> Answers:
    """Ask in SQL what the consumers' numbers are checked against, and who loses most time."""
    with screen.waiting("Spark makes the views"):
        views = register_sql(spark, **place.named, temporary=True)
        typed = create_view(spark, WEATHER, format="avro", **place.named)
    screen.say(f"views: {', '.join(sorted(views.values()))}; and {', '.join(views.tables.values())}")
    screen.say(f"{typed}: the columns of the weather's Avro schema, as a table")
    # Three questions are asked of it: the JSON is parsed once.
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
    """Show how far the consumers' group is behind, which is nothing."""
    with screen.waiting("Spark reads the lag"):
        rows = spark.sql(LAG, args={"group": GROUP}).collect()
    screen.say(f"The view kafkalike_lag, for group {GROUP!r}:")
    screen.table(
        ("Topic", "Partition", "Committed", "Log end", "Lag"),
        [tuple(f"{cell:,}" if isinstance(cell, int) else cell for cell in row) for row in rows],
    )
    screen.check("nothing is left to read", sum(row["lag"] for row in rows), 0)
