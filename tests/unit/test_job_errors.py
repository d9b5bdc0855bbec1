"""Errors of a job: what Spark and Java say in pages, in one line."""

import pytest

from kafkalike.cli.jobs.job import first_line

JAVA = """An error occurred while calling o154.save.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.Writer.write(Writer.scala:1)
Caused by: org.apache.spark.SparkRuntimeException: [CANNOT_PARSE] Cannot parse 'x'.
\tat org.apache.spark.Parser.parse(Parser.scala:1)
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "ValueError"),
        ("\n one \ntwo", "one"),
        ("[PATH_NOT_FOUND] Path does not exist: file:/x.\nplan", "[PATH_NOT_FOUND] Path does not exist: file:/x."),
        (JAVA, "[CANNOT_PARSE] Cannot parse 'x'."),
    ],
)
def test_an_error_is_one_line(text: str, line: str) -> None:
    """Java's last cause, else the first line, else the error's name."""
    assert first_line(ValueError(text)) == line


def test_javas_cause_is_said_behind_an_error_of_ours() -> None:
    """An error that wraps one of Java's keeps its own words."""
    error = ValueError("orders: Spark could not write")
    error.__cause__ = RuntimeError(JAVA)

    assert first_line(error) == "orders: Spark could not write ([CANNOT_PARSE] Cannot parse 'x'.)"
