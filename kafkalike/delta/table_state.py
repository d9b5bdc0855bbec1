"""Table state: what a table is at a version, and what must still hold when a change is made to it.

A state is changed in place, by whoever owns it, and only while nobody else can see it (`Table`): a change that is
interrupted leaves a state that nobody has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kafkalike.delta.actions import Add, TableCommit
from kafkalike.delta.damage import Damage
from kafkalike.errors import KafkaError
from kafkalike.model.group_commit.waiting_appends import PARTS_KEY, Placed, TakenAppends, from_note
from kafkalike.model.segments import Segment, SegmentIndex

SEAL: Final = "REPLICAS"
"""Operation of a version that says who takes the versions after it; see `replicas`."""

REPLICAS: Final = "kafkalike.replicas:"
"""Beginning of the Delta transaction's application that says a configuration of replicas; its version is the epoch.

It stays in checkpoints, other engines pass over it, and there is one for each chain that there has been.
"""

FENCE: Final = "FENCE"
"""Operation of a commit that holds nothing. It takes a version that a commit in doubt could still get, and makes
writers who have planned before it plan anew."""

CLOSE: Final = "UPGRADE PROTOCOL"
OPEN: Final = "DROP FEATURE"
"""Operations of commits that close a table to foreign writers, or open it to them; Delta's names for such changes."""

REPAIR: Final = "REPAIR"
"""Operation of a commit that stands in the place of a damaged one, or that ends a repair. Whoever follows the table
loads it anew: what they know may be what was lost."""

APPEND_ONLY: Final = "delta.appendOnly"
"""Property of a table from which no record may be taken out; every writer of our Delta protocol has to heed it."""

END_APP: Final = "kafkalike.end/"
"""Applications of this name, followed by a partition's number, have the partition's log end as their version: so it
outlives its records, whoever deletes them."""


def end_app(partition: int) -> str:
    """The Delta application whose version is a partition's log end."""
    return f"{END_APP}{partition}"


REWINDING: Final = frozenset({"RESTORE", "CREATE OR REPLACE TABLE", "REPLACE TABLE AS SELECT", "TRUNCATE"})
"""Operations of foreign writers that may take the log end back, so that offsets would be given out twice."""


def rewinds(commit: TableCommit) -> bool:
    """Whether a commit may have taken the log end of a topic back."""
    return commit.operation in REWINDING


def _goes_on(commit: TableCommit) -> bool:
    """Whether a commit is a change of ours that is made on no table whose log end was taken back.

    A fence or a repair may be.
    """
    return commit.append_id is not None and commit.operation not in {FENCE, REPAIR, SEAL}


def records_ends(commit: TableCommit) -> bool:
    """Whether a commit is an append that recorded log ends: of its partitions, and of all that were not recorded."""
    return commit.is_append and any(app_id.startswith(END_APP) for app_id in commit.txns)


def took(commit: TableCommit) -> dict[str, Placed] | None:
    """The appends of others that a commit took, by writer; None where its writer has not looked for any."""
    if PARTS_KEY not in commit.note:
        return None
    return from_note(commit.version, commit.note, commit.timestamp_ms)


@dataclass(slots=True, kw_only=True)
class TableState:
    """A table at a version."""

    version: int
    table_id: str
    index: SegmentIndex
    txns: dict[str, int]
    """Latest version of each application that has written."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """The table's configuration."""
    schema: str = ""
    """Its Delta schema as JSON."""
    closed: bool = False
    """Whether the table's protocol keeps foreign writers out."""
    unrecorded: set[int] = field(default_factory=set)
    """Partitions whose log end is above what the table has recorded: tables of earlier releases, and foreign writers'
    files."""
    fenced: int = -1
    """The latest version that was a fence; that of the checkpoint which was loaded, if none is known above it."""
    checkpoint: int = -1
    """Version of the checkpoint that was loaded; -1 for none."""
    last_commit_ms: int = 0
    """Time of the latest commit that was seen, ms."""
    rewound: TableCommit | None = None
    """The latest commit that may have taken log ends back, if any of ours has not followed it."""
    damage: Damage | None = None
    """Why it is not of the newest version, if that cannot be read: then nothing may be written."""
    carried: Mapping[str, bytes] = field(default_factory=dict)
    """Contents of data files that came with the log, as long as the state is being loaded."""

    went_on: bool = False
    """Whether a change of ours has been seen, which is made on no table whose log end was taken back."""
    ends_recorded: bool = False
    """Whether an append has been seen that recorded log ends: then the table has all those below it."""

    taken: TakenAppends = field(init=False)
    """The appends that the commits since the state was loaded took for others."""
    deaf: bool = False
    """Whether the latest version is an append whose writer has not looked for appends that wait."""
    appended: str | None = None
    """Id of the latest append that was seen since."""

    def __post_init__(self) -> None:
        """Nothing is known of what commits up to here took."""
        self.taken = TakenAppends(self.version)

    @property
    def removal_refusal(self) -> str | None:
        """Why no record may be taken out of the table; None when that is allowed."""
        if self.properties.get(APPEND_ONLY, "").lower() != "true":
            return None
        return (
            f"the table property {APPEND_ONLY}=true forbids to remove files, and maintenance does that; take it away, "
            f"or leave the topic out: ALTER TABLE … UNSET TBLPROPERTIES ('{APPEND_ONLY}')"
        )

    def end(self, partition: int) -> int:
        """Offset after the last one that was ever given out in a partition; 0 when there is none."""
        return max(self.index.end(partition), self.txns.get(f"{END_APP}{partition}", 0))

    def apply(self, commit: TableCommit, to_segment: Callable[[Add], Segment]) -> None:
        """Take in the next commit. Caller: `Table`, which has taken the state out of everybody's sight."""
        added = [to_segment(a) for a in commit.adds]
        for path in commit.removes:
            self.index.remove(path)
        for segment in added:
            self.index.add(segment)
        self.txns.update(commit.txns)
        self._note_taken(commit)
        if added:
            self.note_recorded({segment.partition for segment in added})
        self._note_table(commit)
        self.last_commit_ms = max(self.last_commit_ms, commit.timestamp_ms)
        if commit.operation == FENCE:
            self.fenced = commit.version
        if rewinds(commit):
            self.rewound = commit
        elif _goes_on(commit):
            self.rewound, self.went_on = None, True
        self.ends_recorded = self.ends_recorded or records_ends(commit)
        self.version = commit.version

    def _note_table(self, commit: TableCommit) -> None:
        if commit.table_id is not None:
            self.table_id = commit.table_id
        if commit.properties is not None:
            self.properties = commit.properties
        if commit.schema is not None:
            self.schema = commit.schema
        if commit.closed is not None:
            self.closed = commit.closed

    def _note_taken(self, commit: TableCommit) -> None:
        placed = took(commit)
        self.deaf = placed is None and commit.is_append
        if placed:
            self.taken = self.taken.after(placed)
        if commit.is_append:
            self.appended = commit.append_id

    def note_recorded(self, partitions: Iterable[int]) -> None:
        """Note for which of these partitions the table has recorded the log end, and for which not."""
        for partition in partitions:
            if self.index.end(partition) > self.txns.get(end_app(partition), 0):
                self.unrecorded.add(partition)
            else:
                self.unrecorded.discard(partition)

    def saw_below(self, commit: TableCommit, to_segment: Callable[[Add], Segment], rewind_possible: bool) -> bool:  # noqa: FBT001
        """Take in what a commit below the loaded checkpoint says, newest first. Caller: whoever has just loaded it.

        Args:
            commit: the next older one.
            to_segment: what a data file covers.
            rewind_possible: whether no commit of ours has been seen above it.

        Returns:
            The same for the next one.
        """
        self.last_commit_ms = max(self.last_commit_ms, commit.timestamp_ms)
        for add in commit.adds:
            if not self.index.has(add.path):
                with contextlib.suppress(KafkaError):
                    # A foreign writer's file that is gone by now may have left no statistics.
                    self.index.raise_end(to_segment(add))
        if rewind_possible and rewinds(commit):
            self.rewound = commit
        return rewind_possible and not rewinds(commit) and not _goes_on(commit)
