"""Avro reader: values of any Avro schema in, the columns of one out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow.avro_plan import plan
from kafkalike.schemas.arrow.avro_types import columns_of
from kafkalike.schemas.arrow.cursor import Cursor, Numbers
from kafkalike.schemas.arrow.reading import Problems, Reading, check_type
from kafkalike.schemas.avro_schema import parse_avro
from kafkalike.schemas.source import SchemaSource


class AvroReader:
    """See `reader_of`."""

    def __init__(self, schema: Schema, source: SchemaSource, depth: int) -> None:
        self._source = source
        self._depth = depth
        self._wants = parse_avro(schema, source.referenced(schema), strict=False)
        self.columns = columns_of(self._wants, depth)
        self.is_record = self._wants.kind == "record"

    def of(self, schema: Schema) -> Reading:
        """See `Reader.of`."""
        check_type(schema, "AVRO")
        wrote = parse_avro(schema, self._source.referenced(schema), strict=False)
        node = plan(wrote, self._wants, self._depth)

        def read(data: npt.NDArray[np.uint8], starts: Numbers, ends: Numbers) -> tuple[pa.StructArray, Problems]:
            cursor = Cursor(data, starts, ends)
            found = node.read(cursor, np.arange(len(starts)))
            cursor.finish()
            bad = np.flatnonzero(cursor.problem)
            return found, {int(row): cursor.problems[cursor.problem[row]] or "" for row in bad}

        return read
