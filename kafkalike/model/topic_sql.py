"""SQL over topics: the names of their views, and the check that a statement only reads them.

A statement is rejected unless every part of it is known to be harmless: plan nodes by their names, relations that are
views of the cluster (Spark would read `` text.`/etc/passwd` `` as a file), and no functions that call Java methods or
open files.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from kafkalike.model.config.properties import nearest

_PLAIN: Final = re.compile(r"\w+")

TABLES: Final = (
    "topics",
    "partitions",
    "consumer_offsets",
    "lag",
    "lag_history",
    "share_groups",
    "share_state",
    "transactions",
    "brokers",
    "replicas",
    "stream_progress",
)
"""Tables about the cluster itself."""

PROGRESS_TOPIC: Final = "stream_progress"
"""Topic with the progress of streaming queries, which the table of that name shows."""


def table_view(table: str) -> str:
    """Return the view name of a table of `TABLES`; its prefix avoids a clash with the session's own tables."""
    return f"kafkalike_{table}"


SQL_RESERVED: Final = tuple(map(table_view, TABLES))
"""Views of the cluster itself; a topic with such a name gets another view name."""


def view_names(topics: Iterable[str], held: Mapping[str, str] | None = None) -> dict[str, str]:
    """Name the view of each topic: the topic in lower case, with `_` for dots and hyphens.

    If several topics would share a name, as `a.b` and `a_b`, the topic that already has it keeps it; otherwise the
    topic of exactly that name gets it, otherwise the first by name. The names of the others are spelled out, see
    `sql_name`, and so are names with the ending of a `DERIVED` view.

    Args:
        topics: all topics of the cluster.
        held: topics by the names of existing views. A view keeps its topic, so a new topic never takes over a name.

    Returns:
        The name of each topic's view. All differ, and none is in `SQL_RESERVED`.

    >>> view_names(["web.clicks", "a_b", "a.b", "Orders"])
    {'a_b': 'a_b', 'Orders': 'orders', 'a.b': 'a__db', 'web.clicks': 'web_clicks'}
    """
    wanted = set(topics)
    names = {topic: view for view, topic in (held or {}).items() if topic in wanted}
    taken = {*SQL_RESERVED, *names.values()}
    for topic in sorted(wanted - names.keys(), key=lambda topic: (plain_name(topic) != topic, topic)):
        names[topic] = next(name for name in _candidates(topic) if name not in taken)
        taken.add(names[topic])
    return names


TEXT: Final = "__text"
VALUES: Final = "__values"
LATEST: Final = "__latest"
DERIVED: Final = (TEXT, VALUES, LATEST)
"""Ends of the names of views that are derived from a topic's view: with text columns, and of `create_view`."""


def plain_name(topic: str) -> str:
    """Return the name that users expect; two topics may share it."""
    return topic.replace(".", "_").replace("-", "_").lower()


def _candidates(topic: str) -> Iterator[str]:
    plain = plain_name(topic)
    if not plain.endswith(DERIVED):
        yield plain
    name = sql_name(topic)
    while True:
        yield name
        name = "__v" + name


def sql_name(topic: str) -> str:
    """Spell a topic's name in lower-case letters, digits and underscores, so that no two topics share a name.

    SQL catalogs fold case and reject dots, so `a.b`, `a_b` and `A_b` need three names. Lower-case letters, digits, and
    single underscores before a letter or digit stay as they are. Everything else is escaped with two underscores and a
    letter: `.` is `__d`, `-` is `__h`, another underscore `__s`, an upper-case letter `__u` and its lower-case form. A
    name of `SQL_RESERVED` gets the prefix `__v`. `topic_of_sql_name` is the inverse.
    """
    out: list[str] = []
    for at, char in enumerate(topic):
        following = topic[at + 1] if at + 1 < len(topic) else ""
        if char == ".":
            out.append("__d")
        elif char == "-":
            out.append("__h")
        elif char == "_":
            out.append("_" if _plain(following) else "__s")
        elif char.isupper():
            out.append("__u" + char.lower())
        else:
            out.append(char)
    name = "".join(out)
    return "__v" + name if name in SQL_RESERVED else name


def own_names(topics: Iterable[str]) -> set[str]:
    """Return the topics that can have a second view under their own name, in backquotes, without a clash of names.

    >>> sorted(own_names(["a.b", "A.B", "orders", "c-d", "Lag"]))
    ['c-d']
    """
    named = [topic for topic in topics if not _PLAIN.fullmatch(topic)]
    taken = Counter(map(str.lower, named))
    return {topic for topic in named if taken[topic.lower()] == 1}


def topic_of_sql_name(name: str) -> str:
    """Return the topic whose view has this name; the inverse of `sql_name`."""
    out: list[str] = []
    at = 0
    while at < len(name):
        if name.startswith("__", at):
            code = name[at + 2]
            if code == "u":
                out.append(name[at + 3].upper())
                at += 4
                continue
            out.append({"d": ".", "h": "-", "s": "_", "v": ""}[code])
            at += 3
        else:
            out.append(name[at])
            at += 1
    return "".join(out)


def _plain(char: str) -> bool:
    return char.isdigit() or (char.isalpha() and char.islower())


_PLANS: Final = "org.apache.spark.sql.catalyst.plans.logical."
_EXPRESSIONS: Final = "org.apache.spark.sql.catalyst.expressions."
_ANALYSIS: Final = "org.apache.spark.sql.catalyst.analysis."

PARTS: Final = frozenset({
    *(_PLANS + name for name in (
        "Aggregate", "Distinct", "Except", "Filter", "Generate", "GlobalLimit", "Intersect", "Join", "LateralJoin",
        "LocalLimit", "LocalRelation", "Offset", "OneRowRelation", "Pivot", "Project", "Range", "Sample", "Sort",
        "SubqueryAlias", "Union", "UnresolvedWith", "Window",
    )),
    *(_ANALYSIS + name for name in (
        "MultiAlias", "NamedParameter", "NamedArgumentExpression", "UnresolvedAlias", "UnresolvedAttribute",
        "UnresolvedExtractValue", "UnresolvedFunction", "UnresolvedGenerator", "UnresolvedHaving",
        "UnresolvedInlineTable", "UnresolvedOrdinal", "UnresolvedRegex", "UnresolvedRelation", "UnresolvedStar",
        "UnresolvedSubqueryColumnAliases", "UnresolvedTVFAliases",
        "UnresolvedTableValuedFunction",
    )),
})  # fmt: skip
"""Plan nodes that a statement may have, besides expressions.

Nodes whose expressions the plan's JSON omits are excluded: windows with names, UNPIVOT, `* EXCEPT … REPLACE`.
"""

REFUSED_WORDS: Final = re.compile(
    r"\b(?:reflect|try_reflect|java_method|xpath\w*|(?:from|schema_of)_xml|(?:from|to|schema_of)_(?:avro|protobuf))\b",
    re.IGNORECASE,
)
"""Functions that call Java methods, or open files or addresses named in their arguments: the DTD of a document, an XSD,
a schema. They are rejected anywhere in the text, because no alias leads to them."""

REFUSED_EXPRESSIONS: Final = frozenset({"CallMethodViaReflection", "TryReflect"})

TABLE_FUNCTIONS: Final = frozenset({
    "explode", "explode_outer", "inline", "inline_outer", "json_tuple", "kafkalike_key", "kafkalike_offsets",
    "kafkalike_range", "posexplode", "posexplode_outer", "range", "stack", "variant_explode", "variant_explode_outer",
})  # fmt: skip
"""Functions allowed in place of a table."""


LISTING: Final = re.compile(r"\s*SHOW\s+(?:TABLES|VIEWS)\s*", re.IGNORECASE)
"""The statement that lists the views of the cluster. Spark's own answer would have only views that were used before."""

DESCRIBING: Final = re.compile(
    r"\s*(?:DESC(?:RIBE)?(?:\s+TABLE)?|SHOW\s+COLUMNS\s+(?:FROM|IN))\s+(\S+)\s*", re.IGNORECASE
)
"""The statement that lists the columns of a view, which it names last."""


def refusal(text: str, plan: str, views: Collection[str]) -> str:
    """Return the reason to reject a statement; empty if it only reads.

    Args:
        text: the statement.
        plan: its plan from Spark's parser, as JSON.
        views: names allowed in place of a table, lower case.
    """
    if REFUSED_WORDS.search(text):
        return "functions that call Java methods, read XML or take a schema's file are not allowed"
    known = {name.lower() for name in views} | {name.lower() for name in own_tables(plan)}
    for node in _nodes(json.loads(plan)):
        why = _refused(node, known)
        if why:
            return why
    return ""


def own_tables(plan: str) -> set[str]:
    """Return the names that the statement defines with WITH."""
    return {
        str(one["_1"])
        for node in _nodes(json.loads(plan))
        if node["class"] == _PLANS + "UnresolvedWith"
        for one in node.get("cteRelations") or ()
    }


def relations(plan: str) -> set[str]:
    """Return the names in place of a table, and the topics that table functions get as a literal."""
    found = set()
    for node in _nodes(json.loads(plan)):
        if node["class"] == _ANALYSIS + "UnresolvedRelation":
            found.add(_name(node.get("multipartIdentifier")))
        elif node["class"] == _EXPRESSIONS + "Literal" and isinstance(node.get("value"), str):
            found.add(node["value"])
    return found


def _refused(node: Mapping[str, Any], known: Collection[str]) -> str:
    kind = str(node["class"])
    short = kind.rpartition(".")[2]
    if kind.startswith(_EXPRESSIONS) and short not in REFUSED_EXPRESSIONS:
        return ""
    if kind not in PARTS:
        return f"only SELECT, a plain SHOW TABLES and DESCRIBE with a view's name are allowed here, not {short}"
    if short == "UnresolvedRelation":
        return _refused_relation(node, known)
    if short == "UnresolvedFunction" and "," in str(node.get("nameParts")):
        return f"{_name(node.get('nameParts'))[:80]!r} is not a function of Spark"
    if short == "UnresolvedTableValuedFunction" and _name(node.get("name")).lower() not in TABLE_FUNCTIONS:
        return f"{_name(node.get('name'))[:80]!r} is not allowed as a table here"
    return ""


def _refused_relation(node: Mapping[str, Any], known: Collection[str]) -> str:
    name = _name(node.get("multipartIdentifier"))
    # Spark's JSON separates parts by commas, so a name with a comma looks like several parts.
    if "," in name:
        return f"{name[:80]!r} has several parts or a comma; only views of this cluster can be read here"
    if node.get("isStreaming") or name.lower() not in known:
        return (
            f"{name[:80]!r} is not a view of this cluster{nearest(name.lower(), known) or ';'} SHOW TABLES lists them"
        )
    return ""


def _name(parts: object) -> str:
    """Return a name from Spark's JSON, which puts its parts in brackets with commas between."""
    return str(parts).removeprefix("[").removesuffix("]")


def _nodes(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield all nodes of a plan, including those in their fields."""
    if isinstance(value, Mapping):
        if "class" in value:
            yield value
        for part in value.values():
            yield from _nodes(part)
    elif isinstance(value, list):
        for part in value:
            yield from _nodes(part)
