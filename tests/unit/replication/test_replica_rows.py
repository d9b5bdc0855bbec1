"""Rows of the metadata about brokers, replicas and mirrors: what they make of a cluster, and which of them stay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafkalike.errors import LogCorruptError, MirrorTopicError, UnsupportedVersionError
from kafkalike.model.brokers import BROKER, REPLICAS, Broker, broker_value, first_replicas, replicas_value
from kafkalike.model.cluster_state import (
    MIRROR,
    BrokerChange,
    ClusterState,
    MetadataRow,
    broker_row,
    log_start_row,
    mirror_row,
    parse_row,
    replicas_row,
    topic_row,
)
from kafkalike.model.maintenance.control_rows import kept_metadata_rows
from kafkalike.model.mirror import Mirrored, Phase, dump_mirror
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.replication.registration import Registration, Replica
from kafkalike.model.topic import TopicInfo

ONE, TWO = Broker(id=1, uri="/r1"), Broker(id=2, uri="/r2", rack="a")
INFO = TopicInfo(name=TopicName("t"), topic_id=TopicId("id"), location="t-1", num_partitions=2)
TABLE = first_replicas("t-1", [1, 2])
GROUPS = first_replicas("__consumer_offsets", [2, 1])
MIRRORED = Mirrored(source="/source", began_ms=5, time_ms=7)


def numbered(*rows: MetadataRow) -> list[MetadataRow]:
    return [replace(row, seq=nth) for nth, row in enumerate(rows, start=1)]


def state(*rows: MetadataRow) -> ClusterState:
    return ClusterState().applied(numbered(*rows))


def of_topic(info: TopicInfo = INFO, *, deleted: bool = False) -> MetadataRow:
    return topic_row(0, 1, info, "x", deleted=deleted)


def of_broker(broker: Broker, *, removed: bool = False) -> MetadataRow:
    return broker_row(0, 1, broker, "x", removed=removed)


def of_replicas(epoch: int = 0) -> MetadataRow:
    table = replace(TABLE, registration=Registration(epoch, TABLE.registration.chain))
    return replicas_row(0, 1, table, "x", topic="t", topic_id="id")


def of_mirror(mirrored: Mirrored = MIRRORED, info: TopicInfo = INFO) -> MetadataRow:
    return mirror_row(0, info, mirrored, "x")


# --- one by one --------------------------------------------------------------------------------------


def test_names_of_replicas_that_were_given_up_are_written_down() -> None:
    registered = Registration(3, TABLE.registration.chain, renamed=(Replica(3, 9), Replica(4, 2**62)))
    row = replicas_row(1, 1, replace(TABLE, registration=registered), "x", topic="t", topic_id="id")

    found = state(of_topic(), of_broker(ONE), of_broker(TWO), row).replicas["t-1"]

    assert found.registration == registered
    assert "renamed" not in replicas_value(TABLE)


def test_each_kind_of_row_says_what_it_is_about() -> None:
    assert broker_row(3, 9, TWO, "added") == MetadataRow(
        seq=3, time_ms=9, kind=BROKER, topic="", topic_id="", change="added", value=broker_value(TWO)
    )
    assert replicas_row(3, 9, TABLE, "moved", topic="t", topic_id="id") == MetadataRow(
        seq=3, time_ms=9, kind=REPLICAS, topic="t", topic_id="id", change="moved", value=replicas_value(TABLE)
    )
    assert replicas_row(3, 9, GROUPS, "made", topic="__consumer_offsets").topic_id == ""
    assert mirror_row(3, INFO, MIRRORED, "pass") == MetadataRow(
        seq=3, time_ms=7, kind=MIRROR, topic="t", topic_id="id", change="pass", value=dump_mirror(MIRRORED)
    )


def test_what_a_row_says_can_be_read() -> None:
    assert parse_row(of_broker(TWO)) == BrokerChange(broker=TWO, removed=False)
    assert parse_row(of_broker(TWO, removed=True)) == BrokerChange(broker=TWO, removed=True)
    assert parse_row(of_replicas()) == TABLE
    assert parse_row(of_mirror()) == MIRRORED


@pytest.mark.parametrize("row", [of_broker(ONE), of_replicas(), of_mirror()], ids=lambda row: row.kind)
def test_a_row_that_is_damaged_or_newer_is_refused_by_name(row: MetadataRow) -> None:
    for value in ("", "{}", "[]", '{"v":0}'):
        with pytest.raises(LogCorruptError, match=f"row 0 of __cluster_metadata, kind '{row.kind}'"):
            parse_row(replace(row, value=value))
    with pytest.raises(UnsupportedVersionError, match="newer"):
        parse_row(replace(row, value='{"v":99}'))


# --- a cluster ---------------------------------------------------------------------------------------


def test_brokers_are_those_that_were_not_removed_and_no_id_comes_again() -> None:
    found = state(of_broker(ONE), of_broker(TWO), of_broker(replace(ONE, draining=True)), of_broker(TWO, removed=True))

    assert dict(found.brokers) == {1: replace(ONE, draining=True)}
    assert found.last_broker == 2


def test_the_latest_row_says_who_has_a_table_until_its_topic_is_deleted() -> None:
    living = state(of_topic(), of_replicas(), of_replicas(epoch=4))
    gone = state(of_topic(), of_replicas(), of_topic(deleted=True))

    assert living.replicas["t-1"].registration.epoch == 4
    assert dict(gone.replicas) == {}


def test_a_copy_is_read_only_until_it_is_promoted() -> None:
    """Whichever row comes first: a compacted table may have them in any order."""
    for rows in ([of_topic(), of_mirror()], [of_mirror(), of_topic()]):
        found = state(*rows)
        assert (found.topics["t"].mirror, dict(found.mirrors)) == (MIRRORED, {"id": MIRRORED})
        with pytest.raises(MirrorTopicError, match="/source"):
            found.topics["t"].check_own()
    promoted = state(of_topic(), of_mirror(), of_mirror(replace(MIRRORED, phase=Phase.PROMOTED)))
    assert (promoted.topics["t"].mirror, dict(promoted.mirrors)) == (None, {})
    promoted.topics["t"].check_own()


def test_a_copy_that_is_being_promoted_may_not_be_written_yet() -> None:
    with pytest.raises(MirrorTopicError):
        state(of_topic(), of_mirror(replace(MIRRORED, phase=Phase.PROMOTING))).topics["t"].check_own()


def test_a_row_about_another_life_of_a_topic_does_not_make_this_one_a_copy() -> None:
    other = replace(INFO, topic_id=TopicId("other"))

    assert state(of_topic(), of_mirror(info=other)).topics["t"].mirror is None


def test_a_deleted_copy_that_is_made_again_begins_anew() -> None:
    found = state(of_topic(), of_mirror(), of_topic(deleted=True), of_topic())

    assert (found.topics["t"].mirror, dict(found.mirrors)) == (None, {})


def test_log_starts_of_a_copy_leave_it_a_copy() -> None:
    moved = log_start_row(0, 1, INFO, {0: 5}, reason="retention", run="r")

    for rows in ([of_topic(), of_mirror(), moved], [of_mirror(), moved, of_topic()]):
        found = state(*rows).topics["t"]
        assert (found.mirror, found.log_start(0)) == (MIRRORED, 5)


# --- which rows stay ---------------------------------------------------------------------------------


def kept(*rows: MetadataRow, since_ms: int = 100) -> list[MetadataRow]:
    given = numbered(*rows)
    left = kept_metadata_rows(given, since_ms=since_ms, moves_at_most=None)
    whole, compacted = ClusterState().applied(given), ClusterState().applied(left)
    for name in ("brokers", "last_broker", "replicas", "mirrors", "topics"):
        assert getattr(whole, name) == getattr(compacted, name), name
    return left


def numbers(rows: list[MetadataRow]) -> list[int]:
    return [row.seq for row in rows]


def test_of_rows_about_one_thing_the_last_one_stays() -> None:
    left = kept(
        of_broker(ONE),
        of_broker(TWO),
        of_topic(),
        of_replicas(),
        replicas_row(0, 1, GROUPS, "x", topic="__consumer_offsets"),
        of_mirror(),
        of_broker(ONE),
        of_replicas(epoch=1),
        of_mirror(replace(MIRRORED, version=3)),
        replicas_row(0, 1, GROUPS, "x", topic="__consumer_offsets"),
    )

    assert numbers(left) == [2, 3, 7, 8, 9, 10]


def test_a_removed_broker_is_remembered_as_its_id_must_not_come_again() -> None:
    assert numbers(kept(of_broker(ONE), of_broker(TWO), of_broker(TWO, removed=True), of_topic())) == [1, 3, 4]


def test_of_a_deleted_topic_no_replicas_and_no_mirror_stay() -> None:
    rows = [of_topic(), of_replicas(), of_mirror(), of_topic(deleted=True), of_broker(ONE)]

    assert numbers(kept(*rows)) == [4, 5]


def test_log_starts_of_a_copys_earlier_life_do_not_count() -> None:
    """The id comes back with the copy."""
    first = log_start_row(0, 1, INFO, {0: 9}, reason="retention", run="r")
    second = log_start_row(0, 1, INFO, {0: 4}, reason="retention", run="r")

    left = kept(of_topic(), first, of_topic(deleted=True), of_topic(), second, of_broker(ONE))

    assert numbers(left) == [4, 5, 6]
    assert ClusterState().applied(left).topics["t"].log_start(0) == 4


def test_chain_of_a_new_table_ends_with_its_leader() -> None:
    assert TABLE.registration.chain == (Replica(2), Replica(1))
