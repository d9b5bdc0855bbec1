"""Texts of PySpark's exceptions, rewritten to start with the error of kafkalike in them."""

import pytest

from kafkalike.spark.jvm.spark_errors import named_first

BATCH = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An \
error occurred in the user provided function in foreach batch sink. Reason: An exception was raised by the Python \
Proxy. Return Message: Traceback (most recent call last):
  File "py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
kafkalike.errors.client_errors.KafkaTimeoutError: t: the first of two

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "x.py", line 7, in write
kafkalike.errors.client_errors.MessageSizeTooLargeError: t: a record has 570 bytes; max.message.bytes=200
 SQLSTATE: 39000
=== Streaming Query ===
Identifier: [id = 1, runId = 2]
"""
COLUMN = (
    "[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source writer: "
    "pyspark.errors.exceptions.base.AnalysisException: value must be a(n) string or binary, not int SQLSTATE: 38000"
)
WORKER = """An exception was thrown from the Python worker:
kafkalike.errors.DataLossError: KAFKA_DATA_LOSS.X: t-0: offsets [0, 1) are lost: a file is missing"""
USERS = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "x.py", line 7, in f
ValueError: the module kafkalike.errors has no such name"""


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        pytest.param(
            BATCH,
            "MessageSizeTooLargeError: t: a record has 570 bytes; max.message.bytes=200",
            "Spark: [STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
            "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch "
            "sink. Reason: An exception was raised by the Python Proxy.",
            id="the last error of a batch",
        ),
        pytest.param(
            COLUMN,
            "AnalysisException: value must be a(n) string or binary, not int",
            "Spark: [PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source writer",
            id="a wrong column",
        ),
        pytest.param(
            WORKER,
            "DataLossError: KAFKA_DATA_LOSS.X: t-0: offsets [0, 1) are lost: a file is missing",
            "Spark: An exception was thrown from the Python worker",
            id="a worker",
        ),
    ],
)
def test_text_starts_with_the_error_of_kafkalike(text: str, first: str, second: str) -> None:
    shown = named_first(text)

    assert shown.splitlines() == [first, second]
    assert named_first(shown) == shown


WRAPPED = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "x.py", line 7, in f
RuntimeError: order 7 failed: kafkalike.errors.client_errors.InvalidTopicError: 'a b' is wrong"""
PYSPARKS = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "x.py", line 7, in f
pyspark.errors.exceptions.base.PySparkAttributeError: [ATTRIBUTE_NOT_SUPPORTED] Attribute `a` is not supported."""
RAISED_ANEW = (
    BATCH.partition("kafkalike.errors.client_errors.MessageSize")[0] + "ValueError: a mistake of the user's own"
)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(USERS, id="alone"),
        pytest.param(RAISED_ANEW, id="because of ours"),
        pytest.param(WRAPPED, id="naming ours in its message"),
        pytest.param(PYSPARKS, id="raised by PySpark"),
    ],
)
def test_text_of_the_users_own_error_is_unchanged(text: str) -> None:
    assert named_first(text) == text


def test_stack_trace_that_a_session_asks_for_is_kept() -> None:
    text = f"{COLUMN}\n\nJVM stacktrace:\norg.apache.spark.sql.AnalysisException\n\tat x.Y"

    shown = named_first(text).splitlines()

    assert shown[0] == "AnalysisException: value must be a(n) string or binary, not int"
    assert shown[-1] == "\tat x.Y"
