"""Headers of consumed records: records without any share an empty list, which nobody can change for the others."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from kafkalike.consumer.records import to_records
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


def test_records_without_headers_make_no_list_each() -> None:
    """The garbage collector would look at each of them several times."""
    first, second = records(None, None)

    assert first.headers is second.headers
    assert first.headers == []
    assert isinstance(first.headers, list)
    assert repr(first.headers) == "[]"


CHANGES: dict[str, Callable[[list[Any]], object]] = {
    "append": lambda headers: headers.append(("a", b"1")),
    "extend": lambda headers: headers.extend([("a", b"1")]),
    "insert": lambda headers: headers.insert(0, ("a", b"1")),
    "slice": lambda headers: headers.__setitem__(slice(0, 0), [("a", b"1")]),
    "+=": lambda headers: headers.__iadd__([("a", b"1")]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_shared_headers_refuse_to_be_changed(change: Callable[[list[Any]], object]) -> None:
    first, second = records(None, None)

    with pytest.raises(TypeError, match=r"list\(record.headers\)"):
        change(first.headers)

    assert (first.headers, second.headers) == ([], [])


COPIES: dict[str, Callable[[ConsumerRecord], list[Any]]] = {
    "list": lambda record: list(record.headers),
    "+": lambda record: record.headers + [],  # noqa: RUF005
    "copy method": lambda record: record.headers.copy(),
    "copy": lambda record: copy.copy(record.headers),
    "deep copy of the record": lambda record: copy.deepcopy(record).headers,
    "pickled record": lambda record: pickle.loads(pickle.dumps(record)).headers,  # noqa: S301
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_copy_of_shared_headers_can_be_changed(copied: Callable[[ConsumerRecord], list[Any]]) -> None:
    record = records(None)[0]

    headers = copied(record)
    headers.append(("a", b"1"))

    assert (type(headers), headers, record.headers) == (list, [("a", b"1")], [])


def test_record_beside_one_with_headers_has_a_list_of_its_own() -> None:
    first, second, third = records(None, [("a", b"1")], None)

    first.headers.append(("b", b"2"))

    assert (first.headers, second.headers, third.headers) == ([("b", b"2")], [("a", b"1")], [])


@pytest.mark.parametrize("part", ["key_deserializer", "value_deserializer"])
def test_deserializer_may_change_the_headers_of_its_record_alone(part: str) -> None:
    def deserialize(_: str, headers: list[tuple[str, bytes | None]], data: bytes | None) -> bytes | None:
        headers.append(("n", b"%d" % len(headers)))
        return data

    made, error = to_records("t", chunk(None, None), **{part: deserialize})  # type: ignore[arg-type]

    assert error is None
    assert [record.headers for record in made] == [[("n", b"0")], [("n", b"0")]]
