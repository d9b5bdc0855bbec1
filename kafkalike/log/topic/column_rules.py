"""Column rules: choose the partitions of Arrow rows, and check the rows against their topic's rules.

It applies the rules of `record_rules` and of Kafka's default partitioner. Spark passes its rows to Python as Arrow
batches, and NumPy takes a fifth of the time that Column expressions would take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalike import errors
from kafkalike.log.topic.chunk import first_undecodable
from kafkalike.log.topic.record_rules import MAX_TIMESTAMP_MS, RECORD_OVERHEAD
from kafkalike.model.config.properties import LONG_MAX
from kafkalike.model.config.topic_config import MAX_PARTITIONS
from kafkalike.model.murmur2 import partitions_of_slices
from kafkalike.storage.arrays import lengths_of, nulls_of, numbers

if TYPE_CHECKING:
    from kafkalike.model.clock import Clock
    from kafkalike.model.config.topic_config import TopicConfig

WAITING: Final = -1
"""Partition of records that get theirs when the topic's number of partitions is known."""

RUN: Final = 128
"""Consecutive records without a key that share a partition, as in the batches of a sticky producer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A topic's limits for records, and its partitioning; sent to Spark's Python workers."""

    num_partitions: int
    """Partitions of the topic; if it `grows`, the least that it gets."""
    first_turn: int
    """Partition of the first records without a key in the first task. It differs between appends, to spread small
    ones."""
    max_bytes: int
    min_time_ms: int
    max_time_ms: int
    now_ms: int
    """Time that the timestamp limits count from; 0 without limits."""
    compacted: bool
    schema_ids: tuple[tuple[str, frozenset[int]], ...] = ()
    """Ids of the schemas that `key` or `value` may have, if the topic checks them."""
    grows: bool = False
    """True if the topic does not exist yet, and is created with as many partitions as its records name."""

    @classmethod
    def of(
        cls,
        num_partitions: int,
        config: TopicConfig,
        clock: Clock,
        first_turn: int,
        schema_ids: tuple[tuple[str, frozenset[int]], ...] = (),
    ) -> Rules:
        """Return the current rules of a topic."""
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
    """Assigns the records of a Spark task to partitions, batch by batch.

    A record without a partition gets murmur2 of its key's bytes modulo the number of partitions, Kafka's rule. Records
    without partition and key take turns: `RUN` consecutive ones share a partition.

    If the topic grows, no task knows that number. From the first record without a partition on, all records of the task
    wait together, so that they keep their order: `partition` is `WAITING`, and `given` holds the named partition.

    Args:
        rules: the topic's rules.
        task: number of the Spark task.
    """

    def __init__(self, rules: Rules, task: int) -> None:
        self._rules = rules
        self._task = task
        self._turns = 0
        self._waiting = False
        self.highest = WAITING
        """Highest partition that a record has named, if the topic grows."""

    def routed(self, table: pa.Table) -> pa.Table:
        """Choose the missing partitions, and check the records.

        Args:
            table: at least one record; columns `value` BINARY, and optionally `timestamp`, `key` BINARY, `partition`
                INT (null: to be chosen) and `headers` with `has_headers`.

        Returns:
            The same columns, `partition` never null; with `given` if the records wait.

        Raises:
            UnknownTopicOrPartitionError, MessageSizeTooLargeError, InvalidTimestampError, InvalidRecordError: the topic
                rejects a record.
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
    """A BINARY column as one buffer and the bounds of each value in it; null values have no bytes."""

    data: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    null: np.ndarray

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Slices:
        """Return the slices of a column, without a copy if it has one chunk."""
        held = _whole(column)
        wide = pa.types.is_large_binary(held.type)
        _, offsets, body = held.buffers()
        ends = np.frombuffer(offsets, np.int64 if wide else np.int32)[held.offset : held.offset + len(held) + 1]
        data = np.frombuffer(body, np.uint8) if body is not None and body.size else np.empty(0, np.uint8)
        wider = ends.astype(np.int64)
        return cls(data, wider[:-1], wider[1:], nulls_of(held))

    @classmethod
    def none(cls, rows: int) -> Slices:
        """Return the slices of a column of nulls."""
        nowhere = np.zeros(rows, np.int64)
        return cls(np.empty(0, np.uint8), nowhere, nowhere, np.ones(rows, np.bool_))

    @property
    def lengths(self) -> np.ndarray:
        """Length of each value in bytes."""
        found: np.ndarray = self.ends - self.starts
        if self.null.any():
            found[self.null] = 0
        return found


def _waiting(table: pa.Table) -> pa.Table:
    """Mark records as waiting for their partitions; see `ColumnRouter`."""
    names = ["given" if name == "partition" else name for name in table.column_names]
    waiting = numbers(np.full(table.num_rows, WAITING, np.int32), pa.int32())
    return table.rename_columns(names).append_column("partition", waiting)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _partitions(rules: Rules, task: int, table: pa.Table, keys: Slices, taken: int) -> tuple[np.ndarray, int]:
    """Return the partition of each record, and the number of records that have taken turns."""
    found = np.full(table.num_rows, -1, np.int32)
    chosen = np.zeros(table.num_rows, np.bool_)
    if "partition" in table.column_names:
        _check_given(rules, table.column("partition"))
        given = _whole(table.column("partition"))
        chosen = ~nulls_of(given)
        found[chosen] = given.fill_null(-1).to_numpy()[chosen]
    keyed = ~chosen & ~keys.null
    if keyed.any():
        found[keyed] = partitions_of_slices(keys.data, keys.starts[keyed], keys.ends[keyed], rules.num_partitions)
    rest = ~chosen & keys.null
    count = int(rest.sum())
    found[rest] = turns(task + rules.first_turn, count, rules.num_partitions, taken)
    return found, taken + count


def _check_given(rules: Rules, column: pa.ChunkedArray) -> int:
    """Refuse a partition that the topic does not have, or, if it grows, that no topic can have.

    Returns:
        The highest named partition; `WAITING` for none.
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
        _refuse(errors.UnknownTopicOrPartitionError, f"partition {low if low < 0 else high} does not exist: {has}")
    return high


def turns(first: int, count: int, num_partitions: int, taken: int = 0) -> np.ndarray:
    """Return the partitions of records without a key.

    Args:
        first: the first partition.
        count: number of records.
        num_partitions: of the topic.
        taken: number of earlier records without a key.
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
            _refuse(errors.InvalidRecordError, f"a record has {wrong}")
    if int(sizes.max()) > rules.max_bytes:
        size = int(sizes[(sizes > rules.max_bytes).argmax()])
        _refuse(errors.MessageSizeTooLargeError, f"a record has {size} bytes; max.message.bytes={rules.max_bytes}")
    if "timestamp" in table.column_names:
        _check_times(rules, table.column("timestamp"))
    if rules.compacted and keys.null.any():
        _refuse(errors.InvalidRecordError, "a record has no key; cleanup.policy=compact needs one")
    for part, ids in rules.schema_ids:
        _check_schemas(part, keys if part == "key" else values, ids)


_HEAD: Final = 5
"""Bytes of the magic byte and the schema's id."""


def _check_schemas(part: str, column: Slices, ids: frozenset[int]) -> None:
    starts = column.starts[~column.null]
    asks = f"kafkalike.{part}.schema.validation=true asks for"
    if (column.lengths[~column.null] < _HEAD).any() or (column.data[starts] != 0).any():
        _refuse(
            errors.InvalidRecordError, f"a {part} does not begin with the magic byte 0 and a schema's id, which {asks}"
        )
    bytes_of_ids = column.data[starts[:, np.newaxis] + np.arange(1, _HEAD)]
    found = np.unique(np.ascontiguousarray(bytes_of_ids).view(">u4"))
    wrong = [int(schema_id) for schema_id in found if int(schema_id) not in ids]
    if wrong:
        _refuse(
            errors.InvalidRecordError,
            f"a {part} has schema {wrong[0]}, which is not registered under a subject of the topic, as {asks}",
        )


def _check_times(rules: Rules, column: pa.ChunkedArray) -> None:
    times = column.drop_null().cast(pa.int64()).to_numpy() // 1000
    if not len(times):
        return
    outside = (times < 0) | (times > MAX_TIMESTAMP_MS)
    if outside.any():
        when = int(times[outside.argmax()])
        _refuse(errors.InvalidTimestampError, f"timestamp {when} is not in [0, {MAX_TIMESTAMP_MS}] ms")
    outside = (times < rules.min_time_ms) | (times > rules.max_time_ms)
    if outside.any():
        when = int(times[outside.argmax()])
        limits = "outside message.timestamp.before/after.max.ms around the time of the append"
        _refuse(errors.InvalidTimestampError, f"timestamp {when} is {limits} ({rules.now_ms})")


def header_sizes(headers: pa.ListArray) -> np.ndarray:
    """Return the bytes of each record's headers."""
    inner = headers.flatten()
    names, contents = inner.field("key"), inner.field("value")
    if names.null_count:
        _refuse(errors.InvalidRecordError, "a record has a header without key")
    ends = np.concatenate([[0], np.cumsum(lengths_of(names, 0) + lengths_of(contents, 0))])
    bounds = np.concatenate([[0], np.cumsum(lengths_of(headers, 0))])
    sizes: np.ndarray = ends[bounds[1:]] - ends[bounds[:-1]]
    return sizes


def _refuse(error: type[errors.KafkaError], text: str) -> NoReturn:
    raise error(text)
