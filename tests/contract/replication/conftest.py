"""Fixtures of tests over several roots."""

from pathlib import Path

import pytest

from kafkalike.storage import timeouts


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """Folders of three brokers."""
    return [tmp_path / str(n) for n in (1, 2, 3)]


@pytest.fixture
def impatient_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a call to a root that hangs time out as soon as it does for users whose replicas may lag for a short time."""
    monkeypatch.setattr(timeouts, "SHORTEST_TIMEOUT_SECONDS", 1.0)
