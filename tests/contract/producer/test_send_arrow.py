"""`send_arrow` over every kind of cluster: tables of any tool in, the records that `send` would have written out."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from kafkalike.errors import (
    IllegalArgumentError,
    IllegalStateError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.topic.chunk import ChunkColumns
from kafkalike.model.partitioner import RoundRobinPartitioner, partition_for_key
from kafkalike.producer import KafkaProducer
from tests.tools.kinds import only_in_memory
from tests.tools.producers import producers


@pytest.fixture
def make(cluster: Cluster) -> Iterator[Callable[..., KafkaProducer]]:
    """Makes producers that are closed after the test."""
    with producers(cluster) as make:
        yield make


def stored(cluster: Cluster, partition: int = 0) -> ChunkColumns:
    """What a partition of the topic holds."""
    log = cluster.log("t")
    log.refresh()
    chunk = log.reader(partition, 0).read(1 << 30)
    return chunk.columns() if chunk is not None else ChunkColumns([], [], [], [], [], None)


def found_values(found: ChunkColumns) -> list[bytes | None]:
    return found.values  # noqa: PD011 - no pandas here


def sent_values(cluster: Cluster, partition: int = 0) -> list[bytes | None]:
    return found_values(stored(cluster, partition))


def records(**columns: Any) -> pa.Table:
    return pa.table(columns)


WEIRD = bytes(range(256))
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_all_columns_arrive_as_send_would_have_written_them(
    cluster: Cluster, make: Callable[..., KafkaProducer]
) -> None:
    """Bytes, nulls, headers with repeats, an empty list of headers, times cut to ms."""
    table = records(
        key=pa.array([b"k", None, b""], pa.binary()),
        value=pa.array([WEIRD, b"", None], pa.binary()),
        headers=pa.array([[{"key": "a", "value": WEIRD}, {"key": "a", "value": None}], [], None], HEADERS),
        partition=pa.array([0, 0, 0]),
        timestamp=pa.array([1_999_999, 5_000, None], pa.timestamp("us", "UTC")),
    )

    done = make(linger_ms=0).send_arrow("t", table).get(60)

    found = stored(cluster)
    assert (found.keys, found_values(found)) == ([b"k", None, b""], [WEIRD, b"", None])
    assert found.headers == [[("a", WEIRD), ("a", None)], [], []]
    assert found.timestamps[:2] == [1_999, 5]
    assert abs(found.timestamps[2] - datetime.now(UTC).timestamp() * 1000) < 600_000
    assert (done.topic, done.records, done.offsets, done.append_time_ms) == ("t", 3, {0: range(3)}, None)


@pytest.mark.parametrize(
    "table",
    [
        pa.record_batch({"key": ["a", "b"], "value": ["x", None]}),
        pa.table({"key": pa.array(["a", "b"]).dictionary_encode(), "value": pa.array(["x", None], pa.large_string())}),
        pl.DataFrame({"key": ["a", "b"], "value": [b"x", None]}),
        pl.DataFrame(
            {"key": pl.Series(["a", "b"], dtype=pl.Categorical), "value": pl.Series(["x", None], dtype=pl.Enum(["x"]))}
        ),
        pd.DataFrame({"key": ["a", "b"], "value": ["x", None]}, index=["r", "s"]),
        pd.DataFrame({"key": pd.Categorical(["a", "b"]), "value": pd.Categorical(["x", None])}),
        pa.chunked_array([pa.array([{"key": "a", "value": "x"}, {"key": "b", "value": None}])]),
    ],
    ids=[
        "record batch",
        "dictionary and large text",
        "polars",
        "polars categories",
        "pandas",
        "pandas categories",
        "array of structs",
    ],
)
def test_any_table_that_speaks_arrow_is_taken(cluster: Cluster, make: Callable[..., KafkaProducer], table: Any) -> None:
    """Text is written in UTF-8."""
    make().send_arrow("t", table).get(60)

    found = stored(cluster)
    assert (found.keys, found_values(found)) == ([b"a", b"b"], [b"x", None])


@pytest.mark.parametrize(
    "headers",
    [
        pl.Series([[{"key": "h", "value": b"1"}], None]),
        pl.Series([[{"value": b"1", "key": "h"}], []]),
        pa.array([[("h", b"1")], None], pa.map_(pa.string(), pa.binary())),
        pa.ListViewArray.from_arrays([0, 0], [1, 0], pa.array([{"key": "h", "value": b"1"}])),
    ],
    ids=["polars", "polars, other order", "map", "list view"],
)
def test_headers_of_any_layout_arrive(cluster: Cluster, make: Callable[..., KafkaProducer], headers: Any) -> None:
    values = ["x", "y"]
    table = pl.DataFrame({"value": values, "headers": headers}) if isinstance(headers, pl.Series) else None

    make().send_arrow("t", records(value=values, headers=headers) if table is None else table).get(60)

    assert stored(cluster).headers == [[("h", b"1")], []]


def test_records_go_where_send_sends_them(cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """By murmur2, for keys of one length and of many; a partition of one's own counts more."""
    cluster.create_topic("t", 5, {})
    keys = [b"%03d" % n for n in range(100)]
    mixed = [b"x" * n for n in range(1, 60)]
    producer = make()

    producer.send_arrow("t", records(key=pa.array(keys, pa.binary()), value=keys))
    producer.send_arrow("t", records(key=pa.array([None, *mixed], pa.binary())[1:], value=mixed))
    producer.send_arrow("t", records(key=["a", "a"], value=["own", "own"], partition=[4, 4])).get(60)

    for partition in range(5):
        expected = [k for k in [*keys, *mixed] if partition_for_key(k, 5) == partition]
        found = sent_values(cluster, partition)
        assert found == expected + [b"own"] * 2 * (partition == 4)


def test_records_without_key_take_turns(cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """In runs, as a sticky producer's batches would."""
    cluster.create_topic("t", 2, {})

    done = make().send_arrow("t", records(value=["v"] * 512)).get(60)

    assert done.offsets == {0: range(256), 1: range(256)}


def test_a_partitioner_of_ones_own_is_asked_for_each_record(
    cluster: Cluster, make: Callable[..., KafkaProducer]
) -> None:
    cluster.create_topic("t", 3, {})

    done = make(partitioner=RoundRobinPartitioner()).send_arrow("t", records(value=["v"] * 9)).get(60)

    assert {p: len(run) for p, run in done.offsets.items()} == {0: 3, 1: 3, 2: 3}


@pytest.mark.slow
def test_batches_and_records_keep_their_order(cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """Also those that linger."""
    producer = make(linger_ms=10_000)

    for n in range(4):
        producer.send("t", b"s%d" % n)
        producer.send_arrow("t", records(value=[f"a{n}", f"b{n}"]))
    producer.flush()

    assert sent_values(cluster) == [v for n in range(4) for v in (b"s%d" % n, b"a%d" % n, b"b%d" % n)]


def test_a_batch_larger_than_the_buffer_waits_until_it_is_empty(
    cluster: Cluster, make: Callable[..., KafkaProducer]
) -> None:
    producer = make(buffer_memory=1_000)

    sent = [producer.send_arrow("t", records(value=[str(n) * 100] * 20)) for n in range(3)]
    last = producer.send("t", b"last")

    assert [one.get(60).offsets for one in sent] == [{0: range(20)}, {0: range(20, 40)}, {0: range(40, 60)}]
    assert last.get(60).offset == 60


@only_in_memory("cluster")
@pytest.mark.parametrize(
    ("table", "error", "words"),
    [
        ("text", TypeError, "not str"),
        (records(value=pa.array([], pa.binary())), IllegalArgumentError, "no rows"),
        (records(key=["a"]), IllegalArgumentError, "needs a column 'value'"),
        (records(valu=["a"], value=["a"]), IllegalArgumentError, "did you mean 'value'"),
        (records(value=[1]), TypeError, "column 'value' must hold bytes or text"),
        (records(value=["a", None]), IllegalArgumentError, "row 1: a record needs a key or a value"),
        (records(value=["a"], partition=[-1]), IllegalArgumentError, "must not be negative"),
        (records(value=["a"], partition=[7]), IllegalArgumentError, "t-7 does not exist"),
        (records(value=["a"], partition=["0"]), TypeError, "whole numbers"),
        (records(value=["a"], timestamp=[-1]), InvalidTimestampError, "row 0"),
        (records(value=["a"], timestamp=[253_402_214_400_000]), InvalidTimestampError, "row 0"),
        (records(value=["a"], timestamp=pa.array([0], pa.timestamp("us"))), TypeError, "no time zone"),
        (records(value=["a"], timestamp=[0.5]), TypeError, "ms since the epoch"),
        (records(value=["a"], headers=pa.array([[{"key": None, "value": b""}]], HEADERS)), InvalidRecordError, "key"),
        (records(value=["a"], headers=["a=b"]), TypeError, "'headers' must hold lists"),
        (records(value=["v" * 2_000_000]), MessageSizeTooLargeError, "max_request_size"),
    ],
)
def test_what_is_no_record_is_refused_before_anything_is_queued(
    cluster: Cluster, make: Callable[..., KafkaProducer], table: Any, error: type[Exception], words: str
) -> None:
    cluster.create_topic("t", 1, {})
    producer = make()

    with pytest.raises(error, match=words):
        producer.send_arrow("t", table)

    producer.flush()
    assert sent_values(cluster) == []


@pytest.mark.parametrize(
    ("settings", "table", "error"),
    [
        ({"max.message.bytes": "300"}, {"value": ["a", "v" * 300, "b"]}, MessageSizeTooLargeError),
        (
            {"max.message.bytes": "300"},
            {
                "value": ["a"] * 3,
                "headers": pa.array([None, [{"key": "h", "value": b"v" * 300}], None], HEADERS),
            },
            MessageSizeTooLargeError,
        ),
        ({"cleanup.policy": "compact"}, {"key": ["a", None, "b"], "value": ["v"] * 3}, InvalidRecordError),
        (
            {"message.timestamp.after.max.ms": "1000"},
            {"value": ["v"] * 3, "timestamp": [None, 4_000_000_000_000, None]},
            InvalidTimestampError,
        ),
        (
            {"message.timestamp.before.max.ms": "100000"},
            {"value": ["v"] * 3, "timestamp": [None, 1, None]},
            InvalidTimestampError,
        ),
    ],
)
def test_a_record_that_the_topic_does_not_take_fails_its_whole_batch(
    cluster: Cluster,
    make: Callable[..., KafkaProducer],
    settings: dict[str, str],
    table: dict[str, Any],
    error: type[Exception],
) -> None:
    """And only that batch; the error names the record, or its time."""
    cluster.create_topic("t", 1, settings)
    producer = make()

    bad = producer.send_arrow("t", records(**table))
    good = producer.send("t", b"v", key=b"k")

    with pytest.raises(error):
        bad.get(60)
    assert "timestamp" in str(bad.exception) or "record 1 of the batch" in str(bad.exception)
    assert good.get(60).offset == 0


def test_a_topic_that_checks_schemas_checks_columns_too(cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    cluster.create_topic("t", 1, {"kafkalike.value.schema.validation": "true"})

    bad = make().send_arrow("t", records(value=[b"\0\0\0\0\7x", None, b"plain"], key=["a", "b", "c"]))

    with pytest.raises(InvalidRecordError, match="record 0 of the batch"):
        bad.get(60)
    assert make().send_arrow("t", records(key=["b"], value=pa.array([None], pa.binary()))).get(60).records == 1


def test_the_time_of_the_append_counts_where_the_topic_says_so(
    cluster: Cluster, make: Callable[..., KafkaProducer]
) -> None:
    cluster.create_topic("t", 1, {"message.timestamp.type": "LogAppendTime"})

    done = make().send_arrow("t", records(value=["a", "b"], timestamp=[1, 2])).get(60)

    found = stored(cluster)
    assert found.timestamps == [done.append_time_ms] * 2
    assert found.timestamp_types == [1, 1]


def test_a_transaction_takes_batches(cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """They are staged, and written or not with everything else."""
    cluster.create_topic("t", 1, {"max.message.bytes": "300"})
    producer = make(transactional_id="x")
    table = records(key=["k", None], value=["a", "b"], timestamp=[1, 2])
    with pytest.raises(IllegalStateError):
        producer.send_arrow("t", table)
    producer.init_transactions()

    producer.begin_transaction()
    producer.send_arrow("t", table)
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("t", b"first", timestamp_ms=0)
    staged = producer.send_arrow("t", table)
    producer.commit_transaction()
    producer.begin_transaction()
    producer.send_arrow("t", records(value=["v" * 400]))
    with pytest.raises(KafkaError):
        producer.commit_transaction()
    producer.abort_transaction()

    found = stored(cluster)
    assert (found_values(found), found.keys, found.timestamps) == (
        [b"first", b"a", b"b"],
        [None, b"k", None],
        [0, 1, 2],
    )
    assert staged.get(60).offsets == {}


def test_without_acknowledgements_the_future_is_done_at_once(
    cluster: Cluster, make: Callable[..., KafkaProducer]
) -> None:
    producer = make(acks=0)

    sent = producer.send_arrow("t", records(value=["a"]))

    assert sent.is_done
    assert sent.get().offsets == {}
    producer.flush()
    assert sent_values(cluster) == [b"a"]


def test_a_topic_that_is_gone_fails_the_batch_and_another_one_takes_the_next(
    cluster: Cluster, make: Callable[..., KafkaProducer]
) -> None:
    cluster.create_topic("t", 1, {})
    producer = make()
    producer.send_arrow("t", records(value=["a"])).get(60)
    cluster.delete_topic("t")

    with pytest.raises((KafkaError, UnknownTopicOrPartitionError)):
        producer.send_arrow("t", records(value=["b"])).get(60)

    producer.send_arrow("t", records(value=["c"])).get(60)
    assert sent_values(cluster) == [b"c"]


def test_callbacks_get_the_metadata_of_the_batch(cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    seen: list[object] = []
    producer = make()

    producer.send_arrow("t", records(value=["a", "b"])).add_callback(seen.append)
    producer.flush()

    assert [getattr(one, "offsets", None) for one in seen] == [{0: range(2)}]
