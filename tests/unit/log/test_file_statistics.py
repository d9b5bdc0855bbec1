"""Times in the statistics of files: text there and milliseconds here, both ways."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.delta.actions import TableCommit
from kafkalike.log.topic.batch_payload import iso_time
from kafkalike.log.topic.chunk import HEADERS_TYPE, earliest_due
from kafkalike.log.topic.record_rules import MAX_TIMESTAMP_MS
from kafkalike.log.topic.topic_commits import parse_time_ms
from kafkalike.model.record_batch import Headers, due_ms


@given(at=st.integers(0, MAX_TIMESTAMP_MS))
def test_a_time_comes_back_from_its_text(at: int) -> None:
    """To the millisecond, for every time a record may have."""
    assert parse_time_ms(iso_time(at)) == at


@given(one=st.integers(0, MAX_TIMESTAMP_MS), two=st.integers(0, MAX_TIMESTAMP_MS))
def test_texts_sort_as_times_do(one: int, two: int) -> None:
    """Some readers compare them as text."""
    assert (iso_time(one) < iso_time(two)) == (one < two)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("1970-01-01T00:00:00.000Z", 0),
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T09:00:00.001+09:00", 1),
        ("1969-12-31T19:00:00.000-05:00", 0),
        ("2024-02-29T12:30:00.123999Z", 1_709_209_800_123),
        ("9999-12-31T13:59:59.999+14:00", MAX_TIMESTAMP_MS),
        (1_709_209_800_123, 1_709_209_800_123),
    ],
)
def test_other_writers_forms_are_understood(text: str | int, at: int) -> None:
    """Time zones, no fraction, microseconds, and numbers."""
    assert parse_time_ms(text) == at


TIMES = [None, b"", b"0", b"007", b"12", b"x1", b"1\n", b"1 ", b"\xff", b"9" * 15, b"9" * 16]
HEADERS = st.lists(st.tuples(st.sampled_from(["deliver_at", "other"]), st.sampled_from(TIMES)), max_size=3)


@given(files=st.lists(st.lists(st.none() | HEADERS, max_size=4), max_size=3), cut=st.integers(0, 2))
def test_earliest_time_of_a_file_is_the_earliest_time_of_its_records(
    files: list[list[Headers | None]], cut: int
) -> None:
    rows = [[None if h is None else [{"key": key, "value": value} for key, value in h] for h in file] for file in files]
    column = pa.chunked_array([pa.array(file, HEADERS_TYPE) for file in rows], HEADERS_TYPE)

    found = earliest_due(column.slice(cut))

    kept = [headers for file in files for headers in file][cut:]
    assert found == min((due_ms(headers or ()) for headers in kept), default=0)


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        "",
        "free text",
        '{"kafkalikeAppend"',
        '["kafkalikeAppend"]',
        '{"a": 1}',
        '{"kafkalikeAppend":"x"} # text',
        '{"kafkalikeAppend":' + "[" * 100_000,
    ],
    ids=["none", "empty", "text", "half", "list", "other", "text-behind", "deep"],
)
def test_a_commit_of_someone_else_is_not_taken_for_ours(metadata: str | None) -> None:
    """Whatever they put into its user metadata."""
    commit = TableCommit(version=1, timestamp_ms=0, operation="WRITE", engine="spark", user_metadata=metadata)

    assert (commit.append_id, commit.is_append) == (None, False)
