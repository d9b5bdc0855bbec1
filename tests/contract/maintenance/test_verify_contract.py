"""A sound cluster has no findings, and each way to damage one on disk is named."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import kafkalike
from kafkalike.admin import KafkaAdminClient
from kafkalike.connect import connect
from kafkalike.errors import KafkaConnectionError, UnknownTopicOrPartitionError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.verify.verify import total_bytes, verify
from kafkalike.maintenance.verify.verify_report import Finding, VerifyReport
from kafkalike.model.group_rows import OFFSET, GroupRow
from kafkalike.model.murmur2 import partition_for_key
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.segments import Segment
from kafkalike.model.structs import TopicPartition

TOPIC = "orders"
PARTITIONS = 3


def append(cluster: Cluster, count: int) -> None:
    """One commit of records whose keys hash to their partitions."""
    batch = RecordBatch()
    for number in range(count):
        key = f"customer-{number}".encode()
        batch.add(partition_for_key(key, PARTITIONS), key, b"v" * 100, 1_700_000_000_000 + number, [("h", b"1")])
    cluster.log(TOPIC).append(batch)


def fill(cluster: Cluster) -> None:
    cluster.create_topic(TOPIC, PARTITIONS, {})
    for count in (50, 1, 200):
        append(cluster, count)


def check(cluster: Cluster) -> VerifyReport:
    return verify(cluster, sorted(cluster.topics()))


def kinds(report: VerifyReport) -> set[str]:
    return {finding.kind for finding in report.findings}


# --- sound ---------------------------------------------------------------------------------------


def test_a_cluster_without_topics_is_sound(cluster: Cluster) -> None:
    """Nothing is wrong with nothing."""
    assert check(cluster).findings == []


def test_verify_by_address_reads_the_named_topics(tmp_path: Path) -> None:
    root = str(tmp_path / "cluster")
    fill(connect(root))

    report = kafkalike.verify(root, TOPIC)

    assert (report.topics, report.records, report.findings) == (1, 251, [])
    with pytest.raises(UnknownTopicOrPartitionError):
        kafkalike.verify(root, ["missing"])
    with pytest.raises(KafkaConnectionError):
        kafkalike.verify(str(tmp_path / "missing"))


def test_a_filled_topic_is_sound(cluster: Cluster) -> None:
    """Every record is counted, nothing is found."""
    fill(cluster)

    report = check(cluster)

    assert report.findings == []
    assert (report.topics, report.partitions, report.records) == (1, 3, 251)


def test_a_topic_whose_records_were_deleted_is_sound(cluster: Cluster) -> None:
    """A log start within a file is as it should be."""
    fill(cluster)
    KafkaAdminClient(bootstrap_servers=cluster).delete_records(
        {TopicPartition(TOPIC, 0): 3, TopicPartition(TOPIC, 1): -1}
    )

    assert check(cluster).findings == []


def test_progress_adds_up_to_the_bytes_that_are_read(cluster: Cluster) -> None:
    """A bar that counts them ends at its end."""
    fill(cluster)
    read: list[int] = []

    verify(cluster, [TOPIC], read.append)

    assert sum(read) == total_bytes(cluster, [TOPIC]) > 0


def test_records_with_an_explicit_partition_are_a_warning(cluster: Cluster) -> None:
    """A user may choose partitions."""
    fill(cluster)
    key = b"customer-1"
    batch = RecordBatch()
    batch.add((partition_for_key(key, PARTITIONS) + 1) % PARTITIONS, key, b"v", 0)
    cluster.log(TOPIC).append(batch)

    report = check(cluster)

    assert [(f.kind, f.warning) for f in report.findings] == [("key-partition", True)]
    assert (report.errors(), report.errors(strict=True)) == (0, 1)


def test_an_offset_committed_beyond_the_log_end_is_found(cluster: Cluster) -> None:
    """The group would skip what comes."""
    fill(cluster)
    row = GroupRow(seq=1, kind=OFFSET, group_id="g", topic=TOPIC, partition=0, offset=10_000, time_ms=1)
    cluster.groups.transact(lambda _: [row])

    assert kinds(check(cluster)) == {"committed-beyond-end"}


# --- damaged on disk ---------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A filled cluster on disk, with nothing opened any more."""
    fill(connect(str(tmp_path / "cluster")))
    return tmp_path / "cluster"


def largest(root: Path) -> tuple[Segment, Path]:
    """A segment with many records, and its file."""
    log = connect(str(root)).log(TOPIC)
    segment = max((s for p in range(PARTITIONS) for s in log.segments(p)), key=lambda s: s.num_records)
    return segment, root / TOPIC / segment.path


def only(report: VerifyReport, kind: str) -> Finding:
    (found,) = [finding for finding in report.findings if finding.kind == kind]
    return found


def test_a_missing_file_is_named_with_its_offsets(root: Path) -> None:
    """The user learns which records are lost."""
    segment, path = largest(root)
    path.unlink()

    found = only(check(connect(str(root))), "missing-file")

    assert (found.topic, found.partition, found.offsets) == (TOPIC, segment.partition, segment.offsets)
    assert segment.path in found.message


def test_a_truncated_file_is_named(root: Path) -> None:
    """A file cut short has no footer."""
    segment, path = largest(root)
    path.write_bytes(path.read_bytes()[: segment.size_bytes // 2])

    assert kinds(check(connect(str(root)))) == {"file-size", "damaged-file"}


def test_an_empty_file_is_named(root: Path) -> None:
    """A file of no bytes cannot be read."""
    _, path = largest(root)
    path.write_bytes(b"")

    assert kinds(check(connect(str(root)))) == {"file-size", "damaged-file"}


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    table = pq.ParquetFile(path).read()
    pq.write_table(change(table), path)


def test_a_file_that_lost_a_record_is_named(root: Path) -> None:
    """One row less is found by its offset."""
    _, path = largest(root)
    rewrite(path, lambda table: pa.concat_tables([table.slice(0, 5), table.slice(6)]))

    report = check(connect(str(root)))

    assert kinds(report) == {"file-size", "hole-in-file", "record-count"}


def test_a_file_in_another_order_is_named(root: Path) -> None:
    """Readers rely on offset order within a file."""
    _, path = largest(root)
    rewrite(path, lambda table: table.sort_by([("offset", "descending")]))

    assert "unsorted" in kinds(check(connect(str(root))))


def test_a_file_with_other_times_than_its_statistics_is_named(root: Path) -> None:
    """Look-ups by time would miss its records."""
    _, path = largest(root)

    def later(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index("timestamp")
        times = pa.array([10**15] * len(table), table.schema.field(at).type)
        return table.set_column(at, table.schema.field(at), times)

    rewrite(path, later)

    assert "time-statistics" in kinds(check(connect(str(root))))


def test_a_file_with_other_columns_is_named(root: Path) -> None:
    """A column of another type is said by name."""
    _, path = largest(root)
    rewrite(path, lambda table: table.drop_columns(["headers"]))

    found = only(check(connect(str(root))), "schema")

    assert "column headers is missing" in found.message


def test_a_file_without_offsets_is_named_once(root: Path) -> None:
    """What cannot be judged is not judged."""
    _, path = largest(root)
    rewrite(path, lambda table: table.drop_columns(["offset"]))

    assert kinds(check(connect(str(root)))) == {"file-size", "schema"}


@pytest.mark.slow
@pytest.mark.usefixtures("foreign_writes")
def test_rows_that_a_foreign_writer_inserts_are_named(root: Path) -> None:
    """An INSERT beside kafkalike gives offsets twice."""
    table = DeltaTable(str(root / TOPIC))
    rows = table.to_pyarrow_dataset().to_table().slice(0, 1)
    write_deltalake(table, rows, mode="append")

    report = check(connect(str(root)))

    assert {"foreign-commit", "overlap"} <= kinds(report)
    assert "WRITE by delta-rs" in only(report, "foreign-commit").message


@pytest.mark.usefixtures("foreign_writes")
def test_rows_that_a_foreign_writer_deletes_are_named(root: Path) -> None:
    """A DELETE leaves a hole."""
    DeltaTable(str(root / TOPIC)).delete("partition = 0 AND offset = 1")

    report = check(connect(str(root)))

    assert {"foreign-commit", "hole-in-file"} <= kinds(report)


def test_a_damaged_commit_file_is_named(root: Path) -> None:
    """An empty commit file is no reason to read less."""
    (root / TOPIC / "_delta_log" / f"{2:020d}.json").write_bytes(b"")

    report = check(connect(str(root)))

    assert report.errors() >= 1
    assert kinds(report) <= {"damaged-commit", "missing-commit", "gap"}


def test_a_table_that_was_replaced_is_named(root: Path) -> None:
    """Another table at the same place is not the topic."""
    log = root / TOPIC / "_delta_log"
    first = log / f"{0:020d}.json"
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["id"] = "00000000-0000-0000-0000-000000000000"
        action.get("commitInfo", {}).pop("kafkalikeChecksum", None)
    first.write_text("\n".join(map(json.dumps, actions)))

    assert kinds(check(connect(str(root)))) == {"table"}


def test_one_damaged_topic_does_not_hide_another(root: Path) -> None:
    """Every topic is looked at."""
    connect(str(root)).create_topic("other", 1, {})
    (root / "other" / "_delta_log" / f"{0:020d}.json").unlink()

    report = check(connect(str(root)))

    assert [finding.topic for finding in report.findings] == ["other"]
    assert (report.topics, report.records) == (2, 251)


def test_a_file_with_records_of_another_partition_is_named(root: Path) -> None:
    """Files that Spark writes carry the partition of each record."""
    segment, path = largest(root)
    other = pa.array([segment.partition + 1], pa.int32())

    def moved(table: pa.Table) -> pa.Table:
        return table.append_column("partition", pa.chunked_array([pa.concat_arrays([other] * len(table))]))

    rewrite(path, moved)

    assert "holds records of partition" in only(check(connect(str(root))), "damaged-file").message


@pytest.mark.usefixtures("foreign_writes")
def test_rows_of_a_partition_that_does_not_exist_are_named(root: Path) -> None:
    """Nobody would ever read them."""
    table = DeltaTable(str(root / TOPIC))
    row = table.to_pyarrow_dataset().to_table().slice(0, 1)
    at = row.schema.get_field_index("partition")
    write_deltalake(table, row.set_column(at, "partition", pa.array([7], pa.int32())), mode="append")

    assert only(check(connect(str(root))), "unknown-partition").partition == 7
