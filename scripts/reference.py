"""Write `setting_types.py` and four pages of `docs/reference`: settings, errors, benchmarks and commands.

python -m scripts.reference

The fields of the settings' dataclasses, their types, defaults and docstrings are the only place that says what a client
takes; the properties of topics and servers likewise. What differs from Kafka is said here.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Final

from kafkalike.model.config import admin_config, consumer_config, producer_config
from kafkalike.model.config.client_config import NO_MEANING
from kafkalike.model.config.properties import LONG_MAX, Property
from kafkalike.model.config.server_config import SERVER_PROPERTIES
from kafkalike.model.config.topic_config import TOPIC_PROPERTIES
from scripts import reference_benchmarks, reference_commands, reference_errors

ROOT: Final = Path(__file__).parents[1]
TYPED: Final = ROOT / "kafkalike" / "model" / "config" / "setting_types.py"
PAGE: Final = ROOT / "docs" / "reference" / "settings.md"
ERRORS: Final = ROOT / "docs" / "reference" / "errors.md"
BENCHMARKS: Final = ROOT / "docs" / "reference" / "benchmarks.md"
COMMANDS: Final = ROOT / "docs" / "reference" / "cli.md"

WIDTH: Final = 116

_ALL: Final = {
    "bootstrap_servers": "host and port of brokers",
    "storage_options": "not there",
    "metric_reporters": "classes that are told of metrics",
}
_PRODUCER: Final = {
    "acks": "1 waits for one broker, `all` for the replicas in sync",
    "batch_size": "the most bytes of a batch",
    "compression_type": "codec of batches on the wire and in the log",
    "linger_ms": "5 by default in the Java client since 4.0",
    "partitioner": "without a key, Java's keeps to one partition for a batch",
    "request_timeout_ms": "how long a broker may take to answer",
    "transaction_timeout_ms": "readers of committed records wait for an open transaction",
}
_CONSUMER: Final = {
    "allow_auto_create_topics": "asking for a topic may create it",
    "consumer_timeout_ms": "kafka-python's; not in the Java client",
    "errors_tolerance": "a setting of Kafka Connect, not of consumers",
    "errors_deadletterqueue_topic_name": "Kafka Connect's; empty by default, which writes no letters",
    "errors_deadletterqueue_context_headers_enable": "Kafka Connect's; False by default",
    "errors_log_enable": "Kafka Connect's",
    "errors_log_include_messages": "Kafka Connect's",
    "fetch_min_bytes": "a broker holds the answer back",
    "isolation_level": "`read_uncommitted` reads records of open and aborted transactions",
    "partition_assignment_strategy": "`range`, `cooperative-sticky` by default in the Java client",
    "session_timeout_ms": "the broker has bounds for it",
}

TAKEN: Final = {"storage_options": "StorageOptionsLike | None"}
"""Types of what a user may give where it is not that of the checked field."""

UNITS: Final = (
    (re.compile(r".*(_|\.)ms$"), "ms"),
    (re.compile(r".*(_|\.)minutes$"), "minutes"),
    (re.compile(r".*(_|\.)hours$"), "hours"),
    (re.compile(r".*(_|\.)bytes$|buffer_memory|batch_size|max_request_size|.*\.message\.max\.bytes"), "bytes"),
    (re.compile(r".*_records$"), "records"),
)

Kind = type[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting of a client."""

    name: str
    type: str
    default: str
    unit: str
    meaning: str
    kafka: str
    """What Kafka does differently; empty where it does the same."""
    effect: bool
    """Whether it changes anything here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One client and its settings."""

    title: str
    typed: str
    """Name of the TypedDict."""
    settings: tuple[Setting, ...]


def docstrings(kind: Kind) -> dict[str, str]:
    """Docstrings of the fields of a dataclass, inherited ones included."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(node, ast.ClassDef)
        for field, text in zip(node.body, node.body[1:], strict=False):
            match field, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str() as said)),
                ):
                    found[name] = " ".join(said.split())
    return found


def unit_of(name: str) -> str:
    """The unit of a setting of that name; empty where it is no quantity."""
    return next((unit for pattern, unit in UNITS if pattern.fullmatch(name)), "")


def shown(value: object) -> str:
    """A default as it is written in code."""
    return "inf" if value == math.inf else repr(value)


def settings_of(kind: Kind, idle: frozenset[str], differences: Mapping[str, str]) -> tuple[Setting, ...]:
    """All settings of a client, those with an effect first, then by name."""
    meanings = docstrings(kind)
    unknown = differences.keys() - meanings.keys()
    assert not unknown, f"differences of settings that are not there: {unknown}"
    found = [
        Setting(
            name=field.name,
            type=TAKEN.get(field.name, str(field.type)),
            default="required" if field.default is MISSING else shown(field.default),
            unit=unit_of(field.name),
            meaning=meanings[field.name],
            kafka=differences.get(field.name, ""),
            effect=field.name not in idle,
        )
        for field in fields(kind)
    ]
    return tuple(sorted(found, key=lambda setting: (not setting.effect, setting.name)))


def clients() -> tuple[Client, ...]:
    """The three clients."""
    of_admin = {name: text for name, text in _ALL.items() if name != "metric_reporters"}
    return (
        Client(
            title="KafkaProducer",
            typed="ProducerSettings",
            settings=settings_of(producer_config.ProducerConfig, producer_config.WITHOUT_EFFECT, {**_ALL, **_PRODUCER}),
        ),
        Client(
            title="KafkaConsumer",
            typed="ConsumerSettings",
            settings=settings_of(consumer_config.ConsumerConfig, consumer_config.WITHOUT_EFFECT, {**_ALL, **_CONSUMER}),
        ),
        Client(
            title="KafkaAdminClient",
            typed="AdminSettings",
            settings=settings_of(admin_config.AdminConfig, admin_config.NO_EFFECT, of_admin),
        ),
    )


# --- the types ---------------------------------------------------------------------------------

HEAD: Final = '''"""Settings of the clients, as type checkers and `help()` see them; `make reference` writes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict, TypeVar

from kafkalike.model.config.storage_options import Address, StorageOptionsLike

C = TypeVar("C")


def documented(settings: type[Any]) -> Callable[[type[C]], type[C]]:
    """Put what a TypedDict says of settings below the docstring of the client that takes them."""

    def add(client: type[C]) -> type[C]:
        client.__doc__ = f"{client.__doc__}\\n    Settings:\\n{settings.__doc__}"
        return client

    return add
'''


def _lines(setting: Setting) -> Iterator[str]:
    told = f"{setting.name} ({setting.type}, default {setting.default}{setting.unit and ', '}{setting.unit}): "
    told += setting.meaning + (f" Kafka: {setting.kafka}." if setting.kafka else "")
    yield from textwrap.wrap(told, WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8, break_long_words=False)


def typed() -> str:
    """The module of TypedDicts."""
    parts = [HEAD]
    for client in clients():
        names = [f"    {setting.name}: {setting.type}" for setting in client.settings]
        used = [line for setting in client.settings if setting.effect for line in _lines(setting)]
        idle = ", ".join(setting.name for setting in client.settings if not setting.effect)
        without = textwrap.wrap(
            f"Without effect, for ported code: {idle}.", WIDTH, initial_indent="    ", subsequent_indent="        "
        )
        parts.append(
            "\n".join(
                [
                    f"class {client.typed}(TypedDict, total=False):",
                    f'    """Settings of a `{client.title}`.',
                    "",
                    *used,
                    *without,
                    '    """',
                    "",
                    *names,
                    "",
                ]
            )
        )
    return "\n\n".join(parts)


# --- the page ----------------------------------------------------------------------------------


HEADS: Final = ("setting", "default", "meaning")
"""Three columns: more leave no room for the meaning."""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return [f"| {' | '.join(map(_cell, line))} |" for line in lines]


def _client_page(client: Client) -> list[str]:
    rows = [
        (
            f"`{s.name}`<br>`{s.type}`",
            f"`{s.default}` {s.unit}".rstrip(),
            s.meaning + (f" *Kafka: {s.kafka}.*" if s.kafka else ""),
        )
        for s in client.settings
        if s.effect
    ]
    idle = ", ".join(f"`{s.name}`" for s in client.settings if not s.effect)
    return [
        f"## {client.title}",
        "",
        *_table(HEADS, rows),
        "",
        f"Taken for ported code, without effect: {idle}.",
        "",
    ]


def _property_rows(properties: Mapping[str, Property]) -> list[tuple[str, ...]]:
    return [
        (f"`{p.name}`", f"`{p.default}` {unit_of(p.name)}".rstrip() if p.default else "(empty)", p.doc)
        for p in sorted(properties.values(), key=lambda p: p.name)
    ]


def page() -> str:
    """The page of all settings."""
    lines = [
        "# Settings",
        "",
        "<!-- Written by `make reference`; tests say when it is out of date. -->",
        "",
        "Every setting with its type, default, unit and meaning, and what Kafka does differently.",
        "Names and defaults of clients are kafka-python's; topics and servers use Kafka's.",
        "An unknown setting is refused, and the error names the nearest known one.",
        "In Python, `help(kafkalike.KafkaProducer)` shows them, and `KafkaProducer.DEFAULT_CONFIG` has the defaults.",
        "Type checkers know their names and types.",
        "In files for `--command-config` they are written with dots: `linger.ms=5`.",
        "",
    ]
    for client in clients():
        lines += _client_page(client)
    reasons: dict[str, list[str]] = {}
    for name, reason in NO_MEANING.items():
        reasons.setdefault(reason, []).append(name)
    lines += ["## Refused by all clients", ""]
    lines += [f"* {', '.join(f'`{n}`' for n in sorted(names))}: {reason}." for reason, names in reasons.items()]
    lines += [
        "",
        "None, an empty text and kafka-python's default, such as `security_protocol=PLAINTEXT`, are accepted.",
    ]
    lines += [
        "",
        "## Topics",
        "",
        "Set them with `kafkalike topics --create --config`, `kafkalike configs --alter` or `KafkaAdminClient`.",
        f"`{LONG_MAX}` is as good as no limit.",
        "",
        *_table(HEADS, _property_rows(TOPIC_PROPERTIES.properties)),
        "",
        "Refused, with the reason:",
        "",
        *(f"* `{name}`: {reason}." for name, reason in sorted(TOPIC_PROPERTIES.meaningless.items())),
        "",
        "## Servers",
        "",
        "Defaults of the whole cluster, kept in its metadata ([operations](../operations.md#cluster-wide-defaults)).",
        "Change them with `kafkalike configs --entity-type brokers --entity-default --alter` or `KafkaAdminClient`.",
        "A file `server.properties` at a root, or the file named by `KAFKALIKE_SERVER_PROPERTIES`, seeds them once.",
        "`broker.rack` and `controller.quorum.voters` are read from a root's file alone.",
        "",
        *_table(HEADS, _property_rows(SERVER_PROPERTIES.properties)),
        "",
        "## Environment variables",
        "",
        *_table(
            ("variable", "meaning"),
            [
                ("`KAFKALIKE_BOOTSTRAP_SERVERS`", "The storage root where none is named; else `./kafkalike-data`."),
                (
                    "`KAFKALIKE_SERVER_PROPERTIES`",
                    "File that seeds the defaults of clusters whose roots have no `server.properties`.",
                ),
                ("`KAFKALIKE_DEBUG`", "`1`: the command line and jobs show tracebacks and log lines."),
                ("`KAFKALIKE_ALLOW_NETWORK_FILE_SYSTEM`", "`1`: a root may lie on a network file system."),
                ("`SPARK_MASTER`", "Spark master of `kafkalike.spark.session`, if no other setting names it."),
            ],
        ),
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    """Write the files."""
    TYPED.write_text(typed(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
    ERRORS.write_text(reference_errors.page(), encoding="utf-8")
    BENCHMARKS.write_text(reference_benchmarks.page(), encoding="utf-8")
    COMMANDS.write_text(reference_commands.page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
