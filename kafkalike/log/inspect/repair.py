"""Repair: a cluster in; what is damaged in its tables' logs, and the same tables readable and writable again, out.

Only what is damaged is touched, and nothing of it is thrown away: it goes to `__damaged/<table>/<time>/`. A damaged or
missing version of a table is given to an empty commit, and a last commit makes everybody load the table anew.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalike.clock import Deadline
from kafkalike.errors import KafkaError, LogCorruptError, UnsupportedVersionError
from kafkalike.log.inspect.findings import Finding
from kafkalike.log.store.parquet import UNREADABLE, is_storage_error, open_parquet, put_parquet
from kafkalike.log.table.actions import Add, Commit, creation, log_name, parse_commit
from kafkalike.log.table.control_log import seq_segment
from kafkalike.log.table.damage import REPAIR_COMMAND
from kafkalike.log.table.layout import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    CONTROL_TABLE_PROPERTIES,
    DAMAGED,
    METADATA_SCHEMA,
    OFFSETS_SCHEMA,
    TOPIC_SCHEMA,
    TOPIC_TABLE_PROPERTIES,
    delta_schema,
)
from kafkalike.log.table.snapshot import LAST_CHECKPOINT, LogFiles, read_checkpoint
from kafkalike.log.table.state import REPAIR, TableState, end_app
from kafkalike.log.table.table import Change, Table, load_table
from kafkalike.log.topic.notes import WORK_KEY
from kafkalike.log.topic.segment_files import segment_of

if TYPE_CHECKING:
    from kafkalike.log.cluster.delta_cluster import DeltaCluster
    from kafkalike.log.store.port import Store
    from kafkalike.model.topic import TopicInfo

TIMEOUT_MS: Final = 60_000
"""How long a repair queues behind the writers of a table, ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """A damaged file of a table."""

    kind: str
    """`damaged-commit`, `missing-commit`, `damaged-checkpoint`, `damaged-last-checkpoint`, `damaged-control-file`."""
    file: str
    """Relative to the table's folder."""
    why: str
    version: int = -1
    """Of a commit."""
    rows: range = range(0)
    """Numbers of the rows of a control table that were in it."""
    hopeless: bool = False
    """Whether no sound version is left to go on from."""

    @property
    def step(self) -> str:
        """What a repair does about it."""
        if self.hopeless:
            return "cannot be repaired, as no sound version is left: restore the table from a backup"
        if self.kind == "missing-commit":
            return "gives the version to an empty commit; what it said is lost"
        if self.kind == "damaged-commit":
            return f"moves it to {DAMAGED}, gives the version to an empty commit; what it said is lost"
        if self.kind == "damaged-control-file":
            return f"moves it to {DAMAGED} and takes it out of the table; rows {_run(self.rows)} are lost"
        return f"moves it to {DAMAGED}; nothing is lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedTable:
    """A table with damaged files."""

    location: str
    """Its folder below the root."""
    topic: TopicInfo | None
    """None for a control table."""
    flaws: Sequence[Flaw]

    def findings(self) -> list[Finding]:
        """The same for `verify`."""
        name = None if self.topic is None else self.topic.name
        return [
            Finding(kind=f.kind, topic=name, message=f"{self.location}/{f.file}: {f.why}; see `{REPAIR_COMMAND}`")
            for f in self.flaws
        ]

    def plan(self) -> list[str]:
        """What a repair would do, for people."""
        return [f"{self.location}/{flaw.file} ({flaw.why}): {flaw.step}" for flaw in self.flaws]


def damaged_tables(
    cluster: DeltaCluster, topics: Sequence[TopicInfo], *, control: bool = True
) -> Iterator[DamagedTable]:
    """Look through the logs of tables, and through the data files of control tables.

    Args:
        cluster: where they are.
        topics: whose tables; their data files are looked at by `verify`.
        control: whether to look at the control tables too.
    """
    places: list[tuple[str, TopicInfo | None]] = [(info.location, info) for info in topics]
    if control:
        places[:0] = [(CLUSTER_METADATA, None), (CONSUMER_OFFSETS, None)]
    for location, info in places:
        flaws = find_flaws(cluster.store.at(location), control=info is None)
        if flaws:
            yield DamagedTable(location=location, topic=info, flaws=flaws)


def find_flaws(store: Store, *, control: bool) -> list[Flaw]:
    """What is damaged in a table's log and, for a control table, in its data files; nothing when there is no table."""
    files = LogFiles.listed(store)
    if not files.commits and not files.checkpoints:
        return []
    flaws: list[Flaw] = []
    sound = -1
    for version, names in files.checkpoints.items():
        try:
            read_checkpoint(store, names)
            sound = max(sound, version)
        except UNREADABLE as cause:
            _check_storage(cause)
            flaws += [Flaw(kind="damaged-checkpoint", file=f"_delta_log/{name}", why=_text(cause)) for name in names]
    log = _log_flaws(store, files, sound)
    if sound < 0 and files.commits[:1] != (0,) and files.commits:
        file = log_name(files.commits[0])
        return [Flaw(kind="missing-commit", file=file, why="what came before it is gone", hopeless=True)]
    flaws = [*log, *flaws, *_pointer_flaw(store, files, sound)]
    return flaws + (_control_flaws(store) if control else [])


def _log_flaws(store: Store, files: LogFiles, sound: int) -> list[Flaw]:
    there = set(files.commits)
    flaws = [
        Flaw(kind="missing-commit", file=log_name(version), why="it is missing", version=version)
        for version in range(sound + 1, max([sound, *there]) + 1)
        if version not in there
    ]
    for version in files.commits:
        try:
            parse_commit(version, store.read(log_name(version)), store.uri)
        except (FileNotFoundError, UnsupportedVersionError):
            # A table feature that somebody has switched on is no damage.
            continue
        except LogCorruptError as cause:
            why = str(cause).partition(".json ")[2] or str(cause)
            flaws.append(Flaw(kind="damaged-commit", file=log_name(version), why=why, version=version))
    return sorted(flaws, key=lambda flaw: flaw.version)


def _pointer_flaw(store: Store, files: LogFiles, sound: int) -> list[Flaw]:
    try:
        content = store.read(LAST_CHECKPOINT)
    except FileNotFoundError:
        return []
    try:
        named = int(json.loads(content)["version"])
    except (ValueError, KeyError, TypeError) as cause:
        return [Flaw(kind="damaged-last-checkpoint", file=LAST_CHECKPOINT, why=f"it cannot be read: {_text(cause)}")]
    if named > sound and named not in files.checkpoints:
        why = f"it names checkpoint {named}, which is not there"
        return [Flaw(kind="damaged-last-checkpoint", file=LAST_CHECKPOINT, why=why)]
    return []


def _control_flaws(store: Store) -> list[Flaw]:
    """Data files that cannot be read; none when the log itself cannot be, which is repaired first."""
    try:
        live = list(load_table(store, seq_segment).index)
    except LogCorruptError:
        return []
    flaws = []
    for segment in live:
        try:
            with open_parquet(store, segment.path) as file:
                file.read(use_threads=False)
        except UNREADABLE as cause:
            _check_storage(cause)
            why = "it is missing" if isinstance(cause, FileNotFoundError) else _text(cause)
            flaws.append(Flaw(kind="damaged-control-file", file=segment.path, why=why, rows=segment.offsets))
    hopeless = bool(live) and len(flaws) == len(live)
    return [Flaw(kind=f.kind, file=f.file, why=f.why, rows=f.rows, hopeless=True) if hopeless else f for f in flaws]


def repair(cluster: DeltaCluster, damaged: DamagedTable) -> list[str]:
    """Make a damaged table readable and writable again.

    Args:
        cluster: where it is.
        damaged: what was found. It is looked at anew once this is the table's only writer.

    Returns:
        What was done and what is lost, a sentence each.

    Raises:
        KafkaTimeoutError: others held the table for a minute; nothing was done.
        LogCorruptError: no sound version is left; nothing was done.
        KafkaStorageError, UnknownOutcomeError: the storage refused; run it again.
    """
    deadline = Deadline(cluster.clock, TIMEOUT_MS)
    with cluster.store.turn(damaged.location, deadline):
        return _Repair(cluster, damaged.location, damaged.topic, deadline).run()


@dataclass(slots=True)
class _Repair:
    """One run over one table."""

    cluster: DeltaCluster
    location: str
    topic: TopicInfo | None
    deadline: Deadline
    done: list[str] = field(default_factory=list)

    @property
    def store(self) -> Store:
        return self.cluster.store.at(self.location)

    def run(self) -> list[str]:
        flaws = find_flaws(self.store, control=self.topic is None)
        if any(flaw.hopeless for flaw in flaws):
            message = f"{self.location}: no sound version is left; restore the table from a backup"
            raise LogCorruptError(message)
        for flaw in flaws:
            if flaw.kind in {"damaged-commit", "missing-commit"}:
                self._replace_commit(flaw)
            elif flaw.kind == "damaged-checkpoint":
                self._put_aside(flaw)
                self.store.remove(flaw.file)
        if any(flaw.kind.endswith("checkpoint") for flaw in flaws):
            self._point_to_checkpoint()
        lost_commits = [flaw for flaw in flaws if flaw.version >= 0]
        lost_files = _control_flaws(self.store) if self.topic is None else []
        if any(flaw.hopeless for flaw in lost_files):
            message = f"{self.location}: none of its rows can be read; restore the table from a backup"
            raise LogCorruptError(message)
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
            content = Commit(
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
            return creation(
                str(self.topic.topic_id),
                TOPIC_SCHEMA,
                partition_by=["partition"],
                properties=TOPIC_TABLE_PROPERTIES,
                time_ms=now,
            )
        columns = METADATA_SCHEMA if self.location == CLUSTER_METADATA else OFFSETS_SCHEMA
        return creation(
            str(uuid.uuid4()),
            delta_schema(columns),
            partition_by=[],
            properties=CONTROL_TABLE_PROPERTIES,
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
        """Make a version after which everybody loads the table anew, without the lost files."""
        to_segment = seq_segment if self.topic is None else segment_of
        table = Table(self.store, self.cluster.clock, to_segment=to_segment, durable=True)
        table.refresh()
        claims = self._ends_in_doubt(table.state) if lost_commits else {}

        def plan(state: TableState) -> Change:
            gone = {flaw.file for flaw in lost_files}
            removes = [
                Add(path=s.path, partition=None, size=s.size_bytes, modification_ms=0, data_change=True, stats={})
                for s in state.index
                if s.path in gone
            ]
            adds = self._last_row(state, gone) if gone else []
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
        self.done += [f"{self.location}: rows {_run(flaw.rows)} are lost" for flaw in lost_files]

    def _last_row(self, state: TableState, gone: set[str]) -> list[Add]:
        """The last row that is left, under the number of the last lost one: numbers go on from there.

        It says once more what is in force. A number that was given out must not be given to another row: who has seen
        the first one would pass over the second.
        """
        left = [s for s in state.index if s.path not in gone]
        last = max(s.stop for s in state.index) - 1
        if any(s.stop - 1 == last for s in left):
            return []
        with open_parquet(self.store, max(left, key=lambda s: s.stop).path) as file:
            rows = file.read(use_threads=False).sort_by("seq")
        row = rows.slice(rows.num_rows - 1)
        row = row.set_column(row.schema.get_field_index("seq"), row.schema.field("seq"), pa.array([last], pa.int64()))
        name = f"part-{last:010d}-{uuid.uuid4().hex}.parquet"
        size = put_parquet(self.store, name, row, "snappy")
        self.store.sync(name)
        stats = {"numRecords": 1, "minValues": {"seq": last}, "maxValues": {"seq": last}, "nullCount": {}}
        now = self.cluster.clock.now_ms()
        return [Add(path=name, partition=None, size=size, modification_ms=now, data_change=True, stats=stats)]

    def _ends_in_doubt(self, state: TableState) -> dict[int, int]:
        """Log ends that records of a lost commit may have had: their offsets must not be given out a second time.

        Its data files are still there as a rule, and named by no version; they are kept beside the damaged files.
        """
        claims: dict[int, int] = {}
        for entry in self.store.list(deep=True):
            place = _place(entry.name, control=self.topic is None)
            if place is None or state.index.has(entry.name):
                continue
            partition, start = place
            if start < state.end(partition) and (self.topic or state.index.within(partition, range(start, start + 1))):
                continue
            end, rows = start + 1, None
            try:
                with open_parquet(self.store, entry.name) as file:
                    rows = file.read(use_threads=False)
                end = start + max(1, rows.num_rows)
            except UNREADABLE as cause:
                _check_storage(cause)
            claims[partition] = max(end, claims.get(partition, 0))
            self._keep(entry.name)
            self.done += self._lost(partition, range(start, end), rows)
        if self.topic is None:
            return {}
        for partition, offset in self._committed().items():
            if offset > max(state.end(partition), claims.get(partition, 0)):
                known = max(state.end(partition), claims.get(partition, 0))
                self.done.append(f"{self.topic.name}-{partition}: offsets {_run(range(known, offset))} are lost")
                claims[partition] = offset
        return claims

    def _lost(self, partition: int, offsets: range, rows: pa.Table | None) -> list[str]:
        if self.topic is not None:
            return [f"{self.topic.name}-{partition}: offsets {_run(offsets)} are lost"]
        if rows is None:
            return [f"{self.location}: rows {_run(offsets)} are lost"]
        return [f"{self.location}: lost row {_row_text(row)}" for row in rows.to_pylist()]

    def _committed(self) -> dict[int, int]:
        """The highest offset that any group has committed, by partition."""
        assert self.topic is not None
        found: dict[int, int] = {}
        try:
            groups = self.cluster.groups.refresh().groups
        except KafkaError:
            return {}
        for group in groups.values():
            for where, commit in group.offsets.items():
                if where.topic == self.topic.name and commit.topic_id == self.topic.topic_id:
                    found[where.partition] = max(found.get(where.partition, 0), commit.position.offset)
        return found


def _place(path: str, *, control: bool) -> tuple[int, int] | None:
    """Partition and first offset (or row) of a data file of ours, by its name; None for any other file."""
    folder, _, name = path.rpartition("/")
    words = name.removesuffix(".parquet").split("-")
    if len(words) != 3 or words[0] != "part" or not words[1].isdigit() or name == path.removesuffix(".parquet"):  # noqa: PLR2004
        return None
    if control:
        return (0, int(words[1])) if not folder else None
    number = folder.removeprefix("partition=")
    return (int(number), int(words[1])) if number.isdigit() and number != folder else None


def _row_text(row: Mapping[str, Any]) -> str:
    what = row.get("change") or row.get("metadata") or row.get("member_id") or ""
    whose = row.get("group_id") or row.get("topic")
    where = "" if "group_id" not in row or row.get("topic") is None else f" {row['topic']}-{row['partition']}"
    at = "" if row.get("offset") is None else f" offset {row['offset']}"
    return f"{row['seq']}: {row['kind']} {whose}{where}{at} {what}".rstrip()


def _run(numbers: range) -> str:
    return f"[{numbers.start}, {numbers.stop})"


def _text(cause: BaseException) -> str:
    return " ".join(str(cause).split()) or type(cause).__name__


def _check_storage(cause: BaseException) -> None:
    """Let a storage that does not answer be no damage."""
    if is_storage_error(cause):
        raise cause
