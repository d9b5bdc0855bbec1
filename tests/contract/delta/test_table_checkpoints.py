"""Checkpoints of a table: every version is the same with them and without, ours and a foreign writer's."""

import json
import os
import tempfile
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalike.admin.testing import ManualClock
from kafkalike.connect import connect
from kafkalike.delta.actions import Add, log_name, parse_commit
from kafkalike.delta.checkpoint import fold, make_checkpoint
from kafkalike.delta.commit_bundles import CommitBundle
from kafkalike.delta.commit_file import CommitFile, creation, lines_of
from kafkalike.delta.layout import TOPIC_SCHEMA
from kafkalike.delta.log_cleaner import Helpers, LogCleaner
from kafkalike.delta.log_files import HOUR_MS, SHARE, checkpoint_name, clean_log, joined_name
from kafkalike.delta.snapshot import load_snapshot
from kafkalike.delta.table_change import Change, Landed
from kafkalike.delta.table_state import TableState, end_app, load_table
from kafkalike.errors import LogCorruptError
from kafkalike.log.topic.topic_commits import segment_of
from kafkalike.maintenance.verify.table_damage import find_flaws
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.segments import Segment, SegmentIndex
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.memory import MemoryStorage
from kafkalike.storage.port import Entry, Storage
from tests.tools.effort import examples
from tests.tools.records import batch, everything, make_topic

BEGIN_MS = 1_700_000_000_000
KEPT_MS = 5 * HOUR_MS
TABLE_ID = "0b0a3f1e-6a4c-4f6e-9d1b-6f0f7d1f2a3b"
RETENTION = {"delta.logRetentionDuration": "interval 5 hours"}
PROPERTIES = {**RETENTION, "delta.enableExpiredLogCleanup": "false"}
"""So that other writers, which a test asks for a checkpoint, leave the cleaning to it."""

Known = tuple[Any, ...]
"""What a version holds, as values that can be compared."""


def known(state: TableState) -> Known:
    """Everything of a state that its readers and writers go by."""
    segments = sorted(state.index, key=lambda segment: segment.path)
    return state.version, state.table_id, segments, dict(state.txns), dict(state.properties)


def seen_by_deltalake(root: str, version: int, apps: Mapping[str, int]) -> Known:
    """A version as deltalake reads it."""
    table = DeltaTable(root, version=version)
    rows = table.get_add_actions(flatten=True)
    columns = [rows.column(name).to_pylist() for name in ("path", "partition.partition", "size_bytes", "num_records")]
    txns = {app: found for app in apps if (found := table.transaction_version(app)) is not None}
    return table.version(), sorted(zip(*columns, strict=True)), txns, dict(table.metadata().configuration)


def as_deltalake(state: TableState) -> Known:
    """The same of a state of ours."""
    files = sorted((s.path, s.partition, s.size_bytes, s.num_records) for s in state.index)
    return state.version, files, dict(state.txns), dict(state.properties)


class History:
    """A table to which a test commits, hour by hour, and what each version has to be.

    Args:
        store: the table's files.
        clock: the time of commits.
        properties: of the table.
        every: whether each version is kept, which takes the time of its files at each commit; else the last one is.
    """

    def __init__(
        self,
        store: Storage,
        clock: ManualClock | None = None,
        properties: Mapping[str, str] = PROPERTIES,
        *,
        every: bool = True,
    ) -> None:
        self.every = every
        self.store = store
        self.properties = properties
        self.clock = clock or ManualClock(BEGIN_MS / 1000)
        self.live: dict[str, Add] = {}
        self.ends: dict[int, int] = {}
        self.times: list[int] = []
        self.state: TableState
        self.versions: list[Known] = []
        store.make_folder("_delta_log")
        created = creation(
            TABLE_ID, TOPIC_SCHEMA, partition_by=["partition"], properties=properties, time_ms=self.now_ms
        )
        self._put(created)

    @property
    def now_ms(self) -> int:
        """The time of the next commit."""
        return self.clock.now_ms()

    def _put(self, content: bytes) -> None:
        name = log_name(len(self.times))
        assert self.store.put_if_absent(name, content)
        if isinstance(self.store, LocalStorage):
            os.utime(Path(self.store.uri, name), (self.now_ms / 1000, self.now_ms / 1000))
        self.times.append(self.now_ms)
        # The commits alone are the truth: a state that goes from one to the next without any checkpoint.
        if len(self.times) > 1:
            commit = parse_commit(len(self.times) - 1, content, self.store.uri)
            self.state.apply(commit, [segment_of(add, self.store) for add in commit.adds])
        else:
            self.state = load_table(self.store, segment_of)
        if self.every:
            self.versions.append(known(self.state))

    def commit(self, *, adds: int, partition: int, removes: int, special: bool) -> None:
        """Add files to a partition and take out the oldest ones of the table."""
        made = []
        for _ in range(adds):
            start = self.ends.get(partition, 0)
            self.ends[partition] = start + 10
            name = f"partition={partition}/part-{start:020d}{' %ü+' if special else ''}.parquet"
            times = {"minValues": "2023-11-14T22:13:20.000Z", "maxValues": "2023-11-14T22:13:21.000Z"}
            stats = {
                "numRecords": 10,
                "minValues": {"offset": start, "timestamp": times["minValues"]},
                "maxValues": {"offset": start + 9, "timestamp": times["maxValues"]},
                "nullCount": {"offset": 0, "timestamp": 0},
            }
            made.append(
                Add(
                    path=name,
                    partition=partition,
                    size=100 + start,
                    modification_ms=self.now_ms,
                    data_change=True,
                    stats=stats,
                )
            )
        gone = [self.live.pop(path) for path in list(self.live)[:removes]]
        self.live |= {add.path: add for add in made}
        self._put(
            CommitFile(
                version=len(self.times),
                time_ms=self.now_ms,
                operation="WRITE",
                append_id=f"id-{len(self.times)}",
                adds=made,
                removes=gone,
                txns={end_app(partition): self.ends.get(partition, 0)} if made else {},
            ).content()
        )

    def configure(self, value: int) -> None:
        """Change the table's properties, as `ALTER TABLE` does."""
        snapshot = load_snapshot(self.store)
        metadata = {**snapshot.metadata(), "configuration": {**self.properties, "user.value": str(value)}}
        self._put(lines_of({"timestamp": self.now_ms, "operation": "SET TBLPROPERTIES"}, [{"metaData": metadata}]))

    def check(self, *, deltalake: bool) -> None:
        """Every version within the retention is what it was; an older one is that, or refused as gone."""
        for version, wanted in enumerate(self.versions):
            try:
                found = load_table(self.store, segment_of, version)
            except LogCorruptError:
                # The time of a version is that of the commit after it, which took its place.
                later = self.times[version + 1 :][:1]
                assert later
                assert later[0] <= self.now_ms - KEPT_MS
                continue
            assert known(found) == wanted
            if deltalake:
                assert seen_by_deltalake(self.store.uri, version, self.state.txns) == as_deltalake(found)
        assert known(load_table(self.store, segment_of)) == self.versions[-1]


commits = st.tuples(
    st.just("commit"),
    st.fixed_dictionaries(
        {
            "adds": st.integers(0, 3),
            "partition": st.integers(0, 2),
            "removes": st.integers(0, 3),
            "special": st.booleans(),
        }
    ),
)
upkeep = st.tuples(st.sampled_from(["checkpoint", "checkpoint", "foreign checkpoint", "clean"]), st.none())
hours = st.tuples(st.just("hours"), st.integers(1, 4))
steps = st.one_of(commits, commits, upkeep, upkeep, hours, st.tuples(st.just("configure"), st.integers(0, 9)))


def play(history: History, taken: list[tuple[str, Any]], *, foreign: bool) -> None:
    for kind, what in taken:
        if kind == "commit":
            history.commit(**what)
        elif kind == "configure":
            history.configure(what)
        elif kind == "hours":
            history.clock.sleep(what * HOUR_MS / 1000)
        elif kind == "clean":
            clean_log(history.store, history.now_ms, RETENTION)
        elif kind == "foreign checkpoint" and foreign:
            DeltaTable(history.store.uri).create_checkpoint()
        else:
            folded = load_snapshot(history.store, fold=partial(fold, most=3))
            make_checkpoint(history.store, folded, history.now_ms)


@pytest.mark.slow
@settings(max_examples=examples(300, 25), deadline=None)
@given(st.lists(steps, min_size=1, max_size=40))
def test_every_version_is_the_same_with_checkpoints_and_a_shorter_log(taken: list[tuple[str, Any]]) -> None:
    """In memory; a version within the log's retention stays readable, whatever was made and cleaned up."""
    clock = ManualClock(BEGIN_MS / 1000)
    history = History(MemoryStorage(now_ns=lambda: clock.now_ms() * 1_000_000), clock)

    play(history, taken, foreign=False)

    history.check(deltalake=False)


@pytest.mark.slow
@settings(max_examples=examples(60, 15), deadline=None)
@given(st.lists(steps, min_size=1, max_size=15))
def test_every_version_is_what_deltalake_reads(taken: list[tuple[str, Any]]) -> None:
    """On disk, with checkpoints of deltalake between ours; both read the same of every version."""
    with tempfile.TemporaryDirectory() as folder:
        history = History(LocalStorage(folder))

        play(history, taken, foreign=True)

        history.check(deltalake=True)


@pytest.mark.slow
def test_all_checkpoints_together_grow_with_the_table_and_not_with_its_square() -> None:
    """C5: 3,000 commits of one file each; what was ever written for checkpoints, and what stays of it."""
    written: list[int] = []

    class Counting(MemoryStorage):
        def replace(self, name: str, content: bytes) -> None:
            written.append(len(content) if "checkpoint.parquet" in name else 0)
            super().replace(name, content)

    root = Counting()
    helpers = Helpers()
    history = History(root.at("t"), properties=RETENTION, every=False)
    cleaner = LogCleaner(root, "t", helpers, SYSTEM_CLOCK)
    table = TableState(version=0, table_id=TABLE_ID, index=SegmentIndex(), txns={})
    for version in range(1, 3001):
        history.commit(adds=1, partition=0, removes=0, special=False)
        table.index.add(Segment(0, version - 1, version, 1, 0, 0, 1, str(version)))
        cleaner.after_commit(Landed(version, Change(operation="WRITE", time_ms=0), b""), table)
        helpers.wait()

    files = history.store
    sizes = [entry.size for entry in files.list("_delta_log") if entry.name.endswith(".checkpoint.parquet")]
    last = max(sizes)
    assert sum(written) <= (SHARE + 1) * last
    assert sum(sizes) <= 6 * last
    assert known(load_table(files, segment_of)) == known(history.state)


def traced_peak(call: Callable[[], object]) -> int:
    """Return the most memory that Python has held during a call, in bytes."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_checkpoint_takes_a_fraction_of_the_memory_of_the_commits_that_it_replaces() -> None:
    root = MemoryStorage()
    history, count = History(root.at("t")), 2000
    history.commit(adds=1, partition=0, removes=0, special=False)
    (add,) = history.live.values()
    for version in range(2, count):
        adds = [replace(add, path=f"partition=0/{version}-{number}") for number in range(3)]
        made = CommitFile(version=version, time_ms=0, operation="WRITE", append_id=str(version), adds=adds)
        assert history.store.put_if_absent(log_name(version), made.content())
    make_checkpoint(history.store, load_snapshot(history.store, 1), history.now_ms)
    cleaner = LogCleaner(root, "t", Helpers(), SYSTEM_CLOCK)

    whole = traced_peak(lambda: load_snapshot(history.store))
    peak = traced_peak(lambda: cleaner.clean(TABLE_ID))

    assert history.store.size(checkpoint_name(count - 1))
    assert peak < whole / 2
    assert len(load_table(history.store, segment_of).index) == 3 * (count - 2) + 1


@pytest.mark.slow
def test_memory_for_the_end_of_a_log_is_independent_of_older_commits(tmp_path: Path) -> None:
    root, count = LocalStorage(str(tmp_path)), 4000
    history = History(root.at("t"), every=False)
    for version in range(1, count):
        content = CommitFile(version=version, time_ms=0, operation="WRITE", append_id=str(version)).content()
        Path(history.store.uri, log_name(version)).write_bytes(content)
    make_checkpoint(history.store, load_snapshot(history.store, count - 3), history.now_ms)

    peaks = [
        traced_peak(call)
        for call in (
            lambda: history.store.list("_delta_log", after=f"{count - 3:020d}"),
            lambda: load_snapshot(history.store),
            lambda: load_snapshot(history.store, count - 2),
        )
    ]

    assert load_snapshot(history.store, count - 2).newest == count - 2
    assert max(peaks) < 25 * count


@pytest.mark.parametrize(("properties", "kept"), [(PROPERTIES, True), (RETENTION, False)])
def test_a_log_is_shortened_unless_its_table_forbids_it(properties: dict[str, str], *, kept: bool) -> None:
    """`delta.enableExpiredLogCleanup=false` keeps all commits and checkpoints, whatever is expired."""
    clock = ManualClock(BEGIN_MS / 1000)
    root = MemoryStorage(now_ns=lambda: clock.now_ms() * 1_000_000)
    history = History(root.at("t"), clock, properties)
    for version in range(1, 13):
        history.commit(adds=1, partition=0, removes=0, special=False)
        if version in {2, 3, 4, 5}:
            make_checkpoint(history.store, load_snapshot(history.store), history.now_ms)
        clock.sleep(HOUR_MS / 1000)
    before = {entry.name for entry in history.store.list("_delta_log")}

    assert LogCleaner(root, "t", Helpers(), clock).clean(TABLE_ID)

    after = {entry.name for entry in history.store.list("_delta_log")}
    assert (after == before) == kept
    assert known(load_table(history.store, segment_of)) == history.versions[-1]


def test_a_topic_is_the_same_for_deltalake_after_a_checkpoint(root: str) -> None:
    """Its rows, read from the checkpoint alone: no older commit is left."""
    log = make_topic(root, (0, "a"), (1, "b"))
    made = RecordBatch()
    made.add(0, b"k", None, BEGIN_MS, [("h", b"x"), ("h", None)])
    made.add(1, None, "ü".encode(), BEGIN_MS + 1)
    log.append(made)
    make_checkpoint(log.files, load_snapshot(log.files), SYSTEM_CLOCK.now_ms())
    before = DeltaTable(log.files.uri).to_pyarrow_table().sort_by([("partition", "ascending"), ("offset", "ascending")])
    for file in Path(log.files.uri, "_delta_log").glob("*.json"):
        file.unlink()

    table = DeltaTable(log.files.uri)

    assert table.version() == 2
    assert table.to_pyarrow_table().sort_by([("partition", "ascending"), ("offset", "ascending")]) == before
    assert before.column("offset").to_pylist() == [0, 1, 0, 1]
    fresh = connect(root).log("t")
    fresh.refresh()
    assert {p: fresh.log_end(p) for p in (0, 1)} == {0: 2, 1: 2}
    assert as_deltalake(load_table(log.files, segment_of)) == seen_by_deltalake(
        log.files.uri, 2, {end_app(0): 0, end_app(1): 0}
    )


def test_a_topic_with_a_checkpoint_takes_appends_of_deltalakes_readers_and_ours(root: str) -> None:
    """A new client goes on above a checkpoint that a foreign writer made."""
    log = make_topic(root, (0, "a"), (1, "b"))
    DeltaTable(log.files.uri).create_checkpoint()
    for file in Path(log.files.uri, "_delta_log").glob("*.json"):
        file.unlink()

    fresh = connect(root).log("t")
    made = RecordBatch()
    made.add(0, b"k", b"v", BEGIN_MS)

    assert fresh.append(made).ranges == {0: range(1, 2)}
    assert DeltaTable(log.files.uri).version() == 2


# --- snapshots ------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "local"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> History:
    """A table with versions 0 to 6, and checkpoints at 2 and 4."""
    made = History(MemoryStorage() if request.param == "memory" else LocalStorage(str(tmp_path)))
    for version in range(1, 7):
        made.commit(adds=1, partition=0, removes=0, special=False)
        if version in {2, 4}:
            make_checkpoint(made.store, load_snapshot(made.store), made.now_ms)
    return made


def test_a_hole_in_the_log_is_named(history: History) -> None:
    """The newest version cannot be made; those below the hole can."""
    history.store.remove(log_name(5))

    with pytest.raises(LogCorruptError, match=r"00000000000000000005.json is missing"):
        load_snapshot(history.store)
    assert known(load_table(history.store, segment_of, 4)) == history.versions[4]


class ListedWhileWritten(LocalStorage):
    """A folder whose lists take long: two more commits come while one is made, and it has the second one only."""

    history: History | None = None

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        if self.history is None or len(self.history.times) > 20:
            return super().list(folder, deep=deep, after=after)
        for _ in range(2):
            self.history.commit(adds=1, partition=0, removes=0, special=False)
        missed = log_name(len(self.history.times) - 2).rpartition("/")[2]
        return [entry for entry in super().list(folder, deep=deep, after=after) if entry.name != missed]


def test_commits_that_come_while_the_folder_is_listed_are_no_hole(tmp_path: Path) -> None:
    """Neither for who opens the table, nor for who looks for damage: a list of a folder is of no one moment."""
    store = ListedWhileWritten(str(tmp_path))
    store.history = history = History(store)

    for _ in range(2):
        newest = len(history.times) - 1
        loaded = load_table(store, segment_of)
        assert loaded.version > newest
        assert known(loaded) == history.versions[loaded.version]
    assert find_flaws(store, control=False) == []
    assert len(history.times) < 20


def test_a_hole_below_a_checkpoint_is_none(history: History) -> None:
    """The checkpoint has what was in it; the versions below it are gone or not, each by itself."""
    history.store.remove(log_name(3))

    assert known(load_table(history.store, segment_of)) == history.versions[6]
    assert known(load_table(history.store, segment_of, 2)) == history.versions[2]
    with pytest.raises(LogCorruptError, match="no version 3"):
        load_snapshot(history.store, 3)


@pytest.mark.parametrize("content", [b"", b"\n", b'{"add":', b"[]\n"])
def test_a_last_commit_without_actions_is_damage(history: History, content: bytes) -> None:
    """It is no version that changes nothing: half of a file looks the same. The version before it can be read."""
    history.store.replace(log_name(6), content)

    assert known(load_table(history.store, segment_of)) == history.versions[5]
    assert load_snapshot(history.store).damage is not None
    with pytest.raises(LogCorruptError):
        load_snapshot(history.store, 6)


@pytest.mark.parametrize("damage", ["empty", "cut off", "other columns"])
def test_a_damaged_checkpoint_is_passed_over(history: History, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    """For the one before it, with a warning; and refused once the commits since then are gone."""
    name = checkpoint_name(4)
    content = history.store.read(name)
    damaged = {"empty": b"", "cut off": content[: len(content) // 2], "other columns": _other_columns()}[damage]
    history.store.replace(name, damaged)

    assert known(load_table(history.store, segment_of)) == history.versions[6]
    assert "checkpoint 4 cannot be read, an older one is taken" in caplog.text
    for version in range(5):
        history.store.remove(log_name(version))
    with pytest.raises(LogCorruptError, match="checkpoint 4 cannot be read"):
        load_snapshot(history.store)


def test_a_checkpoint_with_actions_of_a_later_delta_is_read(history: History, caplog: pytest.LogCaptureFixture) -> None:
    """As commits with them are: what must be known for reading is said by the protocol."""
    with pa.BufferReader(history.store.read(checkpoint_name(4))) as stream:
        known_rows = pq.read_table(stream)
    later = pa.table({"laterKind": [{"x": 1}]})
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.concat_tables([known_rows, later], promote_options="default"), buffer)
    history.store.replace(checkpoint_name(4), buffer.getvalue().to_pybytes())
    for version in range(5):
        history.store.remove(log_name(version))

    assert known(load_table(history.store, segment_of)) == history.versions[6]
    assert "cannot be read" not in caplog.text


@pytest.mark.parametrize("kind", ["add", "remove", "txn"])
def test_a_checkpoint_that_has_lost_the_name_of_a_column_is_passed_over(
    history: History, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No checksum says so."""
    with pa.BufferReader(history.store.read(checkpoint_name(4))) as stream:
        rows = pq.read_table(stream)
    buffer = pa.BufferOutputStream()
    pq.write_table(rows.rename_columns({kind: "x" + kind}), buffer)
    history.store.replace(checkpoint_name(4), buffer.getvalue().to_pybytes())

    assert known(load_table(history.store, segment_of)) == history.versions[6]
    assert "checkpoint 4 cannot be read, an older one is taken" in caplog.text


def test_a_version_above_the_newest_one_is_refused(history: History) -> None:
    """With the newest one named."""
    with pytest.raises(LogCorruptError, match="the newest one is 6"):
        load_snapshot(history.store, 7)


def test_no_log_is_no_table(tmp_path: Path) -> None:
    """Which is something else than a damaged one."""
    for store in (MemoryStorage(), LocalStorage(str(tmp_path))):
        store.make_folder("_delta_log")
        with pytest.raises(FileNotFoundError):
            load_snapshot(store)


def test_the_last_checkpoint_says_what_it_is_of(history: History) -> None:
    """Delta's readers begin there."""
    assert json.loads(history.store.read("_delta_log/_last_checkpoint"))["version"] == 4


def _other_columns() -> bytes:
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": [{"y": 1}]}), buffer)
    content: bytes = buffer.getvalue().to_pybytes()
    return content


@pytest.mark.usefixtures("foreign_writes")
@pytest.mark.slow
def test_deltalake_does_not_look_at_joined_commits(root: str) -> None:
    """Whatever they say: it reads, appends, makes a checkpoint and cleans up as if they were not there."""
    log = make_topic(root)
    for number in range(8):
        log.append(batch(str(number)))
    uri = f"{root}/t"
    wrong = CommitBundle(table_id=log.info.topic_id, first=0, contents=[b"{}"] * 9, tags=[""] * 9).packed()
    Path(uri, joined_name(0)).write_bytes(wrong)

    assert [DeltaTable(uri, version=v).to_pyarrow_table().num_rows for v in range(9)] == list(range(9))
    table = DeltaTable(uri)
    table.optimize.compact()
    table.create_checkpoint()
    table.cleanup_metadata()
    table.vacuum(dry_run=False)
    assert DeltaTable(uri).to_pyarrow_table().num_rows == 8
    assert Path(uri, joined_name(0)).read_bytes() == wrong
    assert [value for _, value in everything(connect(root).log("t"))[0]] == [str(number) for number in range(8)]
