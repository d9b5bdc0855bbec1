"""Request access: the permissions that a request needs, and the answer to a user who lacks one.

Each item of a request is handled or refused alone, as in Kafka. Lists of topics, groups and transactional ids are
shortened to what the user may see.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from kafkalike import errors
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.access_rules import ADMIN, AccessKind, AccessOperation

if TYPE_CHECKING:
    from kafkalike.gateway.access_rules import AccessRules
    from kafkalike.gateway.authentication import UserFile
    from kafkalike.gateway.gateway_cluster import Call, GatewayCluster, Handler, Reply

logger = logging.getLogger(__name__)

REPORTED: Final = 1_000
"""Refusals that a gateway logs at most. Clients repeat refused requests many times a second, and may make up names."""

LINE: Final = 400
"""Characters of a logged refusal: more than the longest name of a topic, but a group's may have 32,767."""

TOPIC, GROUP, TRANSACTIONAL_ID = AccessKind.TOPIC, AccessKind.GROUP, AccessKind.TRANSACTIONAL_ID
READ, WRITE = AccessOperation.READ, AccessOperation.WRITE
MANAGE, USE = AccessOperation.MANAGE, AccessOperation.USE

CODES: Final = {
    TOPIC: errors.TopicAuthorizationFailedError.errno,
    GROUP: errors.GroupAuthorizationFailedError.errno,
    TRANSACTIONAL_ID: errors.TransactionalIdAuthorizationFailedError.errno,
}

OPEN: Final = frozenset(
    {
        keys.METADATA,
        keys.FIND_COORDINATOR,
        keys.DESCRIBE_CLUSTER,
        keys.LIST_GROUPS,
        keys.LIST_TRANSACTIONS,
    }
)
"""Requests of every user. Lists among their answers are shortened."""

TOPICS: Final = {
    keys.PRODUCE: WRITE,
    keys.FETCH: READ,
    keys.LIST_OFFSETS: READ,
    keys.OFFSET_FOR_LEADER_EPOCH: READ,
    keys.OFFSET_COMMIT: READ,
    keys.TXN_OFFSET_COMMIT: READ,
    keys.DESCRIBE_PRODUCERS: READ,
    keys.DESCRIBE_TOPIC_PARTITIONS: READ,
    keys.ADD_PARTITIONS_TO_TXN: WRITE,
    keys.CREATE_TOPICS: MANAGE,
    keys.DELETE_TOPICS: MANAGE,
    keys.DELETE_RECORDS: MANAGE,
    keys.CREATE_PARTITIONS: MANAGE,
}
"""Operation on each topic that a request names."""

SHARES: Final = frozenset({keys.SHARE_FETCH, keys.SHARE_ACKNOWLEDGE, keys.SHARE_GROUP_HEARTBEAT})
"""Requests about topics that the member may have named before; `Call.may_read` tells which ones its user may read."""

GROUPS: Final = {
    **dict.fromkeys(
        (
            keys.JOIN_GROUP,
            keys.SYNC_GROUP,
            keys.HEARTBEAT,
            keys.LEAVE_GROUP,
            keys.CONSUMER_GROUP_HEARTBEAT,
            keys.OFFSET_COMMIT,
            keys.OFFSET_FETCH,
            keys.ADD_OFFSETS_TO_TXN,
            keys.TXN_OFFSET_COMMIT,
            keys.DESCRIBE_GROUPS,
            keys.CONSUMER_GROUP_DESCRIBE,
            keys.SHARE_GROUP_HEARTBEAT,
            keys.SHARE_GROUP_DESCRIBE,
            keys.SHARE_FETCH,
            keys.SHARE_ACKNOWLEDGE,
            keys.DESCRIBE_SHARE_GROUP_OFFSETS,
        ),
        USE,
    ),
    keys.ALTER_SHARE_GROUP_OFFSETS: MANAGE,
    keys.DELETE_SHARE_GROUP_OFFSETS: MANAGE,
    keys.DELETE_GROUPS: MANAGE,
    keys.OFFSET_DELETE: MANAGE,
}
"""Operation on each group that a request names."""

GROUP_FIELDS: Final = ("group_id", "groups", "group_ids", "groups_names")

TRANSACTIONS: Final = frozenset(
    {
        keys.PRODUCE,
        keys.INIT_PRODUCER_ID,
        keys.ADD_PARTITIONS_TO_TXN,
        keys.ADD_OFFSETS_TO_TXN,
        keys.TXN_OFFSET_COMMIT,
        keys.END_TXN,
        keys.DESCRIBE_TRANSACTIONS,
    }
)
"""Requests that use the transactional id that they name, if they name one."""

ID_FIELDS: Final = ("transactional_id", "v3_and_below_transactional_id", "transactional_ids")

CONFIGS: Final = {keys.DESCRIBE_CONFIGS: READ, keys.ALTER_CONFIGS: MANAGE, keys.INCREMENTAL_ALTER_CONFIGS: MANAGE}
"""Operation on each topic whose settings a request names; settings of the cluster are for administrators."""

TOPIC_RESOURCE: Final = 2
"""Kafka's number of the resource type "topic"."""


@dataclass(frozen=True, slots=True)
class _Items:
    """Fields of an answer that list the items of a request."""

    answers: str
    asked: tuple[str, ...]
    """Fields of the request, of which a version has one."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Fields of an item of the request by fields of the answer; empty for an item that is a plain value."""
    inner: _Items | None = None
    code: str = "error_code"


def _by_partition(answers: str, asked: str, topic: str, partition: str) -> _Items:
    inner = _Items("partitions", ("partitions",), {"partition_index": partition})
    return _Items(answers, (asked,), {topic: topic, "topic_id": "topic_id"}, inner)


_RESOURCES: Final = {"resource_type": "resource_type", "resource_name": "resource_name"}

ITEMS: Final = {
    keys.PRODUCE: _Items(
        "responses",
        ("topic_data",),
        {"name": "name", "topic_id": "topic_id"},
        _Items("partition_responses", ("partition_data",), {"index": "index"}),
    ),
    keys.FETCH: _by_partition("responses", "topics", "topic", "partition"),
    keys.LIST_OFFSETS: _by_partition("topics", "topics", "name", "partition_index"),
    keys.OFFSET_COMMIT: _by_partition("topics", "topics", "name", "partition_index"),
    keys.TXN_OFFSET_COMMIT: _by_partition("topics", "topics", "name", "partition_index"),
    keys.DELETE_RECORDS: _by_partition("topics", "topics", "name", "partition_index"),
    keys.OFFSET_FOR_LEADER_EPOCH: _Items(
        "topics", ("topics",), {"topic": "topic"}, _Items("partitions", ("partitions",), {"partition": "partition"})
    ),
    keys.DESCRIBE_PRODUCERS: _Items(
        "topics", ("topics",), {"name": "name"}, _Items("partitions", ("partition_indexes",), {"partition_index": ""})
    ),
    keys.ADD_PARTITIONS_TO_TXN: _Items(
        "results_by_topic_v3_and_below",
        ("v3_and_below_topics",),
        {"name": "name"},
        _Items("results_by_partition", ("partitions",), {"partition_index": ""}, code="partition_error_code"),
    ),
    keys.DESCRIBE_TOPIC_PARTITIONS: _Items("topics", ("topics",), {"name": "name"}),
    keys.CREATE_TOPICS: _Items("topics", ("topics",), {"name": "name"}),
    keys.CREATE_PARTITIONS: _Items("results", ("topics",), {"name": "name"}),
    keys.DELETE_TOPICS: _Items("responses", ("topics", "topic_names"), {"name": "name", "topic_id": "topic_id"}),
    keys.DESCRIBE_CONFIGS: _Items("results", ("resources",), _RESOURCES),
    keys.ALTER_CONFIGS: _Items("responses", ("resources",), _RESOURCES),
    keys.INCREMENTAL_ALTER_CONFIGS: _Items("responses", ("resources",), _RESOURCES),
    keys.OFFSET_FETCH: _Items("groups", ("groups",), {"group_id": "group_id"}),
    keys.DESCRIBE_GROUPS: _Items("groups", ("groups",), {"group_id": ""}),
    keys.CONSUMER_GROUP_DESCRIBE: _Items("groups", ("group_ids",), {"group_id": ""}),
    keys.SHARE_GROUP_DESCRIBE: _Items("groups", ("group_ids",), {"group_id": ""}),
    keys.DESCRIBE_SHARE_GROUP_OFFSETS: _Items("groups", ("groups",), {"group_id": "group_id"}),
    keys.DELETE_GROUPS: _Items("results", ("groups_names",), {"group_id": ""}),
    keys.DESCRIBE_TRANSACTIONS: _Items("transaction_states", ("transactional_ids",), {"transactional_id": ""}),
}
"""Answers without a code of their own for the whole request."""


class RequestAccess:
    """Checks requests by the rules of their users.

    Args:
        home: the cluster.
        users: the users and their rules.
    """

    def __init__(self, home: GatewayCluster, users: UserFile) -> None:
        self._home = home
        self._users = users
        self._reported: set[tuple[str, str]] = set()

    def guarded(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """Return handlers that refuse requests for which a user has no rule."""
        return {key: self._guarded(key, handler) for key, handler in handlers.items()}

    def _guarded(self, key: int, handler: Handler) -> Handler:
        async def handle(call: Call) -> Reply | asyncio.Task[Reply]:
            rules = self._users.rules(call.principal)
            if rules.admin:
                return await handler(call)
            if key == keys.METADATA:
                return await self._metadata(call, handler, rules)
            if key == keys.DESCRIBE_TOPIC_PARTITIONS and not call.body.topics:
                # No topics mean all, of which the user gets the readable ones.
                topics = self._home.cluster.metadata.state.topics
                shown = [SimpleNamespace(name=name) for name in topics if rules.allow(READ, TOPIC, name)]
                if not shown:
                    return {"topics": ()}
                call = dataclasses.replace(call, body=dataclasses.replace(call.body, topics=tuple(shown)))
            items = ITEMS.get(key)
            listed = "" if items is None else next((name for name in items.asked if hasattr(call.body, name)), "")
            code = self._refusal(key, call, rules, named=not listed)
            if code:
                return _refused(key, call, code)
            if key in SHARES:
                call = dataclasses.replace(call, may_read=partial(self._may_read, call, rules))
            asked = getattr(call.body, listed, ())
            names = await self._topics(key, asked)
            codes = [self._item_code(key, call, one, rules) for one in zip(asked, names, strict=True)]
            if not any(codes):
                reply = await handler(call)
                return _shortened(key, reply, rules) if isinstance(reply, Mapping) else reply
            if key == keys.ADD_PARTITIONS_TO_TXN:
                # A transaction gets all of its partitions or none.
                codes = [code or errors.OperationNotAttemptedError.errno for code in codes]
            assert items is not None
            return await self._partly(items, listed, call, codes, handler)

        return handle

    def _report(self, call: Call, lack: str) -> None:
        """Log what a refused user lacks, because most answers have a code alone. Each lack is logged once."""
        lack = lack[:LINE]
        if (call.principal, lack) not in self._reported and len(self._reported) < REPORTED:
            self._reported.add((call.principal, lack))
            logger.warning("gateway: %s: user %r %s", call.host, call.principal, lack)

    async def _partly(
        self, items: _Items, listed: str, call: Call, codes: Sequence[int], handler: Handler
    ) -> Reply | asyncio.Task[Reply]:
        """Have the allowed items of a request handled, and add the answers of the others."""
        by_code: dict[int, list[Any]] = {}
        for item, code in zip(getattr(call.body, listed), codes, strict=True):
            by_code.setdefault(code, []).append(item)
        allowed = by_code.pop(0, [])
        refused = [
            answer
            for code, found in by_code.items()
            for answer in _refused_items(items, SimpleNamespace(**{listed: found}), code)[items.answers]
        ]
        if not allowed:
            return _answered(items, call, {}, refused)
        reply = await handler(
            dataclasses.replace(call, body=dataclasses.replace(call.body, **{listed: tuple(allowed)}))
        )
        if not isinstance(reply, asyncio.Task):
            return _answered(items, call, reply, refused)

        async def later() -> Reply:
            return _answered(items, call, await reply, refused)

        return asyncio.create_task(later())

    def _refusal(self, key: int, call: Call, rules: AccessRules, *, named: bool) -> int:
        """Return the code with which a request is refused as a whole; 0 if it is allowed.

        Args:
            key: of the request.
            call: the request.
            rules: of its user.
            named: the request concerns one group or transaction, and has no list of items.
        """
        if key not in OPEN | TOPICS.keys() | GROUPS.keys() | TRANSACTIONS | CONFIGS.keys():
            self._report(call, f"lacks the rule {ADMIN!r}")
            return errors.ClusterAuthorizationFailedError.errno
        wanted: list[tuple[AccessOperation, AccessKind, str]] = []
        if key in GROUPS and (named or key in TOPICS):
            wanted += [(GROUPS[key], GROUP, _name(item, "group_id")) for item in _named(call.body, GROUP_FIELDS)]
        if key in TRANSACTIONS and (named or key in TOPICS):
            wanted += [(USE, TRANSACTIONAL_ID, str(item)) for item in _named(call.body, ID_FIELDS)]
        return next((code for one in wanted if (code := self._code(call, rules, *one))), 0)

    def _code(self, call: Call, rules: AccessRules, operation: AccessOperation, kind: AccessKind, name: str) -> int:
        if rules.allow(operation, kind, name):
            return 0
        self._report(call, f"lacks the rule {f'{operation} {kind} {name}'!r}")
        return CODES[kind]

    def _may_read(self, call: Call, rules: AccessRules, name: str) -> bool:
        return not self._code(call, rules, READ, TOPIC, name)

    def _item_code(self, key: int, call: Call, one: tuple[Any, str | None], rules: AccessRules) -> int:
        """Return the code with which an item of a request, given with its topic, is refused; 0 if it is allowed."""
        item, name = one
        if key in CONFIGS:
            if int(item.resource_type) != TOPIC_RESOURCE:
                self._report(call, f"lacks the rule {ADMIN!r}")
                return errors.ClusterAuthorizationFailedError.errno
            wanted = CONFIGS[key], TOPIC, item.resource_name
        elif key in TOPICS:
            if name is None:
                return errors.UnknownTopicIdError.errno
            wanted = TOPICS[key], TOPIC, name
        elif key in GROUPS:
            wanted = GROUPS[key], GROUP, _name(item, "group_id")
        else:
            wanted = USE, TRANSACTIONAL_ID, str(item)
        return self._code(call, rules, *wanted)

    async def _topics(self, key: int, items: Sequence[Any]) -> Sequence[str | None]:
        """Return the topics that the items of a request name, or give the ids of; None for unknown ones."""
        if key not in TOPICS or not items:
            return [None] * len(items)
        if isinstance(items[0], str):
            return items
        # One look for all unknown ids.
        return await self._home.topic_names(items, "topic" if hasattr(items[0], "topic") else "name")

    async def _metadata(self, call: Call, handler: Handler, rules: AccessRules) -> Reply:
        """Describe the topics that a user may see; create a topic only if its user may."""
        asked, body, refused = call.body.topics, call.body, []
        if asked is not None:
            passed = []
            for item, name in zip(asked, await self._home.topic_names(asked), strict=True):
                code = self._metadata_refusal(name, call, rules)
                if code:
                    refused.append({"error_code": code, "name": name, "topic_id": getattr(item, "topic_id", None)})
                else:
                    passed.append(item)
            body = dataclasses.replace(body, topics=tuple(passed))
        reply = await handler(dataclasses.replace(call, body=body))
        assert isinstance(reply, Mapping)
        shown = [topic for topic in reply["topics"] if topic["name"] is None or rules.show(TOPIC, topic["name"])]
        return {**reply, "topics": [*shown, *refused]}

    def _metadata_refusal(self, name: str | None, call: Call, rules: AccessRules) -> int:
        if name is None:
            return errors.UnknownTopicIdError.errno
        if not rules.show(TOPIC, name):
            self._report(call, f"has no rule for topic {name!r}")
            return errors.TopicAuthorizationFailedError.errno
        known = name in self._home.cluster.metadata.state.topics
        # The request would create a missing topic.
        creates = rules.allow(WRITE, TOPIC, name) or rules.allow(MANAGE, TOPIC, name)
        return 0 if known or creates else errors.UnknownTopicOrPartitionError.errno


def _named(body: Any, fields: Sequence[str]) -> Iterable[Any]:  # noqa: ANN401 - any request
    """Return what a request names in the first of the fields that it has."""
    found = next((getattr(body, name) for name in fields if hasattr(body, name)), None)
    if found is None:
        return ()
    return (found,) if isinstance(found, str) else found


def _name(item: Any, attribute: str) -> str:  # noqa: ANN401 - an item of any request
    return item if isinstance(item, str) else str(getattr(item, attribute))


def _refused(key: int, call: Call, code: int) -> Reply:
    items = ITEMS.get(key)
    if items is not None and any(hasattr(call.body, name) for name in items.asked):
        return _answered(items, call, {}, _refused_items(items, call.body, code)[items.answers])
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}


def _answered(items: _Items, call: Call, reply: Reply, refused: Sequence[Any]) -> Reply:
    """Return an answer with the refused items added."""
    if not call.field("acks", -1):
        # As in Kafka: the client expects no answer, so only the end of the connection tells it.
        raise ConnectionAbortedError("records of a producer with acks=0 were refused")
    return {**(reply or {}), items.answers: [*(reply or {}).get(items.answers, ()), *refused]}


def _refused_items(items: _Items, source: Any, code: int) -> dict[str, Any]:  # noqa: ANN401 - any part of a request
    found = []
    for item in _named(source, items.asked):
        plain = isinstance(item, str | int)
        answer: dict[str, Any] = {
            name: item if plain else getattr(item, attribute)
            for name, attribute in items.names.items()
            if plain or hasattr(item, attribute)
        }
        if items.inner is None:
            answer[items.code] = code
        else:
            answer |= _refused_items(items.inner, item, code)
        found.append(answer)
    return {items.answers: found}


_LISTS: Final = {
    keys.LIST_GROUPS: ("groups", GROUP, "group_id"),
    keys.LIST_TRANSACTIONS: ("transaction_states", TRANSACTIONAL_ID, "transactional_id"),
}


def _shortened(key: int, reply: Mapping[str, Any], rules: AccessRules) -> Mapping[str, Any]:
    if key not in _LISTS:
        return reply
    name, kind, attribute = _LISTS[key]
    return {**reply, name: [one for one in reply[name] if rules.show(kind, str(_field(one, attribute)))]}


def _field(item: Any, name: str) -> Any:  # noqa: ANN401 - a mapping or an object
    return item[name] if isinstance(item, Mapping) else getattr(item, name)
