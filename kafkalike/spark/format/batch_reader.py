"""The format's batch reader, which binds offsets when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.format.batch_plan import BATCH_TASKS, OffsetRun
from kafkalike.spark.format.error_text import hide_frames, hide_frames_of_rows
from kafkalike.spark.format.input_partitions import parts, read_part
from kafkalike.spark.format.positions import EARLIEST, Everywhere, Position, Settled, names, resolve
from kafkalike.spark.format.source_options import SourceOptions, check_batch
from kafkalike.spark.format.source_topics import SourceTopics, report_loss, where_it_stands
from kafkalike.spark.jvm.python_worker import PromptAnswer


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
