"""QuorumStore: the table of metadata on several voters as one store: a version is what a majority of them has decided.

`put_if_absent` of a version's file is a decision (`kafkalike.model.replication.quorum`). What is shown, or told to be
done, is at a majority. Data files are at a majority before a version can name them. Checkpoints and clean-up are each
voter's own. Any other file is at each voter that answers, a majority at least.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from kafkalike.clock import Clock
from kafkalike.config.storage import SentOptions
from kafkalike.log.store.near import NearStore
from kafkalike.log.store.port import NOW, Entry, NotStoredError, Pace, Reach, Store
from kafkalike.log.table.actions import log_name, version_of
from kafkalike.log.table.log_files import LAST_CHECKPOINT, LogFiles
from kafkalike.log.table.replicas.voter_files import QUORUM, MetadataVersion, Voter, identity_name, open_name
from kafkalike.log.table.replicas.voter_roots import VoterRoots
from kafkalike.model.leases import Leases
from kafkalike.model.replication.quorum import (
    FellBehindError,
    LastVersion,
    bringing,
    confirming,
    looking,
    publishing,
    putting,
)
from kafkalike.model.replication.registers import (
    NoMajorityError,
    UnreachableVoterError,
    VotersReplacedError,
    majority,
)
from kafkalike.model.replication.takeover import PutMark, VoterSet

if TYPE_CHECKING:
    from kafkalike.clock import Deadline

_log = logging.getLogger(__name__)

T = TypeVar("T")

LOG: Final = "_delta_log/"

LOOK_SECONDS: Final = 10.0
"""How often a reader makes sure that no other voters have taken over."""


class QuorumStore(NearStore):
    """The folder `__cluster_metadata` of a cluster with several voters. Thread-safe.

    Args:
        folders: the folder on each root that is known, by broker id; where none of them knows a set of voters, there is
            no table yet.
        opened: a voter on a root that is not among them → its folder.
        clock: time and waiting.
    """

    def __init__(self, folders: Mapping[int, Store], opened: Callable[[Voter], Store], clock: Clock) -> None:
        self._folders = dict(folders)
        self._opened = opened
        self._clock = clock
        self._voters: VoterSet | None = None
        self._looked = 0.0
        self.roots = VoterRoots(self.folder_of, clock)

    def __repr__(self) -> str:
        """For error messages."""
        return f"QuorumStore({[folder.uri for folder in self._folders.values()]!r})"

    # --- voters --------------------------------------------------------------------------------

    def folder_of(self, voter: Voter) -> Store:
        """The folder on a voter's root."""
        found = self._folders.get(voter.broker)
        if found is None:
            found = self._folders[voter.broker] = self._opened(voter)
        return found

    @property
    def voters(self) -> VoterSet | None:
        """Who votes; None where no root in reach says so, which means that there is no table yet."""
        if self._voters is None or self._clock.monotonic() - self._looked > LOOK_SECONDS:
            self.look_for_voters()
        return self._voters

    def look_for_voters(self) -> VoterSet | None:
        """Ask every root that is known who votes."""
        newest = self._voters
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
        self._voters, self._looked = newest, self._clock.monotonic()
        return newest

    def _decide(self, course: Callable[[tuple[Voter, ...]], Generator[Any, Any, T]]) -> T:
        """Carry a course of the voters out; of those that have taken over, if others have.

        Raises:
            OSError: too few of them answer.
        """
        voters = self.voters
        while True:
            if voters is None:
                raise NotStoredError(f"{self.uri}: there is no cluster here yet, or none of its voters answers")
            try:
                return self.roots.carry_out(course(voters.voters))
            except (NoMajorityError, VotersReplacedError) as cause:
                before, voters = voters, self.look_for_voters()
                assert voters is not None
                if voters != before or self.roots.forgive():
                    continue
                raise OSError(self.why(voters)) from cause
            except FellBehindError as cause:
                message = f"{self.uri}: this version was made long ago, and the log begins after it"
                raise OSError(message) from cause

    def why(self, voters: VoterSet) -> str:
        """Which voters do not answer, and what to do."""
        silent = [voter for voter in voters.voters if not self.answers(voter)]
        if len(silent) <= len(voters.voters) - majority(len(voters.voters)):
            return f"{self.uri}: other voters are taking over; `kafkalike recover` goes on where that stopped"
        others = (voter for voter in (*voters.voters, *voters.observers) if voter not in silent)
        left = [self.folder_of(voter).uri for voter in others if self.answers(voter)]
        named = "; ".join(f"broker {v.broker} at {v.uri}: {self.roots.failures.get(v, 'no answer')}" for v in silent)
        return (
            f"{len(silent)} of the {len(voters.voters)} voters that decide about topics, leaders and brokers do not "
            f"answer ({named}). Nothing about these can be changed until enough of them are back. If they are lost for "
            f"good, see `kafkalike recover --from {_root_of(left[0]) if left else 'ROOT'} --dry-run`"
        )

    def answers(self, voter: Voter) -> bool:
        """Whether a voter answers."""
        return self.last_of(voter) is not None

    def last_of(self, voter: Voter) -> int | None:
        """The last version that a voter has; None when it gives no answer."""
        self.roots.forgive()
        try:
            last: int = self.roots.do(LastVersion(voter))
        except UnreachableVoterError:
            return None
        return last

    def is_open(self, voters: VoterSet) -> bool:
        """Whether a majority of voters may vote: nobody has taken over, and they have from those before.

        Those that do not answer count as if they might.
        """
        closed = 0
        for voter in voters.voters:
            try:
                self.folder_of(voter).size(open_name(voter))
            except FileNotFoundError:
                closed += 1
            except OSError:
                continue
        return closed <= len(voters.voters) - majority(len(voters.voters))

    def set_of(self, epoch: int) -> VoterSet | None:
        """The voters of an epoch, as any root in reach says."""
        for folder in self._folders.values():
            with contextlib.suppress(OSError):
                for found in self.roots.sets_at(folder):
                    if found.epoch == epoch:
                        return found
        return None

    def bring_all(self) -> None:
        """Bring each voter that answers to the newest version.

        Raises:
            OSError: too few of them answer.
        """
        last = max((version_of(entry.name) or 0 for entry in self.list("_delta_log")), default=0)
        content = self.look(log_name(last))
        if content is not None:
            self._decide(lambda voters: publishing(last, MetadataVersion(content), voters))

    def mark_observers(self) -> None:
        """Tell those that have no vote, and answer, who votes, and give them a copy."""
        voters = self._voters
        if voters is None:
            return
        for observer in voters.observers:
            with contextlib.suppress(UnreachableVoterError):
                self.roots.do(PutMark(observer, voters))
        last = max((version_of(entry.name) or 0 for entry in self.list("_delta_log")), default=0)
        content = self.look(log_name(last))
        if content is not None:
            self._inform(last, MetadataVersion(content))

    # --- versions ------------------------------------------------------------------------------

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        """Have a version decided, or put another file at a majority of the voters."""
        version = _version(name)
        if version is None:
            made = self._at_majority(lambda folder: folder.put_if_absent(name, content, durable=durable))
            return made[0]
        wanted = MetadataVersion(content)
        found = self._decide(lambda voters: putting(version, wanted, voters))
        self._inform(version, found)
        return bool(found == wanted)

    def _inform(self, version: int, content: MetadataVersion) -> None:
        """Copy what was decided to those that have no vote, where they answer."""
        voters = self._voters
        if voters is None:
            return
        for observer in voters.observers:
            with contextlib.suppress(UnreachableVoterError):
                self.roots.carry_out(bringing(observer, version, content, voters.voters, voters.voters))

    def look(self, name: str, pace: Pace = NOW) -> bytes | None:
        """Content of a file that may not be there yet."""
        del pace
        version = _version(name)
        if version is None:
            try:
                return self.read(name)
            except FileNotFoundError:
                return None
        if self.voters is None:
            return None
        found: Any = self._decide(lambda voters: looking(version, voters))
        return None if found is None else bytes(found.data)

    def read(self, name: str) -> bytes:
        """Content of a file."""
        return self._first(lambda folder: folder.read(name), name)

    def elsewhere(self) -> Sequence[Store]:
        """Each voter, and those that have a copy."""
        return self._each()

    # --- other files ---------------------------------------------------------------------------

    def _each(self) -> list[Store]:
        """The voters' folders, and after them those of others that have a copy."""
        voters = self.voters
        return [] if voters is None else [self.folder_of(voter) for voter in (*voters.voters, *voters.observers)]

    def _first(self, read: Callable[[Store], T], name: str) -> T:
        """What the first one says that has a file.

        Raises:
            FileNotFoundError: nobody in reach has it, and a majority of the voters is.
            OSError: too few answer to say that.
        """
        failed: OSError | None = None
        silent = 0
        voters = self.voters
        for folder in self._each():
            try:
                return read(folder)
            except FileNotFoundError:
                continue
            except OSError as cause:
                failed, silent = cause, silent + 1
        if failed is not None and voters is not None and silent > len(voters.voters) - majority(len(voters.voters)):
            raise failed
        raise FileNotFoundError(f"{self.uri}/{name}")

    def _at_majority(self, write: Callable[[Store], T]) -> list[T]:
        """Do something at each voter that answers.

        Raises:
            OSError: a majority did not.
        """
        voters = self.voters
        if voters is None:
            raise NotStoredError(f"{self.uri}: there is no cluster here yet, or none of its voters answers")
        done: list[T] = []
        for voter in voters.voters:
            try:
                done.append(write(self.folder_of(voter)))
            except OSError as cause:
                self.roots.failures[voter] = cause
        if len(done) < majority(len(voters.voters)):
            raise OSError(self.why(voters))
        return done

    def _wherever(self, act: Callable[[Store], object]) -> None:
        """Do something at each voter that answers; where it fails, it is left for the next time."""
        for folder in self._each():
            try:
                act(folder)
            except OSError as cause:
                _log.debug("%s: %s", folder.uri, cause)

    def replace(self, name: str, content: bytes) -> None:
        """Write a file; a checkpoint, and what names it, only at voters that have its version."""
        if name == LAST_CHECKPOINT:
            self._wherever(lambda folder: self._name_checkpoint(folder, content))
        elif ".checkpoint." in name:
            self._checkpoint(name, content)
        else:
            self._at_majority(lambda folder: folder.replace(name, content))

    def _checkpoint(self, name: str, content: bytes) -> None:
        version, made = int(name.removeprefix(LOG)[:20]), 0
        voters = self.voters
        for voter in () if voters is None else voters.voters:
            try:
                if self.roots.do(LastVersion(voter)) < version:
                    continue
                folder = self.folder_of(voter)
                folder.replace(name, content)
                # Before registers go: it says that they are over.
                folder.sync(name)
                self.roots.sweep(voter, version)
                made += 1
            except (OSError, UnreachableVoterError) as cause:
                _log.debug("%s: no checkpoint: %s", voter.uri, cause)
        if not made:
            message = f"{self.uri}: no voter could take {name}"
            raise OSError(message)

    @staticmethod
    def _name_checkpoint(folder: Store, content: bytes) -> None:
        named = LogFiles.listed(folder).checkpoints
        if named and max(named) == _checkpoint_in(content):
            folder.replace(LAST_CHECKPOINT, content)

    def open_output(self, name: str) -> pa.NativeFile:
        """A stream that makes a new file at a majority when it is closed."""
        return pa.PythonFile(_Output(self, name), "w")

    def write(self, name: str, content: bytes) -> None:
        """Make a data file at a majority.

        Raises:
            OSError: it is not.
        """
        # Whole or not at all: what a full disk cut off would be read before what others have.
        self._at_majority(lambda folder: folder.replace(name, content))

    def sync(self, name: str) -> None:
        """Make a file survive a power failure, at a majority."""
        self._at_majority(lambda folder: folder.sync(name))

    def remove(self, name: str) -> None:
        """Remove a file at the voters that answer; of the log, where a checkpoint is above it."""
        number = name.removeprefix(LOG)[:20]
        if not (name.startswith(LOG) and number.isdigit()):
            self._wherever(lambda folder: folder.remove(name))
            return

        def covered(folder: Store) -> None:
            newest = max(LogFiles.listed(folder, int(number)).checkpoints, default=-1)
            if newest > int(number) or (newest == int(number) and ".checkpoint." not in name):
                folder.remove(name)

        self._wherever(covered)

    def discard(self, name: str) -> None:
        """Try to remove a file that nobody names."""
        self._wherever(lambda folder: folder.discard(name))

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """Files that any voter in reach has; without registers."""
        voters = self.voters
        while voters is not None:
            found, answers = self._listed(voters.voters, folder, deep=deep, after=after)
            enough = answers >= majority(len(voters.voters))
            if not enough:
                newer = self.look_for_voters()
                if newer != voters:
                    voters = newer
                    continue
            if not answers:
                # What those without a vote have is known, if it is not the newest.
                found, answers = self._listed(voters.observers, folder, deep=deep, after=after)
            if not answers:
                raise OSError(self.why(voters))
            if enough and f"{folder}/" == LOG:
                newest = max((version for name in found if (version := version_of(name)) is not None), default=-1)
                if newest >= 0:
                    # Who lists it shows it.
                    self._decide(partial(confirming, newest))
            return list(found.values())
        return []

    def _listed(self, voters: Sequence[Voter], folder: str, *, deep: bool, after: str) -> tuple[dict[str, Entry], int]:
        """Files by name, and how many voters answered."""
        found: dict[str, Entry] = {}
        answers = 0
        for voter in voters:
            try:
                each = self.folder_of(voter)
                entries = each.list(folder, deep=deep, after=after)
                # After the list: a root that is gone is not empty.
                each.size(identity_name(voter))
            except OSError as cause:
                self.roots.failures[voter] = cause
                continue
            answers += 1
            for entry in entries:
                if not entry.name.startswith(f"{QUORUM}/"):
                    found.setdefault(entry.name, entry)
        return found, answers

    def folders(self) -> Sequence[str]:
        """Names of the folders below."""
        found = self._first(lambda folder: folder.folders(), "")
        return [name for name in found if name != QUORUM]

    def make_folder(self, folder: str) -> None:
        """Make a folder."""
        if self.voters is not None:
            self._at_majority(lambda each: each.make_folder(folder))

    def copy(self, source: str, target: Store, name: str) -> bool:
        """Give a file to another store."""
        with target.open_output(name) as stream:
            stream.write(self.read(source))
        return False

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return self._first(lambda folder: folder.size(name), name)

    def open_input(self, name: str, buffer_size: int = 0) -> pa.NativeFile:
        """Open a file for reading."""
        return self._first(lambda folder: folder.open_input(name, buffer_size), name)

    def read_range(self, name: str, start: int, stop: int) -> pa.Buffer:
        """Bytes of a file."""
        return self._first(lambda folder: folder.read_range(name, start, stop), name)

    # --- the rest of a store -------------------------------------------------------------------

    @property
    def uri(self) -> str:
        """Where the first voter has it."""
        voters = self._voters
        return min(self._folders.items())[1].uri if voters is None else self.folder_of(voters.voters[0]).uri

    @property
    def reach(self) -> Reach:
        """That of the roots, which are of one kind."""
        return min(self._folders.items())[1].reach

    def check_writable(self) -> None:
        """Anything may be written here."""

    def try_out(self) -> None:
        """The roots were."""

    def at(self, folder: str) -> Store:
        """The store of a folder below, on the first voter: for those who look."""
        return self._each()[0].at(folder)

    def for_tasks(self) -> Store:
        """Tasks do not read the metadata."""
        return self

    def sent_options(self) -> SentOptions | None:
        """None."""
        return None

    def hadoop_settings(self) -> Mapping[str, str]:
        """Nothing."""
        return {}

    def turn(
        self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None
    ) -> AbstractContextManager[None]:
        """Queue at the first root."""
        return min(self._folders.items())[1].turn(name, deadline, meanwhile)

    def forget_turns(self, names: Iterable[str]) -> int:
        """Remove what queues have left at the first root."""
        return min(self._folders.items())[1].forget_turns(names)

    def leases(self) -> Leases:
        """Those of the first root."""
        return min(self._folders.items())[1].leases()

    def now_ns(self) -> int:
        """The clock of the first root."""
        return min(self._folders.items())[1].now_ns()


class _Output(io.BytesIO):
    """A file that is being written."""

    def __init__(self, store: QuorumStore, name: str) -> None:
        super().__init__()
        self._store = store
        self._name = name

    def close(self) -> None:
        """Make the file, at a majority."""
        if not self.closed:
            content = self.getvalue()
            super().close()
            self._store.write(self._name, content)


def _version(name: str) -> int | None:
    """The version that a file commits; None for any other."""
    return version_of(name.removeprefix(LOG)) if name.startswith(LOG) else None


def _checkpoint_in(content: bytes) -> int:
    return int(json.loads(content)["version"])


def _root_of(folder: str) -> str:
    return folder.rpartition("/")[0]
