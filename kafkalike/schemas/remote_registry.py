"""RemoteRegistry: a registry that is a service, Confluent's or one that speaks its REST interface, over HTTP."""

from __future__ import annotations

import json
import queue
import random
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from kafkalike.errors import (
    KafkaConfigurationError,
    KafkaConnectionError,
    SchemaRegistryError,
    UnknownRegistryOutcomeError,
)
from kafkalike.schemas.confluent_types import not_understood
from kafkalike.schemas.optional_imports import require_module
from kafkalike.schemas.registry_client import RegistryClient

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"

ENCODING: Final = "gzip"
"""The one encoding of answers that is asked for, and taken."""

MAX_ANSWER: Final = 64 * 1024 * 1024
"""Bytes of an answer: what answers more is no registry, and must not fill the memory."""

RETRIED: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Status codes after which the same request may succeed, where it does no harm twice."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Access:
    """Where a registry is, and who asks. It is never shown."""

    urls: tuple[str, ...]
    """Tried one after the other."""
    user: str | None = None
    password: str = ""
    token: str | None = None
    """Bearer token."""
    ca_file: str | None = None
    """Certificates that are trusted instead of the system's."""
    certificate: tuple[str, str | None] | None = None
    """The client's own, and its key."""
    timeout_s: float = 30.0
    """For connecting, and for each part of an answer; a whole answer has twice as long."""
    retries: int = 3


def access_to(url: str, **given: Any) -> Access:  # noqa: ANN401 - as the fields are
    """Where a registry is, with what its URL says of the user.

    Args:
        url: one or several with commas between; `https://user:password@host:8081`.
        given: fields of `Access`; they count before the URL.

    Raises:
        KafkaConfigurationError: a URL is none, or two ways to say who asks are given.
    """
    urls, user, password = [], given.pop("user", None), given.pop("password", "")
    for one in url.split(","):
        try:
            parts = urlsplit(one.strip())
            host, port, named = parts.hostname, parts.port, parts.username
        except ValueError as cause:
            raise KafkaConfigurationError(f"schema.registry.url is not a URL: {cause}") from None
        if parts.scheme not in {"http", "https"} or not host:
            raise KafkaConfigurationError("schema.registry.url must begin with http:// or https:// and name a host")
        if user is None and named is not None:
            user, password = unquote(named), unquote(parts.password or "")
        shown = f"[{host}]" if ":" in host else host
        urls.append(f"{parts.scheme}://{shown}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}")
    if user is not None and given.get("token") is not None:
        raise KafkaConfigurationError("a registry takes a user or a token, not both")
    return Access(urls=tuple(urls), user=user, password=password, **given)


class RemoteRegistry(RegistryClient):
    """A client of a registry that is a service. Thread-safe.

    Args:
        access: where it is; or its URL.

    Raises:
        KafkaConfigurationError: the URL is none; the package httpx is missing; a certificate cannot be read.
    """

    def __init__(self, access: Access | str) -> None:
        known = access_to(access) if isinstance(access, str) else access
        self._http = HttpDoor(known)
        super().__init__(self._http, {"url": ",".join(known.urls)})

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


class HttpDoor:
    """Sends requests. Thread-safe."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._httpx = require_module("httpx", "registries by URL")
        try:
            self._session = self._opened()
        except (OSError, ValueError) as cause:
            raise KafkaConfigurationError(f"the registry's certificates cannot be used: {cause}") from cause

    def _opened(self) -> Any:  # noqa: ANN401 - httpx's client
        access = self._access
        headers = {
            "Accept": f"{CONTENT_TYPE}, application/vnd.schemaregistry+json, application/json",
            "Accept-Encoding": ENCODING,
        }
        if access.token is not None:
            headers["Authorization"] = f"Bearer {access.token}"
        return self._httpx.Client(
            auth=None if access.user is None else (access.user, access.password),
            headers=headers,
            timeout=access.timeout_s,
            **self._trust(),
        )

    def _trust(self) -> dict[str, Any]:
        if self._access.ca_file is None and self._access.certificate is None:
            return {}
        import ssl

        context = ssl.create_default_context(cafile=self._access.ca_file)
        if self._access.certificate is not None:
            context.load_cert_chain(*self._access.certificate)
        return {"verify": context}

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def ask(self, method: str, path: Sequence[str], query: Mapping[str, str] | None = None, body: object = None) -> Any:  # noqa: ANN401 - any JSON
        """Send a request, and again where that does no harm.

        Raises:
            SchemaRegistryError: the registry says no, or what answers is none.
            KafkaConnectionError: nothing answers.
            UnknownRegistryOutcomeError: no answer came to a deletion or a setting, which may have been done.
        """
        # A schema that is registered twice is registered once.
        harmless = method in {"GET", "POST"}
        where = "/".join(quote(part, safe="") for part in path)
        for attempt in range(self._access.retries + 1):
            last = attempt == self._access.retries
            url = self._access.urls[attempt % len(self._access.urls)]
            try:
                status, content = self._in_time(method, f"{url}/{where}", query, body)
            except (self._httpx.ConnectError, self._httpx.ConnectTimeout, self._httpx.PoolTimeout) as cause:
                # Nothing was sent.
                if last:
                    raise KafkaConnectionError(f"the registry at {url} does not answer: {cause}") from cause
            except (self._httpx.TransportError, self._httpx.DecodingError) as cause:
                if not harmless:
                    raise UnknownRegistryOutcomeError(f"{method} {where} at {url}", repr(cause)) from cause
                if last:
                    raise KafkaConnectionError(f"the registry at {url} gives no whole answer: {cause!r}") from cause
            else:
                if not (harmless and status in RETRIED) or last:
                    return _understood(status, content)
            # Exponential, with jitter, as Confluent's client waits.
            time.sleep(min(20.0, 0.1 * 2**attempt) * random.random())  # noqa: S311 - no secret
        raise AssertionError

    def _in_time(self, method: str, url: str, query: Mapping[str, str] | None, body: object) -> tuple[int, bytes]:
        """What `_sent` gives, or a timeout.

        httpx has a timeout for each part of an answer alone: a server that sends byte by byte holds a caller for as
        long as it likes. So another thread reads, and is left alone when the time is up; its connection is closed.
        """
        session = self._session
        told: queue.SimpleQueue[tuple[int, bytes] | BaseException] = queue.SimpleQueue()

        def work() -> None:
            try:
                told.put(self._sent(session, method, url, query, body))
            except RuntimeError as cause:
                # Another thread's time was up in between; nothing was sent.
                told.put(self._httpx.ConnectError(str(cause)) if session.is_closed else cause)
            except BaseException as cause:  # noqa: BLE001 - it is raised by who waits
                told.put(cause)

        threading.Thread(target=work, name="kafkalike-registry", daemon=True).start()
        try:
            found = told.get(timeout=2 * self._access.timeout_s)
        except queue.Empty:
            if self._session is session:
                self._session = self._opened()
            session.close()
            raise self._httpx.ReadTimeout(f"no whole answer in {2 * self._access.timeout_s:g} s") from None
        if isinstance(found, BaseException):
            raise found
        return found

    def _sent(
        self,
        session: Any,  # noqa: ANN401 - httpx's client
        method: str,
        url: str,
        query: Mapping[str, str] | None,
        body: object,
    ) -> tuple[int, bytes]:
        content = None if body is None else json.dumps(body).encode()
        headers = {} if content is None else {"Content-Type": CONTENT_TYPE}
        found = bytearray()
        # Never to another host: the request carries the password.
        with session.stream(
            method, url, params=dict(query or {}), content=content, headers=headers, follow_redirects=False
        ) as answer:
            inflate = self._inflate(answer.headers.get("content-encoding", ""))
            for chunk in answer.iter_raw():
                found += inflate(chunk, MAX_ANSWER + 1 - len(found))
                if len(found) > MAX_ANSWER:
                    raise SchemaRegistryError(502, -1, f"the registry answers with more than {MAX_ANSWER} bytes")
            return answer.status_code, bytes(found)

    def _inflate(self, encoding: str) -> Callable[[bytes, int], bytes]:
        """Return a function that decodes the next bytes of an answer, up to a number of bytes.

        httpx decodes whole chunks before anybody can count: of a gzip in a gzip, a kilobyte is a gigabyte.

        Raises:
            SchemaRegistryError: the answer has an encoding that was not asked for.
        """
        words = [word for word in encoding.lower().replace(" ", "").split(",") if word not in {"", "identity"}]
        if not words:
            return lambda chunk, _: chunk
        if words != [ENCODING]:
            raise SchemaRegistryError(502, -1, f"the registry answers with encoding {encoding[:80]!r}, not {ENCODING}")
        decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)

        def inflate(chunk: bytes, most: int) -> bytes:
            try:
                return decoder.decompress(decoder.unconsumed_tail + chunk, most)
            except zlib.error as cause:
                raise self._httpx.DecodingError(str(cause)) from cause

        return inflate


def _understood(status: int, content: bytes) -> Any:  # noqa: ANN401 - any JSON
    try:
        answer = json.loads(content) if content.strip() else None
    except (ValueError, RecursionError):
        answer = None
        if 200 <= status <= 299:  # noqa: PLR2004 - HTTP's
            raise not_understood(content[:200]) from None
    if 200 <= status <= 299:  # noqa: PLR2004 - HTTP's
        return answer
    said = answer if isinstance(answer, dict) else {}
    code, message = said.get("error_code"), said.get("message")
    raise SchemaRegistryError(
        status,
        code if isinstance(code, int) else -1,
        message if isinstance(message, str) else f"the registry answers with status {status}",
    )
