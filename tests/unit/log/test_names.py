"""Names: Kafka's rule for topics, any text for groups, and the one way to write a topic's name in SQL."""

import re
import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kafkalike.errors import IllegalArgumentError, InvalidGroupIdError, InvalidTopicError
from kafkalike.model.names import check_group_id, check_topic_name, check_transactional_id
from kafkalike.model.topic_sql import (
    DERIVED,
    SQL_RESERVED,
    own_names,
    plain_name,
    sql_name,
    topic_of_sql_name,
    view_names,
)

LEGAL = string.ascii_letters + string.digits + "._-"


def told(value: object) -> str:
    """An id for a case: by one with a backslash pytest cannot pick a test, which mutmut does."""
    text = ascii(value).replace("\\", "%")
    return text if len(text) < 30 else f"{text[:9]} of {len(text)}"


topics = st.text(st.sampled_from(LEGAL), min_size=1, max_size=12).filter(
    lambda name: not name.startswith("__") and name not in {".", ".."}
)
tricky = st.lists(
    st.sampled_from(["a", "A", "_", "__", ".", "-", "d", "h", "s", "u", "v", "_d", "lag"]), min_size=1
).map("".join)


@pytest.mark.parametrize(
    "name",
    [
        *(None, 0, b"", b"orders", 1.5, True, ["orders"]),
        *("", ".", "..", "a" * 250, "a/b", "/a", "../x", "a b", "*", "+", "é", "\uff41", "a\x00", "a\n", "\n", "a\r"),
        *("`; DROP TABLE t--", "a`b", "a'b", 'a"b', "a;b", "a\\b", "a:b", "a,b", "a%20b", "a~b"),
        *("_delta_log", "__consumer_offsets", "__cluster_metadata", "__transaction_state", "__locks", "__anything"),
    ],
    ids=told,
)
def test_a_name_that_kafka_does_not_allow_is_refused(name: object) -> None:
    """Before it becomes a path or a piece of SQL."""
    with pytest.raises(InvalidTopicError):
        check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (7, "topic name must be a str, not int: 7"),
        ("", "topic name must not be empty"),
        ("..", "topic name must not be '..'"),
        ("a" * 250, f"topic name {'a' * 40 + '…'!r} has 250 characters; at most 249 are allowed"),
        (
            "a" * 248 + "!",
            f"topic name {'a' * 248 + '!'!r} has characters other than letters, digits, '.', '_' and '-'",
        ),
        ("__a", "topic name '__a' is reserved: names that begin with '__', and '_delta_log', are kafkalike's own"),
    ],
    ids=told,
)
def test_a_refusal_says_which_part_of_the_rule_is_broken(name: object, said: str) -> None:
    """A name that is too long is cut."""
    with pytest.raises(InvalidTopicError) as refused:
        check_topic_name(name)

    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["a", "a" * 249, "a.b", "A_b", "...", "-", "_", "_a", "CON", "0", "delta_log", "a__b"])
def test_a_name_that_kafka_allows_is_taken(name: str) -> None:
    """As it is."""
    assert check_topic_name(name) == name


@pytest.mark.parametrize("group", [None, 0, b"g", "", ["g"]], ids=told)
def test_a_group_needs_a_text(group: object) -> None:
    """That is not empty."""
    with pytest.raises(InvalidGroupIdError) as refused:
        check_group_id(group)

    assert f"group_id must be a str that is not empty, not {group!r}" in str(refused.value)


@pytest.mark.parametrize("group", ["g", "'; DROP TABLE t --", "é漢😀", "a\nb", " ", "x" * 100_000], ids=told)
def test_a_group_may_have_any_name(group: str) -> None:
    """It is data, never a path or SQL."""
    assert check_group_id(group) == group


def test_a_name_with_half_a_sign_cannot_be_stored() -> None:
    """It has no bytes."""
    with pytest.raises(InvalidGroupIdError, match="half of a surrogate pair"):
        check_group_id("g\ud800")
    with pytest.raises(IllegalArgumentError, match="transactional_id must be non-empty valid text"):
        check_transactional_id("x\ud800")


@pytest.mark.parametrize("given", [None, 0, b"x", ""])
def test_a_transactional_id_is_a_text(given: object) -> None:
    with pytest.raises(IllegalArgumentError, match="transactional_id must be non-empty valid text"):
        check_transactional_id(given)
    assert check_transactional_id("é 1") == "é 1"


@given(topic=topics | tricky)
def test_a_sql_name_tells_the_topic(topic: str) -> None:
    """There and back, in lower-case letters, digits and underscores, and never the name of another view."""
    name = sql_name(topic)

    assert topic_of_sql_name(name) == topic
    assert re.fullmatch(r"[a-z0-9_]+", name)
    assert name not in SQL_RESERVED


@given(one=tricky, two=tricky)
def test_two_topics_never_share_a_sql_name(one: str, two: str) -> None:
    """Not even in a catalog that folds case."""
    assert (sql_name(one) == sql_name(two)) == (one == two)


@given(name=st.from_regex(r"[a-z0-9]+(_[a-z0-9]+)*", fullmatch=True).filter(lambda n: n not in SQL_RESERVED))
def test_plain_names_stay_as_they_are(name: str) -> None:
    """`orders_2024` is `orders_2024`."""
    assert sql_name(name) == name


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        *(
            ("a.b", "a__db"),
            ("a_b", "a_b"),
            ("A_b", "__ua_b"),
            ("a-b", "a__hb"),
            ("kafkalike_lag", "__vkafkalike_lag"),
            ("lag", "lag"),
        ),
        *(("a_B", "a__s__ub"), ("a_", "a__s"), ("a__1", "a__s_1")),
    ],
)
def test_sql_names_are_these(topic: str, name: str) -> None:
    """Queries in people's files rest on them."""
    assert sql_name(topic) == name
    assert topic_of_sql_name(name) == topic


def test_a_topic_has_a_view_under_its_own_name_where_sql_tells_it_from_all_others() -> None:
    assert own_names(["a.b", "A.B", "orders", "c-d", "Lag", "X"]) == {"c-d"}
    assert own_names([]) == set()


CLASHING = st.sampled_from(
    [
        "a.b",
        "a_b",
        "a-b",
        "A_b",
        "a__db",
        "__va_b",
        "kafkalike_lag",
        "kafkalike.admin.lag",
        "lag",
        "x",
        "x__text",
        "x.-values",
    ]
)


@given(st.sets(CLASHING | tricky), st.sets(CLASHING | tricky))
def test_view_names_are_unique_and_keep_what_exists(first: set[str], later: set[str]) -> None:
    """Whatever topics come and go between two registrations."""
    before = view_names(first)
    after = view_names(later, {view: topic for topic, view in before.items()})

    assert after.keys() == later
    assert len(set(after.values())) == len(later)
    assert not set(after.values()) & set(SQL_RESERVED)
    assert not any(name.endswith(DERIVED) for name in after.values())
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in after.values())
    assert {topic: before[topic] for topic in first & later} == {topic: after[topic] for topic in first & later}


@given(topics | tricky)
def test_view_name_of_a_topic_alone_is_the_one_people_guess(topic: str) -> None:
    assume(not plain_name(topic).endswith(DERIVED))

    assert view_names([topic]) == {topic: plain_name(topic)}


@pytest.mark.parametrize(
    ("topics", "held", "expected"),
    [
        (["web.clicks"], {}, {"web.clicks": "web_clicks"}),
        (["My-Orders"], {}, {"My-Orders": "my_orders"}),
        (["a.b", "a_b"], {}, {"a_b": "a_b", "a.b": "a__db"}),
        (["a.b", "a-b"], {}, {"a-b": "a_b", "a.b": "a__db"}),
        (["a.b", "a_b"], {"a_b": "a.b"}, {"a.b": "a_b", "a_b": "__va_b"}),
        (["a_b"], {"a_b": "a.b"}, {"a_b": "a_b"}),
        (["lag", "kafkalike_lag"], {}, {"lag": "lag", "kafkalike_lag": "__vkafkalike_lag"}),
        (["x", "x__text"], {}, {"x": "x", "x__text": "x__s_text"}),
    ],
    ids=[
        "dot",
        "case and hyphen",
        "own name first",
        "first by name",
        "held",
        "held by a topic that is gone",
        "reserved",
        "like a view with text",
    ],
)
def test_view_names_are_these(topics: list[str], held: dict[str, str], expected: dict[str, str]) -> None:
    assert view_names(topics, held) == expected
