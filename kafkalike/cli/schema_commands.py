"""`kafkalike schemas` and `schema-registry`: manage schemas, and serve them over Confluent's REST interface."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kafkalike.cli import options as flags
from kafkalike.cli.environment import Environment, Interrupt, SuggestingGroup, pass_environment, pass_options
from kafkalike.cli.output import counted, echo_rows, output_option
from kafkalike.errors import KafkaConfigurationError

if TYPE_CHECKING:
    from kafkalike.schemas.cluster_registry import Registry
    from kafkalike.schemas.confluent_types import SchemaReference
    from kafkalike.schemas.registry_client import RegistryClient
    from kafkalike.schemas.service.credentials import Credentials


F = TypeVar("F", bound=Callable[..., Any])

TYPES: Final = click.Choice(["AVRO", "PROTOBUF", "JSON"], case_sensitive=False)


def where_options(command: F) -> F:
    """Add the options that choose a registry."""
    for option in (
        click.option("--registry-config", metavar="FILE", help="Settings of --url: basic.auth.user.info=… and others."),
        click.option("--url", metavar="URL", help="Registry service to use instead of the cluster's own registry."),
        flags.command_config_option(),
        flags.bootstrap_option(),
    ):
        command = option(command)
    return command


def open_client(environment: Environment, where: dict[str, Any]) -> RegistryClient:
    """Open the registry that the options name."""
    from kafkalike.schemas.factory import open_registry

    settings = flags.read_properties(where["registry_config"])
    if where["url"] is not None:
        return open_registry({**settings, "url": where["url"]})
    if settings:
        raise click.UsageError("--registry-config needs --url")
    return open_own(environment, where)


def open_own(environment: Environment, where: dict[str, Any]) -> Registry:
    """Open the registry of the cluster."""
    from kafkalike.schemas.cluster_registry import Registry

    return Registry(environment.cluster_of(where["bootstrap_server"], where["command_config"]), clock=environment.clock)


def schema_options(command: F) -> F:
    """Add the options that describe a schema."""
    for option in (
        click.option("--normalize", is_flag=True, help="Normalize the schema first."),
        click.option(
            "--reference",
            "references",
            multiple=True,
            metavar="NAME=SUBJECT:VERSION",
            help="Schema that this one refers to; may be repeated.",
        ),
        click.option("--type", "kind", type=TYPES, default="AVRO", show_default=True, help="Type of the schema."),
        click.option("--file", "file", type=click.File("r", encoding="utf-8"), default="-", help="Default: stdin."),
        click.option("--subject", required=True, help="Subject, such as orders-value."),
    ):
        command = option(command)
    return command


def given_schema(given: dict[str, Any]) -> Any:  # noqa: ANN401 - a Schema
    """Read the schema that the options describe."""
    from kafkalike.schemas.confluent_types import Schema

    try:
        text = given["file"].read()
    except ValueError as cause:
        raise click.ClickException(f"the schema is not UTF-8: {cause}") from cause
    return Schema(text, given["kind"], tuple(map(_reference, given["references"])))


def _reference(given: str) -> SchemaReference:
    from kafkalike.schemas.confluent_types import SchemaReference

    name, sign, target = given.partition("=")
    subject, colon, version = target.rpartition(":")
    if not sign or not colon or not version.isdigit():
        raise click.UsageError(f"--reference: NAME=SUBJECT:VERSION is needed, not {given!r}")
    return SchemaReference(name, subject, int(version))


@click.group(cls=SuggestingGroup, epilog="Example: kafkalike schemas register --subject orders-value --file order.avsc")
@flags.version_option
def schemas() -> None:
    """Register, show, check and delete schemas, set levels and modes, export and import."""


@schemas.command()
@where_options
@schema_options
@pass_environment
def register(environment: Environment, /, **given: Any) -> None:  # noqa: ANN401 - options
    """Register a schema as a version of a subject, unless it is registered."""
    with open_client(environment, given) as client:
        made = client.register_schema_full_response(given["subject"], given_schema(given), given["normalize"])
    click.echo(f"Subject {given['subject']} version {made.version} has the schema, with id {made.schema_id}.")


@schemas.command()
@where_options
@schema_options
@click.option("--version", "version", metavar="N", help="Compare with this version only; a number or latest.")
@pass_environment
def check(environment: Environment, /, **given: Any) -> None:  # noqa: ANN401 - options
    """Check that a schema may be the next version of a subject, without registering it. Exit code 1: incompatible."""
    with open_client(environment, given) as client:
        problems = client.problems(
            given["subject"], given_schema(given), given["version"], normalize=given["normalize"]
        )
    for problem in problems:
        click.echo(problem)
    if problems:
        raise click.exceptions.Exit(1)
    click.echo("Compatible.")


@schemas.command()
@where_options
@click.option("--id", "schema_id", type=click.IntRange(1), help="Id of a schema.")
@click.option("--subject", help="Subject of a schema.")
@click.option("--version", "version", default="latest", show_default=True, help="Version of the subject.")
@click.option("--deleted", is_flag=True, help="Also find a soft-deleted version.")
@output_option("schema")
@pass_environment
def get(environment: Environment, /, **given: Any) -> None:  # noqa: ANN401 - options
    """Print a schema, by its id or its subject."""
    if (given["schema_id"] is None) == (given["subject"] is None):
        raise click.UsageError("Give either --id or --subject")
    with open_client(environment, given) as client:
        if given["schema_id"] is not None:
            schema = client.get_schema(given["schema_id"])
            known: dict[str, Any] = {"id": given["schema_id"]}
        else:
            found = client.get_version(given["subject"], given["version"], given["deleted"])
            schema = found.schema
            known = {"subject": found.subject, "version": found.version, "id": found.schema_id, "guid": found.guid}
    if not given["as_json"]:
        click.echo(schema.schema_str)
        return
    references = [asdict(reference) for reference in schema.references]
    known |= {"schemaType": schema.schema_type, "references": references, "schema": schema.schema_str}
    click.echo(json.dumps(known))


@schemas.command("list")
@where_options
@click.option("--prefix", default="", help="Prefix of the subjects.")
@click.option("--deleted", is_flag=True, help="Include soft-deleted subjects and versions.")
@output_option("subject")
@pass_environment
def list_(environment: Environment, /, **given: Any) -> None:  # noqa: ANN401 - options
    """List subjects with their versions."""
    with open_client(environment, given) as client:
        for subject in client.get_subjects(given["prefix"], given["deleted"]):
            versions = client.get_versions(subject, given["deleted"])
            latest = client.get_version(subject, versions[-1], given["deleted"])
            if given["as_json"]:
                row = (subject, latest.schema.schema_type, list(versions), latest.schema_id)
                echo_rows(("SUBJECT", "TYPE", "VERSIONS", "LATEST-ID"), [row], as_json=True)
                continue
            numbers = ",".join(map(str, versions))
            click.echo(f"{subject}\t{latest.schema.schema_type}\tversions {numbers}\tlatest id {latest.schema_id}")


@schemas.command()
@where_options
@click.option("--subject", required=True)
@click.option("--version", "version", metavar="N", help="A version, or latest; default: all versions.")
@click.option("--permanent", is_flag=True, help="Delete soft-deleted versions permanently.")
@pass_environment
def delete(environment: Environment, /, **given: Any) -> None:  # noqa: ANN401 - options
    """Soft-delete a subject or a version; then delete it permanently with --permanent."""
    with open_client(environment, given) as client:
        if given["version"] is None:
            gone = client.delete_subject(given["subject"], given["permanent"])
        else:
            gone = [client.delete_version(given["subject"], given["version"], given["permanent"])]
    how = "permanently" if given["permanent"] else "softly"
    click.echo(f"Deleted {how}: subject {given['subject']} versions {','.join(map(str, gone))}.")


def setting_options(command: F) -> F:
    """Add the options of a setting's subject and of its removal."""
    for option in (
        click.option("--delete", "forget", is_flag=True, help="Remove the setting."),
        click.option("--subject", help="Subject of the setting; default: all subjects without their own."),
    ):
        command = option(command)
    return command


@schemas.command()
@where_options
@setting_options
@click.option("--set", "level", metavar="LEVEL", help="BACKWARD, FORWARD, FULL, each also _TRANSITIVE, or NONE.")
@click.option("--normalize/--no-normalize", default=None, help="Normalize schemas by default.")
@pass_environment
def config(environment: Environment, /, **given: Any) -> None:  # noqa: ANN401 - options
    """Show or set the compatibility level of a subject, or the default of all subjects."""
    from kafkalike.schemas.confluent_types import ServerConfig

    changes = given["level"] is not None or given["normalize"] is not None
    if changes and given["forget"]:
        raise click.UsageError("--delete excludes --set and --normalize")
    with open_client(environment, given) as client:
        if given["forget"]:
            client.delete_config(given["subject"])
            click.echo("Removed.")
            return
        if changes:
            client.set_config(given["subject"], ServerConfig(given["level"], None, given["normalize"]))
        found = client.get_config(given["subject"])
    click.echo(found.compatibility_level)
    if found.normalize is not None:
        click.echo(f"normalize={str(found.normalize).lower()}")


@schemas.command()
@where_options
@setting_options
@click.option("--set", "mode", metavar="MODE", help="READWRITE, READONLY, READONLY_OVERRIDE or IMPORT.")
@click.option("--force", is_flag=True, help="Set IMPORT even if schemas exist.")
@pass_environment
def mode(environment: Environment, /, **given: Any) -> None:  # noqa: ANN401 - options
    """Show or set the mode of a subject, or the default of all subjects."""
    if given["mode"] is not None and given["forget"]:
        raise click.UsageError("--delete excludes --set")
    subject = given["subject"]
    with open_client(environment, given) as client:
        if given["forget"]:
            client.delete_mode(subject)
            click.echo("Removed.")
        elif given["mode"] is not None:
            click.echo(client.update_mode(subject, given["mode"], given["force"]))
        else:
            click.echo(client.get_global_mode() if subject is None else client.get_mode(subject))


@schemas.command("export")
@flags.cluster_options
@click.option("--prefix", default="", help="Prefix of the subjects; schemas that they refer to are included.")
@click.option(
    "--file", "file", type=click.File("w", encoding="utf-8", atomic=True), default="-", help="Default: stdout."
)
@pass_environment
def export(environment: Environment, /, **given: Any) -> None:  # noqa: ANN401 - options
    """Print schemas, levels and modes as records of Confluent's topic _schemas: key, tab and value."""
    for line in open_own(environment, given).export_records(given["prefix"]):
        given["file"].write(line + "\n")


@schemas.command("import")
@flags.cluster_options
@click.option("--file", "file", type=click.File("r", encoding="utf-8"), default="-", help="Default: stdin.")
@click.option("--dry-run", is_flag=True, help="Only print what would be imported.")
@pass_environment
def import_(environment: Environment, /, **given: Any) -> None:  # noqa: ANN401 - options
    """Import the records of a topic _schemas with their ids and versions, all or none."""
    try:
        done = open_own(environment, given).import_records(given["file"], dry_run=given["dry_run"])
    except UnicodeDecodeError as cause:
        raise click.ClickException(f"the records are not UTF-8: {cause}") from cause
    what = "Would import" if given["dry_run"] else "Imported"
    imported = f"{counted(done.versions, 'version')} and {counted(done.settings, 'setting')}"
    click.echo(f"{what} {imported}; {counted(done.known, 'version')} existed.")


LOOK_SECONDS: Final = 0.1
"""Interval at which the server checks for a signal."""

TOKEN: Final = "KAFKALIKE_REGISTRY_TOKEN"  # noqa: S105 - the name of a variable
USERS: Final = "KAFKALIKE_REGISTRY_USERS"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    bootstrap_server: str | None
    command_config: str | None
    host: str
    port: int
    token_file: str | None
    users_file: str | None
    anyone: bool
    read_only: bool
    max_body: int
    tls_cert_file: str | None
    tls_key_file: str | None


@click.command(epilog="Example: kafkalike schema-registry --port 8081")
@flags.cluster_options
@click.option("--port", type=click.IntRange(0, 65_535), default=8081, show_default=True, help="0 finds a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve at.")
@click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help=f"Accepted bearer tokens, one per line; also ${TOKEN}.",
)
@click.option(
    "--users-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help=f"Accepted users, name:password, one per line; also ${USERS}, separated by commas.",
)
@click.option("--anyone", is_flag=True, help="Serve on a network address without tokens and users.")
@click.option("--read-only", is_flag=True, help="Refuse every change.")
@click.option(
    "--max-body",
    type=click.IntRange(1_024, 1 << 30),
    default=4 * 1024 * 1024,
    show_default=True,
    help="Maximum bytes of a request.",
)
@flags.tls_options
@flags.version_option
@pass_options(_Options)
def schema_registry(environment: Environment, options: _Options) -> None:
    """Serve the schemas of a cluster to clients of Confluent's registry, until SIGTERM or Ctrl-C."""
    from kafkalike.schemas.service.registry_service import RegistryServer, RegistryService

    tls = flags.certificate(options.tls_cert_file, options.tls_key_file)
    cluster = environment.cluster_of(options.bootstrap_server, options.command_config)
    credentials = _credentials(options)
    with Interrupt() as interrupt:
        server = RegistryServer(
            RegistryService(cluster, read_only=options.read_only, clock=environment.clock),
            host=options.host,
            port=options.port,
            credentials=credentials,
            max_body=options.max_body,
            anyone=options.anyone,
            certificate=tls,
        )
        try:
            # Fail at the start if the schemas cannot be read, not at the first request.
            cluster.schemas.refresh()
            server.start()
            click.echo(f"Serving schemas of {cluster.root} at {server.url}", err=True)
            while not interrupt.is_requested and server.running:
                environment.clock.sleep(LOOK_SECONDS)
        finally:
            server.stop()


def _credentials(options: _Options) -> Credentials:
    from kafkalike.schemas.service.credentials import credentials

    tokens = [os.environ.get(TOKEN, ""), *_lines(options.token_file)]
    users = [*os.environ.get(USERS, "").split(","), *_lines(options.users_file)]
    made = credentials(tokens, users)
    if not made.needed and (options.token_file or options.users_file):
        raise KafkaConfigurationError(
            "the file of tokens or users has no entry: write a token, or name:password, per line"
        )
    return made


def _lines(path: str | None) -> list[str]:
    try:
        return [] if path is None else Path(path).read_text().splitlines()
    except (OSError, ValueError) as cause:
        raise KafkaConfigurationError(f"{path} cannot be read: {cause}") from cause
