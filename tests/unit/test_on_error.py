"""A block that is cut off takes back what it began."""

import pytest

from kafkalike.model.concurrency import OnError


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
