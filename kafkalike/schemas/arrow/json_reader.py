"""JSON reader: values in, the columns of a JSON Schema out."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa

from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow.json_columns import JsonColumns
from kafkalike.schemas.arrow.json_numbers import parsed
from kafkalike.schemas.arrow.reading import Reading, check_type
from kafkalike.schemas.arrow.values import one_by_one
from kafkalike.schemas.source import SchemaSource


class JsonReader:
    """See `reader_of`. JSON says itself what it is, so it does not matter which schema a value was written with."""

    def __init__(self, schema: Schema, source: SchemaSource, depth: int) -> None:
        used = {name: used.text for name, used in source.referenced(schema).items()}
        self._top, self.is_record = JsonColumns(schema.text, used, depth).top()
        self.columns = pa.schema(list(self._top.kind))

    def of(self, schema: Schema) -> Reading:
        """See `Reader.of`."""
        check_type(schema, "JSON")
        return partial(one_by_one, self._top, _parsed)


def _parsed(value: bytes) -> Any:  # noqa: ANN401 - any JSON
    # A BOM and other encodings than UTF-8 are refused here, where `json.loads` would guess.
    found = parsed(str(value, "utf-8"))
    if found is None:
        raise ValueError("the value is null")
    return found
