"""Pages and errors: which errors a form shows beside a field."""

from __future__ import annotations

import pytest

from kafkalike.errors import (
    IllegalArgumentError,
    KafkaError,
    KafkaStorageError,
    NotEnoughReplicasError,
    TopicAuthorizationFailedError,
)
from kafkalike.ui.page_request import InvalidFieldError, field_error


def test_field_error_of_an_invalid_value_names_the_given_field() -> None:
    found = field_error(IllegalArgumentError("expected a number; got x"), "value")
    assert (found.field, found.reason) == ("value", "expected a number; got x")


def test_field_error_that_names_a_field_keeps_it() -> None:
    error = InvalidFieldError("partitions", "expected at least 1; got 0")
    assert field_error(error, "value") is error


@pytest.mark.parametrize("kind", [KafkaStorageError, NotEnoughReplicasError, TopicAuthorizationFailedError])
def test_field_error_that_no_input_mends_is_raised(kind: type[KafkaError]) -> None:
    with pytest.raises(kind):
        field_error(kind("no answer"), "value")
