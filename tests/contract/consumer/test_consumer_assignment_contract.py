"""What the consumer reads: subscriptions, assignments, topics that go away; over both clusters."""

from typing import Any

import pytest

from kafkalike.admin.testing import ManualClock
from kafkalike.errors import (
    IllegalArgumentError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    TopicDeletedError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.structs import TopicPartition
from tests.tools.consumer import T0, T1, Diary, Make, drain, poll_often, values, write
from tests.tools.kinds import only_in_memory

# --- subscribe and assign --------------------------------------------------------------------


def test_subscribe_and_assign_exclude_each_other(cluster: Cluster, consumer_of: Make) -> None:
    """One way until unsubscribe."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of("orders")

    with pytest.raises(IllegalStateError):
        consumer.assign([T0])
    consumer.unsubscribe()
    consumer.assign([T0])
    with pytest.raises(IllegalStateError):
        consumer.subscribe(["orders"])


@only_in_memory("cluster")
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, ValueError),
        ({"topics": "orders"}, TypeError),
        ({"topics": ["orders"], "pattern": "o.*"}, IllegalStateError),
        ({"topics": ["a b"]}, InvalidTopicError),
        ({"topics": ["__consumer_offsets"]}, InvalidTopicError),
        ({"topics": [None]}, InvalidTopicError),
        ({"pattern": "("}, ValueError),
        ({"pattern": "x" * 1025}, ValueError),
        ({"topics": ["orders"], "listener": object()}, TypeError),
    ],
)
def test_subscribe_refuses_bad_arguments_and_stays_as_it_was(
    consumer_of: Make, arguments: dict[str, Any], error: type[Exception]
) -> None:
    """The consumer is not half subscribed after a refusal."""
    consumer = consumer_of()

    with pytest.raises(error):
        consumer.subscribe(**arguments)

    assert consumer.subscription() is None
    consumer.assign([T0])


def test_a_pattern_takes_topics_and_partitions_as_they_come(cluster: Cluster, consumer_of: Make) -> None:
    """New topics that match, and added partitions, are noticed by poll; the pattern is matched at the begin."""
    cluster.create_topic("orders", 1, {})
    cluster.create_topic("old-orders", 1, {})
    consumer = consumer_of()
    consumer.subscribe(pattern="ord")
    consumer.poll()
    first = consumer.assignment()

    cluster.create_topic("order-lines", 1, {})
    cluster.add_partitions("orders", 2)
    consumer.poll()

    assert first == {T0}
    assert consumer.assignment() == {T0, T1, TopicPartition("order-lines", 0)}
    assert consumer.subscription() == {"orders", "order-lines"}


def test_a_listener_hears_of_changes_in_kafkas_order(cluster: Cluster, consumer_of: Make) -> None:
    """Revoked with all that was held, then assigned with all that is; close revokes."""
    cluster.create_topic("orders", 1, {})
    consumer, diary = consumer_of(group_id="g"), Diary()
    consumer.subscribe(["orders"], listener=diary)

    consumer.poll()
    cluster.add_partitions("orders", 2)
    consumer.poll()
    consumer.close()

    assert diary.entries == [
        ("revoked", set()),
        ("assigned", {T0}),
        ("revoked", {T0}),
        ("assigned", {T0, T1}),
        ("revoked", {T0, T1}),
    ]


def test_a_partition_held_before_and_after_a_change_keeps_its_position(cluster: Cluster, consumer_of: Make) -> None:
    """A change of the assignment hands nothing out twice and nothing over."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a")
    consumer = consumer_of("orders")
    before = values(consumer.poll())
    cluster.add_partitions("orders", 2)
    write(cluster, b"b")
    write(cluster, b"c", partition=1)

    after = drain(consumer)

    assert before == [b"a"]
    assert sorted(after) == [b"b", b"c"]


def test_a_listener_may_seek_but_not_poll(cluster: Cluster, consumer_of: Make) -> None:
    """Seeking takes effect in the same poll; polling inside a callback is refused, and the consumer goes on."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b")
    consumer, diary = consumer_of(), Diary()
    consumer.subscribe(["orders"], listener=diary)

    diary.on_assigned = consumer.poll
    with pytest.raises(KafkaError) as caught:
        consumer.poll()
    diary.on_assigned = lambda: consumer.seek(T0, 1)
    cluster.add_partitions("orders", 2)

    assert isinstance(caught.value.__cause__, IllegalStateError)
    assert values(consumer.poll()) == [b"b"]


def test_partitions_assigned_by_hand_are_waited_for(cluster: Cluster, consumer_of: Make) -> None:
    """A partition that does not exist yet gives nothing, then its records."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of()
    consumer.assign([T1])

    before = consumer.poll()
    cluster.add_partitions("orders", 2)
    write(cluster, b"a", partition=1)

    assert before == {}
    assert values(consumer.poll()) == [b"a"]


# --- a topic that goes away ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("by_hand", [True, False])
def test_a_topic_created_again_is_told_and_never_mixed_with_the_old_one(
    cluster: Cluster, consumer_of: Make, *, by_hand: bool
) -> None:
    """The error names both ids; the next poll reads the new topic from its beginning."""
    old = cluster.create_topic("orders", 1, {})
    write(cluster, b"old", b"old", b"old")
    consumer = consumer_of(max_poll_records=1)
    consumer.assign([T0]) if by_hand else consumer.subscribe(["orders"])
    consumer.poll()
    cluster.delete_topic("orders")
    new = cluster.create_topic("orders", 1, {})
    write(cluster, b"new")

    found: list[bytes] = []
    with pytest.raises(TopicDeletedError) as caught:
        poll_often(consumer, found)

    assert (caught.value.topic_id, caught.value.current_id) == (old.topic_id, new.topic_id)
    assert set(found) <= {b"old"}
    assert drain(consumer) == [b"new"]


def test_offsets_committed_for_a_deleted_topic_do_not_count_for_its_namesake(
    cluster: Cluster, consumer_of: Make
) -> None:
    """The next topic of the name begins at auto_offset_reset."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b")
    first = consumer_of("orders", group_id="g")
    first.poll()
    first.close()
    cluster.delete_topic("orders")
    cluster.create_topic("orders", 1, {})
    write(cluster, b"new")

    second = consumer_of("orders", group_id="g")

    assert second.committed(T0) is None
    assert values(second.poll()) == [b"new"]


def test_positions_of_a_deleted_topic_are_not_committed_to_its_namesake(cluster: Cluster, consumer_of: Make) -> None:
    """An explicit commit says that the topic is gone."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b")
    consumer = consumer_of("orders", group_id="g")
    consumer.poll()
    cluster.delete_topic("orders")
    cluster.create_topic("orders", 1, {})

    with pytest.raises(TopicDeletedError):
        consumer.commit()

    assert consumer.committed(T0) is None


def test_an_unusable_partition_number_is_refused(consumer_of: Make) -> None:
    """Negative, bool and text, before anything is assigned."""
    consumer = consumer_of()

    with pytest.raises(IllegalArgumentError):
        consumer.assign([TopicPartition("orders", -1)])
    for number in (True, "0", None):
        with pytest.raises(TypeError):
            consumer.assign([TopicPartition("orders", number)])  # type: ignore[arg-type]
    assert consumer.assignment() == set()


@pytest.mark.parametrize("partitions", [1, 2], ids=["none-left-for-it", "one-promised"])
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"], ids=["eager", "cooperative"])
def test_member_waiting_for_a_silent_owner_warns_once_who_it_is_and_until_when(
    cluster: Cluster,
    consumer_of: Make,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    strategy: str,
    partitions: int,
) -> None:
    """The owner was killed: it neither polls nor leaves, so its session of 45 s has to expire."""
    cluster.create_topic("orders", partitions, {})
    settings = {"group_id": "g", "partition_assignment_strategy": strategy, "heartbeat_interval_ms": 3000}
    killed = consumer_of("orders", client_id="killed", **settings)
    killed.poll()
    waiting = consumer_of("orders", client_id="waiting", **settings)
    waiting.poll()

    for _ in range(15):
        clock.seconds += 3
        waiting.poll()
    said = [r.getMessage() for r in caplog.records if r.levelname == "WARNING" and "no partitions" in r.getMessage()]
    clock.seconds += 3
    waiting.poll()
    waiting.poll()

    owner, waits = killed.group_metadata().member_id, waiting.group_metadata().member_id
    told = f"group g: {waits} has no partitions: {owner} owns some and gave no heartbeat for 6 s"
    assert said == [f"{told}; without one it will be removed in 39 s"]
    assert len(waiting.assignment()) == partitions
    assert caplog.text.count("has no partitions") == 1


def test_member_waiting_for_an_owner_that_lives_does_not_warn(
    cluster: Cluster, consumer_of: Make, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """One partition for two members: the second one has none, as it should be."""
    cluster.create_topic("orders", 1, {})
    both = [consumer_of("orders", group_id="g", heartbeat_interval_ms=3000) for _ in range(2)]
    for consumer in both:
        consumer.poll()

    for _ in range(20):
        clock.seconds += 3
        for consumer in both:
            consumer.poll()

    assert sorted(len(consumer.assignment()) for consumer in both) == [0, 1]
    assert "has no partitions" not in caplog.text
