"""The file of a gateway's users, and the exchange by which a connection authenticates."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient

from kafkalike.errors import (
    IllegalSaslStateError,
    KafkaConfigurationError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kafkalike.gateway.authentication import SaslSession, UserFile


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> UserFile:
    file = UserFile(tmp_path_factory.mktemp("users") / "users.toml")
    file.add("alice", "pencil", ["read topic a*"])
    file.add('böb=,"x', "gürk", ["admin"])
    return file


def scram(session: SaslSession, mechanism: str, name: str, password: str) -> None:
    client = ScramClient([mechanism], name, password)
    session.choose(mechanism)
    client.set_server_first(session.answer(client.get_client_first().encode()).decode())
    client.set_server_final(session.answer(client.get_client_final().encode()).decode())


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("name", "password"), [("alice", "pencil"), ('böb=,"x', "gürk")], ids=["plain", "odd"])
def test_scram_accepts_the_password(users: UserFile, mechanism: str, name: str, password: str) -> None:
    session = SaslSession(users, plain=False)
    scram(session, mechanism, name, password)
    assert session.principal == name


@pytest.mark.parametrize(("name", "password"), [("alice", "pen"), ("carol", "pencil"), ("", "pencil")])
def test_scram_rejects_a_wrong_password_and_an_unknown_user_alike(users: UserFile, name: str, password: str) -> None:
    session = SaslSession(users, plain=False)
    with pytest.raises(SaslAuthenticationFailedError, match="wrong user or password"):
        scram(session, "SCRAM-SHA-256", name or "nobody", password)
    assert session.principal is None
    with pytest.raises(IllegalSaslStateError):
        session.answer(b"")


def test_plain_accepts_the_password_only(users: UserFile) -> None:
    for message, principal in (
        ("\0alice\0pencil", "alice"),
        ("alice\0alice\0pencil", "alice"),
        ("carol\0alice\0pencil", None),
        ("\0alice\0pencil2", None),
        ("\0carol\0pencil", None),
        ("alice", None),
        ("\0alice\0pencil\0", None),
    ):
        session = SaslSession(users, plain=True)
        session.choose("PLAIN")
        if principal is None:
            with pytest.raises(SaslAuthenticationFailedError):
                session.answer(message.encode())
        else:
            assert session.answer(message.encode()) == b""
        assert session.principal == principal


def test_plain_is_not_offered_in_the_clear(users: UserFile) -> None:
    with pytest.raises(UnsupportedSaslMechanismError, match="offered: SCRAM-SHA-256, SCRAM-SHA-512"):
        SaslSession(users, plain=False).choose("PLAIN")


def test_unknown_user_has_the_same_salt_each_time(users: UserFile) -> None:
    """Otherwise two first messages would tell that the user does not exist."""
    salts = {users.keys("carol", "SCRAM-SHA-256")[0] for _ in range(2)}
    assert len(salts) == 1
    assert users.keys("dave", "SCRAM-SHA-256")[0] not in salts


@given(st.lists(st.binary(max_size=60), max_size=3), st.sampled_from(["PLAIN", "SCRAM-SHA-256"]))
def test_hostile_messages_authenticate_nobody(users: UserFile, messages: list[bytes], mechanism: str) -> None:
    session = SaslSession(users, plain=True)
    session.choose(mechanism)
    for message in messages:
        try:
            session.answer(message)
        except (SaslAuthenticationFailedError, IllegalSaslStateError):
            break
    assert session.principal is None


def test_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    UserFile(path).add("alice", "one", ["read topic a"])
    reader = UserFile(path)
    assert reader.verify("alice", "one")

    UserFile(path).add("alice", "two", None)
    UserFile(path).add("bob", "three", ["admin"])

    assert [reader.verify("alice", one) for one in ("one", "two")] == [False, True]
    assert [rule for user in reader.users().values() for rule in user.allowed] == ["read topic a", "admin"]
    assert UserFile(path).remove("alice")
    assert not reader.verify("alice", "two")
    assert not reader.rules("alice").admin
    assert not UserFile(path).remove("alice")


def test_file_holds_no_password_and_belongs_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    UserFile(path).add("alice", "pencil", [])
    assert "pencil" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o660)
    with pytest.raises(KafkaConfigurationError, match="chmod 600"):
        UserFile(path).users()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "users = 3",
        "[users.alice]\nallow = []",
        "[users.alice]\nscram-sha-256 = 'x'\nscram-sha-512 = 'x'\nallow = []",
        "[[",
    ],
    ids=["empty", "number", "no-keys", "bad-keys", "not-toml"],
)
def test_malformed_file_is_refused_by_name_and_gives_no_rights(tmp_path: Path, content: str) -> None:
    path = tmp_path / "users.toml"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(KafkaConfigurationError, match=r"users\.toml is not a file of users"):
        UserFile(path).users()
    assert not UserFile(path).rules("alice").admin


@pytest.mark.parametrize(
    ("name", "password", "allowed"),
    [
        ("", "p", []),
        ("a\n", "p", []),
        ("x" * 257, "p", []),
        ("a", None, []),
        ("a", "p", ["reed topic a"]),
        ("a", "", []),
    ],
    ids=["no-name", "control", "long", "no-password", "no-rule", "empty-password"],
)
def test_user_that_cannot_be_added_leaves_no_file(
    tmp_path: Path, name: str, password: str | None, allowed: list[str]
) -> None:
    file = UserFile(tmp_path / "users.toml")
    with pytest.raises(KafkaConfigurationError):
        file.add(name, password, allowed)
    assert list(tmp_path.iterdir()) == []
