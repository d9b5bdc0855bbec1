"""An exception at any line of what a client does leaves the client right: it goes on as a fresh one would."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tools.interrupt_cases import CASES
from tests.tools.interrupt_world import Copies, World, make_base
from tests.tools.interrupts import Sweep, sweep

SHORT = 6
"""Interrupts per operation in the normal run; all together take half a minute."""

Sweeper = Callable[..., Sweep]
KNOWN = {
    "Refresh": "A1",
    "Poll": "A12",
    "PollInGroup": "A1",
    "Commit": "A1",
    "Join": "A1",
    "Create": "A1",
    "Ensure": "A1",
}
"""Operations that a known finding breaks, and its number."""
EVERY = pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=case.__name__,
            marks=[pytest.mark.xfail(strict=True, reason=f"finding {KNOWN[case.__name__]}")]
            if case.__name__ in KNOWN
            else [],
        )
        for case in CASES
    ],
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_base(str(tmp_path_factory.mktemp("interrupts") / "base"))


@pytest.fixture
def copies(base: str, tmp_path: Path) -> Copies:
    return Copies(base, tmp_path)


@EVERY
def test_some_lines_of_an_operation_are_interrupted_and_the_client_goes_on(case: type[World], copies: Copies) -> None:
    """A few places, in equal distances over the whole of it."""
    found = sweep(lambda: case(copies.new()), most=SHORT)

    assert not found.wrong, str(found)
    assert found.raised > 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
@EVERY
def test_each_line_of_an_operation_is_interrupted_and_the_client_goes_on(
    case: type[World], copies: Copies, record_property: Callable[[str, object], None]
) -> None:
    """Each line and each place where Python lets a signal in, once."""
    found = sweep(lambda: case(copies.new()))
    record_property("sweep", str(found))

    assert not found.wrong, str(found)
    assert found.tried == found.chosen >= found.spots
