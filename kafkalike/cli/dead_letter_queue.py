"""`kafkalike dlq`: list dead-letter topics, show letters with their cause, and replay them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kafkalike.cli.environment import Environment, SuggestingGroup, keep_where, where
from kafkalike.cli.options import cluster_options, version_option
from kafkalike.cli.output import content_text, counted, echo_rows, output_option

if TYPE_CHECKING:
    from kafkalike.admin.dead_letter_queue import DeadLetters
    from kafkalike.admin.dead_letter_replay import Replay
    from kafkalike.log.dead_letter_topic import Filter, StoredLetter

F = TypeVar("F", bound=Callable[..., Any])

GROUP: Final = "dlq-replay"
SHORT: Final = 60
"""Maximum characters of a key or value in the output."""

UNSAID: Final = "-"


def _filters(command: F) -> F:
    for option in (
        click.option("--offsets", metavar="FROM-TO", help="Only these offsets, inclusive: 7, 3-9, 12-."),
        click.option("--partition", type=int, help="Only this partition of the dead-letter topic."),
        click.option("--source-topic", "source", help="Only letters from this source topic."),
        click.option("--error-class", help="Only letters with this error class, with or without its module."),
        click.option("--topic", required=True, help="The dead-letter topic."),
    ):
        command = option(command)
    return command


@click.group(
    cls=SuggestingGroup,
    epilog="Example: kafkalike dlq replay --topic orders.dlq --error-class ValueError --execute",
    context_settings={"help_option_names": ["--help"]},
)
@cluster_options
@version_option
@click.pass_context
def dlq(context: click.Context, /, *, bootstrap_server: str | None, command_config: str | None) -> None:
    """List dead-letter topics, show letters with their cause, and replay them."""
    keep_where(context, bootstrap_server, command_config)


@dlq.command("list")
@cluster_options
@click.option("--topic", "topics", multiple=True, help="Only this topic; repeatable. Default: all topics with letters.")
@click.option("--group", default=GROUP, show_default=True, help="Group that tracks replayed letters.")
@output_option("topic")
@click.pass_context
def list_(
    context: click.Context,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    topics: tuple[str, ...],
    group: str,
    as_json: bool,
) -> None:
    """List dead-letter topics, with counts by error class.

    A dead-letter topic has a name that ends with .dlq, or a dead letter as its first record.
    """
    found = _letters(context, bootstrap_server, command_config).topics(topics, group)
    if as_json:
        for topic in found:
            click.echo(
                json.dumps(
                    {
                        "topic": topic.topic,
                        "letters": topic.letters,
                        "waiting": topic.waiting,
                        "classes": topic.classes,
                        "sources": topic.sources,
                    }
                )
            )
        return
    rows = [
        (topic.topic, topic.letters, topic.waiting, name or UNSAID, count)
        for topic in found
        for name, count in (topic.classes or {"": 0}).items()
    ]
    echo_rows(("TOPIC", "LETTERS", "WAITING", "ERROR-CLASS", "COUNT"), rows, as_json=False, separator="  ")


@dlq.command()
@cluster_options
@_filters
@click.option("--max-messages", type=click.IntRange(min=1), help="Maximum number of letters.")
@click.option("--stacktrace", is_flag=True, help="Print the stack trace of each letter.")
@output_option("letter")
@click.pass_context
def show(
    context: click.Context,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    topic: str,
    max_messages: int | None,
    stacktrace: bool,
    as_json: bool,
    **filters: Any,  # noqa: ANN401 - see `_filter`
) -> None:
    """Show letters with their source and their cause."""
    letters = _letters(context, bootstrap_server, command_config).read(topic, _filter(**filters))
    for letter in islice(letters, max_messages):
        if as_json:
            click.echo(json.dumps(_as_json(letter)))
            continue
        about = letter.context
        origin = UNSAID if about is None or about.origin is None else f"{about.origin.topic}-{about.origin.partition}"
        offset = UNSAID if about is None or about.offset is None else about.offset
        click.echo(f"{letter.topic}-{letter.partition} offset {letter.offset}: from {origin} offset {offset}")
        time = datetime.fromtimestamp(letter.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
        click.echo(f"  key: {_short(letter.key)}  value: {_short(letter.value)}  time: {time}")
        if about is not None:
            click.echo(f"  {about.stage} {about.class_name}: {about.exception}: {about.message}")
            if stacktrace:
                click.echo("".join(f"    {line}\n" for line in about.stacktrace.splitlines()), nl=False)


@dlq.command()
@cluster_options
@_filters
@click.option("--to", help="Replay to this topic. Default: the source topic of a letter.")
@click.option("--group", default=GROUP, show_default=True, help="Group that tracks replayed letters.")
@click.option("--execute", is_flag=True, help="Replay; default: only report.")
@click.option("--dry-run", is_flag=True, help="Only report, the default.")
@output_option("report")
@click.pass_context
def replay(
    context: click.Context,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    topic: str,
    to: str | None,
    group: str,
    execute: bool,
    dry_run: bool,
    as_json: bool,
    **filters: Any,  # noqa: ANN401 - see `_filter`
) -> None:
    """Send letters back to their topics, each once, without the error headers.

    A transaction commits the records with the group's progress. Without --execute nothing is written.
    """
    if execute and dry_run:
        raise click.UsageError("--execute and --dry-run exclude each other")
    letters = _letters(context, bootstrap_server, command_config)
    done = letters.replay(topic, _filter(**filters), to=to, group=group, dry_run=not execute)
    if as_json:
        click.echo(json.dumps(_replay_json(done)))
        return
    echo_rows(("TARGET", "LETTERS"), sorted(done.targets.items()), as_json=False, separator="  ")
    what = "replayed" if execute else "would be replayed; use --execute"
    click.echo(f"{counted(done.letters, 'letter')} {what}. Replayed before: {done.skipped}, left: {done.left}.")


def _letters(context: click.Context, bootstrap_server: str | None, command_config: str | None) -> DeadLetters:
    """Open the letters of the cluster; options after the action override options before it."""
    from kafkalike.admin.dead_letter_queue import DeadLetters

    environment = context.find_object(Environment) or Environment()
    cluster = environment.existing(*where(context, bootstrap_server, command_config))
    return DeadLetters(cluster, clock=environment.clock)


def _filter(*, error_class: str | None, source: str | None, partition: int | None, offsets: str | None) -> Filter:
    from kafkalike.log.dead_letter_topic import Filter

    return Filter(
        error_class=error_class,
        source=source,
        partition=partition,
        offsets=None if offsets is None else _range(offsets),
    )


def _range(text: str) -> range:
    first, dash, last = text.partition("-")
    if not (first.isdecimal() and (last.isdecimal() or (bool(dash) and not last) or not dash)):
        raise click.UsageError(f"--offsets: an offset, FROM-TO or FROM- is needed, not {text!r}")
    start = int(first)
    stop = start + 1 if not dash else int(last) + 1 if last else 2**63
    if stop <= start:
        raise click.UsageError(f"--offsets: {text!r} holds no offset")
    return range(start, stop)


def _short(data: bytes | None) -> str:
    text = content_text(data)
    if text is None:
        return "null"
    shown = text.encode("unicode_escape").decode()
    return shown if len(shown) <= SHORT else shown[:SHORT] + "..."


def _as_json(letter: StoredLetter) -> Mapping[str, Any]:
    about = letter.context
    found: dict[str, Any] = {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp": letter.timestamp_ms,
        "key": content_text(letter.key),
        "value": content_text(letter.value),
        "headers": [[name, content_text(content)] for name, content in letter.headers],
    }
    if about is not None:
        found["error"] = {
            "topic": None if about.origin is None else about.origin.topic,
            "partition": None if about.origin is None else about.origin.partition,
            "offset": about.offset,
            "connector.name": about.connector,
            "task.id": about.task,
            "stage": about.stage,
            "class.name": about.class_name,
            "exception.class.name": about.exception,
            "exception.message": about.message,
            "exception.stacktrace": about.stacktrace,
        }
    return found


def _replay_json(done: Replay) -> Mapping[str, Any]:
    return {
        "executed": done.executed,
        "letters": done.letters,
        "skipped": done.skipped,
        "left": done.left,
        "targets": dict(done.targets),
        "classes": dict(done.classes),
        "offsets": {
            f"{tp.topic}-{tp.partition}": [[run.start, run.stop] for run in runs] for tp, runs in done.ranges.items()
        },
    }
