"""Repair: make a damaged table readable and writable again, and replicas in sync identical.

A table repair touches only damaged files and moves them to `__damaged/<table>/<time>/` instead of deleting them. An
empty commit takes the place of a damaged or missing version, and a last commit makes every client reload the table.

Replicas in sync have the same versions and the same data files, byte by byte, up to the version that the leader has
published. Versions beyond it were not acknowledged, and files at or below a replica's checkpoint are not compared.
Files of a table never change, so a replica repair copies them from a sound replica, loses nothing, and runs beside
other writers.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalike.delta.actions import Add, log_name
from kafkalike.delta.commit_file import CommitFile, creation, topic_creation
from kafkalike.delta.layout import CLUSTER_METADATA, CONTROL_SCHEMAS, CONTROL_TABLE_PROPERTIES, DAMAGED, delta_schema
from kafkalike.delta.log_files import LAST_CHECKPOINT, LogFiles
from kafkalike.delta.replica_files import is_whole
from kafkalike.delta.row_files import ROWS, seq_segment
from kafkalike.delta.table import Table
from kafkalike.delta.table_change import Change
from kafkalike.delta.table_state import REPAIR, TableState, end_app, load_table
from kafkalike.errors import KafkaError, LogCorruptError
from kafkalike.log.topic.segment_rows import read_segment
from kafkalike.log.topic.topic_commits import WORK_KEY, segment_of
from kafkalike.maintenance.verify.table_damage import DamagedTable, Flaw, LostRecords, control_flaws, find_flaws, run
from kafkalike.maintenance.verify.verify_report import Finding
from kafkalike.model.clock import Deadline
from kafkalike.storage.parquet import UNREADABLE, open_parquet, put_parquet

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.segments import Segment
    from kafkalike.model.topic import TopicInfo
    from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
    from kafkalike.storage.port import Storage


TIMEOUT_MS: Final = 60_000
"""How long a repair queues behind the writers of a table, ms."""


def repair(cluster: Cluster, damaged: DamagedTable) -> list[str]:
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

    def _put_aside(self, flaw: Flaw) -> None:
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

    def _load_anew(self, lost_files: Sequence[Flaw], lost_commits: Sequence[Flaw]) -> None:
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
        self.done += [f"{self.location}: rows {run(flaw.rows)} are lost" for flaw in lost_files]

    def _lost_records(self) -> LostRecords:
        return LostRecords(
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


Stores = Mapping[int, "Storage"]
"""Reachable replicas in sync, by broker."""


def repair_replicas(cluster: Cluster, allowed: Callable[[str], bool], *, dry_run: bool) -> Iterator[str]:
    """Restore files that one replica in sync has damaged, or lacks, from an intact replica.

    Args:
        cluster: the cluster; with one root, nothing is compared.
        allowed: selects topics and control tables by name.
        dry_run: whether to report only.

    Returns:
        A sentence for each file.
    """
    from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster

    if not isinstance(cluster, ReplicatedCluster):
        return
    state = cluster.metadata.refresh()
    for name in filter(allowed, cluster.replication.tables()):
        info = state.topics.get(name)
        replicas = cluster.store.replicas(name if info is None else info.location)
        stores = {
            replica.broker: replicas.store_of(replica)
            for replica in replicas.in_sync()
            if cluster.store.root_of(replica.broker).is_there()
        }
        if len(stores) < 2:  # noqa: PLR2004 - nobody else has it
            continue
        with contextlib.suppress(KafkaError, OSError):
            for said in (*_versions(stores, dry_run=dry_run), *_data(stores, info is not None, dry_run=dry_run)):
                yield f"replicas of {name}: {said}"


def _versions(stores: Stores, *, dry_run: bool) -> Iterator[str]:
    listed = {broker: LogFiles.listed(store) for broker, store in stores.items()}
    for version in sorted({version for files in listed.values() for version in files.commits}):
        # A version that one replica ignores may be its own.
        having = [broker for broker, files in listed.items() if version in files.commits]
        found = {broker: stores[broker].look(log_name(version)) for broker in having}
        damaged = [broker for broker, content in found.items() if content is not None and not is_whole(content)]
        whole = next((content for content in found.values() if content is not None and is_whole(content)), None)
        if whole is not None:
            yield from _put(stores, damaged, log_name(version), whole, dry_run=dry_run)


def _data(stores: Stores, is_topic: bool, *, dry_run: bool) -> Iterator[str]:  # noqa: FBT001
    for segment in _state(list(stores.values()), is_topic).index:
        found: dict[int, bytes | None] = {}
        for broker, store in stores.items():
            try:
                found[broker] = store.read(segment.path)
            except FileNotFoundError:
                found[broker] = None
        contents = set(found.values())
        if len(contents) == 1:
            continue
        sound = [broker for broker, content in found.items() if content is not None]
        sound = [broker for broker in sound if _is_sound(stores[broker], segment, is_topic)]
        # Among several readable copies, prefer the most frequent content, because a flipped bit may lie where no check
        # sees it.
        kept = max((found[broker] for broker in sound), key=list(found.values()).count, default=None)
        if kept is not None:
            wrong = [broker for broker, content in found.items() if content != kept]
            yield from _put(stores, wrong, segment.path, kept, dry_run=dry_run)


def _state(stores: Sequence[Storage], is_topic: bool) -> TableState:  # noqa: FBT001
    """Load the table from the first replica with a readable log; the leader comes first."""
    for store in stores[:-1]:
        with contextlib.suppress(KafkaError):
            found = load_table(store, segment_of if is_topic else seq_segment)
            if found.damage is None:
                return found
    return load_table(stores[-1], segment_of if is_topic else seq_segment)


def _is_sound(store: Storage, segment: Segment, is_topic: bool) -> bool:  # noqa: FBT001
    try:
        if is_topic:
            for _ in read_segment(store, segment):
                pass
        else:
            with open_parquet(store, segment.path) as file:
                file.read(use_threads=False)
    except (KafkaError, *UNREADABLE):
        return False
    return True


def _put(stores: Stores, wrong: Collection[int], path: str, content: bytes, *, dry_run: bool) -> Iterator[str]:
    for broker in wrong:
        if not dry_run:
            store = stores[broker]
            store.make_folder(path.rpartition("/")[0])
            store.replace(path, content)
            store.sync(path)
        yield f"{path} of broker {broker} is damaged, or missing, and another replica has it"


def check_replicas(
    cluster: Cluster, wanted: Callable[[str], bool] = lambda _: True, progress: Callable[[int], None] = lambda _: None
) -> Iterator[Finding]:
    """Compare the replicas of tables, file by file.

    Args:
        cluster: the cluster; with one root, nothing is compared.
        wanted: selects topics and control tables by name.
        progress: called with the bytes of each compared file.
    """
    from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster

    if not isinstance(cluster, ReplicatedCluster):
        return
    state = cluster.metadata.refresh()
    for name in cluster.replication.tables():
        if wanted(name):
            topic = name if name in state.topics else None
            yield from _table(cluster, name, topic, progress)


def _table(
    cluster: ReplicatedCluster, name: str, topic: str | None, progress: Callable[[int], None]
) -> Iterator[Finding]:
    described = cluster.replication.replicas(name)
    for broker in described.replicas:
        if broker in described.offline:
            yield Finding(
                kind="replica-behind",
                message=_said(name, f"broker {broker} gives no answer"),
                topic=topic,
                warning=True,
            )
        elif broker not in described.isr:
            yield Finding(
                kind="replica-behind", message=_said(name, f"broker {broker} is not in sync"), topic=topic, warning=True
            )
    if described.leader < 0:
        yield Finding(kind="replica-differs", message=_said(name, "its leader gives no answer"), topic=topic)
        return
    info = cluster.metadata.state.topics.get(name)
    replicas = cluster.store.replicas(name if info is None else info.location)
    members = {replica.broker: replica for replica in replicas.in_sync() if replica.broker not in described.offline}
    leader = replicas.store_of(members.pop(described.leader))
    try:
        logged = LogFiles.listed(leader)
        published = max((*logged.commits, *logged.checkpoints), default=-1)
        live = {segment.path for segment in load_table(leader, segment_of, published).index} if topic else set()
        for _, replica in sorted(members.items()):
            for message in _different(leader, replicas.store_of(replica), published, live, progress):
                said = _said(name, f"broker {replica.broker}: {message}")
                yield Finding(kind="replica-differs", message=said, topic=topic)
    except (KafkaError, OSError) as error:
        yield Finding(kind="replica-differs", message=_said(name, str(error)), topic=topic)


def _said(name: str, what: str) -> str:
    return f"replicas of {name}: {what}"


def _different(
    leader: Storage, other: Storage, published: int, live: Collection[str], progress: Callable[[int], None]
) -> Iterator[str]:
    mine, theirs = LogFiles.listed(leader), LogFiles.listed(other)
    covered = max((version for version in theirs.checkpoints if version <= published), default=-1)
    for version in mine.commits:
        if version > published:
            continue
        here, there = leader.look(log_name(version)), other.look(log_name(version))
        if here is None or (there is None and version <= covered):
            # Log cleaning has removed it.
            continue
        if there is None:
            yield f"{log_name(version)} is missing"
        elif here != there and version > covered:
            yield f"{log_name(version)} is not that of the leader"
    for path in sorted(live):
        try:
            content = other.read(path)
        except FileNotFoundError:
            yield f"{path} is missing"
            continue
        if content != leader.read(path):
            yield f"{path} is not that of the leader"
        progress(len(content))
