"""Repair: make a damaged table readable and writable again, and replicas in sync identical.

A table repair touches only damaged files and moves them to `__damaged/<table>/<time>/` instead of deleting them. An
empty commit takes the place of a damaged or missing version, and a last commit makes every client reload the table.
Files that a replica in sync still has are restored first; see `replica_check`.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from kafkalike.errors import KafkaError, LogCorruptError
from kafkalike.log.topic.topic_commits import WORK_KEY, segment_of
from kafkalike.maintenance.handles import opened
from kafkalike.maintenance.verify import table_damage
from kafkalike.maintenance.verify.replica_check import repair_replicas
from kafkalike.model.clock import Deadline
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.storage.parquet import open_parquet, put_parquet

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.topic import TopicInfo
    from kafkalike.model.transactions.transaction_views import LostPart
    from kafkalike.storage.port import Storage


TIMEOUT_MS: Final = 60_000
"""How long a repair queues behind the writers of a table, ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """The outcome of `repair`."""

    sound: bool
    """True if nothing is damaged, or all damage was repaired."""
    lines: tuple[str, ...]
    """Each damage and each change in one sentence, which begins with `DAMAGED`, `REPAIRED` or `NOT REPAIRED`."""


def repair(
    bootstrap_servers: Address | None = None,
    topics: str | Iterable[str] | None = None,
    *,
    dry_run: bool = True,
    storage_options: StorageOptionsLike | None = None,
) -> RepairReport:
    """Make damaged tables readable and writable again, and replicas in sync identical.

    Damaged files are moved to `__damaged` below the root. Records in files that no replica has intact are lost; the
    report counts them. Other programs may run meanwhile.

    Args:
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        topics: a name, or names; None: all topics, and the cluster's control tables.
        dry_run: whether to report only.
        storage_options: credentials of an object store; see `kafkalike.connect.connect`.

    Raises:
        UnknownTopicOrPartitionError: a topic does not exist; nothing was done.
        UnsafeStorageError: the root is read-only here.
    """
    cluster = opened(bootstrap_servers, storage_options, writes=not dry_run)
    wanted = None if topics is None else {topics} if isinstance(topics, str) else set(topics)
    with contextlib.suppress(LogCorruptError):
        for name in sorted(wanted or ()):
            cluster.topic(name)
    lines: list[str] = []
    sound = repair_tables(
        cluster,
        lambda name: wanted is None or name in wanted,
        control=wanted is None,
        execute=not dry_run,
        say=lines.append,
    )
    return RepairReport(sound=sound, lines=tuple(lines))


NO_EXECUTE = "WARN: No action will be performed as the --execute option is missing."


def repair_tables(
    cluster: Cluster, allowed: Callable[[str], bool], *, control: bool, execute: bool, say: Callable[[str], None]
) -> bool:
    """Repair damaged tables, first the control tables, which list the topics.

    Args:
        cluster: the cluster.
        allowed: filter of topic names.
        control: repair the control tables, too.
        execute: repair; else only print the plan.
        say: prints a line.

    Returns:
        True if nothing is damaged, or all damage was repaired.
    """
    with contextlib.suppress(LogCorruptError):
        # Refuses a root of a newer format, whose files only look damaged to this release.
        cluster.metadata.refresh()
    sound = _whole_replicas(cluster, allowed, execute=execute, say=say)
    for table in _damaged(cluster, allowed, control=control, say=say):
        for line in table.plan():
            say(f"DAMAGED {line}")
        sound = (execute and _repaired(cluster, table, say)) and sound
    # A damaged table of the groups is repaired here, or its damage is printed.
    with contextlib.suppress(LogCorruptError):
        for lost in cluster.transactions.damaged() if control else ():
            say(f"DAMAGED {_sentence(lost)}")
            sound = (execute and _left_out(cluster, lost, say)) and sound
    if sound and not execute:
        say("There is no damage that a repair could mend.")
    elif not execute:
        say(NO_EXECUTE)
    return sound


def _whole_replicas(
    cluster: Cluster, allowed: Callable[[str], bool], *, execute: bool, say: Callable[[str], None]
) -> bool:
    """Repair replicas from each other first, so that no data is dropped that a replica still has."""
    sound = True
    for line in repair_replicas(cluster, allowed, dry_run=not execute):
        say(f"{'REPAIRED' if execute else 'DAMAGED'} {line}")
        sound = execute
    return sound


def _damaged(
    cluster: Cluster, allowed: Callable[[str], bool], *, control: bool, say: Callable[[str], None]
) -> Iterator[table_damage.DamagedTable]:
    if control:
        yield from table_damage.damaged_tables(cluster, [])
    try:
        topics = cluster.topics()
    except LogCorruptError:
        say("The topics are unknown until the cluster's metadata are repaired.")
        return
    yield from table_damage.damaged_tables(cluster, [topics[n] for n in sorted(topics) if allowed(n)], control=False)


def _repaired(cluster: Cluster, table: table_damage.DamagedTable, say: Callable[[str], None]) -> bool:
    try:
        for line in repair_table(cluster, table):
            say(f"REPAIRED {line}")
    except KafkaError as error:
        say(f"NOT REPAIRED {error}")
        return False
    return True


def _sentence(lost: LostPart) -> str:
    return (
        f"{lost.why}; {sum(lost.counts.values())} records of transactional id {lost.transactional_id!r} are lost, and "
        "later transactions enter the topic without them"
    )


def _left_out(cluster: Cluster, lost: LostPart, say: Callable[[str], None]) -> bool:
    try:
        cluster.transactions.leave_out(lost, Deadline(cluster.clock, TIMEOUT_MS))
    except KafkaError as error:
        say(f"NOT REPAIRED {error}")
        return False
    say(f"REPAIRED transaction {lost.seq} leaves topic {lost.topic!r} out")
    return True


def repair_table(cluster: Cluster, damaged: table_damage.DamagedTable) -> list[str]:
    """Make a damaged table readable and writable again.

    Args:
        cluster: the cluster.
        damaged: the damage that was found. It is checked again when this process is the table's only writer.

    Returns:
        A sentence for each change and each loss.

    Raises:
        KafkaTimeoutError: other writers held the table for a minute; nothing was done.
        LogCorruptError: no intact version is left; nothing was done.
        KafkaStorageError, UnknownOutcomeError: the storage refused; run it again.
    """
    deadline = Deadline(cluster.clock, TIMEOUT_MS)
    with cluster.store.coordination.turn(damaged.location, deadline):
        return _Repair(cluster, damaged.location, damaged.topic, deadline).run()


@dataclass(slots=True)
class _Repair:
    """The repair of one table."""

    cluster: Cluster
    location: str
    topic: TopicInfo | None
    deadline: Deadline
    done: list[str] = field(default_factory=list)

    @property
    def store(self) -> Storage:
        return self.cluster.store.at(self.location)

    def run(self) -> list[str]:
        flaws = table_damage.find_flaws(self.store, control=self.topic is None)
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
        lost_files = table_damage.control_flaws(self.store) if self.topic is None else []
        if any(flaw.hopeless for flaw in lost_files):
            raise LogCorruptError(f"{self.location}: none of its rows can be read; restore the table from a backup")
        for flaw in lost_files:
            self._put_aside(flaw)
        if lost_commits or lost_files:
            self._load_anew(lost_files, lost_commits)
        for flaw in lost_files:
            self.store.remove(flaw.file)
        return self.done

    def _replace_commit(self, flaw: table_damage.Flaw) -> None:
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
        """Return the content of a table's first version, which has no records."""
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

    def _put_aside(self, flaw: table_damage.Flaw) -> None:
        """Keep the rest of a damaged file, if it exists."""
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
        """Make the pointer name the newest checkpoint, all of which are intact at this point."""
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

    def _load_anew(self, lost_files: Sequence[table_damage.Flaw], lost_commits: Sequence[table_damage.Flaw]) -> None:
        """Commit a version without the lost files, after which all clients load the table again."""
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
        self.done += [f"{self.location}: rows {table_damage.run(flaw.rows)} are lost" for flaw in lost_files]

    def _lost_records(self) -> table_damage.LostRecords:
        return table_damage.LostRecords(
            cluster=self.cluster, location=self.location, topic=self.topic, keep=self._keep, say=self.done.append
        )

    def _last_row(self, state: TableState, gone: set[str], end: int) -> list[Add]:
        """Repeat the last remaining row with the number of the last lost one, so that the next row gets a fresh number.

        The row has no new effect. A number must not be used twice: a client that has read the first row would skip the
        second one, and a schema id made of it would have two meanings.

        Args:
            state: the table.
            gone: files that are lost.
            end: number after the last row of lost commits.
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
