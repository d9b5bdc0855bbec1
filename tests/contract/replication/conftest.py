"""Fixtures of tests over several roots."""

from pathlib import Path

import pytest


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """Folders of three brokers."""
    return [tmp_path / str(n) for n in (1, 2, 3)]
