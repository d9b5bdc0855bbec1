"""The proof that a data file holds the offsets that the table's log says, batch by batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.log.topic.data_file import FlawError
from kafkalike.log.topic.segment_rows import OffsetProof
from tests.tools.segments import segment


def proven(proof: OffsetProof, *batches: list[int]) -> bool:
    """Whether these batches are taken for all of a file, in order."""
    return all(proof.follows(np.array(batch)) for batch in batches) and not proof.left


files = st.lists(st.integers(9, 16), min_size=1, max_size=6)


@given(files, st.integers(0, 6), st.data())
def test_a_file_is_taken_for_what_it_is_and_for_nothing_else(
    offsets: list[int], records: int, data: st.DataObject
) -> None:
    """Whole or in parts: so many rows, rising, from the first offset that the log says to the last one."""
    start = data.draw(st.integers(9, 11))
    stop = data.draw(st.integers(start + max(records, 1), 17))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(offsets) - 1))) if len(offsets) > 1 else ())
    proof = OffsetProof(segment(start, stop, records=records))

    try:
        taken = proven(proof, *(offsets[a:b] for a, b in zip([0, *cuts], [*cuts, len(offsets)], strict=True)))
    except FlawError:
        taken = False

    rising = offsets == sorted(set(offsets))
    assert taken == (rising and len(offsets) == records and (offsets[0], offsets[-1]) == (start, stop - 1))


def test_a_compacted_file_that_ends_early_is_named() -> None:
    """It has as many rows as it should, and not the last one of them."""
    proof = OffsetProof(segment(10, 20, records=3))

    with pytest.raises(FlawError, match="its last record has offset 18"):
        proven(proof, [10, 15], [18])


def test_a_read_in_the_middle_of_a_file_without_holes_knows_which_row_comes() -> None:
    assert proven(OffsetProof(segment(10, 14), rows_before=2), [12, 13])
    assert not proven(OffsetProof(segment(10, 14), rows_before=2), [11, 12])


def test_a_read_in_the_middle_of_a_compacted_file_goes_on_above_the_row_before() -> None:
    assert proven(OffsetProof(segment(10, 20, records=4), rows_before=2, before=14), [15, 19])
    assert not proven(OffsetProof(segment(10, 20, records=4), rows_before=2, before=14), [14, 19])
