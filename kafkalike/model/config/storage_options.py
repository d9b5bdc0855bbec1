"""Storage options: what a user says of an object store in, checked names and values out; secrets are never shown.

obstore's client goes where an answer with a `Location` sends it, and takes headers such as a session token along; it
has no option against that. So a proxy that is no address stands before every host but those of the storage.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from kafkalike.errors import KafkaConfigurationError
from kafkalike.model.config.properties import nearest
from kafkalike.model.config.storage_option_names import CLIENT, KINDS, NO_MEANING, SECRETS, Kind, Provider

HIDDEN: Final = "***"
"""What stands in the place of a secret."""


class StorageOptions:
    """Options of one object store: names of obstore's and their values. Nothing of a value is ever in its `repr`.

    Args:
        values: by name; they hold for each root.
        roots: those of single roots, which hold before the others: by the root's URI, or the beginning of one.
    """

    __slots__ = ("_roots", "_values")

    def __init__(
        self, values: Mapping[str, str] | None = None, roots: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self._values = dict(sorted((values or {}).items()))
        self._roots = {root: dict(sorted(own.items())) for root, own in sorted((roots or {}).items())}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join((*self._values, *self._roots))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorageOptions) and (self._values, self._roots) == (other._values, other._roots)

    def __hash__(self) -> int:
        return hash((tuple(self._values.items()), tuple((r, tuple(own.items())) for r, own in self._roots.items())))

    def __bool__(self) -> bool:
        return bool(self._values or self._roots)

    def __reduce__(self) -> tuple[object, ...]:
        """Refused: what is pickled lands in files and messages."""
        raise TypeError("storage options are not pickled: they hold secrets")

    def for_tasks(self) -> SentOptions:
        """The same, to be sent to the processes of a Spark job; see `SentOptions`."""
        return SentOptions(self._values, self._roots)

    @property
    def roots(self) -> Sequence[str]:
        """The roots that have options of their own, as they were named."""
        return list(self._roots)

    def of_root(self, named: str | None) -> StorageOptions:
        """The options of one root.

        Args:
            named: which of `roots` it is; None: none of them.
        """
        return StorageOptions({**self._values, **({} if named is None else self._roots[named])})

    def get(self, name: str) -> str | None:
        """One value; None when it was not given."""
        return self._values.get(name)

    def among(self, names: Iterable[str], *, others: bool = False) -> dict[str, str]:
        """The values of these names, or of all `others`, to hand to a client. Not to be shown."""
        chosen = set(names)
        return {name: value for name, value in self._values.items() if (name in chosen) is not others}

    def given(self) -> dict[str, str]:
        """All values. Not to be shown."""
        return dict(self._values)

    def scrubbed(self, text: str) -> str:
        """A text without any secret of these options."""
        for own in (self._values, *self._roots.values()):
            for name in SECRETS & own.keys():
                text = text.replace(own[name], HIDDEN)
        return text


class SentOptions(StorageOptions):
    """Storage options on their way to the processes of a Spark job: these may be pickled.

    Spark keeps what it sends to its tasks out of plans, logs, its page and its settings. So only what goes to tasks may
    hold them: functions and writers, never rows, options of readers and writers, or settings.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[object, ...]:
        """With the values."""
        return SentOptions, (self._values, self._roots)


class OpenedCluster(Protocol):
    """A cluster that `kafkalike.connect.connect` has opened, or a `kafkalike.testing.MemoryCluster`."""

    @property
    def root(self) -> str:
        """Where it is, as text."""

    @property
    def metadata(self) -> object:
        """Its table of topics."""


Address = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | OpenedCluster
"""What `bootstrap_servers` may be: a path or URI, several of them as a sequence or with commas between them, or an
opened cluster. Where None is taken, it stands for the environment variable `KAFKALIKE_BOOTSTRAP_SERVERS`, else
`./kafkalike-data`."""

StorageOptionsLike = StorageOptions | Mapping[str, Any]
"""What `storage_options` may be: a mapping by obstore's names; see `check_options`."""


def check_options(value: Any) -> StorageOptions | None:  # noqa: ANN401 - what a user may give
    """Check of the setting `storage_options` as far as it can be without a root; None for none.

    A dict of texts, which hold for each root; where several roots need different ones, a dict in it under the URI of a
    root holds for that root: `{"region": "x", "s3://a/log": {"access_key_id": "y"}}`.

    Raises:
        ValueError: what would be right; never with a value in it.
    """
    if value is None or isinstance(value, StorageOptions):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"a dict of texts is needed, not a {type(value).__name__}")  # noqa: TRY004 - as callers want it
    own = {root: item for root, item in value.items() if isinstance(root, str) and isinstance(item, Mapping)}
    strange = next((root for root in own if "://" not in root), None)
    if strange is not None:
        raise ValueError(f"{strange!r} has options of its own, and is no root's URI such as 's3://bucket/log'")
    plain = {name: item for name, item in value.items() if name not in own}
    return StorageOptions(_texts(plain), {root: _texts(item) for root, item in own.items()})


def _texts(given: Mapping[Any, Any]) -> dict[str, str]:
    texts = {}
    for name, item in given.items():
        if not isinstance(name, str) or not isinstance(item, (str, bool, int, float)):
            raise ValueError("a dict of texts is needed")  # noqa: TRY004 - as callers want it
        texts[name] = str(item).lower() if isinstance(item, bool) else str(item)
    return texts


def resolve_options(
    provider: Provider, given: StorageOptions | None, environ: Mapping[str, str] | None = None
) -> StorageOptions:
    """What a client of an object store is to be made with.

    Args:
        provider: whose store it is.
        given: the user's, by obstore's names, in any case, with or without `AWS_`, `AZURE_STORAGE_`,
            `AZURE_` or `GOOGLE_`.
        environ: environment variables, which hold where nothing was given; None takes the process's own.

    Raises:
        KafkaConfigurationError: an unknown option, one that has no meaning here, one named twice, or nothing that
            says who asks.
    """
    kind = KINDS[provider]
    known = kind.names | CLIENT
    named: dict[str, str] = {}
    for said, value in (given or StorageOptions()).given().items():
        name = _canonical(kind, said)
        if name in NO_MEANING:
            raise KafkaConfigurationError(f"storage option {said!r} has no meaning here: {NO_MEANING[name]}")
        if name not in known:
            hint = nearest(name, known | kind.aliases.keys())
            raise KafkaConfigurationError(f"unknown storage option {said!r} of {kind.title}{hint}")
        if named.get(name, value) != value:
            raise KafkaConfigurationError(f"storage option {name!r} is given twice, with different values")
        named[name] = value
    options = StorageOptions({**_of_environment(kind, os.environ if environ is None else environ), **named})
    _check_credentials(kind, options)
    return options


def _canonical(kind: Kind, said: str) -> str:
    name = said.strip().lower()
    for prefix in kind.prefixes:
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            break
    return kind.aliases.get(name, name)


def _of_environment(kind: Kind, environ: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for prefix in reversed(kind.prefixes):
        spelled = {f"{prefix}{name}".upper(): name for name in kind.names | {"allow_http"}}
        plain = {f"{prefix}{alias}".upper(): name for alias, name in kind.aliases.items()}
        for variable, name in {**plain, **spelled}.items():
            if environ.get(variable):
                found[name] = environ[variable]
    if kind.title == "S3" and environ.get("AWS_ENDPOINT_URL_S3"):
        found["endpoint"] = environ["AWS_ENDPOINT_URL_S3"]
    return found


def _check_credentials(kind: Kind, options: StorageOptions) -> None:
    given = {name for name, value in options.given().items() if value.lower() not in {"", "false", "0"}}
    if any(given.issuperset(together) for together in kind.credentials):
        return
    ways = " or ".join(" and ".join(together) for together in kind.credentials)
    raise KafkaConfigurationError(
        f"nothing says who asks {kind.title}: give {ways} in storage_options, or as environment variables such as "
        f"{(kind.prefixes[0] + kind.credentials[0][0]).upper()}. The machine's metadata address is never asked"
    )


NOBODY: Final = "http://127.0.0.1:0"
"""A connection to port 0 is refused by this machine, and nobody is asked."""

_OWN: Final[Mapping[Provider, tuple[str, ...]]] = {
    "s3": ("amazonaws.com", "amazonaws.com.cn"),
    "azure": ("core.windows.net",),
    "google": ("googleapis.com", "accounts.google.com"),
}
"""Hosts that a provider's stores have without an `endpoint`, and whoever gives out Google's tokens."""

_CONTAINER: Final = "169.254.170.2"
_EMULATOR: Final = ("127.0.0.1", "localhost")
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")


def no_others(provider: Provider, options: StorageOptions, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Options of the HTTP client with which it asks no host but those that its other options name.

    Args:
        provider: whose store it is.
        options: from `resolve_options`.
        environ: environment variables; None takes the process's own.

    Returns:
        Nothing where the user has a proxy: then that one decides who is asked.
    """
    known = os.environ if environ is None else environ
    if options.get("proxy_url") or any(known.get(name) or known.get(name.upper()) for name in _PROXIES):
        return {}
    return {"proxy_url": NOBODY, "proxy_excludes": ",".join(sorted(_hosts(provider, options, known)))}


def _hosts(provider: Provider, options: StorageOptions, environ: Mapping[str, str]) -> set[str]:
    """Hosts that may be asked; a name stands for those below it, too."""
    store = options.get("endpoint") or (_google(options) if provider == "google" else None)
    hosts = {_host(store)} if store else set(_OWN[provider])
    if options.get("role_arn"):
        hosts |= {_host(options.get("sts_endpoint"))} if options.get("sts_endpoint") else set(_OWN["s3"])
    if options.get("container_credentials_full_uri"):
        hosts.add(_host(options.get("container_credentials_full_uri")))
    if options.get("container_credentials_relative_uri"):
        hosts.add(_CONTAINER)
    if options.get("tenant_id"):
        hosts.add(_host(options.get("authority_host") or "https://login.microsoftonline.com"))
    if options.get("use_emulator"):
        hosts |= {*_EMULATOR, _host(environ.get("AZURITE_BLOB_STORAGE_URL"))}
    if provider == "google":
        hosts |= set(_OWN["google"])
    return hosts - {""}


def _host(url: str | None) -> str:
    """The host of a URL; empty for none. With what is no URL, the client cannot be made, and says so itself."""
    try:
        return urlsplit(url or "").hostname or ""
    except ValueError:
        return ""


def _google(options: StorageOptions) -> str | None:
    """The address of a store that stands for Google's, as an option or a key says it."""
    path = options.get("service_account") or options.get("application_credentials")
    try:
        key = json.loads(options.get("service_account_key") or (Path(path).read_bytes() if path else "{}"))
    except (OSError, ValueError):
        key = {}
    told = key.get("gcs_base_url") if isinstance(key, dict) else None
    return options.get("base_url") or (told if isinstance(told, str) else None)
