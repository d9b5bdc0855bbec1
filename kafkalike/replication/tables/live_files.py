"""Live files: a snapshot of a table in, the data files that it names out."""

from __future__ import annotations

from kafkalike.delta.actions import Add
from kafkalike.delta.snapshot import Snapshot


def live_files(snapshot: Snapshot) -> dict[str, Add]:
    """The data files of a version, by path."""
    found = {add.path: add for add in snapshot.adds()}
    for commit in snapshot.committed:
        found |= {add.path: add for add in commit.adds}
        for path in commit.removes:
            found.pop(path, None)
    return found
