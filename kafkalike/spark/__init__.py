"""What Spark users touch: a session, producing and reading DataFrames, SQL over topics."""

from kafkalike.log.session import session
from kafkalike.spark.read import read
from kafkalike.spark.sink import Written, write
from kafkalike.spark.sql import register_sql

__all__ = ["Written", "read", "register_sql", "session", "write"]
