"""Copiers in transactions under a storm, and a checker that judges what they, snapshots and the group's offsets saw.

Four copiers of one group are killed, stopped past their session and their timeout, replaced under the same
transactional id while they are stopped, and leave; maintenance runs beside them, and aborts what hangs.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes.conftest import ObjectRoot
from tests.tools.copiers import Copying
from tests.tools.fault_proxy import BAD, FaultProxy

COPIERS = 4
SOAK_SECONDS = 600
OBJECTS_SECONDS = 300


@pytest.fixture
def copying_of(root: str, tmp_path: Path) -> Iterator[Callable[[str, int], Copying]]:
    """Makes a pipeline, and ends its processes."""
    made: list[Copying] = []

    def make(strategy: str, seed: int) -> Copying:
        made.append(Copying(root, tmp_path, strategy, seed))
        return made[-1]

    yield make
    for one in made:
        one.end()


def run(copying: Copying, seconds: float, look_every: float, network: FaultProxy | None = None) -> None:
    """Let them all work for so long at least, then wait for the end of the input, and judge.

    How fast the machine is decides how much is judged, and not what the verdict is.
    """
    if network is not None:
        network.plan.faults = BAD
    with copying.beside(look_every):
        copying.start(*(f"t{number}" for number in range(COPIERS)))
        begun = time.monotonic()
        while time.monotonic() - begun < seconds or not copying.enough:
            time.sleep(copying.chance.uniform(0.2, 1.2))
            copying.storm()
    if network is not None:
        network.plan.faults = {}
    copying.drained()

    report = copying.verdict()
    print(  # noqa: T201 - for who runs it by hand
        f"\n{time.monotonic() - begun:.0f} s, {report['events']} events, transactions {report['transactions']}, "
        f"{report['snapshots']} snapshots, {report['counts']}, {dict(copying.done)}, problems {copying.problems[:5]}"
    )
    assert report["transactions"]["ok"] > 20
    assert report["snapshots"] > 0


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_pipeline_under_a_storm_copies_each_record_once(copying_of: Callable[[str, int], Copying]) -> None:
    """Until each kind of trouble has been there, and enough was copied; that takes longer than these seconds.

    By `make test-all`: `test_copiers.py` kills and stops copiers each time.
    """
    run(copying_of("range", 1), 2, 0.5)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_a_pipeline_under_a_long_storm(copying_of: Callable[[str, int], Copying], strategy: str) -> None:
    run(copying_of(strategy, 2), SOAK_SECONDS, 4)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_pipeline_in_an_object_store_under_a_storm(object_root: ObjectRoot, tmp_path: Path) -> None:
    """And over a bad network."""
    copying = Copying(object_root.root, tmp_path, "cooperative-sticky", 3, pace=4)
    try:
        run(copying, OBJECTS_SECONDS, 8, object_root.proxy)
    finally:
        copying.end()
