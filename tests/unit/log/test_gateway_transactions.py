"""Staged batches of a gateway's transaction: their order by sequence, and their counts."""

from __future__ import annotations

import pytest

from kafkalike.errors import TransactionAbortableError
from kafkalike.log.topic.batch_payload import pack, partitions_in
from kafkalike.log.transactions.gateway_transactions import _add_offsets, _dump_offsets, _part, _StagedBatch
from kafkalike.model.appends.producer_sequences import SequencedBatch
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.model.transactions.group_claims import GroupClaim
from kafkalike.model.transactions.transactional_id import StagedFile, TopicLife
from tests.tools.records import batch

LAST = 2**31 - 1
TOPIC = TopicLife("t", "id")


def staged(partition: int, first: int, count: int) -> _StagedBatch:
    name = f"{partition}/{first}"
    return _StagedBatch(
        StagedFile(name, 1, 0), SequencedBatch(1, 0, partition, first, count), (batch("v"), "none", None)
    )


def test_batches_are_in_the_order_of_their_sequences() -> None:
    part = _part(TOPIC, [staged(1, 7, 1), staged(0, 13, 2), staged(0, 10, 3), staged(1, 8, 1)])
    assert [file.name for file in part.files] == ["0/10", "0/13", "1/7", "1/8"]
    assert part.counts == {0: 5, 1: 2}


def test_sequences_that_wrap_keep_their_order() -> None:
    part = _part(TOPIC, [staged(0, 1, 4), staged(0, LAST, 2), staged(0, LAST - 5, 5)])
    assert [file.name for file in part.files] == [f"0/{LAST - 5}", f"0/{LAST}", "0/1"]


@pytest.mark.parametrize(
    "batches",
    [[staged(0, 0, 2), staged(0, 3, 1)], [staged(0, 0, 2), staged(0, 1, 1)]],
    ids=["gap", "overlap"],
)
def test_transaction_without_one_of_its_batches_is_aborted(batches: list[_StagedBatch]) -> None:
    with pytest.raises(TransactionAbortableError, match="t-0: batches of the transaction are missing"):
        _part(TOPIC, batches)


def test_records_of_a_staged_file_with_sequences_are_counted() -> None:
    sequences = [(3, 2, SequencedBatch(1, 0, 3, 5, 2)), (4, 1, None), (3, 1, SequencedBatch(1, 0, 3, 7, 1))]
    content = pack(batch((3, "a"), (3, "b"), (4, '"batches":[[9,9]]'), (3, "c")), "none", None, sequences)
    assert partitions_in(content) == {3: 3, 4: 1}


def test_later_offsets_of_a_group_replace_earlier_ones() -> None:
    offsets: dict[GroupClaim, dict[TopicPartition, OffsetAndMetadata]] = {}
    old = GroupClaim(group_id="g", generation=1, member_id="m", lives=(("t", "1"),))
    new = GroupClaim(group_id="g", generation=2, member_id="m", lives=(("u", "2"),))
    _add_offsets(offsets, _dump_offsets(old, {TopicPartition("t", 0): OffsetAndMetadata(3, "é", 7)}))
    _add_offsets(offsets, _dump_offsets(old, {TopicPartition("t", 1): OffsetAndMetadata(4)}))
    _add_offsets(offsets, _dump_offsets(new, {TopicPartition("t", 1): OffsetAndMetadata(5)}))

    assert offsets == {
        GroupClaim(group_id="g", generation=2, member_id="m", lives=(("t", "1"), ("u", "2"))): {
            TopicPartition("t", 0): OffsetAndMetadata(3, "é", 7),
            TopicPartition("t", 1): OffsetAndMetadata(5),
        }
    }
