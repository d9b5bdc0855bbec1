"""User requests: describe the users of the gateway, and their rules as ACLs, to administrators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkalike.errors import ResourceNotFoundError
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.access_rules import AccessKind, AccessOperation
from kafkalike.gateway.api_versions import Answer
from kafkalike.gateway.error_codes import NONE, Outcome, attempt
from kafkalike.gateway.gateway_cluster import Call, GatewayCluster, Handler

if TYPE_CHECKING:
    from kafkalike.gateway.authentication import GatewayUser, UserFile

MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Kafka's numbers of the mechanisms."""

ANY: Final = 1
"""Kafka's number, in a filter, for any resource type, pattern type, operation or permission."""

MATCH: Final = 2
"""Kafka's number, in a filter, for every pattern that covers a name."""

LITERAL: Final = 3
PREFIXED: Final = 4

ALLOW: Final = 3

CLUSTER: Final = (4, "kafka-cluster", LITERAL, 2)
"""Type, name, pattern type and operation ("all") for the rule `admin`."""

RESOURCE_TYPES: Final = {AccessKind.TOPIC: 2, AccessKind.GROUP: 3, AccessKind.TRANSACTIONAL_ID: 5}

OPERATIONS: Final = {
    (AccessOperation.READ, AccessKind.TOPIC): 3,
    (AccessOperation.WRITE, AccessKind.TOPIC): 4,
    (AccessOperation.MANAGE, AccessKind.TOPIC): 7,
    (AccessOperation.USE, AccessKind.GROUP): 3,
    (AccessOperation.MANAGE, AccessKind.GROUP): 6,
    (AccessOperation.USE, AccessKind.TRANSACTIONAL_ID): 4,
}
"""Kafka's numbers of the nearest operations: read, write, alter, delete."""

Acl = tuple[int, str, int, int]
"""Type, name and pattern type of a resource, and the operation."""


class UserRequests:
    """Answers requests about users.

    Args:
        home: the cluster.
        users: the users.
    """

    def __init__(self, home: GatewayCluster, users: UserFile) -> None:
        self._home = home
        self._users = users

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by API key."""
        return {
            keys.DESCRIBE_USER_SCRAM_CREDENTIALS: self._home.in_thread(self._credentials),
            keys.DESCRIBE_ACLS: self._home.in_thread(self._acls),
        }

    def _credentials(self, call: Call) -> Answer:
        outcome, users = attempt(self._users.users)
        known = users or {}
        asked = sorted(known) if not call.body.users else [user.name for user in call.body.users]
        return {
            "error_code": outcome.code,
            "error_message": outcome.message,
            "results": [_described(name, known.get(name)) for name in asked] if users is not None else [],
        }

    def _acls(self, call: Call) -> Answer:
        outcome, users = attempt(self._users.users)
        resources: dict[tuple[int, str, int], list[dict[str, Any]]] = {}
        for name, user in sorted((users or {}).items()):
            for acl in _acls_of(user):
                if _is_wanted(call.body, f"User:{name}", acl):
                    entry = {"principal": f"User:{name}", "host": "*", "operation": acl[3], "permission_type": ALLOW}
                    resources.setdefault(acl[:3], []).append(entry)
        return {
            "error_code": outcome.code,
            "error_message": outcome.message,
            "resources": [
                {"resource_type": kind, "resource_name": name, "pattern_type": pattern, "acls": acls}
                for (kind, name, pattern), acls in sorted(resources.items())
            ],
        }


def _described(name: str, user: GatewayUser | None) -> dict[str, Any]:
    if user is None:
        missing = Outcome.of(ResourceNotFoundError(f"user {name!r} does not exist"))
        return {"user": name, "error_code": missing.code, "error_message": missing.message}
    infos = [{"mechanism": MECHANISMS[one], "iterations": made[3]} for one, made in user.keys.items()]
    return {"user": name, "error_code": NONE, "credential_infos": infos}


def _acls_of(user: GatewayUser) -> Iterator[Acl]:
    if user.rules.admin:
        yield CLUSTER
    for rule in user.rules.rules:
        prefix = rule.pattern.endswith("*") and rule.pattern != "*"
        name = rule.pattern[:-1] if prefix else rule.pattern
        # In Kafka's ACLs, the literal name * stands for all resources.
        pattern = PREFIXED if prefix else LITERAL
        yield RESOURCE_TYPES[rule.kind], name, pattern, OPERATIONS[rule.operation, rule.kind]


def _is_wanted(body: Any, principal: str, acl: Acl) -> bool:  # noqa: ANN401 - a request of any version
    kind, name, pattern, operation = acl
    wanted = int(getattr(body, "pattern_type_filter", LITERAL))
    asked = body.resource_name_filter
    covers = asked == name or (
        wanted == MATCH and asked is not None and (name == "*" or (pattern == PREFIXED and asked.startswith(name)))
    )
    return (
        int(body.resource_type_filter) in {ANY, kind}
        and (wanted in {ANY, MATCH} or wanted == pattern)
        and (asked is None or covers)
        and body.principal_filter in {None, principal}
        and body.host_filter in {None, "*"}
        and int(body.operation) in {ANY, operation}
        and int(body.permission_type) in {ANY, ALLOW}
    )
