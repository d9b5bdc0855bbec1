"""Views: a topic whose records have schemas in, a view with their fields as columns out, made anew when they change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow.readers import DEPTH
from kafkalike.schemas.sent import Where
from kafkalike.spark.sql_names import make_marked, quoted
from kafkalike.spark.typed.columns import Columns
from kafkalike.spark.typed.decode import Decode
from kafkalike.spark.typed.registry import Part, reading_of, subject_of

RAW: Final = "_raw"
RAW_KEY: Final = "_raw_key"
ERROR: Final = "_error"
RECORD_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "timestampType", "headers")
PLAIN_KEYS: Final = ("string", "binary")


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """How the records of a topic become columns."""

    topic: str
    where: Where
    value_format: str
    key_format: str = "string"
    """One of `PLAIN_KEYS` or of the formats with schemas."""
    schema: Schema | None = None
    """The values' reader's schema; None for the newest of their subject."""
    value_column: str | None = None
    message: str | None = None
    depth: int = DEPTH


@dataclass(frozen=True, slots=True)
class _View:
    how: Typed
    frame: Callable[[], DataFrame]
    ids: Sequence[int | None]


_views: WeakKeyDictionary[SparkSession, dict[str, _View]] = WeakKeyDictionary()
_lock = threading.Lock()


def typed_columns(frame: DataFrame, how: Typed) -> tuple[DataFrame, Sequence[int | None]]:
    """The columns of a view, and the ids of the schemas that they have.

    Args:
        frame: columns of `kafkalike.spark.read`; streams too.
        how: how.

    Returns:
        `key`, the fields or the one column of all, those of the record, `_raw BINARY`, `_error STRING`.

    Raises:
        IllegalArgumentError: a field is called like one of the other columns.
        SchemaRegistryError: the topic has no schema.
    """
    value, value_id = _columns(how, "value")
    raw = _costly(F.col("value"))
    fields = value.fields(raw) if how.value_column is None else [value.whole(raw)]
    names = value.names if how.value_column is None else [how.value_column]
    _refuse_clashes(names)
    error, raw_key, ids = value.wrong(raw), [], [value_id]
    if how.key_format in PLAIN_KEYS:
        key = F.col("key").cast(how.key_format)
    else:
        keys, key_id = _columns(how, "key")
        bytes_of_key = _costly(F.col("key"))
        key = keys.whole(bytes_of_key)
        error = F.coalesce(error, F.concat(F.lit("key: "), keys.wrong(bytes_of_key)))
        raw_key = [F.col("key").alias(RAW_KEY)]
        ids.append(key_id)
    rest = [F.col(column) for column in RECORD_COLUMNS if column in frame.columns]
    shown = [column.alias(name) for column, name in zip(fields, names, strict=True)]
    return frame.select(key.alias("key"), *shown, *rest, F.col("value").alias(RAW), *raw_key, error.alias(ERROR)), ids


def _costly(values: Column) -> Column:
    """The same values, which Spark takes for expensive to make, and with them all that is made of them.

    Spark puts conditions below a projection, and what is made there is made a second time for the condition. It keeps
    those above that need something expensive, and takes expressions with RLIKE in them for that, but not functions in
    Python. The RLIKE here is asked for nulls alone, and gives null.
    """
    return F.coalesce(values, F.when(values.cast("string").rlike("."), values))


def _columns(how: Typed, part: Part) -> tuple[Columns, int | None]:
    kind, schema = (how.value_format, how.schema) if part == "value" else (how.key_format, None)
    reading = reading_of(how.where, subject_of(how.topic, part), kind, schema)
    message = how.message if part == "value" else None
    return Columns(Decode(reading, depth=how.depth, message=message)), reading.id


def _refuse_clashes(names: Sequence[str]) -> None:
    taken = {name.lower() for name in ("key", *RECORD_COLUMNS, RAW, RAW_KEY, ERROR)}
    clash = sorted(name for name in names if name.lower() in taken)
    if clash:
        raise IllegalArgumentError(
            f"{', '.join(clash)} is a column of every record; with value_column='…' the fields become one struct"
        )


def make_view(spark: SparkSession, name: str, how: Typed, frame: Callable[[], DataFrame]) -> None:
    """Make a temporary view, and remember how, for `refresh_views`.

    Args:
        spark: the session.
        name: the view's.
        how: how records become columns.
        frame: gives the records.
    """
    made, ids = typed_columns(frame(), how)
    with _lock:
        make_marked(made, name)
        _views.setdefault(spark, {})[name] = _View(how, frame, ids)


def forget_view(spark: SparkSession, name: str) -> None:
    """Another view has taken the name."""
    with _lock:
        _views.get(spark, {}).pop(name, None)


def refresh_views(spark: SparkSession) -> list[str]:
    """Make the typed views of a session anew whose topics have got a newer schema, or lost one, since they were made.

    A view has the columns that its topic's newest schema had then. Records of schemas that are newer can be read
    through it, without what is new in them. Queries that run go on as they began.

    Args:
        spark: the session in which `create_view` made them.

    Returns:
        The names of the views that were made anew; a view that was dropped is forgotten.

    Raises:
        SchemaRegistryError: a topic has no schema any more; its view stays as it was.
    """
    with _lock:
        known = dict(_views.get(spark, {}))
    anew = []
    for name, view in sorted(known.items()):
        if not spark.catalog.tableExists(quoted(name)):
            forget_view(spark, name)
        elif _ids_now(view.how) != list(view.ids):
            make_view(spark, name, view.how, view.frame)
            anew.append(name)
    return anew


def _ids_now(how: Typed) -> list[int | None]:
    parts: list[tuple[Part, Schema | None]] = [("value", how.schema)]
    if how.key_format not in PLAIN_KEYS:
        parts.append(("key", None))
    found: list[int | None] = []
    for part, schema in parts:
        latest = None if schema is not None else how.where.open().latest(subject_of(how.topic, part))
        found.append(None if latest is None else latest.id)
    return found
