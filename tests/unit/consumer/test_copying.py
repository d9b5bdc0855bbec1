"""Records of one poll: the offsets after them, and their delivery counts."""

from kafkalike.consumer.offset_commits import offsets_after
from kafkalike.model.structs import ConsumerRecord, OffsetAndMetadata, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def record(tp: TopicPartition, offset: int) -> ConsumerRecord:
    """A record without content."""
    return ConsumerRecord(tp.topic, tp.partition, -1, offset, 0, 0, None, b"", [], None, -1, 0, -1)


def test_offsets_of_a_poll() -> None:
    """The next one to be read by partition."""
    polled = {T0: [record(T0, 3), record(T0, 7)], T1: [record(T1, 0)]}

    assert offsets_after(polled) == {T0: OffsetAndMetadata(8), T1: OffsetAndMetadata(1)}
    assert offsets_after({}) == {}


def test_delivery_count_of_a_record_is_none_outside_share_groups_and_no_part_of_its_value() -> None:
    plain, delivered = record(T0, 3), record(T0, 3).delivered(2)

    assert (plain.delivery_count, delivered.delivery_count) == (None, 2)
    assert plain == delivered
