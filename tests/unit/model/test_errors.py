"""Errors: what ported code may catch, with Kafka's codes, in the place where kafka-python has it."""

import pickle

import pytest

from kafkalike import errors
from kafkalike.errors import BrokerResponseError, InvalidMetadataError, RetriableError


@pytest.mark.parametrize(
    ("name", "code", "parent"),
    [
        ("Cancelled", -1, RetriableError),
        ("CoordinatorNotAvailableError", 15, RetriableError),
        ("CorruptRecordException", 2, BrokerResponseError),
        ("InvalidReplicationAssignmentError", 39, BrokerResponseError),
        ("InvalidTopicError", 17, ValueError),
        ("KafkaStorageError", 56, InvalidMetadataError),
        ("NotCoordinatorError", 16, RetriableError),
        ("RequestTimedOutError", 7, RetriableError),
        ("TopicAuthorizationFailedError", 29, errors.AuthorizationError),
        ("TopicDeletionDisabledError", 73, BrokerResponseError),
        ("UnknownError", -1, BrokerResponseError),
        ("UnknownTopicIdError", 100, InvalidMetadataError),
        ("UnknownTopicOrPartitionError", 3, InvalidMetadataError),
        ("VoterNotFoundError", 127, BrokerResponseError),
    ],
)
def test_an_error_has_kafkas_code_and_kafka_pythons_parent(name: str, code: int, parent: type) -> None:
    """So that `except` clauses of ported code work."""
    found = getattr(errors, name)

    assert (found.errno, issubclass(found, parent)) == (code, True)
    assert found.retriable is issubclass(found, RetriableError)


def test_every_code_of_kafkas_has_one_class() -> None:
    """From 0 to 127, and -1."""
    assert all(errors.for_code(code).errno == code for code in range(-1, 128))
    assert not any(errors.for_code(code).__name__ == "UnrecognizedBrokerError" for code in range(-1, 128))
    assert issubclass(errors.for_code(999), errors.UnknownError)


def test_a_rebalance_is_not_retriable_by_the_same_call_as_in_kafka_python() -> None:
    """The caller must poll first."""
    assert errors.RebalanceInProgressError.retriable is False
    assert errors.TopicDeletedError.retriable is False


def test_errors_have_one_name_wherever_they_are_defined() -> None:
    """In a traceback, in a pickle, and in the list of what `*` imports."""
    found = [getattr(errors, name) for name in errors.__all__]

    assert {one.__module__ for one in found} == {"kafkalike.errors"}
    assert errors.__all__ == sorted(errors.__all__)
    assert pickle.dumps(errors.KafkaTimeoutError("late")).count(b"kafkalike.errors") == 1
    assert str(pickle.loads(pickle.dumps(errors.KafkaTimeoutError("late")))) == "late"  # noqa: S301 - our own bytes
