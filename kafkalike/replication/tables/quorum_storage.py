"""Quorum storage: the metadata table on several voters as one storage; a version is what a majority has decided.

`put_if_absent` of a version's file is a decision (`kafkalike.model.replication.quorum_protocol`). A version that is
shown, or confirmed to its writer, is at a majority. Data files are at a majority before a version can name them.
Checkpoints and log cleaning are each voter's own. Any other file is written to every voter that answers, and to a
majority at least. `KnownVoters` tracks the roots that this process knows and the current set of voters.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa

from kafkalike.delta.actions import log_name, version_of
from kafkalike.delta.log_files import LAST_CHECKPOINT, LogFiles
from kafkalike.model.clock import Clock
from kafkalike.model.replication import quorum_protocol
from kafkalike.model.replication.registers import NoMajorityError, UnreachableVoterError, VotersReplacedError, majority
from kafkalike.model.replication.takeover import PutMark, VoterSet
from kafkalike.replication.tables.replicated_storage import LOG, ReplicatedStorage
from kafkalike.replication.tables.voter_files import QUORUM, MetadataVersion, Voter, identity_name, open_name
from kafkalike.replication.tables.voter_roots import VoterRoots
from kafkalike.storage.port import BufferedOutput, Coordination, Entry, NotStoredError, Storage, TaskAccess
from kafkalike.storage.scheduler import Pace

LOOK_SECONDS: Final = 10.0
"""How often a reader checks that no other voters have taken over."""


class KnownVoters:
    """The voters of a cluster's metadata, as far as this process knows. Thread-safe.

    Args:
        folders: the folder of the metadata on each known root, by broker id.
        opened: opens the folder of a voter on any other root.
        clock: time and waiting.
    """

    def __init__(self, folders: Mapping[int, Storage], opened: Callable[[Voter], Storage], clock: Clock) -> None:
        self._folders = dict(folders)
        self._opened = opened
        self._clock = clock
        self._known: VoterSet | None = None
        self._looked = 0.0
        self.roots = VoterRoots(self.folder_of, clock)

    def replace_folders(self, folders: Mapping[int, Storage]) -> None:
        """Use other broker ids. Caller: no voter is known yet.

        Args:
            folders: the folder of the metadata on each known root, by broker id.
        """
        self._known = None
        self._folders = dict(folders)

    @property
    def folders(self) -> Mapping[int, Storage]:
        """The folder on each known root, by broker id."""
        return self._folders

    @property
    def uri(self) -> str:
        """The location of the metadata at the first voter; at the first known root while the voters are unknown."""
        voters = self._known
        return self.first_folder.uri if voters is None else self.folder_of(voters.voters[0]).uri

    @property
    def first_folder(self) -> Storage:
        """The folder on the root with the lowest broker id."""
        return min(self._folders.items())[1]

    # --- who votes -----------------------------------------------------------------------------

    def folder_of(self, voter: Voter) -> Storage:
        """Return the folder on a voter's root."""
        found = self._folders.get(voter.broker)
        if found is None:
            found = self._folders[voter.broker] = self._opened(voter)
        return found

    @property
    def now(self) -> VoterSet | None:
        """The current voters; None if no reachable root names any, because the table does not exist yet."""
        found = self.known
        return self.look() if found is None else found

    @property
    def known(self) -> VoterSet | None:
        """The current voters, if they were read recently; None where `now` would ask."""
        return self._known if self._clock.monotonic() - self._looked <= LOOK_SECONDS else None

    def look(self) -> VoterSet | None:
        """Ask every known root for the newest set of voters."""
        newest = self._known
        asked: set[int] = set()
        while left := self._folders.keys() - asked:
            for broker in sorted(left):
                asked.add(broker)
                try:
                    found = self.roots.sets_at(self._folders[broker])
                except OSError:
                    continue
                for known in found:
                    newest = known if newest is None or known.epoch > newest.epoch else newest
            for voter in () if newest is None else newest.voters:
                self.folder_of(voter)
        self._known, self._looked = newest, self._clock.monotonic()
        return newest

    def decide(self, course: Callable[[tuple[Voter, ...]], Generator[Any, Any, T]]) -> T:
        """Run a protocol of the voters; if other voters have taken over, run it with them.

        Raises:
            OSError: too few voters answer.
        """
        voters = self.now
        while True:
            if voters is None:
                raise NotStoredError(f"{self.uri}: the cluster does not exist yet, or none of its voters answers")
            try:
                return self.roots.carry_out(course(voters.voters))
            except (NoMajorityError, VotersReplacedError) as cause:
                before, voters = voters, self.look()
                assert voters is not None
                if voters != before or self.roots.forgive():
                    continue
                raise OSError(self.why(voters)) from cause
            except quorum_protocol.VoterFellBehindError as cause:
                raise OSError(f"{self.uri}: log cleaning has removed this version; the log starts after it") from cause

    def why(self, voters: VoterSet) -> str:
        """Return a text that names the voters that do not answer, and what to do."""
        silent = [voter for voter in voters.voters if not self.answers(voter)]
        if len(silent) <= len(voters.voters) - majority(len(voters.voters)):
            return f"{self.uri}: other voters are taking over; if that was interrupted, run `kafkalike recover` again"
        others = (voter for voter in (*voters.voters, *voters.observers) if voter not in silent)
        left = [self.folder_of(voter).uri for voter in others if self.answers(voter)]
        named = "; ".join(f"broker {v.broker} at {v.uri}: {self.roots.failures.get(v, 'no answer')}" for v in silent)
        return (
            f"{len(silent)} of the {len(voters.voters)} voters that decide about topics, leaders and brokers do not "
            f"answer ({named}). Nothing about these can be changed until enough of them are back. If they are lost for "
            f"good, see `kafkalike recover --from {_root_of(left[0]) if left else 'ROOT'} --dry-run`"
        )

    def answers(self, voter: Voter) -> bool:
        """Return whether a voter answers."""
        return self.last_of(voter) is not None

    def last_of(self, voter: Voter) -> int | None:
        """Return the last version of a voter; None if it does not answer."""
        self.roots.forgive()
        try:
            last: int = self.roots.do(quorum_protocol.LastVersion(voter))
        except UnreachableVoterError:
            return None
        return last

    def is_open(self, voters: VoterSet) -> bool:
        """Return whether a majority may vote: they are open, and no other voters have taken over.

        Voters that do not answer count as open.
        """
        closed = 0
        for voter in voters.voters:
            try:
                closed += self.folder_of(voter).size(open_name(voter)) > 0
            except FileNotFoundError:
                closed += 1
            except OSError:
                continue
        return closed <= len(voters.voters) - majority(len(voters.voters))

    def set_of(self, epoch: int) -> VoterSet | None:
        """Return the voters of an epoch from any reachable root; None if no root has them."""
        for folder in self._folders.values():
            with contextlib.suppress(OSError):
                for found in self.roots.sets_at(folder):
                    if found.epoch == epoch:
                        return found
        return None

    def mark_observers(self) -> None:
        """Store the current set of voters at the observers that answer."""
        voters = self._known
        if voters is None:
            return
        for observer in voters.observers:
            with contextlib.suppress(UnreachableVoterError):
                self.roots.do(PutMark(observer, voters))

    def inform(self, version: int, content: MetadataVersion) -> None:
        """Copy a decided version to the observers that answer."""
        voters = self._known
        if voters is None:
            return
        for observer in voters.observers:
            with contextlib.suppress(UnreachableVoterError):
                self.roots.carry_out(quorum_protocol.bringing(observer, version, content, voters.voters, voters.voters))

    # --- files at voters -----------------------------------------------------------------------

    def each(self) -> list[Storage]:
        """Return the folders of the voters, then of the observers."""
        voters = self.now
        return [] if voters is None else [self.folder_of(voter) for voter in (*voters.voters, *voters.observers)]

    def first(self, read: Callable[[Storage], T], name: str) -> T:
        """Read a file at the first folder that has it.

        Raises:
            FileNotFoundError: no reachable root has it, and a majority of the voters is reachable.
            OSError: too few voters answer.
        """
        failed: OSError | None = None
        silent = 0
        voters = self.now
        for folder in self.each():
            try:
                return read(folder)
            except FileNotFoundError:
                continue
            except OSError as cause:
                failed, silent = cause, silent + 1
        if failed is not None and voters is not None and silent > len(voters.voters) - majority(len(voters.voters)):
            raise failed
        raise FileNotFoundError(f"{self.uri}/{name}")

    def at_majority(self, write: Callable[[Storage], T]) -> list[T]:
        """Write to each voter that answers.

        Raises:
            OSError: fewer than a majority succeeded.
        """
        voters = self.now
        if voters is None:
            raise NotStoredError(f"{self.uri}: the cluster does not exist yet, or none of its voters answers")
        done: list[T] = []
        for voter in voters.voters:
            try:
                done.append(write(self.folder_of(voter)))
            except OSError as cause:
                self.roots.failures[voter] = cause
        if len(done) < majority(len(voters.voters)):
            raise OSError(self.why(voters))
        return done

    def wherever(self, act: Callable[[Storage], object]) -> None:
        """Write to each voter and observer that answers; ignore failures, which a later write makes up for."""
        for folder in self.each():
            try:
                act(folder)
            except OSError as cause:
                _log.debug("%s: %s", folder.uri, cause)


def _root_of(folder: str) -> str:
    return folder.rpartition("/")[0]


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
