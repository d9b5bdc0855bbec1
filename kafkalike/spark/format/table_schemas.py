"""Table schemas: the columns of each table that `kafkalike.spark.tables` shows.

As types, never as text: a session's settings say what TIMESTAMP in a text means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_TEXT, _INT, _LONG, _DOUBLE, _FLAG = StringType(), IntegerType(), LongType(), DoubleType(), BooleanType()
_TIME: Final = TimestampType()


def _columns(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


SCHEMAS: Final[Mapping[str, StructType]] = {
    "topics": _columns(
        topic=_TEXT,
        topic_id=_TEXT,
        partitions=_INT,
        records=_LONG,
        bytes=_LONG,
        created=_TIME,
        configs=_TEXT,
        view=_TEXT,
    ),
    "partitions": _columns(
        topic=_TEXT,
        partition=_INT,
        log_start_offset=_LONG,
        log_end_offset=_LONG,
        records=_LONG,
        segments=_LONG,
        bytes=_LONG,
        last_timestamp=_TIME,
    ),
    "consumer_offsets": _columns(
        group_id=_TEXT,
        topic=_TEXT,
        partition=_INT,
        committed_offset=_LONG,
        metadata=_TEXT,
        leader_epoch=_INT,
        commit_timestamp=_TIME,
        member_id=_TEXT,
        client_id=_TEXT,
        topic_id=_TEXT,
    ),
    "lag": _columns(
        group_id=_TEXT,
        topic=_TEXT,
        partition=_INT,
        committed_offset=_LONG,
        log_start_offset=_LONG,
        log_end_offset=_LONG,
        lag=_LONG,
        commit_timestamp=_TIME,
        record_lag=_LONG,
        seconds_behind=_DOUBLE,
        waiting_seconds=_DOUBLE,
    ),
    "lag_history": _columns(
        group_id=_TEXT,
        topic=_TEXT,
        partition=_INT,
        time=_TIME,
        committed_offset=_LONG,
        log_end_offset=_LONG,
        lag=_LONG,
        consumed_per_second=_DOUBLE,
        produced_per_second=_DOUBLE,
        catch_up_seconds=_DOUBLE,
    ),
    "transactions": _columns(
        transactional_id=_TEXT,
        producer_id=_LONG,
        producer_epoch=_INT,
        state=_TEXT,
        number=_LONG,
        reason=_TEXT,
        client_id=_TEXT,
        timeout_ms=_LONG,
        start_timestamp=_TIME,
        change_timestamp=_TIME,
        records=MapType(_TEXT, MapType(_INT, _LONG)),
        unapplied=ArrayType(_TEXT),
        groups=ArrayType(_TEXT),
    ),
    "brokers": _columns(
        broker_id=_INT,
        uri=_TEXT,
        rack=_TEXT,
        up=_FLAG,
        draining=_FLAG,
    ),
    "replicas": _columns(
        topic=_TEXT,
        partition=_INT,
        leader=_INT,
        leader_epoch=_INT,
        replicas=ArrayType(_INT),
        isr=ArrayType(_INT),
        offline_replicas=ArrayType(_INT),
        lag_versions=MapType(_INT, _LONG),
        lag_bytes=MapType(_INT, _LONG),
        lag_seconds=MapType(_INT, _DOUBLE),
    ),
}
"""Columns of each table.

`lag` counts offsets from the committed one to the log end, `record_lag` the records among them that can still be read,
`seconds_behind` from the time of the last one read to the newest, `waiting_seconds` from the oldest one that was not
read until now. `lag_history` has a row every five minutes of the
last three hours; rates are of the 15 minutes before it, `catch_up_seconds` is NULL when the lag will not go away.

`transactions` has a row for each transactional id that is not forgotten, with its last transaction: `reason` says what
led to its state, `start_timestamp` is of an open one, `records` counts those of a committed one by topic and partition,
`unapplied` are the topics that do not have it yet, `groups` those whose offsets it committed.

`brokers` has a row for each storage root, `up` says whether it answers. `replicas` has a row for each partition:
`leader` is -1 where its root gives no answer, and the lags say by broker how far a replica is behind the leader, in
versions of the table, bytes of its data files, and seconds between their last versions; a value that nobody knows is
NULL. All partitions of a topic have the same. A cluster of one root has one broker, 1, which leads all, and no lags.
"""
