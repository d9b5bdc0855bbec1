"""Requests that the console allows or refuses."""

import pytest

from kafkalike.schemas.service.credentials import host_name, is_loopback
from kafkalike.ui.access_control import CHANGES, AccessControl, allowed

GUARD = AccessControl(token="sesame", port=8090, hosts=allowed(["Console.Example", " "]), secret=b"s" * 32)  # noqa: S106

COOKIE = {"cookie": f"{GUARD.cookie}={GUARD.pass_of()}"}

HERE = {"host": "localhost:8090"}


def status(method: str, headers: dict[str, str], change_key: str = "", access: AccessControl = GUARD) -> int:
    """What a request gets; 200 when a page may answer."""
    refusal = access.refusal(method, headers, change_key)
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 401),
        ({"authorization": "Bearer sesame"}, 200),
        ({"authorization": "token sesame"}, 200),
        ({"authorization": "Bearer sesam"}, 401),
        ({"authorization": "Basic sesame"}, 401),
        (COOKIE, 200),
        ({"cookie": f"a=b; {GUARD.cookie}={GUARD.pass_of()}"}, 200),
        ({"cookie": f"{GUARD.cookie}=sesame"}, 401),
        ({"cookie": f"kafkalike_console_8091={GUARD.pass_of()}"}, 401),
        ({"cookie": '"\x00; =;'}, 401),
        ({"cookie": f'prefs={{"a": "b"}}; {GUARD.cookie}={GUARD.pass_of()}; x'}, 200),
        ({"cookie": f"{GUARD.cookie}=old; {GUARD.cookie}={GUARD.pass_of()}"}, 200),
    ],
)
def test_who_knows_the_token_may_ask(headers: dict[str, str], expected: int) -> None:
    """By the cookie of an earlier visit, or the token itself."""
    assert status("GET", HERE | headers) == expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1:8090", 200),
        ("127.8.9.1", 200),
        ("[::1]:8090", 200),
        ("console.example", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("10.0.0.1", 403),
        ("", 403),
        ("[::1", 403),
    ],
)
def test_only_known_names_reach_it(host: str, expected: int) -> None:
    """A page elsewhere could point a name of its own at this machine."""
    assert status("GET", {"host": host} | COOKIE) == expected


@pytest.mark.parametrize("method", sorted(CHANGES))
def test_a_change_needs_the_secret_of_a_page(method: str) -> None:
    """And must not come from a page of another site."""
    known = HERE | COOKIE
    key = GUARD.change_key()

    assert status(method, known, key) == 200
    assert status(method, known | {"origin": "http://localhost:8090", "sec-fetch-site": "same-origin"}, key) == 200
    assert status(method, known) == 403
    assert status(method, known, "0" * 64) == 403
    assert status(method, known, "ä") == 403
    assert status(method, known | {"origin": "http://evil.example"}, key) == 403
    assert status(method, known | {"origin": "http://localhost:9"}, key) == 403
    assert status(method, known | {"origin": "null"}, key) == 403
    assert status(method, known | {"origin": "http://["}, key) == 403
    assert status(method, known | {"sec-fetch-site": "cross-site"}, key) == 403
    assert status(method, HERE, key) == 401


def test_a_read_only_console_refuses_every_change() -> None:
    """With the right secret too."""
    access = AccessControl(token="", port=1, read_only=True)

    assert status("POST", HERE, access.change_key(), access) == 403
    assert status("GET", HERE, access=access) == 200


def test_without_a_token_everybody_on_this_machine_may_ask() -> None:
    """But pages of other sites still may not change anything."""
    access = AccessControl(token="", port=1)

    assert status("GET", HERE, access=access) == 200
    assert status("GET", {"host": "evil.example"}, access=access) == 403
    assert status("POST", HERE, access=access) == 403


def test_secrets_are_of_one_console() -> None:
    """A console that starts again takes no cookies of the one before, and shows none of them."""
    one, other = AccessControl(token="t", port=1), AccessControl(token="t", port=1)  # noqa: S106

    assert one.pass_of() != other.pass_of()
    assert one.change_key() != other.change_key()
    assert one.pass_of() != one.change_key()
    assert "canary" not in repr(AccessControl(token="canary", port=1))  # noqa: S106


def test_names_and_addresses() -> None:
    """What a host header may hold."""
    assert [host_name(one) for one in ("A:1", "[::1]:2", "b", "[")] == ["a", "::1", "b", ""]
    assert [is_loopback(one) for one in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "x")] == [  # noqa: S104
        True,
        True,
        True,
        False,
        False,
    ]
