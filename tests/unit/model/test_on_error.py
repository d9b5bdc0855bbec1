"""A block that is cut off takes back what it began."""

import logging

import pytest

from kafkalike.errors import CorruptRecordError, InvalidSchemaError
from kafkalike.errors.kafka_error import foreign_errors
from kafkalike.model.concurrency import OnError, ReportErrors


@pytest.mark.parametrize(
    "error", [OSError("full"), KeyboardInterrupt(), GeneratorExit()], ids=lambda error: type(error).__name__
)
def test_error_or_interrupt_undoes_and_goes_on(error: BaseException) -> None:
    undone = list[str]()

    with pytest.raises(type(error)) as caught, OnError(lambda: undone.append("undone")):
        raise error

    assert caught.value is error
    assert undone == ["undone"]


def test_block_that_ends_is_not_undone() -> None:
    undone = list[str]()

    with OnError(lambda: undone.append("undone")):
        undone.append("done")

    assert undone == ["done"]


def test_error_of_the_undo_keeps_the_first_as_its_context() -> None:
    def fail() -> None:
        raise ValueError("the undo failed")

    with pytest.raises(ValueError, match="the undo failed") as caught, OnError(fail):
        raise OSError("full")

    assert str(caught.value.__context__) == "full"


def test_error_of_the_users_code_is_logged_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("a bug")

    with ReportErrors(logging.getLogger("kafkalike.test"), "callback %s failed", "f") as reported:
        raise error

    assert reported.error is error
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [("ERROR", "callback f failed")]
    assert "ValueError: a bug" in caplog.text


def test_block_without_an_error_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with ReportErrors(logging.getLogger("kafkalike.test"), "a callback failed") as reported:
        pass

    assert reported.error is None
    assert caplog.records == []


def test_interrupt_of_the_users_code_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyboardInterrupt), ReportErrors(logging.getLogger("kafkalike.test"), "a callback failed"):
        raise KeyboardInterrupt

    assert caplog.records == []


def test_foreign_error_becomes_the_cause_of_ours() -> None:
    foreign = RecursionError("too deep")

    def refuse(cause: Exception) -> InvalidSchemaError:
        return InvalidSchemaError(f"no schema: {cause}")

    with pytest.raises(InvalidSchemaError, match="no schema: too deep") as caught, foreign_errors(refuse):
        raise foreign

    assert caught.value.__cause__ is foreign


@pytest.mark.parametrize("error", [CorruptRecordError("x"), KeyboardInterrupt()], ids=["ours", "interrupt"])
def test_error_of_ours_and_an_interrupt_stay_as_they_are(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, foreign_errors(lambda cause: InvalidSchemaError(str(cause))):
        raise error

    assert caught.value is error
