"""Checkpoints in a folder, read without Spark: what is there, what is not, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalike.errors import IllegalStateError, KafkaStorageError
from kafkalike.spark.jvm.stream_checkpoint import BatchOffsets, checkpoint_at


def test_a_checkpoint_has_the_id_of_its_query(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"4f"}')

    assert checkpoint_at(str(tmp_path), None).query_id() == "4f"


def test_a_query_that_has_not_started_has_no_id_and_no_batches(tmp_path: Path) -> None:
    checkpoint = checkpoint_at(f"file:{tmp_path}/none", None)

    assert checkpoint.query_id() is None
    with pytest.raises(IllegalStateError, match="no offsets of batch 0"):
        checkpoint.offsets(0)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b'{"id":null}', b'{"id":7}', b"17"],
    ids=lambda content: content.decode() or "empty",
)
def test_a_damaged_checkpoint_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "metadata").write_bytes(content)

    with pytest.raises(
        KafkaStorageError, match=f"{tmp_path}: the checkpoint is damaged: its file metadata holds no id"
    ):
        checkpoint_at(str(tmp_path), None).query_id()


@pytest.mark.parametrize("kind", ["folder", "no text", "file in place of the checkpoint"])
def test_a_checkpoint_that_cannot_be_read_is_named(tmp_path: Path, kind: str) -> None:
    where = tmp_path / "checkpoint"
    if kind == "file in place of the checkpoint":
        where.write_text("no folder")
    else:
        (where / "offsets").mkdir(parents=True)
        for file in (where / "metadata", where / "offsets" / "0"):
            file.write_bytes(b"\xff") if kind == "no text" else file.mkdir()
    checkpoint = checkpoint_at(str(where), None)

    with pytest.raises(KafkaStorageError, match=f"{where}: the checkpoint cannot be read"):
        checkpoint.query_id()
    with pytest.raises(KafkaStorageError, match=f"{where}: the checkpoint cannot be read"):
        checkpoint.offsets(0)


def test_partitions_are_counted_by_the_topic_that_is_read() -> None:
    offsets = BatchOffsets(0, 'v1\n{}\n{"orders":{"0":1,"2":1}}\n{"clicks":{"7":4}}\n')

    assert offsets.partitions == {"clicks": 8, "orders": 3}


def test_batch_without_topics_says_nothing_about_its_target() -> None:
    assert BatchOffsets(0, "v1\n{}\n17\n").partitions == {}
