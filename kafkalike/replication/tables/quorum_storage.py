"""Quorum storage: the metadata table on several voters as one storage; a version is what a majority has decided.

`put_if_absent` of a version's file is a decision (`kafkalike.model.replication.quorum_protocol`). A version that is
shown, or confirmed to its writer, is at a majority. Data files are at a majority before a version can name them.
Checkpoints and log cleaning are each voter's own. Any other file is written to every voter that answers, and to a
majority at least.
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
from kafkalike.model.replication import quorum_protocol
from kafkalike.model.replication.registers import UnreachableVoterError, majority
from kafkalike.replication.tables.known_voters import KnownVoters
from kafkalike.replication.tables.replicated_storage import LOG, ReplicatedStorage
from kafkalike.replication.tables.voter_files import QUORUM, MetadataVersion, Voter, identity_name
from kafkalike.storage.port import BufferedOutput, Coordination, Entry, Storage, TaskAccess
from kafkalike.storage.scheduler import Pace

_log = logging.getLogger(__name__)

T = TypeVar("T")


class QuorumAccess(TaskAccess):
    """Access for tasks, which never read the metadata; damaged files are read at other voters.

    Args:
        voters: the voters.
    """

    def __init__(self, voters: KnownVoters) -> None:
        self._voters = voters

    def elsewhere(self) -> Sequence[Storage]:
        """Return the folders of voters and observers."""
        return self._voters.each()


class QuorumStorage(ReplicatedStorage):
    """The folder `__cluster_metadata` of a cluster with several voters. Thread-safe.

    Args:
        folders: the folder on each known root, by broker id; if none of them names a set of voters, the table does
            not exist yet.
        opened: opens the folder of a voter on any other root.
        clock: time and waiting.
    """

    def __init__(self, folders: Mapping[int, Storage], opened: Callable[[Voter], Storage], clock: Clock) -> None:
        self.voters = KnownVoters(folders, opened, clock)
        self.tasks = QuorumAccess(self.voters)

    def __repr__(self) -> str:
        """Return a text for error messages."""
        return f"QuorumStorage({[folder.uri for folder in self.voters.folders.values()]!r})"

    def mark_observers(self) -> None:
        """Store the set of voters and the last version at the observers that answer."""
        self.voters.mark_observers()
        last = max((version_of(entry.name) or 0 for entry in self.list("_delta_log")), default=0)
        content = self.look(log_name(last))
        if content is not None:
            self.voters.inform(last, MetadataVersion(content))

    # --- versions ------------------------------------------------------------------------------

    def put_version(self, version: int, content: bytes, *, durable: bool) -> bool:
        """Let the voters decide a version."""
        del durable
        wanted = MetadataVersion(content)
        found = self.voters.decide(lambda voters: quorum_protocol.putting(version, wanted, voters))
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
        found: Any = self.voters.decide(lambda voters: quorum_protocol.looking(version, voters))
        return None if found is None else bytes(found.data)

    def first(self, name: str, read: Callable[[Storage], T]) -> T:
        """Read a file at the first voter that has it."""
        return self.voters.first(read, name)

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return self.voters.first(lambda folder: folder.read(name), name)

    # --- other files ---------------------------------------------------------------------------

    def replace(self, name: str, content: bytes) -> None:
        """Write a file; write a checkpoint, and the file that names it, only at voters that have its version."""
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
                if self.voters.roots.do(quorum_protocol.LastVersion(voter)) < version:
                    continue
                folder = self.voters.folder_of(voter)
                folder.replace(name, content)
                # Before the registers are removed, because the checkpoint marks them as obsolete.
                folder.sync(name)
                self.voters.roots.sweep(voter, version)
                made += 1
            except (OSError, UnreachableVoterError) as cause:
                _log.debug("%s: no checkpoint: %s", voter.uri, cause)
        if not made:
            raise OSError(f"{self.uri}: no voter could store {name}")

    @staticmethod
    def _name_checkpoint(folder: Storage, content: bytes) -> None:
        named = LogFiles.listed(folder).checkpoints
        if named and max(named) == _checkpoint_in(content):
            folder.replace(LAST_CHECKPOINT, content)

    def open_output(self, name: str) -> pa.NativeFile:
        """Open a stream that makes a new file at a majority when it is closed."""
        return pa.PythonFile(BufferedOutput(lambda content: self.write(name, content)), "w")

    def write(self, name: str, content: bytes) -> None:
        """Make a data file at a majority.

        Raises:
            OSError: fewer than a majority of the voters have it.
        """
        # Atomically: readers could find a truncated file before the intact file of another voter.
        self.voters.at_majority(lambda folder: folder.replace(name, content))

    def sync(self, name: str) -> None:
        """Make a file survive a power failure, at a majority."""
        self.voters.at_majority(lambda folder: folder.sync(name))

    def remove(self, name: str, *, quietly: bool = False) -> None:
        """Remove a file at the voters that answer; a log file only if it is below a checkpoint, or `quietly` is set."""
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
        """List the files of all reachable voters, without registers."""
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
                # The observers' files are valid, if not the newest.
                found, answers = self._listed(voters.observers, folder, deep=deep, after=after)
            if not answers:
                raise OSError(self.voters.why(voters))
            if enough and f"{folder}/" == LOG:
                newest = max((version for name in found if (version := version_of(name)) is not None), default=-1)
                if newest >= 0:
                    # Listing a version shows it, so it must be at a majority.
                    self.voters.decide(partial(quorum_protocol.confirming, newest))
            return list(found.values())
        return []

    def _listed(self, voters: Sequence[Voter], folder: str, *, deep: bool, after: str) -> tuple[dict[str, Entry], int]:
        """Return files by name, and how many voters answered."""
        found: dict[str, Entry] = {}
        answers = 0
        for voter in voters:
            try:
                each = self.voters.folder_of(voter)
                entries = each.list(folder, deep=deep, after=after)
                # After the list, because the folder of a missing root looks empty.
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
        """Return the names of the folders below."""
        found = self.voters.first(lambda folder: folder.folders(), "")
        return [name for name in found if name != QUORUM]

    def make_folder(self, folder: str) -> None:
        """Make a folder at a majority of the voters."""
        if self.voters.now is not None:
            self.voters.at_majority(lambda each: each.make_folder(folder))

    # --- the rest of a store -------------------------------------------------------------------

    @property
    def uri(self) -> str:
        """The location of the metadata at the first voter."""
        return self.voters.uri

    @property
    def coordination(self) -> Coordination:  # type: ignore[override]
        """Return the coordination of the first root."""
        return self.voters.first_folder.coordination

    def at(self, folder: str) -> Storage:
        """Return the folder below at the first voter, for reading."""
        return self.voters.each()[0].at(folder)


def _checkpoint_in(content: bytes) -> int:
    return int(json.loads(content)["version"])
