"""Found by Spark by its name: makes the format `kafkalike` known to every session, `spark-sql` included."""

from contextlib import suppress

# On a Spark with another version it stays unknown. An error would end Spark's search for everybody's formats.
with suppress(ImportError):
    from kafkalike.spark.format.format import KafkalikeSource as DefaultSource

__all__ = ["DefaultSource"]
