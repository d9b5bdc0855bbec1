"""`format("kafkalike")` of Spark's readers and writers, and its registration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from kafkalike.errors import IllegalArgumentError, KafkaError
from kafkalike.model.config.storage_options import SentOptions, StorageOptions, StorageOptionsLike, check_options
from kafkalike.spark.format.error_text import hide_frames
from kafkalike.spark.format.input_partitions import columns_of, schema_of
from kafkalike.spark.format.source_options import SourceOptions, parse_options, warn_without_meaning
from kafkalike.spark.format.spark_refusals import explain_modes, explain_statements
from kafkalike.spark.jvm.spark_connect import tasks_here

if TYPE_CHECKING:
    from kafkalike.spark.format.sink_options import SinkOptions


FORMAT: Final = "kafkalike"

Source = TypeVar("Source", bound=DataSource)


class KafkalikeSource(DataSource):
    """Topics as Spark's Kafka source shows them, and its sink writes them; options in `docs/spark.md`."""

    storage: ClassVar[SentOptions | None] = None
    """Who asks an object store; None leaves it to the environment. Not an option of a reader or writer: those are in
    plans, for everybody to see."""
    scratch: ClassVar[str | None] = None
    """A folder that all tasks share, where they run on this machine; see `tasks_here`."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return FORMAT

    @hide_frames
    def schema(self) -> StructType:
        """Columns of Spark's Kafka source; options are checked here, so at `load`.

        Raises:
            IllegalArgumentError: an option is wrong.
        """
        columns = columns_of(parse_options(self.options))
        warn_without_meaning(self.options)
        return schema_of(columns)

    @hide_frames
    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of one batch query."""
        from kafkalike.spark.format.batch_reader import BatchReader

        return BatchReader(self._checked(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader of one streaming query."""
        from kafkalike.spark.format.stream_reader import HandingReader

        try:
            return HandingReader(self._checked(schema))
        except KafkaError as error:
            return RefusedReader(error)

    @hide_frames
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """A writer of one batch query."""
        from kafkalike.spark.format.sink import BatchWriter
        from kafkalike.spark.format.sink_options import parse_batch

        return BatchWriter(self._near(parse_batch(self.options, self.storage)), schema, overwrite=overwrite)

    @hide_frames
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, FBT001, N802
        """A writer of one streaming query.

        Args:
            schema: the DataFrame's.
            overwrite: whether its output mode is complete; as with Kafka, each batch's result is added.
        """
        from kafkalike.spark.format.sink import StreamSink
        from kafkalike.spark.format.sink_options import parse_stream

        return StreamSink(self._near(parse_stream(self.options, self.storage)), schema)

    def _near(self, options: SinkOptions) -> SinkOptions:
        """What is decided for several topics others must find, who may be elsewhere."""
        return options if options.topic is None else replace(options, scratch=self.scratch)

    def _checked(self, schema: StructType) -> SourceOptions:
        options = parse_options(self.options, self.storage)
        wanted = schema_of(columns_of(options))
        if schema.simpleString() != wanted.simpleString():
            shown = ", ".join(f"{field.name} {field.dataType.simpleString().upper()}" for field in wanted)
            raise IllegalArgumentError(
                f"the format {FORMAT} has a fixed schema and cannot be given another one; it is {shown}"
            )
        return options


def register_format(
    spark: SparkSession,
    storage_options: StorageOptionsLike | None = None,
) -> None:
    """Make the format `kafkalike` known to a session; `kafkalike.spark.session` does so itself.

    Args:
        spark: the session.
        storage_options: who asks an object store, in all reads and writes of the format in this session; environment
            variables of the driver say what it does not. They go to the tasks as part of a function, and stand in no
            plan, log or setting of Spark's.

    Raises:
        IllegalArgumentError: they are no dict of texts.
    """
    source, scratch = with_storage(KafkalikeSource, storage_options), tasks_here(spark)
    if scratch is not None:
        source = type(f"{source.__name__}WithScratch", (source,), {"scratch": scratch})
    spark.dataSource.register(source)
    explain_modes(FORMAT)
    explain_statements(FORMAT)


def check_storage(storage_options: StorageOptionsLike | None) -> StorageOptions | None:
    """What a user has given as storage options.

    Raises:
        IllegalArgumentError: they are no dict of texts.
    """
    try:
        return check_options(storage_options)
    except ValueError as cause:
        raise IllegalArgumentError(f"storage_options: {cause}") from None


def with_storage(source: type[Source], storage_options: StorageOptionsLike | None) -> type[Source]:
    """A format whose readers and writers ask object stores with these options.

    Raises:
        IllegalArgumentError: they are no dict of texts.
    """
    options = check_storage(storage_options)
    if not options:
        return source
    # No module has a class of this name, so Spark's pickler takes it along with what it holds.
    return type(f"{source.__name__}WithStorage", (source,), {"storage": options.for_tasks()})


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises an error of a query's options at the first question.

    Spark 4.2 hides the error of a source that raises it when the reader is made: it stops the reader that it has not
    got, and tells that.

    Args:
        error: a named one.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    @hide_frames
    def _raise(self) -> NoReturn:
        raise self._error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raises."""
        self._raise()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Spark asks for it before there is a question that could be answered by an error."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Raises."""
        self._raise()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """Raises."""
        self._raise()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002
        """Raises."""
        self._raise()

    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002
        """Raises."""
        self._raise()
