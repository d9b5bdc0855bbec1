"""Table damage: damaged files in tables' logs and control tables, and the contents of lost commits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalike.delta.actions import log_name, parse_commit
from kafkalike.delta.damage import REPAIR_COMMAND
from kafkalike.delta.layout import CONTROL_TABLES, DAMAGED
from kafkalike.delta.log_files import LAST_CHECKPOINT, LogFiles
from kafkalike.delta.row_files import seq_segment
from kafkalike.delta.snapshot import read_checkpoint
from kafkalike.delta.table_state import TableState, load_table
from kafkalike.errors import KafkaError, LogCorruptError, UnsupportedVersionError
from kafkalike.maintenance.verify.verify_report import Finding
from kafkalike.storage.parquet import UNREADABLE, is_storage_error, open_parquet

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.topic import TopicInfo
    from kafkalike.storage.port import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """A damaged file of a table."""

    kind: str
    """`damaged-commit`, `missing-commit`, `damaged-checkpoint`, `damaged-last-checkpoint`, `damaged-control-file`."""
    file: str
    """Path relative to the table's folder."""
    why: str
    version: int = -1
    """Version of a damaged commit; -1 for other files."""
    rows: range = range(0)
    """Numbers of the control table's rows in the file."""
    hopeless: bool = False
    """True if no intact version is left to repair from."""

    @property
    def step(self) -> str:
        """Description of the repair."""
        if self.hopeless:
            return "cannot be repaired, as no sound version is left: restore the table from a backup"
        if self.kind == "missing-commit":
            return "gives the version to an empty commit; its content is lost"
        if self.kind == "damaged-commit":
            return f"moves it to {DAMAGED}, gives the version to an empty commit; its content is lost"
        if self.kind == "damaged-control-file":
            return f"moves it to {DAMAGED} and takes it out of the table; rows {run(self.rows)} are lost"
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
        """Return the findings for `verify`."""
        name = None if self.topic is None else self.topic.name
        return [
            Finding(kind=f.kind, topic=name, message=f"{self.location}/{f.file}: {f.why}; see `{REPAIR_COMMAND}`")
            for f in self.flaws
        ]

    def plan(self) -> list[str]:
        """Describe a repair, for people."""
        return [f"{self.location}/{flaw.file} ({flaw.why}): {flaw.step}" for flaw in self.flaws]


def damaged_tables(cluster: Cluster, topics: Sequence[TopicInfo], *, control: bool = True) -> Iterator[DamagedTable]:
    """Check the logs of tables, and the data files of control tables.

    Args:
        cluster: the cluster.
        topics: topics whose logs are checked; `verify` checks their data files.
        control: whether to check the control tables, too.
    """
    places: list[tuple[str, TopicInfo | None]] = [(info.location, info) for info in topics]
    if control:
        places[:0] = [(name, None) for name in CONTROL_TABLES]
    for location, info in places:
        flaws = find_flaws(cluster.store.at(location), control=info is None)
        if flaws:
            yield DamagedTable(location=location, topic=info, flaws=flaws)


def find_flaws(store: Storage, *, control: bool) -> list[Flaw]:
    """Return damage in a table's log and, for a control table, in its data files; empty without a table."""
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
            check_storage(cause)
            flaws += [Flaw(kind="damaged-checkpoint", file=f"_delta_log/{name}", why=text(cause)) for name in names]
    log = _log_flaws(store, files, sound)
    if sound < 0 and files.commits[:1] != (0,) and files.commits:
        file = log_name(files.commits[0])
        return [Flaw(kind="missing-commit", file=file, why="all versions before it are missing", hopeless=True)]
    flaws = [*log, *flaws, *_pointer_flaw(store, files, sound)]
    return flaws + (control_flaws(store) if control else [])


def _log_flaws(store: Storage, files: LogFiles, sound: int) -> list[Flaw]:
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
            # A table feature that a user has enabled is not damage.
            continue
        except LogCorruptError as cause:
            why = str(cause).partition(".json ")[2] or str(cause)
            flaws.append(Flaw(kind="damaged-commit", file=log_name(version), why=why, version=version))
    return sorted(flaws, key=lambda flaw: flaw.version)


def _pointer_flaw(store: Storage, files: LogFiles, sound: int) -> list[Flaw]:
    try:
        content = store.read(LAST_CHECKPOINT)
    except FileNotFoundError:
        return []
    try:
        named = int(json.loads(content)["version"])
    except (ValueError, KeyError, TypeError) as cause:
        return [Flaw(kind="damaged-last-checkpoint", file=LAST_CHECKPOINT, why=f"it cannot be read: {text(cause)}")]
    # A checkpoint may have been made after the list; the pointer is written after it.
    if named > sound and named not in files.checkpoints and named not in LogFiles.listed(store).checkpoints:
        why = f"it names checkpoint {named}, which is not there"
        return [Flaw(kind="damaged-last-checkpoint", file=LAST_CHECKPOINT, why=why)]
    return []


def control_flaws(store: Storage) -> list[Flaw]:
    """Return unreadable data files; empty if the log itself is unreadable, which is repaired first."""
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
            check_storage(cause)
            why = "it is missing" if isinstance(cause, FileNotFoundError) else text(cause)
            flaws.append(Flaw(kind="damaged-control-file", file=segment.path, why=why, rows=segment.offsets))
    hopeless = bool(live) and len(flaws) == len(live)
    return [Flaw(kind=f.kind, file=f.file, why=f.why, rows=f.rows, hopeless=True) if hopeless else f for f in flaws]


def run(numbers: range) -> str:
    """Format a range of offsets or rows for people: `[3, 5)`."""
    return f"[{numbers.start}, {numbers.stop})"


def text(cause: BaseException) -> str:
    """Return the message of an error on one line."""
    return " ".join(str(cause).split()) or type(cause).__name__


def check_storage(cause: BaseException) -> None:
    """Raise if the cause is a storage that does not answer, which is not damage."""
    if is_storage_error(cause):
        raise cause


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRecords:
    """The contents of lost commits of one table.

    Args:
        cluster: the cluster.
        location: the table's folder below the root.
        topic: None for a control table.
        keep: copies a file of the table to the folder of damaged files.
        say: called with a sentence for each loss.
    """

    cluster: Cluster
    location: str
    topic: TopicInfo | None
    keep: Callable[[str], None]
    say: Callable[[str], None]

    @property
    def store(self) -> Storage:
        """The table's storage."""
        return self.cluster.store.at(self.location)

    def ends_in_doubt(self, state: TableState) -> dict[int, int]:
        """Return possible log ends of lost commits, by partition, because their offsets must not be used again.

        The same holds for the row numbers of a control table, as partition 0. The data files of lost commits usually
        still exist and no version names them; they are kept beside the damaged files.
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
                check_storage(cause)
            claims[partition] = max(end, claims.get(partition, 0))
            self.keep(entry.name)
            for line in self._lost(partition, range(start, end), rows):
                self.say(line)
        if self.topic is None:
            return claims
        for partition, offset in self._committed().items():
            if offset > max(state.end(partition), claims.get(partition, 0)):
                known = max(state.end(partition), claims.get(partition, 0))
                self.say(f"{self.topic.name}-{partition}: offsets {run(range(known, offset))} are lost")
                claims[partition] = offset
        return claims

    def _lost(self, partition: int, offsets: range, rows: pa.Table | None) -> list[str]:
        if self.topic is not None:
            return [f"{self.topic.name}-{partition}: offsets {run(offsets)} are lost"]
        if rows is None:
            return [f"{self.location}: rows {run(offsets)} are lost"]
        return [f"{self.location}: lost row {_row_text(row)}" for row in rows.to_pylist()]

    def _committed(self) -> dict[int, int]:
        """Return the highest offset that any group has committed, by partition."""
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
    """Return partition and first offset (or row) of a kafkalike data file, by its name; None for other files."""
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
    if row.get("schema_id") is not None:
        what = f"version {row['version']} with id {row['schema_id']}"
    whose = row.get("group_id") or row.get("topic") or row.get("subject")
    where = "" if "group_id" not in row or row.get("topic") is None else f" {row['topic']}-{row['partition']}"
    at = "" if row.get("offset") is None else f" offset {row['offset']}"
    return f"{row['seq']}: {row['kind']} {whose}{where}{at} {what}".rstrip()
