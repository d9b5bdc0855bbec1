"""Fault points fire in a test session only."""

import os
import signal
import subprocess
import sys

import pytest

VISIT = "from kafkalike.model import faults; faults.point('append.before_commit'); print('alive')"


def visit(environment: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of a process that comes by a fault point."""
    command = [sys.executable, "-c", VISIT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("action", ["kill", "stop", "raise"])
def test_fault_point_outside_of_a_test_session_does_nothing(action: str) -> None:
    """Whatever the environment of a service in production says."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}

    assert visit({**outside, "KAFKALIKE_FAULT": f"append.before_commit:{action}"}) == (0, "alive\n")


def test_fault_point_in_a_test_session_kills_the_process() -> None:
    """A child of pytest inherits the session."""
    assert visit({**os.environ, "KAFKALIKE_FAULT": "append.before_commit:kill"}) == (-signal.SIGKILL, "")
