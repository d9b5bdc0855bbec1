"""Errors of a job: what Spark and Java say in pages, in one line."""

import pytest

from kafkalike.cli.jobs.job import first_line

JAVA = """An error occurred while calling o154.save.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.Writer.write(Writer.scala:1)
Caused by: org.apache.spark.SparkRuntimeException: [CANNOT_PARSE] Cannot parse 'x'.
\tat org.apache.spark.Parser.parse(Parser.scala:1)
"""
STREAM = """[STREAM_FAILED] Query [id = 1] terminated with exception: An exception was raised. Return Message: \
Traceback (most recent call last):
  File "py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
kafkalike.errors.client_errors.InvalidRecordError: orders: record 3 has no schema

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "x.py", line 7, in write
kafkalike.errors.client_errors.InvalidRecordError: orders: 1 record was refused; nothing was written
	at org.apache.spark.Sink.write(Sink.scala:1)
Caused by: org.apache.spark.SparkRuntimeException: [CANNOT_PARSE] Cannot parse 'x'.
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (STREAM, "InvalidRecordError: orders: 1 record was refused; nothing was written"),
        ("", "ValueError"),
        ("\n one \ntwo", "one"),
        ("[PATH_NOT_FOUND] Path does not exist: file:/x.\nplan", "[PATH_NOT_FOUND] Path does not exist: file:/x."),
        (JAVA, "[CANNOT_PARSE] Cannot parse 'x'."),
    ],
)
def test_an_error_is_one_line(text: str, line: str) -> None:
    """What a Python function has raised, else Java's last cause, else the first line, else the error's name."""
    assert first_line(ValueError(text)) == line


def test_javas_cause_is_said_behind_an_error_of_ours() -> None:
    """An error that wraps one of Java's keeps its own words."""
    error = ValueError("orders: Spark could not write")
    error.__cause__ = RuntimeError(JAVA)

    assert first_line(error) == "orders: Spark could not write ([CANNOT_PARSE] Cannot parse 'x'.)"
