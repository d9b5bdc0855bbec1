"""The API for Spark users: a session, DataFrames into and out of topics, streams, and SQL over topics.

Each name is imported on first use, because Spark starts a Python process for each streaming query, and that process
needs only the source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalike.model.public_names import lazy_names

if TYPE_CHECKING:
    from kafkalike.maintenance.repartition import Repartitioned as Repartitioned
    from kafkalike.maintenance.repartition import repartition as repartition
    from kafkalike.spark.call_options import DeadLetterOptions as DeadLetterOptions
    from kafkalike.spark.call_options import ProducerOptions as ProducerOptions
    from kafkalike.spark.call_options import QueryOptions as QueryOptions
    from kafkalike.spark.call_options import ReaderSchemaOptions as ReaderSchemaOptions
    from kafkalike.spark.call_options import RecordSchemas as RecordSchemas
    from kafkalike.spark.checkpoint_progress import CheckpointProgress as CheckpointProgress
    from kafkalike.spark.checkpoint_progress import StreamProgress as StreamProgress
    from kafkalike.spark.dead_letter_frames import dead_letters as dead_letters
    from kafkalike.spark.format.query import offsets_behind as offsets_behind
    from kafkalike.spark.queue_batch import QueueBatch as QueueBatch
    from kafkalike.spark.reads.format_registration import register_format as register_format
    from kafkalike.spark.reads.format_registration import session as session
    from kafkalike.spark.reads.frames import read as read
    from kafkalike.spark.reads.queue_frames import read_queue as read_queue
    from kafkalike.spark.reads.stream_frames import read_stream as read_stream
    from kafkalike.spark.record_columns import partition_column as partition_column
    from kafkalike.spark.sql.latest_table import LatestRefresh as LatestRefresh
    from kafkalike.spark.sql.latest_table import maintain_latest as maintain_latest
    from kafkalike.spark.sql.topic_views import register_sql as register_sql
    from kafkalike.spark.sql.value_views import create_view as create_view
    from kafkalike.spark.sql.value_views import decoded_values as decoded_values
    from kafkalike.spark.typed.decode import from_topic as from_topic
    from kafkalike.spark.typed.encode import to_topic as to_topic
    from kafkalike.spark.typed.typed_views import refresh_views as refresh_views
    from kafkalike.spark.writes.batch_write import Written as Written
    from kafkalike.spark.writes.batch_write import write as write
    from kafkalike.spark.writes.key_deletion import forget as forget
    from kafkalike.spark.writes.stream_write import StreamWriter as StreamWriter
    from kafkalike.spark.writes.stream_write import write_stream as write_stream
    from kafkalike.spark.writes.transaction import Transaction as Transaction
    from kafkalike.spark.writes.transaction import transaction as transaction

_HOME = {
    "DeadLetterOptions": "kafkalike.spark.call_options",
    "LatestRefresh": "kafkalike.spark.sql.latest_table",
    "ProducerOptions": "kafkalike.spark.call_options",
    "QueueBatch": "kafkalike.spark.queue_batch",
    "QueryOptions": "kafkalike.spark.call_options",
    "ReaderSchemaOptions": "kafkalike.spark.call_options",
    "RecordSchemas": "kafkalike.spark.call_options",
    "CheckpointProgress": "kafkalike.spark.checkpoint_progress",
    "StreamProgress": "kafkalike.spark.checkpoint_progress",
    "Repartitioned": "kafkalike.maintenance.repartition",
    "StreamWriter": "kafkalike.spark.writes.stream_write",
    "Transaction": "kafkalike.spark.writes.transaction",
    "Written": "kafkalike.spark.writes.batch_write",
    "create_view": "kafkalike.spark.sql.value_views",
    "dead_letters": "kafkalike.spark.dead_letter_frames",
    "decoded_values": "kafkalike.spark.sql.value_views",
    "forget": "kafkalike.spark.writes.key_deletion",
    "from_topic": "kafkalike.spark.typed.decode",
    "maintain_latest": "kafkalike.spark.sql.latest_table",
    "offsets_behind": "kafkalike.spark.format.query",
    "partition_column": "kafkalike.spark.record_columns",
    "read": "kafkalike.spark.reads.frames",
    "read_queue": "kafkalike.spark.reads.queue_frames",
    "read_stream": "kafkalike.spark.reads.stream_frames",
    "refresh_views": "kafkalike.spark.typed.typed_views",
    "register_format": "kafkalike.spark.reads.format_registration",
    "register_sql": "kafkalike.spark.sql.topic_views",
    "repartition": "kafkalike.maintenance.repartition",
    "session": "kafkalike.spark.reads.format_registration",
    "to_topic": "kafkalike.spark.typed.encode",
    "transaction": "kafkalike.spark.writes.transaction",
    "write": "kafkalike.spark.writes.batch_write",
    "write_stream": "kafkalike.spark.writes.stream_write",
}

__all__ = [  # noqa: PLE0604 - `__getattr__` gives the names
    *sorted(_HOME),
]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
