"""The stream reader without Spark: the calls that Spark makes in, offsets and records of real Delta tables out."""

from __future__ import annotations

import json
import logging
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from kafkalike.admin.testing import ManualClock
from kafkalike.connect import connect
from kafkalike.errors import (
    CheckpointMismatchError,
    CorruptRecordError,
    DataLossError,
    IllegalArgumentError,
    NoOffsetForPartitionError,
    TopicDeletedError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.group_offsets import GroupOffsets, Membership
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.spark.format import input_partitions as range_reader
from kafkalike.spark.format.source_options import parse_options
from kafkalike.spark.format.stream_reader import MarkedReader, marked, marked_ids, unmarked
from tests.tools.kinds import only_on_disk
from tests.tools.records import fill
from tests.tools.upkeep import AT_ONCE, EAGER, keyed, topic, upkeep

Json = dict[str, dict[str, int]]
Record = tuple[str, int, int, str]
NOW_MS = SYSTEM_CLOCK.now_ms()


class Query:
    """Makes the calls that Spark makes of one run of a query, and keeps what a checkpoint would."""

    def __init__(
        self, root: str, checkpoint: Query | None = None, clock: ManualClock | None = None, **given: str
    ) -> None:
        names = {name.replace("__", "."): value for name, value in given.items()}
        choice = {} if names.keys() & {"assign", "subscribePattern"} else {"subscribe": "t"}
        options = parse_options({"kafka.bootstrap.servers": root} | choice | names)
        self.reader = MarkedReader(options, clock or ManualClock())
        self.logged: list[Json] = [] if checkpoint is None else list(checkpoint.logged)
        self.committed: int = 0 if checkpoint is None else checkpoint.committed
        self.first: Json | None = None

    @property
    def start(self) -> Json:
        """Where the next batch begins."""
        if self.committed:
            return self.logged[self.committed - 1]
        if self.first is None:
            self.first = through_json(self.reader.initialOffset())
        return self.first

    def log_next(self, limit: ReadLimit | None = None) -> bool:
        """Plan the next batch and log its end; False when there is nothing new."""
        start = self.start
        end = through_json(self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit()))
        if self.committed and end == start:
            return False
        self.logged.append(end)
        return True

    def run_logged(self) -> list[Record]:
        """Run the batch that was logged last."""
        start, end = self.start, self.logged[self.committed]
        found = []
        for part in self.reader.partitions(start, end):
            # A task gets the reader and its part by pickle.
            reader, sent = pickle.loads(pickle.dumps((self.reader, part)))  # noqa: S301 - as Spark does it
            found += records(reader, sent)
        self.committed += 1
        self.reader.commit(end)
        return found

    def batch(self, limit: ReadLimit | None = None) -> list[Record] | None:
        """One micro-batch; None when there is nothing new."""
        return self.run_logged() if self.log_next(limit) else None


def through_json(offsets: Any) -> Json:
    made: Json = json.loads(json.dumps(offsets))
    return made


def records(reader: MarkedReader, part: Any) -> list[Record]:
    return [
        (row["topic"], row["partition"], row["offset"], row["value"].decode())
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


@pytest.fixture
def root(any_root: str) -> str:
    """A new one on a disk, and in object stores."""
    return any_root


@pytest.fixture
def cluster(root: str) -> Cluster:
    """A cluster with a topic `t` of two partitions."""
    made: Any = connect(root)
    made.create_topic("t", 2, {})
    assert isinstance(made, Cluster)
    return made


def values(found: list[Record] | None) -> list[str]:
    return [record[3] for record in found or []]


# --- where a query begins ----------------------------------------------------------------------


def test_behaviour_12_a_stream_starts_at_latest_by_default(root: str, cluster: Cluster) -> None:
    """What was there before is not read."""
    fill(cluster, "t", "old")
    query = Query(root)
    assert query.batch() == []

    fill(cluster, "t", "new", partition=1)

    assert query.batch() == [("t", 1, 0, "new")]
    assert query.batch() is None


def test_behaviour_12_offsets_and_marks_begin_where_they_say(root: str, cluster: Cluster) -> None:
    """-2 is the log start and -1 the log end."""
    cluster.add_partitions("t", 3)
    for p in range(3):
        fill(cluster, "t", "a", "b", "c", partition=p)
    query = Query(root, startingOffsets='{"t":{"0":2,"1":-1,"2":-2}}')

    assert query.batch() == [("t", 0, 2, "c"), ("t", 2, 0, "a"), ("t", 2, 1, "b"), ("t", 2, 2, "c")]
    fill(cluster, "t", "d", partition=1)
    assert query.batch() == [("t", 1, 3, "d")]


def test_behaviour_15_offsets_must_name_exactly_the_partitions_read(root: str, cluster: Cluster) -> None:
    """Missing ones and extra ones, offsets and times."""
    for given in ('{"t":{"0":0}}', '{"t":{"0":0,"1":0,"2":0}}', '{"t":{"0":0,"1":0},"u":{"0":0}}', '{"t":-2,"u":-2}'):
        with pytest.raises(IllegalArgumentError, match=r"KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED|is needed"):
            Query(root, startingOffsets=given).batch()
    with pytest.raises(IllegalArgumentError, match=r"KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED.*t-0, t-1"):
        Query(root, startingOffsetsByTimestamp='{"t":{"0":0}}').batch()
    with pytest.raises(IllegalArgumentError, match="Given: t-0, t-1, u; read: t-0, t-1"):
        Query(root, startingOffsets='{"t":"earliest","u":"earliest"}').batch()


def test_behaviour_18_a_time_means_the_first_record_at_or_after_it(root: str, cluster: Cluster) -> None:
    """Also where times are not in order; without such a record it is an error, or latest if that is asked for."""
    fill(cluster, "t", "1000", "1001", "1002", at_ms=1_000)
    fill(cluster, "t", "500", at_ms=500)
    fill(cluster, "t", "2000", at_ms=2_000, partition=1)

    assert values(Query(root, startingTimestamp="1001").batch()) == ["1001", "1002", "500", "2000"]
    assert values(Query(root, startingOffsetsByTimestamp='{"t":{"0":1002,"1":0}}').batch()) == ["1002", "500", "2000"]
    with pytest.raises(IllegalArgumentError, match=r"No offset matched from request of topic-partition t-0 .* 1500"):
        Query(root, startingTimestamp="1500").batch()
    later = Query(root, startingTimestamp="1500", startingOffsetsByTimestampStrategy="latest")
    assert values(later.batch()) == ["2000"]


def test_a_topic_that_does_not_exist_is_refused(root: str, cluster: Cluster) -> None:
    """And so is a partition that was assigned; a pattern may match nothing yet."""
    with pytest.raises(UnknownTopicOrPartitionError, match="u: no such topic"):
        Query(root, subscribe="t,u").batch()
    with pytest.raises(UnknownTopicOrPartitionError, match="t-7: no such"):
        Query(root, assign='{"t":[0,7]}').batch()

    query = Query(root, subscribePattern="later.*", startingOffsets="latest")
    assert query.batch() == []
    cluster.create_topic("later-1", 1, {})
    fill(cluster, "later-1", "x")

    assert query.batch() == [("later-1", 0, 0, "x")]


def test_a_start_that_is_not_in_the_log_is_data_loss(root: str, cluster: Cluster) -> None:
    """An error, or the nearest record there is."""
    fill(cluster, "t", "0", "1", "2", "3")
    cluster.move_log_start("t", {0: 2}, "retention", "r-1")

    for start in (1, 5):
        offsets = json.dumps({"t": {"0": start, "1": 0}})
        with pytest.raises(DataLossError, match=rf"t-0: the start {start} is not in the log, which is \[2, 4\)"):
            Query(root, startingOffsets=offsets).batch()
        found = Query(root, startingOffsets=offsets, failOnDataLoss="false").batch()
        assert values(found) == (["2", "3"] if start == 1 else [])


# --- going on ----------------------------------------------------------------------------------


def test_behaviour_23_a_restart_reads_nothing_twice_and_skips_nothing(root: str, cluster: Cluster) -> None:
    """Records added while it was stopped come after the restart; the start options count only once."""
    fill(cluster, "t", "a", "b")
    first = Query(root, startingOffsets="earliest")
    assert values(first.batch()) == ["a", "b"]
    fill(cluster, "t", "c")

    second = Query(root, checkpoint=first, startingOffsets="earliest")

    assert values(second.batch()) == ["c"]
    assert second.batch() is None


@pytest.mark.parametrize("start", ["earliest", "latest", '{"t":{"0":1,"1":-1}}'])
def test_behaviour_30_a_batch_that_was_logged_is_run_again_with_the_same_range(
    root: str, cluster: Cluster, start: str
) -> None:
    """Whatever was added meanwhile; also the first one, whose start is in no checkpoint."""
    fill(cluster, "t", "a", "b")
    first = Query(root, startingOffsets=start)
    assert first.log_next()
    fill(cluster, "t", "c")
    fill(cluster, "t", "z", partition=1)

    again = Query(root, checkpoint=first, startingOffsets=start)

    expected = {"earliest": ["a", "b"], "latest": []}.get(start, ["b"])
    assert values(again.run_logged()) == expected
    assert values(again.batch()) == ["c", "z"]
    assert again.batch() is None


@pytest.mark.parametrize("fail", ["true", "false"])
def test_behaviour_30_a_first_batch_that_began_at_latest_for_want_of_a_late_record_is_empty_again(
    root: str, cluster: Cluster, fail: str
) -> None:
    """The record that is late enough by now lies above its end."""
    given: dict[str, Any] = {"startingOffsetsByTimestampStrategy": "latest", "failOnDataLoss": fail}
    fill(cluster, "t", "a", "b", at_ms=1_000)
    first = Query(root, startingTimestamp="1500", **given)
    assert first.log_next()
    fill(cluster, "t", "too early", at_ms=1_200)
    fill(cluster, "t", "late", at_ms=1_600)

    again = Query(root, checkpoint=first, startingTimestamp="1500", **given)

    assert again.run_logged() == []
    assert values(again.batch()) == ["too early", "late"]


def test_behaviour_24_new_partitions_and_topics_are_read_from_their_beginning(root: str, cluster: Cluster) -> None:
    """Also by a query that began at latest."""
    query = Query(root, subscribePattern="t.*")
    assert query.batch() == []

    cluster.add_partitions("t", 4)
    cluster.create_topic("t2", 1, {})
    fill(cluster, "t", "p3", partition=3)
    fill(cluster, "t2", "new")

    assert query.batch() == [("t", 3, 0, "p3"), ("t2", 0, 0, "new")]


def test_behaviour_25_a_limit_goes_on_where_it_was_after_a_restart(root: str, cluster: Cluster) -> None:
    """At most that many, every partition with something waiting moves, order is kept."""
    fill(cluster, "t", *[f"a{n}" for n in range(8)])
    fill(cluster, "t", "b0", partition=1)
    query = Query(root, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    assert query.batch() == [*(("t", 0, n, f"a{n}") for n in range(3)), ("t", 1, 0, "b0")]

    restarted = Query(root, checkpoint=query, maxOffsetsPerTrigger="4")

    assert values(restarted.batch()) == ["a3", "a4", "a5", "a6"]
    assert values(restarted.batch()) == ["a7"]
    assert restarted.batch() is None


def test_behaviour_27_a_batch_waits_for_the_minimum_or_the_delay(root: str, cluster: Cluster) -> None:
    """The first one does not wait; the maximum holds beside the minimum."""
    clock = ManualClock()
    limits: dict[str, Any] = {"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "4", "maxTriggerDelay": "10s"}
    query = Query(root, clock=clock, startingOffsets="earliest", **limits)
    fill(cluster, "t", "a")
    assert values(query.batch()) == ["a"]

    fill(cluster, "t", "b", "c")
    assert query.batch() is None
    fill(cluster, "t", "d", "e", "f")
    assert values(query.batch()) == ["b", "c", "d", "e"]
    assert query.batch() is None
    clock.seconds += 10
    assert values(query.batch()) == ["f"]


def test_behaviour_28_all_that_is_there_is_read_when_spark_asks_for_it(root: str, cluster: Cluster) -> None:
    """Trigger.Once asks so, whatever the limits."""
    fill(cluster, "t", "a", "b", "c")
    query = Query(root, startingOffsets="earliest", maxOffsetsPerTrigger="1", minOffsetsPerTrigger="1")

    assert query.reader.getDefaultReadLimit() == ReadMaxRows(1)
    assert values(query.batch(ReadAllAvailable())) == ["a", "b", "c"]


def test_behaviour_28_available_now_ends_where_it_was_when_it_began(root: str, cluster: Cluster) -> None:
    """In batches under the limit; the minimum does not hold up the last one."""
    fill(cluster, "t", *map(str, range(13)))
    query = Query(root, startingOffsets="earliest", maxOffsetsPerTrigger="5", minOffsetsPerTrigger="5")
    query.reader.prepareForTriggerAvailableNow()
    fill(cluster, "t", "later")

    sizes = []
    while (found := query.batch()) is not None:
        sizes.append(len(found))

    assert sizes == [5, 5, 3]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_behaviour_29_available_now_fails_when_its_end_is_out_of_reach(root: str, cluster: Cluster, fail: str) -> None:
    """A topic deleted, or deleted and created again, whatever failOnDataLoss says."""
    fill(cluster, "t", "a", "b", "c")
    query = Query(root, startingOffsets="earliest", maxOffsetsPerTrigger="1", failOnDataLoss=fail)
    query.reader.prepareForTriggerAvailableNow()
    assert values(query.batch()) == ["a"]

    cluster.delete_topic("t")
    with pytest.raises(DataLossError, match=r"t-0: Trigger.AvailableNow .* offset 3, but it is gone"):
        query.log_next()
    cluster.create_topic("t", 2, {})
    fill(cluster, "t", "x", "y", "z", "more")
    with pytest.raises(DataLossError, match="it ends at 4 now: the topic was deleted"):
        query.log_next()


def test_behaviour_29_partitions_added_before_a_retry_are_no_failure(root: str, cluster: Cluster) -> None:
    """They are read from their beginning in the retry."""
    fill(cluster, "t", "a")
    failed = Query(root, startingOffsets="earliest")
    failed.reader.prepareForTriggerAvailableNow()
    failed.log_next()
    cluster.add_partitions("t", 3)
    fill(cluster, "t", "b", partition=2)

    retry = Query(root, checkpoint=failed, startingOffsets="earliest")
    retry.reader.prepareForTriggerAvailableNow()

    assert values(retry.run_logged()) == ["a"]
    assert values(retry.batch()) == ["b"]


def test_behaviour_31_offsets_are_never_empty(root: str, cluster: Cluster) -> None:
    """A partition without news keeps its offset, and a query whose topics are all gone keeps the last ones."""
    fill(cluster, "t", "a")
    query = Query(root, startingOffsets="earliest", failOnDataLoss="false")
    query.batch()
    fill(cluster, "t", "b", partition=1)
    query.batch()
    assert unmarked(query.logged[-1]) == {"t": {"0": 1, "1": 1}}

    cluster.delete_topic("t")

    assert query.batch() is None
    assert unmarked(query.reader.latestOffset(query.start, ReadAllAvailable())) == {"t": {"0": 1, "1": 1}}


def test_behaviour_33_the_latest_offsets_are_reported(root: str, cluster: Cluster) -> None:
    """Those of the last look, which a limited batch is behind."""
    fill(cluster, "t", "a", "b", "c")
    query = Query(root, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    assert query.reader.reportLatestOffset() is None

    query.batch()

    assert unmarked(query.logged[-1]) == {"t": {"0": 1, "1": 0}}
    assert query.reader.reportLatestOffset() == {"t": {"0": 3, "1": 0}}


def test_a_range_may_be_split_over_tasks(root: str, cluster: Cluster) -> None:
    """With minPartitions and maxRecordsPerPartition; each task reads its own offsets."""
    fill(cluster, "t", *map(str, range(10)))
    for option, number in (("minPartitions", "3"), ("maxRecordsPerPartition", "4")):
        given: dict[str, Any] = {option: number}
        query = Query(root, startingOffsets="earliest", **given)
        end = query.reader.latestOffset(query.start, ReadAllAvailable())

        parts: Any = query.reader.partitions(query.start, end)

        assert [len(plan.offsets) for part in parts for plan in part.plans] == [3, 3, 4]
        assert values([record for part in parts for record in records(query.reader, part)]) == [*map(str, range(10))]


def test_progress_is_shown_as_that_of_the_group(root: str, cluster: Cluster) -> None:
    """When kafka.group.id names one; never beyond what was processed."""
    fill(cluster, "t", "a", "b")
    query = Query(root, startingOffsets="earliest", kafka__group__id="watched")
    query.log_next()
    assert "watched" not in cluster.groups.refresh().groups

    query.run_logged()

    offsets = cluster.groups.refresh().groups["watched"].offsets
    assert offsets[TopicPartition("t", 0)].position.offset == 2


def test_progress_is_shown_when_nothing_new_is_there(root: str, cluster: Cluster) -> None:
    """Spark calls `commit` of a batch only when the next one begins; it asks for the next one sooner."""
    fill(cluster, "t", *"abc")
    query = Query(root, startingOffsets="earliest", kafka__group__id="watch")
    query.log_next()
    start = query.start
    end = query.logged[0]

    assert committed_of(cluster, "watch") == {}
    assert query.reader.latestOffset(end, ReadAllAvailable()) == end
    assert committed_of(cluster, "watch") == {0: 3, 1: 0}
    assert start != end


def committed_of(cluster: Cluster, group: str) -> dict[int, int]:
    """Offsets of a group in `t`."""
    info = cluster.topic("t")
    wanted = [TopicPartition("t", p) for p in info.partitions]
    found = GroupOffsets.of(cluster, SYSTEM_CLOCK).committed(group, wanted, {"t": info.topic_id})
    return {tp.partition: at.offset for tp, at in found.items()}


def test_progress_in_a_topic_does_not_count_for_the_next_one_of_its_name(root: str, cluster: Cluster) -> None:
    """Spark tells of a batch that is done after it has planned the next one, which finds the topic created again."""
    fill(cluster, "t", "a", "b")
    query = Query(root, startingOffsets="earliest", kafka__group__id="watched", failOnDataLoss="false")
    query.batch()
    done = query.start
    cluster.delete_topic("t")
    cluster.create_topic("t", 2, {})
    fill(cluster, "t", "x")

    query.log_next()
    query.reader.commit(through_json(done))

    known = cluster.groups.refresh().groups["watched"].offsets[TopicPartition("t", 0)]
    assert known.topic_id != cluster.topic("t").topic_id
    assert values(query.run_logged()) == ["x"]
    known = cluster.groups.refresh().groups["watched"].offsets[TopicPartition("t", 0)]
    assert (known.topic_id, known.position.offset) == (cluster.topic("t").topic_id, 1)


# --- what is lost ------------------------------------------------------------------------------


def test_behaviour_37_a_topic_created_again_with_fewer_records_fails(root: str, cluster: Cluster) -> None:
    """Between batches, and while the query is stopped."""
    fill(cluster, "t", "a", "b")
    query = Query(root, startingOffsets="earliest")
    query.batch()

    cluster.delete_topic("t")
    cluster.create_topic("t", 2, {})
    fill(cluster, "t", "x")

    with pytest.raises(DataLossError, match="t-0: its offset was changed from 2 to 1"):
        Query(root, checkpoint=query).batch()
    with pytest.raises(DataLossError, match=r"t-0: its offset was changed from 2 to 1: topic id .* is now"):
        query.batch()


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_topic_created_again_is_read_from_its_beginning_without_fail_on_data_loss(
    root: str, cluster: Cluster, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """Also when it has as many records as before or more, where offsets alone do not show it."""
    fill(cluster, "t", "a", "b")
    query = Query(root, startingOffsets="earliest", failOnDataLoss="false")
    query.batch()
    cluster.delete_topic("t")
    cluster.create_topic("t", 2, {})
    expected = [f"new{n}" for n in range(count)]
    fill(cluster, "t", *expected)

    with caplog.at_level(logging.WARNING):
        found = [value for _ in range(3) for value in values(query.batch())]

    assert found == expected
    assert "t-0: its offset was changed from 2" in caplog.text


def test_a_topic_created_again_with_more_records_fails_too(root: str, cluster: Cluster) -> None:
    """Its id tells, which Kafka's source cannot see."""
    fill(cluster, "t", "a")
    query = Query(root, startingOffsets="earliest")
    query.batch()
    cluster.delete_topic("t")
    cluster.create_topic("t", 2, {})
    fill(cluster, "t", "x", "y", "z")

    with pytest.raises(DataLossError, match="was changed from 1 to 3: topic id"):
        query.batch()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_created_again_after_planning_is_not_taken_for_the_one_before(
    root: str, cluster: Cluster, fail: str
) -> None:
    """It fails, also in a last batch; or its new life is read once, from its beginning."""
    fill(cluster, "t", "a", "b")
    query = Query(root, startingOffsets="earliest", failOnDataLoss=fail)
    query.log_next()
    cluster.delete_topic("t")
    cluster.create_topic("t", 2, {})
    fill(cluster, "t", "x", "y", "z")

    if fail == "true":
        with pytest.raises(DataLossError, match=r"t-0: topic id .*, to be read up to 2, is now"):
            query.run_logged()
        return
    assert query.run_logged() == []
    assert [value for _ in range(3) for value in values(query.batch())] == ["x", "y", "z"]


def test_a_topic_that_is_gone_fails_or_is_left_out(root: str, cluster: Cluster) -> None:
    """The others go on."""
    cluster.create_topic("u", 1, {})
    fill(cluster, "t", "a")
    strict = Query(root, subscribe="t,u", startingOffsets="earliest")
    lenient = Query(root, subscribe="t,u", startingOffsets="earliest", failOnDataLoss="false")
    for query in (strict, lenient):
        query.batch()

    cluster.delete_topic("t")
    fill(cluster, "u", "b")

    with pytest.raises(DataLossError, match=r"PARTITIONS_DELETED.*t-0 at offset 1, t-1 at offset 0"):
        strict.batch()
    assert values(lenient.batch()) == ["b"]
    assert unmarked(lenient.logged[-1]) == {"u": {"0": 1}}


@only_on_disk("any_root")
@pytest.mark.parametrize("when", ["before planning", "after planning"])
def test_behaviour_38_records_that_aged_out_fail_or_are_skipped(
    root: str, cluster: Cluster, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    """Names topic, partition, offsets and reason; the rest comes once."""
    for value in "abcd":
        fill(cluster, "t", value)

    def lose() -> None:
        cluster.move_log_start("t", {0: 2}, "retention", "run-7")
        for segment in cluster.log("t").segments_within(0, range(2)):
            Path(root, "t", segment.path).unlink()

    queries = {fail: Query(root, startingOffsets="earliest", failOnDataLoss=fail) for fail in ("true", "false")}
    for query in queries.values():
        query.log_next()
    if when == "before planning":
        lose()
    parts = {}
    for fail, query in queries.items():
        if fail == "false" or when == "after planning":
            parts[fail] = query.reader.partitions(query.start, query.logged[0])
    if when == "after planning":
        lose()

    strict = queries["true"]
    with pytest.raises(DataLossError, match=r"t-0: offsets \[0, 2\) are lost: log start moved to 2 by retention, run"):
        [
            records(strict.reader, p)
            for p in parts.get("true") or strict.reader.partitions(strict.start, strict.logged[0])
        ]
    with caplog.at_level(logging.WARNING):
        found = [r for part in parts["false"] for r in records(queries["false"].reader, part)]
    assert values(found) == ["c", "d"]


@only_on_disk("any_root")
def test_behaviour_38_a_topic_deleted_while_tasks_run_does_not_kill_a_lenient_query(
    root: str, cluster: Cluster
) -> None:
    """Its records are skipped; a strict query fails and says why."""
    fill(cluster, "t", "a")
    queries = [Query(root, startingOffsets="earliest", failOnDataLoss=fail) for fail in ("true", "false")]
    for query in queries:
        query.log_next()
    (strict,), (lenient,) = [q.reader.partitions(q.start, q.logged[0]) for q in queries]

    cluster.delete_topic("t")
    with pytest.raises(DataLossError, match=r"t-0: offsets \[0, 1\) are lost: topic 't' does not exist"):
        records(queries[0].reader, strict)
    assert records(queries[1].reader, lenient) == []

    cluster.create_topic("t", 2, {})
    fill(cluster, "t", "another life")
    with pytest.raises(DataLossError, match="now belongs to topic id") as lost:
        records(queries[0].reader, strict)
    assert isinstance(lost.value.__cause__, TopicDeletedError)
    assert records(queries[1].reader, lenient) == []


def test_behaviour_39_a_start_below_the_log_start_never_reads_a_record_twice(root: str, cluster: Cluster) -> None:
    """Asking for 0 where the log begins at 2."""
    fill(cluster, "t", "a", "b", "c", "d")
    cluster.move_log_start("t", {0: 2}, "retention", "r")
    query = Query(root, startingOffsets='{"t":{"0":0,"1":0}}', failOnDataLoss="false")

    assert values(query.batch()) == ["c", "d"]
    assert query.batch() is None


def test_a_new_partition_that_does_not_begin_at_zero_is_data_loss(root: str, cluster: Cluster) -> None:
    """It was added, filled and cut between two batches."""
    queries = [Query(root, failOnDataLoss=fail) for fail in ("true", "false")]
    for query in queries:
        query.batch()
    cluster.add_partitions("t", 3)
    fill(cluster, "t", "a", "b", partition=2)
    cluster.move_log_start("t", {2: 1}, "retention", "r")

    with pytest.raises(DataLossError, match="t-2: the added partition starts from 1 instead of 0"):
        queries[0].batch()
    assert values(queries[1].batch()) == ["b"]


@only_on_disk("any_root")
def test_a_damaged_file_is_named_whatever_the_options(root: str, cluster: Cluster) -> None:
    """Damage is not age: it is never skipped."""
    fill(cluster, "t", "a")
    (segment,) = cluster.log("t").segments_within(0, range(1))
    path = Path(root, "t", segment.path)
    path.write_bytes(path.read_bytes()[:40])
    query = Query(root, startingOffsets="earliest", failOnDataLoss="false")

    with pytest.raises(CorruptRecordError, match=segment.path):
        query.batch()


@only_on_disk("any_root")
def test_a_file_that_is_missing_without_a_reason_is_data_loss(root: str, cluster: Cluster) -> None:
    """Nobody moved the log start, so a foreign writer must have removed it."""
    for value in "abc":
        fill(cluster, "t", value)
    (segment,) = cluster.log("t").segments_within(0, range(1, 2))
    Path(root, "t", segment.path).unlink()

    with pytest.raises(DataLossError, match=rf"t-0: offsets \[1, 2\) are lost: .*{segment.path} is missing"):
        Query(root, startingOffsets="earliest").batch()
    assert values(Query(root, startingOffsets="earliest", failOnDataLoss="false").batch()) == ["a", "c"]


@only_on_disk("any_root")
def test_a_file_with_other_records_than_its_statistics_say_is_damage(root: str, cluster: Cluster) -> None:
    """Put in another one's place by a foreign writer."""
    fill(cluster, "t", "a", "b", "c")
    fill(cluster, "t", "d")
    whole, small = cluster.log("t").segments_within(0, range(4))
    shutil.copy(Path(root, "t", small.path), Path(root, "t", whole.path))

    with pytest.raises(CorruptRecordError, match=r"should hold \[0, 3\), but"):
        Query(root, startingOffsets="earliest").batch()


# --- under maintenance --------------------------------------------------------------------------


@only_on_disk("any_root")
@pytest.mark.parametrize("when", ["before planning", "after planning", "inside a file"])
def test_files_merged_under_a_stream_do_not_show(root: str, cluster: Cluster, when: str) -> None:
    """Between its batches, between planning and reading, and where it stands inside a file that goes."""
    cluster.set_configs("t", {**AT_ONCE, "retention.ms": "-1"})
    limit = {"maxOffsetsPerTrigger": "3"} if when == "inside a file" else {}
    query = Query(root, None, ManualClock(), startingOffsets="earliest", **limit)
    for number in range(6):
        fill(cluster, "t", f"{number}a", f"{number}b", at_ms=NOW_MS + number)
    expected = [f"{number}{letter}" for number in range(6) for letter in "ab"]
    first = values(query.batch()) if when == "inside a file" else []
    query.log_next()
    parts = query.reader.partitions(query.start, query.logged[-1]) if when == "after planning" else None

    done = upkeep(root)
    assert done.merged_segments >= 5
    (live,) = {segment.path for segment in cluster.log("t").segments_within(0, range(2))}
    for path in Path(root, "t", "partition=0").iterdir():
        if path.name not in live:
            path.unlink()

    if parts is not None:
        assert values([record for part in parts for record in records(query.reader, part)]) == expected
        return
    found = first + values(query.run_logged())
    while (batch := query.batch()) is not None:
        found += values(batch)
    assert found == expected


def test_the_holes_of_a_compacted_topic_are_no_loss(root: str) -> None:
    """Whether compaction came before or after the range was planned."""
    log = topic(root, "t", 1, EAGER)
    for number, key in enumerate("abaca"):
        log.append(keyed((key, str(number)), at_ms=NOW_MS + 10 * number))
    query = Query(root, startingOffsets="earliest")
    query.log_next()
    parts = query.reader.partitions(query.start, query.logged[0])

    done = upkeep(root)
    assert done.compacted_records == 1

    expected = [(1, "1"), (2, "2"), (3, "3"), (4, "4")]
    assert [(r[2], r[3]) for part in parts for r in records(query.reader, part)] in (expected, [(0, "0"), *expected])
    assert [(r[2], r[3]) for r in query.run_logged()] == expected
    assert [(r[2], r[3]) for r in Query(root, startingOffsets='{"t":{"0":0}}').batch() or []] == expected


# --- many files --------------------------------------------------------------------------------


def test_behaviour_42_a_batch_goes_on_inside_a_file_where_the_last_one_ended(root: str, cluster: Cluster) -> None:
    """From the file that was left open and from a new process alike; nothing of one batch shows in another."""
    fill(cluster, "t", *map(str, range(100)))
    for forget in (False, True):
        query = Query(root, startingOffsets="earliest", maxOffsetsPerTrigger="7")
        found = []
        while (batch := query.batch()) is not None:
            assert len(batch) <= 7
            found += values(batch)
            if forget:
                range_reader._open.clear()
        assert found == [*map(str, range(100))]


@pytest.mark.slow
def test_many_small_files_make_few_batches_of_records(root: str, cluster: Cluster) -> None:
    """And planning looks at the files of the range alone."""
    for number in range(60):
        fill(cluster, "t", str(number))
    query = Query(root, startingOffsets='{"t":{"0":20,"1":0}}')
    end = query.reader.latestOffset(query.start, ReadAllAvailable())

    (part,) = query.reader.partitions(query.start, end)

    shown: Any = part
    (plan,) = shown.plans
    assert len(plan.segments) == 40
    (batch,) = query.reader.read(part)
    assert [bytes(v).decode() for v in batch.column("value").to_pylist()] == [*map(str, range(20, 60))]


# --- checkpoints of others ---------------------------------------------------------------------


def test_offsets_of_a_checkpoint_come_back_and_say_whose_they_are() -> None:
    """Kafka's offsets and a mark; text for text, as Spark compares the texts."""
    offsets = {"b": {"2": 3, "10": 1}, "c": {"0": 0}}

    text = json.dumps(marked(offsets, {"b": "id-b", "c": "id-c"}))

    mark = '"kafkalike:offsets": {"version": 2, "topics": {"b": "id-b", "c": "id-c"}}'
    assert text == '{"b": {"2": 3, "10": 1}, "c": {"0": 0}, ' + mark + "}"
    given = json.loads(text)
    assert unmarked(given) == offsets
    assert json.dumps(marked(unmarked(given), marked_ids(given))) == text


def test_offsets_of_another_source_are_refused(root: str, cluster: Cluster) -> None:
    """Kafka's own offsets of a topic of the same name: neither a batch that was planned nor a new one is read."""
    fill(cluster, "t", *"abcde")
    kafkas = {"t": {"0": 2, "1": 0}}
    query = Query(root)

    said = r'startingOffsets=\{"t":\{"0":2,"1":0\}\}'
    with pytest.raises(CheckpointMismatchError, match=said):
        query.reader.latestOffset(kafkas, ReadAllAvailable())
    with pytest.raises(CheckpointMismatchError, match=said):
        query.reader.partitions(kafkas, {"t": {"0": 4, "1": 0}})


def test_offsets_of_a_later_version_are_refused(root: str, cluster: Cluster) -> None:
    """It may mean something else by them."""
    fill(cluster, "t", *"abcde")
    later: Any = {"t": {"0": 2, "1": 0}, "kafkalike:offsets": {"version": 3}}

    with pytest.raises(CheckpointMismatchError, match="later version of kafkalike"):
        Query(root).reader.latestOffset(later, ReadAllAvailable())


def test_offsets_from_before_the_ids_go_on(root: str, cluster: Cluster) -> None:
    """Nothing new: the very same text, so no batch. The first new batch brings the ids."""
    fill(cluster, "t", *"abc")
    query = Query(root)
    before: Any = {"t": {"0": 3, "1": 0}, "kafkalike:offsets": {"version": 1}}

    assert query.reader.latestOffset(before, ReadAllAvailable()) == before
    fill(cluster, "t", "d")
    end = query.reader.latestOffset(before, ReadAllAvailable())

    assert unmarked(end) == {"t": {"0": 4, "1": 0}}
    assert marked_ids(end) == {"t": cluster.topic("t").topic_id}


# --- created again while the query was stopped -------------------------------------------------


def test_a_topic_created_again_while_the_query_was_stopped_fails(root: str, cluster: Cluster) -> None:
    """Also with more records than before, which the offsets alone do not show."""
    fill(cluster, "t", *"abc")
    query = Query(root, startingOffsets="earliest")
    query.batch()

    cluster.delete_topic("t")
    cluster.create_topic("t", 2, {})
    fill(cluster, "t", *"vwxyz")
    restarted = Query(root, query, startingOffsets="earliest")

    with pytest.raises(DataLossError, match=r"PARTITION_OFFSET_CHANGED.*topic id .* is now"):
        restarted.log_next()


def test_a_topic_created_again_while_stopped_is_read_from_its_beginning_without_fail_on_data_loss(
    root: str, cluster: Cluster
) -> None:
    """Also by a batch that was logged and is run again by one more process: the offsets say whose they are."""
    fill(cluster, "t", *"abc")
    query = Query(root, startingOffsets="earliest")
    query.batch()
    cluster.delete_topic("t")
    cluster.create_topic("t", 2, {})
    fill(cluster, "t", *"vwxyz")

    lenient = Query(root, query, startingOffsets="earliest", failOnDataLoss="false")
    assert lenient.log_next()
    again = Query(root, lenient, startingOffsets="earliest", failOnDataLoss="false")

    assert values(again.run_logged()) == list("vwxyz")
    assert not again.log_next()


def test_a_batch_that_was_logged_for_an_earlier_life_of_a_topic_is_not_run_over_another(
    root: str, cluster: Cluster
) -> None:
    """The first batch of a query, planned, and the topic created again before it ran."""
    fill(cluster, "t", *"abc")
    query = Query(root, startingOffsets="earliest")
    query.log_next()
    cluster.delete_topic("t")
    cluster.create_topic("t", 2, {})
    fill(cluster, "t", *"vwxyz")

    with pytest.raises(DataLossError, match=r"PARTITION_OFFSET_CHANGED"):
        Query(root, query, startingOffsets="earliest").run_logged()


# --- where a group stands ----------------------------------------------------------------------

HERE: Any = {"startingOffsets": "committed", "kafka__group__id": "g"}


def stand(cluster: Cluster, offset: int, partition: int = 0) -> None:
    """Commit an offset of the group `g`."""
    tp = TopicPartition("t", partition)
    membership = Membership(group_id="g", client_id="test")
    ids = {"t": cluster.topic("t").topic_id}
    GroupOffsets.of(cluster, SYSTEM_CLOCK).commit(membership, {tp: OffsetAndMetadata(offset)}, ids)


def test_a_stream_begins_where_a_group_stands(root: str, cluster: Cluster) -> None:
    """The first batch is empty: it puts the offsets into the checkpoint."""
    fill(cluster, "t", *"abcde")
    fill(cluster, "t", *"AB", partition=1)
    stand(cluster, 3)
    query = Query(root, **HERE)

    assert query.batch() == []
    assert query.batch() == [("t", 0, 3, "d"), ("t", 0, 4, "e")]


@pytest.mark.parametrize(("reset", "expected"), [("earliest", "AB"), ("latest", "")])
def test_where_a_group_has_committed_nothing_the_reset_counts(
    root: str, cluster: Cluster, reset: str, expected: str
) -> None:
    """Partition 1 has no committed offset."""
    fill(cluster, "t", *"ab")
    fill(cluster, "t", *"AB", partition=1)
    stand(cluster, 2)
    query = Query(root, **HERE, kafka__auto__offset__reset=reset)

    assert query.batch() == []
    assert values(query.batch()) == list(expected)


def test_where_a_group_has_committed_nothing_none_is_an_error(root: str, cluster: Cluster) -> None:
    """As a consumer's."""
    stand(cluster, 0)
    query = Query(root, **HERE, kafka__auto__offset__reset="none")

    with pytest.raises(NoOffsetForPartitionError, match=r"'g' has committed nothing for t-1"):
        query.log_next()


@pytest.mark.parametrize("moved_to", [0, 5])
def test_a_first_batch_is_empty_again_wherever_the_group_has_moved(root: str, cluster: Cluster, moved_to: int) -> None:
    """It was logged where the group stood then; the next one goes on there."""
    fill(cluster, "t", *"abcde")
    stand(cluster, 3)
    query = Query(root, **HERE, kafka__auto__offset__reset="earliest")
    query.log_next()
    stand(cluster, moved_to)

    restarted = Query(root, query, **HERE, kafka__auto__offset__reset="earliest")

    assert restarted.run_logged() == []
    assert restarted.batch() == [("t", 0, 3, "d"), ("t", 0, 4, "e")]


def test_offsets_committed_for_an_earlier_topic_of_the_name_do_not_count(root: str, cluster: Cluster) -> None:
    fill(cluster, "t", *"abc")
    stand(cluster, 2)
    cluster.delete_topic("t")
    cluster.create_topic("t", 2, {})
    fill(cluster, "t", *"vwx")
    query = Query(root, **HERE, kafka__auto__offset__reset="earliest")

    query.batch()

    assert values(query.batch()) == list("vwx")


def test_a_group_below_the_log_start_is_data_loss(root: str, cluster: Cluster) -> None:
    """As any start that is not in the log."""
    fill(cluster, "t", *"abcde")
    stand(cluster, 1)
    cluster.move_log_start("t", {0: 3}, "retention", "r")

    with pytest.raises(DataLossError, match="START_OFFSET_RESET"):
        Query(root, **HERE).log_next()
