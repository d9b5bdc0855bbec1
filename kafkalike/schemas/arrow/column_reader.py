"""Column reader: converts values of one writer's schema to the columns of the reader's, for each format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalike.model.schemas.schema import Schema, SchemaType
from kafkalike.schemas.arrow.cursor import Numbers

Problems = Mapping[int, str]
"""What is wrong with values, by their numbers."""


class ColumnReader(Protocol):
    """The columns of one reader's schema."""

    @property
    def columns(self) -> pa.Schema:
        """The columns."""
        ...

    @property
    def is_record(self) -> bool:
        """Whether values have fields; else they are one thing, whose column is called `value`."""
        ...

    def of(self, schema: Schema) -> ValueReader:
        """What reads values of a writer's schema. It is made once for each schema.

        Raises:
            UnmatchedError: no value of that schema can be brought to these columns.
        """
        ...


class ValueReader(Protocol):
    """What reads values of one writer's schema."""

    def __call__(self, data: npt.NDArray[np.uint8], starts: Numbers, ends: Numbers) -> tuple[pa.StructArray, Problems]:
        """Read values.

        Args:
            data: bytes in which the values lie, in their order.
            starts: where each begins, behind the id.
            ends: where each ends.

        Returns:
            A struct for each value, which means nothing where there is a problem.

        Raises:
            TooLargeError: fewer of them must be read at once.
        """
        ...


class UnmatchedError(Exception):
    """The reader cannot read what the writer wrote; the text says why."""


def check_type(schema: Schema, wants: SchemaType) -> None:
    """Refuse the schema of another format.

    Raises:
        UnmatchedError: it is one.
    """
    if schema.type != wants:
        raise UnmatchedError(f"it is a schema of type {schema.type}, not {wants}")
