"""Compatibility of JSON Schemas by the rules of Confluent's registry.

The content model decides how properties may change. An object is open (additional properties may have any value),
closed (there are none), or partially open (they must match a schema).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any, Final

from kafkalike.errors import InvalidSchemaError
from kafkalike.model.schemas.schema import Resolve, Schema
from kafkalike.schemas.compatibility import json_rules
from kafkalike.schemas.json_documents import DocumentReferences, JsonSchema
from kafkalike.schemas.limits import MAX_COMPARISONS, no_deeper_than_the_stack

_SUMS: Final = ("oneOf", "anyOf")
_COMBINED: Final = ("allOf", *_SUMS)


def problems(new: Schema, old: Schema, resolve: Resolve) -> list[str]:
    """Return the values that schema `old` accepts and a reader with schema `new` rejects.

    Returns:
        One sentence per incompatibility, starting with the path in the value, `$` for the root; empty if compatible.

    Raises:
        InvalidSchemaError: one is not a JSON Schema, or has a `$ref` that cannot be resolved.
    """
    with no_deeper_than_the_stack():
        reader, writer = DocumentReferences(new, resolve(new)), DocumentReferences(old, resolve(old))
        return Comparison(reader, writer, count(1)).problems(reader.root, writer.root, "$")


class Comparison:
    """Compares a reader's document with a writer's; each pair of schemas is compared once.

    Args:
        reader: the reader's document.
        writer: the writer's document.
        steps: counts comparisons, because nested choices can multiply them beyond any reasonable time.
    """

    def __init__(self, reader: DocumentReferences, writer: DocumentReferences, steps: Iterator[int]) -> None:
        self._reader = reader
        self._writer = writer
        self._steps = steps
        self._known: dict[tuple[int, int], list[str]] = {}
        self._alive: list[JsonSchema] = []

    def problems(self, reader: JsonSchema, writer: JsonSchema, path: str) -> list[str]:
        """Return the values of `writer` that `reader` rejects; for a pair compared before, only the first problem."""
        reader, writer = self._reader.resolve(reader), self._writer.resolve(writer)
        if reader is True or reader == {} or writer is False:
            return []
        if reader is False:
            return [f"{path}: nothing is accepted any more"]
        pair = (id(reader), id(writer))
        if pair in self._known:
            return self._known[pair][:1]
        self._known[pair] = []
        self._alive += (reader, writer)  # keep the schemas alive, so that their ids stay unique
        self._known[pair] = found = self._found(reader, {} if writer is True else writer, path)
        return found

    def _found(self, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> list[str]:
        if next(self._steps) > MAX_COMPARISONS:
            raise InvalidSchemaError(f"the schemas take more than {MAX_COMPARISONS:,} steps to compare")
        reader, writer = _one_type_each(reader), _one_type_each(writer)
        if any(keyword in reader or keyword in writer for keyword in _COMBINED):
            return self._of_combined(reader, writer, path)
        return self._of_plain(reader, writer, path)

    def _of_plain(self, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> list[str]:
        found = json_rules.type_problems(reader, writer, path)
        if found:
            return found
        found = json_rules.value_problems(reader, writer, path)
        kinds = json_rules.types_of(writer)
        if "object" in kinds:
            found += json_rules.object_problems(self.problems, reader, writer, path)
        if "array" in kinds:
            found += json_rules.array_problems(self.problems, reader, writer, path)
        return found + self._of_conditions(reader, writer, path)

    def _of_conditions(self, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> list[str]:
        found = []
        if "not" in reader:
            if "not" not in writer:
                found.append(f"{path}: something is excluded by a new 'not'")
            elif Comparison(self._writer, self._reader, self._steps).problems(writer["not"], reader["not"], path):
                found.append(f"{path}: its 'not' excludes more")
        for keyword in ("if", "then", "else"):
            if reader.get(keyword) != writer.get(keyword) and keyword in reader:
                found += self._of_condition(reader, writer, keyword, path)
        return found

    def _of_condition(self, reader: Mapping[str, Any], writer: Mapping[str, Any], keyword: str, path: str) -> list[str]:
        if keyword == "if" or keyword not in writer:
            return [f"{path}: its {keyword!r} is new or another"]
        return self.problems(reader[keyword], writer[keyword], f"{path}/{keyword}")

    def _of_combined(self, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> list[str]:
        """Compare each choice of the writer with everything that the reader demands."""
        for keyword in _SUMS:
            if keyword in writer:
                outer = _without(writer, keyword)
                return _flat(
                    self._found(reader, _joined(outer, self._writer.resolve(branch)), path)
                    for branch in writer[keyword]
                    if self._writer.resolve(branch) is not False
                )
        if "allOf" in reader:
            found = _flat(self.problems(part, writer, path) for part in reader["allOf"])
            rest = _without(reader, "allOf")
            return found + (self._found(rest, writer, path) if _says(rest) else [])
        for keyword in _SUMS:
            if keyword in reader:
                found = self._of_choice(reader[keyword], writer, keyword, path)
                rest = _without(reader, keyword)
                return found + (self._found(rest, writer, path) if _says(rest) else [])
        parts = [self._writer.resolve(part) for part in writer["allOf"]]
        rest = _without(writer, "allOf")
        return self._of_any([*parts, *([rest] if _says(rest) else [])], reader, rest, path)

    def _of_any(
        self, parts: list[JsonSchema], reader: Mapping[str, Any], rest: Mapping[str, Any], path: str
    ) -> list[str]:
        """Compare with each schema of the writer's `allOf`, and with all of them merged; one match suffices."""
        if any(part is False for part in parts):
            return []
        best: list[str] | None = None
        together: Mapping[str, Any] = rest
        for part in parts:
            found = self.problems(reader, part, path)
            if not found:
                return []
            best = found if best is None or len(found) < len(best) else best
            together = _joined(together, part)
        if not any(keyword in together for keyword in _COMBINED) and not self._of_plain(reader, together, path):
            return []
        return best or []

    def _of_choice(self, branches: list[JsonSchema], writer: Mapping[str, Any], keyword: str, path: str) -> list[str]:
        best: list[str] | None = None
        for branch in branches:
            found = self.problems(branch, writer, path)
            if not found:
                return []
            best = found if best is None or len(found) < len(best) else best
        return [f"{path}: no schema of its {keyword!r} accepts all that was accepted", *(best or [])]


def _one_type_each(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a list of types as a choice of schemas with a single type each."""
    kinds = schema.get("type")
    if not isinstance(kinds, list):
        return schema
    if len(kinds) == 1:
        return {**schema, "type": kinds[0]}
    rest = {key: value for key, value in schema.items() if key != "type"}
    choice = [{**{key: value for key, value in rest.items() if key not in _COMBINED}, "type": kind} for kind in kinds]
    if "anyOf" in rest:
        return {"allOf": [{"anyOf": choice}, rest]}
    return {**{key: value for key, value in rest.items() if key in _COMBINED}, "anyOf": choice}


def _joined(outer: Mapping[str, Any], inner: JsonSchema) -> Mapping[str, Any]:
    """Return a branch joined with the keywords beside its choice."""
    if inner is True:
        return outer
    if not _says(outer):
        return dict(inner)
    joined = {**outer, **inner}
    for keyword in ("properties", "patternProperties"):
        if keyword in outer and keyword in inner:
            joined[keyword] = {**outer[keyword], **inner[keyword]}
    if "required" in outer and "required" in inner:
        joined["required"] = [*outer["required"], *inner["required"]]
    if "allOf" in outer and "allOf" in inner:
        joined["allOf"] = [*outer["allOf"], *inner["allOf"]]
    return joined


def _says(schema: Mapping[str, Any]) -> bool:
    """Return True if a schema restricts values."""
    return any(keyword in json_rules.KEYWORDS or keyword in _COMBINED for keyword in schema)


def _without(schema: Mapping[str, Any], keyword: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != keyword}


def _flat(lists: Iterable[list[str]]) -> list[str]:
    return [problem for found in lists for problem in found]
