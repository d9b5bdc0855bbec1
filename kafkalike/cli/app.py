"""Command group: load commands on demand, configure the log, and turn errors into exit codes."""

from __future__ import annotations

import errno
import importlib
import json
import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn, cast

import click
from click.shell_completion import CompletionItem, get_completion_class, shell_complete

from kafkalike.cli.environment import Environment, SuggestingGroup, Terminated, termination
from kafkalike.cli.options import version_option
from kafkalike.errors import KafkaError
from kafkalike.errors.optional_imports import advice
from kafkalike.model.clock import utc_text
from kafkalike.model.config.client_config import ROOT_VARIABLE, default_bootstrap_servers

LEVELS: Final = ("debug", "info", "warning", "error")
FORMS: Final = ("text", "json")


class JsonLogFormatter(logging.Formatter):
    """Formats each message as one line of JSON, for log collectors."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the fields time, level, logger, message, process and thread, and error for an exception."""
        told = {
            "time": utc_text(int(record.created * 1000)),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
            "thread": record.threadName,
        }
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told)


class TextLogFormatter(logging.Formatter):
    """Formats each message as one line of text: groups and members have names with any characters."""

    def __init__(self) -> None:
        super().__init__("%(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        """Return level and message, control characters escaped, so that no name looks like another line."""
        return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), super().formatMessage(record))


_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def configure(level: str, form: str) -> None:
    """Write the log of this process to standard error, unless logging is configured already.

    Args:
        level: lowest level to write, from `LEVELS`.
        form: from `FORMS`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLogFormatter() if form == "json" else TextLogFormatter())
    logging.basicConfig(handlers=[handler], level=level.upper())


DEBUG_VARIABLE: Final = "KAFKALIKE_DEBUG"

LOG_OPTIONS: Final = ("--log-level", "--log-format")

KAFKAS: Final = frozenset(
    {
        "configs",
        "console-consumer",
        "console-producer",
        "consumer-groups",
        "delete-records",
        "dump-log",
        "get-offsets",
        "leader-election",
        "log-dirs",
        "metadata-quorum",
        "reassign-partitions",
        "share-groups",
        "topics",
        "transactions",
    }
)
"""Commands that Kafka has, too. Wrong usage of them exits with 1, as in Kafka."""

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "topics": ("kafkalike.cli.topics.topic_commands:topics", "Create, list, describe, alter and delete topics."),
    "configs": ("kafkalike.cli.topics.config_commands:configs", "Describe and alter settings of topics."),
    "console-producer": ("kafkalike.cli.console_producer:console_producer", "Send lines from standard input."),
    "console-consumer": (
        "kafkalike.cli.console_consumer:console_consumer",
        "Print records to standard output.",
    ),
    "consumer-groups": (
        "kafkalike.cli.groups.consumer_groups:consumer_groups",
        "List, describe, delete and reset groups.",
    ),
    "share-groups": (
        "kafkalike.cli.groups.share_groups:share_groups",
        "List, describe, delete and reset share groups, which are work queues.",
    ),
    "transactions": (
        "kafkalike.cli.transaction_commands:transactions",
        "List, describe and abort transactions, and find hanging ones.",
    ),
    "metrics": ("kafkalike.cli.http_servers:metrics", "Serve lag and sizes to Prometheus, or print them as JSON."),
    "get-offsets": ("kafkalike.cli.topics.offset_commands:get_offsets", "Print offsets of partitions by time."),
    "snapshot": (
        "kafkalike.cli.topics.offset_commands:snapshot_command",
        "Print versions of topics and offsets of groups at one moment.",
    ),
    "delete-records": ("kafkalike.cli.topics.offset_commands:delete_records", "Delete records below an offset."),
    "dump-log": ("kafkalike.cli.log.dump_log:dump_log", "Print table commits, segments and records of a topic."),
    "maintain": ("kafkalike.cli.log.maintain:maintain", "Apply retention and compaction, merge small files, vacuum."),
    "brokers": ("kafkalike.cli.broker_commands:brokers", "List, add, drain and remove storage roots."),
    "replicate": ("kafkalike.cli.broker_commands:replicate", "Bring replicas in sync, or describe their lag."),
    "leader-election": (
        "kafkalike.cli.partition_leaders:leader_election",
        "Let preferred replicas lead, or elect unclean leaders.",
    ),
    "reassign-partitions": (
        "kafkalike.cli.partition_leaders:reassign_partitions",
        "Move replicas to other brokers.",
    ),
    "log-dirs": ("kafkalike.cli.broker_commands:log_dirs", "Print sizes of replicas by broker."),
    "mirror": (
        "kafkalike.cli.mirror_command:mirror",
        "Copy topics and groups to another cluster at the same offsets; promote the copies.",
    ),
    "history": (
        "kafkalike.cli.log.topic_history:history",
        "Show who appended, retained, compacted and configured what.",
    ),
    "forget": (
        "kafkalike.cli.log.topic_history:forget",
        "Remove all records of keys from a topic; with a certificate.",
    ),
    "undo": ("kafkalike.cli.log.topic_history:undo", "Remove the records of one append."),
    "fork": (
        "kafkalike.cli.log.topic_history:fork",
        "Copy a version of a topic to a new topic, without reading records.",
    ),
    "verify": ("kafkalike.cli.log.verify:verify", "Check the logs of a cluster for damage."),
    "metadata-quorum": (
        "kafkalike.cli.metadata_quorum:metadata_quorum",
        "Describe the voters on the cluster's metadata.",
    ),
    "recover": ("kafkalike.cli.metadata_quorum:recover", "Continue without lost roots, and report the loss."),
    "schemas": (
        "kafkalike.cli.schema_commands:schemas",
        "Register, show, check, delete, export and import schemas.",
    ),
    "schema-registry": (
        "kafkalike.cli.schema_commands:schema_registry",
        "Serve schemas over Confluent's REST interface.",
    ),
    "ui": ("kafkalike.cli.http_servers:ui", "Serve a web console: topics, records, groups and lag in a browser."),
    "dlq": (
        "kafkalike.cli.dead_letter_queue:dlq",
        "List dead-letter topics, show and replay letters.",
    ),
    "sql": ("kafkalike.cli.sql_shell:sql", "Query topics in SQL, at a prompt or with -e."),
    "sql-views": ("kafkalike.cli.paths:sql_views", "Print SQL that creates views of topics, for spark-sql."),
    "completion": ("kafkalike.cli.app:completion", "Print a script that lets a shell complete commands."),
    "gateway": ("kafkalike.cli.gateway:gateway", "Serve Kafka's wire protocol to clients in any language."),
    "job-path": ("kafkalike.cli.paths:job_path", "Print the path of a job for spark-submit."),
    "conf-path": ("kafkalike.cli.paths:conf_path", "Print the folder of the settings for spark-submit."),
    "docs-path": ("kafkalike.cli.paths:docs_path", "Print the folder of the documentation."),
    "notebooks": ("kafkalike.cli.paths:notebooks", "Copy the notebooks to a folder and open them in JupyterLab."),
    "demo": ("kafkalike.cli.demo.tour:demo", "Show kafkalike on real data."),
}
"""Module and help text by command. `kafkalike --help` imports none of the modules."""


FIRST: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "Topics and records": (
        ("kafkalike topics --create --topic orders --partitions 3", "create a topic"),
        ("echo hello | kafkalike console-producer --topic orders", "send lines"),
        ("kafkalike console-consumer --topic orders --from-beginning", "print records"),
        ("kafkalike schemas list", "schemas, versions"),
    ),
    "Groups and failures": (
        ("kafkalike consumer-groups --describe --all-groups --lag", "who lags"),
        ("kafkalike dlq list", "dead letters"),
    ),
    "Operations": (
        ("kafkalike ui", "a web console"),
        ("kafkalike history orders", "who did what"),
        ("kafkalike maintain --dry-run", "work that is due"),
        ("kafkalike verify", "check all records"),
    ),
}
"""The commands that one needs first, each with an example and its purpose."""


def overview(root: str) -> str:
    """Return the text that `kafkalike` prints without arguments."""
    width = max(len(example) for rows in FIRST.values() for example, _ in rows)
    sections = [
        "\n".join([head, *(f"  {example:<{width}}  {purpose}" for example, purpose in rows)])
        for head, rows in FIRST.items()
    ]
    hints = (
        f"The cluster is at {root}.\n"
        f"${ROOT_VARIABLE} or --bootstrap-server names another folder or URI.\n"
        "First time? kafkalike demo. All commands: kafkalike --help"
    )
    return "\n\n".join(["Kafka's command line for topics that are Delta tables", *sections, hints])


_NO_ARGUMENTS: Final[type[click.UsageError] | tuple[()]] = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""Exception that click 8.2 and newer raise for a command without arguments. Older ones print the help themselves."""


def own_name(command: str) -> str:
    """Return the command's own name, given that name or the name of Kafka's script.

    >>> own_name("kafka-topics.sh"), own_name("topics")
    ('topics', 'topics')
    """
    return command.removeprefix("kafka-").removesuffix(".sh")


class LazyGroup(SuggestingGroup):
    """Group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names in the order of `COMMANDS`."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name; `kafka-topics` and `kafka-topics.sh` mean `topics`."""
        del ctx
        name = own_name(cmd_name)
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name][0].partition(":")
        return cast("click.Command", getattr(importlib.import_module(module), attribute))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names of commands and options without importing a command."""
        names = [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing a command."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["--help"], "max_content_width": 120},
    epilog="Example: kafkalike topics --create --topic orders --partitions 3",
)
@click.option("--debug", is_flag=True, help=f"Show tracebacks and log lines; also with {DEBUG_VARIABLE}=1.")
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    envvar="KAFKALIKE_LOG_LEVEL",
    help="Level of the log on standard error; default: warning, or debug with --debug. Also $KAFKALIKE_LOG_LEVEL.",
)
@click.option(
    "--log-format",
    type=click.Choice(FORMS),
    default="text",
    envvar="KAFKALIKE_LOG_FORMAT",
    help="Format of the log: lines of text (the default) or of JSON. Also $KAFKALIKE_LOG_FORMAT.",
)
@version_option
def app(*, debug: bool, log_level: str | None, log_format: str) -> None:
    """Kafka's command line for a log that lives in Delta tables.

    A cluster is a storage root: --bootstrap-server names a folder or URI. The default is the environment variable
    KAFKALIKE_BOOTSTRAP_SERVERS, else ./kafkalike-data.
    """
    configure(log_level or ("debug" if debug else "warning"), log_format)


def run(args: Sequence[str] | None = None, environment: Environment | None = None) -> int:
    """Run one command and return its exit code; see `kafkalike.cli.main`.

    Args:
        args: arguments after `kafkalike`; default `sys.argv[1:]`.
        environment: cluster, clock and streams of a test, or the Spark session of a job.
    """
    answered = completed(app)
    if answered is not None:
        return answered
    given = list(sys.argv[1:] if args is None else args)
    debug = "--debug" in given or os.environ.get(DEBUG_VARIABLE, "") not in {"", "0"}
    given = hoisted([*(["--debug"] if debug else []), *(arg for arg in given if arg != "--debug")])
    try:
        with termination():
            code = _invoke(given, environment or Environment())
            sys.stdout.flush()
    except Terminated:
        return 143
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return _reader_went_away()
    except Exception as error:  # the outermost frame: users get one line instead of a traceback
        if debug:
            raise
        return _failed(error)
    return code


def hoisted(args: Sequence[str]) -> list[str]:
    """Move options of the log to the front: click expects them there, and users write them after the command.

    >>> hoisted(["topics", "--list", "--log-level", "info", "--log-format=json"])
    ['--log-level', 'info', '--log-format=json', 'topics', '--list']
    """
    front: list[str] = []
    rest: list[str] = []
    words = iter(args)
    for word in words:
        if word in LOG_OPTIONS:
            front += [word, *([value] if (value := next(words, None)) is not None else [])]
        elif word == "--debug" or word.startswith(tuple(f"{option}=" for option in LOG_OPTIONS)):
            front.append(word)
        else:
            rest.append(word)
    return [*front, *rest]


def _invoke(args: list[str], environment: Environment) -> int:
    if not args:
        click.echo(overview(default_bootstrap_servers()))
        return 0
    # Not `app.main()`: it turns a broken pipe and Ctrl-C into its own messages.
    try:
        with app.make_context("kafkalike", args, obj=environment) as context:
            app.invoke(context)
    except _NO_ARGUMENTS as error:
        click.echo(error.format_message())
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "kafkalike"
        click.echo(f"Error: {error.format_message()} (see '{path} --help')", err=True)
        words = path.split()
        return 1 if len(words) > 1 and own_name(words[1]) in KAFKAS else 2
    except click.ClickException as error:
        click.echo(f"Error: {error.format_message()}", err=True)
        return error.exit_code
    return 0


def _failed(error: Exception) -> int:
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        return _reader_went_away()
    if isinstance(error, (KafkaError, OSError)):
        message = str(error)
    elif isinstance(error, ImportError) and (text := advice(error, "this command needs")):
        message = text
    else:
        message = f"{type(error).__name__}: {error} (--debug shows where)"
    click.echo("Error: " + " ".join(message.split("\n")), err=True)
    return 1


def _reader_went_away() -> int:
    """Redirect standard output to the null device, so that the interpreter's flush at exit cannot fail."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    return 141


def fail(message: str) -> NoReturn:
    """End a command with one line on standard error and exit code 1."""
    raise click.ClickException(message)


VARIABLE: Final = "_KAFKALIKE_COMPLETE"
"""Environment variable by which the shell's script asks `kafkalike` for completions."""

SHELLS: Final = ("bash", "zsh", "fish")


@click.command(epilog='Example, in ~/.bashrc: eval "$(kafkalike completion bash)"')
@click.argument("shell", type=click.Choice(SHELLS))
@version_option
@click.pass_context
def completion(context: click.Context, /, *, shell: str) -> None:
    """Print a script that completes commands, options and their values: for bash 4.4 and newer, zsh or fish."""
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the three of them"
    click.echo(kind(context.find_root().command, {}, "kafkalike", VARIABLE).source())


def completed(command: click.Command) -> int | None:
    """Print completions if the shell's script asks for them.

    Args:
        command: root of the command line.

    Returns:
        Exit code; None if this process was not started for a completion.
    """
    asked = os.environ.get(VARIABLE)
    return None if not asked else shell_complete(command, {}, "kafkalike", VARIABLE, asked)
