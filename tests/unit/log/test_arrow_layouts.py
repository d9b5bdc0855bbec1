"""Every layout of bytes, text and headers in Arrow gives the records that it stands for, or is refused by name."""

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import IllegalArgumentError, InvalidRecordError
from kafkalike.log.topic.arrow_layouts import MAX_BATCH_BYTES
from kafkalike.log.topic.column_batch import column_batch

ENTRY = pa.struct([("key", pa.string()), ("value", pa.binary())])
PLAIN = pa.list_(ENTRY)
VALUES = [b"a", None, b"", b"long enough to lie outside of a view", b"a"]
HEADERS: list[list[tuple[str, bytes | None]] | None] = [
    [("a", b"1"), ("a", None)],
    None,
    [],
    [("é", b"\xff")],
    [("b", b""), ("c", b"x" * 20), ("a", b"1")],
]


class Unknown(pa.ExtensionType):  # type: ignore[misc]
    """An extension type that nobody has registered."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "tests.unknown")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, _: bytes) -> "Unknown":
        return cls(storage_type)


def dictionary(array: pa.Array, kind: pa.DataType | None = None) -> pa.Array:
    """Each row points to a dictionary in reverse order, with a null in it."""
    values = array if kind is None else array.cast(kind)
    order = np.arange(len(array))[::-1].astype(np.int8)
    reverse = pa.concat_arrays([values.slice(n, 1) for n in order.tolist()])
    return pa.DictionaryArray.from_arrays(pa.array(order, pa.int8()), reverse)


def runs(array: pa.Array, kind: pa.DataType | None = None) -> pa.Array:
    values = array if kind is None else array.cast(kind)
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(array) + 1), pa.int32()), values)


def texts(kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    return lambda array: array.cast(pa.string()).cast(kind)


BYTE_LAYOUTS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "binary": lambda array: array,
    "large_binary": lambda array: array.cast(pa.large_binary()),
    "binary_view": lambda array: array.cast(pa.binary_view()),
    "string": texts(pa.string()),
    "large_string": texts(pa.large_string()),
    "string_view": texts(pa.string_view()),
    "dictionary": dictionary,
    "dictionary of large text": lambda array: dictionary(array, pa.large_string()),
    "dictionary of views": lambda array: dictionary(array, pa.string_view()),
    "runs": runs,
    "runs of views": lambda array: runs(array, pa.string_view()),
    "runs of a dictionary": lambda array: runs(dictionary(array)),
    "extension": lambda array: pa.ExtensionArray.from_storage(Unknown(pa.binary()), array),
    "extension of text": lambda array: pa.ExtensionArray.from_storage(Unknown(pa.string()), array.cast(pa.string())),
}
if hasattr(pa, "json_"):  # since pyarrow 19
    BYTE_LAYOUTS["json"] = lambda array: pa.ExtensionArray.from_storage(pa.json_(), array.cast(pa.string()))


def keyed(values: pa.Array) -> pa.Table:
    """The values in the column `value`, with keys, as a null value needs one."""
    return pa.table({"key": ["k"] * len(values), "value": values})


def sent_values(table: pa.Table) -> list[bytes | None]:
    return column_batch(table, 0).records().values


@pytest.mark.parametrize("layout", BYTE_LAYOUTS.values(), ids=BYTE_LAYOUTS.keys())
def test_every_layout_of_bytes_and_text_arrives_unchanged(layout: Callable[[pa.Array], pa.Array]) -> None:
    """Whole, as a slice, and as two slices that are chunks of one column; as values and as keys."""
    array = layout(pa.array(VALUES, pa.binary()))
    chunks = pa.chunked_array([array.slice(3, 2), array.slice(1, 3)])

    assert sent_values(keyed(array)) == VALUES
    assert sent_values(keyed(array.slice(1, 3))) == VALUES[1:4]
    assert sent_values(keyed(chunks)) == VALUES[3:5] + VALUES[1:4]
    batch = column_batch(pa.table({"key": array, "value": ["v"] * len(VALUES)}), 0)
    assert batch.records().keys == VALUES


def test_bytes_of_one_size_and_nulls_arrive_unchanged() -> None:
    fixed = pa.array([b"abc", None, b"\x00\xff\x00"], pa.binary(3))

    assert sent_values(keyed(fixed.slice(1))) == [None, b"\x00\xff\x00"]
    assert sent_values(keyed(pa.nulls(2))) == [None, None]
    assert sent_values(keyed(pa.array([b"0123456789abcdef"], pa.uuid()))) == [b"0123456789abcdef"]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1]),
        pa.array([1.5]),
        pa.array([True]),
        pa.array([Decimal("1.0")]),
        pa.array([0], pa.timestamp("us", "UTC")),
        pa.array([0], pa.date32()),
        pa.array([[b"a"]]),
        pa.array([{"a": b"a"}]),
        pa.array([[("a", b"a")]], pa.map_(pa.string(), pa.binary())),
        pa.array([1]).dictionary_encode(),
        pa.RunEndEncodedArray.from_arrays([1], [1]),
        pa.ExtensionArray.from_storage(Unknown(pa.int64()), pa.array([1])),
        pa.array([[b"a"]], pa.list_view(pa.binary())),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([b"a"])]),
    ],
    ids=lambda array: str(array.type),
)
def test_a_value_that_is_neither_bytes_nor_text_is_refused_by_its_column(array: pa.Array) -> None:
    with pytest.raises(TypeError, match="column 'value' must hold bytes or text"):
        column_batch(pa.table({"value": array}), 0)


# --- headers -----------------------------------------------------------------------------------


def of(kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    return lambda array: array.cast(kind)


def entry(key: pa.DataType, value: pa.DataType) -> pa.DataType:
    return pa.struct([("key", key), ("value", value)])


def view(array: pa.Array, kind: Any = pa.ListViewArray) -> pa.Array:
    """The lists as views, with a null where there is none."""
    starts = array.offsets.to_pylist()[:-1]
    sizes = array.value_lengths().fill_null(0).to_pylist()
    valid = array.is_valid()
    return kind.from_arrays(starts, sizes, array.values, mask=pa.array([not v.as_py() for v in valid]))


def overlapping(array: pa.Array) -> pa.Array:
    """List views whose entries stand in the other order, and two of which share one."""
    flat = [("a", b"1"), ("b", b""), ("c", b"x" * 20), ("a", b"1"), ("a", None), ("é", b"\xff")]
    entries = pa.array([{"key": key, "value": value} for key, value in flat], ENTRY)
    return pa.ListViewArray.from_arrays([3, 5, 0, 5, 1], [2, 1, 0, 1, 3], entries, mask=array.is_null())


def as_map(array: pa.Array) -> pa.Array:
    flat = array.flatten()
    ends = np.concatenate([[0], np.cumsum(array.value_lengths().fill_null(0).to_numpy())])
    offsets = pa.array(ends, pa.int32(), mask=np.append(array.is_null().to_numpy(zero_copy_only=False), False))
    return pa.MapArray.from_arrays(offsets, flat.field("key"), flat.field("value"))


def swapped(array: pa.Array) -> pa.Array:
    return pa.array(
        [
            None if row is None else [{"value": one["value"], "key": one["key"]} for one in row]
            for row in array.to_pylist()
        ],
        pa.list_(pa.struct([("value", pa.binary()), ("key", pa.string())])),
    )


def coded_parts(array: pa.Array) -> pa.Array:
    """Names as a dictionary, contents as runs."""
    flat = array.values
    inner = pa.StructArray.from_arrays(
        [flat.field("key").dictionary_encode(), runs(flat.field("value"))], ["key", "value"]
    )
    return pa.ListArray.from_arrays(array.offsets, inner, mask=array.is_null())


HEADER_LAYOUTS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "list": lambda array: array,
    "large list": of(pa.large_list(entry(pa.large_string(), pa.large_binary()))),
    "list of views": of(pa.list_(entry(pa.string_view(), pa.binary_view()))),
    "names as bytes": of(pa.list_(entry(pa.binary(), pa.binary()))),
    "list view": view,
    "large list view": lambda array: view(array, pa.LargeListViewArray),
    "list view that overlaps": overlapping,
    "map": as_map,
    "fields in the other order": swapped,
    "dictionary of lists": dictionary,
    "runs of lists": runs,
    "dictionary of list views": lambda array: runs(dictionary(view(array)), None),
    "parts of other layouts": coded_parts,
    "extension": lambda array: pa.ExtensionArray.from_storage(Unknown(PLAIN), array),
}


def with_headers(headers: Any) -> pa.Table:
    return pa.table({"value": ["v"] * len(headers), "headers": headers})


def sent_headers(headers: Any) -> list[Any]:
    return column_batch(with_headers(headers), 0).records().headers


def plain_headers() -> pa.Array:
    return pa.array([None if h is None else [{"key": k, "value": v} for k, v in h] for h in HEADERS], PLAIN)


@pytest.mark.parametrize("layout", HEADER_LAYOUTS.values(), ids=HEADER_LAYOUTS.keys())
def test_every_layout_of_headers_arrives_unchanged(layout: Callable[[pa.Array], pa.Array]) -> None:
    """Whole, as a slice, and as two slices that are chunks of one column; an empty list counts as none."""
    expected = [row or None for row in HEADERS]
    array = layout(plain_headers())

    assert sent_headers(array) == expected
    assert sent_headers(array.slice(1, 3)) == expected[1:4]
    assert sent_headers(pa.chunked_array([array.slice(3, 2), array.slice(1, 3)])) == expected[3:5] + expected[1:4]


def test_headers_in_lists_of_one_size_arrive_unchanged() -> None:
    rows = [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None, [{"key": "c", "value": b""}] * 2]
    array = pa.array(rows, pa.list_(ENTRY, 2))

    assert sent_headers(array) == [[("a", b"1"), ("b", None)], None, [("c", b""), ("c", b"")]]
    assert sent_headers(array.slice(1)) == [None, [("c", b""), ("c", b"")]]


def test_lists_of_nothing_are_no_headers() -> None:
    assert sent_headers(pa.nulls(2)) == [None, None]
    assert sent_headers(pa.array([[], None], pa.list_(pa.null()))) == [None, None]


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a=b"]),
        pa.array([{"key": "a", "value": b""}]),
        pa.array([["a"]]),
        pa.array([[{"key": "a"}]]),
        pa.array([[{"key": "a", "value": b"", "other": 1}]]),
        pa.array([[{"name": "a", "value": b""}]]),
        pa.array([[{"key": 1, "value": b""}]]),
        pa.array([[{"key": "a", "value": 1}]]),
        pa.array([[{"key": True, "value": b""}]]),
        pa.array([[(1, b"")]], pa.map_(pa.int64(), pa.binary())),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    ],
    ids=lambda array: str(array.type),
)
def test_headers_of_another_type_are_refused_by_their_column(array: pa.Array) -> None:
    with pytest.raises(TypeError, match="column 'headers' must hold lists of"):
        column_batch(with_headers(array), 0)


def text_of(content: list[bytes]) -> pa.Array:
    """A column of text over bytes that nobody has looked at, as tools hand them over."""
    return pa.Array.from_buffers(pa.string(), len(content), pa.array(content, pa.binary()).buffers())


def headers_named(names: list[bytes], *, text: bool) -> pa.Array:
    """A record a name."""
    keys = text_of(names) if text else pa.array(names, pa.binary())
    inner = pa.StructArray.from_arrays([keys, pa.nulls(len(names), pa.binary())], ["key", "value"])
    return pa.ListArray.from_arrays(list(range(len(names) + 1)), inner)


BAD_NAMES = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"ok\x80", b"\xf4\x90\x80\x80"]


@pytest.mark.parametrize("text", [True, False], ids=["text", "bytes"])
@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
@pytest.mark.parametrize("row", [0, 4_321, 9_999])
def test_a_header_name_that_is_not_utf8_is_refused_wherever_it_stands(row: int, name: bytes, *, text: bool) -> None:
    names = [b"fine"] * 10_000
    names[row] = name

    with pytest.raises(InvalidRecordError, match=f"row {row}: .*not UTF-8"):
        column_batch(with_headers(headers_named(names, text=text)), 0)


def test_a_name_beside_a_slice_does_not_count() -> None:
    array = headers_named([b"\xff", b"fine", b"\xff"], text=True).slice(1, 1)

    assert sent_headers(array) == [[("fine", None)]]


@pytest.mark.parametrize(
    "headers",
    [
        pa.array([[], [{"key": None, "value": b""}]], PLAIN),
        pa.array([[], [None]], PLAIN),
        pa.array([[], [None]], pa.list_(pa.null())),
        pa.array([[], [{"key": None, "value": b""}]], pa.large_list_view(ENTRY)),
    ],
    ids=["null name", "null entry", "null type", "list view"],
)
def test_a_header_without_name_is_refused_by_its_row(headers: pa.Array) -> None:
    with pytest.raises(InvalidRecordError, match="row 1: the record has a header without key"):
        column_batch(with_headers(headers), 0)


# --- bounds ------------------------------------------------------------------------------------

HUGE = b"x" * (1 << 20)


VIEWS_FROM_BUFFERS = pytest.mark.skipif(int(pa.__version__.split(".")[0]) < 26, reason="pyarrow takes two buffers only")


def bytes_views(count: int) -> pa.Array:
    """Views of one buffer."""
    words = struct.pack("<i4sii", len(HUGE), HUGE[:4], 0, 0) * count
    return pa.Array.from_buffers(pa.binary_view(), count, [None, pa.py_buffer(words), pa.py_buffer(HUGE)])


@pytest.mark.parametrize(
    "made",
    [
        lambda: pa.DictionaryArray.from_arrays(pa.array([0] * 1025, pa.int16()), [HUGE]),
        lambda: pa.RunEndEncodedArray.from_arrays([1025], [HUGE]),
        pytest.param(lambda: bytes_views(1025), marks=VIEWS_FROM_BUFFERS),
    ],
    ids=["dictionary", "runs", "views"],
)
def test_bytes_that_a_layout_repeats_count_as_often_as_they_are_written(made: Callable[[], pa.Array]) -> None:
    """None of them is made for that."""
    array = made()
    before = pa.total_allocated_bytes()

    with pytest.raises(IllegalArgumentError, match=f"at most {MAX_BATCH_BYTES} go into one batch"):
        column_batch(pa.table({"value": array}), 0)

    assert pa.total_allocated_bytes() - before < len(HUGE)


def test_headers_that_share_their_entries_count_as_often_as_they_are_written() -> None:
    entries = pa.array([{"key": "h", "value": HUGE}], ENTRY)
    array = pa.ListViewArray.from_arrays([0] * 1025, [1] * 1025, entries)

    with pytest.raises(IllegalArgumentError, match="go into one batch"):
        column_batch(with_headers(array), 0)


# --- numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [dictionary, runs], ids=["dictionary", "runs"])
def test_partitions_and_times_may_be_dictionaries_or_runs(layout: Callable[[pa.Array], pa.Array]) -> None:
    table = pa.table(
        {
            "value": ["a", "b"],
            "partition": layout(pa.array([1, 0], pa.int64())),
            "timestamp": layout(pa.array([5, 7], pa.timestamp("ms", "UTC"))),
        }
    )

    found = column_batch(table, 0).records()

    assert (found.partitions, found.timestamps) == ([1, 0], [5, 7])


@given(
    st.lists(
        st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3), max_size=9
    ),
    st.data(),
)
def test_list_views_in_any_order_give_their_headers(found: list[Any], data: st.DataObject) -> None:
    """Entries of the rows stand anywhere, and what a null row points to does not count."""
    order = data.draw(st.permutations(range(len(found))))
    starts, entries = [0] * len(found), list[dict[str, Any]]()
    for row in order:
        starts[row] = len(entries)
        entries += [{"key": key, "value": value} for key, value in found[row] or ()]
    sizes = [len(row or ()) for row in found]
    array = pa.ListViewArray.from_arrays(
        starts, sizes, pa.array(entries, ENTRY), mask=pa.array([r is None for r in found], pa.bool_())
    )
    if not found:
        return

    assert sent_headers(array) == [row or None for row in found]
