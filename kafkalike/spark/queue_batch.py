"""QueueBatch: a slice of a share group's records as a DataFrame, locked until the job has acknowledged them.

The driver has acquired the slice by one compare-and-set of the groups' table, and renews its locks in a thread. The
tasks read its records from the topics' tables. The acknowledgements are part of a transaction with the job's output, or
a change of their own.
"""

from __future__ import annotations

import logging
import threading
import weakref
from itertools import pairwise
from typing import Final, Self

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.consumer.slice_fetcher import SliceFetcher
from kafkalike.errors import IllegalArgumentError, IllegalStateError
from kafkalike.model.concurrency import ReportErrors
from kafkalike.model.shares.share_partition import Acknowledgement, RecordVerdict
from kafkalike.model.shares.share_runs import gaps
from kafkalike.model.structs import ShareGroupMetadata, TopicPartition

_log = logging.getLogger(__name__)

VERDICTS: Final = {kind.value: kind for kind in (RecordVerdict.ACCEPT, RecordVerdict.RELEASE, RecordVerdict.REJECT)}


class QueueBatch:
    """Records that a job has taken from a queue, from `read_queue`. To be used by one thread.

    Its locks are renewed until it is acknowledged or closed. `len(batch)` is the number of acquired offsets, 0 if the
    queue was empty. At the end of a `with` block, records that were not acknowledged are released to other workers.

    Attributes:
        frame: the records, with the columns of `kafkalike.spark.read` and `delivery_count` INT, which is 1 for the
            first delivery. Each query over it reads the topics again.
        root: the cluster's root.
    """

    def __init__(self, root: str, fetcher: SliceFetcher, frame: DataFrame, timeout_ms: float) -> None:
        """Start to renew the locks; see `read_queue`."""
        self.root = root
        self.frame = frame
        self._fetcher = fetcher
        self._slices = fetcher.slices
        self._timeout_ms = timeout_ms
        self._done = False
        """True after the acknowledgements were committed."""
        self._staged = False
        """True while an open transaction has the acknowledgements."""
        self._closing = False
        """True if it was closed in that time."""
        self._closed = False
        self._renewal: tuple[threading.Thread, threading.Event] | None = None
        self._renew()

    def __len__(self) -> int:
        """Return the number of acquired offsets; compaction may have removed some of their records."""
        return sum(run.size for _, run in self._slices)

    @property
    def offsets(self) -> dict[TopicPartition, list[range]]:
        """The acquired offsets as half-open ranges."""
        found: dict[TopicPartition, list[range]] = {}
        for tp, run in self._slices:
            found.setdefault(tp, []).append(range(run.first, run.last + 1))
        return found

    @property
    def member(self) -> ShareGroupMetadata:
        """The membership that holds the locks."""
        return self._fetcher.metadata

    # --- acknowledgements ------------------------------------------------------------------------

    def acknowledge(self, verdicts: DataFrame | None = None) -> None:
        """Acknowledge the batch on its own, after its output was written. Its records may be processed twice.

        For exactly-once output, call `acknowledge` of `kafkalike.spark.transaction` instead.

        Args:
            verdicts: `partition`, `offset` and `verdict` STRING (`accept`, `release` for another delivery, or `reject`
                for none), and `topic` for a batch of several topics. Records without a row are accepted. The DataFrame
                is computed, so make it of stored or `localCheckpoint`ed results. None accepts all records.

        Raises:
            IllegalStateError: the batch was acknowledged or closed, or a transaction has its acknowledgements.
            IllegalArgumentError: a column is missing, a verdict is unknown, a record has two verdicts, or is not in the
                batch; nothing was acknowledged.
            InvalidRecordStateError: other members have acquired some of the records meanwhile, because their locks have
                ended. The acknowledgements of the others count.
            KafkaError: nothing was acknowledged, or the outcome is unknown; the locks end by time.
        """
        self._check_open()
        acks = self.acknowledgements(verdicts)
        self._stop()
        self._done = True
        self._fetcher.acknowledge(acks, self._timeout_ms)

    def acknowledgements(self, verdicts: DataFrame | None = None) -> dict[TopicPartition, list[Acknowledgement]]:
        """Return the acknowledgements of all records, as ranges; see `acknowledge`."""
        told = _verdict_runs(verdicts, {tp.topic for tp, _ in self._slices}) if verdicts is not None else {}
        found: dict[TopicPartition, list[Acknowledgement]] = {}
        used = 0
        for tp, run in self._slices:
            mine = [
                (max(first, run.first), min(last, run.last), verdict)
                for first, last, verdict in told.get(tp, ())
                if first <= run.last and last >= run.first
            ]
            used += sum(last - first + 1 for first, last, _ in mine)
            others = gaps(run.first, run.last, ((first, last) for first, last, _ in mine))
            acks = [*mine, *((first, last, RecordVerdict.ACCEPT) for first, last in others)]
            found.setdefault(tp, []).extend(
                Acknowledgement(first, last, verdict, run.deliveries) for first, last, verdict in sorted(acks)
            )
        if used != sum(last - first + 1 for runs in told.values() for first, last, _ in runs):
            raise IllegalArgumentError("the verdicts name records that are not in the batch; nothing was acknowledged")
        return found

    def stage(self) -> SliceFetcher:
        """Leave the acknowledgements to a transaction, which calls `settle` at its end.

        Raises:
            IllegalStateError: see `acknowledge`.
        """
        self._check_open()
        self._staged = True
        return self._fetcher

    def settle(self, *, committed: bool) -> None:
        """End the transaction that has the acknowledgements; close the batch if it was closed meanwhile."""
        self._staged, self._done = False, committed
        if committed:
            self._stop()
        if self._closing:
            self._closing = False
            # The outcome of the transaction is the result, whether or not the group could be left.
            with ReportErrors(_log, "share group %s: the job did not leave", self.member.group_id):
                self.close()

    def _check_open(self) -> None:
        if self._closed or self._closing:
            raise IllegalStateError("the batch is closed, and its records were released")
        if self._done:
            raise IllegalStateError("the batch was acknowledged")
        if self._staged:
            raise IllegalStateError("an open transaction has the acknowledgements of the batch")

    # --- locks -----------------------------------------------------------------------------------

    def _renew(self) -> None:
        if not self._slices:
            return
        stop = threading.Event()
        arguments = (weakref.ref(self), stop, self._fetcher.group.limits.lock_ms / 3000)
        thread = threading.Thread(target=_renew_until, args=arguments, name="kafkalike-queue-locks", daemon=True)
        self._renewal = thread, stop
        thread.start()

    def renew_locks(self) -> None:
        """Renew the locks; a thread of the batch calls it three times per lock duration.

        Raises:
            KafkaError: not renewed, or possibly not.
        """
        acks: dict[TopicPartition, list[Acknowledgement]] = {}
        for tp, run in self._slices:
            renewed = Acknowledgement(run.first, run.last, RecordVerdict.RENEW, run.deliveries)
            acks.setdefault(tp, []).append(renewed)
        lost = self._fetcher.group.exchange(self.member.member_id, acks, timeout_ms=self._timeout_ms).refused
        if lost and not self._staged:  # otherwise the transaction tells, which may have ended them itself
            _log.warning(
                "share group %s: another member has acquired records of this job, whose locks had ended; its output "
                "cannot be committed with them: %s",
                self.member.group_id,
                ", ".join(f"{tp.topic}-{tp.partition} @ {a.first}-{a.last}" for tp, no in lost.items() for a in no),
            )

    def _stop(self) -> None:
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal[1].set()
            if renewal[0].is_alive():
                renewal[0].join()

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Release the records that were not acknowledged, and leave the group. A second call does nothing.

        If an open transaction has the acknowledgements, the batch closes at its end.

        Raises:
            KafkaError: the group could not be left; the locks end by time.
        """
        if self._staged:
            self._closing = True
            return
        if self._closed:
            return
        self._closed = True
        self._stop()
        self._fetcher.end(self._timeout_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Release the records that were not acknowledged; see `close`."""
        self.close()


def _renew_until(reference: weakref.ref[QueueBatch], stop: threading.Event, interval_s: float) -> None:
    while not stop.wait(interval_s):
        batch = reference()
        if batch is None:
            return
        with ReportErrors(_log, "share group %s: the locks were not renewed", batch.member.group_id):
            batch.renew_locks()
        del batch


Verdicts = dict[TopicPartition, list[tuple[int, int, RecordVerdict]]]


def _verdict_runs(verdicts: DataFrame, topics: set[str]) -> Verdicts:
    """Compute verdicts, as ranges of offsets.

    Raises:
        IllegalArgumentError: a column is missing, a verdict is unknown, or a record has two verdicts.
    """
    missing = {"partition", "offset", "verdict"} - set(verdicts.columns)
    if len(topics) > 1 and "topic" not in verdicts.columns:
        missing.add("topic")
    if missing:
        raise IllegalArgumentError(f"the verdicts have no column {', '.join(sorted(missing))}")
    topic = F.col("topic") if "topic" in verdicts.columns else F.lit(next(iter(topics), ""))
    verdict = F.lower(F.col("verdict"))
    rows = verdicts.select(
        topic.alias("topic"),
        F.col("partition").cast("int").alias("partition"),
        F.col("offset").cast("bigint").alias("offset"),
        verdict.alias("verdict"),
    ).distinct()
    place = Window.partitionBy("topic", "partition", "verdict").orderBy("offset")
    numbered = rows.withColumn("island", F.col("offset") - F.row_number().over(place))
    islands = numbered.groupBy("topic", "partition", "verdict", "island").agg(F.min("offset"), F.max("offset"))
    found: Verdicts = {}
    for name, partition, said, _, first, last in islands.collect():
        if said not in VERDICTS or None in {name, partition, first}:
            raise IllegalArgumentError(
                f"{name}-{partition} @ {first}: the verdict is {said!r}, and must be {', '.join(VERDICTS)}; no column "
                "may be null; nothing was acknowledged"
            )
        found.setdefault(TopicPartition(name, partition), []).append((first, last, VERDICTS[said]))
    for tp, runs in found.items():
        runs.sort()
        for (_, last, one), (first, _, other) in pairwise(runs):
            if first <= last:
                raise IllegalArgumentError(
                    f"{tp.topic}-{tp.partition} @ {first} has two verdicts, {one} and {other}; nothing was acknowledged"
                )
    return found
