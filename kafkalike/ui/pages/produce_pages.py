"""Pages that produce: a form for a record, filled with another one or with an example, and its checks."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from kafkalike.errors import IllegalArgumentError, KafkaError
from kafkalike.schemas.cluster_registry import Registry
from kafkalike.ui.page_request import form, moved, optional, page, query_parameter, site, whole
from kafkalike.ui.record_query import StoredRecord, record_at
from kafkalike.ui.value_entry import FieldProblem, InvalidEntryError, encoded, entry_text, example

MOST_FILLED: Final = 4 * 1024 * 1024
"""Maximum bytes of a record in the form, which needs up to three bytes for each."""

HEX: Final = "hex:"
"""Prefix of a header's bytes in hexadecimal, for bytes that a text field would change."""

NULL: Final = "null:"
"""Content of a null header."""

KINDS: Final = {
    "schema": "JSON, encoded by the schema",
    "text": "text",
    "empty": "empty text",
    "null": "null",
    "hex": "hexadecimal",
    "base64": "Base64",
}
"""Ways to enter a key or a value, by name."""

MOST_VERSIONS: Final = 50
"""Maximum number of schema versions to choose from, newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartEntry:
    """The key or the value in the form."""

    text: str = ""
    kind: str = "text"
    schema: int | None = None
    """Id of the chosen schema."""
    schemas: Mapping[int, str]
    """Schemas to choose from: names by id."""


def produce_form(request: Request) -> Response:
    """Show the form for a new record, filled with the record of the address, if any."""
    name = request.path_params["name"]
    partition, offset = optional(request, "partition"), optional(request, "offset")
    filled: StoredRecord | None = None
    if partition is not None and offset is not None:
        filled = site(request).view.with_log(name, lambda log: record_at(log, partition, offset))
        if filled is not None and filled.size > MOST_FILLED:
            raise IllegalArgumentError(f"the record has {filled.size} bytes, more than the {MOST_FILLED} of the form")
    view = site(request).view
    registry = view.registry
    view.cluster.topic(name)
    headers = "" if filled is None else "\n".join(_header_line(header, value) for header, value in filled.headers)
    if filled is None:
        parts = {part: _new(part, name, registry) for part in ("key", "value")}
    else:
        parts = {
            part: _filled(part, name, registry, data) for part, data in (("key", filled.key), ("value", filled.value))
        }
    source = None if filled is None else f"{name} {filled.partition}/{filled.offset}"
    return _page(request, parts, headers, source=source)


def _page(
    request: Request,
    parts: Mapping[str, PartEntry],
    headers: str,
    *,
    partition: str = "",
    problems: Mapping[str, list[FieldProblem]] | None = None,
    source: str | None = None,
) -> Response:
    name = request.path_params["name"]
    return page(
        request,
        "produce.html",
        400 if problems else 200,
        name=name,
        info=site(request).view.cluster.topic(name),
        parts=parts,
        kinds=KINDS,
        headers=headers,
        partition=partition,
        problems=problems or {},
        source=source,
        said=query_parameter(request, "said"),
    )


def _schemas(subject: str, registry: Registry, used: int | None = None) -> dict[int, str]:
    """Return the schemas of a subject, newest version first, and the schema of the record."""
    known = registry.latest(subject)
    found: dict[int, str] = {}
    if known is not None:
        for version in registry.get_versions(subject)[::-1][:MOST_VERSIONS]:
            one = registry.get_version(subject, version)
            if one.schema_id is not None:
                found[one.schema_id] = f"{subject} version {version}, {one.schema.schema_type}, id {one.schema_id}"
    if used is not None and used not in found:
        found[used] = f"id {used}, of the record"
    return found


def _new(part: str, topic: str, registry: Registry) -> PartEntry:
    schemas = _schemas(f"{topic}-{part}", registry)
    if not schemas:
        return PartEntry(kind="text", schemas=schemas)
    first = next(iter(schemas))
    return PartEntry(text=example(first, registry), kind="schema", schema=first, schemas=schemas)


def _filled(part: str, topic: str, registry: Registry, data: bytes | None) -> PartEntry:
    subject = f"{topic}-{part}"
    found = entry_text(data, registry) if data else None
    if found is not None and _kept(found[1].encode()) is not None:
        used, text = found
        return PartEntry(text=text, kind="schema", schema=used, schemas=_schemas(subject, registry, used))
    text, kind = _written(data)
    return PartEntry(text=text, kind=kind, schemas=_schemas(subject, registry))


def _written(data: bytes | None) -> tuple[str, str]:
    if not data:
        return "", "null" if data is None else "empty"
    text = _kept(data)
    return (base64.b64encode(data).decode(), "base64") if text is None else (text, "text")


def _kept(data: bytes) -> str | None:
    """Decode text that a form returns unchanged; None for other bytes, as browsers normalize line ends."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(sign.isprintable() or sign in "\n\t" for sign in text) else None


def _header_line(name: str, value: bytes | None) -> str:
    """Format a header as a line that `_header` parses to the same header."""
    text = NULL if value is None else _kept(value)
    if value is not None and (text is None or "\n" in text or text != text.strip() or text.startswith((NULL, HEX))):
        text = f"{HEX}{value.hex()}"
    line = f"{name}: {text}"
    if not name.isprintable() or _header(line) != (name, value):
        raise IllegalArgumentError(
            f"the form cannot represent the header {name[:80]!r}: send the record with a producer"
        )
    return line


def produce(request: Request) -> Response:
    """Send the record of the form and show it; with an error in a field, send nothing and show the form again."""
    name, given = request.path_params["name"], form(request)
    view = site(request).view
    view.cluster.topic(name)
    problems: dict[str, list[FieldProblem]] = {}
    read: dict[str, bytes | None] = {}
    for part in ("key", "value"):
        with _collecting(problems, part):
            read[part] = _read(given, part, view.registry)
    headers = []
    with _collecting(problems, "headers"):
        headers = [_header(line) for line in _lines(given.get("headers", ""))]
    partition, chosen = given.get("partition", "").strip(), None
    with _collecting(problems, "partition"):
        chosen = whole("partition", partition) if partition else None
    if not problems:
        try:
            sent = view.producer.send(
                name, key=read["key"], value=read["value"], headers=headers, partition=chosen
            ).get(timeout=60)
            return moved(
                f"/topics/{name}/records/{sent.partition}/{sent.offset}",
                f"Wrote the record to partition {sent.partition} at offset {sent.offset}.",
            )
        except KafkaError as error:
            problems[""] = [FieldProblem(path="", message=f"{type(error).__name__}: {error}")]
    parts = {part: _given(part, name, view.registry, given) for part in ("key", "value")}
    return _page(request, parts, given.get("headers", ""), partition=partition, problems=problems)


@contextmanager
def _collecting(problems: dict[str, list[FieldProblem]], part: str) -> Iterator[None]:
    """Turn errors in the user's input into problems of a part of the form."""
    try:
        yield
    except InvalidEntryError as error:
        problems[part] = list(error.problems)
    except KafkaError as error:
        problems[part] = [FieldProblem(path="", message=str(error))]


def _given(part: str, topic: str, registry: Registry, given: Mapping[str, str]) -> PartEntry:
    """Return the entry that the user sent."""
    text = given.get(f"{part}_schema", "")
    schema = int(text) if text.isascii() and text.isdecimal() and len(text) < 11 else None  # noqa: PLR2004 - 32 bits
    kind = given.get(f"{part}_as", "text")
    return PartEntry(
        text=given.get(part, "").replace("\r\n", "\n"),
        kind=kind if kind in KINDS else "text",
        schema=schema,
        schemas=_schemas(f"{topic}-{part}", registry, schema if kind == "schema" else None),
    )


def _lines(text: str) -> list[str]:
    return [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]


def _read(given: Mapping[str, str], part: str, registry: Registry) -> bytes | None:
    kind, text = given.get(f"{part}_as", "text"), given.get(part, "")
    # Browsers send line ends as CR LF.
    text = text.replace("\r\n", "\n")
    if kind in {"null", "empty"} and text:
        raise IllegalArgumentError(f"it is {KINDS[kind]}, but there is text: delete the text, or choose another kind")
    if not text and kind not in {"null", "empty"}:
        if part == "key":
            return None
        raise IllegalArgumentError("the value is empty: enter one, or choose null, or empty text")
    try:
        reading: dict[str, Callable[[], bytes | None]] = {
            "schema": lambda: encoded(text, whole("schema", given.get(f"{part}_schema", ""), 0), registry),
            "null": lambda: None,
            "empty": lambda: b"",
            "text": text.encode,
            "hex": lambda: bytes.fromhex(text),
            "base64": lambda: base64.b64decode(text, validate=True),
        }
        return reading[kind]()
    except KeyError:
        raise IllegalArgumentError(f"{part} must be {', '.join(KINDS)}, not {kind[:40]!r}") from None
    except (ValueError, binascii.Error) as cause:
        if isinstance(cause, KafkaError):
            raise
        raise IllegalArgumentError(f"{part} is not valid {kind}: {cause}") from None


def _header(text: str) -> tuple[str, bytes | None]:
    name, colon, content = text.partition(":")
    if not colon or not name.strip():
        raise IllegalArgumentError(f"headers must be lines NAME: VALUE, not {text[:80]!r}")
    content = content.strip()
    if content == NULL:
        return name.strip(), None
    try:
        return name.strip(), bytes.fromhex(content[len(HEX) :]) if content.startswith(HEX) else content.encode()
    except ValueError:
        raise IllegalArgumentError(f"headers: {content[:80]!r} is not hexadecimal") from None
