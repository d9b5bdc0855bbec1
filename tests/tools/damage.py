"""Damage: a table's files in, the same files as power failures and bad disks leave them out."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kafkalike.delta.checkpoint import make_checkpoint
from kafkalike.delta.snapshot import load_snapshot
from kafkalike.storage.local import LocalStorage


def commits(root: str, table: str) -> list[Path]:
    """The files of a table's versions, in order."""
    folder = Path(root, table, "_delta_log")
    return sorted(file for file in folder.glob("*.json") if file.stem.isdigit())


def data_file_of(root: str, table: str, commit: Path) -> Path:
    """The one data file that a version adds."""
    actions = [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines()]
    (path,) = [action["add"]["path"] for action in actions if "add" in action]
    return Path(root, table, path)


def checkpointed(root: str, table: str, version: int) -> Path:
    """Make a checkpoint of a version; returns its file."""
    store = LocalStorage(root).at(table)
    make_checkpoint(store, load_snapshot(store, version), 0)
    return Path(root, table, "_delta_log", f"{version:020d}.checkpoint.parquet")


def empty(file: Path) -> None:
    """As a power failure leaves a file whose content never reached the disk."""
    file.write_bytes(b"")


def cut_off(file: Path) -> None:
    """Without its second half."""
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def cut_at_line(file: Path) -> None:
    """Without its last line: what is left still parses."""
    content = file.read_bytes()
    file.write_bytes(b"".join(content.splitlines(keepends=True)[:-1]))


def flip(file: Path) -> None:
    """With a bit turned over: in a commit in its last line, in a Parquet file in a page and the footer."""
    content = bytearray(file.read_bytes())
    places = [len(content) - 40] if file.suffix == ".json" else [len(content) // 3, len(content) - 30]
    for place in places:
        content[place] ^= 0x01
    file.write_bytes(content)


def rewrite(file: Path, rows: pa.Table) -> None:
    """With other rows, in a Parquet file of the same size."""
    size, padding = file.stat().st_size, 0
    while True:
        with pq.ParquetWriter(
            file, rows.schema, use_dictionary=False, write_statistics=False, store_schema=False
        ) as writer:
            writer.write_table(rows)
            writer.add_key_value_metadata({"padding": "-" * padding})
        missing = size - file.stat().st_size
        if missing == 0:
            return
        padding += missing
        assert padding >= 0, f"{file} cannot be as small as {size} bytes with these rows"


def place_hole(root: str, table: str) -> Path:
    """Remove the last version but one."""
    hole = commits(root, table)[-2]
    hole.unlink()
    return hole


DAMAGES = [empty, cut_off, cut_at_line, flip]
"""Ways in which a commit's file is damaged; our commits carry a checksum, so that the latter two are seen."""
