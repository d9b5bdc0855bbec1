"""Access control: check the headers of a request, and return the reason of a refusal.

The rules follow Jupyter's server. The token is printed at the start and exchanged for a cookie at the first visit.
`Host` must name this machine, so that another site cannot reach the console by DNS rebinding. Every change carries a
secret and must come from a page of the console.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from kafkalike.schemas.service.credentials import host_name, is_loopback

COOKIE: Final = "kafkalike_console"
"""Prefix of the cookie's name; the port follows, because browsers send cookies to all ports of a host."""

CHANGES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})

HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Not `no-referrer`: browsers would then send forms without their origin.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Headers of every response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Status and message of a refused request."""

    status: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AccessControl:
    """Access rules of a console. Has no repr, because it holds secrets."""

    token: str
    """Token of the console; empty: no token is required."""
    port: int
    hosts: frozenset[str] = frozenset()
    """Further host names of the console in lower case, beside the names of this machine."""
    read_only: bool = False
    secure: bool = False
    """True with https: the cookie is sent over https only."""
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    @property
    def cookie(self) -> str:
        """Return the name of the cookie."""
        return f"{COOKIE}_{self.port}"

    def right(self, token: str) -> bool:
        """Compare a token in constant time."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())

    def pass_of(self) -> str:
        """Return the value of the cookie: proves knowledge of the token, valid until the console ends."""
        return hmac.new(self.secret, b"visit" + self.token.encode(), hashlib.sha256).hexdigest()

    def change_key(self) -> str:
        """Return the secret of changes, which pages of the console know and other sites do not (CSRF)."""
        return hmac.new(self.secret, b"change" + self.token.encode(), hashlib.sha256).hexdigest()

    def known(self, headers: Mapping[str, str]) -> bool:
        """Check that a request has the cookie, or the token as `Authorization: Bearer` or `token`."""
        if not self.token:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() in {"bearer", "token"} and self.right(given.strip()):
            return True
        wanted = self.pass_of().encode()
        held = _values(headers.get("cookie", ""), self.cookie)
        return any(hmac.compare_digest(value.encode("utf-8", "replace"), wanted) for value in held)

    def named_well(self, host: str) -> bool:
        """Check that `Host` names this machine or is an allowed name."""
        name = host_name(host)
        return name in self.hosts or is_loopback(name)

    def refusal(self, method: str, headers: Mapping[str, str], change_key: str) -> Refusal | None:
        """Return why a request is refused, or None if it is allowed.

        Args:
            method: HTTP method.
            headers: by name in lower case.
            change_key: secret of changes, from the header or the form of the request.
        """
        host = headers.get("host", "")
        if not self.named_well(host):
            return Refusal(
                status=403, message=f"This console does not have the name {host[:80]!r}. Start it with --allowed-host."
            )
        if not self.known(headers):
            return Refusal(status=401, message="The token is missing or wrong. Open the printed address.")
        if method not in CHANGES:
            return None
        return self._change_refusal(host, headers, change_key)

    def _change_refusal(self, host: str, headers: Mapping[str, str], change_key: str) -> Refusal | None:
        if self.read_only:
            return Refusal(status=403, message="This console is read-only.")
        origin = headers.get("origin")
        if origin is not None and _place(origin) != host.lower():
            return Refusal(status=403, message="A change must come from a page of this console.")
        if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
            return Refusal(status=403, message="A change must come from a page of this console.")
        if not hmac.compare_digest(change_key.encode("utf-8", "replace"), self.change_key().encode()):
            return Refusal(status=403, message="The page is too old for this change. Reload it.")
        return None


def allowed(hosts: Collection[str]) -> frozenset[str]:
    """Normalize names for `AccessControl.hosts`."""
    return frozenset(host.strip().lower() for host in hosts if host.strip())


def _values(header: str, cookie: str) -> list[str]:
    """Return the values of a cookie.

    The header has the cookies of all services of this machine, some of them malformed. Python's parser stops at the
    first malformed cookie.
    """
    pairs = (part.partition("=") for part in header.split(";"))
    return [value.strip() for name, _, value in pairs if name.strip() == cookie]


def _place(origin: str) -> str:
    """Return host and port of an origin; empty if it has none or is malformed."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
