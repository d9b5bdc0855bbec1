"""What a parsed statement is made of: what is not known to be harmless is refused."""

import json

import pytest

from kafkalike.model.topic_sql import own_tables, refusal, relations

LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."
EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
ANALYSIS = "org.apache.spark.sql.catalyst.analysis."


def relation(name: str, **more: object) -> dict[str, object]:
    return {"class": ANALYSIS + "UnresolvedRelation", "multipartIdentifier": f"[{name}]", "isStreaming": False, **more}


def plan(*nodes: object) -> str:
    return json.dumps([{"class": LOGICAL + "Project", "projectList": [list(nodes)]}])


def test_a_view_of_the_cluster_is_read() -> None:
    assert refusal("SELECT 1", plan(relation("Orders")), {"orders"}) == ""
    assert relations(plan(relation("orders"))) == {"orders"}


def test_relation_that_is_no_view_is_rejected() -> None:
    known = {"orders", "text", "a"}
    other, close = (refusal("SELECT 1", plan(relation(name)), known) for name in ("nowhere", "Ordrs"))

    assert other == "'nowhere' is not a view of this cluster; SHOW TABLES lists them"
    assert close == "'Ordrs' is not a view of this cluster; did you mean 'orders'? SHOW TABLES lists them"


@pytest.mark.parametrize("name", ["text, /etc/passwd", "default, orders", "a, b", "text, a, b"])
def test_relation_of_several_parts_is_rejected_whatever_with_names(name: str) -> None:
    named = {"class": LOGICAL + "UnresolvedWith", "cteRelations": [{"_1": name, "_2": []}]}

    assert "several parts" in refusal("SELECT 1", plan(named, relation(name)), {"orders", "text", "a", name})


def test_a_stream_is_refused() -> None:
    assert refusal("SELECT 1", plan(relation("orders", isStreaming=True)), {"orders"})


@pytest.mark.parametrize("kind", [LOGICAL + "InsertIntoStatement", ANALYSIS + "PlanWithUnresolvedIdentifier", "a.B"])
def test_parts_that_are_not_known_are_refused_however_deep(kind: str) -> None:
    deep = {"class": LOGICAL + "Filter", "condition": {"_1": [[{"class": kind}]]}}

    assert refusal("SELECT 1", plan(deep), set())


@pytest.mark.parametrize("text", ["SELECT reflect('a')", "SELECT `Java_Method`(1)", "SELECT try_reflect('x')"])
def test_functions_that_call_java_are_refused(text: str) -> None:
    assert "Java" in refusal(text, plan(), set())


@pytest.mark.parametrize(
    "text",
    [
        "SELECT xpath(a, 'b')",
        "SELECT `XPATH_int`(a, 'b')",
        "SELECT from_xml(a, 'b')",
        "SELECT schema_of_xml(a)",
        "SELECT from_avro(a, 'b')",
        "SELECT to_avro(a)",
        "SELECT schema_of_avro(a)",
        "SELECT FROM_PROTOBUF(a, 'b', 'c')",
        "SELECT to_protobuf(a, 'b', 'c')",
    ],
)
def test_functions_that_open_what_an_argument_names_are_refused(text: str) -> None:
    assert "read XML" in refusal(text, plan(), set())


def test_names_that_a_statement_gives_itself_are_known() -> None:
    named = {"class": LOGICAL + "UnresolvedWith", "cteRelations": [{"_1": "mine", "_2": [relation("orders")]}]}

    assert own_tables(plan(named)) == {"mine"}
    assert refusal("SELECT 1", plan(named, relation("mine")), {"orders"}) == ""


@pytest.mark.parametrize(("name", "refused"), [("kafkalike_range", False), ("read_files", True), ("a, range", True)])
def test_table_functions_are_those_that_are_known(name: str, *, refused: bool) -> None:
    function = {"class": ANALYSIS + "UnresolvedTableValuedFunction", "name": f"[{name}]"}

    assert bool(refusal("SELECT 1", plan(function), set())) == refused


def test_a_function_of_a_catalog_is_refused() -> None:
    function = {"class": ANALYSIS + "UnresolvedFunction", "nameParts": "[default, f]"}

    assert "is not a function of Spark" in refusal("SELECT 1", plan(function), set())
    assert refusal("SELECT 1", plan({**function, "nameParts": "[max]"}), set()) == ""


def test_topics_that_functions_are_given_are_named() -> None:
    """So that they are made views: `kafkalike_range('orders', …)`."""
    literals = [
        {"class": "org.apache.spark.sql.catalyst.expressions.Literal", "value": value} for value in ("orders", None)
    ]

    assert relations(plan(*literals)) == {"orders"}


def test_expressions_are_read_whatever_they_are_but_those_that_call_java() -> None:
    inside = {"class": LOGICAL + "Filter", "condition": [{"class": EXPRESSIONS + "Add"}, {"class": EXPRESSIONS + "X"}]}
    hidden = {"class": EXPRESSIONS + "CallMethodViaReflection"}

    assert refusal("SELECT 1", plan(inside), set()) == ""
    why = refusal("SELECT 1", plan(inside, hidden), set())
    assert why.startswith("only SELECT, a plain SHOW TABLES and DESCRIBE with a view's name are allowed here, not Call")


def test_a_function_of_a_catalogue_is_none_of_sparks() -> None:
    named = {"class": ANALYSIS + "UnresolvedFunction", "nameParts": "[main, sneaky]"}

    assert refusal("SELECT 1", plan(named), set()) == "'main, sneaky' is not a function of Spark"
    assert refusal("SELECT 1", plan({**named, "nameParts": "[upper]"}), set()) == ""


def test_a_topic_that_a_table_function_is_given_as_a_text_is_named() -> None:
    literal = {"class": EXPRESSIONS + "Literal", "value": "orders"}
    number = {"class": EXPRESSIONS + "Literal", "value": 5}

    assert relations(plan(literal, number)) == {"orders"}
