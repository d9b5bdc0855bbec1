"""`kafkalike dlq`, and the same from Python: what stands in dead-letter topics, and each letter replayed once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kafkalike.admin import dead_letter_replay as replaying
from kafkalike.admin.dead_letter_queue import DeadLetters, Filter, StoredLetter
from kafkalike.consumer import KafkaConsumer
from kafkalike.errors import (
    CommitFailedError,
    IllegalArgumentError,
    InvalidRecordError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.structs import TopicPartition
from tests.tools.cli import Done, call
from tests.tools.kinds import only_in_memory
from tests.tools.letters import lettered
from tests.tools.partitions import partition_values
from tests.tools.records import fill

ANY: dict[str, Any] = {"group_id": "g", "errors_tolerance": "all", "auto_offset_reset": "earliest"}


def typed(data: bytes) -> object:
    """Numbers, and JSON in brackets."""
    return json.loads(data) if data.startswith(b"[") else int(data)


def consumed(cluster: Cluster, *topics: str, **configs: Any) -> list[Any]:
    """What a tolerant consumer of a group gets from there on; what it cannot read are letters then."""
    settings = {**ANY, "value_deserializer": typed, **configs}
    with KafkaConsumer(*topics, bootstrap_servers=cluster, **settings) as consumer:
        return [record.value for records in consumer.poll(timeout_ms=200).values() for record in records]


def count(cluster: Cluster, topic: str) -> int:
    log = cluster.log(topic)
    return sum(log.log_end(partition) for partition in log.info.partitions)


@pytest.fixture
def orders(log_cluster: Cluster) -> Cluster:
    """Two partitions with three letters of two classes."""
    log_cluster.create_topic("orders", 2, {})
    fill(log_cluster, "orders", b"1", b"two", b"[3", key=b"k", headers=[("h", b"1")])
    fill(log_cluster, "orders", b"four", b"5", partition=1, at_ms=5_000)
    assert sorted(consumed(log_cluster, "orders")) == [1, 5]
    assert lettered(log_cluster) == [(0, 1), (0, 2), (1, 0)]
    return log_cluster


def dlq(cluster: Cluster, *args: str) -> Done:
    return call(cluster, "dlq", *args)


def test_topics_are_listed_with_counts_by_class(orders: Cluster) -> None:
    orders.create_topic("empty.dlq", 1, {})
    orders.create_topic("plain", 1, {})
    fill(orders, "plain", b"x")
    done = dlq(orders, "list")

    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "TOPIC       LETTERS  WAITING  ERROR-CLASS                   COUNT",
        "empty.dlq   0        0        -                             0",
        "orders.dlq  3        3        builtins.ValueError           2",
        "orders.dlq  3        3        json.decoder.JSONDecodeError  1",
    ]
    assert [json.loads(line) for line in dlq(orders, "list", "--topic", "orders.dlq", "--json").out.splitlines()] == [
        {
            "topic": "orders.dlq",
            "letters": 3,
            "waiting": 3,
            "classes": {"builtins.ValueError": 2, "json.decoder.JSONDecodeError": 1},
            "sources": {"orders": 3},
        }
    ]


def test_a_topic_of_letters_is_found_by_its_first_record(orders: Cluster) -> None:
    consumed(orders, "orders", group_id="h", errors_deadletterqueue_topic_name="bad")

    assert [topic.topic for topic in DeadLetters(orders).topics()] == ["bad", "orders.dlq"]


def test_few_topics_are_looked_into_at_a_time(orders: Cluster) -> None:
    """What is known of a topic's first record stays known; empty ones are looked into again, when all others were."""
    consumed(orders, "orders", group_id="h", errors_deadletterqueue_topic_name="bad")
    for number in range(3):
        orders.create_topic(f"empty-{number}", 1, {})
    held = DeadLetters(orders)

    looks = [held.names(2) for _ in range(3)]

    assert [left for _, left in looks] == [3, 1, 0]
    assert looks[-1][0] == ["bad", "orders.dlq"]
    fill(orders, "empty-1", b"x")
    assert held.names(3) == (["bad", "orders.dlq"], 0)
    orders.create_topic("new", 1, {})
    assert held.names(0) == (["bad", "orders.dlq"], 1)


def test_a_topic_of_letters_is_read_again_when_it_or_the_group_has_changed(orders: Cluster) -> None:
    held = DeadLetters(orders)
    (first,) = held.topics()

    assert held.topics()[0] is first
    held.replay("orders.dlq", Filter(error_class="JSONDecodeError"), dry_run=False)
    assert held.topics()[0].waiting == first.waiting - 1
    fill(orders, "orders.dlq", b"more")
    assert held.topics()[0].letters == first.letters + 1


def test_letters_are_shown_with_their_cause(orders: Cluster) -> None:
    out = dlq(orders, "show", "--topic", "orders.dlq", "--error-class", "JSONDecodeError").out

    assert out.splitlines()[0] == "orders.dlq-0 offset 1: from orders-0 offset 2"
    assert out.splitlines()[1] == "  key: k  value: [3  time: 1970-01-01T00:00:01.002+00:00"
    assert out.splitlines()[2].startswith(
        "  VALUE_CONVERTER tests.contract.admin.test_dlq.typed: json.decoder.JSONDecodeError: Expecting"
    )
    assert "Traceback" in dlq(orders, "show", "--topic", "orders.dlq", "--stacktrace").out
    found = json.loads(dlq(orders, "show", "--topic", "orders.dlq", "--json", "--max-messages", "1").out)
    assert (found["value"], found["headers"], found["error"]["offset"]) == ("two", [["h", "1"]], 1)


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (["--source-topic", "orders"], [1, 2, 0]),
        (["--source-topic", "others"], []),
        (["--error-class", "builtins.ValueError"], [1, 0]),
        (["--offsets", "1-"], [2, 0]),
        (["--offsets", "0"], [1]),
        (["--offsets", "1-1", "--partition", "0"], [2]),
    ],
)
def test_letters_are_chosen(orders: Cluster, options: list[str], offsets: list[int]) -> None:
    out = dlq(orders, "show", "--topic", "orders.dlq", "--json", *options).out

    assert [json.loads(line)["error"]["offset"] for line in out.splitlines()] == offsets


@only_in_memory("open_log_cluster")
@pytest.mark.parametrize(
    ("args", "code", "why"),
    [
        (["show", "--topic", "orders.dlq", "--offsets", "a"], 2, "FROM-TO"),
        (["show", "--topic", "orders.dlq", "--offsets", "5-3"], 2, "holds no offset"),
        (["show", "--topic", "orders.dlq", "--partition", "9"], 1, "orders.dlq-9 does not exist"),
        (["show", "--topic", "missing"], 1, "missing"),
        (["replay", "--topic", "orders.dlq", "--execute", "--dry-run"], 2, "exclude"),
        (["replay", "--topic", "orders.dlq", "--to", "orders.dlq"], 1, "cannot be replayed to it"),
        (["replay", "--topic", "orders.dlq", "--to", "missing"], 1, "missing"),
    ],
)
def test_bad_arguments_are_named(orders: Cluster, args: list[str], code: int, why: str) -> None:
    done = dlq(orders, *args)

    assert done.code == code
    assert why in done.err


def test_a_replay_is_tried_and_then_done_once(orders: Cluster) -> None:
    """Records get back what they had, and lose the error's headers."""
    dry = dlq(orders, "replay", "--topic", "orders.dlq")
    assert dry.out.splitlines()[-1] == ("3 letters would be replayed; use --execute. Replayed before: 0, left: 0.")
    assert count(orders, "orders") == 5

    done = dlq(orders, "replay", "--topic", "orders.dlq", "--execute")
    again = dlq(orders, "replay", "--topic", "orders.dlq", "--execute", "--json")

    assert done.out.splitlines() == [
        "TARGET  LETTERS",
        "orders  3",
        "3 letters replayed. Replayed before: 0, left: 0.",
    ]
    assert (json.loads(again.out)["letters"], json.loads(again.out)["skipped"]) == (0, 3)
    assert partition_values(orders.log("orders")) == [b"1", b"two", b"[3", b"two", b"[3"]
    assert partition_values(orders.log("orders"), 1) == [b"four", b"5", b"four"]
    with KafkaConsumer("orders", bootstrap_servers=orders, auto_offset_reset="earliest") as reader:
        rows = [record for records in reader.poll().values() for record in records if record.value == b"two"]
    assert (rows[0].key, rows[0].headers, rows[0].timestamp) == (rows[1].key, rows[1].headers, rows[1].timestamp)
    assert [topic.waiting for topic in DeadLetters(orders).topics()] == [0]


def test_what_a_filter_leaves_out_is_replayed_later(orders: Cluster) -> None:
    letters = DeadLetters(orders)

    first = letters.replay("orders.dlq", Filter(error_class="JSONDecodeError"), dry_run=False)
    rest = letters.replay("orders.dlq", dry_run=False)

    assert (first.letters, first.left, first.skipped) == (1, 2, 0)
    assert (rest.letters, rest.left, rest.skipped) == (2, 0, 1)
    assert partition_values(orders.log("orders")) == [b"1", b"two", b"[3", b"[3", b"two"]
    assert first.ranges == {TopicPartition("orders", 0): [range(3, 4)]}


@pytest.mark.slow
def test_a_letter_that_fails_again_is_a_letter_again(orders: Cluster) -> None:
    """Of the record's new place; the replay leaves it for the next one."""
    letters = DeadLetters(orders)
    letters.replay("orders.dlq", dry_run=False)
    consumed(orders, "orders")
    assert lettered(orders) == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 0), (1, 2)]

    assert letters.replay("orders.dlq").letters == 3


def test_letters_may_be_mended_on_their_way(orders: Cluster) -> None:
    def mended(letter: StoredLetter) -> StoredLetter | None:
        return replace(letter, value=b"2") if letter.value == b"two" else None

    done = DeadLetters(orders).replay("orders.dlq", change=mended, dry_run=False)

    assert (done.letters, done.left) == (1, 2)
    assert consumed(orders, "orders") == [2]


def test_a_replay_goes_in_transactions_of_some_letters(orders: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "MOST_LETTERS", 1)

    done = DeadLetters(orders).replay("orders.dlq", dry_run=False)

    assert done.letters == 3
    assert DeadLetters(orders).replay("orders.dlq", dry_run=False).letters == 0


def test_a_record_that_its_topic_refuses_stops_the_replay_and_nothing_of_it_is_written(orders: Cluster) -> None:
    orders.set_configs("orders", {"kafkalike.value.schema.validation": "true"})
    letters = DeadLetters(orders)

    with pytest.raises(InvalidRecordError):
        letters.replay("orders.dlq", dry_run=False)
    orders.set_configs("orders", {})

    assert letters.replay("orders.dlq", dry_run=False).letters == 3


def test_a_letter_that_does_not_say_where_it_comes_from_needs_a_target(orders: Cluster) -> None:
    fill(orders, "orders.dlq", b"6", key=b"k")
    orders.create_topic("other", 3, {})
    letters = DeadLetters(orders)

    with pytest.raises(IllegalArgumentError, match="has no source topic"):
        letters.replay("orders.dlq", dry_run=False)
    done = letters.replay("orders.dlq", to="other", dry_run=False)

    assert done.targets == {"other": 4}
    assert count(orders, "other") == 4


def test_a_topic_that_is_gone_is_named(orders: Cluster) -> None:
    orders.delete_topic("orders")

    with pytest.raises(UnknownTopicOrPartitionError, match="orders"):
        DeadLetters(orders).replay("orders.dlq", dry_run=False)


def test_a_group_with_members_cannot_keep_what_was_replayed(orders: Cluster) -> None:
    with KafkaConsumer("orders", bootstrap_servers=orders, group_id="mine") as member:
        member.poll()
        with pytest.raises(CommitFailedError):
            DeadLetters(orders).replay("orders.dlq", group="mine", dry_run=False)

    assert count(orders, "orders") == 5


def test_two_replays_at_once_replay_each_letter_once(orders: Cluster) -> None:
    """The one that began first is fenced."""
    letters = DeadLetters(orders)

    def other(letter: StoredLetter) -> StoredLetter:
        if letter.value == b"two":
            assert letters.replay("orders.dlq", dry_run=False).letters == 3
        return letter

    with pytest.raises(ProducerFencedError):
        letters.replay("orders.dlq", change=other, dry_run=False)

    assert count(orders, "orders") == 8


@pytest.mark.slow
def test_a_filter_that_leaves_too_many_gaps_is_refused_and_another_group_may_take_it(orders: Cluster) -> None:
    values = [b"a" if n % 2 else b"[" for n in range(2500)]
    fill(orders, "orders", *values)
    consumed(orders, "orders", max_poll_records=5000)
    letters = DeadLetters(orders)

    with pytest.raises(IllegalArgumentError, match="too scattered"):
        letters.replay("orders.dlq", Filter(error_class="JSONDecodeError"), dry_run=False)

    assert letters.replay("orders.dlq", Filter(offsets=range(300)), dry_run=False).letters == 300
