"""Storage options: check the user's options of an object store, and hide secrets.

obstore's client follows an answer with a `Location` and sends headers such as a session token along, and has no option
to prevent that. Therefore an unreachable proxy is configured for all other hosts than the storage.
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
"""Replacement of a secret in texts."""


class StorageOptions:
    """Options of one object store by obstore's names. The `repr` contains no values.

    Args:
        values: options by name, for each root.
        roots: options of single roots, which take precedence: by the root's URI, or a prefix of one.
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
        """Reject pickling, because pickles end up in files and messages."""
        raise TypeError("storage options are not pickled: they hold secrets")

    def for_tasks(self) -> SentOptions:
        """Return a copy that can be sent to the processes of a Spark job; see `SentOptions`."""
        return SentOptions(self._values, self._roots)

    @property
    def roots(self) -> Sequence[str]:
        """The given URIs of the roots that have their own options."""
        return list(self._roots)

    def of_root(self, named: str | None) -> StorageOptions:
        """Return the options of one root.

        Args:
            named: an entry of `roots`; None for any other root.
        """
        return StorageOptions({**self._values, **({} if named is None else self._roots[named])})

    def get(self, name: str) -> str | None:
        """Return one value, or None."""
        return self._values.get(name)

    def among(self, names: Iterable[str], *, others: bool = False) -> dict[str, str]:
        """Return the values of these names, or of all `others`, for a client. Not to be shown."""
        chosen = set(names)
        return {name: value for name, value in self._values.items() if (name in chosen) is not others}

    def given(self) -> dict[str, str]:
        """Return all values. Not to be shown."""
        return dict(self._values)

    def scrubbed(self, text: str) -> str:
        """Return a text without any secret of these options."""
        for own in (self._values, *self._roots.values()):
            for name in SECRETS & own.keys():
                text = text.replace(own[name], HIDDEN)
        return text


class SentOptions(StorageOptions):
    """Storage options for the processes of a Spark job, which may be pickled.

    Spark does not show the closures of tasks in plans, logs, its UI or its settings. Only functions and writers of
    tasks may therefore hold these options: never rows, options of readers and writers, or settings.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with the values."""
        return SentOptions, (self._values, self._roots)


class OpenedCluster(Protocol):
    """A cluster opened by `kafkalike.connect.connect`, or a `kafkalike.testing.MemoryCluster`."""

    @property
    def root(self) -> str:
        """Location of the root, as text."""

    @property
    def metadata(self) -> object:
        """The table of topics."""


Address = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | OpenedCluster
"""Type of `bootstrap_servers`: a path or URI, several of them as a sequence or separated by commas, or an opened
cluster. None stands for the environment variable `KAFKALIKE_BOOTSTRAP_SERVERS`, or `./kafkalike-data` without it."""

StorageOptionsLike = StorageOptions | Mapping[str, Any]
"""Type of `storage_options`: a mapping by obstore's names; see `check_options`."""


def check_options(value: Any) -> StorageOptions | None:  # noqa: ANN401 - what a user may give
    """Check `storage_options` without knowing the root; None for none.

    A dict of texts applies to each root. Options of a single root are a dict in it under the root's URI: `{"region":
    "x", "s3://a/log": {"access_key_id": "y"}}`.

    Raises:
        ValueError: the expected form; the message never contains a value.
    """
    if value is None or isinstance(value, StorageOptions):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"a dict of texts is needed, not a {type(value).__name__}")  # noqa: TRY004 - as callers want it
    own = {root: item for root, item in value.items() if isinstance(root, str) and isinstance(item, Mapping)}
    strange = next((root for root in own if "://" not in root), None)
    if strange is not None:
        raise ValueError(f"{strange!r} has its own options, but is not the URI of a root, such as 's3://bucket/log'")
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
    """Return the options for a client of an object store.

    Args:
        provider: provider of the store.
        given: the user's options by obstore's names, in any case, with or without `AWS_`, `AZURE_STORAGE_`, `AZURE_` or
            `GOOGLE_`.
        environ: environment variables, which apply to missing options; None for the process's own.

    Raises:
        KafkaConfigurationError: an unknown option, one without a meaning here, one given twice, or missing credentials.
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
        f"no credentials for {kind.title}: set {ways} in storage_options, or as environment variables such as "
        f"{(kind.prefixes[0] + kind.credentials[0][0]).upper()}. kafkalike never asks the machine's metadata address"
    )


NOBODY: Final = "http://127.0.0.1:0"
"""A connection to port 0 is refused by this machine, so requests to other hosts fail."""

_OWN: Final[Mapping[Provider, tuple[str, ...]]] = {
    "s3": ("amazonaws.com", "amazonaws.com.cn"),
    "azure": ("core.windows.net",),
    "google": ("googleapis.com", "accounts.google.com"),
}
"""Hosts of a provider's stores without an `endpoint`, and the hosts that issue Google's tokens."""

_CONTAINER: Final = "169.254.170.2"
_EMULATOR: Final = ("127.0.0.1", "localhost")
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")


def no_others(provider: Provider, options: StorageOptions, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return options of the HTTP client that block all hosts except those in its other options.

    Args:
        provider: provider of the store.
        options: from `resolve_options`.
        environ: environment variables; None for the process's own.

    Returns:
        Empty if the user has a proxy, which then decides about hosts.
    """
    known = os.environ if environ is None else environ
    if options.get("proxy_url") or any(known.get(name) or known.get(name.upper()) for name in _PROXIES):
        return {}
    return {"proxy_url": NOBODY, "proxy_excludes": ",".join(sorted(_hosts(provider, options, known)))}


def _hosts(provider: Provider, options: StorageOptions, environ: Mapping[str, str]) -> set[str]:
    """Return the allowed hosts; a name includes its subdomains."""
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
    """Return the host of a URL; empty for none. An invalid URL is reported when the client is created."""
    try:
        return urlsplit(url or "").hostname or ""
    except ValueError:
        return ""


def _google(options: StorageOptions) -> str | None:
    """Return the address of a store that replaces Google's, from an option or a key."""
    path = options.get("service_account") or options.get("application_credentials")
    try:
        key = json.loads(options.get("service_account_key") or (Path(path).read_bytes() if path else "{}"))
    except (OSError, ValueError):
        key = {}
    told = key.get("gcs_base_url") if isinstance(key, dict) else None
    return options.get("base_url") or (told if isinstance(told, str) else None)
