"""`kafkalike gateway users`: users and their rules, in a file that no command prints the keys of."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from kafkalike.admin.testing import MemoryCluster
from tests.tools.cli import Done, call


def run(path: Path, *args: str) -> Done:
    return call(MemoryCluster(), "gateway", "users", *args, "--users-file", str(path))


def test_users_are_added_listed_changed_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "users.toml"
    monkeypatch.setattr("sys.stdin", io.StringIO("pencil\n"))

    assert run(path, "add", "alice", "--password-stdin", "--allow", "read topic a*", "--allow", "use group g").code == 0
    assert run(path, "list").out == "alice: read topic a*, use group g\n"
    before = path.read_text().splitlines()[3:6]
    assert run(path, "add", "alice", "--keep-password", "--allow", "admin").code == 0
    assert run(path, "list").out == "alice: admin\n"
    assert path.read_text().splitlines()[3:6] == before
    assert run(path, "remove", "alice").code == 0
    assert run(path, "list").out == ""


@pytest.mark.parametrize(
    ("args", "text"),
    [
        pytest.param(("remove", "bob"), "has no user 'bob'", id="unknown-user"),
        pytest.param(("add", "bob", "--keep-password"), "user 'bob' needs a password", id="no-password"),
        pytest.param(("add", "alice", "--keep-password", "--allow", "reed topic a"), "is not a rule", id="no-rule"),
        pytest.param(("add", "alice", "--keep-password", "--password-stdin"), "exclude each other", id="two-passwords"),
    ],
)
def test_wrong_call_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], text: str
) -> None:
    path = tmp_path / "users.toml"
    monkeypatch.setattr("sys.stdin", io.StringIO("pencil\n"))
    run(path, "add", "alice", "--password-stdin")
    before = path.read_text()

    done = run(path, *args)

    assert done.code != 0
    assert text in done.err
    assert path.read_text() == before
