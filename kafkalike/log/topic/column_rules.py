"""Routing: records as Arrow columns in, the partition of each out, or the error for one that its topic does not take.

The rules of `record_rules` and of Kafka's default partitioner for whole columns. Spark hands its rows to Python as
Arrow batches anyway (`staging`), and NumPy does both in a fifth of the time that Column expressions took.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalike.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.topic.chunk import first_undecodable
from kafkalike.log.topic.record_rules import MAX_TIMESTAMP_MS, RECORD_OVERHEAD
from kafkalike.model.config.properties import LONG_MAX
from kafkalike.model.config.server_config import MAX_PARTITIONS
from kafkalike.model.murmur2 import partitions_of_slices
from kafkalike.storage.arrays import numbers

if TYPE_CHECKING:
    from kafkalike.model.clock import Clock
    from kafkalike.model.config.topic_config import TopicConfig

WAITING: Final = -1
"""Partition of records that get theirs when it is known how many the topic has."""

RUN: Final = 128
"""Consecutive records without key that share a partition, as a sticky producer's batches would fall."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a topic takes, and where records go in it; travels to Spark's Python workers."""

    num_partitions: int
    """Of the topic; where it `grows`, the fewest that it gets."""
    first_turn: int
    """Partition at which the first task's records without key begin; another one for each append spreads small ones."""
    max_bytes: int
    min_time_ms: int
    max_time_ms: int
    now_ms: int
    """What the limits of time count from; 0 where there are none."""
    compacted: bool
    schema_ids: tuple[tuple[str, frozenset[int]], ...] = ()
    """Ids of the schemas that `key` or `value` may have, where the topic checks them."""
    grows: bool = False
    """The topic does not exist, and is created with as many partitions as its records name."""

    @classmethod
    def of(
        cls,
        num_partitions: int,
        config: TopicConfig,
        clock: Clock,
        first_turn: int,
        schema_ids: tuple[tuple[str, frozenset[int]], ...] = (),
    ) -> Rules:
        """The rules of a topic now."""
        before, after = config.timestamp_before_max_ms, config.timestamp_after_max_ms
        free = config.log_append_time or before == after == LONG_MAX
        now_ms = 0 if free else clock.now_ms()
        return cls(
            num_partitions=num_partitions,
            first_turn=first_turn,
            max_bytes=config.max_message_bytes,
            min_time_ms=0 if free else max(0, now_ms - before),
            max_time_ms=MAX_TIMESTAMP_MS if free else min(MAX_TIMESTAMP_MS, now_ms + after),
            now_ms=now_ms,
            compacted=config.compacted,
            schema_ids=schema_ids,
        )


class ColumnRouter:
    """Gives the records of a Spark task their partitions, batch by batch.

    A record without one gets murmur2 of its key's bytes modulo the number of partitions, Kafka's rule; one without key
    either shares a partition with `RUN` of its like in turn.

    Where the topic grows, no task knows that number. From the first record without a partition on, all records of the
    task wait together, so that they keep their order: `partition` is `WAITING`, and `given` is what they name.

    Args:
        rules: the topic's.
        task: number of the Spark task.
    """

    def __init__(self, rules: Rules, task: int) -> None:
        self._rules = rules
        self._task = task
        self._turns = 0
        self._waiting = False
        self.highest = WAITING
        """Highest partition that a record has named, where the topic grows."""

    def routed(self, table: pa.Table) -> pa.Table:
        """Choose partitions where none is given, and check the records.

        Args:
            table: at least one record; columns `value` BINARY, and optionally `timestamp`, `key` BINARY, `partition`
                INT (null: to be chosen) and `headers` with `has_headers`.

        Returns:
            The same columns, `partition` never null; with `given` where the records wait.

        Raises:
            UnknownTopicOrPartitionError, MessageSizeTooLargeError, InvalidTimestampError, InvalidRecordError: the topic
                does not take a record.
        """
        keys = Slices.of(table.column("key")) if "key" in table.column_names else Slices.none(table.num_rows)
        values = Slices.of(table.column("value"))
        if self._rules.grows and "partition" in table.column_names:
            given = table.column("partition")
            self.highest = max(self.highest, _check_given(self._rules, given))
            self._waiting = self._waiting or bool(given.null_count)
            _check(self._rules, table, keys, values)
            return _waiting(table) if self._waiting else table
        partitions, self._turns = _partitions(self._rules, self._task, table, keys, self._turns)
        _check(self._rules, table, keys, values)
        kept = table.drop_columns(["partition"]) if "partition" in table.column_names else table
        return kept.append_column("partition", numbers(partitions, pa.int32()))


@dataclass(frozen=True, slots=True)
class Slices:
    """A BINARY column as one buffer and where each value lies in it; null values have no bytes."""

    data: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    null: np.ndarray

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Slices:
        """Of a column; without a copy where it is one chunk."""
        held = _whole(column)
        wide = pa.types.is_large_binary(held.type)
        _, offsets, body = held.buffers()
        ends = np.frombuffer(offsets, np.int64 if wide else np.int32)[held.offset : held.offset + len(held) + 1]
        data = np.frombuffer(body, np.uint8) if body is not None and body.size else np.empty(0, np.uint8)
        wider = ends.astype(np.int64)
        return cls(data, wider[:-1], wider[1:], _flags(pc.is_null(held)))

    @classmethod
    def none(cls, rows: int) -> Slices:
        """A column of nulls."""
        nowhere = np.zeros(rows, np.int64)
        return cls(np.empty(0, np.uint8), nowhere, nowhere, np.ones(rows, np.bool_))

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of each value."""
        found: np.ndarray = self.ends - self.starts
        if self.null.any():
            found[self.null] = 0
        return found


def _waiting(table: pa.Table) -> pa.Table:
    """Records that wait for their partitions; see `ColumnRouter`."""
    names = ["given" if name == "partition" else name for name in table.column_names]
    waiting = numbers(np.full(table.num_rows, WAITING, np.int32), pa.int32())
    return table.rename_columns(names).append_column("partition", waiting)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _flags(flags: pa.Array) -> np.ndarray:
    found: np.ndarray = flags.to_numpy(zero_copy_only=False)
    return found


def _partitions(rules: Rules, task: int, table: pa.Table, keys: Slices, taken: int) -> tuple[np.ndarray, int]:
    """The partition of each record, and how many have taken turns so far."""
    found = np.full(table.num_rows, -1, np.int32)
    chosen = np.zeros(table.num_rows, np.bool_)
    if "partition" in table.column_names:
        _check_given(rules, table.column("partition"))
        given = _whole(table.column("partition"))
        chosen = ~_flags(pc.is_null(given))
        found[chosen] = given.fill_null(-1).to_numpy()[chosen]
    keyed = ~chosen & ~keys.null
    if keyed.any():
        found[keyed] = partitions_of_slices(keys.data, keys.starts[keyed], keys.ends[keyed], rules.num_partitions)
    rest = ~chosen & keys.null
    count = int(rest.sum())
    found[rest] = turns(task + rules.first_turn, count, rules.num_partitions, taken)
    return found, taken + count


def _check_given(rules: Rules, column: pa.ChunkedArray) -> int:
    """Refuse a partition that the topic does not have, or that no topic can have where it grows.

    Returns:
        The highest one that is named; `WAITING` for none.
    """
    named = column.drop_null()
    if not len(named):
        return WAITING
    most = MAX_PARTITIONS if rules.grows else rules.num_partitions
    ends = pc.min_max(named)
    low, high = int(ends["min"].as_py()), int(ends["max"].as_py())
    if low < 0 or high >= most:
        has = (
            f"a topic has at most {most} partitions, 0 to {most - 1}"
            if rules.grows
            else f"the topic has partitions 0 to {most - 1}. Give the topic more partitions, or leave the column "
            "partition out"
        )
        _refuse(UnknownTopicOrPartitionError, f"partition {low if low < 0 else high} does not exist: {has}")
    return high


def turns(first: int, count: int, num_partitions: int, taken: int = 0) -> np.ndarray:
    """Partitions of records without key.

    Args:
        first: the partition that begins.
        count: how many records.
        num_partitions: of the topic.
        taken: how many records have had theirs before.
    """
    turn = (taken + np.arange(count)) // RUN
    found: np.ndarray = (turn + first) % num_partitions
    return found


def _check(rules: Rules, table: pa.Table, keys: Slices, values: Slices) -> None:
    sizes = keys.lengths + values.lengths + RECORD_OVERHEAD
    if "headers" in table.column_names:
        headers = _whole(table.column("headers"))
        sizes = sizes + header_sizes(headers)
        wrong = first_undecodable(headers)
        if wrong is not None:
            _refuse(InvalidRecordError, f"a record has {wrong}")
    if int(sizes.max()) > rules.max_bytes:
        size = int(sizes[(sizes > rules.max_bytes).argmax()])
        _refuse(MessageSizeTooLargeError, f"a record has {size} bytes; max.message.bytes={rules.max_bytes}")
    if "timestamp" in table.column_names:
        _check_times(rules, table.column("timestamp"))
    if rules.compacted and keys.null.any():
        _refuse(InvalidRecordError, "a record has no key; cleanup.policy=compact needs one")
    for part, ids in rules.schema_ids:
        _check_schemas(part, keys if part == "key" else values, ids)


_HEAD: Final = 5
"""Bytes of the magic byte and a schema's id."""


def _check_schemas(part: str, column: Slices, ids: frozenset[int]) -> None:
    starts = column.starts[~column.null]
    asks = f"kafkalike.{part}.schema.validation=true asks for"
    if (column.lengths[~column.null] < _HEAD).any() or (column.data[starts] != 0).any():
        _refuse(InvalidRecordError, f"a {part} does not begin with the magic byte 0 and a schema's id, which {asks}")
    bytes_of_ids = column.data[starts[:, np.newaxis] + np.arange(1, _HEAD)]
    found = np.unique(np.ascontiguousarray(bytes_of_ids).view(">u4"))
    wrong = [int(schema_id) for schema_id in found if int(schema_id) not in ids]
    if wrong:
        _refuse(
            InvalidRecordError,
            f"a {part} has schema {wrong[0]}, which is not registered under a subject of the topic, as {asks}",
        )


def _check_times(rules: Rules, column: pa.ChunkedArray) -> None:
    times = column.drop_null().cast(pa.int64()).to_numpy() // 1000
    if not len(times):
        return
    outside = (times < 0) | (times > MAX_TIMESTAMP_MS)
    if outside.any():
        when = int(times[outside.argmax()])
        _refuse(InvalidTimestampError, f"timestamp {when} is not in [0, {MAX_TIMESTAMP_MS}] ms")
    outside = (times < rules.min_time_ms) | (times > rules.max_time_ms)
    if outside.any():
        when = int(times[outside.argmax()])
        limits = "outside message.timestamp.before/after.max.ms around the time of the append"
        _refuse(InvalidTimestampError, f"timestamp {when} is {limits} ({rules.now_ms})")


def header_sizes(headers: pa.ListArray) -> np.ndarray:
    """Bytes of each record's headers."""
    inner = headers.flatten()
    names, contents = inner.field("key"), inner.field("value")
    if names.null_count:
        _refuse(InvalidRecordError, "a record has a header without key")
    each = pc.add(pc.binary_length(names), pc.fill_null(pc.binary_length(contents), 0)).cast(pa.int64()).to_numpy()
    ends = np.concatenate([[0], np.cumsum(each)])
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy()
    bounds = np.concatenate([[0], np.cumsum(counts)])
    sizes: np.ndarray = ends[bounds[1:]] - ends[bounds[:-1]]
    return sizes


def _refuse(error: type[KafkaError], text: str) -> NoReturn:
    raise error(text)
