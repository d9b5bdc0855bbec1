"""Foreign commit: a table version in, what to tell people out if somebody else has changed a topic's records by it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from kafkalike.delta.actions import Add, TableCommit
from kafkalike.delta.state import TableState

_log = logging.getLogger(__name__)


def foreign_change(commit: TableCommit) -> str | None:
    """What a foreign writer has done to records; None where it is a change of ours, or one that leaves them alone.

    Files that are only rewritten (`dataChange=false`, as by OPTIMIZE) leave them alone.
    """
    added = [add for add in commit.adds if add.data_change]
    if commit.append_id is not None or not (added or commit.taken):
        return None
    acts = [f"{verb} {_files(files)}" for verb, files in (("took out", commit.taken), ("added", added)) if files]
    then = (
        "records that were read before may be others now, or gone"
        if commit.taken
        else "nothing has checked their offsets and times"
    )
    return (
        f"table version {commit.version} is a foreign writer's ({commit.operation} by {commit.engine}): it "
        f"{' and '.join(acts)}, so {then}; see `kafkalike verify` and `kafkalike history`"
    )


def _files(files: Sequence[Add]) -> str:
    known = sorted({add.partition for add in files if add.partition is not None})
    where = f" of partition{'s' if len(known) > 1 else ''} {', '.join(map(str, known))}" if known else ""
    return f"{len(files)} file{'s' if len(files) > 1 else ''}{where}"


class ForeignWarnings:
    """Warns of foreign changes as they arrive, once each.

    Args:
        topic: whose table it is, by name.
    """

    def __init__(self, topic: Callable[[], str]) -> None:
        self._topic = topic

    def on_load(self, state: TableState) -> None:
        """Nothing: who begins anew has read nothing before."""

    def on_commit(self, commit: TableCommit) -> None:
        """Warn if somebody else has changed records."""
        change = foreign_change(commit)
        if change is not None:
            _log.warning("topic %s: %s", self._topic(), change)
