"""Data files for a replica: which are brought at the same time."""

from __future__ import annotations

from itertools import chain, pairwise

from hypothesis import given
from hypothesis import strategies as st

from kafkalike.delta.actions import Add
from kafkalike.delta.log_files import READ_BESIDE
from kafkalike.replication.tables.data_file_copier import BYTES_BESIDE, beside_each_other


def add(number: int, size: int) -> Add:
    return Add(path=f"{number}", partition=0, size=size, modification_ms=0, data_change=True, stats={})


@given(sizes=st.lists(st.one_of(st.integers(0, 1000), st.integers(0, 2 * BYTES_BESIDE)), max_size=60))
def test_files_brought_together_are_few_and_fit_into_memory(sizes: list[int]) -> None:
    adds = [add(number, size) for number, size in enumerate(sizes)]

    found = list(beside_each_other(adds))

    assert list(chain.from_iterable(found)) == adds
    for some in found:
        assert 1 <= len(some) <= READ_BESIDE
        assert len(some) == 1 or sum(one.size for one in some) <= BYTES_BESIDE
    for some, later in pairwise(found):
        assert len(some) == READ_BESIDE or sum(one.size for one in some) + later[0].size > BYTES_BESIDE
