"""Who may ask the service: tokens and users of an `Authorization` header; whether a `Host` is this machine."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kafkalike.errors import KafkaConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Credentials:
    """Tokens and users. None of them: whoever reaches the address may ask. It is never shown."""

    tokens: tuple[bytes, ...] = ()
    users: Mapping[str, bytes] = field(default_factory=dict)
    """Passwords by name."""

    @property
    def needed(self) -> bool:
        """Whether somebody must say who they are."""
        return bool(self.tokens or self.users)

    def allow(self, header: str | None) -> bool:
        """Whether a value of `Authorization` is one of these; what it is compared with does not change the time."""
        if not self.needed:
            return True
        scheme, _, given = (header or "").partition(" ")
        if scheme.lower() == "bearer":
            # All of them: how long it takes must not say which one was nearly right.
            right = [hmac.compare_digest(given.strip().encode(), token) for token in self.tokens]
            return any(right)
        if scheme.lower() != "basic":
            return False
        try:
            user, colon, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return False
        known = self.users.get(user)
        same = hmac.compare_digest(password.encode(), b"\0" if known is None else known)
        return bool(colon) and same and known is not None


def credentials(tokens: Iterable[str], users: Iterable[str]) -> Credentials:
    """Credentials of lines.

    Args:
        tokens: one a line; empty lines and those that begin with `#` are nobody's.
        users: `name:password`, one a line, as above.

    Raises:
        KafkaConfigurationError: a line has no colon, a name or password is empty, or no line counts.
    """
    held: dict[str, bytes] = {}
    for line in _lines(users):
        name, colon, password = line.partition(":")
        if not colon or not name or not password:
            raise KafkaConfigurationError("a line of users must be name:password, and one is not")
        held[name] = password.encode()
    return Credentials(tokens=tuple(token.encode() for token in _lines(tokens)), users=held)


def _lines(text: Iterable[str]) -> list[str]:
    stripped = [line.strip() for line in text]
    return [line for line in stripped if line and not line.startswith("#")]


def host_name(host: str) -> str:
    """The name of a `Host` header without its port, in lower case; empty for one that cannot be read."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def is_loopback(name: str) -> bool:
    """Whether a name or an address is that of this machine."""
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False
