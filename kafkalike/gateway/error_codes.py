"""Error codes: the number of Kafka's protocol for an error of this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from kafkalike import errors

P = ParamSpec("P")
T = TypeVar("T")

NONE: Final = 0
UNKNOWN_SERVER_ERROR: Final = -1
COORDINATOR_NOT_AVAILABLE: Final = 15
MAX_MESSAGE: Final = 1000
"""Characters of an error message in an answer."""

_CODES: Final[tuple[tuple[type[errors.KafkaError], int], ...]] = (
    # Retriable: an idempotent producer's retry is recognized by its sequence, see `model/producer_sequences.py`.
    (errors.UnknownOutcomeError, errors.RequestTimedOutError.errno),
    (errors.KafkaTimeoutError, errors.RequestTimedOutError.errno),
    (errors.CommitFailedError, errors.IllegalGenerationError.errno),
    (errors.TransactionAbortedError, errors.TransactionAbortableError.errno),
    (errors.DataLossError, errors.CorruptRecordError.errno),
    (errors.LogCorruptError, errors.KafkaStorageError.errno),
    (errors.IllegalArgumentError, errors.InvalidRequestError.errno),
)
"""Codes of errors for which Kafka's protocol has no own code."""


def code_of(error: BaseException) -> int:
    """Return Kafka's code of an error; `UNKNOWN_SERVER_ERROR` for errors that are not Kafka's."""
    if isinstance(error, errors.KafkaError):
        if error.errno != UNKNOWN_SERVER_ERROR:
            return error.errno
        return next((code for kind, code in _CODES if isinstance(error, kind)), UNKNOWN_SERVER_ERROR)
    if isinstance(error, OSError):
        return errors.KafkaStorageError.errno
    return errors.InvalidRequestError.errno if isinstance(error, ValueError) else UNKNOWN_SERVER_ERROR


class Outcome(NamedTuple):
    """The result of one item of a request."""

    code: int
    message: str | None

    @classmethod
    def of(cls, error: BaseException) -> Outcome:
        """Return the outcome of a failed item."""
        return cls(code_of(error), str(error)[:MAX_MESSAGE])

    @property
    def of_group(self) -> Outcome:
        """The outcome in answers to members of groups, which retry only at errors of a coordinator."""
        unavailable = self.code in {errors.KafkaStorageError.errno, errors.RequestTimedOutError.errno}
        return Outcome(COORDINATOR_NOT_AVAILABLE, self.message) if unavailable else self


DONE: Final = Outcome(NONE, None)


def attempt(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> tuple[Outcome, T | None]:
    """Call a function for one item of a request, whose error concerns this item only."""
    try:
        return DONE, call(*args, **kwargs)
    except (errors.KafkaError, OSError, ValueError) as error:
        return Outcome.of(error), None


def heartbeat_answer(beaten: Callable[[T], Mapping[str, Any]], call: T) -> Mapping[str, Any]:
    """Return the answer to a heartbeat of a consumer or share group, or an answer with its error."""
    outcome, answer = attempt(beaten, call)
    if answer is not None:
        return answer
    return {"error_code": outcome.of_group.code, "error_message": outcome.message, "member_id": None}
