"""Headers of consumed records: each record has a list of its own, made when it is asked for where it is empty."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from kafkalike.consumer.record_builders import to_records
from kafkalike.log.topic.chunk import CHUNK_SCHEMA, Chunk
from kafkalike.model.structs import ConsumerRecord


def chunk(*headers: list[tuple[str, bytes | None]] | None) -> Chunk:
    count = len(headers)
    rows = {
        "offset": list(range(count)),
        "timestamp": [0] * count,
        "timestampType": [0] * count,
        "key": [None] * count,
        "value": [b"v"] * count,
        "headers": [
            None if each is None else [{"key": name, "value": value} for name, value in each] for each in headers
        ],
    }
    return Chunk(0, pa.table(rows, schema=CHUNK_SCHEMA), count)


def records(*headers: list[tuple[str, bytes | None]] | None) -> list[ConsumerRecord]:
    made, error = to_records("t", chunk(*headers))
    assert error is None
    return made


def test_record_without_headers_holds_no_list_until_it_is_asked_for() -> None:
    """The garbage collector would look at each of them several times while a poll makes 10,000 records."""
    record = records(None)[0]

    assert [each for each in gc.get_referents(record) if type(each) in {list, dict}] == []


def test_each_record_without_headers_has_a_list_of_its_own() -> None:
    first, second = records(None, None)

    first.headers.append(("a", b"1"))

    assert (first.headers, second.headers) == ([("a", b"1")], [])
    assert type(second.headers) is list


def test_record_beside_one_with_headers_has_a_list_of_its_own() -> None:
    first, second, third = records(None, [("a", b"1")], None)

    first.headers.append(("b", b"2"))
    second.headers.append(("c", b"3"))

    assert (first.headers, second.headers, third.headers) == ([("b", b"2")], [("a", b"1"), ("c", b"3")], [])


WAYS: dict[str, Callable[[ConsumerRecord], Any]] = {
    "attribute": lambda record: record.headers,
    "index": lambda record: record[8],
    "negative index": lambda record: record[-5],
    "slice": lambda record: record[7:9][1],
    "unpacking": lambda record: list(record)[8],
    "_asdict": lambda record: record._asdict()["headers"],
    "_replace": lambda record: record._replace(value=b"w").headers,
    "copy": lambda record: copy.copy(record).headers,
    "deep copy": lambda record: copy.deepcopy(record).headers,
    "pickle": lambda record: pickle.loads(pickle.dumps(record)).headers,  # noqa: S301
    "match": lambda record: _matched(record),  # noqa: PLW0108 - it stands below
}


def _matched(record: object) -> object:
    match record:
        case ConsumerRecord(headers=headers):
            return headers
    return None


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_changed_headers_are_seen_in_every_way(way: Callable[[ConsumerRecord], Any]) -> None:
    record = records(None)[0]
    assert way(record) == []
    assert type(way(record)) is list

    record.headers.append(("a", b"1"))

    assert way(record) == [("a", b"1")]


def test_equality_and_text_tell_of_changed_headers() -> None:
    first, second = records(None)[0], records(None)[0]
    made = ConsumerRecord("t", 0, -1, 0, 0, 0, None, b"v", [], None, -1, 1, -1)
    plain: tuple[object, ...] = ("t", 0, -1, 0, 0, 0, None, b"v", [], None, -1, 1, -1)
    assert first == second == made
    assert made == first
    assert first == plain
    assert plain == first
    assert repr(first) == (
        "ConsumerRecord(topic='t', partition=0, leader_epoch=-1, offset=0, timestamp=0, timestamp_type=0, key=None, "
        "value=b'v', headers=[], checksum=None, serialized_key_size=-1, serialized_value_size=1, "
        "serialized_header_size=-1)"
    )

    first.headers.append(("a", b"1"))

    assert first != second
    assert second != first
    assert plain != first
    assert first == made._replace(headers=[("a", b"1")])
    assert "headers=[('a', b'1')]" in repr(first)
    with pytest.raises(TypeError, match="unhashable"):
        hash(first)


def test_list_that_all_records_hold_cannot_be_changed() -> None:
    """C code may take it from the tuple."""
    shared = super(ConsumerRecord, records(None)[0]).__getitem__(8)

    changes: dict[str, list[Any]] = {
        "append": [("a", b"1")],
        "extend": [[("a", b"1")]],
        "insert": [0, ("a", b"1")],
        "__setitem__": [slice(0, 0), [("a", b"1")]],
        "__iadd__": [[("a", b"1")]],
    }
    for name, arguments in changes.items():
        with pytest.raises(TypeError, match="share"):
            getattr(shared, name)(*arguments)

    assert shared == []


@pytest.mark.parametrize("part", ["key_deserializer", "value_deserializer"])
def test_deserializer_may_change_the_headers_of_its_record_alone(part: str) -> None:
    def deserialize(_: str, headers: list[tuple[str, bytes | None]], data: bytes | None) -> bytes | None:
        headers.append(("n", b"%d" % len(headers)))
        return data

    made, error = to_records("t", chunk(None, None), **{part: deserialize})  # type: ignore[arg-type]

    assert error is None
    assert [record.headers for record in made] == [[("n", b"0")], [("n", b"0")]]
