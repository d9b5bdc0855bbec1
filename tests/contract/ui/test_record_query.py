"""Records that the console finds: the same as a scan of all of them would give."""

import random
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalike.admin.testing import MemoryCluster
from kafkalike.connect import connect
from kafkalike.errors import UnknownTopicOrPartitionError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.topic.reader import PartitionReader
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.producer import KafkaProducer
from kafkalike.ui.record_query import Page, Question, at_time, browse, record_at
from tests.tools.upkeep import EAGER, ShiftedClock


@pytest.fixture
def filled(cluster: Cluster) -> Cluster:
    """300 records in three partitions: one a millisecond, in turn."""
    cluster.create_topic("t", 3, {})
    with KafkaProducer(bootstrap_servers=cluster, linger_ms=5) as producer:
        for at in range(300):
            producer.send(
                "t",
                key=f"k{at % 10}".encode(),
                value=f"value {at}".encode(),
                headers=[("number", str(at).encode())],
                partition=at % 3,
                timestamp_ms=1_700_000_000_000 + at,
            )
            if at % 60 == 59:
                producer.flush()
    return cluster


def found(cluster: Cluster, question: Question) -> Page:
    """The answer to a question."""
    log = cluster.log("t")
    log.refresh()
    return browse(log, question)


def numbers(page: Page) -> list[int]:
    """Which records they are."""
    return [int((record.value or b"").split()[1]) for record in page.records]


def test_newest_records_come_first_over_all_partitions(filled: Cluster) -> None:
    """By their time."""
    page = found(filled, Question(limit=5))

    assert numbers(page) == [299, 298, 297, 296, 295]
    assert page.records[0].headers == [("number", b"299")]


@pytest.mark.slow
@pytest.mark.parametrize("newest_first", [True, False])
def test_pages_give_each_record_once(filled: Cluster, *, newest_first: bool) -> None:
    """Until there are none left."""
    seen: list[int] = []
    page = found(filled, Question(limit=37, newest_first=newest_first))
    while True:
        seen += numbers(page)
        if not page.following:
            break
        page = found(filled, Question(limit=37, newest_first=newest_first, start=page.following))

    assert seen == (list(range(299, -1, -1)) if newest_first else list(range(300)))


def test_from_an_offset_and_from_a_time(filled: Cluster) -> None:
    """In one partition, and in all of them."""
    log = filled.log("t")
    log.refresh()
    start = at_time(log, [0, 1, 2], 1_700_000_000_000 + 290)

    assert numbers(found(filled, Question(partition=1, newest_first=False, start={1: 98}, limit=9))) == [295, 298]
    assert numbers(found(filled, Question(newest_first=False, start=start))) == list(range(290, 300))
    assert at_time(log, [0], 1_800_000_000_000) == {0: 100}


def expected(numbers: Sequence[int]) -> list[int]:
    """Newest first."""
    return sorted(numbers, reverse=True)


@pytest.mark.slow
def test_records_are_found_by_key_content_and_header(filled: Cluster) -> None:
    """Each alone, and together."""
    by_key = found(filled, Question(key=b"k7", limit=100))
    by_content = found(filled, Question(contains=b"value 12", limit=100))
    by_header = found(filled, Question(header=("number", b"29"), limit=100))
    all_at_once = found(filled, Question(key=b"k9", contains=b"29", header=("number", None), limit=100))

    assert numbers(by_key) == expected(range(7, 300, 10))
    assert numbers(by_content) == expected([12, *range(120, 130)])
    assert numbers(by_header) == expected([29, 129, 229, *range(290, 300)])
    assert numbers(all_at_once) == [299, 229, 129, 29]
    assert by_key.looked_at == 300


def test_a_search_ends_and_goes_on_where_it_stood(filled: Cluster) -> None:
    """A page costs no more than it may."""
    first = found(filled, Question(contains=b"value 1 ", most_looked_at=100))
    assert (numbers(first), first.looked_at) == ([], 100)

    second = found(filled, Question(contains=b"value 150", most_looked_at=100, start=first.following))
    assert numbers(second) == [150]


def test_one_record(filled: Cluster) -> None:
    """By its place; none outside the log."""
    log = filled.log("t")
    log.refresh()
    record = record_at(log, 2, 50)

    assert record is not None
    assert record.value == b"value 152"
    assert record_at(log, 2, 100) is None
    with pytest.raises(UnknownTopicOrPartitionError):
        record_at(log, 3, 0)
    with pytest.raises(UnknownTopicOrPartitionError):
        browse(log, Question(partition=9))


def test_records_below_the_log_start_are_not_shown(filled: Cluster) -> None:
    """Though their files may be there still."""
    filled.move_log_start("t", {0: 90, 1: 100, 2: 99}, "delete_records", "run")
    page = found(filled, Question(limit=100))

    assert numbers(page) == [299, *(at for at in range(297, 269, -1) if at % 3 == 0)]
    assert record_at(filled.log("t"), 0, 0) is None


@pytest.mark.slow
@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_pages_are_parts_of_one_merge(
    seed: int,
    newest_first: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the times: equal, falling, or far apart; and however few bytes a block or a page may have."""
    rng = random.Random(seed)
    cluster = MemoryCluster()
    cluster.create_topic("t", 5, {})
    rows: list[list[tuple[int, int]]] = [[] for _ in range(4)]
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        for at in range(120):
            partition, time = rng.randrange(4), 1_000 + rng.choice([0, 0, 1, at, 120 - at, rng.randrange(1000)])
            rows[partition].append((time, at))
            value = b"value %d " % at + b"x" * rng.choice([0, 10, 500])
            producer.send("t", value, partition=partition, timestamp_ms=time)
            if rng.random() < 0.2:
                producer.flush()
    expected, sign = [], -1 if newest_first else 1
    left = [run[::sign] for run in rows]
    while any(left):
        first = min((sign * run[0][0], at) for at, run in enumerate(left) if run)[1]
        expected.append(left[first].pop(0)[1])
    monkeypatch.setattr("kafkalike.ui.record_query.BLOCK_BYTES", rng.choice([1, 600, 10**6]))
    monkeypatch.setattr("kafkalike.ui.record_query.PAGE_BYTES", rng.choice([1, 700, 10**6]))
    monkeypatch.setattr("kafkalike.ui.record_query.BLOCK", rng.choice([1, 3, 500]))

    seen: list[int] = []
    start: Mapping[int, int] | None = None
    while start is None or start:
        limit, most = rng.randrange(1, 20), rng.randrange(1, 40)
        page = found(cluster, Question(limit=limit, newest_first=newest_first, start=start, most_looked_at=most))
        seen += numbers(page)
        start = page.following
    assert seen == expected


@pytest.mark.slow
def test_a_page_reads_few_of_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that hold its records, and perhaps one more."""
    cluster = MemoryCluster()
    cluster.create_topic("t", 300, {})
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        for at in range(300):
            producer.send("t", b"value %d" % at, partition=at, timestamp_ms=1_000 + 10 * at)
    log = cluster.log("t")
    log.refresh()
    read: list[int] = []
    reader = log.reader

    def counted(partition: int, at: int) -> PartitionReader:
        read.append(partition)
        return reader(partition, at)

    monkeypatch.setattr(log, "reader", counted)

    assert numbers(browse(log, Question(limit=4))) == [299, 298, 297, 296]
    assert numbers(browse(log, Question(limit=4, newest_first=False))) == [0, 1, 2, 3]
    assert len(read) <= 10


@pytest.mark.slow
def test_large_records_do_not_fill_the_memory(tmp_path: Path) -> None:
    """A page ends, and a block keeps what it may; the next page goes on."""
    cluster = connect(str(tmp_path))
    cluster.create_topic("t", 1, {"max.message.bytes": "2000000"})
    with KafkaProducer(bootstrap_servers=cluster, max_request_size=2_000_000) as producer:
        for at in range(80):
            producer.send("t", b"value %d " % at + bytes(1_000_000), timestamp_ms=at)
    seen: list[int] = []
    start: Mapping[int, int] | None = None
    pages = 0
    tracemalloc.start()
    while start is None or start:
        page = found(cluster, Question(limit=500, start=start))
        seen += numbers(page)
        start, pages = page.following, pages + 1
        del page
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == list(range(79, -1, -1))
    assert pages == 2
    assert peak < 130_000_000


def test_holes_of_a_compaction_are_no_end(tmp_path: Path) -> None:
    """Blocks without a record are passed over, and the newest and the oldest records are found all the same."""
    cluster = connect(str(tmp_path))
    cluster.create_topic("t", 1, EAGER)
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        for at in range(3000):
            producer.send("t", key=b"one" if at > 5 else b"%d" % at, value=f"value {at}".encode())
        producer.flush()
        producer.send("t", key=b"last", value=b"value 3000").get()
    clock = ShiftedClock()
    clock.ahead_ms = 10_000
    maintain(cluster, ["t"], clock=clock, works=["compaction"])

    assert numbers(found(cluster, Question(limit=5))) == [3000, 2999, 5, 4, 3]
    assert numbers(found(cluster, Question(limit=50, newest_first=False))) == [0, 1, 2, 3, 4, 5, 2999, 3000]


@pytest.mark.slow
@pytest.mark.parametrize("newest_first", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_search_ends_when_its_time_is_over_and_goes_on_there(filled: Cluster, *, newest_first: bool) -> None:
    """Each page gets on by at least one record, and together they see all of the last 60 once."""
    filled.move_log_start("t", dict.fromkeys(range(3), 80), "delete_records", "run")
    question = Question(most_seconds=0, newest_first=newest_first, contains=b"9")
    pages = [found(filled, question)]
    while pages[-1].following:
        pages.append(found(filled, replace(question, start=pages[-1].following)))

    seen = [number for page in pages for number in numbers(page)]
    assert sorted(seen) == [249, 259, 269, 279, 289, *range(290, 300)]
    assert len(pages) >= 60
    assert all(page.late and page.looked_at == 1 for page in pages[:-1])
