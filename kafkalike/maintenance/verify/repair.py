"""Repair: makes a damaged table readable and writable again.

Only what is damaged is touched, and nothing of it is thrown away: it goes to `__damaged/<table>/<time>/`. An empty
commit takes the place of a damaged or missing version, and a last commit makes everybody load the table again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalike.delta.actions import Add
from kafkalike.delta.commit_file import CommitFile, creation, topic_creation
from kafkalike.delta.layout import CLUSTER_METADATA, CONTROL_SCHEMAS, CONTROL_TABLE_PROPERTIES, DAMAGED, delta_schema
from kafkalike.delta.log_files import LAST_CHECKPOINT, LogFiles
from kafkalike.delta.row_files import ROWS, seq_segment
from kafkalike.delta.table import Table
from kafkalike.delta.table_change import Change
from kafkalike.delta.table_state import REPAIR, TableState, end_app
from kafkalike.errors import LogCorruptError
from kafkalike.log.topic.topic_commits import WORK_KEY, segment_of
from kafkalike.maintenance.verify.table_damage import DamagedTable, Flaw, LostRecords, control_flaws, find_flaws, run
from kafkalike.model.clock import Deadline
from kafkalike.storage.parquet import open_parquet, put_parquet

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.topic import TopicInfo
    from kafkalike.storage.port import Storage


TIMEOUT_MS: Final = 60_000
"""How long a repair queues behind the writers of a table, ms."""


def repair(cluster: Cluster, damaged: DamagedTable) -> list[str]:
    """Make a damaged table readable and writable again.

    Args:
        cluster: where it is.
        damaged: what was found. It is checked again when this is the table's only writer.

    Returns:
        What was done and what is lost, a sentence each.

    Raises:
        KafkaTimeoutError: others held the table for a minute; nothing was done.
        LogCorruptError: no sound version is left; nothing was done.
        KafkaStorageError, UnknownOutcomeError: the storage refused; run it again.
    """
    deadline = Deadline(cluster.clock, TIMEOUT_MS)
    with cluster.store.coordination.turn(damaged.location, deadline):
        return _Repair(cluster, damaged.location, damaged.topic, deadline).run()


@dataclass(slots=True)
class _Repair:
    """One run over one table."""

    cluster: Cluster
    location: str
    topic: TopicInfo | None
    deadline: Deadline
    done: list[str] = field(default_factory=list)

    @property
    def store(self) -> Storage:
        return self.cluster.store.at(self.location)

    def run(self) -> list[str]:
        flaws = find_flaws(self.store, control=self.topic is None)
        if any(flaw.hopeless for flaw in flaws):
            raise LogCorruptError(f"{self.location}: no sound version is left; restore the table from a backup")
        for flaw in flaws:
            if flaw.kind in {"damaged-commit", "missing-commit"}:
                self._replace_commit(flaw)
            elif flaw.kind == "damaged-checkpoint":
                self._put_aside(flaw)
                self.store.remove(flaw.file)
        if any(flaw.kind.endswith("checkpoint") for flaw in flaws):
            self._point_to_checkpoint()
        lost_commits = [flaw for flaw in flaws if flaw.version >= 0]
        lost_files = control_flaws(self.store) if self.topic is None else []
        if any(flaw.hopeless for flaw in lost_files):
            raise LogCorruptError(f"{self.location}: none of its rows can be read; restore the table from a backup")
        for flaw in lost_files:
            self._put_aside(flaw)
        if lost_commits or lost_files:
            self._load_anew(lost_files, lost_commits)
        for flaw in lost_files:
            self.store.remove(flaw.file)
        return self.done

    def _replace_commit(self, flaw: Flaw) -> None:
        if flaw.kind == "damaged-commit":
            self._put_aside(flaw)
        if flaw.version == 0:
            content = self._first_commit()
        else:
            content = CommitFile(
                version=flaw.version,
                time_ms=self.cluster.clock.now_ms(),
                operation=REPAIR,
                append_id=uuid.uuid4().hex,
                note={WORK_KEY: "repair", "of": flaw.why},
            ).content()
        self.store.replace(flaw.file, content)
        self.store.sync(flaw.file)
        self.done.append(f"{self.location}: version {flaw.version} is an empty commit now ({flaw.why})")

    def _first_commit(self) -> bytes:
        """A table's first version says nothing but what it is."""
        now = self.cluster.clock.now_ms()
        if self.topic is not None:
            return topic_creation(
                str(self.topic.table_id), time_ms=now, closed=self.cluster.server.is_closed(self.topic.configs)
            )
        metadata = self.location == CLUSTER_METADATA
        return creation(
            str(uuid.uuid4()),
            delta_schema(CONTROL_SCHEMAS[self.location]),
            partition_by=[],
            properties=self.cluster.metadata_properties if metadata else CONTROL_TABLE_PROPERTIES,
            time_ms=now,
        )

    def _put_aside(self, flaw: Flaw) -> None:
        """Keep what is left of a file; one that is missing needs nothing."""
        self._keep(flaw.file)

    def _keep(self, file: str) -> None:
        stamp = datetime.fromtimestamp(self.cluster.clock.now_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%S")
        folder = f"{DAMAGED}/{self.location}/{stamp}-{uuid.uuid4().hex[:6]}"
        aside = self.cluster.store.at(folder)
        aside.make_folder("")
        try:
            self.store.copy(file, aside, file.rpartition("/")[2])
        except FileNotFoundError:
            return
        self.done.append(f"{self.location}/{file}: is kept in {folder}")

    def _point_to_checkpoint(self) -> None:
        """Let the pointer name the newest checkpoint, which are all sound by now."""
        newest = max(LogFiles.listed(self.store).checkpoints, default=-1)
        try:
            before = self.store.read(LAST_CHECKPOINT)
        except FileNotFoundError:
            before = b""
        else:
            self._keep(LAST_CHECKPOINT)
        if newest >= 0:
            self.store.replace(LAST_CHECKPOINT, json.dumps({"version": newest, "size": -1}).encode())
        elif before:
            self.store.remove(LAST_CHECKPOINT)

    def _load_anew(self, lost_files: Sequence[Flaw], lost_commits: Sequence[Flaw]) -> None:
        """Make a version after which all clients load the table again, without the lost files."""
        to_segment = seq_segment if self.topic is None else segment_of
        table = Table(self.store, self.cluster.clock, to_segment=to_segment, durable=True)
        table.refresh()
        claims = self._lost_records().ends_in_doubt(table.state) if lost_commits else {}

        def plan(state: TableState) -> Change:
            gone = {flaw.file for flaw in lost_files}
            removes = [
                Add(path=s.path, partition=None, size=s.size_bytes, modification_ms=0, data_change=True, stats={})
                for s in state.index
                if s.path in gone
            ]
            adds = self._last_row(state, gone, claims.get(ROWS, 0)) if self.topic is None else []
            txns = {end_app(p): end for p, end in sorted(claims.items())} if self.topic is not None else {}
            note: Mapping[str, Any] = {WORK_KEY: "repair", "files": len(removes), "commits": len(lost_commits)}
            return Change(
                operation=REPAIR,
                time_ms=self.cluster.clock.now_ms(),
                adds=adds,
                removes=removes,
                txns=txns,
                note=note,
            )

        table.change(plan, self.deadline)
        self.done += [f"{self.location}: rows {run(flaw.rows)} are lost" for flaw in lost_files]

    def _lost_records(self) -> LostRecords:
        return LostRecords(
            cluster=self.cluster, location=self.location, topic=self.topic, keep=self._keep, say=self.done.append
        )

    def _last_row(self, state: TableState, gone: set[str], end: int) -> list[Add]:
        """The last row that is left, under the number of the last lost one: the next row gets the number after it.

        It repeats what is in force. No number may be used for two rows: a client that has seen the first one would
        skip the second one, and an id of a schema that is made of it would belong to two.

        Args:
            state: the table.
            gone: files that are lost.
            end: number after that of the last row of lost commits.
        """
        left = [s for s in state.index if s.path not in gone]
        last = max([end, *(s.stop for s in state.index)]) - 1
        if not left or any(s.stop - 1 == last for s in left):
            return []
        with open_parquet(self.store, max(left, key=lambda s: s.stop).path) as file:
            rows = file.read(use_threads=False).sort_by("seq")
        row = rows.slice(rows.num_rows - 1)
        row = row.set_column(row.schema.get_field_index("seq"), row.schema.field("seq"), pa.array([last], pa.int64()))
        name = f"part-{last:010d}-{uuid.uuid4().hex}.parquet"
        size = put_parquet(self.store, name, row, "snappy")
        stats = {"numRecords": 1, "minValues": {"seq": last}, "maxValues": {"seq": last}, "nullCount": {}}
        now = self.cluster.clock.now_ms()
        return [Add(path=name, partition=None, size=size, modification_ms=now, data_change=True, stats=stats)]
