"""Voter roots: run the voters' protocols and apply their effects to the metadata folders on the voters' roots.

All decisions, and their order, are made in `kafkalike.model.replication`, which is tested by simulation.
"""

from __future__ import annotations

import contextlib
import errno
import random
import uuid
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from kafkalike.delta.actions import Add, log_name
from kafkalike.delta.log_files import LAST_CHECKPOINT, LogFiles
from kafkalike.delta.snapshot import load_snapshot
from kafkalike.errors import KafkaError, LogCorruptError
from kafkalike.model.clock import Clock
from kafkalike.model.effects import run
from kafkalike.model.replication import quorum_protocol, registers, takeover
from kafkalike.model.replication.registers import SlotState, UnreachableVoterError
from kafkalike.model.replication.takeover import VoterSet
from kafkalike.replication.tables import voter_files
from kafkalike.storage.port import Storage

T = TypeVar("T")

PAUSE_SECONDS: Final = 0.01
"""Longest first wait of a proposer that met another proposer; it doubles with each try, up to 128 times that."""

SLOW_SECONDS: Final = 2.0
"""A voter that takes longer for one effect is skipped for a while, if the others are enough."""

PASSED_OVER_SECONDS: Final = 30.0
"""How long a slow voter is skipped."""


class VoterRoots:
    """Runs the protocols of voters on their roots.

    Args:
        store_of: maps a voter to the folder of the metadata on its root.
        clock: time and waiting.
        why: the reason that a version records for a takeover.
        jitter: random number from 0 to 1, for the wait after meeting another proposer.
    """

    def __init__(
        self,
        store_of: Callable[[voter_files.Voter], Storage],
        clock: Clock,
        why: str = "",
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._store_of = store_of
        self._clock = clock
        self._why = why
        self._jitter = jitter
        self._lasts: dict[voter_files.Voter, int] = {}
        """The last known version of each voter; it only grows."""
        self._slow_until: dict[voter_files.Voter, float] = {}
        """Until when a slow voter is skipped."""
        self.failures: dict[voter_files.Voter, OSError] = {}
        """The reason for a voter's last missing answer."""
        self._carriers: Mapping[type, Callable[[Any], Any]] = {
            registers.ReadRow: self._read_row,
            registers.PutRequest: self._put_request,
            registers.Stand: self._stand,
            quorum_protocol.ReadVersion: self._read_version,
            quorum_protocol.PutVersion: self._put_version,
            quorum_protocol.LastVersion: self._last_version,
            quorum_protocol.SupplyVersion: self._supply_version,
            quorum_protocol.CopyVoterCheckpoint: self._copy_checkpoint,
            takeover.PutMark: self._put_mark,
            takeover.OpenVoter: self._open_voter,
        }

    def carry_out(self, protocol: Generator[Any, Any, T]) -> T:
        """Run a protocol to its end.

        Raises:
            Exception: raised by the protocol.
        """
        return run(protocol, self.do, UnreachableVoterError)

    def do(self, act: Any) -> Any:  # noqa: ANN401 - what an effect comes to
        """Apply one effect.

        Raises:
            UnreachableVoterError: the voter does not answer.
        """
        if isinstance(act, registers.ProposalBackoff):
            self._clock.sleep(self._jitter() * PAUSE_SECONDS * 2 ** min(act.attempt, 7))
            return None
        if isinstance(act, quorum_protocol.NewProposer):
            return uuid.uuid4().hex
        if isinstance(act, takeover.NewRecord):
            return voter_files.record(act.after, act.reached, self._clock.now_ms(), self._why)
        if self.is_passed_over(act.voter):
            raise UnreachableVoterError("it was slow")
        try:
            return self._timed(act.voter, partial(self._carriers[type(act)], act))
        except (OSError, KafkaError) as cause:
            failed = cause if isinstance(cause, OSError) else OSError(str(cause))
            self.failures[act.voter] = failed
            raise UnreachableVoterError(str(failed)) from cause

    def _timed(self, voter: voter_files.Voter, ask: Callable[[], T]) -> T:
        """Ask a voter; skip it from then on if it was slow."""
        began = self._clock.monotonic()
        try:
            return ask()
        finally:
            ended = self._clock.monotonic()
            if ended - began > SLOW_SECONDS:
                self._slow_until[voter] = ended + PASSED_OVER_SECONDS

    def is_passed_over(self, voter: voter_files.Voter) -> bool:
        """Return whether a voter is skipped because it was slow."""
        return voter in self._slow_until and self._clock.monotonic() < self._slow_until[voter]

    def forgive(self) -> bool:
        """Stop skipping slow voters; return whether any was skipped."""
        found = any(until > self._clock.monotonic() for until in self._slow_until.values())
        self._slow_until.clear()
        return found

    # --- registers -----------------------------------------------------------------------------

    def _read_row(self, act: registers.ReadRow) -> list[registers.Request]:
        store = self._store_of(act.voter)
        found: list[registers.Request] = []
        while True:
            content = store.look(voter_files.register_name(act.voter, act.slot, act.since + len(found)))
            if content is None:
                return found
            found.append(voter_files.request_in(content))

    def _put_request(self, act: registers.PutRequest) -> bool:
        name = voter_files.register_name(act.voter, act.slot, act.place)
        return self._store_of(act.voter).put_if_absent(name, voter_files.request_content(act.request), durable=True)

    def _stand(self, act: registers.Stand) -> SlotState:
        store = self._store_of(act.voter)
        if act.slot < 0:
            self._known(act.voter)
            return SlotState()
        closed = replaced = False
        mine = self._epoch(act.voter)
        for entry in store.list("_delta_log", after=f"{act.slot:020d}"):
            epoch = voter_files.epoch_of(entry.name)
            replaced |= epoch is not None and epoch > mine
            # Any part of a multi-part checkpoint shows that the version existed.
            closed |= entry.name[:20].isdigit()
        # After the list, because emptying a root removes this file, too.
        if act.opening or replaced:
            self._check(store, act.voter, voter_files.identity_name(act.voter))
        else:
            self._check_open(store, act.voter)
        return SlotState(closed, replaced)

    def _known(self, voter: voter_files.Voter) -> Storage:
        """Return a voter's folder.

        Raises:
            OSError: its root is missing, or another root is in its place.
        """
        store = self._store_of(voter)
        self._check(store, voter, voter_files.identity_name(voter))
        return store

    @staticmethod
    def _check(store: Storage, voter: voter_files.Voter, name: str) -> int:
        """Return the size of a file that a voter must have, bytes."""
        try:
            return store.size(name)
        except FileNotFoundError as cause:
            raise _no_vote(store, voter) from cause

    def _check_open(self, store: Storage, voter: voter_files.Voter) -> None:
        if self._check(store, voter, voter_files.open_name(voter)):
            # The file says `closed`.
            raise _no_vote(store, voter)

    def _epoch(self, voter: voter_files.Voter) -> int:
        return int(voter.id.partition(".")[0])

    # --- versions ------------------------------------------------------------------------------

    def _read_version(self, act: quorum_protocol.ReadVersion) -> voter_files.MetadataVersion | None:
        store = self._store_of(act.voter)
        failed: list[OSError] = []

        def look() -> bytes | None:
            return store.look(log_name(act.version))

        def check() -> None:
            try:
                self._check_open(store, act.voter)
            except OSError as cause:
                failed.append(cause)

        if store.scheduler.is_remote:
            # A vote given while the version did not exist is enough, so both requests may run at once.
            found = store.scheduler.beside([look, check])[0]
        else:
            found = look()
            if found is None:
                check()
        if found is None and failed:
            raise failed[0]
        return None if found is None else voter_files.MetadataVersion(found)

    def _put_version(self, act: quorum_protocol.PutVersion) -> None:
        store, name = self._known(act.voter), log_name(act.version)
        assert isinstance(act.content, voter_files.MetadataVersion)
        if not store.put_if_absent(name, act.content.data, durable=True) and store.read(name) != act.content.data:
            raise OSError(f"{store.uri}/{name} differs from the decided version: the voter is damaged; replace it")
        if self._lasts.get(act.voter) == act.version - 1:
            self._lasts[act.voter] = act.version

    def _last_version(self, act: quorum_protocol.LastVersion) -> int:
        store, last = self._known(act.voter), self._lasts.get(act.voter, -1)
        if last >= 0:
            with contextlib.suppress(FileNotFoundError):
                while True:
                    store.size(log_name(last + 1))
                    last += 1
        else:
            files = LogFiles.listed(store)
            last = max((*files.commits, *files.checkpoints), default=-1)
        self._lasts[act.voter] = last
        return last

    def _supply_version(self, act: quorum_protocol.SupplyVersion) -> None:
        assert isinstance(act.content, voter_files.MetadataVersion)
        for add in act.content.commit.adds:
            self._supply(self._store_of(act.voter), add, act.sources)

    def _supply(self, store: Storage, add: Add, sources: tuple[Any, ...]) -> None:
        with contextlib.suppress(FileNotFoundError):
            if store.size(add.path) == add.size:
                return
        failed: OSError | None = None
        for source in sources:
            try:
                content = self._store_of(source).read(add.path)
            except FileNotFoundError:
                continue
            except OSError as cause:
                failed = cause
                continue
            # Atomically, because another process may write the same file.
            store.replace(add.path, content)
            store.sync(add.path)
            return
        if failed is not None:
            raise failed
        # Maintenance removes files after the last version that names them.
        for source in sources:
            with contextlib.suppress(OSError, LogCorruptError):
                if add.path not in load_snapshot(self._store_of(source)).live_files():
                    return
        raise OSError(f"{add.path} is on none of the voters that answer")

    def _copy_checkpoint(self, act: quorum_protocol.CopyVoterCheckpoint) -> int:
        source, target = self._store_of(act.source), self._known(act.voter)
        files = LogFiles.listed(source).checkpoints
        version = max(files, default=-1)
        if version < 0 or max(LogFiles.listed(target).checkpoints, default=-1) >= version:
            return version
        for add in load_snapshot(source, version).live_files().values():
            self._supply(target, add, (act.source,))
        for name in files[version]:
            target.replace(f"_delta_log/{name}", source.read(f"_delta_log/{name}"))
            target.sync(f"_delta_log/{name}")
        # Delta's readers start at the checkpoint that this file names.
        target.replace(LAST_CHECKPOINT, b'{"version":%d,"size":%d}' % (version, 1))
        self._lasts.pop(act.voter, None)
        return version

    def sweep(self, voter: voter_files.Voter, version: int) -> None:
        """Remove a voter's registers up to a version for which it has a checkpoint.

        Raises:
            OSError: the storage refused.
        """
        store = self._store_of(voter)
        for entry in store.list(voter_files.folder_of(voter)):
            slot = voter_files.slot_of(entry.name)
            if slot is not None and slot <= version:
                store.remove(f"{voter_files.folder_of(voter)}/{entry.name}")

    # --- sets of voters ------------------------------------------------------------------------

    def _put_mark(self, act: takeover.PutMark) -> VoterSet:
        store, after, voter = self._store_of(act.voter), act.after, act.voter
        if voter in {*after.voters, *after.observers}:
            store.make_folder("_delta_log")
            store.make_folder(voter_files.folder_of(voter))
            store.put_if_absent(voter_files.identity_name(voter), str(voter.broker).encode(), durable=True)
        self._known(voter)
        store.put_if_absent(voter_files.mark_name(after.epoch), voter_files.set_content(after), durable=True)
        found = voter_files.set_in(store.read(voter_files.mark_name(after.epoch)))
        for known in self.sets_at(store):
            for old in known.voters:
                if known.epoch < found.epoch and old.broker == voter.broker:
                    self._close(store, old)
        return found

    @staticmethod
    def _close(store: Storage, voter: voter_files.Voter) -> None:
        """Stop a voter from voting. The file stays, so that a process that was asleep cannot open it again."""
        store.make_folder(voter_files.folder_of(voter))
        store.replace(voter_files.open_name(voter), voter_files.CLOSED)
        store.sync(voter_files.open_name(voter))

    def _open_voter(self, act: takeover.OpenVoter) -> None:
        self._known(act.voter).put_if_absent(voter_files.open_name(act.voter), b"", durable=True)

    @staticmethod
    def sets_at(store: Storage) -> list[VoterSet]:
        """Return the sets of voters that a root knows, by epoch.

        Raises:
            OSError: the root does not answer.
        """
        names = [
            entry.name for entry in store.list("_delta_log", after="9") if voter_files.epoch_of(entry.name) is not None
        ]
        return [voter_files.set_in(store.read(f"_delta_log/{name}")) for name in sorted(names)]


def _no_vote(store: Storage, voter: voter_files.Voter) -> OSError:
    return OSError(errno.ESTALE, f"{store.uri} is not there, or does not vote as {voter.id} any more")
