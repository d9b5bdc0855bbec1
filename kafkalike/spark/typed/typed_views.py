"""Views of topics with schemas, whose fields are columns, and their refresh after a schema change.

Each column is one function of Spark, which leaves out functions of unused columns. The remaining functions run in one
Python worker, batch by batch, and the first function of a batch decodes it for all of them.
"""

from __future__ import annotations

import pickle
import threading
import uuid
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StringType

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow.batch_decoder import DEPTH
from kafkalike.schemas.factory import RegistryLocation
from kafkalike.spark.sql_text import make_marked, quoted
from kafkalike.spark.typed.decode import FOUND, WRONG, Decode, Part, over_arrays, reading_of, subject_of, to_storable

RAW: Final = "_raw"
RAW_KEY: Final = "_raw_key"
ERROR: Final = "_error"
RECORD_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "timestampType", "headers")
PLAIN_KEYS: Final = ("string", "binary")


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """Options to turn the records of a topic into columns."""

    topic: str
    where: RegistryLocation
    value_format: str
    key_format: str = "string"
    """A name in `PLAIN_KEYS`, or a format with schemas."""
    schema: Schema | None = None
    """Reader schema of the values. None takes the newest schema of their subject."""
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
    """Build the columns of a view, and return the ids of their schemas.

    Args:
        frame: columns of `kafkalike.spark.read`; streams too.
        how: options of the columns.

    Returns:
        `key`, the fields or a single column for all of them, the record's other columns, `_raw BINARY`, `_error
        STRING`.

    Raises:
        IllegalArgumentError: a field has the name of another column.
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
    """Return the same values, marked as expensive for Spark's optimizer.

    Spark pushes conditions below a projection, and then computes the projected columns a second time for the condition.
    It does not push conditions on expensive expressions. Spark treats expressions with RLIKE as expensive, but not
    functions in Python. This RLIKE is evaluated only for nulls, and returns null.
    """
    return F.coalesce(values, F.when(values.cast("string").rlike("."), values))


def _columns(how: Typed, part: Part) -> tuple[ValueColumns, int | None]:
    kind, schema = (how.value_format, how.schema) if part == "value" else (how.key_format, None)
    reading = reading_of(how.where, subject_of(how.topic, part), kind, schema)
    message = how.message if part == "value" else None
    return ValueColumns(Decode(reading, depth=how.depth, message=message)), reading.id


def _refuse_clashes(names: Sequence[str]) -> None:
    taken = {name.lower() for name in ("key", *RECORD_COLUMNS, RAW, RAW_KEY, ERROR)}
    clash = sorted(name for name in names if name.lower() in taken)
    if clash:
        raise IllegalArgumentError(
            f"{', '.join(clash)} is a column of every record; with value_column='…' the fields become one struct"
        )


def make_view(spark: SparkSession, name: str, how: Typed, frame: Callable[[], DataFrame]) -> None:
    """Create a temporary view, and remember its options for `refresh_views`.

    Args:
        spark: the session.
        name: the view's name.
        how: options of the columns.
        frame: returns the records.
    """
    made, ids = typed_columns(frame(), how)
    with _lock:
        make_marked(made, name)
        _views.setdefault(spark, {})[name] = _View(how, frame, ids)


def forget_view(spark: SparkSession, name: str) -> None:
    """Forget a view, because another view has taken its name."""
    with _lock:
        _views.get(spark, {}).pop(name, None)


def refresh_views(spark: SparkSession) -> list[str]:
    """Recreate the typed views of a session after their topics got a newer schema, or lost a schema.

    A view has the columns of its topic's newest schema at that time. Through the view, records of newer schemas can be
    read, without their new fields. Running queries are not affected.

    Args:
        spark: the session in which `create_view` made them.

    Returns:
        The names of the recreated views. A dropped view is forgotten.

    Raises:
        SchemaRegistryError: a topic no longer has a schema; its view is unchanged.
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


Place = int | str
"""Place of a column: its number among the fields, `FOUND` for a struct of all fields, `WRONG` for the error."""


class ValueColumns:
    """The columns of decoded values.

    Args:
        decode: decodes the values.
    """

    def __init__(self, decode: Decode) -> None:
        self.decode = decode
        self.names = list(decode.columns.names)
        self._token = uuid.uuid4().hex
        # Each function carries all schemas of a subject, which resemble each other, so they compress well.
        self._packed = zlib.compress(pickle.dumps(decode))

    def fields(self, values: Column) -> list[Column]:
        """Return a column for each field."""
        kinds = [field.dataType for field in self.decode.spark_columns]
        return [
            self._made(values, place, kind, name)
            for place, (name, kind) in enumerate(zip(self.names, kinds, strict=True))
        ]

    def whole(self, values: Column) -> Column:
        """Return the value as one column: a struct for a record, otherwise the value itself."""
        kinds = self.decode.spark_columns
        return self._made(values, FOUND, kinds, "value") if self.decode.is_record else self.fields(values)[0]

    def wrong(self, values: Column) -> Column:
        """Return the error column, null for valid values."""
        return self._made(values, WRONG, StringType(), WRONG)

    def function(self, place: Place) -> OneColumn:
        """Return the function that computes one column of an array of values; see `Place`."""
        return OneColumn(self._token, self._packed, place)

    def _made(self, values: Column, place: Place, kind: DataType, name: str) -> Column:
        return over_arrays(self.function(place), kind, name)(values)


class OneColumn:
    """Computes one column of an array of values in a task."""

    def __init__(self, token: str, packed: bytes, place: Place) -> None:
        self._state = (token, packed, place)
        self._place = place
        self._shared = _shared(token, packed)
        self._shared.asked.add(place)

    def __reduce__(self) -> tuple[Any, ...]:
        return OneColumn, self._state

    def __call__(self, values: pa.Array) -> pa.Array:
        """Return the column of an array; see `BatchDecoder.decode`."""
        return self._shared.column(values, self._place)

    @property
    def decoded(self) -> int:
        """Number of batches decoded for this function and the functions that share its work."""
        return self._shared.decoded


class _Shared:
    """State shared by the functions of a task: the decoder, and the current batch's columns that are not taken yet."""

    def __init__(self, packed: bytes) -> None:
        self.asked: set[Place] = set()
        """Places of the task's columns, complete before the first batch, because functions are unpickled before it."""
        self.decoded = 0
        self._packed = packed
        self._decode: Decode | None = None
        self._lock = threading.Lock()
        self._batch: pa.Array | None = None
        self._left: dict[Place, pa.Array] = {}

    def column(self, values: pa.Array, place: Place) -> pa.Array:
        with self._lock:
            if self._batch is None or not _same(values, self._batch) or place not in self._left:
                self._batch = None
                self._left = self._decoded(values)
                # It is kept, so its address cannot be reused.
                self._batch = values
            found = self._left.pop(place)
            if not self._left:
                self._batch = None
            return found

    def _decoded(self, values: pa.Array) -> dict[Place, pa.Array]:
        if self._decode is None:
            self._decode = pickle.loads(zlib.decompress(self._packed))  # noqa: S301 - part of our own function
        found, errors = self._decode.found(values)
        self.decoded += 1
        made: dict[Place, pa.Array] = {}
        for place in self.asked:
            if place == WRONG:
                made[place] = errors
            else:
                made[place] = to_storable(found if place == FOUND else pc.struct_field(found, place))
        return made


_LOCK: Final = threading.Lock()
_known: Final[WeakValueDictionary[str, _Shared]] = WeakValueDictionary()


def _shared(token: str, packed: bytes) -> _Shared:
    """Return the state that functions with this token share in this process, as long as any of them exists."""
    with _LOCK:
        found = _known.get(token)
        if found is None:
            found = _known[token] = _Shared(packed)
        return found


def _same(one: pa.Array, other: pa.Array) -> bool:
    """Return whether two live arrays have the same bytes at the same addresses."""
    return (len(one), one.offset, _addresses(one)) == (len(other), other.offset, _addresses(other))


def _addresses(values: pa.Array) -> list[int]:
    return [0 if buffer is None else buffer.address for buffer in values.buffers()]
