"""Open the registry that `schema.registry.url` and related settings name; pickle it for Spark's tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from kafkalike.errors import KafkaConfigurationError
from kafkalike.model.config.storage_options import Address, SentOptions, StorageOptionsLike
from kafkalike.model.schemas.schema import Registered, Schema
from kafkalike.schemas.registry_client import RegistryClient

OWN: Final = "kafkalike:"

_PREFIXES: Final = ("schema.registry.",)


def open_registry(
    url: str | Mapping[str, Any],
    bootstrap_servers: Address | None = None,
    *,
    storage_options: StorageOptionsLike | None = None,
) -> RegistryClient:
    """Open the registry that a setting names.

    Args:
        url: `kafkalike:` for the registry of `bootstrap_servers`; a root, with or without the prefix `kafkalike:`, for
            the registry of that root; `http://` or `https://` for a service. Or a mapping with `url` and, for a
            service, Confluent's settings `basic.auth.user.info` (`user:password`), `bearer.auth.token`,
            `ssl.ca.location`, `ssl.certificate.location`, `ssl.key.location`, `timeout` (seconds), `max.retries`, each
            with or without the prefix `schema.registry.`.
        bootstrap_servers: an opened cluster or a root, for `kafkalike:`.
        storage_options: options of that root if it is in an object store.

    Raises:
        KafkaConfigurationError: a setting is unknown or invalid for this registry, or a package is missing.
    """
    settings = {"url": url} if isinstance(url, str) else {_name(key): value for key, value in url.items()}
    address = settings.pop("url", None)
    if not isinstance(address, str) or not address.strip():
        raise KafkaConfigurationError("schema.registry.url is needed: kafkalike:, a root, http:// or https://")
    address = address.strip()
    if address.startswith(("http://", "https://")):
        return _remote(address, settings)
    if settings:
        named = ", ".join(sorted(settings))
        raise KafkaConfigurationError(
            f"{named}: only valid for a registry service at http:// or https://, and schema.registry.url is {address}"
        )
    from kafkalike.schemas.cluster_registry import Registry

    root = address.removeprefix(OWN)
    return Registry(root or bootstrap_servers, storage_options=storage_options)


def _name(key: str) -> str:
    for prefix in _PREFIXES:
        if key.startswith(prefix):
            return key[len(prefix) :]
    return key


def _remote(address: str, settings: dict[str, Any]) -> RegistryClient:
    from kafkalike.schemas.remote_registry import RemoteRegistry, access_to

    given: dict[str, Any] = {}
    for key, value in settings.items():
        take = _TAKEN.get(key)
        if take is None:
            raise KafkaConfigurationError(f"unknown setting {key!r} of a registry; known: {', '.join(sorted(_TAKEN))}")
        try:
            given |= take(value)
        except (TypeError, ValueError):
            raise KafkaConfigurationError(f"invalid value for setting {key!r} of a registry") from None
    key_file = given.pop("key_file", None)
    if "certificate" in given:
        given["certificate"] = (given["certificate"], key_file)
    return RemoteRegistry(access_to(address, **given))


def _user_info(value: object) -> dict[str, Any]:
    user, colon, password = str(value).partition(":")
    if not colon:
        raise ValueError
    return {"user": user, "password": password}


def _source(known: str) -> Callable[[object], dict[str, Any]]:
    def take(value: object) -> dict[str, Any]:
        if str(value).upper() not in known.split():
            raise ValueError(value)
        return {}

    return take


def _timeout(value: object) -> dict[str, Any]:
    seconds = float(str(value))
    # Sockets accept no larger timeout, and zero would not wait at all.
    if not 0 < seconds <= threading.TIMEOUT_MAX:
        raise ValueError(value)
    return {"timeout_s": seconds}


def _retries(value: object) -> dict[str, Any]:
    retries = int(str(value))
    if retries < 0:
        raise ValueError(value)
    return {"retries": retries}


_TAKEN: Final[Mapping[str, Callable[[Any], dict[str, Any]]]] = {
    "basic.auth.user.info": _user_info,
    "basic.auth.credentials.source": _source("URL USER_INFO"),
    "bearer.auth.token": lambda value: {"token": str(value)},
    "bearer.auth.credentials.source": _source("STATIC_TOKEN"),
    "ssl.ca.location": lambda value: {"ca_file": str(value)},
    "ssl.certificate.location": lambda value: {"certificate": str(value)},
    "ssl.key.location": lambda value: {"key_file": str(value)},
    "timeout": _timeout,
    "max.retries": _retries,
}


@dataclass(frozen=True, slots=True)
class RegistryLocation:
    """The address of a registry that any process can open. Credentials are excluded from its repr.

    It may be pickled as part of a function for tasks, which Spark keeps out of plans and logs; see `SentOptions`.
    """

    settings: tuple[tuple[str, str], ...] = field(repr=False)
    """Settings of `open_registry`, including `url`; for a cluster's own registry the URL contains its root."""
    storage: SentOptions | None = None

    def open(self) -> RegistryClient:
        """Return the registry, opened once per process."""
        return _opened(self)

    def id_of(self, subject: str, schema: Schema, *, register: bool) -> int:
        """Return the id of a schema; if `register` is set, register an unknown schema as the subject's next version.

        Raises:
            SchemaRegistryError: the schema is rejected, or is not registered.
        """
        if register:
            return self.open().register_schema(subject, schema)
        found = self.open().lookup_schema(subject, schema).schema_id
        assert found is not None, "a version has an id"
        return found


@lru_cache(maxsize=16)
def _opened(where: RegistryLocation) -> RegistryClient:
    return open_registry(dict(where.settings), storage_options=where.storage)


class PreloadedSchemas:
    """A `SchemaSource` with preloaded schemas that looks up other schemas in a registry.

    Args:
        where: the registry.
        known: schemas by id.
        used: for each schema the schemas that it references.
    """

    def __init__(
        self, where: RegistryLocation, known: Mapping[int, Schema], used: Mapping[Schema, Mapping[str, Schema]]
    ) -> None:
        self._where = where
        self._known = dict(known)
        self._used = dict(used)

    @classmethod
    def of(cls, where: RegistryLocation, subject: str, more: Sequence[Schema] = ()) -> PreloadedSchemas:
        """Load all schemas of a subject, and the references of these and of `more`.

        Raises:
            SchemaRegistryError: a reference is not registered.
        """
        source = where.open()
        known = {number: source.schema_by_id(number) for number in source.ids_of(subject)}
        used = {schema: dict(source.referenced(schema)) for schema in (*known.values(), *more) if schema.references}
        return cls(where, known, used)

    def schema_by_id(self, id: int) -> Schema:  # noqa: A002 - Confluent's word
        """Return the schema of an id; look it up if it was not preloaded."""
        found = self._known.get(id)
        if found is None:
            found = self._known[id] = self._where.open().schema_by_id(id)
        return found

    def referenced(self, schema: Schema) -> Mapping[str, Schema]:
        """Return the schemas that a schema references; look them up if they were not preloaded."""
        if not schema.references:
            return {}
        found = self._used.get(schema)
        if found is None:
            found = self._used[schema] = dict(self._where.open().referenced(schema))
        return found

    def latest(self, subject: str) -> Registered | None:
        """Return the newest undeleted version of a subject from the registry."""
        return self._where.open().latest(subject)

    def ids_of(self, subject: str) -> Sequence[int]:
        """Return the ids of all undeleted versions of a subject from the registry."""
        return self._where.open().ids_of(subject)
