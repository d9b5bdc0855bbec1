"""Topics before, in and after a repartition, and the small texts and checks around them."""

import pytest

from kafkalike.errors import InvalidGroupIdError, InvalidPartitionsError, ReassignmentInProgressError
from kafkalike.model.groups.partition_split import check_split
from kafkalike.model.names import GATEWAYS_GROUP, REPARTITIONS_GROUP, TopicId, TopicName, check_group_id, counted
from kafkalike.model.topic import Ancestor, RepartitionTarget, TopicInfo

TARGET = RepartitionTarget(topic_id=TopicId("new"), location="t~1", num_partitions=8)


def topic(*ancestors: Ancestor, target: RepartitionTarget | None = None) -> TopicInfo:
    return TopicInfo(
        name=TopicName("t"),
        topic_id=TopicId("id"),
        location="t",
        num_partitions=4,
        ancestors=ancestors,
        target=target,
    )


def test_changes_of_a_topic_wait_for_its_repartition() -> None:
    topic().check_settled()

    with pytest.raises(ReassignmentInProgressError, match=r"8 partitions.*`kafkalike topics --repartition --topic t "):
        topic(target=TARGET).check_settled()


def test_an_ancestor_is_found_by_either_of_its_ids() -> None:
    info = topic(
        Ancestor(topic_id=TopicId("a"), table_id=TopicId("b"), num_partitions=1),
        Ancestor(topic_id=TopicId("c"), table_id=TopicId("c"), num_partitions=2),
    )

    assert [info.partitions_as(known) for known in ("a", "b", "c", "id")] == [1, 1, 2, None]


@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 1), (2, 5)])
def test_partitions_are_raised_to_a_multiple_alone(before: int, after: int) -> None:
    with pytest.raises(InvalidPartitionsError, match="choose 4, 6 or another multiple"):
        check_split("t", before, after)
    check_split("t", before, 3 * before)


def test_reserved_groups_are_refused_with_the_reason() -> None:
    with pytest.raises(InvalidGroupIdError, match="is reserved: its members are the gateways of the cluster"):
        check_group_id(GATEWAYS_GROUP)
    with pytest.raises(InvalidGroupIdError, match="is reserved: its offsets name topics"):
        check_group_id(REPARTITIONS_GROUP)


def test_things_are_counted_in_the_singular_and_in_the_plural() -> None:
    assert [counted(1, "topic"), counted(0, "record")] == ["1 topic", "0 records"]
    assert counted(1200, "data file", ",") == "1,200 data files"
