"""Errors become codes of Kafka's protocol at which clients do the right thing."""

from __future__ import annotations

import pytest

from kafkalike import errors
from kafkalike.gateway.error_codes import Outcome, attempt, code_of


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(errors.UnknownTopicOrPartitionError("x"), 3, id="a-code-of-its-own"),
        pytest.param(errors.KafkaTimeoutError("x"), 7, id="timeout-is-retriable"),
        pytest.param(errors.UnknownOutcomeError("x", append_id="a"), 7, id="unknown-outcome-is-retriable"),
        pytest.param(errors.CommitFailedError("x"), 22, id="commit-of-a-former-generation"),
        pytest.param(errors.UnknownMemberCommitError("x"), 25, id="commit-of-a-former-member"),
        pytest.param(errors.DataLossError("x"), 2, id="data-loss-is-corruption"),
        pytest.param(errors.LogCorruptError("x"), 56, id="corrupt-log-is-a-storage-error"),
        pytest.param(errors.IllegalArgumentError("x"), 42, id="illegal-argument-is-an-invalid-request"),
        pytest.param(OSError("x"), 56, id="error-of-the-system"),
        pytest.param(KeyError("x"), -1, id="defect"),
    ],
)
def test_code_of_an_error(error: Exception, code: int) -> None:
    assert code_of(error) == code


@pytest.mark.parametrize(("code", "expected"), [(56, 15), (7, 15), (25, 25), (0, 0)])
def test_storage_errors_send_members_of_groups_to_the_coordinator_again(code: int, expected: int) -> None:
    """Java's consumer ends at other codes."""
    assert Outcome(code, "x").of_group == Outcome(expected, "x")


def test_attempt_reports_an_error_of_one_item_and_passes_defects_on() -> None:
    def fail(error: Exception) -> None:
        raise error

    assert attempt(lambda: 5) == (Outcome(0, None), 5)
    assert attempt(fail, errors.InvalidTopicError("no/name")) == (Outcome(17, "no/name"), None)
    with pytest.raises(KeyError):
        attempt(fail, KeyError("x"))
