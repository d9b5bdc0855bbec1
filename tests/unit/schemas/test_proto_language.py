"""Protobuf's language: the parser against protoc, and the printer against the parser."""

from __future__ import annotations

import base64
import contextlib
import os
from pathlib import Path
from typing import Any

import grpc_tools
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalike.errors import InvalidSchemaError, SerializationError
from kafkalike.model.schemas.schema import Reference, Schema
from kafkalike.schemas.proto.parser import parse_proto
from kafkalike.schemas.proto.proto_files import (
    as_text,
    build_file,
    indexes_of,
    load_proto,
    message_at,
    print_proto,
    resolved,
    serialized,
)
from tests.tools.effort import examples
from tests.tools.proto_pairs import files, pool_of
from tests.tools.schemas import SchemasInMemory

PROTO2 = r"""
message A {
  optional int32 x = 0x1F [default = 0x10];
  optional double d = 2 [default = inf];
  optional double e = 3 [default = -inf];
  optional string s = 4 [default = "a" 'b\n"'];
  optional bytes b = 5 [default = "\001\xff"];
  optional E f = 6 [default = FOO];
  reserved 7 to 9, 400 to max; reserved "qq", "r";
  optional group G = 10 { optional int32 z = 1; }
  oneof o { int32 p = 11; group Q = 12 { optional int32 k = 1; } }
  map<string, int32> m_x = 13;
  extensions 100 to 199;
  repeated int32 pk = 15 [packed = true, deprecated = true];
  optional float fl = 16 [default = 1.5]; optional float fm = 17 [default = -3];
  optional bool yes = 18 [default = true];
  required string last = 19;
}
option java_package = "x"; option optimize_for = SPEED;
enum E { option allow_alias = true; FOO = 0; BAR = -1 [deprecated = true]; BAZ = 0; reserved -5 to -3, 10 to max; }
extend A { optional int32 ext = 100; }
message S {
  extend A { optional S ss = 101; }
  message T { message U { optional .S.T t = 1; optional T u = 2; optional U v = 3; } }
}
service Se { rpc M (stream A) returns (.A) { option deprecated = true; } rpc N (A) returns (stream A); }
"""
PROTO3 = """
syntax = "proto3"; package p.q;
import "google/protobuf/timestamp.proto"; import public "google/protobuf/any.proto";
/* c */ message M { // x
  optional string a = 1; oneof z { google.protobuf.Timestamp t = 2; Inner i = 3; }
  optional int64 b = 4 [json_name = "bb"]; repeated Inner.E es = 5;
  message Inner { enum E { E0 = 0; } map<int32, Inner> rec = 1; .p.q.M m = 2; }
  string option = 7; string message = 8; int32 reserved_x = 9; string rpc = 10;
  map<string, google.protobuf.Any> anys = 11; ;
}
"""
EDITION = """
edition = "2023"; option features.field_presence = IMPLICIT;
message A { string a = 1 [features.field_presence = EXPLICIT]; reserved foo, bar; repeated int32 r = 2; }
"""
KEYWORDS = """
syntax = "proto3";
message message { message message { string message = 1; } .message.message optional = 1;
  oneof oneof { int32 map = 3; } }
message enum { string import = 1; string package = 2; string group = 4; string to = 5; string max = 6; }
enum option { rpc = 0; returns = 1; stream = 2; }
"""


def compiled(text: str, folder: Path) -> FileDescriptorProto:
    """What protoc makes of a file; without the names for JSON that it fills in."""
    (folder / "t.proto").write_text(text)
    google = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")  # noqa: PTH118, PTH120
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # noqa: PTH123
        code = protoc.main(["protoc", f"-I{folder}", f"-I{google}", f"--descriptor_set_out={folder}/out", "t.proto"])
    assert code == 0
    (file,) = FileDescriptorSet.FromString((folder / "out").read_bytes()).file
    _forget_json_names(file, {"bb"})
    return file


def _forget_json_names(owner: Any, kept: set[str]) -> None:
    for field in (*getattr(owner, "field", ()), *owner.extension):
        if field.json_name not in kept:
            field.ClearField("json_name")
    for inner in owner.nested_type if isinstance(owner, DescriptorProto) else owner.message_type:
        _forget_json_names(inner, kept)


def in_pool(file: FileDescriptorProto) -> FileDescriptorProto:
    """A file with its names resolved."""
    return resolved(pool_of(file).FindFileByName(file.name))


@pytest.mark.parametrize("text", [PROTO2, PROTO3, EDITION, KEYWORDS], ids=["proto2", "proto3", "edition", "keywords"])
def test_a_file_means_what_protoc_says(text: str, tmp_path: Path) -> None:
    assert in_pool(parse_proto(text, "t.proto")) == compiled(text, tmp_path)


@pytest.mark.parametrize("text", [PROTO2, PROTO3, EDITION, KEYWORDS], ids=["proto2", "proto3", "edition", "keywords"])
def test_what_is_printed_is_read_as_the_same(text: str) -> None:
    file = parse_proto(text, "t.proto")

    assert parse_proto(print_proto(file), "t.proto") == file
    assert in_pool(parse_proto(print_proto(in_pool(file)), "t.proto")) == in_pool(file)
    assert print_proto(parse_proto(print_proto(file))) == print_proto(file)


@given(files())
@settings(max_examples=examples(200, 30), deadline=None, suppress_health_check=list(HealthCheck))
def test_a_descriptor_is_printed_and_read_as_the_same(file: FileDescriptorProto) -> None:
    again = parse_proto(print_proto(file), file.name)

    assert in_pool(again) == in_pool(file)


def test_options_of_others_are_kept() -> None:
    text = (
        'message M { optional int32 a = 1 [(my.opt).x = "q\\n", (b) = { c: 1 d: "e" }, (f) = -5, (g) = 1.5]; '
        "option (h) = WORD; option (.i.j).k.(l) = 7; }"
    )
    file = parse_proto(text)

    assert parse_proto(print_proto(file)) == file
    assert [o.name[0].name_part for o in file.message_type[0].field[0].options.uninterpreted_option] == [
        "my.opt",
        "b",
        "f",
        "g",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "garbage",
        'syntax = "proto3"; message A { string a = 1 }',
        'syntax = "proto4";',
        'edition = "1066";',
        "message A { string a = 1; }",
        'syntax = "proto3"; message A { required string a = 1; }',
        'syntax = "proto3"; message A { string a = 0; }',
        'syntax = "proto3"; message A { string a = 99999999999; }',
        'syntax = "proto3"; message A { string a = 1.5; }',
        'syntax = "proto3"; message A { map<float, string> a = 1; }',
        'syntax = "proto3"; message A { oneof o { repeated string a = 1; } }',
        'syntax = "proto3"; message A { reserved 9 to 3; }',
        'syntax = "proto3"; message A { ',
        'syntax = "proto3"; message A { Unknown a = 1; }',
        'syntax = "proto3"; message A { string a = 1; string a = 2; }',
        'syntax = "proto3"; message A { string a = 1; string b = 1; }',
        'syntax = "proto3"; message A { } message A { }',
        'syntax = "proto3"; enum E { }',
        'syntax = "proto3"; enum E { X = 1; }',
        'syntax = "proto3"; import "missing.proto";',
        'syntax = "proto3"; import "google/protobuf/missing.proto";',
        'syntax = "proto3"; import "../../etc/passwd";',
        'syntax = "proto3"; option java_package = "\\xff\\xfe";\n\x00',
        'syntax = "\\xff";',
        "AAAA",
        "//8=",
        "message A {" * 300 + "}" * 300,
        'syntax = "proto3"; message A { ' + "message A {" * 150 + "}" * 150 + "}",
        'syntax = "proto3"; option (a) = ' + "{" * 500,
        " " * (1 << 20) + ";",
        'syntax = "proto3"; option (a) = ' + "9" * 400 + ";",
        'syntax = "proto3"; message A { string a = 1 [(b).c = -' + "9" * 400 + "]; }",
        'syntax = "proto3"; option java_multiple_files = ' + "9" * 400 + ";",
    ],
    ids=range(33),
)
def test_what_is_no_schema_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        build_file(Schema("PROTOBUF", text), {})


def test_an_error_says_the_line() -> None:
    with pytest.raises(InvalidSchemaError, match="line 3 of the Protobuf schema: ';' is expected, not '}'"):
        parse_proto('syntax = "proto3";\nmessage A {\n string a = 1 }')


def test_base64_is_read_as_text_is() -> None:
    text = 'syntax = "proto3"; package p; message M { N n = 1; message N { string s = 1; } }'
    as_base64 = serialized(Schema("PROTOBUF", text), {})
    generated = base64.b64encode(timestamp_pb2.DESCRIPTOR.serialized_pb).decode()

    assert resolved(build_file(Schema("PROTOBUF", as_base64), {})) == resolved(build_file(Schema("PROTOBUF", text), {}))
    assert as_text(text) == text
    assert in_pool(parse_proto(as_text(as_base64), "x")) == in_pool(load_proto(as_base64, "x"))
    assert "message Timestamp {" in as_text(generated)


def test_imports_are_references_or_known_files() -> None:
    source = SchemasInMemory()
    inner = Schema("PROTOBUF", 'syntax = "proto3"; package i; message I { int32 v = 1; }')
    source.register("inner", inner)
    source.register(
        "middle",
        Schema(
            "PROTOBUF",
            'syntax = "proto3"; package m; import public "i.proto"; message Mid { i.I i = 1; }',
            (Reference("i.proto", "inner", 1),),
        ),
    )
    text = """syntax = "proto3"; import "m.proto"; import "google/protobuf/timestamp.proto";
        import "google/type/date.proto"; import "confluent/meta.proto"; import "confluent/type/decimal.proto";
        message M { m.Mid mid = 1; i.I i = 2; google.protobuf.Timestamp t = 3; google.type.Date d = 4;
          confluent.type.Decimal c = 5 [(confluent.field_meta).doc = "x"]; }"""
    schema = Schema("PROTOBUF", text, (Reference("m.proto", "middle", 1),))
    file = build_file(schema, source.referenced(schema))

    fields: Any = file.message_types_by_name["M"].fields
    names = [field.message_type.full_name for field in fields]
    assert names == ["m.Mid", "i.I", "google.protobuf.Timestamp", "google.type.Date", "confluent.type.Decimal"]


def test_imports_in_a_circle_are_refused() -> None:
    a = Schema("PROTOBUF", 'syntax = "proto3"; import "b.proto";')
    b = Schema("PROTOBUF", 'syntax = "proto3"; import "a.proto";')

    with pytest.raises(InvalidSchemaError, match="is circular"):
        build_file(Schema("PROTOBUF", 'syntax = "proto3"; import "a.proto";'), {"a.proto": a, "b.proto": b})


def test_places_of_messages_are_found_both_ways() -> None:
    text = 'syntax = "proto3"; message A { map<string, B> m = 1; message B { message C { } } } message D { }'
    file = build_file(Schema("PROTOBUF", text), {})
    for name, place in (("A", (0,)), ("A.B", (0, 1)), ("A.B.C", (0, 1, 0)), ("D", (1,))):
        message = file.pool.FindMessageTypeByName(name)
        assert indexes_of(message) == place
        assert message_at(file, place) is message
    for wrong in ((2,), (-1,), (0, 9), ()):
        with pytest.raises(SerializationError):
            message_at(file, wrong)


@given(st.text(st.sampled_from('abM{}[]()<>=;,."/*- \n01message enum oneof map reserved')))
@settings(max_examples=examples(300, 50), deadline=None)
def test_any_text_is_a_schema_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidSchemaError):
        build_file(Schema("PROTOBUF", text), {})


@given(st.binary(max_size=60))
@settings(max_examples=examples(300, 50), deadline=None)
def test_any_base64_is_a_schema_or_refused(data: bytes) -> None:
    source = descriptor_pb2.FileDescriptorProto(name="x", message_type=[DescriptorProto(name="M")]).SerializeToString()
    for content in (data, source + data):
        with contextlib.suppress(InvalidSchemaError):
            build_file(Schema("PROTOBUF", base64.b64encode(content).decode()), {})
