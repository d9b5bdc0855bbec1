"""Every request that the gateway offers is refused, item by item, to a user without rules."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import logging
import re
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import pytest
from kio.index import load_request_schema

from kafkalike import errors
from kafkalike.connect import connect
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.authentication import UserFile
from kafkalike.gateway.gateway_cluster import Call, GatewayCluster
from kafkalike.gateway.live_gateways import LiveGateways
from kafkalike.gateway.request_access import CODES, OPEN, REPORTED, RequestAccess
from kafkalike.model.clock import SYSTEM_CLOCK

SASL = {keys.SASL_HANDSHAKE, keys.SASL_AUTHENTICATE, keys.API_VERSIONS}
OFFERED = [
    pytest.param(key, version, id=f"{load_request_schema(key, version).__name__}-v{version}")
    for key, (low, high) in keys.VERSIONS.items()
    if key not in SASL
    for version in sorted({low, high})
]
TOPIC_ID = uuid.UUID(int=7)


def sample(schema: Any) -> Any:
    """A message with one item in each list."""
    values: dict[str, Any] = {}
    module = sys.modules[schema.__module__]
    for field in fields(schema):
        kind = str(field.type)
        inner = [
            found
            for name, found in vars(module).items()
            if hasattr(found, "__dataclass_fields__") and found is not schema and re.search(rf"\b{name}\b", kind)
        ]
        values[field.name] = value = _value(field, kind, inner)
        if "tuple" in kind and not isinstance(value, tuple):
            values[field.name] = (value,)
    return schema(**values)


def _value(field: Any, kind: str, inner: list[Any]) -> Any:
    if inner:
        return sample(inner[0])
    named = {"string": "name", "bool": False, "uuid": TOPIC_ID, "bytes": b"", "records": b""}
    wire = field.metadata.get("kafka_type")
    if field.name == "resource_type":
        return 2
    if field.name == "acks":
        return -1
    if wire in {"timedelta_i32", "timedelta_i64"}:
        return dt.timedelta(milliseconds=5)
    return named.get(wire, 3)


@pytest.fixture(scope="module")
def guarded_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayCluster, UserFile]]:
    root = tmp_path_factory.mktemp("access")
    cluster = connect(str(root / "cluster"))
    cluster.create_topic("name", 1, {})
    users = UserFile(root / "users.toml")
    users.add("nobody", "password", [])
    users.add("root", "password", ["admin"])
    users.add("reader", "password", ["read topic name"])
    cluster.create_topic("hidden", 1, {})
    home = GatewayCluster(cluster, LiveGateways(cluster, ("127.0.0.1", 1), SYSTEM_CLOCK), SYSTEM_CLOCK)
    yield home, users
    home.close()


@pytest.fixture
def access(guarded_home: tuple[GatewayCluster, UserFile]) -> RequestAccess:
    """Rules that have refused nobody yet."""
    return RequestAccess(*guarded_home)


def answered(access: RequestAccess, key: int, version: int, principal: str) -> tuple[bool, Any]:
    """Whether the handler was called, and the answer."""
    called = []

    async def handler(call: Call) -> Mapping[str, Any]:
        called.append(call)
        return {"topics": [{"name": "name"}], "groups": [], "transaction_states": []}

    call = Call(version, sample(load_request_schema(key, version)), "client", "host", principal)
    reply = asyncio.run(_run(access.guarded({key: handler})[key], call))
    return bool(called), reply


async def _run(handler: Any, call: Call) -> Any:
    return await handler(call)


def codes(answer: Any) -> list[int]:
    """All codes in an answer."""
    if isinstance(answer, Mapping):
        own = [value for name, value in answer.items() if name.endswith("error_code")]
        return own + [code for value in answer.values() for code in codes(value)]
    return [code for one in answer for code in codes(one)] if isinstance(answer, list) else []


@pytest.mark.parametrize(("key", "version"), OFFERED)
def test_user_without_rules_is_refused_in_the_form_of_the_version(
    access: RequestAccess, key: int, version: int
) -> None:
    called, reply = answered(access, key, version, "nobody")
    frame = keys.MessageFormat.of(key, version).answer(1, reply)

    assert called == (key in OPEN)
    assert len(frame) > 4
    if key not in OPEN:
        # A topic that only an unknown id names is reported as unknown.
        assert set(codes(reply)) <= {*CODES.values(), 31, 100}
        assert codes(reply)


@pytest.mark.parametrize(("key", "version"), OFFERED)
def test_administrator_passes(access: RequestAccess, key: int, version: int) -> None:
    assert answered(access, key, version, "root")[0]


@pytest.mark.parametrize(
    ("key", "lacks"),
    [
        pytest.param(keys.LIST_OFFSETS, "lacks the rule 'read topic name'", id="topic"),
        pytest.param(keys.HEARTBEAT, "lacks the rule 'use group name'", id="group"),
        pytest.param(keys.METADATA, "has no rule for topic 'name'", id="hidden-topic"),
        pytest.param(keys.DESCRIBE_ACLS, "lacks the rule 'admin'", id="cluster"),
    ],
)
def test_refusal_logs_the_missing_rule_once(
    access: RequestAccess, caplog: pytest.LogCaptureFixture, key: int, lacks: str
) -> None:
    user = f"mallory-{key}"
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            answered(access, key, keys.VERSIONS[key][0], user)

    assert [record.getMessage() for record in caplog.records] == [f"gateway: host: user '{user}' {lacks}"]


def test_refusals_of_a_thousand_names_log_no_more(access: RequestAccess, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for number in range(REPORTED + 5):
            answered(access, keys.HEARTBEAT, keys.VERSIONS[keys.HEARTBEAT][0], f"probe-{number}")

    assert len(caplog.records) <= REPORTED


def test_stranger_has_no_rules(access: RequestAccess) -> None:
    assert not answered(access, keys.CREATE_TOPICS, 7, "stranger")[0]


def test_lists_without_a_rule_are_empty(access: RequestAccess) -> None:
    assert answered(access, keys.METADATA, 1, "nobody")[1]["topics"] == [
        {"error_code": 29, "name": "name", "topic_id": None}
    ]


def test_description_of_all_topics_has_those_that_the_user_may_read(access: RequestAccess) -> None:
    schema: Any = load_request_schema(keys.DESCRIBE_TOPIC_PARTITIONS, 0)
    body = schema(topics=(), response_partition_limit=10, cursor=None)
    seen: list[list[str]] = []

    async def described(call: Call) -> Mapping[str, Any]:
        seen.append([topic.name for topic in call.body.topics])
        return {}

    guarded = access.guarded({keys.DESCRIBE_TOPIC_PARTITIONS: described})[keys.DESCRIBE_TOPIC_PARTITIONS]

    async def both() -> list[Any]:
        return [await guarded(Call(0, body, "", "", name)) for name in ("nobody", "reader")]

    answers = asyncio.run(both())

    assert answers == [{"topics": ()}, {}]
    assert seen == [["name"]]


def test_request_with_a_forbidden_topic_gets_the_others_answered(access: RequestAccess) -> None:
    schema: Any = load_request_schema(keys.LIST_OFFSETS, 10)
    one = sample(schema)
    hidden = dataclasses.replace(one.topics[0], name="hidden")
    body = dataclasses.replace(one, topics=(hidden, *one.topics))
    seen: list[list[str]] = []

    async def listed(call: Call) -> Mapping[str, Any]:
        seen.append([topic.name for topic in call.body.topics])
        return {"topics": [{"name": "name", "partitions": []}]}

    guarded = access.guarded({keys.LIST_OFFSETS: listed})[keys.LIST_OFFSETS]
    reply = asyncio.run(_run(guarded, Call(10, body, "", "", "reader")))

    assert seen == [["name"]]
    assert [topic["name"] for topic in reply["topics"]] == ["name", "hidden"]
    assert codes(reply) == [29]


def test_fetch_of_a_forbidden_topic_waits_for_the_others_beside(access: RequestAccess) -> None:
    """A long poll is a task, so that the next request of the connection is read."""
    schema: Any = load_request_schema(keys.FETCH, 12)
    one = sample(schema)
    body = dataclasses.replace(one, topics=(dataclasses.replace(one.topics[0], topic="hidden"), *one.topics))

    async def answers() -> Mapping[str, Any]:
        async def later() -> Mapping[str, Any]:
            return {"responses": [{"topic": "name"}], "session_id": 0}

        async def fetch(_: Call) -> Any:
            return asyncio.create_task(later())

        reply = await access.guarded({keys.FETCH: fetch})[keys.FETCH](Call(12, body, "", "", "reader"))
        assert isinstance(reply, asyncio.Task)
        answer = await reply
        assert answer is not None
        return answer

    assert [topic["topic"] for topic in asyncio.run(answers())["responses"]] == ["name", "hidden"]


def test_transaction_with_a_forbidden_topic_gets_no_partition(access: RequestAccess) -> None:
    """As in Kafka: the others are not attempted."""
    users = access._users
    users.add("writer", "password", ["write topic name", "use transactional-id *"])
    schema: Any = load_request_schema(keys.ADD_PARTITIONS_TO_TXN, 3)
    one = sample(schema)
    topics = one.v3_and_below_topics
    body = dataclasses.replace(one, v3_and_below_topics=(*topics, dataclasses.replace(topics[0], name="hidden")))
    called = []

    async def added(call: Call) -> Mapping[str, Any]:
        called.append(call)
        return {}

    guarded = access.guarded({keys.ADD_PARTITIONS_TO_TXN: added})[keys.ADD_PARTITIONS_TO_TXN]
    reply = asyncio.run(_run(guarded, Call(3, body, "", "", "writer")))

    assert called == []
    assert codes(reply) == [55, 29]


def test_request_with_many_unknown_topics_looks_once(access: RequestAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look takes a thread's turn, so a small request would keep the gateway busy for long."""
    cluster = access._home.cluster
    look, looks = cluster.topics, list[int]()

    def counted() -> Any:
        looks.append(len(looks))
        return look()

    monkeypatch.setattr(cluster, "topics", counted)
    schema: Any = load_request_schema(keys.FETCH, 13)
    one = sample(schema)
    topics = tuple(dataclasses.replace(one.topics[0], topic_id=uuid.uuid4()) for _ in range(50))

    async def fetch(_: Call) -> Mapping[str, Any]:
        return {}

    call = Call(13, dataclasses.replace(one, topics=topics), "", "", "reader")
    reply = asyncio.run(_run(access.guarded({keys.FETCH: fetch})[keys.FETCH], call))

    assert codes(reply) == [errors.UnknownTopicIdError.errno] * 50
    assert len(looks) == 1
