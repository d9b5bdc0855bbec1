"""Rules of the gateway's users: what they allow, and which texts are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import KafkaConfigurationError
from kafkalike.gateway.access_rules import OPERATIONS, AccessKind, AccessOperation, AccessRules

READ, WRITE = AccessOperation.READ, AccessOperation.WRITE
MANAGE, USE = AccessOperation.MANAGE, AccessOperation.USE
TOPIC, GROUP, ID = AccessKind.TOPIC, AccessKind.GROUP, AccessKind.TRANSACTIONAL_ID


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ("read topic orders", (READ, TOPIC, "orders")),
        ("read topic orders*", (READ, TOPIC, "orders")),
        ("read topic orders*", (READ, TOPIC, "orders-eu")),
        ("write topic *", (WRITE, TOPIC, "any")),
        ("manage topic a.b", (MANAGE, TOPIC, "a.b")),
        ("use group app-*", (USE, GROUP, "app-1")),
        ("manage group g", (MANAGE, GROUP, "g")),
        ("use transactional-id pay*", (USE, ID, "pay-1")),
        ("admin", (MANAGE, TOPIC, "any")),
    ],
)
def test_rule_allows(rule: str, allowed: tuple[AccessOperation, AccessKind, str]) -> None:
    assert AccessRules.parse([rule]).allow(*allowed)


@pytest.mark.parametrize(
    ("rule", "refused"),
    [
        ("read topic orders", (READ, TOPIC, "orders-eu")),
        ("read topic orders*", (READ, TOPIC, "order")),
        ("read topic orders", (WRITE, TOPIC, "orders")),
        ("use group orders", (READ, TOPIC, "orders")),
        ("read topic a.b", (READ, TOPIC, "axb")),
    ],
)
def test_rule_does_not_allow(rule: str, refused: tuple[AccessOperation, AccessKind, str]) -> None:
    assert not AccessRules.parse([rule]).allow(*refused)


def test_any_rule_about_a_resource_shows_it_and_rules_about_others_do_not() -> None:
    rules = AccessRules.parse(["write topic orders", "use group app"])

    assert [rules.show(TOPIC, name) for name in ("orders", "app")] == [True, False]
    assert [rules.show(GROUP, name) for name in ("orders", "app")] == [False, True]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "read",
        "read topic",
        "read topic a b",
        "reed topic a",
        "read table a",
        "use topic a",
        "read group g",
        "write transactional-id t",
        "read topic a*b",
        "read topic **",
        "ADMIN",
    ],
)
def test_other_text_is_not_a_rule(text: str) -> None:
    with pytest.raises(KafkaConfigurationError, match="is not a rule; rules are admin; "):
        AccessRules.parse(["admin", text])


@given(
    st.lists(
        st.sampled_from([f"{op} {kind} {p}" for kind, ops in OPERATIONS.items() for op in ops for p in ("a", "ab*")])
    ),
    st.sampled_from(list(AccessOperation)),
    st.sampled_from(list(AccessKind)),
    st.sampled_from(["a", "ab", "abc", "b"]),
)
def test_what_is_allowed_is_shown_and_more_rules_allow_more(
    lines: list[str], operation: AccessOperation, kind: AccessKind, name: str
) -> None:
    allowed = AccessRules.parse(lines).allow(operation, kind, name)
    assert AccessRules.parse([*lines, "admin"]).allow(operation, kind, name)
    assert not AccessRules.parse([]).allow(operation, kind, name)
    if allowed:
        assert AccessRules.parse(lines).show(kind, name)
        assert AccessRules.parse([*lines, "read topic z"]).allow(operation, kind, name)
