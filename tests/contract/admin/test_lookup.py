"""`find_records` over every kind of cluster: it misses nothing that a scan finds."""

import dataclasses
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest

from kafkalike import KafkaProducer, find_records
from kafkalike.admin.testing import ManualClock, MemoryCluster
from kafkalike.connect import connect
from kafkalike.errors import CorruptRecordError, IllegalArgumentError, UnknownTopicOrPartitionError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.partitioner import partition_for_key
from kafkalike.storage.parquet import FILTER_ROWS
from tests.tools.footers import filters
from tests.tools.kinds import only_in_memory
from tests.tools.upkeep import AT_ONCE, topic, upkeep

MANY = FILTER_ROWS * 2


def test_the_newest_records_of_a_key_come_first(cluster: Cluster) -> None:
    cluster.create_topic("t", 3, {})
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        for n in range(5):
            producer.send("t", b"%d" % n, key=b"k", timestamp_ms=n, headers=[("h", b"1")])
            producer.send("t", b"x", key=b"other", timestamp_ms=n).get(60)

    found = find_records("t", cluster, key="k", limit=3)

    assert [(r.value, r.offset, r.timestamp, r.headers) for r in found.records] == [
        (b"%d" % n, n, n, [("h", b"1")]) for n in (4, 3, 2)
    ]
    assert (found.complete, found.hashed, found.partitions) == (False, partition_for_key(b"k", 3), [0, 1, 2])
    assert find_records("t", cluster, key=b"k").complete
    assert find_records("t", cluster, key=b"").records == []


def test_records_that_were_placed_otherwise_are_found_too(cluster: Cluster) -> None:
    """In a partition of the sender's choice, and from before the topic got more partitions."""
    cluster.create_topic("t", 1, {})
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        producer.send("t", b"old", key=b"k", timestamp_ms=1).get(60)
        cluster.add_partitions("t", 7)
        hashed = partition_for_key(b"k", 7)
        producer.send("t", b"own", key=b"k", partition=(hashed + 1) % 7, timestamp_ms=2).get(60)
        producer.send_arrow("t", pa.table({"key": ["k"], "value": ["new"], "timestamp": [3]})).get(60)

    found = find_records("t", cluster, key=b"k")

    assert [r.value for r in found.records] == [b"new", b"own", b"old"]
    assert [r.value for r in find_records("t", cluster, key=b"k", partitions=[hashed]).records] == [b"new"]


def test_records_below_the_log_start_are_not_found(cluster: Cluster) -> None:
    cluster.create_topic("t", 1, {})
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        producer.send_arrow("t", pa.table({"key": ["k"] * 4, "value": ["a", "b", "c", "d"]})).get(60)

    cluster.move_log_start("t", {0: 2}, "test", "r")

    assert [r.value for r in find_records("t", cluster, key=b"k").records] == [b"d", b"c"]


@only_in_memory("cluster")
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"key": None}, IllegalArgumentError),
        ({"key": 1}, IllegalArgumentError),
        ({"key": b"k", "limit": 0}, IllegalArgumentError),
        ({"key": b"k", "max_bytes": 0}, IllegalArgumentError),
        ({"key": b"k", "timeout_ms": -1}, IllegalArgumentError),
        ({"key": b"k", "below": {1: 0}}, UnknownTopicOrPartitionError),
        ({"key": b"k", "partitions": [1]}, UnknownTopicOrPartitionError),
    ],
)
def test_bad_questions_are_refused(cluster: Cluster, arguments: dict[str, object], error: type[Exception]) -> None:
    cluster.create_topic("t", 1, {})

    with pytest.raises(error):
        find_records("t", cluster, **arguments)  # type: ignore[arg-type]


def filled(root: str) -> None:
    """Large files of many keys, each key twice, and a small file."""
    connect(root).create_topic("t", 2, {})
    with KafkaProducer(bootstrap_servers=root) as producer:
        for _ in range(2):
            keys = [f"{n}" for n in range(2 * MANY)]
            producer.send_arrow("t", pa.table({"key": keys, "value": keys})).get(60)
        producer.send("t", b"last", key=b"7").get(60)


@pytest.mark.slow
def test_files_whose_filter_rules_a_key_out_are_not_read(tmp_path: Path) -> None:
    """No key is missed, and hardly a file is read in vain; nor after maintenance has merged the files."""
    root = str(tmp_path / "root")
    filled(root)
    assert filters(tmp_path / "root") == 4

    some = [find_records("t", root, key=str(n)) for n in range(0, 2 * MANY, 997)]
    absent = [find_records("t", root, key=f"no {n}") for n in range(20)]

    assert [len(found.records) for found in some] == [2] * len(some)
    assert [r.value for r in find_records("t", root, key="7").records] == [b"last", b"7", b"7"]
    assert sum(found.skipped for found in absent) > 0.9 * 20 * 4
    maintain(connect(root), clock=SYSTEM_CLOCK)
    assert [len(find_records("t", root, key=str(n)).records) for n in (0, 5_000)] == [2, 2]


@pytest.mark.slow
def test_lookup_with_a_pyarrow_without_bloom_filters_misses_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark platforms ship such a pyarrow: appends, merging and lookups work, and files are looked through whole."""
    root = str(tmp_path / "root")
    monkeypatch.setattr("kafkalike.storage.parquet.HAS_FILTERS", False)
    monkeypatch.setattr("kafkalike.log.topic.data_file.HAS_FILTERS", False)
    filled(root)
    maintain(connect(root), clock=SYSTEM_CLOCK)

    assert filters(tmp_path / "root") == 0
    found = find_records("t", root, key="7")
    assert [r.value for r in found.records] == [b"last", b"7", b"7"]
    assert found.skipped == 0


@pytest.mark.slow
def test_merged_files_have_filters(root: str) -> None:
    """None of the small ones had."""
    topic(root, "t", 1, AT_ONCE)
    with KafkaProducer(bootstrap_servers=root) as producer:
        for first in range(0, 2 * FILTER_ROWS, 512):
            keys = [f"{n}" for n in range(first, first + 512)]
            producer.send_arrow("t", pa.table({"key": keys, "value": keys})).get(60)
    assert filters(Path(root)) == 0

    upkeep(root)

    assert filters(Path(root)) > 0
    assert [r.offset for r in find_records("t", root, key="5000").records] == [5000]


@pytest.mark.slow
def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    filled(root)
    largest = max((tmp_path / "root").glob("t*/partition=0/*.parquet"), key=lambda path: path.stat().st_size)
    largest.write_bytes(b"PAR1" + bytes(1_000))

    with pytest.raises(CorruptRecordError, match=largest.name):
        find_records("t", root, key="1", partitions=[0])


def test_what_is_found_is_a_value(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    connect(root).create_topic("t", 1, {})

    found = find_records("t", root, key="1")

    assert dataclasses.replace(found, files=1) != found


def test_a_look_up_ends_at_its_bytes_and_goes_on_there(cluster: Cluster) -> None:
    """All records of a key, page by page, each of them once; whatever lies in one file."""
    cluster.create_topic("t", 2, {})
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        for first in (0, 20):
            values = [b"%06d" % n + bytes(1_000) for n in range(first, first + 20)]
            table = {"key": [b"k", b"j"] * 10, "value": values, "partition": [n % 4 // 2 for n in range(20)]}
            times = pa.array(range(first, first + 20), pa.int64())
            producer.send_arrow("t", pa.table({**table, "timestamp": times})).get(60)

    pages = [find_records("t", cluster, key="k", max_bytes=5_000)]
    while not pages[-1].complete:
        pages.append(find_records("t", cluster, key="k", max_bytes=5_000, below=pages[-1].following))

    found = [int((record.value or b"")[:6]) for page in pages for record in page.records]
    assert found == list(range(38, -1, -2))
    assert max(len(page.records) for page in pages) < 10
    assert pages[-1].following == {0: 0, 1: 0}


@pytest.mark.slow
def test_a_file_that_is_full_of_a_key_does_not_fill_the_memory(tmp_path: Path) -> None:
    """Only as much of it is kept as the look-up may give."""
    root = str(tmp_path / "root")
    connect(root).create_topic("t", 1, {})
    with KafkaProducer(bootstrap_servers=root) as producer:
        producer.send_arrow("t", pa.table({"key": ["k"] * 40_000, "value": [bytes(1_000)] * 40_000})).get(60)
    find_records("t", root, key="k", limit=3)

    before = pa.total_allocated_bytes()
    tracemalloc.start()
    found = find_records("t", root, key="k", limit=3, max_bytes=1_000_000)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert [record.offset for record in found.records] == [39_999, 39_998, 39_997]
    assert not found.complete
    assert most < 8_000_000
    assert pa.total_allocated_bytes() - before < 8_000_000


def test_a_look_up_ends_when_its_time_is_over(tmp_path: Path) -> None:
    """With what it has found, and the place where another one goes on."""
    clock = ManualClock()
    cluster = MemoryCluster(clock=clock)
    cluster.create_topic("t", 1, {})
    with KafkaProducer(bootstrap_servers=cluster, clock=clock) as producer:
        for n in range(4):
            producer.send("t", b"%d" % n, key=b"k").get(60)

    none = find_records("t", cluster, key="k", timeout_ms=0, clock=clock)
    rest = find_records("t", cluster, key="k", below=none.following, clock=clock)

    assert (none.records, none.complete, none.late) == ([], False, True)
    assert [record.offset for record in rest.records] == [3, 2, 1, 0]
    assert (rest.complete, rest.late) == (True, False)
