"""What Spark users touch: a session, producing and reading DataFrames, streams, SQL over topics."""

from kafkalike.log.session import session
from kafkalike.spark.progress import CheckpointProgress
from kafkalike.spark.read import read
from kafkalike.spark.sink import Written, write
from kafkalike.spark.sql import register_sql
from kafkalike.spark.streaming import StreamWriter, write_stream

__all__ = ["CheckpointProgress", "StreamWriter", "Written", "read", "register_sql", "session", "write", "write_stream"]
