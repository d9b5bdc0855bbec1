"""Columns: one function of Spark for each column of decoded values; those that a query needs decode a batch together.

Spark leaves out functions whose columns nobody asks for. What is left runs in one Python worker, batch by batch: the
first function of a batch decodes it for all of them.
"""

from __future__ import annotations

import pickle
import threading
import uuid
import zlib
from typing import Any, Final
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql.types import DataType, StringType

from kafkalike.spark.typed.decode import FOUND, WRONG, Decode
from kafkalike.spark.typed.function import over_arrays
from kafkalike.spark.typed.types import storable

Place = int | str
"""Of a column: its number among the fields, `FOUND` for all of them as a struct, `WRONG` for what is wrong."""


class Columns:
    """The columns of decoded values.

    Args:
        decode: what decodes them.
    """

    def __init__(self, decode: Decode) -> None:
        self.decode = decode
        self.names = list(decode.columns.names)
        self._token = uuid.uuid4().hex
        # Each function carries all schemas of a subject, which are alike: compressed they are small.
        self._packed = zlib.compress(pickle.dumps(decode))

    def fields(self, values: Column) -> list[Column]:
        """A column for each field."""
        kinds = [field.dataType for field in self.decode.spark_columns]
        return [
            self._made(values, place, kind, name)
            for place, (name, kind) in enumerate(zip(self.names, kinds, strict=True))
        ]

    def whole(self, values: Column) -> Column:
        """A value as one column: a record is a struct, anything else is itself."""
        kinds = self.decode.spark_columns
        return self._made(values, FOUND, kinds, "value") if self.decode.is_record else self.fields(values)[0]

    def wrong(self, values: Column) -> Column:
        """What is wrong, null where nothing is."""
        return self._made(values, WRONG, StringType(), WRONG)

    def function(self, place: Place) -> OneColumn:
        """What gives one column of an array of values; see `Place`."""
        return OneColumn(self._token, self._packed, place)

    def _made(self, values: Column, place: Place, kind: DataType, name: str) -> Column:
        return over_arrays(self.function(place), kind, name)(values)


class OneColumn:
    """Gives one column of an array of values: what a task does."""

    def __init__(self, token: str, packed: bytes, place: Place) -> None:
        self._state = (token, packed, place)
        self._place = place
        self._shared = _shared(token, packed)
        self._shared.asked.add(place)

    def __reduce__(self) -> tuple[Any, ...]:
        return OneColumn, self._state

    def __call__(self, values: pa.Array) -> pa.Array:
        """The column; see `BatchDecoder.decode`."""
        return self._shared.column(values, self._place)

    @property
    def decoded(self) -> int:
        """How many batches were decoded for this function and those that it shares the work with."""
        return self._shared.decoded


class _Shared:
    """What the functions of a task share: the decoder, and of the batch at hand the columns that are not taken yet."""

    def __init__(self, packed: bytes) -> None:
        self.asked: set[Place] = set()
        """Places of the columns that the task needs: its functions are unpickled before the first batch."""
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
                # It is kept, so nothing else can come to lie at its address.
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
                made[place] = storable(found if place == FOUND else pc.struct_field(found, place))
        return made


_LOCK: Final = threading.Lock()
_known: Final[WeakValueDictionary[str, _Shared]] = WeakValueDictionary()


def _shared(token: str, packed: bytes) -> _Shared:
    """What functions of one token share in this process, for as long as one of them is there."""
    with _LOCK:
        found = _known.get(token)
        if found is None:
            found = _known[token] = _Shared(packed)
        return found


def _same(one: pa.Array, other: pa.Array) -> bool:
    """Whether two arrays are the same bytes at the same place; both are alive."""
    return (len(one), one.offset, _addresses(one)) == (len(other), other.offset, _addresses(other))


def _addresses(values: pa.Array) -> list[int]:
    return [0 if buffer is None else buffer.address for buffer in values.buffers()]
