"""What a cluster promises of its topics, and a log of the topic's life; in memory and on Delta tables."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from kafkalike.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    TopicDeletedError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.cluster import Cluster
from tests.tools.effort import seeds
from tests.tools.records import batch

if TYPE_CHECKING:
    from collections.abc import Callable


# --- creation ----------------------------------------------------------------------------------


def test_a_topic_is_what_its_creation_said(open_control: Callable[[], Cluster]) -> None:
    """Seen through another handle: count, own settings, an id."""
    created = open_control().create_topic("orders", 3, {"retention.ms": 1000, "cleanup.policy": "compact"})  # type: ignore[dict-item]

    seen = open_control().topic("orders")

    assert seen == created
    assert (seen.name, seen.num_partitions) == ("orders", 3)
    assert dict(seen.configs) == {"retention.ms": "1000", "cleanup.policy": "compact"}
    assert seen.topic_id
    assert open_control().topics() == {"orders": seen}


def test_minus_one_takes_the_servers_partition_count(open_control: Callable[[], Cluster]) -> None:
    """Kafka's own default is one."""
    assert open_control().create_topic("orders", -1, {}).num_partitions == 1


def test_a_name_belongs_to_one_topic(open_control: Callable[[], Cluster]) -> None:
    """Also when another handle took it."""
    cluster = open_control()
    cluster.topics()
    open_control().create_topic("orders", 1, {})

    with pytest.raises(TopicAlreadyExistsError):
        cluster.create_topic("orders", 1, {})


def test_names_that_differ_in_case_or_dots_are_different_topics(open_control: Callable[[], Cluster]) -> None:
    """Kafka's rule; file systems and catalogs must not fold them."""
    cluster = open_control()
    for count, name in enumerate(("a.b", "a_b", "A_b", "a-b"), start=1):
        cluster.create_topic(name, count, {})

    assert {name: info.num_partitions for name, info in open_control().topics().items()} == {
        "a.b": 1,
        "a_b": 2,
        "A_b": 3,
        "a-b": 4,
    }


def test_a_name_may_be_as_long_as_kafka_allows(log_cluster: Cluster) -> None:
    """249 characters, also where names become files; and again after the topic was deleted."""
    names = ["x" * 249, "x" * 248 + "y"]
    for _ in range(2):
        for name in names:
            log_cluster.create_topic(name, 1, {})

        for name in names:
            assert dict(log_cluster.log(name).append(batch(b"v")).ranges) == {0: range(1)}
            log_cluster.delete_topic(name)

        assert log_cluster.topics() == {}


@pytest.mark.parametrize(
    ("name", "count", "configs", "error"),
    [
        ("a/b", 1, {}, InvalidTopicError),
        ("__consumer_offsets", 1, {}, InvalidTopicError),
        ("ok", 0, {}, InvalidPartitionsError),
        ("ok", -2, {}, InvalidPartitionsError),
        ("ok", 10_001, {}, InvalidPartitionsError),
        ("ok", True, {}, InvalidPartitionsError),
        ("ok", 1, {"retention.msec": "1"}, InvalidConfigurationError),
        ("ok", 1, {"retention.ms": "-2"}, InvalidConfigurationError),
    ],
)
def test_a_bad_creation_leaves_nothing_behind(
    open_control: Callable[[], Cluster], name: str, count: int, configs: dict[str, str], error: type[KafkaError]
) -> None:
    """A named error, and no topic."""
    cluster = open_control()

    with pytest.raises(error):
        cluster.create_topic(name, count, configs)

    assert cluster.topics() == {}


def test_checking_a_creation_creates_nothing(open_control: Callable[[], Cluster]) -> None:
    """`validate_only` says what it would be."""
    cluster = open_control()

    info = cluster.create_topic("orders", 4, {}, validate_only=True)

    assert info.num_partitions == 4
    assert cluster.topics() == {}


def test_a_missing_topic_is_created_once_when_it_is_wanted(open_control: Callable[[], Cluster]) -> None:
    """`ensure_topic` finds it the second time."""
    created = open_control().ensure_topic("orders")

    assert open_control().ensure_topic("orders") == created


@pytest.mark.parametrize("name", [f"orders{number}" for number in seeds(10, 3)])
def test_creators_in_a_race_make_one_topic(open_control: Callable[[], Cluster], name: str) -> None:
    """One of four wins, the others are told that the topic exists, and its log works."""
    clusters = [open_control() for _ in range(4)]
    ready = threading.Barrier(4)
    ends: list[object] = []

    def create(cluster: Cluster) -> None:
        ready.wait()
        try:
            ends.append(cluster.create_topic(name, 1, {}).topic_id)
        except KafkaError as error:
            ends.append(type(error))

    threads = [threading.Thread(target=create, args=(cluster,)) for cluster in clusters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert ends.count(TopicAlreadyExistsError) == 3
    assert open_control().topic(name).topic_id in ends
    assert open_control().log(name).log_end(0) == 0


def test_a_topic_that_does_not_exist_is_unknown(open_control: Callable[[], Cluster]) -> None:
    """Whatever is asked of it."""
    cluster = open_control()
    asked: list[Callable[[], object]] = [
        lambda: cluster.topic("orders"),
        lambda: cluster.log("orders"),
        lambda: cluster.delete_topic("orders"),
        lambda: cluster.add_partitions("orders", 2),
        lambda: cluster.set_configs("orders", {}),
        lambda: cluster.move_log_start("orders", {0: 1}, "r", "r"),
    ]

    for ask in asked:
        with pytest.raises(UnknownTopicOrPartitionError):
            ask()


# --- deletion ----------------------------------------------------------------------------------


def test_a_deleted_topic_is_gone_for_logs_that_were_open(log_cluster: Cluster) -> None:
    """Refresh and append say so by name."""
    log_cluster.create_topic("orders", 1, {})
    log = log_cluster.log("orders")
    log.append(batch(b"a"))

    log_cluster.delete_topic("orders")

    assert log_cluster.topics() == {}
    for use in (log.refresh, lambda: log.append(batch(b"b"))):
        with pytest.raises(TopicDeletedError) as caught:
            use()
        assert (caught.value.topic, caught.value.current_id) == ("orders", None)


def test_a_topic_created_again_is_another_one(log_cluster: Cluster) -> None:
    """It begins empty, with other settings; logs of the first one do not reach it."""
    log_cluster.create_topic("orders", 3, {"retention.ms": "1"})
    first = log_cluster.log("orders")
    first.append(batch(b"a", b"b"))
    log_cluster.move_log_start("orders", {0: 1}, "retention", "r")
    log_cluster.delete_topic("orders")

    info = log_cluster.create_topic("orders", 1, {})
    log = log_cluster.log("orders")

    assert info.topic_id != first.info.topic_id
    assert (info.num_partitions, dict(info.configs), log.log_start(0), log.log_end(0)) == (1, {}, 0, 0)
    with pytest.raises(TopicDeletedError) as caught:
        first.append(batch(b"c"))
    assert caught.value.current_id == info.topic_id
    assert dict(log.append(batch(b"d")).ranges) == {0: range(1)}


def test_topics_come_and_go_in_object_stores_too(open_control: Callable[[], Cluster]) -> None:
    """A name may be used again and again; each life is empty."""
    ids = set()
    for _ in range(3):
        ids.add(open_control().create_topic("orders", 1, {}).topic_id)
        assert open_control().log("orders").log_end(0) == 0
        open_control().delete_topic("orders")

    assert len(ids) == 3
    assert open_control().topics() == {}


def test_a_topic_may_be_protected_from_deletion(log_cluster: Cluster) -> None:
    """`delete.topic.enable=false`."""
    log_cluster.create_topic("orders", 1, {})
    log_cluster.edit_defaults(lambda _: {"delete.topic.enable": "false"})

    with pytest.raises(PolicyViolationError):
        log_cluster.delete_topic("orders")


# --- changes -----------------------------------------------------------------------------------


def test_more_partitions_are_seen_by_open_logs(log_cluster: Cluster) -> None:
    """After a refresh; an append needs none."""
    log_cluster.create_topic("orders", 1, {})
    log = log_cluster.log("orders")

    log_cluster.add_partitions("orders", 3)

    assert dict(log.append(batch(b"a", partition=2)).ranges) == {2: range(1)}
    log.refresh()
    assert log.info.num_partitions == 3


@pytest.mark.parametrize("total", [1, 2, 10_001])
def test_partitions_only_rise(open_control: Callable[[], Cluster], total: int) -> None:
    """Not to the same count, not to a lower one, not beyond the limit."""
    cluster = open_control()
    cluster.create_topic("orders", 2, {})

    with pytest.raises(InvalidPartitionsError):
        cluster.add_partitions("orders", total)


def test_a_changed_setting_holds_for_open_logs(log_cluster: Cluster) -> None:
    """The next append goes by it."""
    log_cluster.create_topic("orders", 1, {})
    log = log_cluster.log("orders")
    log.append(batch(b"x" * 100))

    log_cluster.set_configs("orders", {"max.message.bytes": "100"})

    with pytest.raises(MessageSizeTooLargeError):
        log.append(batch(b"x" * 100))
    log.refresh()
    assert log.config.max_message_bytes == 100


def test_editors_of_different_settings_lose_neither_change(open_control: Callable[[], Cluster]) -> None:
    """Four handles at once, each its own setting."""
    open_control().create_topic("orders", 1, {})
    wanted = {"retention.ms": "1", "retention.bytes": "2", "segment.ms": "3", "segment.bytes": "44"}

    def edit(name: str, value: str) -> None:
        open_control().edit_configs("orders", lambda now: {**now, name: value})

    threads = [threading.Thread(target=edit, args=item) for item in wanted.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert dict(open_control().topic("orders").configs) == wanted


def test_log_starts_survive_a_change_of_the_topic(log_cluster: Cluster) -> None:
    """More partitions or other settings do not bring deleted records back."""
    log_cluster.create_topic("orders", 1, {})
    log = log_cluster.log("orders")
    log.append(batch(b"a", b"b"))
    log_cluster.move_log_start("orders", {0: 1}, "retention", "r")

    log_cluster.add_partitions("orders", 2)
    log_cluster.set_configs("orders", {"retention.ms": "1"})

    assert log_cluster.topic("orders").log_start(0) == 1
