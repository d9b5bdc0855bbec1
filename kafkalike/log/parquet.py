"""Parquet: an Arrow table in, one Parquet file out, written as topics and control tables want their files."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

ROW_GROUP_ROWS: Final = 131_072
ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
"""Most records, and about how many bytes, of a row group: what a reader that wants one record decodes at worst."""


def write_parquet(table: pa.Table, to: str | pa.NativeFile, codec: str) -> None:
    """Write a file.

    Numbers and times that are never null (offsets, timestamps) rise by little from row to row: they are kept as
    differences, a byte or less each instead of eight. Everything else gets a dictionary, which the writer drops by
    itself where the values do not repeat. Only the rising columns have statistics: nothing looks for a key or a value,
    and a value that is alone in its file would be there four times more, as smallest and largest of page and file.

    Args:
        table: the rows.
        to: path, or an open stream.
        codec: pyarrow's name of the compression.

    Raises:
        OSError, pa.ArrowException: the storage refused.
    """
    row_bytes = max(1, table.nbytes // max(1, table.num_rows))
    group = min(ROW_GROUP_ROWS, max(1, ROW_GROUP_BYTES // row_bytes))
    pq.write_table(table, to, row_group_size=group, **_options(table.schema, codec))


def parquet_writer(schema: pa.Schema, to: pa.NativeFile, codec: str) -> pq.ParquetWriter:
    """The same for a file that is written row group by row group; the caller sizes them and closes it."""
    return pq.ParquetWriter(to, schema, **_options(schema, codec))


def _options(schema: pa.Schema, codec: str) -> dict[str, Any]:
    rising = [f.name for f in schema if not f.nullable and (pa.types.is_int64(f.type) or _is_time(f.type))]
    return {
        "compression": codec,
        "column_encoding": dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
        "use_dictionary": [path for path in _leaves(schema) if path not in rising],
        "write_page_checksum": True,
        "write_statistics": rising,
    }


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind))


def _leaves(fields: pa.Schema | pa.StructType, above: str = "") -> list[str]:
    """Parquet's names of the columns below some fields."""
    return [path for field in fields for path in _below(field.type, above + field.name)]


def _below(kind: pa.DataType, path: str) -> list[str]:
    if pa.types.is_list(kind):
        return _below(kind.value_type, f"{path}.list.element")
    return _leaves(kind, f"{path}.") if pa.types.is_struct(kind) else [path]
