"""Conditions on the rows of a topic's table: at or above the log start, and within a range of offsets.

Ranges are given in the forms of Spark's Kafka source (`earliest`, `latest`, JSON).

The offsets of a condition stand in an array that is indexed by partition, so a condition is as small for thousands of
partitions as for one. With a comparison for each of 600 partitions, Spark's analyzer takes 8 seconds, and the generated
code is too long for Java.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError, OffsetOutOfRangeError
from kafkalike.maintenance.verify.untouched_log import check_readable
from kafkalike.model.config.storage_options import SentOptions
from kafkalike.spark.format.format import with_storage

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.topic import TopicInfo


MOST_SINGLE: Final = 16
"""Up to this number, partitions get a comparison each and Delta prunes their files one by one. Above it, Delta prunes
by the lowest and highest offset of all partitions."""


def readable(info: TopicInfo) -> Column | None:
    """Return the condition that a row is at or above the log start; None if all log starts are 0."""
    starts = _log_starts(info)
    if not starts:
        return None
    partition, offset = F.col("partition"), F.col("offset")
    return (offset >= F.lit(_least(info))) & (offset >= F.coalesce(F.get(_array(starts), partition), F.lit(0)))


def readable_sql(info: TopicInfo) -> str:
    """Return the same condition as SQL.

    It is never empty, because Delta allows DELETE through a view that only selects columns, but not through a view with
    a condition.
    """
    starts, least = _log_starts(info), f"offset >= {_least(info)}"
    if not starts:
        return least
    return f"{least} AND offset >= coalesce(get(CAST(split('{_text(starts)}', ',') AS ARRAY<BIGINT>), partition), 0L)"


def within(ranges: Mapping[int, range]) -> Column:
    """Return the condition that a row is within the range of its partition.

    Args:
        ranges: offsets by partition, half-open. Other partitions are not read.
    """
    full = {partition: run for partition, run in sorted(ranges.items()) if run}
    partition, offset = F.col("partition"), F.col("offset")
    if len(full) <= MOST_SINGLE:
        runs = [
            (partition == F.lit(p)) & (offset >= F.lit(run.start)) & (offset < F.lit(run.stop))
            for p, run in full.items()
        ]
        return reduce(or_, runs) if runs else F.lit(False)  # noqa: FBT003 - a Column
    starts = {p: run.start for p, run in full.items()}
    stops = {p: run.stop for p, run in full.items()}
    # Spark cannot look into the arrays; it skips files by these bounds.
    bounds = (offset >= F.lit(min(starts.values()))) & (offset < F.lit(max(stops.values())))
    mine = (offset >= F.get(_array(starts), partition)) & (offset < F.get(_array(stops), partition))
    return bounds & mine


def _log_starts(info: TopicInfo) -> dict[int, int]:
    return {partition: start.offset for partition, start in info.log_starts.items() if start.offset}


def _least(info: TopicInfo) -> int:
    """Return the lowest log start, by which Spark skips files, because it cannot look into the array."""
    return min(map(info.log_start, info.partitions))


def _array(offsets: Mapping[int, int]) -> Column:
    """Build an array of offsets by partition: a single literal, which Spark computes once."""
    return F.split(F.lit(_text(offsets)), ",").cast("array<bigint>")


def _text(offsets: Mapping[int, int]) -> str:
    return ",".join(str(offsets.get(partition, 0)) for partition in range(max(offsets) + 1))


SOUNDNESS: Final = "kafkalike_soundness"
"""Format of the single row that confirms that a topic's log is sound."""


def soundness(spark: SparkSession, cluster: Cluster, info: TopicInfo) -> Column | None:
    """Return the condition that the topic's log is not broken by a foreign writer; None for a topic closed to them.

    A topic's frame is read by Delta's reader, which returns whatever the table holds when the query runs. Consumers and
    the format check each version that they read. This condition checks once per query, and the query fails with the
    error of `check_readable`.
    """
    if cluster.server.is_closed(info.configs):
        return None
    spark.dataSource.register(with_storage(TopicSoundness, cluster.store.tasks.sent_options()))
    options = {"root": cluster.root, "topic": info.name}
    sound: Column = spark.read.format(SOUNDNESS).options(**options).load().scalar()
    return sound


class TopicSoundness(DataSource):
    """The format `kafkalike_soundness`: a single row, `true`, or an error. Its options are `root` and `topic`."""

    storage: ClassVar[SentOptions | None] = None
    """Credentials and endpoint of an object store. None takes the environment's."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return SOUNDNESS

    def schema(self) -> str:
        """Return its one column."""
        return "sound BOOLEAN"

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ANN401, ARG002 - Spark's signature
        """Create a reader; Spark asks for one in each query."""
        return _Reader(str(self.options.get("root")), str(self.options.get("topic")), self.storage)


class _Reader(DataSourceReader):
    def __init__(self, root: str, topic: str, storage: SentOptions | None) -> None:
        self._root = root
        self._topic = topic
        self._storage = storage

    def read(self, partition: InputPartition) -> Iterator[tuple[bool]]:  # noqa: ARG002 - there is one
        check_readable(connect(self._root, self._storage, access="spark").log(self._topic))
        yield (True,)


EARLIEST: Final = "earliest"
LATEST: Final = "latest"
MARKS: Final = {EARLIEST: -2, LATEST: -1}

Offsets: TypeAlias = str | Mapping[int, int]
"""`earliest`, `latest`, or an offset by partition, where -2 is earliest and -1 latest."""


def parse_offsets(text: str, topic: str) -> Offsets:
    """Parse offsets in the forms of Spark's Kafka source.

    Args:
        text: `earliest`, `latest` or JSON such as `{"orders": {"0": 23, "1": -1}}`.
        topic: the only topic that the JSON may name.

    Raises:
        IllegalArgumentError: the text is in none of these forms.
    """
    if text.strip().lower() in MARKS:
        return text.strip().lower()
    shape = f'earliest, latest or JSON like {{"{topic}": {{"0": 23, "1": -1}}}} is needed'
    try:
        given: Any = json.loads(text)
    except ValueError as cause:
        raise IllegalArgumentError(f"{shape}, not {text!r}: {cause}") from cause
    if not isinstance(given, dict) or list(given) != [topic] or not isinstance(given[topic], dict):
        raise IllegalArgumentError(f"{shape}, not {text!r}")
    try:
        return {int(partition): _offset(offset) for partition, offset in given[topic].items()}
    except ValueError as cause:
        raise IllegalArgumentError(f"{shape}: {cause}") from cause


def _offset(given: object) -> int:
    if type(given) is not int or given < min(MARKS.values()):
        raise ValueError(f"{given!r} is not an offset")
    return given


def plan_ranges(log: TopicLog, starting: Offsets, ending: Offsets) -> dict[int, range]:
    """Resolve the offsets to read of each partition as of this call: half-open ranges, which may be empty.

    Args:
        log: the topic's refreshed log.
        starting: first offsets.
        ending: offsets to stop before.

    Raises:
        IllegalArgumentError: offsets that do not name exactly the topic's partitions, or start after they end; or, as
            in Spark's Kafka source, a start at `latest` or an end at `earliest`.
        OffsetOutOfRangeError: offsets that are not in the log.
    """
    name = log.info.name
    for what, given, refused in (("starting", starting, LATEST), ("ending", ending, EARLIEST)):
        if given == refused or (not isinstance(given, str) and MARKS[refused] in given.values()):
            raise IllegalArgumentError(f"{what} offsets of a batch cannot be {refused} ({MARKS[refused]})")
    live = {p: range(log.log_start(p), log.log_end(p)) for p in log.info.partitions}
    starts = _resolve(name, starting, live)
    ends = _resolve(name, ending, live)
    outside = {p: at for at_by in (starts, ends) for p, at in at_by.items() if not live[p].start <= at <= live[p].stop}
    if outside:
        raise OffsetOutOfRangeError(
            {f"{name}-{p}": at for p, at in outside.items()}, {f"{name}-{p}": live[p] for p in outside}
        )
    for p in live:
        if starts[p] > ends[p]:
            raise IllegalArgumentError(f"{name}-{p}: the start {starts[p]} is behind the end {ends[p]}")
    return {p: range(starts[p], ends[p]) for p in live}


def _resolve(topic: str, offsets: Offsets, live: Mapping[int, range]) -> dict[int, int]:
    given = dict.fromkeys(live, MARKS[offsets]) if isinstance(offsets, str) else offsets
    if set(given) != set(live):
        raise IllegalArgumentError(f"{topic}: offsets name {_names(given)}; its partitions are {_names(live)}")
    marks = {MARKS[EARLIEST]: "start", MARKS[LATEST]: "stop"}
    return {p: getattr(live[p], marks[at]) if at in marks else at for p, at in given.items()}


def _names(partitions: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "none"
