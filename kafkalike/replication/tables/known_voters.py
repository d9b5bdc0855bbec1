"""KnownVoters: the roots that a process knows in; who votes, what they decide, and files at a majority, out."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, TypeVar

from kafkalike.model.clock import Clock
from kafkalike.model.replication.quorum_protocol import LastVersion, VoterFellBehindError, bringing
from kafkalike.model.replication.registers import NoMajorityError, UnreachableVoterError, VotersReplacedError, majority
from kafkalike.model.replication.takeover import PutMark, VoterSet
from kafkalike.replication.tables.voter_files import MetadataVersion, Voter, open_name
from kafkalike.replication.tables.voter_roots import VoterRoots
from kafkalike.storage.port import NotStoredError, Storage

_log = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_SECONDS: Final = 10.0
"""How often a reader makes sure that no other voters have taken over."""


class KnownVoters:
    """Who votes about the metadata of a cluster, as far as one process knows. Thread-safe.

    Args:
        folders: the folder of the metadata on each root that is known, by broker id.
        opened: a voter on a root that is not among them → its folder.
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
        """Go on with other broker ids. Caller: no voter is known yet.

        Args:
            folders: as when it was made.
        """
        self._known = None
        self._folders = dict(folders)

    @property
    def folders(self) -> Mapping[int, Storage]:
        """The folder on each root that is known by now, by broker id."""
        return self._folders

    @property
    def uri(self) -> str:
        """Where the first voter has the metadata; the first root that is known, where nobody knows who votes."""
        voters = self._known
        return self.first_folder.uri if voters is None else self.folder_of(voters.voters[0]).uri

    @property
    def first_folder(self) -> Storage:
        """The folder on the root with the lowest broker id."""
        return min(self._folders.items())[1]

    # --- who votes -----------------------------------------------------------------------------

    def folder_of(self, voter: Voter) -> Storage:
        """The folder on a voter's root."""
        found = self._folders.get(voter.broker)
        if found is None:
            found = self._folders[voter.broker] = self._opened(voter)
        return found

    @property
    def now(self) -> VoterSet | None:
        """Who votes; None where no root in reach says so, which means that there is no table yet."""
        found = self.known
        return self.look() if found is None else found

    @property
    def known(self) -> VoterSet | None:
        """Who votes, as far as is known; None where `now` would ask."""
        return self._known if self._clock.monotonic() - self._looked <= LOOK_SECONDS else None

    def look(self) -> VoterSet | None:
        """Ask every root that is known who votes."""
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
        """Carry a protocol of the voters out; of those that have taken over, if others have.

        Raises:
            OSError: too few of them answer.
        """
        voters = self.now
        while True:
            if voters is None:
                raise NotStoredError(f"{self.uri}: there is no cluster here yet, or none of its voters answers")
            try:
                return self.roots.carry_out(course(voters.voters))
            except (NoMajorityError, VotersReplacedError) as cause:
                before, voters = voters, self.look()
                assert voters is not None
                if voters != before or self.roots.forgive():
                    continue
                raise OSError(self.why(voters)) from cause
            except VoterFellBehindError as cause:
                raise OSError(f"{self.uri}: this version was made long ago, and the log begins after it") from cause

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
                closed += self.folder_of(voter).size(open_name(voter)) > 0
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

    def mark_observers(self) -> None:
        """Tell those that have no vote, and answer, who votes."""
        voters = self._known
        if voters is None:
            return
        for observer in voters.observers:
            with contextlib.suppress(UnreachableVoterError):
                self.roots.do(PutMark(observer, voters))

    def inform(self, version: int, content: MetadataVersion) -> None:
        """Copy what was decided to those that have no vote, where they answer."""
        voters = self._known
        if voters is None:
            return
        for observer in voters.observers:
            with contextlib.suppress(UnreachableVoterError):
                self.roots.carry_out(bringing(observer, version, content, voters.voters, voters.voters))

    # --- files at voters -----------------------------------------------------------------------

    def each(self) -> list[Storage]:
        """The voters' folders, and after them those of others that have a copy."""
        voters = self.now
        return [] if voters is None else [self.folder_of(voter) for voter in (*voters.voters, *voters.observers)]

    def first(self, read: Callable[[Storage], T], name: str) -> T:
        """What the first one says that has a file.

        Raises:
            FileNotFoundError: nobody in reach has it, and a majority of the voters is.
            OSError: too few answer to say that.
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
        """Do something at each voter that answers.

        Raises:
            OSError: a majority did not.
        """
        voters = self.now
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

    def wherever(self, act: Callable[[Storage], object]) -> None:
        """Do something at each voter that answers; where it fails, it is left for the next time."""
        for folder in self.each():
            try:
                act(folder)
            except OSError as cause:
                _log.debug("%s: %s", folder.uri, cause)


def _root_of(folder: str) -> str:
    return folder.rpartition("/")[0]
