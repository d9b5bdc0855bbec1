"""Authentication: the file of a gateway's users, and the SASL exchange of a connection.

The file holds no passwords, only the keys by which SCRAM verifies them. PLAIN is verified with the same keys.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import tempfile
import tomllib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from scramp import ScramException, ScramMechanism

from kafkalike import errors
from kafkalike.gateway.access_rules import AccessRules
from kafkalike.model.concurrency import OnError
from kafkalike.model.names import is_storable

SCRAM: Final = {"SCRAM-SHA-256": "scram-sha-256", "SCRAM-SHA-512": "scram-sha-512"}
"""Mechanisms with their names in the file."""

PLAIN: Final = "PLAIN"

ITERATIONS: Final = 8192
"""Iterations of a new password's hash; Kafka's default is 4,096."""

MAX_USER_NAME: Final = 256

KEY_PARTS: Final = 4

NO_RULES: Final = AccessRules()

Keys = tuple[bytes, bytes, bytes, int]
"""Salt, stored key, server key, and iterations."""


@dataclass(frozen=True, slots=True, repr=False)
class GatewayUser:
    """A user. It has no repr, so that keys do not get into logs."""

    keys: Mapping[str, Keys]
    """Keys by the name of the SASL mechanism."""
    allowed: tuple[str, ...] = ()
    """Rules, as the file has them."""
    rules: AccessRules = NO_RULES


@dataclass(slots=True)
class UserFile:
    """A file of users, which is read again when it changes.

    Args:
        path: the file; `add` creates it.
    """

    path: Path
    _users: Mapping[str, GatewayUser] = field(default_factory=dict)
    _seen: tuple[int, int, int] | None = None
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def users(self) -> Mapping[str, GatewayUser]:
        """Return the users by name.

        Raises:
            KafkaConfigurationError: the file is missing or malformed, or others than its owner may change it.
        """
        try:
            stat = self.path.stat()
            seen = stat.st_mtime_ns, stat.st_size, stat.st_ino
            if seen == self._seen:
                return self._users
            if stat.st_mode & 0o022:
                raise errors.KafkaConfigurationError(f"{self.path}: others may change it; run chmod 600 on it")
            content = self.path.read_bytes()
        except OSError as cause:
            raise errors.KafkaConfigurationError(f"{self.path}: the users cannot be read: {cause}") from cause
        self._users, self._seen = self._parsed(content), seen
        return self._users

    def _parsed(self, content: bytes) -> dict[str, GatewayUser]:
        try:
            found = tomllib.loads(content.decode())["users"]
            return {name: _user_of(values) for name, values in found.items()}
        except (ValueError, LookupError, TypeError, AttributeError) as cause:
            raise errors.KafkaConfigurationError(f"{self.path} is not a file of users: {cause}") from cause

    def rules(self, name: str) -> AccessRules:
        """Return the rules of a user; none for an unknown one, or while the file cannot be read."""
        with contextlib.suppress(errors.KafkaConfigurationError):
            user = self.users().get(name)
            return NO_RULES if user is None else user.rules
        return NO_RULES

    def keys(self, name: str, mechanism: str) -> Keys:
        """Return the keys of a user; made-up ones for an unknown user, so that an answer does not tell who exists."""
        user = self.users().get(name)
        if user is not None:
            return user.keys[mechanism]
        salt = hmac.digest(self._secret, f"{mechanism} {name}".encode(), "sha256")[:16]
        return salt, secrets.token_bytes(32), secrets.token_bytes(32), ITERATIONS

    def verify(self, name: str, password: str) -> bool:
        """Return whether a password is that of a user."""
        mechanism = "SCRAM-SHA-256"
        salt, stored, _, iterations = self.keys(name, mechanism)
        try:
            made = ScramMechanism(mechanism).make_auth_info(password, iterations, salt)
        except (ScramException, ValueError):
            return False
        return hmac.compare_digest(made[1], stored)

    def add(self, name: str, password: str | None, allowed: Sequence[str] | None) -> None:
        """Add a user, or change one.

        Args:
            name: the user.
            password: None keeps a known user's password.
            allowed: rules; None keeps a known user's rules.

        Raises:
            KafkaConfigurationError: the name, the password or a rule is not valid, or a new user has no password.
        """
        known = dict(self.users()) if self.path.exists() else {}
        before = known.get(name)
        if not name or len(name) > MAX_USER_NAME or not is_storable(name) or not name.isprintable():
            raise errors.KafkaConfigurationError(
                f"{name!r} is not a name of a user: 1 to {MAX_USER_NAME} printable characters"
            )
        if password == "" or (before is None and password is None):
            raise errors.KafkaConfigurationError(f"user {name!r} needs a password")
        keys = before.keys if before is not None and password is None else _new_keys(password or "")
        rules = before.allowed if allowed is None and before is not None else tuple(allowed or ())
        known[name] = GatewayUser(keys, rules, AccessRules.parse(rules))
        self._write(known)

    def remove(self, name: str) -> bool:
        """Remove a user; return False if it does not exist."""
        known = dict(self.users())
        if known.pop(name, None) is None:
            return False
        self._write(known)
        return True

    def _write(self, users: Mapping[str, GatewayUser]) -> None:
        lines = ["# Users of kafkalike gateway; change them with: kafkalike gateway users", "[users]"]
        for name, user in sorted(users.items()):
            lines += ["", f"[users.{json.dumps(name)}]"]
            lines += [f"{SCRAM[mechanism]} = {json.dumps(_dump_keys(keys))}" for mechanism, keys in user.keys.items()]
            lines.append(f"allow = {json.dumps(list(user.allowed))}")
        # Readers see the old file or the new one, and nobody else may read it at any time.
        descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        with OnError(partial(Path(name).unlink, missing_ok=True)):
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
            Path(name).replace(self.path)


def _new_keys(password: str) -> dict[str, Keys]:
    try:
        return {name: ScramMechanism(name).make_auth_info(password, ITERATIONS) for name in SCRAM}
    except (ScramException, ValueError) as cause:
        raise errors.KafkaConfigurationError(f"the password is not valid: {cause}") from cause


def _user_of(values: Mapping[str, Any]) -> GatewayUser:
    unknown = values.keys() - {*SCRAM.values(), "allow"}
    if unknown:
        raise ValueError(f"unknown setting {min(unknown)!r}")
    allowed = tuple(values["allow"])
    return GatewayUser(
        {mechanism: _load_keys(values[name]) for mechanism, name in SCRAM.items()}, allowed, AccessRules.parse(allowed)
    )


def _dump_keys(keys: Keys) -> str:
    salt, stored, server, iterations = keys
    return "$".join([str(iterations), *(b64encode(part).decode() for part in (salt, stored, server))])


def _load_keys(text: str) -> Keys:
    parts = text.split("$")
    if len(parts) != KEY_PARTS:
        raise ValueError("a key has four parts")
    salt, stored, server = (b64decode(part, validate=True) for part in parts[1:])
    return salt, stored, server, int(parts[0])


class SaslSession:
    """The authentication of one connection.

    Args:
        users: the users.
        plain: whether passwords may pass in the clear, because the connection is encrypted or local.
    """

    def __init__(self, users: UserFile, *, plain: bool) -> None:
        self.mechanisms = (*SCRAM, PLAIN) if plain else tuple(SCRAM)
        self.principal: str | None = None
        """Name of the user once it has authenticated."""
        self._users = users
        self._mechanism: str | None = None
        self._server: Any = None
        self._claimed = ""

    def choose(self, mechanism: str) -> None:
        """Begin an exchange.

        Raises:
            UnsupportedSaslMechanismError: the mechanism is not offered.
            IllegalSaslStateError: the connection has authenticated.
        """
        if self.principal is not None:
            raise errors.IllegalSaslStateError("the connection is authenticated; authenticating again is not supported")
        if mechanism not in self.mechanisms:
            raise errors.UnsupportedSaslMechanismError(
                f"{mechanism!r} is not offered; offered: {', '.join(self.mechanisms)}"
            )
        self._mechanism, self._server = mechanism, None

    def answer(self, message: bytes) -> bytes:
        """Return the answer to a message of the exchange; after the last one, `principal` is set.

        Raises:
            IllegalSaslStateError: no mechanism was chosen.
            SaslAuthenticationFailedError: user or password are wrong; close the connection.
        """
        if self._mechanism is None or self.principal is not None:
            raise errors.IllegalSaslStateError("SaslAuthenticate without SaslHandshake")
        try:
            return self._plain(message) if self._mechanism == PLAIN else self._scram(message.decode())
        except (ScramException, errors.KafkaConfigurationError, ValueError, LookupError) as cause:
            # The reason stays here: it would tell an attacker what to try next.
            self._mechanism = None
            raise errors.SaslAuthenticationFailedError("authentication failed: wrong user or password") from cause

    def _plain(self, message: bytes) -> bytes:
        identity, name, password = message.decode().split("\0")
        if identity not in {"", name} or not self._users.verify(name, password):
            raise ValueError("wrong user or password")
        self.principal = name
        return b""

    def _scram(self, message: str) -> bytes:
        mechanism = self._mechanism
        assert mechanism is not None
        if self._server is None:

            def keys(name: str) -> Keys:
                self._claimed = name
                return self._users.keys(name, mechanism)

            self._server = ScramMechanism(mechanism).make_server(keys)
            self._server.set_client_first(message)
            return str(self._server.get_server_first()).encode()
        self._server.set_client_final(message)
        last = str(self._server.get_server_final()).encode()
        self.principal = self._claimed
        return last
