"""Look back: a table's state that was just loaded in; the same with what a checkpoint does not say out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafkalike.delta.actions import TableCommit, log_name, parse_commit
from kafkalike.delta.table_state import TableState, end_app, records_ends
from kafkalike.errors import KafkaError, LogCorruptError
from kafkalike.log.topic.foreign_rules import FORGETS
from kafkalike.log.topic.segment_files import segment_of
from kafkalike.storage.port import Storage

LOOK_BACK: Final = 100
"""Commits below a checkpoint that a load looks through at most for what the live files do not say; a few ms."""


def look_back(state: TableState, checkpoint: int, files: Storage) -> None:
    """Look through the last commits below a checkpoint for what it does not say.

    That is a rewind, by the commits back to the last one of ours, and the ends of records that are gone from a table
    whose ends no commit has noted yet. A checkpoint is no reason to stop: RESTORE writes one itself. An append that has
    recorded log ends is one: whoever made it had looked back from there.
    """
    rewind_possible = not state.went_on
    keeps_ends = FORGETS not in state.properties
    seen: list[TableCommit] = []
    recorded = state.ends_recorded and keeps_ends
    for version in range(checkpoint, max(-1, checkpoint - LOOK_BACK), -1):
        if recorded:
            break
        try:
            commit = parse_commit(version, files.read(log_name(version)), files.uri)
        except (FileNotFoundError, LogCorruptError):
            # The checkpoint has what was in it.
            break
        rewind_possible = state.saw_below(commit, lambda add: segment_of(add, files), rewind_possible)
        seen.append(commit)
        recorded = keeps_ends and records_ends(commit)
    _keep_taken(state, seen, files, older_recorded=recorded)
    state.note_recorded(state.index.ends)


def _keep_taken(state: TableState, seen: Sequence[TableCommit], files: Storage, *, older_recorded: bool) -> None:
    """Let the log end stay above files that foreign writers took out and whose own commits are not read any more.

    Where nothing says how far such a file went, the table counts as rewound.

    Args:
        state: the table's.
        seen: the commits that were looked through, newest first.
        files: the table.
        older_recorded: whether the ends of all files that older commits added are recorded.
    """
    if older_recorded:
        return
    known = {add.path for commit in seen for add in commit.adds}
    foreign = [commit for commit in seen if commit.append_id is None]
    for commit, old in [(c, old) for c in foreign for old in c.taken if old.path not in known]:
        try:
            state.index.raise_end(segment_of(old, files))
        except KafkaError:
            recorded = old.partition is not None and end_app(old.partition) in state.txns
            if not recorded and (state.rewound is None or state.rewound.version < commit.version):
                state.rewound = commit
