"""Fixtures of unit tests."""

import pytest

from kafkalike.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """Time that only the test moves."""
    return ManualClock()
