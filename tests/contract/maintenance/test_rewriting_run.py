"""Merging, compaction and vacuum applied: what readers see, what is on the disk, what is left to later runs."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafkalike.delta.table_change import maintenance_turn, turns_of
from kafkalike.errors import DataLossError
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.maintenance.maintenance_commit import MaintenanceCommit, publish
from kafkalike.maintenance.maintenance_report import DONE, FAILED, GONE, NOTHING, UNFINISHED
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.maintenance.staging_folder import staging_folder
from kafkalike.maintenance.verify.topic_history import topic_history
from kafkalike.maintenance.works.control_maintenance import MOVES_KEPT
from kafkalike.maintenance.works.topic_compaction import checkpoints_of
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.group_rows import OFFSET, GroupRow, roster_row
from kafkalike.model.group_state import GroupsState
from kafkalike.model.groups.roster import Roster
from kafkalike.model.record_batch import RecordBatch
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.parquet import open_parquet
from kafkalike.storage.table_lock import TableLock
from tests.tools.findings import errors_of, kinds_of
from tests.tools.records import all_records, batch, open_log
from tests.tools.upkeep import (
    AT_ONCE,
    EAGER,
    HOUR_MS,
    ShiftedClock,
    keyed,
    open_cluster,
    pairs_of,
    run,
    topic,
    upkeep,
)

NOW = SYSTEM_CLOCK.now_ms()


def data_files(root: str, name: str = "t") -> set[str]:
    """What is on the disk, committed or not."""
    return {str(path.relative_to(Path(root, name))) for path in Path(root, name).glob("partition=*/*.parquet")}


def live_files(log: TopicLog) -> set[str]:
    log.refresh()
    return set(log.live_paths())


# --- merging ---------------------------------------------------------------------------------------


@pytest.fixture
def many(root: str) -> TopicLog:
    """Twelve appends to two partitions, with keys, headers and nulls."""
    log = topic(root, "t", 2, {**AT_ONCE, "retention.ms": "-1"})
    for number in range(12):
        made = RecordBatch()
        made.add(number % 2, b"k%d" % number, None if number % 5 == 0 else b"v%d" % number, NOW + number, [("h", b"1")])
        made.add(0, None, b"", NOW - number)
        log.append(made, codec="zstd")
    return log


@pytest.mark.slow
def test_merging_changes_no_record_and_leaves_one_sorted_file_for_each_partition(root: str, many: TopicLog) -> None:
    """Keys, values, headers, times and offsets stay; statistics and codec too."""
    before = chunks_of(many)
    oldest = min(s.modification_ms for p in range(2) for s in many.segments(p))

    done = upkeep(root)

    many.refresh()
    assert (done.merged_segments, done.merged_files) == (18, 2)
    assert chunks_of(many) == before
    assert [len(many.segments(p)) for p in range(2)] == [1, 1]
    assert errors_of(root) == []
    for p in range(2):
        (segment,) = many.segments(p)
        assert segment.modification_ms >= oldest
        assert segment.num_records == segment.stop
        meta = open_parquet(many.files, segment.path).metadata
        assert meta.row_group(0).column(0).compression == "ZSTD"


def chunks_of(log: TopicLog) -> list[object]:
    log.refresh()
    found: list[object] = []
    for p in log.info.partitions:
        reader = log.reader(p, 0)
        while (chunk := reader.read(1 << 20)) is not None:
            found += zip(*(chunk.table.column(n).to_pylist() for n in chunk.table.column_names), strict=True)
    return found


@pytest.mark.slow
def test_a_merge_is_no_data_change_for_streams_over_the_table(root: str, many: TopicLog) -> None:
    """Its commit says so for every file, and another engine reads the same rows."""
    rows = DeltaTable(many.files.uri).count()
    upkeep(root)

    many.refresh()
    commit = many.find_commit(lambda c: c.operation == "OPTIMIZE")

    assert commit is not None
    assert not commit.data_change
    assert DeltaTable(many.files.uri).count() == rows


@pytest.mark.slow
def test_a_reader_in_the_middle_of_a_merged_file_goes_on(root: str, many: TopicLog) -> None:
    """The file it was reading is gone from the disk as well."""
    many.refresh()
    reader = many.reader(0, 3)
    first = reader.read(1)

    upkeep(root)
    many.refresh()
    rest = reader.read(1 << 20)

    assert first is not None
    assert rest is not None
    assert [*first.columns().offsets, *rest.columns().offsets] == list(range(3, 18))


def test_only_what_is_new_is_merged_the_next_time(root: str, many: TopicLog) -> None:
    """The large file of the last run stays as it is."""
    upkeep(root)
    assert upkeep(root).status == NOTHING
    large = RecordBatch()
    for number in range(2000):
        large.add(0, None, os.urandom(64), NOW + number)
    many.append(large)
    for number in range(4):
        many.append(batch((0, f"new-{number}")))

    done = upkeep(root)

    assert done.merged_segments == 4


def test_the_hot_tail_is_not_merged(root: str) -> None:
    """By default files stay for a minute."""
    log = topic(root, "t", 1, {})
    for number in range(8):
        log.append(batch((0, f"v{number}"), at_ms=NOW))
    assert upkeep(root).merged_segments == 0
    clock = ShiftedClock()
    clock.ahead_ms = 61_000

    assert upkeep(root, clock=clock).merged_segments == 8


def test_a_damaged_file_stays_where_it_is_and_is_named(root: str, many: TopicLog) -> None:
    """Merging must not make one hole into a larger one; the other partition is merged."""
    many.refresh()
    victim = many.segments(0)[2]
    Path(many.files.uri, victim.path).write_bytes(b"PAR1 nothing PAR1")

    report = maintain(open_cluster(root), clock=SYSTEM_CLOCK)

    (done,) = report.topics
    assert (done.status, report.exit_code) == (FAILED, 1)
    assert victim.path in done.problems[0]
    assert victim.path in live_files(many)
    assert len(many.segments(1)) == 1


@pytest.mark.slow
def test_producers_append_while_files_are_merged(root: str, many: TopicLog) -> None:
    """Neither is lost, and offsets stay dense."""
    stop = threading.Event()

    def produce() -> None:
        log = open_cluster(root).log("t")
        while not stop.is_set():
            log.append(batch((0, "more")))

    thread = threading.Thread(target=produce)
    thread.start()
    for _ in range(5):
        upkeep(root)
    stop.set()
    thread.join()

    offsets = [offset for offset, _ in all_records(root)[0]]
    assert offsets == list(range(len(offsets)))
    assert errors_of(root) == []


@pytest.mark.parametrize("again", [0, 1])
def test_a_topic_that_is_deleted_while_its_files_are_merged_leaves_nothing(
    root: str, many: TopicLog, monkeypatch: pytest.MonkeyPatch, again: int
) -> None:
    """Its folder does not come back, and one that was made anew meanwhile gets no file."""
    opened = LocalStorage.open_output

    def late(files: LocalStorage, name: str) -> object:
        monkeypatch.setattr(LocalStorage, "open_output", opened)
        open_cluster(root).delete_topic("t")
        if again:
            open_cluster(root).create_topic("t", 2, {})
        return opened(files, name)

    monkeypatch.setattr(LocalStorage, "open_output", late)

    assert upkeep(root).status == GONE
    if not again:
        open_cluster(root).create_topic("t", 2, {})
    assert data_files(root) == set()


@pytest.mark.usefixtures("foreign_writes")
def test_a_hole_is_not_merged_away(root: str) -> None:
    """Readers look for lost records between files, so merging must not put a hole inside one."""
    log = topic(root, "t", 1, {**AT_ONCE, "retention.ms": "-1"})
    for number in range(9):
        log.append(batch((0, f"v{number}"), at_ms=NOW))
    DeltaTable(log.files.uri).delete("partition = 0 AND offset = 4")

    done = upkeep(root)

    assert (done.merged_segments, done.merged_files) == (8, 2)
    with pytest.raises(DataLossError, match=r"\[4, 5\)"):
        all_records(root)


# --- compaction ------------------------------------------------------------------------------------


@pytest.fixture
def keys(root: str) -> TopicLog:
    """Keys a, b and c in five appends, each of which is a segment; the last one is the active one."""
    log = topic(root, "t", 1, EAGER)
    for number, key in enumerate("abaca"):
        log.append(keyed((key, str(number)), at_ms=NOW + 10 * number))
    return log


def test_the_last_value_of_each_key_stays_at_its_offset(root: str, keys: TopicLog) -> None:
    """The active segment is not looked at; any old offset is still a valid position."""
    done = upkeep(root)

    assert pairs_of(keys) == [(1, "b", "1"), (2, "a", "2"), (3, "c", "3"), (4, "a", "4")]
    assert (done.compacted_records, done.compaction_reasons) == (1, {0: "dirty ratio 1.00"})
    assert kinds_of(root) == set()
    keys.refresh()
    first = keys.reader(0, 0).read(1 << 20)
    assert first is not None
    assert first.columns().offsets[0] == 1


def test_compaction_is_incremental(root: str, keys: TopicLog) -> None:
    """A second pass cleans what was appended since, and the old values that it shadows."""
    upkeep(root)
    for number, key in enumerate("bd", 5):
        keys.append(keyed((key, str(number)), at_ms=NOW + 10 * number))

    done = upkeep(root)

    assert [offset for offset, _, _ in pairs_of(keys)] == [3, 4, 5, 6]
    assert done.compacted_records == 2
    assert checkpoints_of(keys)[0].dirty == 6
    assert kinds_of(root) == set()


def test_a_dry_run_counts_what_compaction_would_take(root: str, keys: TopicLog) -> None:
    """And takes nothing."""
    planned = upkeep(root, dry_run=True)

    assert (planned.compacted_records, planned.compacted_segments) == (1, 1)
    assert len(pairs_of(keys)) == 5


def test_tombstones_stay_for_their_time_and_go_with_their_key(root: str) -> None:
    """The pass that meets one first only takes what it deletes."""
    log = topic(root, "t", 1, {**EAGER, "delete.retention.ms": str(HOUR_MS)})
    for number, value in enumerate(["1", None, "3"]):
        log.append(keyed(("a" if number < 2 else "b", value), at_ms=NOW + 10 * number))
    clock = ShiftedClock()

    upkeep(root, clock=clock)
    after_first = pairs_of(log)
    clock.ahead_ms = HOUR_MS // 2
    early = upkeep(root, clock=clock)
    clock.ahead_ms = HOUR_MS + 60_000
    late = upkeep(root, clock=clock)

    assert after_first == [(1, "a", None), (2, "b", "3")]
    assert early.status == NOTHING
    assert (late.compacted_tombstones, pairs_of(log)) == (1, [(2, "b", "3")])
    assert upkeep(root, clock=clock).status == NOTHING
    assert kinds_of(root) == set()


@pytest.mark.slow
@pytest.mark.parametrize("read_at_a_time", [300, 70])
def test_keys_that_do_not_fit_into_the_buffer_take_several_runs(
    root: str, monkeypatch: pytest.MonkeyPatch, read_at_a_time: int
) -> None:
    """Each run goes on where the one before stopped, in the middle of a file too; memory stays bounded."""
    monkeypatch.setattr("kafkalike.log.topic.segment_rows.WHOLE_ROWS", read_at_a_time)
    monkeypatch.setattr("kafkalike.maintenance.works.compaction_pass.CHUNK_ROWS", 100)
    log = topic(root, "t", 1, EAGER)
    for turn in range(4):
        log.append(keyed(*((f"key-{n % 200}", f"{turn}") for n in range(300)), at_ms=NOW + 10 * turn))
    statuses = []
    for _ in range(30):
        statuses.append(upkeep(root, buffer_bytes=2_000).status)
        if statuses[-1] == NOTHING:
            break

    assert statuses[0] == UNFINISHED
    assert statuses[-1] == NOTHING
    found = pairs_of(log)
    clean = [key for offset, key, _ in found if offset < 900]
    assert len(clean) == len(set(clean)) == 200
    assert kinds_of(root) == set()


def test_keys_that_stand_in_many_chunks_are_one(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here 600 records are looked at a hundred at a time."""
    monkeypatch.setattr("kafkalike.maintenance.works.compaction_pass.CHUNK_ROWS", 100)
    log = topic(root, "t", 1, EAGER)
    for turn in range(3):
        log.append(keyed(*((f"key-{n % 150}", f"{turn}-{n}") for n in range(300)), at_ms=NOW + 10 * turn))

    upkeep(root)

    clean = [(key, value) for offset, key, value in pairs_of(log) if offset < 600]
    assert clean == [(f"key-{n % 150}", f"1-{n}") for n in range(150, 300)]
    assert errors_of(root) == []


def test_a_pass_that_was_cut_off_is_made_again_from_files_with_holes(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first one took is not counted again."""
    monkeypatch.setattr("kafkalike.maintenance.works.file_rewrite.GROUP_ROWS", 1)
    log = topic(root, "t", 1, EAGER)
    for turn, pairs in enumerate(["paq", "a", "d", "d"]):
        log.append(keyed(*((key, f"{turn}") for key in pairs), at_ms=NOW + 10 * turn))
    with monkeypatch.context() as cut_off:
        cut_off.setenv("KAFKALIKE_FAULT", "compaction.after_commit:raise")
        assert maintain(open_cluster(root), clock=SYSTEM_CLOCK, works=["compaction"]).failed

    again = upkeep(root, works=["compaction"])

    assert pairs_of(log) == [(0, "p", "0"), (2, "q", "0"), (3, "a", "1"), (4, "d", "2"), (5, "d", "3")]
    assert again.compacted_records == 0
    assert errors_of(root) == []


def test_compact_and_delete_do_both(root: str) -> None:
    """Old segments go whatever their keys."""
    log = topic(root, "t", 1, {**EAGER, "cleanup.policy": "compact,delete", "retention.ms": str(HOUR_MS)})
    for number, key in enumerate("abcbd"):
        log.append(keyed((key, str(number)), at_ms=NOW - (2 * HOUR_MS if number == 0 else 1000) + 10 * number))

    upkeep(root)

    assert pairs_of(log) == [(2, "c", "2"), (3, "b", "3"), (4, "d", "4")]


@pytest.mark.usefixtures("foreign_writes")
def test_a_topic_that_is_no_longer_compacted_keeps_its_holes_without_being_called_damaged(
    root: str, keys: TopicLog
) -> None:
    """Only below the cleaner's checkpoint: a hole above it is data loss."""
    upkeep(root)
    open_cluster(root).set_configs("t", {"retention.ms": "-1"})

    assert [offset for offset, _, _ in pairs_of(keys)] == [1, 2, 3, 4]
    assert kinds_of(root) == set()
    lost = keys.append(keyed(("x", "5"), at_ms=NOW))
    keys.append(keyed(("x", "6"), at_ms=NOW))
    table = DeltaTable(keys.files.uri)
    table.delete("partition = 0 AND offset = 5")
    assert lost.ranges == {0: range(5, 6)}
    with pytest.raises(DataLossError, match=r"\[5, 6\)"):
        pairs_of(keys)


def test_a_shorter_pass_forgets_no_hole_of_a_longer_one_that_was_cut_off(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the second one only drops a tombstone below what the first one took."""
    log = topic(root, "t", 1, {**EAGER, "delete.retention.ms": str(HOUR_MS)})
    for number, (key, value) in enumerate([("a", None), ("b", "1"), ("x", "2"), ("x", "3"), ("x", "4"), ("z", "5")]):
        log.append(keyed((key, value), at_ms=NOW + 10 * number))
        if number == 2:
            upkeep(root, works=["compaction"])
    with monkeypatch.context() as cut_off:
        cut_off.setenv("KAFKALIKE_FAULT", "compaction.after_commit:raise")
        assert maintain(open_cluster(root), clock=SYSTEM_CLOCK, works=["compaction"]).failed
    open_cluster(root).set_configs("t", {**EAGER, "min.compaction.lag.ms": str(10 * HOUR_MS)})
    assert upkeep(root, works=["compaction"]).compacted_tombstones == 1

    open_cluster(root).set_configs("t", {"retention.ms": "-1"})

    assert [offset for offset, _, _ in pairs_of(log)] == [1, 4, 5]


def test_records_without_key_from_before_the_policy_go_and_are_counted(root: str) -> None:
    """As Kafka's cleaner does it; new ones are refused by the append."""
    log = topic(root, "t", 1, {**EAGER, "cleanup.policy": "delete", "retention.ms": "-1"})
    log.append(batch((0, "keyless"), at_ms=NOW))
    open_cluster(root).set_configs("t", EAGER)
    log.append(keyed(("a", "1"), at_ms=NOW + 10))
    log.append(keyed(("b", "2"), at_ms=NOW + 20))

    done = upkeep(root)

    assert pairs_of(log) == [(1, "a", "1"), (2, "b", "2")]
    assert done.problems == ["records without key removed, because compaction cannot keep them: 1"]


# --- files on the disk -----------------------------------------------------------------------------


@pytest.mark.slow
def test_files_stay_for_their_delay_and_then_go(root: str, many: TopicLog) -> None:
    """Those of deleted records for `file.delete.delay.ms`, those that were replaced for a day."""
    settings = {"kafkalike.merge.min.age.ms": "0", "retention.ms": "-1"}
    open_cluster(root).set_configs("t", settings)
    open_cluster(root).move_log_start("t", {0: 4}, "delete_records", "r")
    clock = ShiftedClock()

    counts = []
    for ahead in (0, 10_000, 70_000, 23 * HOUR_MS, 25 * HOUR_MS):
        clock.ahead_ms = ahead
        counts.append(upkeep(root, clock=clock).vacuumed_files)

    assert counts == [0, 0, 2, 0, 16]
    assert data_files(root) == live_files(many)
    assert errors_of(root) == []


@pytest.mark.slow
def test_a_writer_whose_clock_is_slow_lets_no_file_go_early(root: str, many: TopicLog) -> None:
    """What its commit says is old hides neither the commits before it nor when it took files out itself."""
    open_cluster(root).set_configs("t", {"kafkalike.merge.min.age.ms": "0", "retention.ms": "-1"})
    slow, clock = ShiftedClock(), ShiftedClock()
    slow.ahead_ms = -72 * HOUR_MS
    upkeep(root, works=["merge"])
    open_cluster(root, slow).log("t").append(batch((0, "x"), at_ms=slow.now_ms()))
    log = open_cluster(root, slow).log("t")
    publish(log, MaintenanceCommit(work="merge", removes=log.segments(1), data_change=False), "slow")

    counts = []
    for ahead in (2, 25):
        clock.ahead_ms = ahead * HOUR_MS
        counts.append(upkeep(root, clock=clock, works=["vacuum"]).vacuumed_files)

    assert counts == [0, 19]


def test_a_delay_that_is_longer_than_the_tables_log_is_said_to_be(root: str) -> None:
    """A setting that cannot be kept is not ignored in silence."""
    topic(root, "t", 1, {"file.delete.delay.ms": str(48 * HOUR_MS)}).append(batch((0, "v"), at_ms=NOW))

    done = upkeep(root)

    (problem,) = done.problems
    assert problem.startswith("files stay for 86400000 ms and not for 172800000 ms after they left the table")


@pytest.mark.slow
def test_what_a_killed_writer_has_left_goes_after_an_hour(root: str, many: TopicLog) -> None:
    """A younger one may be about to be committed."""
    orphan, young = (Path(root, "t", "partition=0", f"part-{n}.parquet") for n in ("orphan", "young"))
    orphan.write_bytes(b"half")
    young.write_bytes(b"half")
    temporary = Path(root, "t", "_delta_log", ".0.json.x.tmp")
    temporary.write_bytes(b"{")
    for path in (orphan, temporary):
        os.utime(path, (NOW / 1000 - 3700,) * 2)

    upkeep(root)

    assert not orphan.exists()
    assert not temporary.exists()
    assert young.exists()


def test_nothing_goes_that_another_version_of_the_run_has_made_live(root: str, many: TopicLog) -> None:
    """Vacuum looks again under the lock: what was brought back since the list was made stays."""
    from kafkalike.maintenance.works.vacuum import Delays, leftovers, vacuum

    many.refresh()
    alive = many.live_paths()
    files = open_cluster(root).files_of(open_cluster(root).topic("t"))
    due = leftovers(files, set, NOW + 48 * HOUR_MS, Delays(deleted_ms=0, replaced_ms=0))

    gone = list(vacuum(files, due, lambda: alive, lambda: many.exclusive(Deadline(SYSTEM_CLOCK, 60_000))))

    assert {file.path for file in due} >= alive
    assert gone == []
    assert errors_of(root) == []


def test_files_that_commits_took_out_go_without_the_lock(root: str, many: TopicLog) -> None:
    """No writer has one in hand, so producers need not wait."""
    upkeep(root, works=["merge"])
    replaced = data_files(root) - live_files(many)

    with TableLock(f"{root}/__locks", "t").held():
        done = upkeep(root, works=["vacuum"])

    assert done.vacuumed_files == len(replaced) > 0
    assert data_files(root) == live_files(many)


# --- control tables --------------------------------------------------------------------------------


@pytest.mark.slow
def test_control_tables_shrink_to_what_still_matters(root: str) -> None:
    """The state is the same for a client that comes new and for one that was there; numbering goes on."""
    cluster = open_cluster(root)
    cluster.create_topic("t", 1, {})
    for number in range(80):
        cluster.set_configs("t", {"retention.ms": str(1000 + number)})
    clock = ShiftedClock()
    clock.ahead_ms = 31 * 24 * HOUR_MS

    report = maintain(open_cluster(root, clock), clock=clock, works=["control"])

    assert [(c.table, c.rows_before, c.rows_after) for c in report.control] == [("__cluster_metadata", 81, 1)]
    assert open_cluster(root).topic("t").configs == {"retention.ms": "1079"}
    cluster.set_configs("t", {"retention.ms": "5"})
    assert open_cluster(root).topic("t").configs == {"retention.ms": "5"}
    assert open_cluster(root).metadata.refresh().seq == 82
    clock.ahead_ms += HOUR_MS
    maintain(open_cluster(root, clock), clock=clock, works=["control"])
    assert len(list(Path(root, "__cluster_metadata").glob("*.parquet"))) <= 2
    assert open_cluster(root).topic("t").configs == {"retention.ms": "5"}


@pytest.mark.slow
def test_moves_of_log_starts_do_not_pile_up(root: str) -> None:
    """However young they are; the log starts, why they moved and the last moves of the history stay."""
    cluster = open_cluster(root)
    cluster.create_topic("t", 200, {})
    batch = RecordBatch()
    for partition in range(200):
        for _ in range(120):
            batch.add(partition, None, b"v", 1)
    log = cluster.log("t")
    log.append(batch)
    for number in range(1, 121):
        cluster.move_log_start("t", dict.fromkeys(range(200), number), "retention", f"run-{number}", log=log)

    report = maintain(open_cluster(root), clock=SYSTEM_CLOCK, works=["control"])

    assert [(c.rows_before, c.rows_after) for c in report.control] == [(121, 1 + MOVES_KEPT // 200)]
    info = open_cluster(root).topic("t")
    assert {(start.offset, start.run) for start in info.log_starts.values()} == {(120, "run-120")}
    moves = [e for e in topic_history(open_cluster(root), "t") if e.kind == "log start"]
    assert len(moves) == MOVES_KEPT // 200
    assert moves[-1].what.startswith("log starts moved: partition 0 to 120, partition 1 to 120,")


def test_nothing_stays_of_a_group_whose_offsets_have_expired(root: str) -> None:
    """Its rows go six hours after its last one; a new group of the name begins at the beginning."""
    cluster = open_cluster(root)
    cluster.create_topic("t", 1, {})
    topic_id = cluster.topic("t").topic_id

    def commits(state: GroupsState) -> list[GroupRow]:
        rows = []
        for number in range(100):
            seq, group = state.seq + 1 + 2 * number, f"g{number}"
            rows.append(roster_row(seq, group, Roster(generation=2, changed_ms=NOW)))
            commit = GroupRow(seq=seq + 1, kind=OFFSET, group_id=group, topic="t", topic_id=topic_id, time_ms=NOW)
            rows.append(replace(commit, partition=0, offset=0))
        return rows

    cluster.groups.transact(commits)
    clock = ShiftedClock()
    clock.ahead_ms = 8 * 24 * HOUR_MS
    maintain(open_cluster(root, clock), clock=clock, works=["control"])
    clock.ahead_ms += 7 * HOUR_MS

    maintain(open_cluster(root, clock), clock=clock, works=["control"])

    fresh = open_cluster(root)
    assert {row.group_id for row in fresh.groups.rows} <= {"g99"}
    assert fresh.groups.refresh().groups == {}


def test_the_lock_files_of_a_deleted_topic_go_with_it_or_with_the_next_run(root: str) -> None:
    """Those that somebody has in hand stay until then; those of topics that live are not touched."""
    cluster = open_cluster(root)
    for name in ("a", "b"):
        cluster.create_topic(name, 1, {})
        cluster.log(name).append(batch((0, "a"), (0, "b"), (0, "c")))
    run(root)
    locks = Path(root, "__locks")
    busy = TableLock(str(locks), maintenance_turn("a"))

    with cluster.store.coordination.turn(maintenance_turn("a"), Deadline(SYSTEM_CLOCK, 0)):
        cluster.delete_topic("a")
        of_a = frozenset().union(*(TableLock(str(locks), turn).files for turn in turns_of("a")))
        assert {path.name for path in locks.iterdir()} & of_a == busy.files

    run(root)
    assert not busy.files & {path.name for path in locks.iterdir()}
    assert Path(locks, "b.lock").exists()
    cluster.create_topic("a", 1, {})
    assert cluster.log("a").append(batch((0, "a"), (0, "b"), (0, "c"))).ranges == {0: range(3)}


def test_what_a_killed_deletion_has_left_goes(root: str) -> None:
    """The tables of deleted topics are put aside before they are removed."""
    cluster = open_cluster(root)
    cluster.create_topic("t", 1, {})
    aside = Path(root, "__deleted", "some-id")
    aside.mkdir(parents=True)
    (aside / "part.parquet").write_bytes(b"x")

    run(root, works=["control"])

    assert not aside.parent.exists()


def test_what_a_killed_spark_write_has_put_down_goes(root: str) -> None:
    """Its lock went with the process; the folder of a writer that lives stays."""
    open_cluster(root).create_topic("t", 1, {})
    left = Path(root, "__staging", "left")
    left.mkdir(parents=True)
    (left / "run.arrow").write_bytes(b"x")

    with staging_folder(root) as own:
        left.mkdir()
        run(root, works=["control"])

        assert list(own.parent.glob("*/")) == [own]


@pytest.mark.slow
@pytest.mark.usefixtures("foreign_writes")
def test_a_log_that_a_foreign_writer_has_rewound_is_left_alone(root: str, many: TopicLog) -> None:
    """Row 25: whatever maintenance would do could make it worse."""
    DeltaTable(many.files.uri).restore(3)

    report = maintain(open_cluster(root), clock=SYSTEM_CLOCK)

    assert report.topics[0].status == FAILED
    assert "took records back" in report.topics[0].problems[0]


@pytest.mark.parametrize("damage", ["commit", "data file", "folder"])
def test_a_damaged_topic_is_named_and_keeps_nothing_back_from_the_others(root: str, damage: str) -> None:
    """Nothing of it is removed, leftovers included; the run says that it failed."""
    for name in ("bad", "good"):
        log = topic(root, name, 1, {**AT_ONCE, "retention.ms": "-1"})
        for number in range(8):
            log.append(batch((0, f"v{number}"), at_ms=NOW))
        left = Path(root, name, "partition=0", "part-left.parquet")
        left.write_bytes(b"left by a killed writer")
        os.utime(left, (0, 0))
    victim = Path(root, "bad", open_log(open_cluster(root), "bad").segments(0)[2].path)
    if damage == "folder":
        victim = Path(root, "bad", "_delta_log")
        victim.rename(Path(root, "elsewhere"))
    elif damage == "commit":
        victim = max(Path(root, "bad", "_delta_log").glob("*.json"))
        victim.write_bytes(b"")
    else:
        victim.write_bytes(b"PAR1 nothing PAR1")
    before = {path for path in Path(root, "bad").rglob("*.parquet") if path.name != "part-left.parquet"}

    report = maintain(open_cluster(root), clock=SYSTEM_CLOCK)

    bad, good = report.topics
    assert (bad.status, report.exit_code) == (FAILED, 1)
    assert ("/bad" if damage == "folder" else victim.name) in " ".join(bad.problems)
    assert (good.status, good.merged_segments) == (DONE, 8)
    assert not Path(root, "good", "partition=0", "part-left.parquet").exists()
    assert {path for path in Path(root, "bad").rglob("*.parquet") if path.name != "part-left.parquet"} == before
    if damage != "data file":
        assert Path(root, "bad", "partition=0", "part-left.parquet").exists()
