"""Share partitions in random histories against an oracle, and planted faults that the histories find."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from kafkalike.model.shares import share_partition
from tests.tools.share_world import simulate

FAULTS = {
    "lock never ends": ("run.until_ms <= now_ms", "run.state is RecordState.AVAILABLE"),
    "lock ends early": ("until_ms=now_ms + limits.lock_ms,\n", "until_ms=now_ms + limits.lock_ms - 1,\n"),
    "one delivery too many": ("run.deliveries >= limits.deliveries:", "run.deliveries > limits.deliveries:"),
    "released after the last delivery": ("counted >= limits.deliveries)", "False)"),
    "returned delivery counts": (" - (ack.verdict is RecordVerdict.RETURN)", ""),
    "foreign member acknowledges": ("and run.member_id == member_id\n", ""),
    "older delivery acknowledges": ("or ack.deliveries == run.deliveries", "or ack.deliveries <= run.deliveries"),
    "reject is accept's opposite": (
        "ack.verdict is RecordVerdict.REJECT or",
        "ack.verdict is RecordVerdict.RELEASE or",
    ),
    "renewal keeps the old end": ("return run._replace(until_ms=now_ms + limits.lock_ms)", "return run"),
    "scheduled time is ignored": ("until_ms=max(0, ack.due_ms))", "until_ms=0)"),
    "rest of a cut run is lost": ("out.append(run._replace(first=last + 1))", "pass"),
    "one record too many": ("run.first + room - 1", "run.first + room"),
    "window is not limited": ("now_ms, min(room, window))", "now_ms, room)"),
    "scheduled records fill the window": (
        "if not r.is_final and not is_deferred(r))\n    new",
        "if not r.is_final)\n    new",
    ),
    "record beyond the log end": ("_fresh(state.end, log_end, ", "_fresh(state.end, log_end + 1, "),
    "log start is ignored": ("state = advance(before, log_start)", "state = before"),
    "log start keeps half a run": ("else r._replace(first=log_start)", "else r"),
    "start waits": ("runs[finished - 1].last + 1 if finished else about.start", "about.start"),
    "start passes an open run": ("runs[finished - 1].last + 1 if finished", "runs[finished - 1].last + 2 if finished"),
    "unequal neighbors merge": ("out[-1][2:] == run[2:]", "out[-1][2] == run[2]"),
    "overlapping refusal is forgotten": ("(*refused, *told.values())", "refused"),
    "record before its time": ("if due_ms > now_ms:", "if not due_ms:"),
    "scheduled beyond the log end": ("past = min(last, end - 1)", "past = last"),
    "archived without its letter": ("limits.archives and run.deliveries >=", "run.deliveries >="),
    "released without its letter": (
        "(limits.archives and counted >= limits.deliveries)",
        "counted >= limits.deliveries",
    ),
    "lag counts finished records": ("- self.start - self.finished)", "- self.start)"),
}


def planted(old: str, new: str) -> ModuleType:
    """The rules with one fault."""
    source = Path(str(share_partition.__file__)).read_text(encoding="utf-8")
    assert old in source, old
    module = ModuleType("planted_share_partition")
    sys.modules[module.__name__] = module  # dataclasses look there
    exec(compile(source.replace(old, new), module.__name__, "exec"), module.__dict__)  # noqa: S102
    return module


@pytest.mark.parametrize("block", range(4))
def test_random_histories_agree_with_the_oracle(block: int) -> None:
    records = sum(simulate(seed) for seed in range(100 * block, 100 * block + 100))
    assert records > 2_000


@pytest.mark.soak
def test_million_random_histories_agree_with_the_oracle() -> None:
    assert sum(simulate(seed) for seed in range(1_000_000)) > 30_000_000


@pytest.mark.parametrize(("old", "new"), FAULTS.values(), ids=FAULTS)
def test_planted_fault_is_found(old: str, new: str) -> None:
    rules = planted(old, new)
    with pytest.raises((AssertionError, IndexError, ValueError, KeyError)):
        sum(simulate(seed, rules) for seed in range(400))
