"""What `TopicLog.append` promises, over the log in memory and the log on Delta tables."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from kafkalike.errors import (
    IllegalArgumentError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumberError,
    UnknownTopicOrPartitionError,
    UnsupportedCodecError,
)
from kafkalike.log.topic.record_rules import MAX_TIMESTAMP_MS, RECORD_OVERHEAD, record_size
from kafkalike.model.record_batch import Headers, RecordBatch, TxnId
from tests.tools.partitions import partition_records
from tests.tools.records import ANY_TIME, batch

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.chunk import ChunkColumns
    from kafkalike.log.topic.topic_log import TopicLog

MIB = 1024 * 1024


def spread(*partitions: int) -> RecordBatch:
    """A batch whose values say at which place of it they stood."""
    made = RecordBatch()
    for place, partition in enumerate(partitions):
        made.add(partition, b"k", str(place).encode(), 1_000 + place)
    return made


def one(key: bytes | None, value: bytes | None, headers: Headers | None = None, at: int = 1_000) -> RecordBatch:
    made = RecordBatch()
    made.add(0, key, value, at, headers)
    return made


def records(log: TopicLog, partition: int = 0) -> list[tuple[int, bytes | None]]:
    """Offsets and values of a partition, read to its end as it is now."""
    log.refresh()
    return partition_records(log, partition)


def first(log: TopicLog) -> ChunkColumns:
    log.refresh()
    chunk = log.reader(0, 0).read(MIB)
    assert chunk is not None
    return chunk.columns()


@pytest.fixture
def log(log_cluster: Cluster) -> TopicLog:
    """The log of a topic with 3 partitions."""
    log_cluster.create_topic("orders", 3, {})
    return log_cluster.log("orders")


# --- offsets -----------------------------------------------------------------------------------


def test_a_topic_begins_empty_at_offset_zero(log: TopicLog) -> None:
    """Log start and end are 0 and there is nothing to read."""
    assert [(log.log_start(p), log.log_end(p)) for p in range(3)] == [(0, 0)] * 3
    assert log.reader(0, 0).read(MIB) is None
    assert list(log.segments(0)) == []


def test_offsets_are_dense_and_go_on_from_the_log_end(log: TopicLog) -> None:
    """Each append takes the next run of each partition, in the order of the batch."""
    once = log.append(spread(0, 2, 0, 0))
    again = log.append(spread(2, 0))

    assert dict(once.ranges) == {0: range(3), 2: range(1)}
    assert dict(again.ranges) == {0: range(3, 4), 2: range(1, 2)}
    assert records(log, 0) == [(0, b"0"), (1, b"2"), (2, b"3"), (3, b"1")]
    assert records(log, 1) == []
    assert records(log, 2) == [(0, b"1"), (1, b"0")]


def test_versions_of_appends_rise(log: TopicLog) -> None:
    """A later append has a higher version."""
    versions = [log.append(batch(b"v")).version for _ in range(3)]

    assert versions == sorted(set(versions))


def test_another_handle_sees_an_append_after_a_refresh(log_cluster: Cluster, log: TopicLog) -> None:
    """What one handle wrote, another one reads once it has looked."""
    other = log_cluster.log("orders")

    log.append(batch(b"a"))

    assert records(other) == [(0, b"a")]


def test_two_handles_number_as_one(log_cluster: Cluster, log: TopicLog) -> None:
    """A handle that has not looked for a while does not give out offsets again."""
    other = log_cluster.log("orders")

    log.append(batch(b"a", b"b"))
    done = other.append(batch(b"c"))

    assert dict(done.ranges) == {0: range(2, 3)}


@pytest.mark.slow
def test_appends_of_eight_threads_lose_nothing_and_double_nothing(log_cluster: Cluster, log: TopicLog) -> None:
    """Every record is there once, offsets are dense, and each thread's records keep their order."""
    ranges: list[range] = []
    failed: list[BaseException] = []

    def produce(name: int) -> None:
        try:
            own = log if name % 2 else log_cluster.log("orders")
            for turn in range(5):
                done = own.append(batch(f"{name}:{turn}:0".encode(), f"{name}:{turn}:1".encode()))
                ranges.append(done.ranges[0])
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            failed.append(error)

    threads = [threading.Thread(target=produce, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = records(log)
    assert not failed
    assert [offset for offset, _ in found] == list(range(80))
    assert sorted(offset for run in ranges for offset in run) == list(range(80))
    for name in range(8):
        own_values = [v for _, v in found if v is not None and v.startswith(f"{name}:".encode())]
        assert own_values == [f"{name}:{turn}:{at}".encode() for turn in range(5) for at in range(2)]


# --- all or nothing ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ((1, b"k", b"x" * MIB, 1_000), MessageSizeTooLargeError),
        ((1, b"k", b"v", -1), InvalidTimestampError),
        ((1, b"k", b"v", MAX_TIMESTAMP_MS + 1), InvalidTimestampError),
        ((3, b"k", b"v", 1_000), UnknownTopicOrPartitionError),
        ((-1, b"k", b"v", 1_000), UnknownTopicOrPartitionError),
    ],
    ids=["too large", "negative time", "time beyond year 9999", "partition above", "partition below"],
)
def test_one_bad_record_keeps_the_whole_batch_out(
    log: TopicLog, bad: tuple[int, bytes, bytes, int], error: type[KafkaError]
) -> None:
    """A batch over several partitions with one record that the topic does not take adds nothing anywhere."""
    made = spread(0, 1, 2)
    made.add(*bad)

    with pytest.raises(error):
        log.append(made)

    log.refresh()
    assert [log.log_end(p) for p in range(3)] == [0, 0, 0]


def test_an_empty_batch_is_refused(log: TopicLog) -> None:
    """There is nothing an append of nothing could return."""
    with pytest.raises(IllegalArgumentError):
        log.append(RecordBatch())


def test_a_codec_that_does_not_exist_is_refused(log: TopicLog) -> None:
    """The name is checked before anything is written."""
    with pytest.raises(UnsupportedCodecError):
        log.append(batch(b"v"), codec="brotli")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_gives_the_records_back(log: TopicLog, codec: str) -> None:
    """Kafka's five codecs."""
    log.append(batch(b"a" * 1000, None, b""), codec=codec)

    assert records(log) == [(0, b"a" * 1000), (1, None), (2, b"")]


# --- what a record may hold --------------------------------------------------------------------


def test_null_and_empty_bytes_are_two_things(log: TopicLog) -> None:
    """For keys and for values."""
    log.append(one(None, b""))
    log.append(one(b"", None))

    columns = first(log)
    assert list(zip(columns.keys, columns.values, strict=True)) == [(None, b""), (b"", None)]


def test_any_bytes_are_kept(log: TopicLog) -> None:
    """Keys and values that are no UTF-8, and all 256 bytes."""
    log.append(one(b"\xff\xfe\x00\xc3", bytes(range(256))))

    columns = first(log)
    assert (columns.keys, columns.values) == ([b"\xff\xfe\x00\xc3"], [bytes(range(256))])


def test_headers_keep_order_and_repeats(log: TopicLog) -> None:
    """A header may come twice, with an empty value or none."""
    headers = [("b", b"1"), ("a", None), ("b", b""), ("", b"\xff"), ("é", b"2")]

    log.append(one(b"k", b"v", headers))

    assert first(log).headers == [headers]


def test_no_headers_and_an_empty_list_are_the_same(log: TopicLog) -> None:
    """As in Kafka, where a record without headers has an empty list of them."""
    made = one(b"k", b"v", [])
    made.add(0, b"k", b"v", 1_000, None)

    log.append(made)

    assert first(log).headers is None


def test_records_with_and_without_headers_share_a_batch(log: TopicLog) -> None:
    """The one without has none."""
    made = one(b"k", b"v", [("a", b"1")])
    made.add(0, b"k", b"v", 1_000, None)

    log.append(made)

    assert first(log).headers == [[("a", b"1")], []]


def test_a_value_of_ten_mebibytes_is_kept_where_the_topic_allows_it(log_cluster: Cluster) -> None:
    """`max.message.bytes` is the only limit."""
    log_cluster.create_topic("big", 1, {"max.message.bytes": str(11 * MIB)})
    log = log_cluster.log("big")
    value = bytes(range(256)) * (10 * MIB // 256)

    log.append(one(b"k", value))

    assert records(log) == [(0, value)]


# --- topic settings ----------------------------------------------------------------------------


def test_a_record_may_have_exactly_max_message_bytes(log_cluster: Cluster) -> None:
    """Key, value and headers count, with Kafka's overhead of a record alone in its batch."""
    limit = RECORD_OVERHEAD + 10
    log_cluster.create_topic("small", 1, {"max.message.bytes": str(limit)})
    log = log_cluster.log("small")

    log.append(one(b"kkk", b"vvv", [("hé", b"v")]))  # 3 + 3 + 3 + 1 = 10

    assert record_size(b"kkk", b"vvv", [("hé", b"v")]) == limit
    with pytest.raises(MessageSizeTooLargeError):
        log.append(one(b"kkk", b"vvv", [("hé", b"vv")]))
    with pytest.raises(MessageSizeTooLargeError):
        log.append(one(None, b"v" * 11))


def test_times_from_the_epoch_to_the_end_of_year_9999_are_exact(log_cluster: Cluster) -> None:
    """To the millisecond, also where a nanosecond count would overflow."""
    log_cluster.create_topic("orders", 3, ANY_TIME)
    log = log_cluster.log("orders")
    times = [0, 1, 999, 1_000, 4_102_444_800_001, 9_223_372_036_854, 9_223_372_036_855, MAX_TIMESTAMP_MS]
    made = RecordBatch()
    for at in times:
        made.add(0, b"k", b"v", at)

    log.append(made)

    assert first(log).timestamps == times


def test_append_time_replaces_the_producers_time(log_cluster: Cluster) -> None:
    """With LogAppendTime each record has the time of the append, which `append` returns."""
    log_cluster.create_topic("times", 1, {"message.timestamp.type": "LogAppendTime"})
    log = log_cluster.log("times")

    done = log.append(batch(b"a", b"b", at_ms=5))

    columns = first(log)
    assert columns.timestamps == [done.append_time_ms] * 2
    assert columns.timestamp_types == [1, 1]
    assert done.append_time_ms > 5


def test_create_time_keeps_the_producers_time(log: TopicLog) -> None:
    """The default."""
    log.append(batch(b"a", at_ms=5))

    columns = first(log)
    assert (columns.timestamps, columns.timestamp_types) == ([5], [0])


@pytest.mark.parametrize(("setting", "at"), [("before", 0), ("after", MAX_TIMESTAMP_MS)])
def test_a_time_too_far_from_the_append_is_refused(log_cluster: Cluster, setting: str, at: int) -> None:
    """`message.timestamp.before.max.ms` and `…after.max.ms` count from the time of the append."""
    log_cluster.create_topic("times", 1, {f"message.timestamp.{setting}.max.ms": "3600000"})
    log = log_cluster.log("times")

    with pytest.raises(InvalidTimestampError):
        log.append(batch(b"v", at_ms=at))


def test_a_compacted_topic_needs_keys(log_cluster: Cluster) -> None:
    """An empty key is a key; null is none."""
    log_cluster.create_topic("latest", 1, {"cleanup.policy": "compact"})
    log = log_cluster.log("latest")

    log.append(one(b"", b"v"))

    with pytest.raises(InvalidRecordError):
        log.append(one(None, b"v"))


# --- reruns ------------------------------------------------------------------------------------


def test_a_rerun_adds_nothing_and_finds_its_offsets(log: TopicLog) -> None:
    """The same application and version: where the records were put the first time."""
    log.append(batch(b"before"))
    done = log.append(spread(0, 1, 0), txn=TxnId("job", 1))
    log.append(batch(b"after"))

    rerun = log.append(spread(0, 1, 0), txn=TxnId("job", 1))

    assert (rerun.duplicate, dict(rerun.ranges)) == (True, {0: range(1, 3), 1: range(1)})
    assert (rerun.version, rerun.append_time_ms) == (done.version, done.append_time_ms)
    assert not done.duplicate
    assert len(records(log)) == 4


def test_a_rerun_through_another_handle_is_recognised(log_cluster: Cluster, log: TopicLog) -> None:
    """A process that starts again knows nothing of the first run."""
    log.append(batch(b"a"), txn=TxnId("job", 0))

    rerun = log_cluster.log("orders").append(batch(b"a"), txn=TxnId("job", 0))

    assert rerun.duplicate


def test_an_older_version_is_a_rerun_with_its_own_offsets(log: TopicLog) -> None:
    """Not those of the newest version."""
    log.append(batch(b"a"), txn=TxnId("job", 1))
    log.append(batch(b"b"), txn=TxnId("job", 2))

    rerun = log.append(batch(b"a"), txn=TxnId("job", 1))

    assert (rerun.duplicate, dict(rerun.ranges)) == (True, {0: range(1)})


def test_a_write_that_another_one_of_its_name_came_before_is_refused(log: TopicLog) -> None:
    """Two jobs of one name that have looked before either has written; the same write again is a rerun."""
    log.append(batch(b"a"), txn=TxnId("job", 3, after=-1))

    with pytest.raises(OutOfOrderSequenceNumberError, match="another writer wrote version 3 of 'job'"):
        log.append(batch(b"b"), txn=TxnId("job", 5, after=-1))

    assert log.append(batch(b"a"), txn=TxnId("job", 3, after=-1)).duplicate
    assert not log.append(batch(b"c"), txn=TxnId("job", 5, after=3)).duplicate
    assert len(records(log)) == 2


def test_a_version_below_the_latest_that_was_never_written_is_refused(log: TopicLog) -> None:
    """A counter that began anew, or two jobs of one name: taking it for a rerun would lose its records in silence."""
    log.append(batch(b"b"), txn=TxnId("job", 5))

    with pytest.raises(OutOfOrderSequenceNumberError, match="has written version 5, and the log shows no version 3"):
        log.append(batch(b"a"), txn=TxnId("job", 3))

    assert len(records(log)) == 1


def test_a_newer_version_and_another_application_are_no_reruns(log: TopicLog) -> None:
    """Each application counts for itself."""
    log.append(batch(b"a"), txn=TxnId("job", 1))

    newer = log.append(batch(b"b"), txn=TxnId("job", 2))
    other = log.append(batch(b"c"), txn=TxnId("job2", 1))

    assert (newer.duplicate, other.duplicate) == (False, False)
    assert len(records(log)) == 3


def test_a_rerun_is_a_rerun_also_when_the_topic_has_become_stricter(log_cluster: Cluster, log: TopicLog) -> None:
    """The records are in the log already, so today's limits do not matter."""
    log.append(batch(b"a" * 100), txn=TxnId("job", 1))
    log_cluster.set_configs("orders", {"max.message.bytes": "80"})

    rerun = log.append(batch(b"a" * 100), txn=TxnId("job", 1))

    assert rerun.duplicate
