"""Subscriptions and assignments are the bytes that Kafka's consumers read and write."""

from __future__ import annotations

import random

import pytest

from kafkalike.errors import InvalidRequestError
from kafkalike.model.groups.consumer_protocol import (
    MAX_BYTES,
    MemberSubscription,
    assignment_bytes,
    parse_subscription,
    subscription_bytes,
)
from kafkalike.model.structs import TopicPartition
from tests.tools.effort import examples

OWNED = frozenset({TopicPartition("a", 0), TopicPartition("a", 2)})


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"\0\0\0\0\0\2\0\1b\0\1a\xff\xff\xff\xff", MemberSubscription(("a", "b")), id="version-0"),
        pytest.param(
            b"\0\1\0\0\0\1\0\1a\0\0\0\2xy\0\0\0\1\0\1a\0\0\0\2\0\0\0\0\0\0\0\2",
            MemberSubscription(("a",), OWNED),
            id="version-1-with-owned-partitions",
        ),
        pytest.param(
            b"\0\3\0\0\0\1\0\1a\xff\xff\xff\xff\0\0\0\0\0\0\0\7\0\4rack",
            MemberSubscription(("a",)),
            id="version-3-with-generation-and-rack",
        ),
    ],
)
def test_subscription_is_parsed(data: bytes, expected: MemberSubscription) -> None:
    assert parse_subscription(data) == expected


def test_subscription_that_was_written_is_parsed() -> None:
    assert parse_subscription(subscription_bytes(["b", "ä"], OWNED)) == MemberSubscription(("b", "ä"), OWNED)


def test_assignment_lists_partitions_by_topic() -> None:
    expected = b"\0\1\0\0\0\1\0\1a\0\0\0\2\0\0\0\0\0\0\0\2\xff\xff\xff\xff"
    assert assignment_bytes(OWNED) == expected


def test_damaged_subscription_gives_only_the_named_error() -> None:
    chance = random.Random(3)
    good = subscription_bytes(["topic", "other"], OWNED)
    refused = 0
    for _ in range(examples(20_000, 500)):
        body = bytearray(good)
        for _ in range(chance.choice([1, 3])):
            body[chance.randrange(len(body))] = chance.choice([0, 0x7F, 0xFF, chance.randrange(256)])
        try:
            parse_subscription(bytes(body[: chance.randrange(len(body) + 1)]))
        except InvalidRequestError:
            refused += 1
    assert refused > 0


def test_subscription_beyond_the_limit_is_rejected_by_its_size() -> None:
    data = subscription_bytes(["t"])

    assert parse_subscription(data.ljust(MAX_BYTES, b"\0")) == MemberSubscription(("t",))
    with pytest.raises(InvalidRequestError, match=f"has {MAX_BYTES + 1} bytes; {MAX_BYTES} are allowed"):
        parse_subscription(data.ljust(MAX_BYTES + 1, b"\0"))
