"""Quorum storage: the table of metadata on several voters as one storage: a version is what a majority has decided.

`put_if_absent` of a version's file is a decision (`kafkalike.model.replication.quorum_protocol`). What is shown, or
told to be done, is at a majority. Data files are at a majority before a version can name them. Checkpoints and clean-up
are each voter's own. Any other file is at each voter that answers, a majority at least.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from kafkalike.delta.actions import log_name, version_of
from kafkalike.delta.log_files import LAST_CHECKPOINT, LogFiles
from kafkalike.model.clock import Clock
from kafkalike.model.replication.quorum_protocol import LastVersion, confirming, looking, putting
from kafkalike.model.replication.registers import UnreachableVoterError, majority
from kafkalike.replication.tables.known_voters import KnownVoters
from kafkalike.replication.tables.replicated_storage import LOG, ReplicatedStorage
from kafkalike.replication.tables.voter_files import QUORUM, MetadataVersion, Voter, identity_name
from kafkalike.storage.port import BufferedOutput, Coordination, Entry, Pace, Storage, TaskAccess

_log = logging.getLogger(__name__)

T = TypeVar("T")


class QuorumAccess(TaskAccess):
    """Tasks do not read the metadata; a damaged file is read at other voters.

    Args:
        voters: who has the table.
    """

    def __init__(self, voters: KnownVoters) -> None:
        self._voters = voters

    def elsewhere(self) -> Sequence[Storage]:
        """Return each voter, and those that have a copy."""
        return self._voters.each()


class QuorumStorage(ReplicatedStorage):
    """The folder `__cluster_metadata` of a cluster with several voters. Thread-safe.

    Args:
        folders: the folder on each root that is known, by broker id; where none of them knows a set of voters, there is
            no table yet.
        opened: a voter on a root that is not among them → its folder.
        clock: time and waiting.
    """

    def __init__(self, folders: Mapping[int, Storage], opened: Callable[[Voter], Storage], clock: Clock) -> None:
        self.voters = KnownVoters(folders, opened, clock)
        self.tasks = QuorumAccess(self.voters)

    def __repr__(self) -> str:
        """For error messages."""
        return f"QuorumStorage({[folder.uri for folder in self.voters.folders.values()]!r})"

    def mark_observers(self) -> None:
        """Tell those that have no vote, and answer, who votes, and give them a copy."""
        self.voters.mark_observers()
        last = max((version_of(entry.name) or 0 for entry in self.list("_delta_log")), default=0)
        content = self.look(log_name(last))
        if content is not None:
            self.voters.inform(last, MetadataVersion(content))

    # --- versions ------------------------------------------------------------------------------

    def put_version(self, version: int, content: bytes, *, durable: bool) -> bool:
        """Have a version decided."""
        del durable
        wanted = MetadataVersion(content)
        found = self.voters.decide(lambda voters: putting(version, wanted, voters))
        self.voters.inform(version, found)
        return bool(found == wanted)

    def put_file(self, name: str, content: bytes, *, durable: bool) -> bool:
        """Create a file at a majority of the voters."""
        made = self.voters.at_majority(lambda folder: folder.put_if_absent(name, content, durable=durable))
        return made[0]

    def look_at_version(self, version: int, pace: Pace) -> bytes | None:
        """Return the file of a version that a majority has."""
        del pace
        if self.voters.now is None:
            return None
        found: Any = self.voters.decide(lambda voters: looking(version, voters))
        return None if found is None else bytes(found.data)

    def first(self, name: str, read: Callable[[Storage], T]) -> T:
        """Read a file at the first voter that has it."""
        return self.voters.first(read, name)

    def read(self, name: str) -> bytes:
        """Content of a file."""
        return self.voters.first(lambda folder: folder.read(name), name)

    # --- other files ---------------------------------------------------------------------------

    def replace(self, name: str, content: bytes) -> None:
        """Write a file; a checkpoint, and what names it, only at voters that have its version."""
        if name == LAST_CHECKPOINT:
            self.voters.wherever(lambda folder: self._name_checkpoint(folder, content))
        elif ".checkpoint." in name:
            self._checkpoint(name, content)
        else:
            self.voters.at_majority(lambda folder: folder.replace(name, content))

    def _checkpoint(self, name: str, content: bytes) -> None:
        version, made = int(name.removeprefix(LOG)[:20]), 0
        voters = self.voters.now
        for voter in () if voters is None else voters.voters:
            try:
                if self.voters.roots.do(LastVersion(voter)) < version:
                    continue
                folder = self.voters.folder_of(voter)
                folder.replace(name, content)
                # Before registers go: it says that they are over.
                folder.sync(name)
                self.voters.roots.sweep(voter, version)
                made += 1
            except (OSError, UnreachableVoterError) as cause:
                _log.debug("%s: no checkpoint: %s", voter.uri, cause)
        if not made:
            raise OSError(f"{self.uri}: no voter could take {name}")

    @staticmethod
    def _name_checkpoint(folder: Storage, content: bytes) -> None:
        named = LogFiles.listed(folder).checkpoints
        if named and max(named) == _checkpoint_in(content):
            folder.replace(LAST_CHECKPOINT, content)

    def open_output(self, name: str) -> pa.NativeFile:
        """A stream that makes a new file at a majority when it is closed."""
        return pa.PythonFile(BufferedOutput(lambda content: self.write(name, content)), "w")

    def write(self, name: str, content: bytes) -> None:
        """Make a data file at a majority.

        Raises:
            OSError: it is not.
        """
        # Whole or not at all: what a full disk cut off would be read before what others have.
        self.voters.at_majority(lambda folder: folder.replace(name, content))

    def sync(self, name: str) -> None:
        """Make a file survive a power failure, at a majority."""
        self.voters.at_majority(lambda folder: folder.sync(name))

    def remove(self, name: str, *, quietly: bool = False) -> None:
        """Remove a file at the voters that answer; of the log, where a checkpoint is above it, or it is taken back."""
        number = name.removeprefix(LOG)[:20]
        if quietly or not (name.startswith(LOG) and number.isdigit()):
            self.voters.wherever(lambda folder: folder.remove(name, quietly=quietly))
            return

        def covered(folder: Storage) -> None:
            newest = max(LogFiles.listed(folder, int(number)).checkpoints, default=-1)
            if newest > int(number) or (newest == int(number) and ".checkpoint." not in name):
                folder.remove(name)

        self.voters.wherever(covered)

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """Files that any voter in reach has; without registers."""
        voters = self.voters.now
        while voters is not None:
            found, answers = self._listed(voters.voters, folder, deep=deep, after=after)
            enough = answers >= majority(len(voters.voters))
            if not enough:
                newer = self.voters.look()
                if newer != voters:
                    voters = newer
                    continue
            if not answers:
                # What those without a vote have is known, if it is not the newest.
                found, answers = self._listed(voters.observers, folder, deep=deep, after=after)
            if not answers:
                raise OSError(self.voters.why(voters))
            if enough and f"{folder}/" == LOG:
                newest = max((version for name in found if (version := version_of(name)) is not None), default=-1)
                if newest >= 0:
                    # Who lists it shows it.
                    self.voters.decide(partial(confirming, newest))
            return list(found.values())
        return []

    def _listed(self, voters: Sequence[Voter], folder: str, *, deep: bool, after: str) -> tuple[dict[str, Entry], int]:
        """Files by name, and how many voters answered."""
        found: dict[str, Entry] = {}
        answers = 0
        for voter in voters:
            try:
                each = self.voters.folder_of(voter)
                entries = each.list(folder, deep=deep, after=after)
                # After the list: a root that is gone is not empty.
                each.size(identity_name(voter))
            except OSError as cause:
                self.voters.roots.failures[voter] = cause
                continue
            answers += 1
            for entry in entries:
                if not entry.name.startswith(f"{QUORUM}/"):
                    found.setdefault(entry.name, entry)
        return found, answers

    def folders(self) -> Sequence[str]:
        """Names of the folders below."""
        found = self.voters.first(lambda folder: folder.folders(), "")
        return [name for name in found if name != QUORUM]

    def make_folder(self, folder: str) -> None:
        """Make a folder."""
        if self.voters.now is not None:
            self.voters.at_majority(lambda each: each.make_folder(folder))

    # --- the rest of a store -------------------------------------------------------------------

    @property
    def uri(self) -> str:
        """Where the first voter has it."""
        return self.voters.uri

    @property
    def coordination(self) -> Coordination:  # type: ignore[override]
        """That of the first root."""
        return self.voters.first_folder.coordination

    def at(self, folder: str) -> Storage:
        """The store of a folder below, on the first voter: for those who look."""
        return self.voters.each()[0].at(folder)


def _checkpoint_in(content: bytes) -> int:
    return int(json.loads(content)["version"])
