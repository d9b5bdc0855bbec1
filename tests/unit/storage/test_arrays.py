"""Arrow arrays into Python values, by their buffers: the same as Arrow's own, slower ways give."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.log.topic.chunk import CHUNK_SCHEMA, Chunk
from kafkalike.storage.arrays import FEW_TURNS, whole_numbers, without_nulls

structs = st.lists(st.none() | st.fixed_dictionaries({"a": st.none() | st.integers(0, 9)}), max_size=30)


@given(structs, st.integers(0, 30), st.integers(0, 30))
def test_without_nulls_only_those_are_left_that_are_valid(
    values: list[dict[str, int | None] | None], begin: int, count: int
) -> None:
    """Also of a slice, whose validity begins within a byte."""
    array = pa.array(values, pa.struct([("a", pa.int64())])).slice(begin, count)

    found = without_nulls(array)

    assert found.to_pylist() == pc.drop_null(array).to_pylist()
    assert found.field("a").to_pylist() == [value["a"] for value in pc.drop_null(array).to_pylist()]


def test_many_runs_of_valid_values_are_put_together_too() -> None:
    """More than are put together one by one."""
    array = pa.array([None if number % 2 else number for number in range(4 * FEW_TURNS)])

    assert without_nulls(array).to_pylist() == list(range(0, 4 * FEW_TURNS, 2))


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("us", "UTC"), pa.timestamp("ms"), pa.int32()])
def test_whole_numbers_are_those_of_a_cast(kind: pa.DataType) -> None:
    """In several runs, the first of them a slice, with a null."""
    run = pa.array([1, None, -3, 4], kind)
    column = pa.chunked_array([run.slice(1), run])

    assert whole_numbers(column) == [None, -3, 4, 1, None, -3, 4]


def test_times_of_a_chunk_are_cut_off_towards_zero() -> None:
    """As Arrow's `cast` does it, before 1970 too."""
    times = [-2000, -1001, -1000, -999, -1, 0, 1, 999, 1000, 1_700_000_000_000_999]
    rows = [
        {"offset": at, "timestamp": time, "timestampType": 0, "key": None, "value": b"v", "headers": None}
        for at, time in enumerate(times)
    ]
    table = pa.Table.from_pylist(rows, schema=CHUNK_SCHEMA)
    chunk = Chunk(0, pa.concat_tables([table, table.slice(3)]), len(times))

    found = chunk.columns()

    expected = [-2, -1, -1, 0, 0, 0, 0, 0, 1, 1_700_000_000_000]
    assert found.timestamps == expected + expected[3:]
    assert found.offsets == [*range(10), *range(3, 10)]
