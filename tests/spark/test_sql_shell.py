"""`kafkalike sql`: statements from the command line, from a pipe, and at a prompt."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkalike import KafkaProducer
from kafkalike.cli.app import run
from kafkalike.cli.environment import Environment


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("sql"))
    with KafkaProducer(bootstrap_servers=root) as producer:
        producer.send("orders", b'{"item": "tea"}', key=b"alice").get(60)
        producer.send("orders", b"\x1b[2Jcleared\n" + b"x" * 200, key=b"\xff\x00").get(60)
    return root


def ran(spark: SparkSession, filled: str, *args: str, stdin: str = "") -> int:
    environment = Environment(spark=lambda: spark, stdin=io.BytesIO(stdin.encode()))
    return run(["sql", "--bootstrap-server", filled, *args], environment)


def test_statements_of_the_command_line_are_run_in_turn(
    spark: SparkSession, filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = ran(
        spark, filled,
        "-e", "SELECT key, value FROM orders WHERE key = 'alice'",
        "-e", "SELECT count(*) AS records, NULL AS nothing FROM orders",
    )  # fmt: skip

    assert (code, capsys.readouterr().out) == (
        0,
        'key    value\nalice  {"item": "tea"}\nrecords  nothing\n2        NULL\n',
    )


def test_cells_do_not_move_the_cursor_and_are_cut(
    spark: SparkSession, filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = ran(spark, filled, "-e", "SELECT key, value FROM orders WHERE key <> 'alice'")

    assert code == 0
    assert capsys.readouterr().out.splitlines()[1] == f"0xff00  \\x1b[2Jcleared\\n{'x' * 87}…"


def test_statements_of_a_pipe_end_with_the_first_that_fails(
    spark: SparkSession, filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "-- how many; in all\nSELECT count(*) AS n FROM orders;\nDROP TABLE orders; SELECT 'not run'"
    code = ran(spark, filled, stdin=text)

    said = capsys.readouterr()
    assert (code, said.out) == (1, "n\n2\n")
    assert said.err.startswith("Error: ")
    assert said.err.count("\n") == 1


class Terminal(io.StringIO):
    """Standard input as somebody types it."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("end", ["exit\n", "QUIT;\n", ""], ids=["exit", "quit", "end-of-input"])
def test_a_prompt_goes_on_after_an_error_until_it_is_left(
    spark: SparkSession, filled: str, end: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = f"SELECT nothing\nFROM nowhere;\n\nSELECT max(offset) AS newest\nFROM orders;\n{end}"
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    code = ran(spark, filled)

    said = capsys.readouterr()
    assert code == 0
    assert said.out.startswith("Views: orders, kafkalike_topics, ")
    assert "newest\n1\n" in said.out
    assert said.err == "Error: 'nowhere' is not a view of this cluster\n"


def test_a_root_that_does_not_exist_is_an_error_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def never() -> SparkSession:
        raise AssertionError("Spark was asked for")

    code = run(["sql", "--bootstrap-server", str(tmp_path / "none"), "-e", "SELECT 1"], Environment(spark=never))

    assert code == 1
    assert "does not exist" in capsys.readouterr().err
