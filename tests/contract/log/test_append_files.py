"""Files of an append: what is in them, and where they are not written."""

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kafkalike.connect import connect
from kafkalike.errors import KafkaError, KafkaStorageError
from kafkalike.log.topic.chunk import CHUNK_SCHEMA
from kafkalike.model.record_batch import RecordBatch


def append(root: str, value: bytes) -> list[Path]:
    """Append one record to `orders`; the data files there are then."""
    batch = RecordBatch()
    batch.add(0, b"k", value, 1_000)
    connect(root).log("orders").append(batch)
    return sorted(Path(root, "orders").glob("partition=0/*.parquet"))


def test_a_value_is_stored_once(root: str) -> None:
    """A file of one record grows by the value's size, not by several times that.

    Parquet leaves values above 4 kB out of statistics by itself, and dictionaries are worst for small ones.
    """
    connect(root).create_topic("orders", 1, {})
    sizes = [1, 1_001, 3_001, 101_001]

    files: list[Path] = []
    for size in sizes:
        files += [path for path in append(root, os.urandom(size)) if path not in files]

    grown = [path.stat().st_size - files[0].stat().st_size for path in files]
    assert [by < 1.02 * (size - 1) + 100 for by, size in zip(grown, sizes, strict=True)] == [True] * len(sizes)


def test_file_without_arrows_schema_has_the_types_of_a_topic(root: str) -> None:
    connect(root).create_topic("orders", 1, {})
    (path,) = append(root, b"v")

    with pq.ParquetFile(path) as file:
        assert file.metadata.metadata is None
        assert file.schema_arrow.equals(CHUNK_SCHEMA)


def test_a_topic_is_not_created_through_a_link_that_leads_out_of_the_root(root: str, tmp_path: Path) -> None:
    """Its records would be in somebody else's folder."""
    connect(root).create_topic("other", 1, {})
    outside = tmp_path / "outside"
    outside.mkdir()
    Path(root, "orders").symlink_to(outside)

    with pytest.raises(KafkaStorageError, match="symbolic link"):
        connect(root).create_topic("orders", 1, {})
    assert not list(outside.iterdir())


def test_records_are_not_written_through_a_link(root: str, tmp_path: Path) -> None:
    """In the place of a partition's folder."""
    connect(root).create_topic("orders", 1, {})
    outside = tmp_path / "outside"
    outside.mkdir()
    Path(root, "orders", "partition=0").symlink_to(outside)

    with pytest.raises(KafkaError, match="symbolic link"):
        append(root, b"v")
    assert not list(outside.iterdir())


def test_a_root_that_is_gone_gets_no_locks_again(root: str, tmp_path: Path) -> None:
    """An append fails instead of making folders below an unmounted mount point."""
    connect(root).create_topic("orders", 1, {})
    log = connect(root).log("orders")
    batch = RecordBatch()
    batch.add(0, b"k", b"v", 1_000)
    log.append(batch)
    Path(root).rename(tmp_path / "elsewhere")
    Path(root).mkdir()

    with pytest.raises(KafkaError):
        log.append(batch)
    assert not list(Path(root).iterdir())
