"""Run manifest: the file that names the staged runs of one topic, and that a decided transaction names.

A job may stage many thousand runs, and every client reads the row of a decision. So the decision names one manifest for
each write and topic, and the manifest names the runs, whose files lie beside it. A process that applies the transaction
needs nothing else: no Spark session, and nothing of the job that staged them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from kafkalike.errors import LogCorruptError
from kafkalike.storage.port import Storage


@dataclass(frozen=True, slots=True)
class StagedRun:
    """Consecutive records of one partition in a staged file."""

    task: int
    """Spark partition of the records; a partition's records are numbered in this order."""
    file: str
    """The staged file. The run is an Arrow stream in the bytes from `start` to before `stop`."""
    start: int
    stop: int
    partition: int
    rows: int
    bytes: int
    """Size of the records in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeRun:
    """Records of one partition in a file of their own."""

    task: int
    """Spark partition of the records; a partition's records are numbered in this order."""
    file: str
    """The staged file: Parquet, with the columns of a segment, and placeholders as offsets."""
    partition: int
    rows: int
    bytes: int
    """Size of the records in memory."""
    min_time_ms: int
    max_time_ms: int
    footer_crc: int
    """CRC-32 of the file's footer."""
    due_ms: int = 0
    """Earliest time (ms) in the `deliver_at` headers of its records; 0 if one may have none."""


LAYOUT: Final = "runs"
"""Layout of a transaction's part whose files are manifests."""

FORMAT: Final = 1
"""Version of the manifest's format. Later ones are rejected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunManifest:
    """The staged runs of one write to a topic."""

    runs: tuple[StagedRun | LargeRun, ...]
    codec: str
    """The writer's codec, used if the topic's `compression.type` is `producer`."""
    time_ms: int
    """Staging time, ms, for records without a timestamp."""

    @property
    def files(self) -> list[str]:
        """The staged files, which lie beside the manifest."""
        return sorted({run.file for run in self.runs})

    def counts(self) -> Mapping[int, int]:
        """Return the number of records by partition."""
        found: Counter[int] = Counter()
        for run in self.runs:
            found[run.partition] += run.rows
        return found


def move_runs(staged: Storage, names: Iterable[str], place: Storage) -> None:
    """Copy staged files into a transaction's folder.

    Args:
        staged: the job's folder, which may be removed afterwards.
        names: files in it.
        place: the transaction's folder.

    Raises:
        OSError: the storage refused, or a staged file is missing. Copies are removed with the transaction's folder.
    """
    place.scheduler.beside([partial(staged.copy, name, place, name) for name in names])


def dump_manifest(manifest: RunManifest) -> bytes:
    """Return the content of a manifest's file."""
    files = manifest.files
    number = {name: nth for nth, name in enumerate(files)}
    small = [
        [run.task, number[run.file], run.start, run.stop, run.partition, run.rows, run.bytes]
        if isinstance(run, StagedRun)
        else [
            run.task,
            number[run.file],
            None,
            None,
            run.partition,
            run.rows,
            run.bytes,
            run.min_time_ms,
            run.max_time_ms,
            run.footer_crc,
            # Earlier releases cannot read it.
            *([run.due_ms] if run.due_ms else []),
        ]
        for run in manifest.runs
    ]
    found = {"v": FORMAT, "codec": manifest.codec, "time": manifest.time_ms, "files": files, "runs": small}
    return json.dumps(found, separators=(",", ":")).encode()


def load_manifest(content: bytes, where: str) -> RunManifest:
    """Read a manifest.

    Args:
        content: the file's content, with its checksum verified.
        where: the file's name, for errors.

    Raises:
        LogCorruptError: the content is not a manifest, or a later version of kafkalike wrote it.
    """
    try:
        found = json.loads(content)
        _check_format(found["v"])
        names = [str(name) for name in found["files"]]
        runs = tuple(_run(names, fields) for fields in found["runs"])
        return RunManifest(runs=runs, codec=str(found["codec"]), time_ms=int(found["time"]))
    except (ValueError, LookupError, TypeError) as cause:
        raise LogCorruptError(f"{where} does not name staged records: {cause}") from cause


def _check_format(found: object) -> None:
    if found != FORMAT:
        raise ValueError(f"its format is {found!r}, and this version knows {FORMAT}")


def _run(names: Sequence[str], fields: Sequence[Any]) -> StagedRun | LargeRun:
    task, file, start, stop, partition, rows, size, *large = fields
    if "/" in names[file]:
        raise ValueError(f"{names[file]!r} is not a file in the transaction's folder")
    if not large:
        return StagedRun(task, names[file], start, stop, partition, rows, size)
    first, last, crc, *due = large
    return LargeRun(
        task=task,
        file=names[file],
        partition=partition,
        rows=rows,
        bytes=size,
        min_time_ms=first,
        max_time_ms=last,
        footer_crc=crc,
        due_ms=due[0] if due else 0,
    )


def in_order(manifests: Iterable[RunManifest]) -> list[StagedRun | LargeRun]:
    """Return the runs of several writes to one topic, renumbered so that earlier writes come first."""
    found: list[StagedRun | LargeRun] = []
    first = 0
    for manifest in manifests:
        found += [replace(run, task=first + run.task) for run in manifest.runs]
        first = 1 + max((run.task for run in found), default=first - 1)
    return found
