"""RemoteRegistry: a client of a schema registry over HTTP, Confluent's or any with its REST interface."""

from __future__ import annotations

import json
import random
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from kafkalike import errors
from kafkalike.errors.optional_imports import require_module
from kafkalike.model.concurrency import AbandonableCall
from kafkalike.schemas.confluent_types import not_understood
from kafkalike.schemas.registry_client import RegistryClient

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"

ENCODING: Final = "gzip"
"""The only content encoding that is requested and accepted."""

MAX_ANSWER: Final = 64 * 1024 * 1024
"""Maximum bytes of an answer. A larger one does not come from a registry and must not fill the memory."""

RETRIED: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Status codes after which a request may succeed; idempotent requests are retried."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Access:
    """URLs and credentials of a registry. It has no repr, so credentials do not leak."""

    urls: tuple[str, ...]
    """URLs, tried in turn."""
    user: str | None = None
    password: str = ""
    token: str | None = None
    """Bearer token of the registry's requests."""
    ca_file: str | None = None
    """File of trusted certificates that replaces the system's."""
    certificate: tuple[str, str | None] | None = None
    """Files of the client's certificate and of its key."""
    timeout_s: float = 30.0
    """Seconds for connecting and for each part of an answer; a whole answer may take twice as long."""
    retries: int = 3


def access_to(url: str, **given: Any) -> Access:  # noqa: ANN401 - as the fields are
    """Return the access to a registry, with the credentials of its URL.

    Args:
        url: one or more URLs, separated by commas, such as `https://user:password@host:8081`.
        given: fields of `Access`; they override the URL.

    Raises:
        KafkaConfigurationError: a URL is invalid, or both a user and a token are given.
    """
    urls, user, password = [], given.pop("user", None), given.pop("password", "")
    for one in url.split(","):
        try:
            parts = urlsplit(one.strip())
            host, port, named = parts.hostname, parts.port, parts.username
        except ValueError as cause:
            raise errors.KafkaConfigurationError(f"schema.registry.url is not a URL: {cause}") from None
        if parts.scheme not in {"http", "https"} or not host:
            raise errors.KafkaConfigurationError(
                "schema.registry.url must begin with http:// or https:// and name a host"
            )
        if user is None and named is not None:
            user, password = unquote(named), unquote(parts.password or "")
        shown = f"[{host}]" if ":" in host else host
        urls.append(f"{parts.scheme}://{shown}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}")
    if user is not None and given.get("token") is not None:
        raise errors.KafkaConfigurationError("a registry takes a user or a token, not both")
    return Access(urls=tuple(urls), user=user, password=password, **given)


class RemoteRegistry(RegistryClient):
    """A client of a registry service. Thread-safe.

    Args:
        access: the URL, or the URLs with credentials.

    Raises:
        KafkaConfigurationError: the URL is invalid, the package httpx is missing, or a certificate cannot be read.
    """

    def __init__(self, access: Access | str) -> None:
        known = access_to(access) if isinstance(access, str) else access
        self._http = HttpTransport(known)
        super().__init__(self._http, {"url": ",".join(known.urls)})

    def close(self) -> None:
        """Close all connections of the client."""
        self._http.close()


class HttpTransport:
    """Sends requests to a registry with retries and a total timeout. Thread-safe."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._httpx = require_module("httpx", "registries by URL")
        try:
            self._session = self._opened()
        except (OSError, ValueError) as cause:
            raise errors.KafkaConfigurationError(f"the registry's certificates cannot be used: {cause}") from cause

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
        """Close all connections of the session."""
        self._session.close()

    def ask(self, method: str, path: Sequence[str], query: Mapping[str, str] | None = None, body: object = None) -> Any:  # noqa: ANN401 - any JSON
        """Send a request; retry it if that is safe.

        Raises:
            SchemaRegistryError: the registry rejects the request, or the answer does not come from a registry.
            KafkaConnectionError: no answer arrived.
            UnknownRegistryOutcomeError: no answer arrived to a deletion or a setting, which may have been applied.
        """
        # POST is idempotent here: registering the same schema twice has the effect of once.
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
                    raise errors.KafkaConnectionError(f"the registry at {url} does not answer: {cause}") from cause
            except (self._httpx.TransportError, self._httpx.DecodingError) as cause:
                if not harmless:
                    raise errors.UnknownRegistryOutcomeError(f"{method} {where} at {url}", repr(cause)) from cause
                if last:
                    raise errors.KafkaConnectionError(
                        f"the registry at {url} sent no complete answer in {self._access.retries + 1} tries: {cause!r}"
                    ) from cause
            else:
                if not (harmless and status in RETRIED) or last:
                    return _understood(status, content)
            # Exponential, with jitter, as Confluent's client waits.
            time.sleep(min(20.0, 0.1 * 2**attempt) * random.random())  # noqa: S311 - no secret
        raise AssertionError

    def _in_time(self, method: str, url: str, query: Mapping[str, str] | None, body: object) -> tuple[int, bytes]:
        """Return the result of `_sent`, or raise a timeout.

        httpx limits only the time for each part of an answer, so a server that sends byte by byte could hold the caller
        for any time. The request therefore runs in another thread, which is abandoned after the timeout; its connection
        is closed.
        """
        session = self._session

        def ask() -> tuple[int, bytes]:
            try:
                return self._sent(session, method, url, query, body)
            except RuntimeError as cause:
                # Another thread timed out and closed the session; nothing was sent.
                raise (self._httpx.ConnectError(str(cause)) if session.is_closed else cause) from cause

        request = AbandonableCall(ask, "kafkalike-registry")
        if not request.wait(2 * self._access.timeout_s):
            if self._session is session:
                self._session = self._opened()
            session.close()
            raise self._httpx.ReadTimeout(f"no complete answer in {2 * self._access.timeout_s:g} s")
        return request.result()

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
        # Redirects could send the password to another host.
        with session.stream(
            method, url, params=dict(query or {}), content=content, headers=headers, follow_redirects=False
        ) as answer:
            inflate = self._inflate(answer.headers.get("content-encoding", ""))
            for chunk in answer.iter_raw():
                found += inflate(chunk, MAX_ANSWER + 1 - len(found))
                if len(found) > MAX_ANSWER:
                    raise errors.SchemaRegistryError(502, -1, f"the registry answers with more than {MAX_ANSWER} bytes")
            return answer.status_code, bytes(found)

    def _inflate(self, encoding: str) -> Callable[[bytes, int], bytes]:
        """Return a function that decodes the next bytes of an answer, up to a number of bytes.

        httpx decodes whole chunks before the size can be checked, and a kilobyte of nested gzip can hold a gigabyte.

        Raises:
            SchemaRegistryError: the answer has an encoding that was not requested.
        """
        words = [word for word in encoding.lower().replace(" ", "").split(",") if word not in {"", "identity"}]
        if not words:
            return lambda chunk, _: chunk
        if words != [ENCODING]:
            raise errors.SchemaRegistryError(
                502, -1, f"the registry answers with encoding {encoding[:80]!r}, not {ENCODING}"
            )
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
    raise errors.SchemaRegistryError(
        status,
        code if isinstance(code, int) else -1,
        message if isinstance(message, str) else f"the registry answers with status {status}",
    )
