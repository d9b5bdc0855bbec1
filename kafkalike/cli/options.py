"""Options that several commands share: cluster, settings files, keys, and Kafka's flags without a meaning here."""

from __future__ import annotations

import base64
import binascii
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kafkalike.version import __version__

STORAGE_OPTION: Final = re.compile(r"storage[._]options\.(?:(\S+://\S*)\.)?([^.]+)")
"""Setting that is an option of an object store: `storage.options.region=eu-west-1`."""

F = TypeVar("F", bound=Callable[..., Any])

MAX_PATTERN: Final = 1024
"""Maximum number of characters of a topic pattern."""

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
    """Return the option `--bootstrap-server`, with further names."""
    return click.option(
        "--bootstrap-server",
        *more,
        "bootstrap_server",
        metavar="ROOT",
        help="Storage root: a folder or URI. Default: $KAFKALIKE_BOOTSTRAP_SERVERS, else ./kafkalike-data.",
    )


def command_config_option(*more: str) -> Callable[[F], F]:
    """Return the option `--command-config`, with further names."""
    return click.option(
        "--command-config",
        *more,
        "command_config",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="File of client settings in .properties form; storage.options.NAME=VALUE is for object stores.",
    )


def cluster_options(command: F) -> F:
    """Add the options that name the cluster, for commands that accept them before and after the action."""
    return bootstrap_option()(command_config_option()(command))


def client_property(client: str) -> Callable[[F], F]:
    """Return the option for single settings of a command's client.

    Args:
        client: `producer` or `consumer`, for the option's name in older versions of Kafka.
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
    """Add `--tls-cert-file` and `--tls-key-file` to a command that serves HTTP."""
    key = click.option(
        "--tls-key-file",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="Key of the certificate, without a password; default: in the same file.",
    )
    cert = click.option(
        "--tls-cert-file",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="Certificate chain, PEM: serve with TLS.",
    )
    # The help shows the certificate first.
    return cert(key(command))


def certificate(cert_file: str | None, key_file: str | None) -> tuple[str, str | None] | None:
    """Return the certificate and key files; None for http.

    Raises:
        click.UsageError: a key is given without its certificate.
    """
    if cert_file is None:
        if key_file is not None:
            raise click.UsageError("--tls-key-file needs --tls-cert-file")
        return None
    return cert_file, key_file


def version_option(command: F) -> F:
    """Add the option `--version`."""
    return click.option(
        "--version",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_print_version,
        help="Print the version.",
    )(command)


def refused(flag: str, reason: str, *, is_flag: bool = False) -> Callable[[F], F]:
    """Return a flag of Kafka that has no meaning here. Its use is an error with the reason."""

    def check(ctx: click.Context, param: click.Parameter, value: object) -> None:
        del param
        if value not in {None, False, ()}:
            raise click.UsageError(f"{flag} has no meaning here: {reason}.", ctx)

    return click.option(
        flag, is_flag=is_flag, expose_value=False, hidden=True, callback=check, default=False if is_flag else None
    )


def without_effect(flag: str, reason: str, *, is_flag: bool = False) -> Callable[[F], F]:
    """Return a flag of Kafka that has nothing to tune here. Its use prints a warning with the reason."""

    def warn(ctx: click.Context, param: click.Parameter, value: object) -> None:
        del ctx, param
        if value not in {None, False, ()}:
            click.echo(f"Warning: {flag} has no effect: {reason}.", err=True)

    return click.option(
        flag, is_flag=is_flag, expose_value=False, hidden=True, callback=warn, default=False if is_flag else None
    )


def is_given(value: object) -> bool:
    """True for an option on the command line; click passes None, False or () for the others."""
    return value is not None and value is not False and value != ()


def flag_name(option: str) -> str:
    """Return the flag of an option without dashes: `dry-run` for `dry_run`."""
    return "output" if option == "as_json" else option.replace("_", "-")


NO_EXECUTE: Final = "WARN: No action will be performed as the --execute option is missing."


def chosen_action(options: object, actions: Sequence[str]) -> str:
    """Return the action of a command, whose options have a flag `do_…` for each action.

    Args:
        options: options of a command.
        actions: the command's actions, in the order of the error.

    Raises:
        click.UsageError: the options name no action, or several.
    """
    chosen = [action for action in actions if getattr(options, f"do_{action}")]
    if len(chosen) != 1:
        flags = [f"--{flag_name(action)}" for action in actions]
        raise click.UsageError(f"Command must include exactly one action: {', '.join(flags[:-1])} or {flags[-1]}")
    return chosen[0]


def check_belongs(options: object, action: str, allowed: Mapping[str, Collection[str]]) -> None:
    """Reject options that the action does not accept, in Kafka's words.

    Args:
        options: options of a command.
        action: action of the command.
        allowed: actions that accept an option, by option.

    Raises:
        click.UsageError: an option is given that the action does not accept.
    """
    for option, actions in allowed.items():
        if is_given(getattr(options, option)) and action not in actions:
            raise click.UsageError(f'Option "[{flag_name(option)}]" can\'t be used with option "[{flag_name(action)}]"')


def failures_are_printed() -> None:
    """Silence the producer's log of failures, which the command prints itself; not with --debug."""
    if logging.getLogger().getEffectiveLevel() > logging.DEBUG:
        logging.getLogger("kafkalike.producer").setLevel(logging.ERROR)


def key_values(pairs: Iterable[str], flag: str) -> dict[str, str]:
    """Parse `k=v` texts; a value may contain `=` and be empty.

    Raises:
        click.UsageError: a text has no `=`.
    """
    given = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name.strip():
            raise click.UsageError(f"{flag}: key=value is needed, not {pair!r}")
        given[name.strip()] = value
    return given


def read_properties(path: str | None) -> dict[str, str]:
    """Read a `.properties` file; without a path, return no settings.

    Raises:
        click.ClickException: the file is unreadable or malformed.
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
    """Convert Kafka's dotted settings to keyword arguments of a client: `linger.ms=5` becomes `linger_ms=5`.

    Values that look like numbers or booleans are converted, except for `TEXT_SETTINGS`. Settings with the prefix
    `storage.options.` become one dict of texts, by the unchanged rest of their names.
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


def settings_of(path: str | None, pairs: Iterable[str] = (), flag: str = "--command-property") -> dict[str, Any]:
    """Return client settings of a `.properties` file, overridden by `NAME=VALUE` pairs.

    Args:
        path: the file, if any.
        pairs: values of an option.
        flag: the option, for its errors.

    Raises:
        click.ClickException: the file is unreadable or malformed, or a pair has no `=`.
    """
    return client_settings({**read_properties(path), **key_values(pairs, flag)})


def _value(text: str) -> int | float | bool | str:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if re.fullmatch(r"-?\d*\.\d+", text):
        return float(text)
    return text


def topic_filter(pattern: str | None) -> Callable[[str], bool]:
    """Compile Kafka's topic filter: a regular expression that must match the whole name; a comma means "or".

    Raises:
        click.UsageError: the pattern is malformed, or longer than 1,024 characters.
    """
    if pattern is None:
        return lambda name: True  # noqa: ARG005 - all names
    if len(pattern) > MAX_PATTERN:
        raise click.UsageError(f"the topic pattern has {len(pattern)} characters; at most {MAX_PATTERN} are allowed")
    text = pattern.strip().strip("\"'").replace(",", "|").replace(" ", "")
    try:
        compiled = re.compile(text)
    except re.error as cause:
        raise click.UsageError(f"{pattern!r} is an invalid regex: {cause}") from cause
    return lambda name: compiled.fullmatch(name) is not None


def whole_or_time(text: str, option: str, whole: str) -> int | datetime:
    """Parse a whole number, or a time in ISO 8601.

    Args:
        text: value of the option.
        option: name of the option, for the error.
        whole: meaning of a whole number, for the error.

    Raises:
        click.UsageError: the text is neither.

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
"""Parser by format of a key."""


def key_options(command: F) -> F:
    """Add `--key`, `--key-file` and `--key-format`."""
    form = click.option(
        "--key-format",
        type=click.Choice(list(FORMATS)),
        default="text",
        show_default=True,
        help="Format of keys in both; text is UTF-8.",
    )
    file = click.option(
        "--key-file",
        "key_files",
        multiple=True,
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="File with a key in each line, which keeps keys out of the shell's history; repeatable.",
    )
    single = click.option("--key", "keys", multiple=True, metavar="KEY", help="A key; repeatable.")
    return single(file(form(command)))


def keys_of(keys: Iterable[str], key_files: Iterable[str], key_format: str) -> list[bytes]:
    """Return the bytes of all given keys.

    Raises:
        click.UsageError: a key does not have the format.
        click.ClickException: a file is unreadable.
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
        # The error does not quote the text, which may be personal data.
        raise click.UsageError(f"{where}: not {key_format}: {cause}") from cause
