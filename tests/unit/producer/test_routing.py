"""Routing of whole columns: the same partitions and refusals as record by record."""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.admin.testing import ManualClock
from kafkalike.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.topic.chunk import HEADERS_TYPE
from kafkalike.log.topic.column_rules import RUN, ColumnRouter, Rules
from kafkalike.log.topic.record_rules import MAX_TIMESTAMP_MS, check_batch, record_size
from kafkalike.model.config.topic_config import TopicConfig
from kafkalike.model.murmur2 import partition_for_key
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.topic import TopicInfo
from kafkalike.storage.arrays import binaries

Headers: TypeAlias = "list[tuple[str, bytes | None]]"
Row: TypeAlias = "tuple[int | None, bytes | None, bytes | None, int | None, Headers | None]"
"""Partition, key, value, timestamp in ms, headers."""

NOW = 1_700_000_000_000
CLOCK = ManualClock(NOW / 1000)
INFO = TopicInfo(name=TopicName("t"), topic_id=TopicId("id"), num_partitions=5, configs={}, location="t")

keys = st.one_of(st.none(), st.binary(max_size=12))
values = st.one_of(st.none(), st.binary(max_size=40))
times = st.one_of(st.none(), st.integers(-5, 5), st.integers(NOW - 20, NOW + 20), st.just(MAX_TIMESTAMP_MS + 1))
headers = st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=9)))))
records = st.lists(st.tuples(st.one_of(st.none(), st.integers(-1, 5)), keys, values, times, headers), min_size=1)
settings = st.fixed_dictionaries(
    {},
    optional={
        "max.message.bytes": st.sampled_from(["90", "110", "1048588"]),
        "message.timestamp.before.max.ms": st.sampled_from(["10", "9223372036854775807"]),
        "message.timestamp.after.max.ms": st.sampled_from(["10", "9223372036854775807"]),
        "message.timestamp.type": st.sampled_from(["CreateTime", "LogAppendTime"]),
        "cleanup.policy": st.sampled_from(["delete", "compact"]),
    },
)


def config_of(properties: dict[str, str]) -> TopicConfig:
    return TopicConfig.from_properties(properties)


def routed(rules: Rules, batch: pa.RecordBatch) -> pa.Table:
    """The records of the first task's only batch, with their partitions."""
    return ColumnRouter(rules, 0).routed(pa.Table.from_batches([batch]))


def columns(rows: list[Row]) -> pa.RecordBatch:
    """Rows as Spark hands them over."""
    partition, key, value, time, header = zip(*rows, strict=True)
    micros = [None if t is None else int(t) * 1000 for t in time]
    lists = [[{"key": k, "value": v} for k, v in h or ()] for h in header]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(partition, pa.int32()),
            pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC")),
            pa.array(key, pa.binary()),
            pa.array(value, pa.binary()),
            pa.array(lists, HEADERS_TYPE),
            pa.array([h is not None for h in header]),
        ],
        ["partition", "timestamp", "key", "value", "headers", "has_headers"],
    )


def one_by_one(rows: list[Row], config: TopicConfig) -> type[KafkaError] | None:
    """The first rule that `check_batch` finds broken by any record, in the order of the rules."""
    broken: set[type[KafkaError]] = set()
    for partition, key, value, time, header in rows:
        record = RecordBatch()
        record.add(0 if partition is None else partition, key, value, NOW if time is None else time, header)
        try:
            check_batch(record, INFO, config, NOW)
        except KafkaError as error:
            broken.add(type(error))
        if key is None and config.compacted:
            broken.add(InvalidRecordError)
        if record_size(key, value, header) > config.max_message_bytes:
            broken.add(MessageSizeTooLargeError)
    order = [UnknownTopicOrPartitionError, MessageSizeTooLargeError, InvalidTimestampError, InvalidRecordError]
    return next((error for error in order if error in broken), None)


@given(records, settings)
def test_columns_are_refused_exactly_when_one_of_their_records_is(rows: list[Row], properties: dict[str, str]) -> None:
    """By the same error as a producer's batch of it."""
    config = config_of(properties)
    rules = Rules.of(INFO.num_partitions, config, CLOCK, 0)
    expected = one_by_one(rows, config)

    if expected is None:
        table = routed(rules, columns(rows))
        assert table.num_rows == len(rows)
    else:
        with pytest.raises(expected):
            routed(rules, columns(rows))


@given(st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 4)), st.binary(max_size=70)), min_size=1, max_size=200))
def test_a_record_goes_where_it_says_or_where_its_key_says(rows: list[tuple[int | None, bytes]]) -> None:
    """Kafka's rule, key by key."""
    batch = pa.RecordBatch.from_arrays(
        [pa.array([p for p, _ in rows], pa.int32()), binaries([k for _, k in rows]), binaries([None] * len(rows))],
        ["partition", "key", "value"],
    )

    table = routed(Rules.of(INFO.num_partitions, config_of({}), CLOCK, 0), batch)

    assert table.column("partition").to_pylist() == [partition_for_key(k, 5) if p is None else p for p, k in rows]


def test_records_without_key_share_a_partition_in_runs_that_go_on_across_batches() -> None:
    """Each task begins one partition further."""
    batch = pa.RecordBatch.from_arrays([binaries([b"v"] * (RUN + 1))], ["value"])

    router = ColumnRouter(Rules.of(INFO.num_partitions, config_of({}), CLOCK, 4), 2)
    tables = [router.routed(pa.Table.from_batches([batch])) for _ in range(2)]

    found = [p for table in tables for p in table.column("partition").to_pylist()]
    assert found == [1] * RUN + [2] * RUN + [3] * 2


def test_a_header_without_key_is_refused() -> None:
    """Kafka's headers have names."""
    headers = pa.array([[{"key": None, "value": b"x"}]], HEADERS_TYPE)
    batch = pa.RecordBatch.from_arrays(
        [binaries([b"v"]), headers, pa.array([True])], ["value", "headers", "has_headers"]
    )

    with pytest.raises(InvalidRecordError, match="header without key"):
        routed(Rules.of(INFO.num_partitions, config_of({}), CLOCK, 0), batch)
