"""Record options: flags that jobs share for the conversion between rows and records."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path

import click

from kafkalike.log.snapshots import Snapshot
from kafkalike.model.config.dead_letter_config import DeadLetterSettings, settings_of
from kafkalike.schemas import Schema
from kafkalike.spark.call_options import RecordSchemas
from kafkalike.spark.files.value_decoder import KEY_FORMATS, VALUE_FORMATS, Decoding
from kafkalike.spark.record_columns import RecordColumns
from kafkalike.spark.typed.decode import FORMATS as TYPED

Command = Callable[..., None]


def column_options(command: Command) -> Command:
    """Add `--key-column`, `--value-columns`, `--timestamp-column` and `--partition-column`, passed as `columns`."""

    @wraps(command)
    def with_columns(
        *,
        key_column: str | None,
        value_columns: str | None,
        timestamp_column: str | None,
        partition_column: str | None,
        **others: object,
    ) -> None:
        columns = RecordColumns(
            key=key_column,
            values=[name.strip() for name in value_columns.split(",")] if value_columns else (),
            timestamp=timestamp_column,
            partition=partition_column,
        )
        command(columns=columns, **others)

    return with_options(
        with_columns,
        click.option("--key-column", metavar="NAME", help="Column of the key. Default: keys are null."),
        click.option(
            "--value-columns",
            metavar="NAMES",
            help="One column: its value unchanged. Several, separated by commas: a JSON object of them. Default: a "
            "JSON object of all columns; for text, the line.",
        ),
        click.option(
            "--timestamp-column",
            metavar="NAME",
            help="Column of the time: a timestamp, or ms since 1970. Default: now.",
        ),
        click.option("--partition-column", metavar="NAME", help="Column of the partition. Default: chosen by the key."),
    )


def schema_options(command: Command) -> Command:
    """Add `--value-schema`, `--key-schema`, `--no-register` and others, passed as `schemas`."""

    @wraps(command)
    def with_schemas(
        *,
        value_schema: str | None,
        key_schema: str | None,
        no_register: bool,
        message: str | None,
        schema_registry: str | None,
        **others: object,
    ) -> None:
        schemas = RecordSchemas(
            value=_schema(value_schema),
            key=_schema(key_schema),
            register=not no_register,
            message=message,
            registry=schema_registry,
        )
        command(schemas=schemas, **others)

    return with_options(
        with_schemas,
        click.option(
            "--value-schema",
            metavar="SCHEMA",
            help="Write values with a schema: latest (the newest of the topic), avro, json-schema or protobuf (made of "
            "the columns), or a file *.avsc, *.proto or *.json. The value is a struct of all columns, or the column of "
            "--value-columns.",
        ),
        click.option("--key-schema", metavar="SCHEMA", help="Schema of the key, as --value-schema."),
        click.option("--no-register", is_flag=True, help="Reject schemas that are not registered."),
        message_option(),
        registry_option(),
    )


def message_option() -> Callable[[Command], Command]:
    """Return the option `--message`."""
    return click.option(
        "--message", metavar="NAME", help="Protobuf message of the values; default: the schema's first."
    )


def registry_option() -> Callable[[Command], Command]:
    """Return the option `--schema-registry`."""
    return click.option(
        "--schema-registry", metavar="URL", help="Address of a schema registry. Default: the cluster's own registry."
    )


_TYPES = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}


def _schema(said: str | None) -> str | Schema | None:
    """Return the schema as `kafkalike.spark.write` takes it: a word, or the content of a file."""
    if said is None or said in {"latest", *TYPED}:
        return said
    path = Path(said)
    if path.suffix not in _TYPES or not path.is_file():
        raise click.UsageError("a schema is latest, avro, protobuf, json-schema, or a file *.avsc, *.proto or *.json")
    return Schema(path.read_text("utf-8"), _TYPES[path.suffix])


def decoding_options(command: Command) -> Command:
    """Add `--value-format`, `--key-format`, `--schema` and others, passed as `decoding`."""

    @wraps(command)
    def with_decoding(
        *,
        value_format: str,
        key_format: str,
        schema: str | None,
        malformed: str,
        value_only: bool,
        include_headers: bool,
        message: str | None,
        schema_registry: str | None,
        **others: object,
    ) -> None:
        decoding = Decoding(
            value_format=value_format,
            key_format=key_format,
            message=message,
            registry=schema_registry,
            schema=schema,
            malformed=malformed,
            value_only=value_only,
            headers=include_headers,
        )
        command(decoding=decoding, **others)

    return with_options(
        with_decoding,
        click.option(
            "--value-format",
            type=click.Choice(VALUE_FORMATS),
            default="string",
            show_default=True,
            help="Format of values; avro, protobuf and json-schema use the schemas of the topic.",
        ),
        click.option(
            "--key-format", type=click.Choice(KEY_FORMATS), default="string", show_default=True, help="Format of keys."
        ),
        click.option("--schema", metavar="DDL", help="Fields of JSON values, such as 'id BIGINT, name STRING'."),
        click.option(
            "--malformed",
            type=click.Choice(["fail", "null"]),
            default="fail",
            show_default=True,
            help="Fail on a value that cannot be decoded, or read it as null.",
        ),
        click.option("--value-only", is_flag=True, help="Write values without key, partition, offset and timestamp."),
        click.option("--include-headers", is_flag=True, help="Write the headers, too."),
        message_option(),
        registry_option(),
    )


def error_options(command: Command) -> Command:
    """Add `--errors-tolerance` and `--errors-deadletterqueue-topic-name`, passed as `errors`."""

    @wraps(command)
    def with_errors(*, errors_tolerance: str, errors_deadletterqueue_topic_name: str | None, **others: object) -> None:
        if errors_tolerance == "none" and errors_deadletterqueue_topic_name is not None:
            raise click.UsageError("--errors-deadletterqueue-topic-name needs --errors-tolerance all")
        command(errors=settings_of(errors_tolerance, errors_deadletterqueue_topic_name), **others)

    return with_options(
        with_errors,
        click.option(
            "--errors-tolerance",
            type=click.Choice(["none", "all"]),
            default="none",
            show_default=True,
            help="all: records whose value cannot be decoded become dead letters; none: --malformed applies.",
        ),
        click.option(
            "--errors-deadletterqueue-topic-name",
            metavar="TOPIC",
            help="Topic of the dead letters; an empty text drops them. Default: the record's topic plus .dlq.",
        ),
    )


def check_errors(errors: DeadLetterSettings, decoding: Decoding) -> None:
    """Reject options for dead letters that exclude others.

    Raises:
        click.UsageError: they do.
    """
    if errors.tolerant and decoding.malformed != "fail":
        raise click.UsageError("--errors-tolerance all and --malformed null exclude each other")
    if errors.tolerant and decoding.value_format == "binary":
        raise click.UsageError("--errors-tolerance all needs a --value-format that decodes values; binary does not")
    if errors.tolerant and decoding.key_format in TYPED and decoding.value_format not in TYPED:
        raise click.UsageError("--errors-tolerance all needs a --value-format with schemas, like --key-format")


def snapshot_option(command: Command) -> Command:
    """Add `--at`, passed as `at`."""

    @wraps(command)
    def with_snapshot(*, at: Path | None, **others: object) -> None:
        command(at=None if at is None else Snapshot.from_json(at.read_text("utf-8")), **others)

    return with_options(
        with_snapshot,
        click.option(
            "--at",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Read the topic as of a snapshot: a file with the output of `kafkalike snapshot`. Jobs that read "
            "several topics by one snapshot see all or nothing of every transaction.",
        ),
    )


def check_target(target_format: str, path: str, decoding: Decoding, more: dict[str, bool]) -> None:
    """Reject combinations of options of jobs that write records out.

    Args:
        target_format: `console`, or the format at the path.
        path: target; empty for the console.
        decoding: conversion of records to rows.
        more: further messages, each with its condition.

    Raises:
        click.UsageError: a condition holds.
    """
    console, is_json = target_format == "console", decoding.value_format == "json"
    typed, typed_key = decoding.value_format in TYPED, decoding.key_format in TYPED
    refused = {
        "the console takes no TARGET": console and bool(path),
        f"--format {target_format} needs a TARGET": not console and not path,
        "--value-format json needs --schema": is_json and decoding.schema is None,
        "--schema is for --value-format json": not is_json and decoding.schema is not None,
        "--malformed is for values that are parsed": not (is_json or typed or typed_key)
        and decoding.malformed != "fail",
        "--message is for --value-format protobuf": decoding.value_format != "protobuf"
        and decoding.message is not None,
        "--schema-registry is for formats with schemas": not (typed or typed_key) and decoding.registry is not None,
        "--value-only and --include-headers exclude each other": decoding.value_only and decoding.headers,
        "CSV has no nested columns: add --value-only, and leave --include-headers out": target_format == "csv"
        and (decoding.headers or ((is_json or typed) and not decoding.value_only)),
    }
    for problem, holds in (more | refused).items():
        if holds:
            raise click.UsageError(problem)


def with_options(command: Command, *options: Callable[[Command], Command]) -> Command:
    """Add options to a command, in their order."""
    for option in reversed(options):
        command = option(command)
    return command
