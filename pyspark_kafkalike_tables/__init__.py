"""Found by Spark by its name: makes the format `kafkalike_tables` known to every session, `spark-sql` included."""

from contextlib import suppress

# On a Spark with another version it stays unknown. An error would end Spark's search for everybody's formats.
with suppress(ImportError):
    from kafkalike.spark.jvm.spark_version import MINOR

    # Spark 4.0 refuses to register a format that it has found by its name, as a session with storage options must.
    if MINOR != "4.0":
        from kafkalike.spark.sql.cluster_tables import ClusterTables as DefaultSource

__all__ = ["DefaultSource"]
