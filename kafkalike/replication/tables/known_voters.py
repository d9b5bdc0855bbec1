"""Known voters: the voters of a cluster's metadata as far as a process knows them, and files at a majority of them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, TypeVar

from kafkalike.model.clock import Clock
from kafkalike.model.replication import quorum_protocol
from kafkalike.model.replication.registers import NoMajorityError, UnreachableVoterError, VotersReplacedError, majority
from kafkalike.model.replication.takeover import PutMark, VoterSet
from kafkalike.replication.tables.voter_files import MetadataVersion, Voter, open_name
from kafkalike.replication.tables.voter_roots import VoterRoots
from kafkalike.storage.port import NotStoredError, Storage

_log = logging.getLogger(__name__)

T = TypeVar("T")

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
