"""`write_stream`: append each record of a streaming DataFrame to topics exactly once.

A query's batches go through `foreachBatch`. Each batch is one table commit, or one transaction if it has several topics
or commits the offsets of a group. It carries the ids of the query and the batch, so a batch that Spark repeats after a
crash adds nothing; see `kafkalike.spark.writes.transactional_write`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError, IllegalStateError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model import faults
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.config.dead_letter_config import settings_of
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.names import check_topic_name
from kafkalike.model.record_batch import TxnId
from kafkalike.spark.call_options import DeadLetterOptions, ProducerOptions, QueryOptions, RecordSchemas, SchemaChoice
from kafkalike.spark.checkpoint_progress import GroupProgress
from kafkalike.spark.dead_letter_frames import ensure_topics, with_letters
from kafkalike.spark.jvm.spark_connect import check_same_root, is_remote
from kafkalike.spark.jvm.spark_errors import show_named_errors
from kafkalike.spark.jvm.stream_checkpoint import BatchOffsets, CheckpointFiles, StreamCheckpoint, checkpoint_at
from kafkalike.spark.record_columns import sink_columns
from kafkalike.spark.writes.batch_write import Written, produce, with_schemas
from kafkalike.spark.writes.transactional_write import Naming, StreamVersion, Together, app_id, next_txn

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from kafkalike.model.transactions.group_claims import GroupOffsets

OBSERVATION: Final = "kafkalike_sink"
"""Name in `observedMetrics` of a query's progress, with the field `numOutputRows`. For a `foreachBatch` sink, Spark
itself reports -1."""

_QUERY_ID: Final = "sql.streaming.queryId"
_RUN_ID: Final = "spark.jobGroup.id"

_writers: WeakValueDictionary[tuple[str, ...], StreamWriter] = WeakValueDictionary()
"""The writer of an id in a run of a query; see `StreamWriter._claim`."""


class StreamWriter:
    """Writes the batches of one streaming query into topics: the function to give to `foreachBatch`.

    ```python
    writer = StreamWriter("orders", "./data", checkpoint="/checkpoints/orders")
    frame.writeStream.foreachBatch(writer).option("checkpointLocation", "/checkpoints/orders").start()
    ```

    Your own `foreachBatch` function may call it among other things: `writer.write(frame, batch_id)`. Two writers of one
    query that write to the same topic need a `txn_id` each.
    """

    def __init__(
        self,
        topic: str | None = None,
        bootstrap_servers: Address | None = None,
        *,
        checkpoint: str,
        txn_id: str | None = None,
        group_id: str | None = None,
        group_bootstrap_servers: Address | None = None,
        producer_options: ProducerOptions | None = None,
        dead_letters: DeadLetterOptions | None = None,
        storage_options: StorageOptionsLike | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Open the cluster; see `write_stream` for the arguments and errors."""
        self._given = {name: value for name, value in locals().items() if name not in {"self", "__class__"}}
        if not checkpoint:
            raise IllegalArgumentError("checkpoint must name the folder of the query's checkpointLocation")
        if txn_id is not None and not txn_id:
            raise IllegalArgumentError("txn_id must not be empty")
        if group_id is None and group_bootstrap_servers is not None:
            raise IllegalArgumentError("group_bootstrap_servers needs a group_id")
        letters = dead_letters or DeadLetterOptions()
        self._letters = settings_of(
            letters.errors_tolerance,
            letters.errors_deadletterqueue_topic_name,
            context_headers=letters.errors_deadletterqueue_context_headers_enable,
        )
        self._topic = None if topic is None else check_topic_name(topic)
        self._cluster: Cluster = connect(bootstrap_servers, storage_options, access="spark_write")
        self._checkpoint = checkpoint
        self._txn_id = txn_id
        self._progress: GroupProgress | None = None
        if group_id is not None:
            same = group_bootstrap_servers is None
            home = self._cluster if same else connect(group_bootstrap_servers, storage_options)
            self._progress = GroupProgress(group_id, home, clock=clock)
        self._producer_options = producer_options or ProducerOptions()
        self._together: tuple[str, Together] | None = None
        """Run id of the query, and the transactions of its batches with several topics."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments for a server of Spark Connect, which calls `foreachBatch` functions itself."""
        given = dict(self._given)
        # Absolute paths, and the credentials of an opened cluster, as for Spark's tasks.
        given |= {"bootstrap_servers": self._cluster.root, "storage_options": _sent(self._cluster)}
        other = given["group_bootstrap_servers"]
        group = (other.root, _sent(other)) if isinstance(other, Cluster) else None
        return _writer, (given, group)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write a batch; `foreachBatch` expects no result."""
        self.write(frame, batch_id)

    @property
    def cluster(self) -> Cluster:
        """The cluster of the topics."""
        return self._cluster

    def ensure_topic(self) -> None:
        """Create the topic of all records with the server's defaults, if it is missing."""
        if self._topic is not None:
            self._cluster.ensure_topic(self._topic)

    def write(self, frame: DataFrame, batch_id: int) -> Written:
        """Write a batch and commit its progress in one transaction. To be called from a `foreachBatch` function.

        Args:
            frame: the batch; columns as for `kafkalike.spark.write`. After a crash, it must be computed to the same
                rows.
            batch_id: its number.

        Returns:
            The offsets written, or the earlier offsets if the batch was written before (`duplicate`).

        Raises:
            CheckpointMismatchError: another checkpoint has used the id; nothing was written.
            IllegalArgumentError: the checkpoint is another query's, or the group's topics are not read by the query;
                nothing was written.
            OutOfOrderSequenceNumberError: another checkpoint has used the id while this batch was computed.
            IllegalStateError: two writers of the query use one id for one topic; this one has not written anything.
            ProducerFencedError: another process runs the query, or one with its id; this one has not written anything.
            CommitFailedError: the group has members, and only they may commit; nothing was written. For a group of
                another cluster, the batch is written.
            UnknownTopicOrPartitionError: a topic that the query reads was deleted during the batch, and nothing was
                written; the repeated batch leaves out its offsets.
        """
        query_id, run_id, version, offsets = self._batch(frame.sparkSession, batch_id)
        app = app_id(self._txn_id, query_id)
        progress = None if self._progress is None else self._progress.plan(offsets)
        about = {"client_id": f"stream {query_id}", "metadata": f"batch {batch_id}"}
        claims: GroupOffsets = {}
        if self._progress is not None and progress and self._progress.root == self._cluster.root:
            claims = dict([self._progress.claimed(progress, **about)])
        if self._letters.tolerant:
            ensure_topics(self._cluster, self._letters, {tp.topic for tp in offsets.ends})
            frame = self.records(frame, connector=app, task=str(batch_id))
        faults.point("stream.before_write")
        written = self._write(frame, app, version, run_id, claims, offsets.partitions)
        faults.point("stream.after_write")
        if self._progress is not None and progress is not None and not claims:
            # The group belongs to another cluster, which this cluster's transactions cannot change.
            self._progress.commit(progress, **about)
            faults.point("stream.after_progress")
        return written

    def records(self, frame: DataFrame, *, connector: str = "", task: str = "") -> DataFrame:
        """Return the records of a batch, dead letters among them; see `with_letters`."""
        if not self._letters.tolerant:
            return frame
        return with_letters(frame, self._topic, self._letters, connector=connector, task=task)

    def _batch(self, spark: SparkSession, batch_id: int) -> tuple[str, str, StreamVersion, BatchOffsets]:
        """Return the ids of the query and of its run, and the batch's version and offsets."""
        remote = is_remote(spark)
        files: CheckpointFiles
        running: str | None
        files = (
            checkpoint_at(self._checkpoint, self._cluster.store.tasks.sent_options())
            if remote
            else StreamCheckpoint(spark, self._checkpoint)
        )
        owner = files.query_id()
        if remote:
            # Spark Connect has no local properties, so the query must be active in the session.
            runs = {str(query.id): str(query.runId) for query in spark.streams.active}
            running, run_id = (owner if owner in runs else ", ".join(sorted(runs)) or "none"), runs.get(owner or "", "")
        else:
            running = spark.sparkContext.getLocalProperty(_QUERY_ID)
            run_id = spark.sparkContext.getLocalProperty(_RUN_ID) or ""
        if owner is None or running not in {None, owner}:
            raise IllegalArgumentError(
                f"{self._checkpoint} is not the checkpoint of this query ({running}); it belongs to {owner or 'none'}"
            )
        offsets = files.offsets(batch_id)
        version = StreamVersion.of(batch_id, owner, offsets.fingerprint)
        return owner, run_id, version, offsets

    def _write(  # noqa: PLR0917
        self,
        frame: DataFrame,
        app: str,
        version: StreamVersion,
        run_id: str,
        offsets: GroupOffsets,
        sources: Mapping[str, int],
    ) -> Written:
        def check(topic: str, known: int | None) -> TxnId:
            """Raise if the topic's last batch comes from another checkpoint, or is a later one."""
            self._claim(topic, app, run_id)
            return next_txn(topic, app, known, version)

        naming = Naming(app, version.encode(), check)
        if self._together is None or self._together[0] != run_id:
            # A run of the query fences its earlier run.
            self._together = run_id, Together(self._cluster, naming.transactional_id, app)
        return produce(
            frame,
            None if self._letters.tolerant else self._topic,
            self._cluster,
            producer_options=self._producer_options,
            naming=naming,
            offsets=offsets,
            together=self._together[1],
            has_state=True,
            sources=sources,
        )

    def _claim(self, topic: str, app: str, run_id: str) -> None:
        """Refuse a second writer of the run under the same id, because its records would count as written before."""
        if run_id and _writers.setdefault((run_id, self._cluster.root, topic, app), self) is not self:
            raise IllegalStateError(
                f"{topic}: two writers of one query write under the id {app!r}; give each a txn_id of its own"
            )


def _sent(cluster: Cluster) -> Mapping[str, Any] | None:
    """Return the storage options of a cluster, as Spark's tasks get them."""
    store = cluster.store.tasks.sent_options()
    return None if store is None else store.given()


def _writer(given: dict[str, Any], group: tuple[str, Mapping[str, Any] | None] | None) -> StreamWriter:
    """Open a writer in another process; `group` has root and storage options of an opened cluster of the group."""
    if group is not None:
        given["group_bootstrap_servers"] = connect(*group)
    return StreamWriter(given.pop("topic"), given.pop("bootstrap_servers"), **given)


def write_stream(
    frame: DataFrame,
    topic: str | None = None,
    bootstrap_servers: Address | None = None,
    *,
    checkpoint: str,
    available_now: bool = False,
    schemas: RecordSchemas | SchemaChoice | None = None,
    txn_id: str | None = None,
    group_id: str | None = None,
    group_bootstrap_servers: Address | None = None,
    query_options: QueryOptions | None = None,
    producer_options: ProducerOptions | None = None,
    dead_letters: DeadLetterOptions | None = None,
    storage_options: StorageOptionsLike | None = None,
) -> StreamingQuery:
    """Produce a streaming DataFrame: start a query whose rows become records, each exactly once.

    Exactly once needs three things: the source returns the same rows for a repeated batch (Kafka, Delta, files and
    kafkalike do), the query is deterministic (without `rand()` or `current_timestamp()` outside Spark's own batch
    time), and the checkpoint is kept. Then after `kill -9` at any moment and a restart, every record exists once. A
    batch for several topics is one transaction: once it is decided, all topics get it, even if the query is never
    restarted. A reader may see it in one topic shortly before the others; a `kafkalike.snapshot` shows all of it or
    nothing.

    Args:
        frame: a streaming DataFrame with the columns of `kafkalike.spark.write`.
        topic: the topic; wins over the column `topic`. A missing topic is created with the server's defaults. With the
            column `partition`, the first batch with rows creates it, with the partitions that these rows name, but at
            least as many as the topic of that name that the query reads, or else the largest one. Later rows must stay
            within them.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        checkpoint: folder or URI of the query's checkpoint; one per query.
        available_now: process the available records, in batches by the source's limits, and stop.
        schemas: see `kafkalike.spark.write`; resolved when the query starts.
        txn_id: names the stream in the topic's table; None: the id of the query, which is the checkpoint's. With your
            own name, a new checkpoint under a used name is an error instead of a second copy of the data.
        group_id: consumer group for which to commit the query's progress, in one transaction with the batch's records.
            The query must read format `kafkalike`, and the group must not have members.
        group_bootstrap_servers: root of the cluster that the query reads; None: the cluster it writes to. Offsets of
            another cluster are committed after the batch is written.
        query_options: output mode, processing time and name.
        producer_options: see `kafkalike.spark.write`; the timeout applies to each batch.
        dead_letters: handling of rows with an error.
        storage_options: credentials and endpoint of object stores; see `kafkalike.spark.write`. Options of a single
            root are given under its URI.

    Returns:
        The query. Its progress has the number of written rows as `observedMetrics["kafkalike_sink"]`.

    Raises:
        IllegalArgumentError: the DataFrame is not a streaming one, or bad arguments.
        AnalysisException: a column is missing or has a wrong type.
        InvalidTopicError, UnknownTopicOrPartitionError, InvalidGroupIdError, UnsupportedCodecError: bad names, or the
            topic is missing and topics are not created automatically.
        StreamingQueryException: raised by the query later; its text holds the errors of `StreamWriter` and
            `kafkalike.spark.write`.

    Example:
        ```python
        orders = ks.read_stream(spark, "orders", "./data", starting_offsets="earliest")
        query = ks.write_stream(orders, "copy", "./data", checkpoint="/checkpoints/copy", available_now=True)
        query.awaitTermination()
        print(ks.read(spark, "copy", "./data").count())  # 2
        ```
    """
    if not frame.isStreaming:
        raise IllegalArgumentError("write_stream takes a streaming DataFrame; kafkalike.spark.write takes others")
    running = query_options or QueryOptions()
    if available_now and running.processing_time is not None:
        raise IllegalArgumentError("available_now and processing_time exclude each other")
    wanted = RecordSchemas.of(schemas)
    if wanted:
        frame, bootstrap_servers = with_schemas(frame, topic, bootstrap_servers, storage_options, wanted)
        if group_bootstrap_servers is not None:
            group_bootstrap_servers = connect(group_bootstrap_servers, storage_options)
        storage_options = None
    sink_columns(frame, needs_topic=topic is None)
    writer = StreamWriter(
        topic,
        bootstrap_servers,
        checkpoint=checkpoint,
        txn_id=txn_id,
        group_id=group_id,
        group_bootstrap_servers=group_bootstrap_servers,
        producer_options=producer_options,
        dead_letters=dead_letters,
        storage_options=storage_options,
    )
    writer.records(frame)
    show_named_errors()
    check_same_root(frame.sparkSession, writer.cluster)
    if "partition" not in frame.columns or not writer.cluster.server.auto_create_topics:
        # The first batch knows the number of partitions.
        writer.ensure_topic()
    counted = frame.observe(OBSERVATION, F.count(F.lit(1)).alias("numOutputRows"))
    query = (
        counted.writeStream.outputMode(running.output_mode)
        .option("checkpointLocation", checkpoint)
        .foreachBatch(writer)
    )
    if running.query_name is not None:
        query = query.queryName(running.query_name)
    if available_now:
        query = query.trigger(availableNow=True)
    elif running.processing_time is not None:
        query = query.trigger(processingTime=running.processing_time)
    return query.start()
