"""Footers of files with a Bloom filter on keys: readers are to go by that, and find all else as pyarrow writes it."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.storage.parquet import (
    FILTER_ROWS,
    HAS_FILTERS,
    LocalFile,
    key_filter,
    parquet_writer,
    write_parquet,
)
from kafkalike.storage.parquet_footer import Field, HeldEnd, Items, read_struct, without_counts, write_struct
from tests.tools.footers import COUNTS, columns_of, footer_of
from tests.tools.footers import without_counts as uncounted

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
    ]
)

WRITES_FILTERS = pytest.mark.skipif(not HAS_FILTERS, reason="this pyarrow writes no Bloom filters; 26 does")


def rows(count: int, keys: int, start: int = 0) -> pa.Table:
    offsets = np.arange(start, start + count, dtype=np.int64)
    texts = pa.array(offsets % keys).cast(pa.string()).cast(pa.binary())
    headers = pa.array([[{"key": "h", "value": b"v"}]] * count, SCHEMA.field("headers").type)
    return pa.Table.from_arrays([pa.array(offsets), texts, texts, headers], schema=SCHEMA)


@WRITES_FILTERS
@pytest.mark.slow
@given(groups=st.lists(st.integers(1, 300), min_size=1, max_size=4), keys=st.integers(1, 500))
def test_only_the_count_of_the_keys_is_left_out(groups: list[int], keys: int) -> None:
    """In every row group; and all fields that are left are those that were there."""
    sink = pa.BufferOutputStream()
    table = rows(sum(groups), keys)
    bloom = key_filter(table, max(groups), FILTER_ROWS)
    with pq.ParquetWriter(sink, SCHEMA, **bloom) as writer:
        for count in groups:
            writer.write_table(table.slice(0, count), row_group_size=count)
    before = footer_of(sink.getvalue().to_pybytes())

    after = without_counts(before, "key")

    assert uncounted(before) == set()
    assert uncounted(after) == {"key"}
    for about, left in zip(columns_of(before), columns_of(after), strict=True):
        assert {number: field for number, field in about.items() if number != COUNTS or number in left} == left
    old, new = read_struct(before), read_struct(after)
    assert {number: field for number, field in old.items() if number != 4} == {n: f for n, f in new.items() if n != 4}
    assert without_counts(after, "key") == after


def test_a_column_without_a_filter_keeps_its_count() -> None:
    """Its dictionary is all that can rule a value out."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows(10, 3), sink)
    footer = footer_of(sink.getvalue().to_pybytes())

    assert without_counts(footer, "key") == footer


def with_field(number: int, kind: int, value: bytes) -> bytes:
    """A footer with a field that is newer than this package, as its bytes."""
    sink = pa.BufferOutputStream()
    write_parquet(rows(FILTER_ROWS, 50), sink, "none")
    last = max(read_struct(footer_of(sink.getvalue().to_pybytes())))
    return footer_of(sink.getvalue().to_pybytes())[:-1] + bytes([number - last << 4 | kind]) + value + b"\x00"


UNKNOWN = {
    "nothing": b"",
    "no row groups": b"\x00",
    "a text for them": write_struct({4: Field(8, b"x")}),
    "numbers for them": write_struct({4: Field(9, Items(5, [1]))}),
    "a column without metadata": write_struct(
        {4: Field(9, Items(12, [{1: Field(9, Items(12, [{2: Field(6, 4)}]))}]))},
    ),
    "a map": with_field(14, 11, b"\x00"),
    "a UUID": with_field(14, 13, bytes(16)),
    "more behind it": with_field(14, 5, b"\x02") + b"signature",
    "an endless number": b"\x15" + b"\xff" * 1_000_000 + b"\x00",
}
"""Footers that another writer, or a later one, may make."""


@pytest.mark.parametrize("footer", UNKNOWN.values(), ids=UNKNOWN)
def test_a_footer_that_is_not_understood_is_left_as_it_is(footer: bytes) -> None:
    """A file without the change is a sound one; readers of it only take longer."""
    assert without_counts(footer, "key") == footer


@given(st.data())
def test_a_footer_with_other_bytes_is_changed_or_left_as_it_is(data: st.DataObject) -> None:
    """Whatever they are; and what is changed can be read."""
    footer = bytearray(with_field(14, 5, b"\x02"))
    for _ in range(data.draw(st.integers(1, 4))):
        footer[data.draw(st.integers(0, len(footer) - 1))] = data.draw(st.integers(0, 255))

    after = without_counts(bytes(footer), "key")

    assert after == bytes(footer) or read_struct(after)


@WRITES_FILTERS
@pytest.mark.parametrize("count", [FILTER_ROWS - 1, FILTER_ROWS])
def test_files_are_the_same_on_a_disk_and_in_any_other_stream(tmp_path: Path, count: int) -> None:
    """And have the bytes that the stream tells."""
    table, path, sink = rows(count, 50), tmp_path / "a.parquet", pa.BufferOutputStream()

    with LocalFile(str(path), "wb") as stream:
        write_parquet(table, stream, "zstd")
        told = stream.tell()
    write_parquet(table, sink, "zstd")

    content = path.read_bytes()
    assert sink.getvalue().to_pybytes() == content
    assert told == len(content)
    assert uncounted(footer_of(content)) == ({"key"} if count == FILTER_ROWS else set())
    assert pq.ParquetFile(path, page_checksum_verification=True).read().equals(table)


@WRITES_FILTERS
def test_a_file_written_row_group_by_row_group_is_finished_once(tmp_path: Path) -> None:
    path, parts = tmp_path / "a.parquet", [rows(FILTER_ROWS, 50), rows(100, 50, FILTER_ROWS)]

    with LocalFile(str(path), "wb") as stream:
        with parquet_writer(SCHEMA, stream, "none", bloom=key_filter(parts[0], FILTER_ROWS, FILTER_ROWS)) as writer:
            for part in parts:
                writer.write_table(part)
            writer.close()
        told = stream.tell()

    assert told == path.stat().st_size
    assert uncounted(footer_of(path.read_bytes())) == {"key"}
    assert pq.read_table(path).equals(pa.concat_tables(parts))


@pytest.mark.parametrize("parts", [(b"some", b"other", b"bytes"), (b"PAR1",), ()])
def test_an_end_that_is_no_footer_is_not_changed(parts: tuple[bytes, ...]) -> None:
    """A writer that writes it piece by piece makes sound files, too."""
    sink = pa.BufferOutputStream()
    end = HeldEnd(sink)
    for part in parts:
        end.write(part)

    end.change_footer(lambda _: b"other")

    assert sink.getvalue().to_pybytes() == b"".join(parts)
