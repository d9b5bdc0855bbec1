"""The schema registry as an ASGI application."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kafkalike.errors import KafkaError, KafkaTimeoutError, SchemaRegistryError
from kafkalike.errors.kafka_error import foreign_errors
from kafkalike.schemas.service.credentials import Credentials, host_name, is_loopback
from kafkalike.schemas.service.registry_service import RegistryService

_log = logging.getLogger(__name__)

TYPES: Final = ("application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json", "application/json")
"""Content types of answers; the first one is the default."""

BODY_TYPES: Final = {*TYPES, "application/octet-stream"}

MAX_FIELDS: Final = 64
"""Maximum parameters in a query."""

BODY_SECONDS: Final = 30.0
"""Seconds that a client may take to send a body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Limits on requests."""

    body_bytes: int = 4 * 1024 * 1024
    """Maximum size of a request body."""


def _internal_error(cause: Exception) -> SchemaRegistryError:
    _log.error("a request failed", exc_info=cause)
    return SchemaRegistryError(500, 500, "Internal Server Error")


class RegistryApp:
    """The ASGI application.

    Args:
        service: answers the requests.
        credentials: accepted tokens and users.
        limits: limits on requests.
    """

    def __init__(self, service: RegistryService, credentials: Credentials, limits: RequestLimits) -> None:
        self._service = service
        self._credentials = credentials
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request as the ASGI protocol demands."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except SchemaRegistryError as error:
            response = _refusal(error.http_status_code, error.error_code, error.error_message)
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if not self._credentials.allow(request.headers.get("authorization")):
            refusal = _refusal(401, 401, "Unauthorized")
            refusal.headers["WWW-Authenticate"] = "Bearer" if not self._credentials.users else 'Basic realm="schemas"'
            return refusal
        self._check_origin(request)
        content_type = _accepted(request.headers.get("accept", ""))
        path, query = _path(request.scope), _query(request.scope)
        body = await self._body(request)
        status, answer = await run_in_threadpool(self._asked, request.method, path, query, body)
        return _json(status, answer, content_type)

    def _asked(self, method: str, path: list[str], query: Mapping[str, str], body: object) -> tuple[int, Any]:
        with foreign_errors(_internal_error):
            try:
                method = "GET" if method == "HEAD" else method
                return 200, self._service.ask(method, path, query, body)
            except SchemaRegistryError:
                raise
            except KafkaTimeoutError as error:
                raise SchemaRegistryError(500, 50002, str(error)) from error
            except (KafkaError, OSError) as error:
                _log.exception("a request failed")
                raise SchemaRegistryError(500, 50001, f"Error in the backend data store: {error}") from error

    def _check_origin(self, request: Request) -> None:
        """Reject requests of web pages, because a browser can reach services that only listen on this machine.

        Raises:
            SchemaRegistryError: the origin or the host is another one; the status is 403.
        """
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if origin is not None and not _is_of(origin, host):
            raise SchemaRegistryError(403, 403, f"requests from pages of other hosts are rejected: {origin[:80]!r}")
        server = request.scope.get("server")
        if not self._credentials.needed and server and is_loopback(server[0]) and not is_loopback(host_name(host)):
            raise SchemaRegistryError(403, 403, f"the host {host[:80]!r} is not this service: use its loopback address")

    async def _body(self, request: Request) -> object:
        """Return the JSON of the body, or None without one.

        Raises:
            SchemaRegistryError: the body is invalid; the status is 400, 408, 413 or 415.
        """
        limit = self._limits.body_bytes
        length = request.headers.get("content-length", "0")
        if length.isdigit() and int(length[:20]) > limit:
            raise SchemaRegistryError(413, 413, f"the body has more than {limit} bytes")
        content = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for chunk in request.stream():
                    content += chunk
                    if len(content) > limit:
                        raise SchemaRegistryError(413, 413, f"the body has more than {limit} bytes")
        except TimeoutError:
            raise SchemaRegistryError(408, 408, f"the body did not arrive in {BODY_SECONDS:g} s") from None
        if not content:
            return None
        sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if sent not in BODY_TYPES:
            raise SchemaRegistryError(415, 415, f"HTTP 415 Unsupported Media Type: {sent[:80]!r}; send {TYPES[0]}")
        try:
            # In a thread, because parsing a large body takes a while.
            return await run_in_threadpool(json.loads, content)
        except (ValueError, RecursionError) as cause:
            raise SchemaRegistryError(400, 400, f"the body is not JSON: {str(cause)[:200]}") from None


def _path(scope: Scope) -> list[str]:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    try:
        text = raw.partition(b"?")[0].decode("ascii").strip("/")
        # Unescape each part separately, because a subject may contain an escaped slash.
        return [unquote(part, errors="strict") for part in text.split("/")] if text else []
    except ValueError:
        raise SchemaRegistryError(404, 404, "HTTP 404 Not Found") from None


def _query(scope: Scope) -> dict[str, str]:
    try:
        given = parse_qsl(scope["query_string"].decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise SchemaRegistryError(400, 400, f"the query is invalid, or has more than {MAX_FIELDS} parameters") from None
    return dict(reversed(given))


def _accepted(header: str) -> str:
    """Return the content type of the answer.

    Raises:
        SchemaRegistryError: the client accepts none of `TYPES`; the status is 406.
    """
    wanted = [part.partition(";")[0].strip().lower() for part in header.split(",") if part.strip()]
    if not wanted or any(one in {"*/*", "application/*"} for one in wanted):
        return next((one for one in wanted if one in TYPES), TYPES[0])
    for one in wanted:
        if one in TYPES:
            return one
    raise SchemaRegistryError(406, 406, f"HTTP 406 Not Acceptable: {header[:80]!r}; accept {TYPES[0]}")


def _json(status: int, answer: object, content_type: str) -> Response:
    content = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    return Response(content, status, media_type=content_type)


def _refusal(status: int, code: int, message: str) -> Response:
    return _json(status, {"error_code": code, "message": message}, TYPES[0])


def _is_of(origin: str, host: str) -> bool:
    """Return True if an origin is a page of a host."""
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False
