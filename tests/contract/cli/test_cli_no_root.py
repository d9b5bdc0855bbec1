"""Commands on a root that is not there: a mistyped path must not look like a cluster where all is well."""

from pathlib import Path

import pytest

from kafkalike.cli import main

ASKING = [
    "topics --list",
    "topics --describe",
    "topics --delete --topic t",
    "configs --describe --topic t",
    "get-offsets",
    "log-dirs --describe",
    "leader-election --all-topic-partitions --election-type preferred",
    "reassign-partitions --list",
    "brokers list",
    "replicate",
    "dump-log --topic t",
    "history t",
    "snapshot --topic t",
    "verify",
    "maintain",
    "forget --topic t --key a",
    "undo --topic t --append x",
    "fork t new",
    "dlq list",
    "transactions list",
    "metrics",
]


@pytest.mark.parametrize("line", ASKING)
def test_whoever_asks_is_told_that_there_is_no_root_and_none_is_made(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With exit code 1, as of a broker that cannot be reached."""
    root = tmp_path / "none"
    monkeypatch.setenv("KAFKALIKE_BOOTSTRAP_SERVERS", str(root))

    code = main(line.split())

    told = f"Error: the root {root} does not exist: check bootstrap_servers, and that its file system is mounted\n"
    assert (code, capsys.readouterr().err) == (1, told)
    assert not root.exists()
