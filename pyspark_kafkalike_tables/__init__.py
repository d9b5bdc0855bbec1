"""Found by Spark by its name: makes the format `kafkalike_tables` known to every session, `spark-sql` included."""

from kafkalike.spark.sql.cluster_tables import ClusterTables as DefaultSource

__all__ = ["DefaultSource"]
