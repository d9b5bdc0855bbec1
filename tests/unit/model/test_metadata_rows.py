"""Rows of `__cluster_metadata`, one by one: what they say, to programs and to people, and which of them stay."""

import json
from dataclasses import replace

import pytest

from kafkalike.errors import LogCorruptError
from kafkalike.model.brokers import Defaults
from kafkalike.model.cluster_state import (
    LOG_START,
    TOPIC,
    ClusterState,
    LogStartsMoved,
    MetadataRow,
    Move,
    TopicChange,
    defaults_row,
    log_start_row,
    moved_text,
    parse_row,
    topic_row,
    trimmed,
)
from kafkalike.model.maintenance.control_rows import files_to_merge, kept_metadata_rows
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.topic import LogStart, TopicInfo

INFO = TopicInfo(
    name=TopicName("t"), topic_id=TopicId("id"), location="t-1", num_partitions=3, configs={"a": "b"}, created_ms=4
)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_topics_row_says_what_it_is(deleted: bool) -> None:  # noqa: FBT001
    """Its JSON is in order, so that equal topics have equal rows."""
    row = topic_row(7, 9, INFO, "created", deleted=deleted)

    assert row == MetadataRow(
        seq=7,
        time_ms=9,
        kind=TOPIC,
        topic="t",
        topic_id="id",
        change="created",
        value=(
            f'{{"configs": {{"a": "b"}}, "created_ms": 4, "deleted": {json.dumps(deleted)}, "location": "t-1", '
            '"num_partitions": 3, "v": 1}'
        ),
    )
    assert parse_row(row) == TopicChange(info=INFO, deleted=deleted)


def test_a_row_of_log_starts_says_what_moved_from_where() -> None:
    """By partition, in order; in as few characters as JSON takes, since there may be thousands."""
    moved = replace(INFO, log_starts={1: LogStart(offset=3, reason="x", run="y", time_ms=1)})
    row = log_start_row(7, 9, moved, {2: 8, 1: 5}, reason="retention", run="r1")

    assert row == MetadataRow(
        seq=7,
        time_ms=9,
        kind=LOG_START,
        topic="t",
        topic_id="id",
        change="log starts of 2 partitions moved",
        value='{"v":2,"reason":"retention","run":"r1","moves":[[1,3,5],[2,0,8]]}',
    )
    said = LogStartsMoved(moves={1: Move(5, 3), 2: Move(8, 0)}, reason="retention", run="r1")
    assert parse_row(row) == said
    assert trimmed(row, said, [1, 2]) is row
    assert trimmed(row, said, [2]).value == '{"v":2,"reason":"retention","run":"r1","moves":[[2,0,8]]}'


def test_a_row_of_defaults_says_which_are_set_and_what_seeded_them() -> None:
    defaults = Defaults(settings={"num.partitions": "3", "log.retention.ms": "-1"}, seed={"num.partitions": "2"})
    row = defaults_row(7, 9, defaults, "changed")

    assert row == MetadataRow(
        seq=7,
        time_ms=9,
        kind="defaults",
        topic="",
        topic_id="",
        change="changed",
        value=(
            '{"seed": {"num.partitions": "2"}, "settings": {"log.retention.ms": "-1", "num.partitions": "3"}, "v": 1}'
        ),
    )
    assert parse_row(row) == defaults
    assert defaults.are_set
    assert Defaults(seed={"num.partitions": "2"}).are_set
    assert not Defaults().are_set


@pytest.mark.parametrize(
    "value",
    [
        pytest.param('{"settings": {}}', id="no seed"),
        pytest.param('{"seed": {}, "settings": {"num.partitions": 3}}', id="number"),
        pytest.param('{"seed": {}, "settings": []}', id="list"),
        pytest.param("", id="empty"),
    ],
)
def test_a_damaged_row_of_defaults_is_refused(value: str) -> None:
    """No default may count as unset because it cannot be read."""
    with pytest.raises(LogCorruptError, match="row 7 of __cluster_metadata, kind 'defaults'"):
        parse_row(replace(defaults_row(7, 9, Defaults(), "changed"), value=value))


def test_the_last_row_of_defaults_stays_beside_a_topic_of_that_name() -> None:
    topic = replace(INFO, name=TopicName("defaults"))
    rows = [
        defaults_row(1, 9, Defaults(settings={"num.partitions": "2"}), "changed"),
        defaults_row(2, 9, Defaults(settings={"num.partitions": "3"}), "changed"),
        topic_row(3, 9, topic, "created"),
        topic_row(4, 9, INFO, "created"),
    ]

    kept = kept_metadata_rows(rows, since_ms=10)

    assert kept == rows[1:]
    assert ClusterState().applied(kept) == ClusterState().applied(rows)
    assert ClusterState().applied(kept).defaults == Defaults(settings={"num.partitions": "3"})
    assert ClusterState().applied(rows[2:]).defaults is None


def test_moves_are_told_to_people() -> None:
    """One by itself, several in order."""
    row = log_start_row(7, 9, INFO, {2: 8}, reason="retention", run="r1")

    assert row.change == "log start of partition 2 moved to 8"
    assert moved_text({2: Move(8), 1: Move(5)}) == "log starts moved: partition 1 to 5, partition 2 to 8"


def test_a_row_that_moves_nothing_can_be_read() -> None:
    """Nobody writes one; it does no harm."""
    row = replace(
        log_start_row(1, 1, INFO, {0: 5}, reason="x", run="r"), value='{"v":2,"reason":"x","run":"r","moves":[]}'
    )

    assert parse_row(row) == LogStartsMoved(moves={}, reason="x", run="r")


@pytest.mark.parametrize(
    ("kind", "part", "bad", "said"),
    [
        (TOPIC, "num_partitions", 0, "'num_partitions' is 0, not a whole number from 1"),
        (TOPIC, "location", None, "'location' is None, not a text"),
        (TOPIC, "configs", {"a": 1}, "'a' is 1, not a text"),
        (TOPIC, "deleted", 0, "'deleted' is 0, not true or false"),
        (LOG_START, "reason", 1, "'reason' is 1, not a text"),
        (LOG_START, "moves", [[0, -1, 5]], "'moves' has a value other than a whole number from 0"),
        (LOG_START, "moves", [[0, None, 5]], "'moves' has a value other than a whole number from 0"),
        (LOG_START, "moves", [[True, 0, 5]], "'moves' has a value other than a whole number from 0"),
    ],
)
def test_a_damaged_row_is_told_by_what_is_wrong_with_it(kind: str, part: str, bad: object, said: str) -> None:
    """With its number and its kind."""
    row = topic_row(3, 1, INFO, "created") if kind == TOPIC else log_start_row(3, 1, INFO, {0: 5}, reason="x", run="r")
    row = replace(row, value=json.dumps({**json.loads(row.value), part: bad}))

    with pytest.raises(LogCorruptError) as refused:
        parse_row(row)

    assert said in str(refused.value)
    assert f"row 3 of __cluster_metadata, kind {kind!r}, cannot be read: TypeError(" in str(refused.value)


# --- which rows stay -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "merged"),
    [([], 0), ([1], 0), ([4, 1], 2), ([5, 1], 0), ([100, 1], 0), ([8, 1], 0), ([20, 4, 1], 3), ([21, 4, 1], 2)],
)
def test_a_file_is_merged_when_four_times_what_comes_after_it_is_as_much(rows: list[int], merged: int) -> None:
    """One file alone stays as it is."""
    assert files_to_merge(rows) == merged


def starts(*offsets: int, topic: TopicInfo = INFO, first: int = 2, time: int = 5) -> list[MetadataRow]:
    return [
        log_start_row(seq, time, topic, {0: offset}, reason="x", run="r") for seq, offset in enumerate(offsets, first)
    ]


def kept(rows: list[MetadataRow], since: int, at_most: int | None = None) -> list[int]:
    return [row.seq for row in kept_metadata_rows(rows, since, at_most)]


def test_of_log_starts_the_highest_stays_and_the_first_of_equal_ones() -> None:
    """One that moves back, or does not move, changes nothing. An old row of the topic itself goes too."""
    made, last = topic_row(1, 5, INFO, "created"), topic_row(9, 5, INFO, "configs changed")

    assert kept([made, *starts(50, 40), last], 6) == [2, 9]
    assert kept([made, *starts(50, 50), last], 6) == [2, 9]
    assert kept([made, *starts(1), last], 6) == [2, 9]
    assert kept([made, *starts(40, 50), last], 6) == [3, 9]


def test_log_starts_of_a_topic_that_is_gone_go() -> None:
    """Of one that lives again under the name those of its life before."""
    made, gone = topic_row(1, 5, INFO, "created"), topic_row(4, 5, INFO, "deleted", deleted=True)
    again = replace(INFO, topic_id=TopicId("id2"))
    other = topic_row(9, 5, replace(INFO, name=TopicName("u"), topic_id=TopicId("id3")), "created")

    assert kept([made, *starts(7), gone, other], 6) == [4, 9]
    assert kept([made, *starts(7), gone, topic_row(5, 5, again, "created"), other], 6) == [5, 9]


def test_recent_rows_stay_for_people_as_many_moves_as_there_is_room_for() -> None:
    """Those of exactly the time count as recent."""
    rows = [topic_row(1, 5, INFO, "created"), *starts(1, 2, 3), topic_row(5, 5, INFO, "configs changed")]

    assert kept(rows, 5) == [1, 2, 3, 4, 5]
    assert kept(rows, 6) == [4, 5]
    assert kept(rows, 5, 2) == [1, 3, 4, 5]
    assert kept(rows, 5, 0) == [1, 4, 5]
