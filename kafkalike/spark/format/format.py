"""`format("kafkalike")` of Spark's readers and writers: its registration, its sessions, and its batch reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, TypeVar

from pyspark.sql import datasource
from pyspark.sql.types import StructType

from kafkalike.errors import IllegalArgumentError, KafkaError
from kafkalike.model.config.storage_options import SentOptions, StorageOptions, StorageOptionsLike, check_options
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.format.batch_plan import BATCH_TASKS, OffsetRun
from kafkalike.spark.format.input_partitions import columns_of, parts, read_part, schema_of
from kafkalike.spark.format.positions import EARLIEST, Everywhere, Position, Settled, names, resolve
from kafkalike.spark.format.source_options import SourceOptions, check_batch, parse_options, warn_without_meaning
from kafkalike.spark.format.source_topics import SourceTopics, report_loss, where_it_stands
from kafkalike.spark.jvm.python_worker import PromptAnswer
from kafkalike.spark.jvm.spark_errors import hide_frames, hide_frames_of_rows
from kafkalike.spark.jvm.spark_version import (
    HAS_ARROW_SINK,
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
    need,
)

if TYPE_CHECKING:
    from kafkalike.spark.format.sink import SinkOptions


FORMAT: Final = "kafkalike"

Source = TypeVar("Source", bound=datasource.DataSource)


class KafkalikeSource(datasource.DataSource):
    """Topics with the columns of Spark's Kafka source and sink.

    `docs/reference/spark-options.md` lists the options.
    """

    storage: ClassVar[SentOptions | None] = None
    """Credentials and endpoint of an object store. None takes the environment's. They are not options of a reader or
    writer, because plans show those to everybody."""
    scratch: ClassVar[str | None] = None
    """A folder that all tasks share, if they run on this machine; see `tasks_here`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    @hide_frames
    def schema(self) -> StructType:
        """Return the columns of Spark's Kafka source; Spark calls this at `load`, so wrong options fail there.

        Raises:
            IllegalArgumentError: an option is wrong.
        """
        columns = columns_of(parse_options(self.options))
        warn_without_meaning(self.options)
        return schema_of(columns)

    @hide_frames
    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        """Create the reader of a batch query."""
        return BatchReader(self._checked(schema))

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Create the reader of a streaming query."""
        from kafkalike.spark.format.stream_reader import ChosenReader

        try:
            return ChosenReader(self._checked(schema))
        except KafkaError as error:
            return RefusedReader(error)

    @hide_frames
    def writer(self, schema: StructType, overwrite: bool) -> datasource.DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """Create the writer of a batch query."""
        from kafkalike.spark.format.sink import BatchWriter, parse_batch

        return BatchWriter(self._near(parse_batch(self.options, self.storage)), schema, overwrite=overwrite)

    @hide_frames
    def streamWriter(self, schema: StructType, overwrite: bool) -> datasource.DataSourceStreamWriter:  # noqa: ARG002, FBT001, N802
        """Create the writer of a streaming query.

        Args:
            schema: the DataFrame's.
            overwrite: whether its output mode is complete; as with Kafka, each batch's result is added.
        """
        from kafkalike.spark.format.sink import StreamSink, parse_stream

        if not HAS_ARROW_SINK:
            raise need("writeStream to a topic", "4.1", "use ks.write_stream")
        return StreamSink(self._near(parse_stream(self.options, self.storage)), schema)

    def _near(self, options: SinkOptions) -> SinkOptions:
        """Add the scratch folder if all rows have one topic.

        A transaction of several topics may be completed by a process on another machine, which must find the staged
        files.
        """
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


def check_storage(storage_options: StorageOptionsLike | None) -> StorageOptions | None:
    """Check a user's storage options.

    Raises:
        IllegalArgumentError: the storage options are not a dict of strings.
    """
    try:
        return check_options(storage_options)
    except ValueError as cause:
        raise IllegalArgumentError(f"storage_options: {cause}") from None


def with_storage(source: type[Source], storage_options: StorageOptionsLike | None) -> type[Source]:
    """Return a format whose readers and writers use these storage options.

    Raises:
        IllegalArgumentError: the storage options are not a dict of strings.
    """
    options = check_storage(storage_options)
    if not options:
        return source
    # The class is not an attribute of any module, so Spark's pickler sends it by value, with its storage options.
    return type(f"{source.__name__}WithStorage", (source,), {"storage": options.for_tasks()})


class RefusedReader(datasource.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises an error of a query's options at Spark's first call.

    Spark 4.2 hides an error that a source raises while it creates the reader: it then stops the missing reader, and
    reports that failure instead.

    Args:
        error: an error of kafkalike.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    @hide_frames
    def _raise(self) -> NoReturn:
        raise self._error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise the error of the options."""
        self._raise()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return no limit, because Spark does not report errors of this call."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Raise the error of the options."""
        self._raise()

    def latestOffset(self, *_asked: object) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise the error of the options."""
        self._raise()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[datasource.InputPartition]:  # noqa: ARG002
        """Raise the error of the options."""
        self._raise()

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:  # noqa: ARG002
        """Raise the error of the options."""
        self._raise()


class BatchReader(datasource.DataSourceReader):
    """Plans and reads one batch query.

    It does not take conditions from Spark (`pushFilters`), because Spark 4.2 keeps the remaining conditions and applies
    them to other queries on the same DataFrame, see `docs/decisions/010`.

    Args:
        options: checked options.

    Raises:
        IllegalArgumentError: options that a batch cannot have.
    """

    def __init__(self, options: SourceOptions) -> None:
        check_batch(options)
        self._options = options
        self._prompt = PromptAnswer()

    @hide_frames
    def partitions(self) -> list[datasource.InputPartition]:
        """Plan the tasks: the offsets as of this call, each end exclusive.

        Raises:
            KafkaConnectionError: the root has no cluster.
            UnknownTopicOrPartitionError: a named topic or partition does not exist.
            IllegalArgumentError: offsets that do not fit the partitions or each other.
            NoOffsetForPartitionError: a group without a committed offset, with `auto.offset.reset` none.
            DataLossError: offsets that are not in the log, with `failOnDataLoss`.
        """
        topics = SourceTopics(self._options)
        return parts(topics, self._options, batch_runs(topics, self._options), scale=BATCH_TASKS)

    @hide_frames_of_rows
    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        """Read one input partition as Arrow batches, in offset order."""
        return read_part(partition)


def batch_runs(topics: SourceTopics, options: SourceOptions) -> list[OffsetRun]:
    """Return the offsets to read of each partition, as of this call; see `BatchReader.partitions` for the errors."""
    found = topics.look()
    topics.require(found)

    def settled(position: Position) -> Settled:
        return where_it_stands(
            position, found, topics.cluster, topics.topic_ids(), group_id=options.group_id, otherwise=EARLIEST
        )

    starting = settled(options.starting or Everywhere(EARLIEST))
    starts = resolve(starting, found, topics.log, ending=False, or_latest=options.or_latest)
    ends = resolve(settled(options.ending), found, topics.log, ending=True)
    _check_order(starts, ends)
    runs = []
    for tp in sorted(found):
        log = topics.log(tp.topic)
        live = range(log.log_start(tp.partition), log.log_end(tp.partition))
        for what, at in (("start", starts[tp]), ("end", ends[tp])):
            if not live.start <= at <= live.stop:
                moved = log.info.log_starts.get(tp.partition)
                why = f"; the log start was moved by {moved.reason}, run {moved.run}" if moved else ""
                message = f"{names([tp])}: the {what} {at} is not in the log, which is [{live.start}, {live.stop}){why}"
                report_loss("COULD_NOT_READ_OFFSET_RANGE", message, fail=options.fail_on_data_loss)
        begin = min(max(starts[tp], live.start), live.stop)
        runs.append(OffsetRun(tp, range(begin, max(begin, min(ends[tp], live.stop)))))
    return runs


def _check_order(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
    for tp in sorted(starts):
        if starts[tp] > ends[tp]:
            raise IllegalArgumentError(
                f"RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET: {names([tp])}: the start {starts[tp]} is above the "
                f"end {ends[tp]}"
            )
