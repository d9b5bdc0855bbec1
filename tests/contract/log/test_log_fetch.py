"""What readers and `refresh` promise, over the log in memory and the log on Delta tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalike.errors import OffsetOutOfRangeError
from kafkalike.model.record_batch import RecordBatch
from tests.tools.records import batch

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.chunk import Chunk
    from kafkalike.log.topic.reader import PartitionReader
    from kafkalike.log.topic.topic_log import TopicLog

MIB = 1024 * 1024


def numbers(count: int) -> RecordBatch:
    return batch(*(str(n).encode() for n in range(count)))


def chunks(reader: PartitionReader, max_bytes: int) -> list[Chunk]:
    found = []
    while (chunk := reader.read(max_bytes)) is not None:
        found.append(chunk)
    return found


def values(read: list[Chunk]) -> list[bytes | None]:
    return [value for chunk in read for value in chunk.columns().values]


@pytest.fixture
def log(log_cluster: Cluster) -> TopicLog:
    """The log of a topic with 2 partitions and room for large records."""
    log_cluster.create_topic("orders", 2, {"max.message.bytes": str(16 * MIB)})
    return log_cluster.log("orders")


# --- reading on --------------------------------------------------------------------------------


def test_a_reader_moves_past_what_it_returned(log: TopicLog) -> None:
    """Its position is the next offset to be read, and so is the chunk's `next_offset`."""
    log.append(batch(b"a", b"b", b"c"))
    log.refresh()
    reader = log.reader(0, 1)

    chunk = reader.read(MIB)

    assert chunk is not None
    assert chunk.columns().values == [b"b", b"c"]
    assert (reader.position, chunk.next_offset, chunk.partition) == (3, 3, 0)
    assert reader.read(MIB) is None


def test_a_reader_at_the_log_end_goes_on_when_records_arrive(log: TopicLog) -> None:
    """The same reader, after a refresh of the log."""
    reader = log.reader(0, 0)
    assert reader.read(MIB) is None

    log.append(batch(b"a"))
    log.refresh()

    assert values(chunks(reader, MIB)) == [b"a"]


def test_a_reader_sees_nothing_before_the_refresh(log_cluster: Cluster, log: TopicLog) -> None:
    """What another handle appended is there from the next `refresh` on."""
    reader = log.reader(0, 0)

    log_cluster.log("orders").append(batch(b"a"))

    assert reader.read(MIB) is None
    log.refresh()
    assert values(chunks(reader, MIB)) == [b"a"]


def test_partitions_are_read_apart(log: TopicLog) -> None:
    """A reader gives the records of its partition only."""
    log.append(batch(b"zero"))
    log.append(batch(b"one", partition=1))
    log.refresh()

    assert values(chunks(log.reader(0, 0), MIB)) == [b"zero"]
    assert values(chunks(log.reader(1, 0), MIB)) == [b"one"]


@pytest.mark.slow
def test_many_small_segments_are_read_in_order(log: TopicLog) -> None:
    """More of them than one chunk joins."""
    for n in range(150):
        log.append(batch(str(n).encode()))
    log.refresh()

    read = chunks(log.reader(0, 0), MIB)

    assert values(read) == [str(n).encode() for n in range(150)]
    assert len(log.segments(0)) == 150


@pytest.mark.parametrize("start", [0, 1, 9_999, 10_000, 29_999])
def test_a_reader_begins_anywhere_in_a_large_segment(log: TopicLog, start: int) -> None:
    """Wherever the position falls, the next record is the one at it."""
    log.append(numbers(30_000))
    log.refresh()

    read = chunks(log.reader(0, start), MIB)

    assert values(read) == [str(n).encode() for n in range(start, 30_000)]


# --- how much ----------------------------------------------------------------------------------


def test_one_record_comes_however_little_is_asked_for(log: TopicLog) -> None:
    """With one byte, a record at a time."""
    log.append(batch(b"a" * 100, b"b" * 100, b"c" * 100))
    log.refresh()
    reader = log.reader(0, 0)

    read = chunks(reader, 1)

    assert [len(chunk) for chunk in read] == [1, 1, 1]
    assert values(read) == [b"a" * 100, b"b" * 100, b"c" * 100]


def test_a_read_stops_near_max_bytes(log: TopicLog) -> None:
    """Within one record of it, across segments as well."""
    for _ in range(3):
        log.append(batch(*[b"x" * 1_000] * 40))
    log.refresh()

    read = chunks(log.reader(0, 0), 10_000)

    assert len(values(read)) == 120
    assert all(5 <= len(chunk) <= 11 for chunk in read[:-1])


def test_a_small_record_does_not_wait_behind_a_large_one(log: TopicLog) -> None:
    """Records of very different sizes: no chunk is larger than asked for by more than one record."""
    log.append(batch(b"s", b"s", b"L" * 3 * MIB, b"s", b"L" * 3 * MIB))
    log.refresh()

    read = chunks(log.reader(0, 0), 100_000)

    sizes = [[len(value or b"") for value in chunk.columns().values] for chunk in read]
    assert all(sum(chunk) <= 100_000 or sum(chunk[:-1]) <= 100_000 for chunk in sizes)
    assert [size for chunk in sizes for size in chunk] == [1, 1, 3 * MIB, 1, 3 * MIB]


@pytest.mark.slow
def test_equal_large_values_do_not_come_all_at_once(log: TopicLog) -> None:
    """A file of one value repeated is small; its records are not."""
    log.append(batch(*[b"x" * 20_000] * 3_000))
    log.refresh()

    read = chunks(log.reader(0, 0), MIB)

    assert max(chunk.num_bytes for chunk in read) < 2 * MIB
    assert sum(len(chunk) for chunk in read) == 3_000


@pytest.mark.slow
def test_ten_mebibyte_records_come_one_by_one(log: TopicLog) -> None:
    """A large record is read alone, not with 63 others."""
    log.append(batch(*[bytes([n]) * (10 * MIB) for n in range(3)]))
    log.refresh()

    read = chunks(log.reader(0, 0), MIB)

    assert [len(chunk) for chunk in read] == [1, 1, 1]


# --- positions out of range --------------------------------------------------------------------


def test_a_position_above_the_log_end_is_out_of_range(log: TopicLog) -> None:
    """Said at the first read, with the offsets there are."""
    log.append(batch(b"a"))
    log.refresh()
    reader = log.reader(0, 2)

    with pytest.raises(OffsetOutOfRangeError) as caught:
        reader.read(MIB)

    assert (caught.value.offsets, caught.value.live) == ({"orders-0": 2}, {"orders-0": range(1)})


def test_a_negative_position_is_out_of_range(log: TopicLog) -> None:
    """Below any log start."""
    with pytest.raises(OffsetOutOfRangeError):
        log.reader(0, -1).read(MIB)


def test_a_position_below_the_log_start_says_who_moved_it(log_cluster: Cluster, log: TopicLog) -> None:
    """The reason and the run are in the message; the position stays."""
    log.append(numbers(10))
    log_cluster.move_log_start("orders", {0: 4}, "retention", "run-7")
    log.refresh()
    reader = log.reader(0, 3)

    with pytest.raises(OffsetOutOfRangeError, match="log start moved to 4 by retention, run run-7") as caught:
        reader.read(MIB)

    assert caught.value.live == {"orders-0": range(4, 10)}
    assert reader.position == 3


def test_a_reader_that_the_log_start_has_passed_is_out_of_range(log_cluster: Cluster, log: TopicLog) -> None:
    """Also in the middle of a segment that it has open."""
    log.append(numbers(10))
    log.refresh()
    reader = log.reader(0, 0)
    assert reader.read(1) is not None

    log_cluster.move_log_start("orders", {0: 5}, "delete_records", "r")
    log.refresh()

    with pytest.raises(OffsetOutOfRangeError):
        reader.read(MIB)


def test_records_below_the_log_start_are_not_given_out(log_cluster: Cluster, log: TopicLog) -> None:
    """A reader at the log start begins with the record there, wherever segments begin."""
    log.append(numbers(10))
    log_cluster.move_log_start("orders", {0: 4}, "retention", "r")
    log.refresh()

    assert log.log_start(0) == 4
    assert values(chunks(log.reader(0, 4), MIB)) == [b"4", b"5", b"6", b"7", b"8", b"9"]


def test_a_log_whose_start_is_its_end_is_empty_and_goes_on(log_cluster: Cluster, log: TopicLog) -> None:
    """Offsets are not given out again."""
    log.append(numbers(3))
    log_cluster.move_log_start("orders", {0: 3}, "retention", "r")
    log.refresh()

    assert (log.log_start(0), log.log_end(0), list(log.segments(0))) == (3, 3, [])
    assert log.reader(0, 3).read(MIB) is None
    assert dict(log.append(batch(b"a")).ranges) == {0: range(3, 4)}


@pytest.mark.parametrize(("start", "found"), [(2, 4), (4, 4), (7, 7)])
def test_the_log_start_never_moves_back(log_cluster: Cluster, log: TopicLog, start: int, found: int) -> None:
    """Asking for less changes nothing."""
    log.append(numbers(10))
    log_cluster.move_log_start("orders", {0: 4}, "retention", "r")

    info = log_cluster.move_log_start("orders", {0: start}, "retention", "r2")

    assert info.log_start(0) == found


@pytest.mark.parametrize("start", [-1, 11])
def test_the_log_start_must_lie_in_the_log(log_cluster: Cluster, log: TopicLog, start: int) -> None:
    """Neither below 0 nor above the log end."""
    log.append(numbers(10))

    with pytest.raises(OffsetOutOfRangeError):
        log_cluster.move_log_start("orders", {0: start}, "retention", "r")


# --- segments ----------------------------------------------------------------------------------


def test_segments_cover_the_log(log_cluster: Cluster, log: TopicLog) -> None:
    """In offset order without holes; those wholly below the log start are left out."""
    for count in (3, 1, 2):
        log.append(numbers(count))
    log_cluster.move_log_start("orders", {0: 3}, "retention", "r")
    log.refresh()

    assert [(s.partition, s.start, s.stop, s.num_records) for s in log.segments(0)] == [(0, 3, 4, 1), (0, 4, 6, 2)]
    assert all(s.size_bytes > 0 and s.path for s in log.segments(0))
    assert sum(log_cluster.disk_usage("orders").values()) == sum(s.size_bytes for s in log.segments(0))


def test_the_last_append_is_known(log: TopicLog) -> None:
    """0 or the creation before it, then its time."""
    done = log.append(batch(b"a"))
    log.refresh()

    assert log.last_append_ms() >= done.append_time_ms
