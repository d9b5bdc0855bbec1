"""Credentials of clients: tokens and users in an `Authorization` header, and the check for a loopback `Host`."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kafkalike.errors import KafkaConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Credentials:
    """Accepted tokens and users; without any, every client is allowed. It has no repr, so secrets do not leak."""

    tokens: tuple[bytes, ...] = ()
    users: Mapping[str, bytes] = field(default_factory=dict)
    """Passwords by user name."""

    @property
    def needed(self) -> bool:
        """True if clients must authenticate."""
        return bool(self.tokens or self.users)

    def allow(self, header: str | None) -> bool:
        """Return True if an `Authorization` header contains accepted credentials, comparing in constant time."""
        if not self.needed:
            return True
        scheme, _, given = (header or "").partition(" ")
        if scheme.lower() == "bearer":
            # Compare with all tokens, so that the time does not reveal which one almost matches.
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
    """Parse credentials from lines of text.

    Args:
        tokens: one token per line; empty lines and lines that start with `#` are ignored.
        users: one `name:password` per line; likewise.

    Raises:
        KafkaConfigurationError: a line of users has no colon, or an empty name or password.
    """
    held: dict[str, bytes] = {}
    for line in _lines(users):
        name, colon, password = line.partition(":")
        if not colon or not name or not password:
            raise KafkaConfigurationError("each line of the users file must be name:password")
        held[name] = password.encode()
    return Credentials(tokens=tuple(token.encode() for token in _lines(tokens)), users=held)


def _lines(text: Iterable[str]) -> list[str]:
    stripped = [line.strip() for line in text]
    return [line for line in stripped if line and not line.startswith("#")]


def host_name(host: str) -> str:
    """Return the name in a `Host` header without its port, in lower case; empty for an invalid header."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def is_loopback(name: str) -> bool:
    """Return True for names and addresses of this machine's loopback interface."""
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


def tls_context(certificate: tuple[str, str | None]) -> ssl.SSLContext:
    """Return the TLS settings of a server.

    Args:
        certificate: files of the certificate chain and its key.

    Raises:
        KafkaConfigurationError: the files are not a certificate and its key, or the key has a password.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    file, key = certificate
    try:
        context.load_cert_chain(file, key, password=_no_password)
    except (OSError, ValueError) as cause:
        raise KafkaConfigurationError(f"the certificate in {file} cannot be used: {cause}") from cause
    return context


def _no_password() -> str:
    """Raise an error, because nobody can type a password."""
    raise ValueError("its key has a password")
