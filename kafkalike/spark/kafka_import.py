"""Import topics of a Kafka cluster, read by Spark's Kafka connector, into topics of the same names.

Partition, timestamp, key, value and headers are kept. Each micro-batch is a range of offsets of each Kafka partition,
fixed in the checkpoint before it is read, and one table transaction per topic. So a repeated range adds nothing, and an
import that was killed resumes at the same offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, StringType

from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError
from kafkalike.model.config.storage_options import Address
from kafkalike.spark.jvm.stream_checkpoint import StreamCheckpoint
from kafkalike.spark.record_columns import HEADERS, no_headers
from kafkalike.spark.writes.batch_write import Written
from kafkalike.spark.writes.stream_write import StreamWriter

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

NEEDED: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

REFUSED_OPTIONS: Final = ("minpartitions", "maxrecordsperpartition")
"""These options split a Kafka partition over several tasks, which loses its order."""

_NO_TIMESTAMP: Final = -1
"""`timestampType` of records of Kafka's oldest message format."""


class KafkaImport:
    """Writes the batches of one stream from Kafka: the function for its `foreachBatch`."""

    def __init__(
        self,
        bootstrap_servers: Address | None = None,
        *,
        checkpoint: str,
        txn_id: str | None = None,
        topic_configs: Mapping[str, str] | None = None,
        offset_header: str | None = None,
    ) -> None:
        """Open the cluster; see `import_kafka` for the arguments."""
        self._cluster = connect(bootstrap_servers, access="spark")
        self._checkpoint = checkpoint
        self._configs = dict(topic_configs or {})
        self._offset_header = offset_header
        self._writer = StreamWriter(None, self._cluster, checkpoint=checkpoint, txn_id=txn_id)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write a batch; `foreachBatch` expects no result."""
        self.write(frame, batch_id)

    def write(self, frame: DataFrame, batch_id: int) -> Written:
        """Create or widen the topics to as many partitions as in Kafka, then write the batch.

        Raises:
            KafkaError: see `StreamWriter.write`.
        """
        counts: dict[str, int] = {}
        for tp in StreamCheckpoint(frame.sparkSession, self._checkpoint).offsets(batch_id).ends:
            counts[tp.topic] = max(counts.get(tp.topic, 0), tp.partition + 1)
        known = self._cluster.topics()
        for topic, total in sorted(counts.items()):
            if topic not in known:
                self._cluster.create_topic(topic, total, self._configs)
            elif known[topic].num_partitions < total:
                self._cluster.add_partitions(topic, total)
        return self._writer.write(kafka_records(frame, self._offset_header), batch_id)


def kafka_records(frame: DataFrame, offset_header: str | None = None) -> DataFrame:
    """Select records for `kafkalike.spark.write` from rows of Spark's Kafka source.

    Args:
        frame: columns `NEEDED`: the source with `includeHeaders=true`.
        offset_header: name of a header for the record's offset in Kafka, as decimal text; None for none.

    Returns:
        Columns `topic, partition, timestamp, key, value, headers`. Records without a timestamp get the time of their
        append.
    """
    missing = sorted(set(NEEDED) - set(frame.columns))
    if missing:
        raise IllegalArgumentError(f"columns of Spark's Kafka source are missing: {', '.join(missing)}")
    timed = F.when(F.col("timestampType") != F.lit(_NO_TIMESTAMP), F.col("timestamp"))
    headers = F.col("headers") if offset_header is None else _with_offset(offset_header)
    return frame.select("topic", "partition", timed.alias("timestamp"), "key", "value", headers.alias("headers"))


def _with_offset(name: str) -> Column:
    offset = F.struct(F.lit(name).alias("key"), F.col("offset").cast(StringType()).cast(BinaryType()).alias("value"))
    return F.concat(F.coalesce("headers", no_headers()), F.array(offset).cast(HEADERS))


def import_kafka(
    frame: DataFrame,
    bootstrap_servers: Address | None = None,
    *,
    checkpoint: str,
    txn_id: str | None = None,
    topic_configs: Mapping[str, str] | None = None,
    offset_header: str | None = None,
    follow: bool = False,
) -> StreamingQuery:
    """Start a query that copies Kafka topics into topics of the same names.

    Args:
        frame: `spark.readStream.format("kafka")` with `includeHeaders=true`, and without options that split a partition
            (`REFUSED_OPTIONS`). `maxOffsetsPerTrigger` limits a batch.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        checkpoint: folder or URI for the progress of the import.
        txn_id: see `kafkalike.spark.write_stream`.
        topic_configs: settings of topics that the import creates, with as many partitions as in Kafka.
        offset_header: see `kafka_records`.
        follow: run until stopped; otherwise import the records that exist at the start, and end.

    Returns:
        The query.

    Raises:
        IllegalArgumentError: the DataFrame is not a stream, or lacks columns of Spark's Kafka source.
    """
    if not frame.isStreaming:
        raise IllegalArgumentError("import_kafka takes a streaming DataFrame")
    kafka_records(frame, offset_header)
    writer = KafkaImport(
        bootstrap_servers,
        checkpoint=checkpoint,
        txn_id=txn_id,
        topic_configs=topic_configs,
        offset_header=offset_header,
    )
    query = frame.writeStream.foreachBatch(writer).option("checkpointLocation", checkpoint)
    return query.start() if follow else query.trigger(availableNow=True).start()
