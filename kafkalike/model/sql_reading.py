"""SQL reading: what a parsed statement is made of in, whether it only reads topics out.

What is not known to be harmless is refused: parts of a statement by their names, relations that are no views of the
cluster (Spark would take `` text.`/etc/passwd` `` for a file), functions that call methods of Java or open files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

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
"""What a statement may be made of, beside expressions.

Left out is what keeps expressions where JSON does not show them: windows with names, UNPIVOT, `* EXCEPT … REPLACE`.
"""

REFUSED_WORDS: Final = re.compile(
    r"\b(?:reflect|try_reflect|java_method|xpath\w*|(?:from|schema_of)_xml|(?:from|to|schema_of)_(?:avro|protobuf))\b",
    re.IGNORECASE,
)
"""Functions that call methods of Java, and those that open files or addresses that their arguments name: the DTD of a
document, an XSD, a schema. Refused wherever they stand, as no other name leads to them."""

REFUSED_EXPRESSIONS: Final = frozenset({"CallMethodViaReflection", "TryReflect"})

TABLE_FUNCTIONS: Final = frozenset({
    "explode", "explode_outer", "inline", "inline_outer", "json_tuple", "kafkalike_key", "kafkalike_offsets",
    "kafkalike_range", "posexplode", "posexplode_outer", "range", "stack", "variant_explode", "variant_explode_outer",
})  # fmt: skip
"""Functions that may stand where a table does."""


def refusal(text: str, plan: str, views: Collection[str]) -> str:
    """Why a statement is not run; empty when it only reads.

    Args:
        text: the statement.
        plan: what Spark's parser made of it, as JSON.
        views: names that may stand where a table does, lower case.
    """
    if REFUSED_WORDS.search(text):
        return "functions that call methods of Java, read XML or take a schema's file are refused"
    known = {name.lower() for name in views} | {name.lower() for name in own_tables(plan)}
    for node in _nodes(json.loads(plan)):
        why = _refused(node, known)
        if why:
            return why
    return ""


def own_tables(plan: str) -> set[str]:
    """The names that the statement gives to parts of its own, by WITH."""
    return {
        str(one["_1"])
        for node in _nodes(json.loads(plan))
        if node["class"] == _PLANS + "UnresolvedWith"
        for one in node.get("cteRelations") or ()
    }


def relations(plan: str) -> set[str]:
    """The names that stand where a table does, and the topics that table functions are given as a literal."""
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
        return f"only SELECT is run here, and no {short}"
    if short == "UnresolvedRelation":
        return _refused_relation(node, known)
    if short == "UnresolvedFunction" and "," in str(node.get("nameParts")):
        return f"{_name(node.get('nameParts'))[:80]!r} is no function of Spark's"
    if short == "UnresolvedTableValuedFunction" and _name(node.get("name")).lower() not in TABLE_FUNCTIONS:
        return f"{_name(node.get('name'))[:80]!r} may not stand for a table here"
    return ""


def _refused_relation(node: Mapping[str, Any], known: Collection[str]) -> str:
    name = _name(node.get("multipartIdentifier"))
    # Spark's JSON puts commas between parts, and would show a name with a comma in it alike.
    if "," in name:
        return f"{name[:80]!r} has several parts or a comma, and only views of this cluster are read here"
    return f"{name[:80]!r} is no view of this cluster" if node.get("isStreaming") or name.lower() not in known else ""


def _name(parts: object) -> str:
    """A name as Spark's JSON has it: its parts in brackets, with commas between."""
    return str(parts).removeprefix("[").removesuffix("]")


def _nodes(value: object) -> Iterator[Mapping[str, Any]]:
    """All nodes of a plan, those inside of their fields too."""
    if isinstance(value, Mapping):
        if "class" in value:
            yield value
        for part in value.values():
            yield from _nodes(part)
    elif isinstance(value, list):
        for part in value:
            yield from _nodes(part)
