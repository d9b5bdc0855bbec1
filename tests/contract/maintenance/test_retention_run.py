"""Retention applied: log starts, tables, readers, groups; what a run that was cut off has left."""

from pathlib import Path

import pytest

from kafkalike.admin.testing import MemoryCluster
from kafkalike.consumer import KafkaConsumer
from kafkalike.errors import IllegalArgumentError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kafkalike.log.topic.topic_commits import maintenance_of
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.maintenance.maintenance_commit import only_run
from kafkalike.maintenance.maintenance_report import BUSY, NOTHING, UNFINISHED
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.structs import TopicPartition
from tests.tools.consumer import read_to_end
from tests.tools.findings import kinds_of
from tests.tools.groups import commit
from tests.tools.kinds import only_on_disk
from tests.tools.records import all_records, batch
from tests.tools.upkeep import AT_ONCE, HOUR_MS, ShiftedClock, open_cluster, run, topic, upkeep

NOW = SYSTEM_CLOCK.now_ms()


@pytest.fixture
def root(any_root: str) -> str:
    """A new one on a disk, and in object stores."""
    return any_root


@pytest.fixture
def log(root: str) -> TopicLog:
    """Five appends to partition 0: three of two hours ago, two of now; `retention.ms` is an hour."""
    log = topic(root, "t", 2, {"retention.ms": str(HOUR_MS), "file.delete.delay.ms": "0"})
    for number in range(5):
        log.append(batch((0, f"v{number}"), at_ms=NOW - (2 * HOUR_MS if number < 3 else 0)))
    return log


def test_expired_segments_go_and_the_log_begins_behind_them(root: str, log: TopicLog) -> None:
    """Without a byte of data being read: the files may be gone before."""
    for segment in log.segments(0)[:3]:
        log.files.remove(segment.path, quietly=True)

    done = upkeep(root)

    assert done.log_starts == {0: (0, 3)}
    assert (done.deleted_segments, done.deleted_records) == (3, 3)
    assert all_records(root) == {0: [(3, "v3"), (4, "v4")], 1: []}
    assert kinds_of(root) == set()
    assert upkeep(root).status == NOTHING


def test_a_dry_run_says_the_same_and_changes_nothing(root: str, log: TopicLog) -> None:
    """Its figures are those of the run that follows."""
    before = log.version

    planned = upkeep(root, dry_run=True)

    log.refresh()
    assert log.version == before
    assert len(all_records(root)[0]) == 5
    done = upkeep(root)
    assert (planned.log_starts, planned.deleted_records) == (done.log_starts, done.deleted_records)
    assert planned.deleted_bytes == done.deleted_bytes


def test_a_reader_below_the_log_start_is_told_who_moved_it_when_and_why(root: str, log: TopicLog) -> None:
    """The error quotes reason, run and time."""
    done = run(root)
    log.refresh()

    with pytest.raises(
        OffsetOutOfRangeError, match=f"log start moved to 3 by retention, run {done.run}, at 20"
    ) as caught:
        log.reader(0, 1).read(1)

    assert caught.value.live == {"t-0": range(3, 5)}


def test_an_open_reader_goes_on_while_what_it_has_read_goes(root: str, log: TopicLog) -> None:
    """Its next segment is live."""
    log.refresh()
    reader = log.reader(0, 3)
    upkeep(root)
    log.refresh()

    chunk = reader.read(1 << 20)

    assert chunk is not None
    assert chunk.columns().values == [b"v3", b"v4"]


def test_an_emptied_partition_goes_on_from_its_end(root: str, log: TopicLog) -> None:
    """Offsets are never reused, not even by a client that comes new and finds no file at all."""
    clock = ShiftedClock()
    clock.ahead_ms = 2 * HOUR_MS
    upkeep(root, clock=clock)
    assert all_records(root) == {0: [], 1: []}

    ranges = open_cluster(root).log("t").append(batch((0, "next"), (1, "first"))).ranges

    assert ranges == {0: range(5, 6), 1: range(1)}
    assert kinds_of(root) == set()


def test_what_delete_records_has_left_goes_too_and_a_segment_that_is_half_alive_stays(root: str) -> None:
    """The file of offsets 0 to 3 goes when the log start has passed it."""
    log = topic(root, "t", 1, {"retention.ms": "-1", "cleanup.policy": ""})
    log.append(batch(*[(0, f"v{n}") for n in range(4)]))
    log.append(batch((0, "v4")))
    open_cluster(root).move_log_start("t", {0: 2}, "delete_records", "r")

    assert upkeep(root).deleted_segments == 0
    open_cluster(root).move_log_start("t", {0: 4}, "delete_records", "r")
    done = upkeep(root)

    assert (done.deleted_segments, done.log_starts) == (1, {})
    assert all_records(root) == {0: [(4, "v4")]}
    assert kinds_of(root) == set()


def test_size_keeps_the_newest_segments(root: str) -> None:
    """Each file has about 2 kB here; three of them are kept."""
    log = topic(root, "t", 1, {"retention.ms": "-1"})
    for number in range(6):
        log.append(batch((0, f"v{number}")))
    log.refresh()
    size = sum(s.size_bytes for s in log.segments(0)[3:])
    open_cluster(root).set_configs("t", {"retention.ms": "-1", "retention.bytes": str(size)})

    upkeep(root)

    assert [offset for offset, _ in all_records(root)[0]] == [3, 4, 5]


def test_a_record_from_the_far_future_leaves_with_its_append(root: str) -> None:
    """Kafka would keep it, and everything after it, for 7,000 years."""
    far = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    log = topic(root, "t", 1, {"retention.ms": str(HOUR_MS), **far})
    log.append(batch((0, "future"), at_ms=253_402_000_000_000))
    log.append(batch((0, "now"), at_ms=NOW))
    clock = ShiftedClock()
    clock.ahead_ms = 2 * HOUR_MS

    upkeep(root, clock=clock)

    assert all_records(root) == {0: []}


# --- groups ----------------------------------------------------------------------------------------


def test_retention_waits_for_the_groups_that_the_topic_names(root: str, log: TopicLog) -> None:
    """Until they have read, or the ceiling is reached."""
    settings = {"retention.ms": str(HOUR_MS), "kafkalike.retention.wait.groups": "billing"}
    open_cluster(root).set_configs("t", settings)

    first = upkeep(root)
    commit(open_cluster(root), 2, group="billing")
    second = upkeep(root)
    open_cluster(root).set_configs("t", {**settings, "kafkalike.retention.wait.max.ms": str(HOUR_MS)})
    third = upkeep(root)

    assert (first.log_starts, first.held_segments, first.held_by) == ({}, 3, ["billing"])
    assert (second.log_starts, second.held_segments) == ({0: (0, 2)}, 1)
    assert (third.log_starts, third.held_segments) == ({0: (2, 3)}, 0)


def test_a_group_that_read_an_earlier_topic_of_the_name_has_read_nothing(root: str, log: TopicLog) -> None:
    """Its offsets belong to another topic id."""
    commit(open_cluster(root), 3, group="billing")
    cluster = open_cluster(root)
    cluster.delete_topic("t")
    cluster.create_topic("t", 1, {"retention.ms": str(HOUR_MS), "kafkalike.retention.wait.groups": "billing"})
    cluster.log("t").append(batch((0, "new"), at_ms=NOW - 2 * HOUR_MS))

    assert upkeep(root).held_segments == 1


def test_a_lagging_consumer_goes_by_its_reset_policy(root: str, log: TopicLog) -> None:
    """`earliest` goes on at the new log start; `none` would raise."""
    with KafkaConsumer(bootstrap_servers=root, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek(TopicPartition("t", 0), 1)
        upkeep(root)

        assert [record.offset for record in read_to_end(consumer)] == [3, 4]


# --- runs ------------------------------------------------------------------------------------------


def test_a_run_that_was_cut_off_before_the_delete_is_finished_by_the_next(
    root: str, log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log start is moved already: what lies below it is neither readable nor lost track of."""
    monkeypatch.setenv("KAFKALIKE_FAULT", "retention.after_log_start:raise")
    cut_off = maintain(open_cluster(root), clock=SYSTEM_CLOCK)
    assert cut_off.failed
    assert cut_off.exit_code == 1
    assert all_records(root)[0] == [(3, "v3"), (4, "v4")]
    monkeypatch.delenv("KAFKALIKE_FAULT")

    done = upkeep(root)

    assert (done.log_starts, done.deleted_segments) == ({}, 3)
    assert kinds_of(root) == set()


def test_of_two_runs_at_once_one_does_the_work(root: str, log: TopicLog) -> None:
    """The other one leaves the topic alone at once."""
    with only_run(open_cluster(root), "t") as mine:
        beside = run(root)

    assert mine
    assert [found.status for found in beside.topics] == [BUSY]
    assert beside.exit_code == 0
    assert len(all_records(root)[0]) == 5
    assert upkeep(root).deleted_segments == 3


def test_a_topic_called_control_is_none_of_the_control_tables(root: str) -> None:
    """A run that is at it keeps no other one from them."""
    topic(root, "control", 1, {})

    with only_run(open_cluster(root), "control"):
        beside = run(root)

    assert [found.status for found in beside.topics] == [BUSY]
    assert [found.table for found in beside.control] == ["__cluster_metadata"]


def test_time_that_has_run_out_leaves_the_rest_to_the_next_run(root: str, log: TopicLog) -> None:
    """Exit code 3, and a state that is sound."""

    class Hurried(ShiftedClock):
        def monotonic(self) -> float:
            self.ahead_ms += 30_000
            return super().monotonic()

    report = maintain(open_cluster(root), clock=Hurried(), timeout_ms=60_000)

    assert [found.status for found in report.topics] == [UNFINISHED]
    assert report.exit_code == 3
    assert kinds_of(root) == set()


def test_topics_that_a_run_did_not_reach_are_unfinished(root: str, log: TopicLog) -> None:
    """Time runs out after the first topic, which is done."""
    for name in ("a", "b", "z"):
        topic(root, name, 1, {})
    clock = ShiftedClock()

    def hurry(name: str, what: str) -> None:
        if (name, what) == ("a", "finished"):
            clock.ahead_ms += 60_000

    report = maintain(open_cluster(root), clock=clock, timeout_ms=60_000, progress=hurry)

    assert {found.topic: found.status for found in report.topics} == {
        "a": NOTHING,
        "b": UNFINISHED,
        "t": UNFINISHED,
        "z": UNFINISHED,
    }
    assert (report.unfinished, report.exit_code, report.control) == (True, 3, [])
    assert not log.info.log_starts


@only_on_disk("any_root")
def test_a_topic_that_cannot_be_read_does_not_keep_the_others_back(root: str, log: TopicLog) -> None:
    """It is reported, with its reason."""
    other = topic(root, "other", 1, {})
    other.append(batch((0, "v")))
    (open(f"{root}/other/_delta_log/00000000000000000001.json", "wb")).close()  # noqa: PTH123

    report = maintain(open_cluster(root), clock=SYSTEM_CLOCK)

    assert {t.topic: t.status for t in report.topics} == {"other": "failed", "t": "done"}
    assert "empty" in report.topics[0].problems[0]


def test_a_topic_that_does_not_exist_is_named_before_anything_is_done(root: str, log: TopicLog) -> None:
    """Nothing has moved."""
    with pytest.raises(UnknownTopicOrPartitionError, match="'nope'"):
        maintain(open_cluster(root), ["t", "nope"], clock=SYSTEM_CLOCK)

    assert len(all_records(root)[0]) == 5


def test_the_tables_history_names_the_run(root: str, log: TopicLog) -> None:
    """For `kafkalike history`."""
    done = run(root)
    log.refresh()

    found = log.find_commit(lambda commit: bool(maintenance_of(commit)))

    assert found is not None
    assert maintenance_of(found)["run"] == done.run


def test_in_memory_log_starts_move_as_well() -> None:
    """For users' tests."""
    cluster = MemoryCluster()
    cluster.create_topic("t", 1, {"retention.ms": "1000"})
    log = cluster.log("t")
    log.append(batch((0, "old"), at_ms=5))
    log.append(batch((0, "new"), at_ms=SYSTEM_CLOCK.now_ms()))

    report = maintain(cluster, clock=SYSTEM_CLOCK)

    assert report.topics[0].log_starts == {0: (0, 1)}
    assert cluster.topic("t").log_start(0) == 1


@pytest.mark.slow
def test_ten_thousand_segments_lose_a_thousand_in_one_table_version(root: str) -> None:
    """Metadata only: the files do not even exist."""
    log = topic(root, "t", 1, {"retention.ms": str(HOUR_MS), **AT_ONCE})
    plant(log, 10_000, expired=1_000)

    done = run(root, "t", works=["retention"]).topics[0]

    assert (done.deleted_segments, done.log_starts) == (1_000, {0: (0, 1_000)})
    fresh = open_cluster(root).log("t")
    assert len(fresh.segments(0)) == 9_000


def plant(log: TopicLog, count: int, expired: int) -> None:
    """Segments of one record that only the table's log knows."""
    from kafkalike.delta.actions import Add
    from kafkalike.log.topic.batch_payload import iso_time
    from kafkalike.maintenance.maintenance_commit import MaintenanceCommit, publish

    def add(offset: int) -> Add:
        time = iso_time(NOW - (2 * HOUR_MS if offset < expired else 0))
        stats = {
            "numRecords": 1,
            "minValues": {"offset": offset, "timestamp": time},
            "maxValues": {"offset": offset, "timestamp": time},
            "nullCount": {},
        }
        return Add(
            path=f"partition=0/planted-{offset}.parquet",
            partition=0,
            size=1000,
            modification_ms=NOW,
            data_change=True,
            stats=stats,
        )

    publish(log, MaintenanceCommit(work="merge", adds=[add(offset) for offset in range(count)]), "planted")


@pytest.mark.usefixtures("log")
def test_maintain_of_a_root_by_its_path_does_what_the_settings_ask_for(root: str) -> None:
    report = maintain(root, "t", works=["retention"])

    assert [(done.topic, done.deleted_segments) for done in report.topics] == [("t", 3)]
    assert report.exit_code == 0


def test_maintain_with_no_time_to_begin_anything_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IllegalArgumentError, match="timeout_ms must be above 0, not 0"):
        maintain(tmp_path / "root", timeout_ms=0)

    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        pytest.param({"retention.ms": str(HOUR_MS)}, {"retention.ms": "-1"}, id="retention"),
        pytest.param(
            {"retention.ms": str(HOUR_MS), "file.delete.delay.ms": "0"},
            {"retention.ms": str(HOUR_MS), "kafkalike.retention.wait.groups": "g"},
            id="groups to wait for",
        ),
    ],
)
def test_a_setting_changed_while_the_run_is_at_another_topic_counts(
    tmp_path: Path, settings: dict[str, str], changed: dict[str, str]
) -> None:
    """What the run has seen of a topic when it began is only good for finding that nothing is due."""
    root = str(tmp_path / "root")
    for name in ("a", "b"):
        topic(root, name, 1, settings).append(batch((0, "old"), at_ms=NOW - 2 * HOUR_MS))

    def change(name: str, what: str) -> None:
        if (name, what) == ("a", "finished"):
            open_cluster(root).set_configs("b", changed)

    report = maintain(open_cluster(root), progress=change)

    assert [(done.topic, done.deleted_records) for done in report.topics] == [("a", 1), ("b", 0)]
    assert all_records(root, "b") == {0: [(0, "old")]}


def test_a_delay_raised_while_the_run_is_at_another_topic_keeps_files(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    settings = {"retention.ms": str(HOUR_MS), "file.delete.delay.ms": "0"}
    for name in ("a", "b"):
        topic(root, name, 1, settings).append(batch((0, "old"), at_ms=NOW - 2 * HOUR_MS))
    maintain(open_cluster(root), works=["retention"])

    def change(name: str, what: str) -> None:
        if (name, what) == ("a", "finished"):
            open_cluster(root).set_configs("b", {**settings, "file.delete.delay.ms": str(HOUR_MS)})

    report = maintain(open_cluster(root), works=["vacuum"], progress=change)

    assert [(done.topic, done.vacuumed_files) for done in report.topics] == [("a", 1), ("b", 0)]


def test_offsets_are_kept_by_the_defaults_that_count_after_the_work_on_topics(tmp_path: Path) -> None:
    """Not by those that the run saw when it began."""
    root = str(tmp_path / "root")
    topic(root, "t", 1, {}).append(batch((0, "v")))
    commit(open_cluster(root), 1)
    clock = ShiftedClock()
    clock.ahead_ms = 8 * 24 * HOUR_MS

    def change(name: str, what: str) -> None:
        if (name, what) == ("t", "finished"):
            open_cluster(root).edit_defaults(lambda now: {**now, "offsets.retention.minutes": "43200"})

    report = maintain(open_cluster(root, clock), progress=change, clock=clock)

    assert report.expired_offsets == 0
    assert TopicPartition("t", 0) in open_cluster(root).groups.refresh().group("g").offsets
