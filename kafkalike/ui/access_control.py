"""Access control: who may ask the console, and from where; headers in, yes or a refusal out.

The rules are those of Jupyter's server: a token that is printed at the start, exchanged for a cookie at the first
visit; only names of this machine in `Host`, so that a page of another site cannot reach it by a name of its own
(DNS rebinding); every change carries a secret of the visit, and comes from a page of the console.
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
"""Name of the cookie; the port stands behind it, as cookies know no ports."""

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
"""Said with every answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a request is not answered."""

    status: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AccessControl:
    """The rules of one console. It is never shown."""

    token: str
    """What a visitor must know; empty: nothing."""
    port: int
    hosts: frozenset[str] = frozenset()
    """Names that the console may be called by, beside those of this machine; lower case."""
    read_only: bool = False
    secure: bool = False
    """Whether it is reached by https, so that the cookie goes no other way."""
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    @property
    def cookie(self) -> str:
        """Name of the cookie."""
        return f"{COOKIE}_{self.port}"

    def right(self, token: str) -> bool:
        """Whether this is the token; how near it is does not change the time."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())

    def pass_of(self) -> str:
        """What the cookie holds: a proof that its owner knew the token, good until the console ends."""
        return hmac.new(self.secret, b"visit" + self.token.encode(), hashlib.sha256).hexdigest()

    def change_key(self) -> str:
        """What a change must carry beside the cookie: pages of the console know it, other sites do not."""
        return hmac.new(self.secret, b"change" + self.token.encode(), hashlib.sha256).hexdigest()

    def known(self, headers: Mapping[str, str]) -> bool:
        """Whether a request brings the cookie, or the token as `Authorization: Bearer` or `token`."""
        if not self.token:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() in {"bearer", "token"} and self.right(given.strip()):
            return True
        wanted = self.pass_of().encode()
        held = _values(headers.get("cookie", ""), self.cookie)
        return any(hmac.compare_digest(value.encode("utf-8", "replace"), wanted) for value in held)

    def named_well(self, host: str) -> bool:
        """Whether a `Host` is this machine, or one of the allowed names."""
        name = host_name(host)
        return name in self.hosts or is_loopback(name)

    def refusal(self, method: str, headers: Mapping[str, str], change_key: str) -> Refusal | None:
        """Why a request is refused before a page sees it; None when it is not.

        Args:
            method: of the request.
            headers: names in lower case.
            change_key: what the request carries as the secret of changes; from its header or its form.
        """
        host = headers.get("host", "")
        if not self.named_well(host):
            return Refusal(status=403, message=f"This console is not called {host[:80]!r}. See --allowed-host.")
        if not self.known(headers):
            return Refusal(status=401, message="The token is missing or wrong. Open the address that was printed.")
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
            return Refusal(status=403, message="The page is too old for this change. Load it again.")
        return None


def allowed(hosts: Collection[str]) -> frozenset[str]:
    """Names as `AccessControl.hosts` wants them."""
    return frozenset(host.strip().lower() for host in hosts if host.strip())


def _values(header: str, cookie: str) -> list[str]:
    """The values of a cookie.

    Whatever else stands in the header: cookies know no ports, so those of all services of this machine stand there, and
    some of them are no cookies by the book. Python's reader stops at the first one of these.
    """
    pairs = (part.partition("=") for part in header.split(";"))
    return [value.strip() for name, _, value in pairs if name.strip() == cookie]


def _place(origin: str) -> str:
    """Host and port of an origin; empty for one that has none, or cannot be read."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
