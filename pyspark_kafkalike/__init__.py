"""Found by Spark by its name: makes the format `kafkalike` known to every session, `spark-sql` included."""

from kafkalike.spark.format.format import KafkalikeSource as DefaultSource

__all__ = ["DefaultSource"]
