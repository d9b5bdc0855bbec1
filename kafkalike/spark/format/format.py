"""`format("kafkalike")` of Spark's readers and writers: its registration, its sessions, and its batch reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

from kafkalike.connect import check_spark_reaches, connect
from kafkalike.errors import IllegalArgumentError, KafkaError
from kafkalike.model.config.storage_options import (
    Address,
    SentOptions,
    StorageOptions,
    StorageOptionsLike,
    check_options,
)
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.format.batch_plan import BATCH_TASKS, OffsetRun
from kafkalike.spark.format.input_partitions import columns_of, parts, read_part, schema_of
from kafkalike.spark.format.positions import EARLIEST, Everywhere, Position, Settled, names, resolve
from kafkalike.spark.format.source_options import SourceOptions, check_batch, parse_options, warn_without_meaning
from kafkalike.spark.format.source_topics import SourceTopics, report_loss, where_it_stands
from kafkalike.spark.format.spark_refusals import explain_modes, explain_statements
from kafkalike.spark.jvm.python_worker import PromptAnswer
from kafkalike.spark.jvm.spark_connect import tasks_here
from kafkalike.spark.jvm.spark_errors import hide_frames, hide_frames_of_rows

if TYPE_CHECKING:
    from kafkalike.spark.format.sink import SinkOptions


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
        from kafkalike.spark.format.sink import BatchWriter, parse_batch

        return BatchWriter(self._near(parse_batch(self.options, self.storage)), schema, overwrite=overwrite)

    @hide_frames
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, FBT001, N802
        """A writer of one streaming query.

        Args:
            schema: the DataFrame's.
            overwrite: whether its output mode is complete; as with Kafka, each batch's result is added.
        """
        from kafkalike.spark.format.sink import StreamSink, parse_stream

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


def session(
    app_name: str = "kafkalike",
    master: str | None = None,
    *,
    bootstrap_servers: Address | None = None,
    storage_options: Any = None,  # noqa: ANN401 - a dict of Spark's settings may be unpacked as `conf`
    **conf: str,
) -> SparkSession:
    """Build a SparkSession with Delta and kafkalike's settings, or take the one that runs.

    `spark.read.format("kafkalike")` and `spark.readStream.format("kafkalike")` work in it.

    Args:
        app_name: name shown by Spark.
        master: where to run; `local[*]` when neither this nor `SPARK_MASTER` nor spark-submit says so.
        bootstrap_servers: a cluster whose topics are to be read by `kafkalike.spark.read` or SQL: one in S3 adds
            Hadoop's client for it to a JVM that starts now. It is fetched where it is missing (14 MB). None for the
            environment variable `KAFKALIKE_BOOTSTRAP_SERVERS`. The formats, and all writes, do without. A root that is
            named here is told to Hadoop at once, so that the session finds checkpoints in its bucket.
        storage_options: who asks object stores in the formats; see `register_format`.
        **conf: more settings; they win over kafkalike's own. Dotted names go in as `**{"spark.x.y": "z"}`.

    Returns:
        The session. Settings that only count when a JVM starts have no effect on one that runs already. Warnings of
        its JVM go to standard error, less those that say nothing; name another file with
        `-Dlog4j2.configurationFile=` in `spark.driver.extraJavaOptions`.

    Raises:
        KafkaConfigurationError: `bootstrap_servers` or `storage_options` are wrong, or the session that runs has no
            client of Hadoop's for that root.
        IllegalArgumentError: `storage_options` are no dict of texts.
    """
    from kafkalike.spark.jvm.spark_session import delta_session, tell_hadoop

    check_storage(storage_options)
    cluster = None if bootstrap_servers is None else connect(bootstrap_servers, storage_options, access="offline")
    if cluster is not None:
        check_spark_reaches(cluster)
    made = delta_session(app_name, master, bootstrap_servers=bootstrap_servers, **conf)
    register_format(made, storage_options)
    if cluster is not None:
        tell_hadoop(made, cluster)
    return made


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


class BatchReader(DataSourceReader):
    """Plans and reads one batch query.

    It takes no conditions from Spark (`pushFilters`): Spark 4.2 keeps what they have left over and gives it to other
    queries on the same DataFrame, see `docs/decisions/010`.

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
    def partitions(self) -> list[InputPartition]:
        """What each task reads: the offsets of the moment, each end exclusive.

        Raises:
            KafkaConnectionError: there is no cluster.
            UnknownTopicOrPartitionError: a topic or partition that is named does not exist.
            IllegalArgumentError: offsets that do not fit the partitions or each other.
            NoOffsetForPartitionError: a group that has committed nothing, with `auto.offset.reset` none.
            DataLossError: offsets that are not in the log, with `failOnDataLoss`.
        """
        topics = SourceTopics(self._options)
        return parts(topics, self._options, batch_runs(topics, self._options), scale=BATCH_TASKS)

    @hide_frames_of_rows
    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one input partition as Arrow batches, in offset order."""
        return read_part(partition)


def batch_runs(topics: SourceTopics, options: SourceOptions) -> list[OffsetRun]:
    """Offsets of each partition, as of now. See `BatchReader.partitions`."""
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
