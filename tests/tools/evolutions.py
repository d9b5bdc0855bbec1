"""Evolutions: pairs of an older and a newer schema, with the verdict of the published rules in both directions.

BACKWARD: a reader with the newer schema reads what the older one wrote. FORWARD: the other way round.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from kafkalike.model.schemas.schema import Schema, SchemaType


class Evolution(NamedTuple):
    """One case."""

    name: str
    old: Schema
    new: Schema
    backward: bool
    forward: bool


def _avro_record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def _f(name: str, type: Any, **more: Any) -> dict[str, Any]:  # noqa: A002
    return {"name": name, "type": type, **more}


def _of(type: SchemaType, *rows: tuple[str, Any, Any, bool, bool]) -> list[Evolution]:  # noqa: A002
    def text(value: Any) -> str:
        return value if isinstance(value, str) and type == "PROTOBUF" else json.dumps(value)

    return [
        Evolution(name, Schema(type, text(old)), Schema(type, text(new)), backward, forward)
        for name, old, new, backward, forward in rows
    ]


_A = _f("a", "string")
_ENUM = {"type": "enum", "name": "E", "symbols": ["X", "Y"]}
_LESS = {"type": "enum", "name": "E", "symbols": ["X"]}
_NODE = _avro_record(_f("v", "int"), _f("next", ["null", "Node"]), name="Node")
_DEEP = _avro_record(_f("v", "long"), _f("next", ["null", "Node"]), name="Node")


def _decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


AVRO = _of(
    "AVRO",
    ("the same", _avro_record(_A), _avro_record(_A), True, True),
    ("field with default added", _avro_record(_A), _avro_record(_A, _f("b", "int", default=1)), True, True),
    ("field without default added", _avro_record(_A), _avro_record(_A, _f("b", "int")), False, True),
    ("field removed", _avro_record(_A, _f("b", "int")), _avro_record(_A), True, False),
    ("default added", _avro_record(_f("a", "int")), _avro_record(_f("a", "int", default=0)), True, True),
    ("default removed", _avro_record(_f("a", "int", default=0)), _avro_record(_f("a", "int")), True, True),
    ("field renamed with alias", _avro_record(_A), _avro_record(_f("b", "string", aliases=["a"])), True, False),
    ("field renamed without alias", _avro_record(_A), _avro_record(_f("b", "string")), False, False),
    ("order of fields", _avro_record(_A, _f("b", "int")), _avro_record(_f("b", "int"), _A), True, True),
    ("record renamed", _avro_record(_A), _avro_record(_A, name="S"), False, False),
    ("record renamed with alias", _avro_record(_A), _avro_record(_A, name="S", aliases=["R"]), True, False),
    (
        "renamed in a namespace, alias without it",
        _avro_record(_A, namespace="n"),
        _avro_record(_A, name="S", namespace="n", aliases=["R"]),
        True,
        False,
    ),
    ("namespace changed", _avro_record(_A, namespace="n"), _avro_record(_A, namespace="m"), True, True),
    ("int to long", "int", "long", True, False),
    ("long to float", "long", "float", True, False),
    ("float to double", "float", "double", True, False),
    ("int to double", "int", "double", True, False),
    ("double to string", "double", "string", False, False),
    ("string and bytes", "string", "bytes", True, True),
    ("union widened", ["null", "int"], ["null", "int", "string"], True, False),
    ("made a union", "int", ["null", "int"], True, False),
    ("made a union that promotes", "int", ["null", "long"], True, False),
    ("union of one", ["int"], "int", True, True),
    ("order of a union", ["null", "int"], ["int", "null"], True, True),
    ("enum symbol added", _LESS, _ENUM, True, False),
    ("enum symbol removed", _ENUM, _LESS, False, True),
    ("enum symbol removed, with default", _ENUM, {**_LESS, "default": "X"}, True, True),
    ("enum renamed", _ENUM, {**_ENUM, "name": "G"}, False, False),
    ("items widened", {"type": "array", "items": "int"}, {"type": "array", "items": "long"}, True, False),
    ("values widened", {"type": "map", "values": "int"}, {"type": "map", "values": "long"}, True, False),
    ("array to map", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}, False, False),
    (
        "size of a fixed",
        {"type": "fixed", "name": "F", "size": 4},
        {"type": "fixed", "name": "F", "size": 5},
        False,
        False,
    ),
    ("recursive, the same", _NODE, _NODE, True, True),
    ("recursive, widened", _NODE, _DEEP, True, False),
    (
        "nested field without default",
        _avro_record(_f("n", _avro_record(_A, name="N"))),
        _avro_record(_f("n", _avro_record(_A, _f("b", "int"), name="N"))),
        False,
        True,
    ),
    ("record in a union loses a branch", ["null", _avro_record(_A)], ["null"], False, True),
    ("precision of a decimal", _decimal(9, 2), _decimal(12, 2), True, True),
    # Confluent's registry lets this pass; the values would be read wrongly.
    ("scale of a decimal", _decimal(9, 2), _decimal(9, 3), False, False),
    ("documentation", _avro_record(_A), _avro_record(_A, doc="words"), True, True),
)


def _proto(body: str, *, package: str = "p", syntax: str = "proto3") -> str:
    return f'syntax = "{syntax}"; package {package}; {body}'


def _message(fields: str, **more: Any) -> str:
    return _proto(f"message M {{ {fields} }}", **more)


PROTOBUF = _of(
    "PROTOBUF",
    ("the same", _message("string a = 1;"), _message("string a = 1;"), True, True),
    ("field added", _message("string a = 1;"), _message("string a = 1; int32 b = 2;"), True, True),
    ("field renamed", _message("string a = 1;"), _message("string b = 1;"), True, True),
    ("number reused for another type", _message("string a = 1;"), _message("int32 b = 1;"), False, False),
    ("field gets another number", _message("string a = 1;"), _message("string a = 2;"), True, True),
    ("int32 to int64", _message("int32 a = 1;"), _message("int64 a = 1;"), True, True),
    ("int32 to bool", _message("int32 a = 1;"), _message("bool a = 1;"), True, True),
    ("int32 to sint32", _message("int32 a = 1;"), _message("sint32 a = 1;"), False, False),
    ("fixed32 to sfixed32", _message("fixed32 a = 1;"), _message("sfixed32 a = 1;"), True, True),
    ("fixed32 to fixed64", _message("fixed32 a = 1;"), _message("fixed64 a = 1;"), False, False),
    ("float to double", _message("float a = 1;"), _message("double a = 1;"), False, False),
    ("string to bytes", _message("string a = 1;"), _message("bytes a = 1;"), True, True),
    ("int32 to enum", _message("int32 a = 1;"), _message("E a = 1; enum E { X = 0; }"), True, True),
    (
        "enum value added",
        _message("E a = 1; enum E { X = 0; }"),
        _message("E a = 1; enum E { X = 0; Y = 1; }"),
        True,
        True,
    ),
    ("string to repeated", _message("string a = 1;"), _message("repeated string a = 1;"), True, True),
    ("number to repeated", _message("int32 a = 1;"), _message("repeated int32 a = 1;"), False, False),
    (
        "map value within a group",
        _message("map<string, int32> a = 1;"),
        _message("map<string, int64> a = 1;"),
        True,
        True,
    ),
    ("map value changed", _message("map<string, int32> a = 1;"), _message("map<string, string> a = 1;"), False, False),
    ("map to scalar", _message("map<string, int32> a = 1;"), _message("string a = 1;"), False, False),
    (
        "one field into a new oneof",
        _message("string a = 1; string b = 2;"),
        _message("string a = 1; oneof o { string b = 2; }"),
        True,
        True,
    ),
    (
        "two fields into a new oneof",
        _message("string a = 1; string b = 2;"),
        _message("oneof o { string a = 1; string b = 2; }"),
        False,
        True,
    ),
    (
        "field added to a oneof",
        _message("oneof o { string a = 1; }"),
        _message("oneof o { string a = 1; string b = 2; }"),
        True,
        False,
    ),
    (
        "field moved into a oneof that is there",
        _message("oneof o { string a = 1; } string b = 2;"),
        _message("oneof o { string a = 1; string b = 2; }"),
        False,
        False,
    ),
    ("field made optional", _message("string a = 1;"), _message("optional string a = 1;"), True, True),
    ("package changed", _message("string a = 1;"), _message("string a = 1;", package="q"), False, False),
    ("message added", _message("string a = 1;"), _proto("message M { string a = 1; } message N { }"), True, False),
    ("message renamed", _message("string a = 1;"), _proto("message N { string a = 1; }"), False, False),
    ("order of messages", _proto("message M { } message N { }"), _proto("message N { } message M { }"), True, True),
    ("service added", _message(""), _proto("message M { } service S { rpc A (M) returns (M); }"), True, True),
    (
        "required field added",
        _message("optional string a = 1;", syntax="proto2"),
        _message("optional string a = 1; required string b = 2;", syntax="proto2"),
        False,
        False,
    ),
    (
        "required field made optional",
        _message("required string a = 1;", syntax="proto2"),
        _message("optional string a = 1;", syntax="proto2"),
        True,
        False,
    ),
    ("proto2 to proto3", _message("optional string a = 1;", syntax="proto2"), _message("string a = 1;"), True, True),
    (
        "nested message's field changed",
        _message("N a = 1; message N { string s = 1; }"),
        _message("N a = 1; message N { int32 s = 1; }"),
        False,
        False,
    ),
    (
        "message to another",
        _proto("message M { A x = 1; } message A { } message B { }"),
        _proto("message M { B x = 1; } message A { } message B { }"),
        False,
        False,
    ),
    ("type named otherwise", _message("N a = 1; message N { }"), _message(".p.M.N a = 1; message N { }"), True, True),
    ("recursive", _message("M a = 1; int32 b = 2;"), _message("M a = 1; int64 b = 2;"), True, True),
)


def _object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


_S: dict[str, Any] = {"type": "string"}
_I: dict[str, Any] = {"type": "integer"}
_N: dict[str, Any] = {"type": "number"}
_CLOSED: dict[str, Any] = {"additionalProperties": False}

JSON = _of(
    "JSON",
    ("the same", _object({"a": _S}), _object({"a": _S}), True, True),
    ("to anything", _object({"a": _S}), {}, True, False),
    ("property added, open", _object({"a": _S}), _object({"a": _S, "b": _I}), False, True),
    ("property of any value added, open", _object({"a": _S}), _object({"a": _S, "b": {}}), True, True),
    ("property added, closed", _object({"a": _S}, **_CLOSED), _object({"a": _S, "b": _I}, **_CLOSED), True, False),
    (
        "property added, partially open",
        _object({"a": _S}, additionalProperties=_I),
        _object({"a": _S, "b": _I}, additionalProperties=_I),
        True,
        True,
    ),
    (
        "property added, partially open, of another type",
        _object({"a": _S}, additionalProperties=_S),
        _object({"a": _S, "b": _I}, additionalProperties=_S),
        False,
        False,
    ),
    ("property removed, closed", _object({"a": _S, "b": _I}, **_CLOSED), _object({"a": _S}, **_CLOSED), False, True),
    ("closed", _object({"a": _S}), _object({"a": _S}, **_CLOSED), False, True),
    ("required added", _object({"a": _S}), _object({"a": _S}, required=["a"]), False, True),
    (
        "required with default added",
        _object({"a": _S}),
        _object({"a": {**_S, "default": "x"}}, required=["a"]),
        True,
        True,
    ),
    ("integer to number", _I, _N, True, False),
    ("string to integer", _S, _I, False, False),
    ("type list widened", {"type": ["string"]}, {"type": ["string", "null"]}, True, False),
    ("enum widened", {"enum": ["a"]}, {"enum": ["a", "b"]}, True, False),
    ("const changed", {"const": 1}, {"const": 2}, False, False),
    ("maximum raised", {**_I, "maximum": 5}, {**_I, "maximum": 9}, True, False),
    ("minLength added", _S, {**_S, "minLength": 1}, False, True),
    ("pattern changed", {**_S, "pattern": "a"}, {**_S, "pattern": "b"}, False, False),
    ("multipleOf halved", {**_I, "multipleOf": 10}, {**_I, "multipleOf": 5}, True, False),
    ("oneOf widened", {"oneOf": [_S]}, {"oneOf": [_S, _I]}, True, False),
    ("oneOf subset by types", {"oneOf": [_S, _I]}, {"oneOf": [_S, _N]}, True, False),
    ("to oneOf", _S, {"oneOf": [_S, _I]}, True, False),
    ("anyOf to oneOf", {"anyOf": [_S, _I]}, {"oneOf": [_S, _I]}, True, True),
    ("allOf narrowed", {"allOf": [_S]}, {"allOf": [_S, {"maxLength": 3}]}, False, True),
    ("not widened", {"not": _N}, {"not": _I}, True, False),
    ("items changed", {"type": "array", "items": _I}, {"type": "array", "items": _N}, True, False),
    ("items become unique", {"type": "array"}, {"type": "array", "uniqueItems": True}, False, True),
    ("dependency added", _object({}), _object({}, dependencies={"a": ["b"]}), False, True),
    (
        "moved behind a $ref",
        _object({"a": _S}),
        {**_object({"a": {"$ref": "#/definitions/t"}}), "definitions": {"t": _S}},
        True,
        True,
    ),
    (
        "recursive",
        {"$ref": "#/definitions/n", "definitions": {"n": _object({"next": {"$ref": "#/definitions/n"}, "v": _I})}},
        {"$ref": "#/definitions/n", "definitions": {"n": _object({"next": {"$ref": "#/definitions/n"}, "v": _N})}},
        True,
        False,
    ),
    ("title and description", _object({"a": _S}), {**_object({"a": _S}), "title": "t", "description": "d"}, True, True),
)
