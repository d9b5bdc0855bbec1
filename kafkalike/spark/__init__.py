"""What Spark users touch: a session, producing and reading DataFrames, streams, SQL over topics."""

from kafkalike.partitioner.column import partition_column
from kafkalike.spark.entry import session
from kafkalike.spark.progress import CheckpointProgress
from kafkalike.spark.read import read
from kafkalike.spark.sink import Written, write
from kafkalike.spark.source.format import register as register_format
from kafkalike.spark.source.progress import offsets_behind
from kafkalike.spark.sql import register_sql
from kafkalike.spark.sql_values import create_view, decoded_values
from kafkalike.spark.streaming import StreamWriter, write_stream

__all__ = [
    "CheckpointProgress",
    "StreamWriter",
    "Written",
    "create_view",
    "decoded_values",
    "offsets_behind",
    "partition_column",
    "read",
    "register_format",
    "register_sql",
    "session",
    "write",
    "write_stream",
]
