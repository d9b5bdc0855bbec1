"""Column readers: for each format, they convert values of any writer's schema to the columns of the reader's schema."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalike.model.schemas.schema import Schema, SchemaType
from kafkalike.schemas.arrow.cursor import Numbers

Problems = Mapping[int, str]
"""Error texts by the indexes of the values that could not be read."""


class ColumnReader(Protocol):
    """Converts values to the columns of one reader's schema."""

    @property
    def columns(self) -> pa.Schema:
        """The columns of the reader's schema."""
        ...

    @property
    def is_record(self) -> bool:
        """True if values have fields; otherwise the only column is called `value`."""
        ...

    def of(self, schema: Schema) -> ValueReader:
        """Return a reader of values written with a schema. Callers create it once per schema.

        Raises:
            UnmatchedError: no value of that schema can be converted to these columns.
        """
        ...


class ValueReader(Protocol):
    """Reads values of one writer's schema."""

    def __call__(self, data: npt.NDArray[np.uint8], starts: Numbers, ends: Numbers) -> tuple[pa.StructArray, Problems]:
        """Read values.

        Args:
            data: the bytes of the values, in order.
            starts: the start of each value, behind the schema id.
            ends: the end of each value.

        Returns:
            A struct per value, meaningless where there is a problem; and the problems.

        Raises:
            TooLargeError: the columns would become too large; read fewer values at once.
        """
        ...


class UnmatchedError(Exception):
    """The writer's schema cannot be read as the reader's; the message gives the reason."""


def check_type(schema: Schema, wants: SchemaType) -> None:
    """Raise an error if a schema has another format.

    Raises:
        UnmatchedError: the schema's type is not `wants`.
    """
    if schema.type != wants:
        raise UnmatchedError(f"it is a schema of type {schema.type}, not {wants}")


def check_struct(kind: pa.DataType, fields: Collection[str], path: str, label: str, lacks: str = "") -> None:
    """Reject a type that is not a struct, or has other fields than the schema.

    Args:
        kind: the type.
        fields: names of the schema's fields.
        path: the place of the values, for errors.
        label: the schema's type, for errors.
        lacks: says that the schema does not have a field; empty for "label does not have".

    Raises:
        UnmatchedError: the type is not such a struct; the message names the path.
    """
    if not pa.types.is_struct(kind):
        raise UnmatchedError(f"{path or 'the value'} is {kind}, and the schema has {label}")
    extra = sorted({field.name for field in kind}.difference(fields))
    if extra:
        raise UnmatchedError(f"{path or 'the value'} has {', '.join(extra)}, which {lacks or f'{label} does not have'}")
