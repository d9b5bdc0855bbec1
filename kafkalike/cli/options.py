"""Options: what several commands share; root, settings files, flags that are refused or have no effect."""

from __future__ import annotations

import base64
import binascii
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kafkalike.version import __version__

STORAGE_OPTION: Final = re.compile(r"storage[._]options\.(?:(\S+://\S*)\.)?([^.]+)")
"""A line of a settings file that is an option of an object store: `storage.options.region=eu-west-1`."""

F = TypeVar("F", bound=Callable[..., Any])

MAX_PATTERN: Final = 1024
"""Characters of a topic pattern."""

TEXT_SETTINGS: Final = frozenset(
    {
        "auto_offset_reset",
        "bootstrap_servers",
        "client_id",
        "client_rack",
        "compression_type",
        "errors_deadletterqueue_topic_name",
        "group_id",
        "group_instance_id",
        "isolation_level",
        "transactional_id",
    }
)
"""Settings that stay text even when they look like numbers."""


def bootstrap_option(*more: str) -> Callable[[F], F]:
    """`--bootstrap-server`, and other names for it."""
    return click.option(
        "--bootstrap-server",
        *more,
        "bootstrap_server",
        metavar="ROOT",
        help="Storage root: a folder or URI. Default: $KAFKALIKE_BOOTSTRAP_SERVERS, else ./kafkalike-data.",
    )


def command_config_option(*more: str) -> Callable[[F], F]:
    """`--command-config`, and other names for it."""
    return click.option(
        "--command-config",
        *more,
        "command_config",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="File of client settings in .properties form; storage.options.NAME=VALUE is for object stores.",
    )


def cluster_options(command: F) -> F:
    """The options that name the cluster; of commands with actions, before the action or behind it."""
    return bootstrap_option()(command_config_option()(command))


def client_property(client: str) -> Callable[[F], F]:
    """The option for single settings of a command's client.

    Args:
        client: `producer` or `consumer`; the option has the name of Kafka's older commands, too.
    """
    return click.option(
        "--command-property",
        f"--{client}-property",
        "command_property",
        multiple=True,
        metavar="NAME=VALUE",
        help=f"Setting of the {client}; may be repeated.",
    )


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click calls it
    del param
    if value and not ctx.resilient_parsing:
        click.echo(__version__)
        ctx.exit()


def tls_options(command: F) -> F:
    """`--tls-cert-file` and `--tls-key-file` of commands that serve."""
    key = click.option(
        "--tls-key-file",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="Its key, without a password; by default in the same file.",
    )
    cert = click.option(
        "--tls-cert-file",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="Certificate, PEM, with those that vouch for it: serve https.",
    )
    # The certificate stands first in the help.
    return cert(key(command))


def certificate(cert_file: str | None, key_file: str | None) -> tuple[str, str | None] | None:
    """What `tls_options` say, as services want it; None for http.

    Raises:
        click.UsageError: a key without its certificate.
    """
    if cert_file is None:
        if key_file is not None:
            raise click.UsageError("--tls-key-file needs --tls-cert-file")
        return None
    return cert_file, key_file


def version_option(command: F) -> F:
    """`--version`."""
    return click.option(
        "--version",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_print_version,
        help="Print the version.",
    )(command)


def refused(flag: str, reason: str, *, is_flag: bool = False) -> Callable[[F], F]:
    """A flag of Kafka's that has no meaning here: giving it is a usage error that says why."""

    def check(ctx: click.Context, param: click.Parameter, value: object) -> None:
        del param
        if value not in {None, False, ()}:
            raise click.UsageError(f"{flag} has no meaning here: {reason}.", ctx)

    return click.option(
        flag, is_flag=is_flag, expose_value=False, hidden=True, callback=check, default=False if is_flag else None
    )


def without_effect(flag: str, reason: str, *, is_flag: bool = False) -> Callable[[F], F]:
    """A flag of Kafka's that tunes what does not exist here: a line on standard error says so."""

    def warn(ctx: click.Context, param: click.Parameter, value: object) -> None:
        del ctx, param
        if value not in {None, False, ()}:
            click.echo(f"Warning: {flag} has no effect: {reason}.", err=True)

    return click.option(
        flag, is_flag=is_flag, expose_value=False, hidden=True, callback=warn, default=False if is_flag else None
    )


def is_given(value: object) -> bool:
    """Whether an option was given: click passes None, False or nothing for one that was not."""
    return value is not None and value is not False and value != ()


def flag_name(option: str) -> str:
    """The flag of an option's Python name, without its dashes: `dry-run` of `dry_run`."""
    return option.replace("_", "-")


def check_belongs(options: object, action: str, allowed: Mapping[str, Collection[str]]) -> None:
    """Refuse options that do not belong to an action, in Kafka's words.

    Args:
        options: a command's options.
        action: what the command is to do.
        allowed: by option, the actions that it belongs to.

    Raises:
        click.UsageError: one was given that belongs to others.
    """
    for option, actions in allowed.items():
        if is_given(getattr(options, option)) and action not in actions:
            raise click.UsageError(f'Option "[{flag_name(option)}]" can\'t be used with option "[{flag_name(action)}]"')


def failures_are_printed() -> None:
    """Keep the producer from logging what the command itself prints, one line per failure; not with --debug."""
    if logging.getLogger().getEffectiveLevel() > logging.DEBUG:
        logging.getLogger("kafkalike.producer").setLevel(logging.ERROR)


def key_values(pairs: Iterable[str], flag: str) -> dict[str, str]:
    """`k=v` texts as a dict; the value may hold `=` and be empty.

    Raises:
        click.UsageError: one has no `=`.
    """
    given = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name.strip():
            raise click.UsageError(f"{flag}: key=value is needed, not {pair!r}")
        given[name.strip()] = value
    return given


def read_properties(path: str | None) -> dict[str, str]:
    """Settings of a `.properties` file; none when there is no path.

    Raises:
        click.ClickException: it cannot be read or is malformed.
    """
    if path is None:
        return {}
    import javaproperties

    try:
        with Path(path).open("rb") as stream:
            return dict(javaproperties.load(stream))
    except (OSError, ValueError) as cause:
        raise click.ClickException(f"{path} cannot be read: {cause}") from cause


def client_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """Kafka's dotted settings as keyword arguments of a client: `linger.ms=5` becomes `linger_ms=5`.

    Numbers, `true` and `false` become what they look like; `TEXT_SETTINGS` stay text. What begins with
    `storage.options.` becomes one dict of texts, by the names behind it as they are.
    """
    settings: dict[str, Any] = {}
    for dotted, text in properties.items():
        stored = STORAGE_OPTION.fullmatch(dotted.strip())
        if stored is not None:
            options = settings.setdefault("storage_options", {})
            (options if stored[1] is None else options.setdefault(stored[1], {}))[stored[2]] = text.strip()
            continue
        name = dotted.strip().replace(".", "_").replace("-", "_")
        settings[name] = text if name in TEXT_SETTINGS else _value(text.strip())
    return settings


def _value(text: str) -> int | float | bool | str:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if re.fullmatch(r"-?\d*\.\d+", text):
        return float(text)
    return text


def topic_filter(pattern: str | None) -> Callable[[str], bool]:
    """Kafka's topic filter: a regular expression that must match the whole name, commas meaning "or".

    Raises:
        click.UsageError: it is not one, or longer than 1,024 characters.
    """
    if pattern is None:
        return lambda name: True  # noqa: ARG005 - everything
    if len(pattern) > MAX_PATTERN:
        raise click.UsageError(f"the topic pattern has {len(pattern)} characters; at most {MAX_PATTERN} are allowed")
    text = pattern.strip().strip("\"'").replace(",", "|").replace(" ", "")
    try:
        compiled = re.compile(text)
    except re.error as cause:
        raise click.UsageError(f"{pattern!r} is an invalid regex: {cause}") from cause
    return lambda name: compiled.fullmatch(name) is not None


def table_lines(rows: Sequence[Sequence[str]], *, separator: str = " ") -> Iterator[str]:
    """Yield rows as lines with columns of equal width.

    Args:
        rows: the heads first.
        separator: text between two columns.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield separator.join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def whole_or_time(text: str, option: str, whole: str) -> int | datetime:
    """A whole number, or a time in ISO 8601.

    Args:
        text: what was given.
        option: the option that it was given to.
        whole: what a whole number says there.

    Raises:
        click.UsageError: it is neither.

    >>> whole_or_time("12", "--as-of", "a version")
    12
    >>> whole_or_time("2026-01-01T00:00:00+00:00", "--as-of", "a version").isoformat()
    '2026-01-01T00:00:00+00:00'
    """
    if text.isdecimal():
        return int(text)
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError as cause:
        raise click.UsageError(
            f"{option} must be {whole} or a time such as 2026-01-01T00:00:00Z, not {text!r}"
        ) from cause


FORMATS: Final[Mapping[str, Callable[[str], bytes]]] = {
    "text": str.encode,
    "hex": bytes.fromhex,
    "base64": lambda text: base64.b64decode(text, validate=True),
}
"""How a key may be written."""


def key_options(command: F) -> F:
    """`--key`, `--key-file` and `--key-format`."""
    form = click.option(
        "--key-format",
        type=click.Choice(list(FORMATS)),
        default="text",
        show_default=True,
        help="How keys are written, in both; text is taken as UTF-8.",
    )
    file = click.option(
        "--key-file",
        "key_files",
        multiple=True,
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="A file with a key in each line; repeatable. Keeps keys out of the shell's history.",
    )
    single = click.option("--key", "keys", multiple=True, metavar="KEY", help="A key; repeatable.")
    return single(file(form(command)))


def keys_of(keys: Iterable[str], key_files: Iterable[str], key_format: str) -> list[bytes]:
    """The bytes of all keys that were named.

    Raises:
        click.UsageError: one is not written as its format says.
        click.ClickException: a file cannot be read.
    """
    found = [_parsed(key, key_format, "--key") for key in keys]
    for name in key_files:
        try:
            lines = Path(name).read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as cause:
            raise click.ClickException(f"{name} cannot be read: {cause}") from cause
        found += [_parsed(line, key_format, f"{name}, line {at}") for at, line in enumerate(lines, 1) if line]
    return found


def _parsed(text: str, key_format: str, where: str) -> bytes:
    try:
        return FORMATS[key_format](text)
    except (ValueError, binascii.Error) as cause:
        # Not the text itself: it may be what is to be forgotten.
        raise click.UsageError(f"{where}: not {key_format}: {cause}") from cause
