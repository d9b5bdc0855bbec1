"""Forgetting keys: their records go, from every file; everything else stays where it was, for everybody."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalike import ForgetOptions, ForgetReport, KafkaConsumer, KafkaProducer, TopicPartition, forget, fork
from kafkalike.admin.cluster_mirror import Mirror
from kafkalike.errors import (
    CorruptRecordError,
    IllegalArgumentError,
    KafkaTimeoutError,
    MirrorTopicError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafkalike.maintenance.deletion import Remover
from kafkalike.maintenance.maintenance_commit import publish_or_discard
from kafkalike.maintenance.verify.certificate_file import CertificateFile, check_certificate
from kafkalike.maintenance.verify.key_traces import keys_left
from kafkalike.maintenance.verify.topic_history import topic_history
from kafkalike.maintenance.works.file_rewrite import merge
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.dead_letter import OFFSET, PARTITION, TOPIC
from kafkalike.model.maintenance.record_removal import Certificate, Taking, parse_certificate, runs_of
from kafkalike.model.partitioner import partition_for_key
from kafkalike.model.record_batch import RecordBatch
from kafkalike.storage.port import copies_of
from tests.tools.findings import errors_of, kinds_of
from tests.tools.kinds import only_on_disk
from tests.tools.records import all_records
from tests.tools.upkeep import AT_ONCE, EAGER, ShiftedClock, keyed, open_cluster, pairs_of, topic, upkeep

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog

NOW = SYSTEM_CLOCK.now_ms()
KEY = bytes.fromhex("c0ffee") + b"forget-me-0123456789"


@pytest.fixture
def root(root_or_roots: str) -> str:
    """A new one on a disk, several, and in object stores."""
    return root_or_roots


def filled(root: str, partitions: int = 1, appends: int = 4, configs: dict[str, str] | None = None) -> TopicLog:
    """A topic with appends that each have the key, and four others, in the partitions that murmur2 names."""
    log = topic(root, "t", partitions, configs or {})
    for turn in range(appends):
        made = RecordBatch()
        for key in (b"a", KEY, b"b", None, b"c"):
            where = 0 if key is None else partition_for_key(key, partitions)
            made.add(where, key, b"value %d of turn %d" % (len(key or b""), turn), NOW + turn, [("h", b"1")])
        log.append(made)
    return log


def rows(log: TopicLog) -> dict[tuple[int, int], tuple[Any, ...]]:
    """All records by partition and offset, with all of their columns."""
    log.refresh()
    found = {}
    for partition in log.info.partitions:
        reader = log.reader(partition, log.log_start(partition))
        while (chunk := reader.read(1 << 20)) is not None:
            for row in chunk.table.to_pylist():
                found[partition, row["offset"]] = (row["key"], row["value"], str(row["timestamp"]), str(row["headers"]))
    return found


def without(found: dict[tuple[int, int], tuple[Any, ...]], *keys: bytes) -> dict[tuple[int, int], tuple[Any, ...]]:
    return {where: row for where, row in found.items() if row[0] not in keys}


def findings(root: str, certificate: Certificate | None, *keys: bytes) -> set[str]:
    """Kinds of what is wrong with a certificate."""
    assert certificate is not None
    return {f.kind for f in check_certificate(open_cluster(root), certificate, keys).findings}


# --- what goes and what stays ----------------------------------------------------------------------


def test_a_dry_run_says_what_would_go_and_changes_nothing(root: str) -> None:
    log = filled(root, 3)
    before, version = rows(log), log.version
    home = partition_for_key(KEY, 3)

    report = forget("t", root, keys=KEY)

    log.refresh()
    assert (rows(log), log.version) == (before, version)
    assert (report.executed, report.records, report.certificate) == (False, 4, None)
    assert [(part.topic, part.partition, part.records, part.segments) for part in report.parts] == [("t", home, 4, 4)]
    assert report.size_bytes == sum(s.size_bytes for s in log.segments(home))
    assert report.looked_at == {"t": (0, 1, 2)}


@pytest.mark.parametrize("partitions", [1, 3])
def test_records_of_the_key_go_and_all_others_stay_at_their_offsets(root: str, partitions: int) -> None:
    """With their values, times and headers; the table's other readers see the same."""
    log = filled(root, partitions)
    before = rows(log)

    report = forget("t", root, keys=[KEY, KEY.decode("latin-1").encode("latin-1")], dry_run=False)

    assert report.records == 4
    assert report.keys == 1
    assert rows(log) == without(before, KEY)
    assert errors_of(root) == []
    assert open_cluster(root).log("t").append(keyed(("k", "v"), at_ms=NOW)).ranges == {
        0: range(max(offset for p, offset in before if p == 0) + 1, max(offset for p, offset in before if p == 0) + 2)
    }


def test_several_keys_go_by_one_run_and_a_second_run_finds_nothing(root: str) -> None:
    log = filled(root, 3)
    before = rows(log)

    first = forget("t", root, keys=[KEY, "a", b"missing"], dry_run=False)
    second = forget("t", root, keys=[KEY, "a", b"missing"], dry_run=False)

    assert (first.keys, first.records, second.records, second.versions) == (3, 8, 0, {})
    assert rows(log) == without(before, KEY, b"a")


def test_record_in_a_partition_that_another_partitioner_chose_is_removed_by_default(root: str) -> None:
    """As librdkafka places records: by CRC32, not by murmur2."""
    log = filled(root, 3)
    other = (partition_for_key(KEY, 3) + 1) % 3
    made = RecordBatch()
    made.add(other, KEY, b"elsewhere", NOW)
    log.append(made)

    report = forget("t", root, keys=KEY, dry_run=False)

    assert {part.partition: part.records for part in report.parts} == {partition_for_key(KEY, 3): 4, other: 1}
    assert not any(row[0] == KEY for row in rows(log).values())


@pytest.mark.slow
@settings(deadline=None, max_examples=8)
@given(data=st.data())
def test_any_records_of_any_keys_go_as_the_rule_says(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Over appends, merged files, log starts and compacted holes: what `Taking.takes` says, and nothing else."""
    root = str(tmp_path_factory.mktemp("any"))
    log = topic(root, "t", 2, {**AT_ONCE, "retention.ms": "-1"})
    keys = st.sampled_from([b"a", b"b", b"c", b"", None])
    for batch in data.draw(st.lists(st.lists(st.tuples(st.integers(0, 1), keys), min_size=1, max_size=6), max_size=6)):
        made = RecordBatch()
        for partition, key in batch:
            made.add(partition, key, b"v", NOW)
        log.append(made)
    if data.draw(st.booleans()):
        upkeep(root)
    log.refresh()
    start = data.draw(st.integers(0, log.log_end(0)))
    if start:
        open_cluster(root).move_log_start("t", {0: start}, "delete_records", "r")
    chosen = data.draw(st.sets(st.sampled_from([b"a", b"b", b"c", b""]), min_size=1))
    before = rows(log)
    takings = {p: Taking(below=log.log_end(p), keys=frozenset(chosen)) for p in range(2)}

    forget("t", root, keys=chosen, dry_run=False)

    assert rows(log) == {at: row for at, row in before.items() if not takings[at[0]].takes(at[1], row[0])}
    assert errors_of(root) == []
    live = [s.path for p in range(2) for s in log.table_segments(p)]
    stored = [pq.read_table(Path(root, "t", path)).column("key").to_pylist() for path in live]
    # Below the log start too.
    assert not chosen.intersection(key for column in stored for key in column)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_what_is_found_is_what_the_rule_says(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """By key, by offset, up to a bound and but for what is spared; over files of one record and of several."""
    log = topic(str(tmp_path_factory.mktemp("rule")), "t", 1, {})
    keys = data.draw(st.lists(st.lists(st.sampled_from([b"a", b"b", None]), min_size=1, max_size=4), max_size=4))
    for some in keys:
        made = RecordBatch()
        for key in some:
            made.add(0, key, b"v", NOW)
        log.append(made)
    offsets = st.integers(0, 16)
    taking = Taking(
        below=data.draw(offsets),
        keys=frozenset(data.draw(st.sets(st.sampled_from([b"a", b"b", b"c"])))),
        offsets=runs_of(data.draw(st.sets(offsets, max_size=5))),
        spared=frozenset(data.draw(st.sets(offsets, max_size=3))),
    )

    remover = Remover(log, "r", work="forget", facts={}, budget=Deadline(SYSTEM_CLOCK, None))
    found = [offset for piece in remover.found({0: taking}) for run in piece.offsets for offset in run]

    flat = [key for some in keys for key in some]
    assert found == [offset for offset, key in enumerate(flat) if taking.takes(offset, key)]


def test_a_partition_that_loses_all_of_its_records_goes_on_where_it_was(root: str) -> None:
    """Also for a client that has never seen them, and where the log's old commits are gone."""
    log = topic(root, "t", 1, {})
    log.append(keyed(("k", "1"), ("k", "2"), at_ms=NOW))

    forget("t", root, keys="k", dry_run=False)

    fresh = open_cluster(root).log("t")
    assert (fresh.log_start(0), fresh.log_end(0), all_records(root)) == (0, 2, {0: []})
    assert fresh.append(keyed(("n", "3"), at_ms=NOW)).ranges == {0: range(2, 3)}
    assert errors_of(root) == []


@pytest.mark.slow
@pytest.mark.usefixtures("foreign_writes")
@only_on_disk("root_or_roots")
def test_the_log_end_outlives_records_that_a_foreign_writer_has_appended(root: str) -> None:
    """No commit of ours has recorded it before."""
    log = filled(root, 1, appends=1)
    table = pq.read_table(Path(root, "t", log.segments(0)[0].path))
    columns = {name: table.column(name).slice(1, 1) for name in table.column_names}
    columns["offset"] = pa.array([7], pa.int64())
    columns["partition"] = pa.array([0], pa.int32())
    write_deltalake(f"{root}/t", pa.table(columns), mode="append")
    log.refresh()
    assert log.log_end(0) == 8

    forget("t", root, keys=KEY, dry_run=False)

    # As if the history were gone: from the newest checkpoint alone.
    DeltaTable(f"{root}/t").create_checkpoint()
    for file in Path(root, "t", "_delta_log").glob("*.json"):
        if int(file.stem) < DeltaTable(f"{root}/t").version():
            file.unlink()
    assert open_cluster(root).log("t").log_end(0) == 8


# --- readers and writers beside it -----------------------------------------------------------------


def test_a_consumer_in_the_middle_and_its_group_go_on(root: str) -> None:
    log = filled(root, 1, configs=AT_ONCE)
    with KafkaConsumer("t", bootstrap_servers=root, group_id="g", auto_offset_reset="earliest") as consumer:
        first = consumer.poll(timeout_ms=5000, max_records=3)[TopicPartition("t", 0)]

        forget("t", root, keys=KEY, dry_run=False, options=ForgetOptions(now=True))

        rest: list[Any] = []
        while consumer.position(TopicPartition("t", 0)) < 20:
            for found in consumer.poll(timeout_ms=2000).values():
                rest += found
        consumer.commit()
    seen = [record.offset for record in (*first, *rest)]
    assert len(seen) == len(set(seen))
    # It may have read ahead what is gone now.
    assert {record.offset for record in (*first, *rest) if record.key != KEY} == {at[1] for at in rows(log)}
    assert log.log_end(0) == seen[-1] + 1


def test_the_last_record_may_go_and_a_reader_comes_to_the_end(root: str) -> None:
    """Its lag is 0 then, as when it had read the record."""
    log = topic(root, "t", 1, {})
    log.append(keyed(("a", "1"), ("k", "2"), at_ms=NOW))
    forget("t", root, keys="k", dry_run=False)

    with KafkaConsumer("t", bootstrap_servers=root, group_id="g", auto_offset_reset="earliest") as consumer:
        found = consumer.poll(timeout_ms=2000)
        consumer.poll(timeout_ms=100)

        assert [record.value for some in found.values() for record in some] == [b"1"]
        assert consumer.position(TopicPartition("t", 0)) == 2


def test_what_is_appended_meanwhile_stays_and_is_no_part_of_the_certificate(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(root, 1)
    end = log.log_end(0)

    def late(*args: Any) -> int | None:
        open_cluster(root).log("t").append(keyed((KEY.decode("latin-1"), "late"), at_ms=NOW))
        made = RecordBatch()
        made.add(0, KEY, b"late", NOW)
        open_cluster(root).log("t").append(made)
        return publish_or_discard(*args)

    monkeypatch.setattr("kafkalike.maintenance.maintenance_commit.publish_or_discard", late)

    report = forget("t", root, keys=KEY, dry_run=False)

    assert report.certificate is not None
    assert report.certificate.topics[0].looked_at == {0: end}
    assert {at[1] for at, row in rows(log).items() if row[0] == KEY} == {end + 1}
    assert errors_of(root) == []


def test_files_that_another_run_replaces_meanwhile_cost_a_second_look(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a maintenance run of another machine does where a root has no locks."""
    log = filled(root, 1, appends=6, configs=AT_ONCE)
    before = rows(log)
    calls: list[int] = []

    def beside(*args: Any) -> int | None:
        if args[-1] == "other":
            return publish_or_discard(*args)
        calls.append(1)
        if len(calls) == 1:
            other = open_cluster(root).log("t")
            run = tuple(other.segments(0))
            assert len(list(merge(other, other.files, [run], "other", [], budget=Deadline(SYSTEM_CLOCK, None)))) == 1
        return publish_or_discard(*args)

    monkeypatch.setattr("kafkalike.maintenance.maintenance_commit.publish_or_discard", beside)

    report = forget("t", root, keys=KEY, dry_run=False)

    assert (report.records, len(calls)) == (6, 2)
    assert rows(log) == without(before, KEY)
    named = {entry.name for entry in log.files.list(deep=True) if entry.name.endswith(".parquet")}
    if "://" not in root:
        assert report.certificate is not None
        known = {f.path for v in report.certificate.topics[0].versions for f in (*v.removed, *v.added)}
        # Nothing that the first try has written is left.
        assert len(named - known) == 6


def test_a_compacted_topic_forgets_and_goes_on_compacting(root: str) -> None:
    log = topic(root, "t", 1, EAGER)
    for number, key in enumerate("akaka"):
        log.append(keyed((key, str(number)), at_ms=NOW + 10 * number))
    upkeep(root)

    forget("t", root, keys="k", dry_run=False)
    log.append(keyed(("a", "9"), at_ms=NOW + 100))
    log.append(keyed(("b", "10"), at_ms=NOW + 200))
    upkeep(root)

    assert [key for _, key, _ in pairs_of(log)] == ["a", "b"]
    assert errors_of(root) == []


def test_a_tombstone_tells_readers_and_is_written_once(root: str) -> None:
    log = filled(root, 1)

    planned = forget("t", root, keys=[KEY, b"missing"], options=ForgetOptions(tombstone=True))
    first = forget("t", root, keys=[KEY, b"missing"], options=ForgetOptions(tombstone=True), dry_run=False)
    again = forget("t", root, keys=[KEY, b"missing"], options=ForgetOptions(tombstone=True), dry_run=False)

    told = {at: row[1] for at, row in rows(log).items() if row[0] == KEY}
    assert told == {(0, 20): None}
    assert (planned.tombstones, first.tombstones, again.tombstones) == (1, 1, 0)
    assert (first.records, again.records) == (4, 0)
    assert findings(root, again.certificate, KEY, b"missing") <= {"file-not-gone", "key-not-gone"}


def test_dead_letters_of_the_topic_are_forgotten_and_those_of_others_stay(root: str) -> None:
    filled(root, 1)
    cluster = open_cluster(root)
    cluster.create_topic("t.dlq", 2, {})
    made = RecordBatch()
    for partition, source in enumerate(["t", "u"]):
        headers = [(TOPIC, source.encode()), (PARTITION, b"0"), (OFFSET, b"1")]
        made.add(partition, KEY, b"bad", NOW, headers)
        made.add(partition, b"other", b"bad", NOW, headers)
    cluster.log("t.dlq").append(made)

    report = forget("t", root, keys=KEY, dry_run=False)

    assert [(part.topic, part.partition, part.records) for part in report.parts] == [("t", 0, 4), ("t.dlq", 0, 1)]
    left = rows(open_cluster(root).log("t.dlq"))
    assert [(where, row[0]) for where, row in sorted(left.items())] == [
        ((0, 1), b"other"),
        ((1, 0), KEY),
        ((1, 1), b"other"),
    ]


# --- files, history and certificate ----------------------------------------------------------------


def test_the_history_says_who_and_why_and_not_which_key(root: str) -> None:
    filled(root, 1)

    report = forget("t", root, keys=KEY, dry_run=False, reason="ticket 4711")

    (event,) = [event for event in topic_history(open_cluster(root), "t") if event.kind == "forget"]
    assert event.who
    assert report.certificate is not None
    assert f"run {report.run}" in event.by
    assert event.what == (
        f"partition: 0, records: 4, keys: 1, digest: {report.certificate.digest}, reason: ticket 4711"
    )


@pytest.mark.slow
@only_on_disk("root_or_roots")
def test_no_byte_of_the_key_is_left_below_the_root_when_the_delay_is_over(root: str, tmp_path: Path) -> None:
    """In any file: found before as bytes where files are not compressed, and in what files decode to."""
    key = os.urandom(24)
    log = filled(root, 2)
    made = RecordBatch()
    made.add(partition_for_key(key, 2), key, b"v", NOW)
    for codec in ("none", "zstd"):
        log.append(made, codec=codec)
    paper = tmp_path / "certificate.json"

    report = forget("t", root, keys=key, dry_run=False, options=ForgetOptions(certificate=paper))
    early = findings(root, report.certificate, key)
    clock = ShiftedClock()
    clock.ahead_ms = 23 * 3_600_000
    upkeep(root, clock=clock)
    still = with_bytes(root, key)
    clock.ahead_ms = 24 * 3_600_000 + 60_000
    upkeep(root, clock=clock)

    assert early == {"file-not-gone", "key-not-gone"}
    assert still
    assert with_bytes(root, key) == []
    assert findings(root, parse_certificate(paper.read_text()), key) == set()
    assert key not in paper.read_bytes()
    assert key.hex() not in paper.read_text()


def with_bytes(root: str, key: bytes) -> list[str]:
    """Files below a root that have a key's bytes as they are, or in a record that they decode to."""
    found = []
    for path in sorted(path for path in Path(root).rglob("*") if path.is_file()):
        content = path.read_bytes()
        decoded = pq.read_table(path).to_pylist() if content[:4] == b"PAR1" else []
        if key in content or any(key in str(row).encode() or key in (row.get("key") or b"") for row in decoded):
            found.append(str(path))
    return found


def test_files_may_go_at_once(root: str) -> None:
    filled(root, 1)

    report = forget("t", root, keys=KEY, dry_run=False, options=ForgetOptions(now=True))

    assert report.files_removed == 4
    assert findings(root, report.certificate, KEY) == set()
    assert errors_of(root) == []


def test_a_certificate_notices_records_files_and_keys_that_are_back(root: str) -> None:
    log = filled(root, 1)
    files = {s.path: log.files.read(s.path) for s in log.segments(0)}
    report = forget("t", root, keys=KEY, dry_run=False, options=ForgetOptions(now=True))
    certificate = report.certificate
    assert certificate is not None
    (made,) = certificate.topics[0].versions

    log.append(keyed(("x", KEY.decode("latin-1")), at_ms=NOW))
    with_value = findings(root, certificate, KEY)
    # Where there are several roots, at one that is not asked first.
    place = (list(copies_of(log.files)) or [log.files])[-1]
    place.replace(made.removed[0].path, files[made.removed[0].path])
    with_file = findings(root, certificate, KEY)
    for place in copies_of(log.files) or [log.files]:
        place.replace(made.added[0].path, files[made.removed[0].path])
    with_change = findings(root, certificate)

    assert with_value == set()
    assert with_file == {"file-not-gone", "key-not-gone"}
    assert "file-changed" in with_change


def test_a_certificate_of_other_keys_or_another_root_is_refused(root: str) -> None:
    filled(root, 1)
    certificate = forget("t", root, keys=KEY, dry_run=False).certificate
    assert certificate is not None

    with pytest.raises(IllegalArgumentError, match="not the keys"):
        check_certificate(open_cluster(root), certificate, [b"other"])
    with pytest.raises(IllegalArgumentError, match="is about"):
        check_certificate(open_cluster("/nowhere"), certificate)


def test_a_topic_that_is_deleted_since_leaves_nothing_to_find(root: str) -> None:
    filled(root, 1)
    certificate = forget("t", root, keys=KEY, dry_run=False, options=ForgetOptions(now=True)).certificate
    open_cluster(root).delete_topic("t")

    assert findings(root, certificate) == set()


@only_on_disk("root_or_roots")
def test_an_unfinished_run_is_gone_on_with_and_its_certificate_has_all(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what it had committed and could not write down."""
    log = filled(root, 3)
    before = rows(log)
    paper = tmp_path / "certificate.json"
    put, calls = CertificateFile.put, []

    def cut_off(self: CertificateFile, certificate: Certificate) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        put(self, certificate)

    monkeypatch.setattr(CertificateFile, "put", cut_off)
    with pytest.raises(KeyboardInterrupt):
        forget("t", root, keys=[KEY, b"a"], dry_run=False, options=ForgetOptions(certificate=paper))
    monkeypatch.undo()
    cut = parse_certificate(paper.read_text())
    assert not cut.finished
    assert "certificate-unfinished" in findings(root, cut)

    with pytest.raises(IllegalArgumentError, match="another run, with other keys"):
        forget("t", root, keys=KEY, dry_run=False, options=ForgetOptions(certificate=paper))
    report = forget("t", root, keys=[KEY, b"a"], dry_run=False, options=ForgetOptions(certificate=paper))

    assert report.run == cut.run
    assert report.certificate is not None
    assert report.certificate.topics[0].records == 8
    gone = {(p, o) for v in report.certificate.topics[0].versions for p in [v.partition] for r in v.offsets for o in r}
    assert gone == before.keys() - without(before, KEY, b"a").keys()
    with pytest.raises(IllegalArgumentError, match="finished"):
        forget("t", root, keys=[KEY, b"a"], dry_run=False, options=ForgetOptions(certificate=paper))


@pytest.mark.slow
def test_copies_are_named_and_checked(root: str) -> None:
    filled(root, 1)
    fork("t", "copy", root)
    fork("copy", "second", root)

    report = forget("t", root, keys=KEY, dry_run=False, options=ForgetOptions(now=True))

    assert report.copies == ("copy", "second")
    assert findings(root, report.certificate, KEY) == {"file-not-gone", "key-not-gone"}
    forget("copy", root, keys=KEY, dry_run=False, options=ForgetOptions(now=True))
    forget("second", root, keys=KEY, dry_run=False, options=ForgetOptions(now=True))
    assert findings(root, report.certificate, KEY) == set()


def test_records_of_an_open_transaction_are_told_of(root: str) -> None:
    filled(root, 1)
    with KafkaProducer(bootstrap_servers=root, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", key=KEY, value=b"later")
        producer.flush()

        report = forget("t", root, keys=KEY, dry_run=False, options=ForgetOptions(now=True))

        assert report.open_transactions == ("x",)
        assert findings(root, report.certificate, KEY) == {"key-not-gone"}
        producer.commit_transaction()
    assert forget("t", root, keys=KEY, dry_run=False, options=ForgetOptions(now=True)).records == 1


def test_a_run_that_waits_takes_what_an_open_transaction_commits(root: str) -> None:
    filled(root, 1)
    there = forget("t", root, keys=KEY).records
    with KafkaProducer(bootstrap_servers=root, transactional_id="x") as producer:

        class Committing(ShiftedClock):
            def sleep(self, seconds: float) -> None:
                if not seconds or self.ahead_ms:
                    return
                self.ahead_ms = 1
                producer.commit_transaction()

        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", key=KEY, value=b"later")
        producer.flush()

        report = forget(
            "t", root, keys=KEY, dry_run=False, options=ForgetOptions(now=True, wait_ms=60_000), clock=Committing()
        )

    assert (report.records, report.open_transactions) == (there + 1, ())
    assert findings(root, report.certificate, KEY) == set()


def test_a_run_that_waited_for_nothing_has_done_nothing(root: str, tmp_path: Path) -> None:
    filled(root, 1)
    there, paper = forget("t", root, keys=KEY).records, tmp_path / "paper.json"
    with KafkaProducer(bootstrap_servers=root, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", key=KEY, value=b"later")
        producer.flush()

        with pytest.raises(KafkaTimeoutError, match="'x' have records for t"):
            forget("t", root, keys=KEY, dry_run=False, options=ForgetOptions(wait_ms=1, certificate=paper))

        assert not paper.exists()
        assert forget("t", root, keys=KEY).records == there


@pytest.mark.slow
def test_a_mirror_gets_the_version_that_took_the_records_and_its_own_upkeep_removes_the_files(
    root: str, tmp_path: Path
) -> None:
    """At the mirror itself nothing may be taken, nor copied."""
    source = str(tmp_path / "source")
    filled(source, 1, configs=AT_ONCE)
    Mirror(open_cluster(source), open_cluster(root)).run()

    forget("t", source, keys=KEY, dry_run=False, options=ForgetOptions(now=True))
    Mirror(open_cluster(source), open_cluster(root)).run()
    upkeep(root, works=["vacuum"])

    mirrored = open_cluster(root).log("t")
    assert rows(mirrored) == rows(open_cluster(source).log("t"))
    assert not any(row[0] == KEY for row in rows(mirrored).values())
    assert list(keys_left(mirrored.files, "t", [KEY])) == []
    assert forget("t", root, keys="a").records == 4
    for refused in (lambda: forget("t", root, keys="a", dry_run=False), lambda: fork("t", "new", root)):
        with pytest.raises(MirrorTopicError, match="read-only mirror"):
            refused()
    assert set(open_cluster(root).topics()) == {"t"}


# --- refused ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("foreign_writes")
@only_on_disk("root_or_roots")
def test_an_append_only_table_is_refused_by_name_before_anything_is_written(root: str) -> None:
    log = filled(root, 1)
    DeltaTable(f"{root}/t").alter.set_table_properties({"delta.appendOnly": "true"})
    log.refresh()
    version = log.version

    assert forget("t", root, keys=KEY).records == 4
    with pytest.raises(PolicyViolationError, match="appendOnly"):
        forget("t", root, keys=KEY, dry_run=False, options=ForgetOptions(tombstone=True))
    log.refresh()
    assert log.version == version


@pytest.mark.usefixtures("foreign_writes")
@only_on_disk("root_or_roots")
def test_a_table_with_a_foreign_rule_is_refused_by_name(root: str) -> None:
    filled(root, 1)
    DeltaTable(f"{root}/t").alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 1 days"})

    with pytest.raises(UnsupportedVersionError, match="setTransactionRetentionDuration"):
        forget("t", root, keys=KEY, dry_run=False)


@only_on_disk("root_or_roots")
def test_a_damaged_file_is_named_and_may_hold_the_key(root: str) -> None:
    log = filled(root, 1)
    path = log.segments(0)[2].path
    Path(root, "t", path).write_bytes(b"PAR1 nothing PAR1")

    with pytest.raises(CorruptRecordError, match=re.escape(path)):
        forget("t", root, keys=KEY, dry_run=False)


def test_bad_calls_are_refused_before_anything_is_done(root: str, tmp_path: Path) -> None:
    filled(root, 1)

    for keys, said in (([], "at least one"), (7, "keys are needed"), ([b"a", 7], "bytes or text"), (None, "needed")):
        with pytest.raises(IllegalArgumentError, match=said):
            forget("t", root, keys=keys)  # type: ignore[arg-type]
    with pytest.raises(UnknownTopicOrPartitionError, match="'u'"):
        forget("u", root, keys=KEY)
    with pytest.raises(UnknownTopicOrPartitionError, match="'letters'"):
        forget("t", root, keys=KEY, options=ForgetOptions(dead_letters=["letters"]))
    if "://" not in root:
        with pytest.raises(IllegalArgumentError, match="below the root"):
            forget(
                "t",
                root,
                keys=KEY,
                dry_run=False,
                options=ForgetOptions(certificate=Path(root.rsplit(",", maxsplit=1)[-1], "t", "c.json")),
            )
    assert isinstance(forget("t", root, keys=KEY), ForgetReport)
    assert kinds_of(root) == set()
    assert list(tmp_path.glob("*.json")) == []
