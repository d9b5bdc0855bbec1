"""The Bloom filters of our files: what pyarrow writes is understood, and never rules out what is there."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkalike.log.topic.chunk import CHUNK_SCHEMA
from kafkalike.storage.parquet import FILTER_ROWS, HAS_FILTERS, write_parquet
from kafkalike.storage.parquet_footer import may_hold, xxh64

WRITES_FILTERS = pytest.mark.skipif(not HAS_FILTERS, reason="this pyarrow writes no Bloom filters; 26 does")


@pytest.mark.parametrize(
    ("data", "hashed"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_xxh64_is_the_known_function(data: bytes, hashed: int) -> None:
    """Published vectors."""
    assert xxh64(data) == hashed


def table(keys: list[bytes | None]) -> pa.Table:
    rows = len(keys)
    columns = {
        "offset": pa.array(range(rows), pa.int64()),
        "timestamp": pa.array([0] * rows, pa.timestamp("us", "UTC")),
        "timestampType": pa.array([0] * rows, pa.int32()),
        "key": pa.array(keys, pa.binary()),
        "value": pa.nulls(rows, pa.binary()),
        "headers": pa.nulls(rows, CHUNK_SCHEMA.field("headers").type),
    }
    return pa.Table.from_arrays([columns[f.name] for f in CHUNK_SCHEMA], schema=CHUNK_SCHEMA)


def write(rows: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as stream:
        write_parquet(rows, stream, "none")


def key_column(path: Path) -> pq.ColumnChunkMetaData:
    return pq.ParquetFile(path).metadata.row_group(0).column(CHUNK_SCHEMA.get_field_index("key"))


@WRITES_FILTERS
@pytest.mark.slow
def test_no_key_that_is_there_is_ruled_out_and_most_others_are(tmp_path: Path) -> None:
    """Keys of all lengths up to 70 bytes, so that each way through the hash is taken."""
    keys: list[bytes | None] = [b"%d" % n + b"x" * (n % 70) for n in range(FILTER_ROWS)]
    path = tmp_path / "file.parquet"
    write(table([*keys, None]), path)
    chunk, content = key_column(path), path.read_bytes()
    held = content[chunk.bloom_filter_offset :]

    def holds(key: bytes) -> bool:
        return may_hold(lambda a, b: held[a:b], chunk.bloom_filter_length, xxh64(key))

    assert all(holds(key) for key in keys if key is not None)
    assert sum(holds(b"other %d" % n) for n in range(2_000)) < 100
    assert may_hold(lambda a, b: b"\xff" * (b - a), chunk.bloom_filter_length, 1)


@WRITES_FILTERS
def test_small_files_and_those_without_keys_have_no_filter(tmp_path: Path) -> None:
    few: list[bytes | None] = [b"k"] * (FILTER_ROWS - 1)
    none: list[bytes | None] = [None] * FILTER_ROWS
    for name, keys in (("few", few), ("none", none)):
        write(table(keys), tmp_path / name)

    assert [key_column(tmp_path / name).bloom_filter_offset for name in ("few", "none")] == [None, None]
