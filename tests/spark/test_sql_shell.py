"""`kafkalike sql`: statements from the command line, from a pipe, and at a prompt."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkalike import KafkaProducer
from kafkalike.admin.testing import ManualClock
from kafkalike.cli.app import run
from kafkalike.cli.environment import Environment
from kafkalike.connect import connect


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


@pytest.mark.parametrize(
    ("options", "printed"), [([], "n\n2\nx\n1\n"), (["--bail"], "n\n2\n")], ids=["default", "bail"]
)
def test_statement_that_fails_ends_a_pipe_only_with_bail(
    spark: SparkSession, filled: str, options: list[str], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in psql and DuckDB; but the exit code always tells."""
    text = "-- how many; in all\nSELECT count(*) AS n FROM orders;\nDROP TABLE orders; SELECT 1 AS x"
    code = ran(spark, filled, *options, stdin=text)

    said = capsys.readouterr()
    assert (code, said.out) == (1, printed)
    assert said.err.startswith("Error: ")
    assert said.err.count("\n") == 1


def test_show_tables_lists_the_views_of_topics_and_of_the_cluster(
    spark: SparkSession, filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = ran(spark, filled, "-e", "show tables", "-e", "SHOW TABLES LIKE 'x*'")

    said = capsys.readouterr()
    rows = [line.split() for line in said.out.splitlines()]
    assert code == 1
    assert rows[:4] == [["view", "topic"], ["kafkalike_brokers", "NULL"], ["kafkalike_consumer_offsets", "NULL"], [
        "kafkalike_lag", "NULL",
    ]]  # fmt: skip
    assert rows[-2:] == [["orders", "orders"], ["orders__text", "orders"]]
    assert (
        said.err
        == "Error: only SELECT, a plain SHOW TABLES and DESCRIBE with a view's name are allowed here, not ShowTables\n"
    )


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
    assert said.err == "Error: 'nowhere' is not a view of this cluster; SHOW TABLES lists them\n"


class LeapingClock(ManualClock):
    """A clock on which a minute passes between two looks."""

    def monotonic(self) -> float:
        self.seconds += 61
        return self.seconds


def test_statement_that_takes_minutes_is_not_cancelled(
    spark: SparkSession, filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The console cancels it after 60 seconds; here Ctrl-C does."""
    environment = Environment(cluster=connect(filled), spark=lambda: spark, clock=LeapingClock())
    slow = "SELECT count(DISTINCT id % 1000) AS n FROM range(20000000)"

    assert run(["sql", "-e", slow], environment) == 0
    assert capsys.readouterr().out == "n\n1000\n"


def test_a_root_that_does_not_exist_is_an_error_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def never() -> SparkSession:
        raise AssertionError("Spark was asked for")

    code = run(["sql", "--bootstrap-server", str(tmp_path / "none"), "-e", "SELECT 1"], Environment(spark=never))

    assert code == 1
    assert "does not exist" in capsys.readouterr().err
