"""The numbers that name a stream's batches in a table: unique, rising, and telling what went wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.jvm.stream_checkpoint import BatchOffsets, parse_ends
from kafkalike.spark.writes.transactional_write import MAX_BATCH, StreamVersion, app_id, mismatch

BATCHES = st.integers(0, MAX_BATCH)
SHORTS = st.integers(0, 65_535)
VERSIONS = st.builds(StreamVersion, batch_id=BATCHES, query=SHORTS, offsets=SHORTS)
HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1}\n'


@given(VERSIONS)
def test_a_version_says_what_it_was_made_of(version: StreamVersion) -> None:
    """It fits into the 63 bits that a table transaction has."""
    assert StreamVersion.decode(version.encode()) == version
    assert 0 <= version.encode() < 1 << 63


@given(VERSIONS, VERSIONS)
def test_a_later_batch_has_a_higher_version(one: StreamVersion, other: StreamVersion) -> None:
    """Delta skips a version that is not above the last one."""
    if one.batch_id < other.batch_id:
        assert one.encode() < other.encode()


@given(st.none() | VERSIONS, VERSIONS)
def test_a_batch_follows_nothing_itself_or_an_earlier_batch_of_its_query(
    known: StreamVersion | None, wanted: StreamVersion
) -> None:
    """Everything else is a mismatch."""
    allowed = known is None or known == wanted or (known.query == wanted.query and known.batch_id < wanted.batch_id)

    assert (mismatch(known, wanted) is None) == allowed


@pytest.mark.parametrize("batch_id", [-1, MAX_BATCH + 1])
def test_a_batch_number_that_does_not_fit_is_refused(batch_id: int) -> None:
    """Before it could take over the bits of another."""
    with pytest.raises(IllegalArgumentError, match="batch"):
        StreamVersion.of(batch_id, "query", b"offsets")


def test_streams_and_batch_writes_never_share_an_id() -> None:
    """Whatever the user calls them."""
    assert app_id("daily", "q") == "stream:daily"
    assert app_id(None, "q") == "stream:q"


def test_ends_are_taken_from_sources_that_speak_kafkas_json() -> None:
    """The lower one counts where two sources read one partition; other sources add nothing."""
    text = HEAD + '{"a":{"0":5,"1":7},"b":{"0":1}}\n{"logOffset":3}\n-\n{"a":{"0":4}}'

    found = BatchOffsets(0, text).ends

    assert found == {TopicPartition("a", 0): 4, TopicPartition("a", 1): 7, TopicPartition("b", 0): 1}


@pytest.mark.parametrize(
    "line", ["", "-", "3", "[1]", '{"a":1}', '{"a":{"x":1}}', '{"a":{"0":-1}}', '{"a":{"0":true}}']
)
def test_what_is_no_kafka_offset_gives_none(line: str) -> None:
    """Also when it nearly is one."""
    assert parse_ends(line) == {}
