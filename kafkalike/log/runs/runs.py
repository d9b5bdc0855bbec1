"""Runs: what the tasks of a Spark job say of the records that they have staged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Run:
    """Records of one partition that stand together in a staged file."""

    task: int
    """Spark partition they come from; a partition's records are numbered in this order."""
    file: str
    """The staged file, and where in it they stand: bytes from `start` to before `stop`, an Arrow stream."""
    start: int
    stop: int
    partition: int
    rows: int
    bytes: int
    """What they take in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeRun:
    """Records of one partition that a task has put into a file of their own."""

    task: int
    """Spark partition they come from; a partition's records are numbered in this order."""
    file: str
    """The staged file: Parquet, with the columns of a segment, and placeholders as offsets."""
    partition: int
    rows: int
    bytes: int
    """What they take in memory."""
    min_time_ms: int
    max_time_ms: int
    footer_crc: int
    """CRC-32 of the file's footer."""
