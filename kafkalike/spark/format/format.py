"""Format: `format("kafkalike")` of readers and writers, in batches and streams, and its registration."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from kafkalike.errors import IllegalArgumentError
from kafkalike.spark.format.options import SourceOptions, parse_options, warn_without_meaning
from kafkalike.spark.format.parts import columns_of, ddl

FORMAT: Final = "kafkalike"


class KafkalikeSource(DataSource):
    """Topics as Spark's Kafka source shows them, and its sink writes them; options in `docs/spark.md`."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return FORMAT

    def schema(self) -> str:
        """Columns of Spark's Kafka source; options are checked here, so at `load`.

        Raises:
            IllegalArgumentError: an option is wrong.
        """
        columns = columns_of(parse_options(self.options))
        warn_without_meaning(self.options)
        return ddl(columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of one batch query."""
        from kafkalike.spark.format.batch import BatchReader

        return BatchReader(self._checked(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader of one streaming query."""
        from kafkalike.spark.format.mark import MarkedReader

        return MarkedReader(self._checked(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """A writer of one batch query."""
        from kafkalike.spark.format.sink import BatchWriter
        from kafkalike.spark.format.sink_options import parse_batch

        return BatchWriter(parse_batch(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, FBT001, N802
        """A writer of one streaming query.

        Args:
            schema: the DataFrame's.
            overwrite: whether its output mode is complete; as with Kafka, each batch's result is added.
        """
        from kafkalike.spark.format.sink_options import parse_stream
        from kafkalike.spark.format.sink_stream import StreamSink

        return StreamSink(parse_stream(self.options), schema)

    def _checked(self, schema: StructType) -> SourceOptions:
        options = parse_options(self.options)
        wanted = columns_of(options)
        if tuple(schema.fieldNames()) != wanted:
            raise IllegalArgumentError(
                f"the format {FORMAT} has a fixed schema and cannot be given another one; it is {ddl(wanted)}"
            )
        return options


def register_format(spark: SparkSession) -> None:
    """Make the format `kafkalike` known to a session; `kafkalike.spark.session` does so itself."""
    spark.dataSource.register(KafkalikeSource)
