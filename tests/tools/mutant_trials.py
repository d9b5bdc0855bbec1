"""mutmut, with cheaper trials: the tests are collected once, and each trial is a fork that runs those that it needs.

    python -P tests/tools/mutant_trials.py run|results|show …        as mutmut, in a folder of `scripts/mutants.py`

mutmut calls pytest anew for each mutant, which on a busy machine takes longer than the tests do. It also tries the
quickest mutants first, so that what a run has found when it is stopped is no fair sample; here the order is random, and
the same each time.
"""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import sys
from collections.abc import Iterable
from math import ceil
from threading import Timer
from typing import Final

import mutmut.__main__ as program
import pytest
from _pytest.config import get_config
from _pytest.main import Session
from _pytest.runner import runtestprotocol
from mutmut.runners.harness import PytestRunner
from mutmut.state import state
from mutmut.utils.file_utils import change_cwd
from mutmut.utils.format_utils import strip_prefix
from mutmut.workers import isolation
from mutmut.workers.isolation import ForkRunner, MutantResult

LIVED: Final = 0

NOTICED: Final = 1

TIMES: Final = 5
"""How many times as long as its tests take without a fault a trial may take, in seconds of CPU.

Of CPU, as a machine that has other work to do must not look like a fault.
"""

PLUS: Final = 20
"""Seconds of CPU that each trial may take beside."""


class Collected(PytestRunner):
    """Tests that are collected before the forks."""

    def __init__(self) -> None:
        super().__init__()
        self._items: dict[str, pytest.Item] = {}

    def collect(self) -> None:
        """Collect the tests of this part, in this process."""
        arguments = ["--rootdir=.", "--tb=no", "-q", "-s", *self._pytest_add_cli_args]
        # A wait is ended by the limit of the trial; files of trials are of no use to anybody.
        arguments += ["-o", "timeout=0", "-o", "tmp_path_retention_policy=none"]
        with change_cwd("mutants"):
            config = get_config()
            config = config.pluginmanager.hook.pytest_cmdline_parse(
                pluginmanager=config.pluginmanager, args=[*arguments, *self._pytest_add_cli_args_test_selection]
            )
            config._do_configure()  # as pytest.main does
            session = Session.from_config(config)
            config.hook.pytest_sessionstart(session=session)
            session.perform_collect()
            # One folder for the files of all trials, which none of them has to look for.
            config._tmp_path_factory.getbasetemp()
        self._items = {strip_prefix(item.nodeid, prefix="mutants/"): item for item in session.items}

    def run_tests(self, *, mutant_name: str | None, tests: Iterable[str]) -> int:
        """Exit code of a trial, in the process that was forked for it."""
        if mutant_name is None:
            # The tests have just passed, or else there were no figures on which of them reaches what.
            return LIVED
        names = list(tests)
        limit = ceil(TIMES * sum(state().duration_by_test[name] for name in names)) + PLUS
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit += ceil(used.ru_utime + used.ru_stime)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        with change_cwd("mutants"):
            for name in names:
                if any(report.failed for report in runtestprotocol(self._items[name], log=False, nextitem=None)):
                    return NOTICED
        return LIVED


class Trials(ForkRunner):
    """Trials that begin with collected tests."""

    def __init__(self, max_workers: int, tests: Collected) -> None:
        super().__init__(max_workers, tests)
        # mutmut keeps a trial's limit after its end, and then signals whatever process has its number by then.
        vars(isolation)["register_timeout"] = self._limit
        self._limits: dict[int, Timer] = {}

    def _limit(self, pid: int, timeout_s: float) -> None:
        self._limits[pid] = timer = Timer(timeout_s, os.kill, (pid, signal.SIGXCPU))
        timer.daemon = True
        timer.start()

    def wait_for_result(self, timeout: float | None = None) -> MutantResult:
        """Return the result of the next trial that ends, and drop its time limit."""
        before = set(self._running)
        result = super().wait_for_result(timeout)
        for pid in before - set(self._running):
            self._limits.pop(pid).cancel()
        return result

    def startup(self) -> None:
        """Collect them."""
        assert isinstance(self.test_runner, Collected)
        self.test_runner.collect()
        super().startup()


def _order(mutant: str) -> float:
    """A place in the order of trials, in which mutmut sorts by an estimate of time."""
    return float(int.from_bytes(hashlib.sha256(mutant.encode()).digest()[:6], "big"))


def main() -> None:
    """Call mutmut."""
    vars(program).update(
        get_mutant_runner=lambda max_workers=1: Trials(max_workers, Collected()),
        estimated_worst_case_time=_order,
        run_forced_fail_test=lambda _: None,
    )
    sys.exit(program.cli())


if __name__ == "__main__":
    main()
