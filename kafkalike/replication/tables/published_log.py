"""PublishedLog: what one process knows of the published versions of a table with replicas, and how it gets to know.

All that decides is in `kafkalike.model.replication`. Here is what a process remembers between two protocols, so that a
look costs one look at the leader.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kafkalike.delta.log_files import LogFiles
from kafkalike.delta.replica_files import APPLICATION, VersionFile, is_whole
from kafkalike.errors import KafkaError, LogCorruptError
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.replication.registration import (
    FellBehindError,
    NoReplicaLeftError,
    Registration,
    Replica,
    ReplicaError,
    TableVersion,
    UnreachableError,
    View,
)
from kafkalike.model.replication.replica_effects import AHEAD
from kafkalike.model.replication.replica_protocol import Seen, StaleError, following, looking_up, mending, opening
from kafkalike.replication.tables.protocol_runner import ProtocolRunner
from kafkalike.replication.tables.replica_logs import ReplicaRegistry
from kafkalike.storage.port import NOW, NotStoredError, Pace

TRIES: Final = 5
"""How often a table is loaded that others clean up meanwhile."""

ASK_SECONDS: Final = 1.0
"""How often a process that sees nothing new makes sure that it looks at the leader that is registered."""

FAR_ASK_SECONDS: Final = 5.0
"""The same where that takes requests."""

KEPT: Final = 1000
"""Versions that stay in memory at most until others were read."""

NOTHING: Final[Mapping[int, TableVersion]] = MappingProxyType({})

_log = logging.getLogger(__name__)

_SEAL: Final = APPLICATION.encode()


class ControllerAwayError(NotStoredError):
    """A replica gives no answer, and nobody can say who is to go on without it."""


class PublishedLog:
    """The published versions of one table. Thread-safe.

    Args:
        replicas: its replicas, and what is registered of them.
        roots: carries protocols out.
        lag_ms: `replica.lag.time.max.ms`.
    """

    def __init__(self, replicas: ReplicaRegistry, roots: ProtocolRunner, *, lag_ms: int) -> None:
        self._replicas = replicas
        self._roots = roots
        self.lag_ms = lag_ms
        self.lineage = 0
        """Rises when the log was found to be another one: after an unclean election."""
        self._mutex = threading.Lock()
        self._view: View | None = None
        self._asked = 0.0
        self._puts: dict[int, bytes] = {}
        """The last two versions, where this process has made them."""
        self._passed: tuple[int, dict[int, bytes]] = -1, {}
        """Versions that were read when the view went on last, and its epoch: whoever is behind wants them next."""

    def view(self) -> View | None:
        """What is published, as far as is known; None when there is no such table.

        Raises:
            OSError: nobody in sync answers.
        """
        known = self._view
        return self._open() if known is None else known

    def forget(self) -> None:
        """Begin from nothing at the next look."""
        self._view = None
        self._puts, self._passed = {}, (-1, {})

    def look(self, version: int, pace: Pace = NOW) -> bytes | None:
        """A version's file; None where none is published.

        Args:
            version: which one.
            pace: which answers of other looks of this process will do.

        Raises:
            OSError: nobody in sync answers, for as long as a replica may lag.
        """
        view = self.view()
        if view is None:
            return None
        if version > view.end + 1:
            view = self.followed(view)
        if version == view.end + 1:
            return self._next(view, pace)
        known = self.known(version)
        if known is not None:
            return known
        return self.file_of(version) if version <= view.end else None

    def known(self, version: int) -> bytes | None:
        """A version that this process has made a moment ago, where to ask for it takes a request; else None."""
        view = self._view
        if view is None or not view.end - 1 <= version <= view.end:
            return None
        return (
            self._puts.get(version) if self._replicas.store_of(view.configuration.leader).scheduler.is_remote else None
        )

    def has(self, version: int) -> bool:
        """Whether a version is published, as far as is known; asks nobody."""
        view = self._view
        return view is not None and version <= view.end

    def file_of(self, version: int) -> bytes | None:
        """The file of a version that is published; None where clean-up has taken it.

        Raises:
            OSError: nobody in sync answers.
        """
        epoch, passed = self._passed
        if version in passed and epoch >= self.lineage:
            return passed[version]
        view, registered = self.view(), self._replicas.registered
        if view is None or registered is None:
            return None
        self._roots.logs.note_epoch(max(registered.epoch, view.configuration.epoch))
        try:
            found = self._roots.read_out(looking_up(version, view, registered))
        except FellBehindError:
            # Who reads it notes that the lineage is another one.
            self.forget()
            self._open()
            return None
        except UnreachableError as failed:
            raise failed.__cause__ or OSError(str(failed)) from None
        return None if found is None else _data(found)

    def _next(self, view: View, pace: Pace) -> bytes | None:
        leader, version = view.configuration.leader, view.end + 1
        try:
            content = self._roots.logs.look(leader, version, pace)
        except OSError as cause:
            return self._without(view, leader, cause, surely=pace.surely)
        if content is None:
            if not self._is_outdated(view, surely=pace.surely):
                return None
        elif self._roots.logs.is_sure(leader, version) and _SEAL not in content and VersionFile(content).append_id:
            self.advance(View(view.configuration, version))
            return content
        # A seal, another leader, a version of another engine, or after a long sleep.
        view = self.followed(view)
        return self.file_of(version) if version <= view.end else None

    def _is_outdated(self, view: View, *, surely: bool) -> bool:
        """Whether another configuration is registered. One that was taken out as planned does not hear of it."""
        known = self._replicas.controller.known()
        now = SYSTEM_CLOCK.monotonic()
        far = self._replicas.store_of(view.configuration.leader).scheduler.is_remote
        if surely or now - self._asked > (FAR_ASK_SECONDS if far else ASK_SECONDS):
            self._asked = now
            known = self._replicas.controller.registered()
        return known is not None and known.epoch > view.configuration.epoch

    def _without(self, view: View, leader: Replica, cause: OSError, *, surely: bool) -> bytes | None:
        """Look where the leader gives no answer: for as long as it may lag there is nothing new.

        Raises:
            TimeoutError: `surely`, and nobody can say yet whether there is.
        """
        silent = f"broker {leader.broker} gives no answer, and nobody leads {self._replicas.uri} instead of it yet"
        down_ms = self._roots.note_down(leader)
        registered = self._replicas.controller.registered()
        if registered is None or (registered.epoch <= view.configuration.epoch and down_ms < self.lag_ms):
            if surely:
                raise TimeoutError(errno.ETIMEDOUT, silent) from cause
            return None
        try:
            mended = self._mended(view, UnreachableError(leader))
        except ControllerAwayError as away:
            # Nobody can lead instead of it: what is published can be read, and nothing else will be.
            _log.warning("%s: %s", self._replicas.uri, away)
            self._roots.note_answer(leader)
            if surely:
                raise TimeoutError(errno.ETIMEDOUT, silent) from away
            return None
        except NotStoredError:
            raise cause from None
        return self.file_of(view.end + 1) if view.end < mended.end else None

    def followed(self, view: View) -> View:
        """All that is published by now.

        Args:
            view: what was.

        Raises:
            OSError: nobody in sync answers.
        """
        registered = self._replicas.controller.registered()
        if registered is not None and view.configuration.epoch < registered.lineage:
            # The log that it knows was given up: what comes after its end is of another one.
            self.forget()
            return self._open() or view
        if registered is not None:
            self._roots.logs.note_epoch(registered.epoch)
        seen: Seen = {}
        self._read_ahead(view.configuration.leader, view.end)
        try:
            found = self._roots.carry_out(following(view, seen, registered))
        except FellBehindError:
            self.forget()
            return self._open() or view
        except ReplicaError as failed:
            return self._mended(view, failed)
        self.advance(found, seen)
        if registered is not None and found.configuration.epoch < registered.epoch:
            return self._mended(found, StaleError(registered.leader))
        return found

    def _read_ahead(self, leader: Replica, since: int) -> None:
        try:
            self._roots.logs.prefetch(leader, since, AHEAD)
        except OSError:
            # It is asked again, for as long as it may lag.
            self._roots.logs.forget_proven()

    def _mended(self, view: View, failed: ReplicaError) -> View:
        """Bring into force what is registered, without a replica that failed.

        Raises:
            NotStoredError: that is not possible now.
        """
        seen: Seen = {}
        try:
            view = self._roots.carry_out(mending(view, failed, seen))
        except FellBehindError:
            self.forget()
            return self._open() or view
        except NoReplicaLeftError:
            raise self._nobody(failed) from None
        except KafkaError as cause:
            raise ControllerAwayError(
                errno.EIO, f"broker {failed.replica.broker} gives no answer, and {cause}"
            ) from cause
        self.advance(view, seen)
        return view

    def _nobody(self, failed: ReplicaError) -> NotStoredError:
        uri, broker = self._replicas.uri, failed.replica.broker
        message = f"broker {broker} gives no answer, and no other replica of {uri} is in sync"
        return NotStoredError(errno.ETIMEDOUT, message)

    def _open(self) -> View | None:
        """Get to know the log."""
        for _ in range(TRIES):
            registered = self._replicas.controller.registered()
            if registered is None:
                return None
            seen: Seen = {}
            self._roots.note_epoch(registered.epoch)
            self._read_ahead(registered.leader, -1)
            try:
                view, _, _ = self._roots.carry_out(opening(seen, repair=False))
                if view.end < 0 and self._roots.logs.look(registered.decider, 0) is None:
                    return None
                if view.configuration.epoch < registered.epoch:
                    view = self._mended(view, StaleError(registered.leader))
            except ReplicaError as failed:
                return None if self._is_unmade(registered) else self._repaired(failed)
            except FellBehindError:
                continue
            if not self._is_of_this_log(view):
                continue
            self.advance(view, seen)
            return view
        raise OSError(errno.EAGAIN, f"{self._replicas.uri} is being cleaned up faster than it can be read")

    def _is_unmade(self, registered: Registration) -> bool:
        """Whether it was registered, and who was to make it has not begun: no root answers that it has some of it."""
        try:
            logs = [LogFiles.listed(self._replicas.store_of(replica)) for replica in registered.in_sync]
            return not any(log.commits or log.checkpoints for log in logs)
        except (OSError, LogCorruptError):
            return False

    def _repaired(self, failed: ReplicaError) -> View:
        """Get to know the log without a leader that gives no answer, or has what nobody else has."""
        for _ in range(TRIES):
            seen: Seen = {}
            try:
                view, _, _ = self._roots.carry_out(opening(seen, repair=True))
            except (FellBehindError, ReplicaError):
                # Another one may have gone meanwhile.
                continue
            except NoReplicaLeftError:
                raise self._nobody(failed) from None
            except KafkaError as cause:
                raise OSError(errno.EIO, f"broker {failed.replica.broker} gives no answer, and {cause}") from cause
            if not self._is_of_this_log(view):
                continue
            self.advance(view, seen)
            return view
        raise OSError(errno.EAGAIN, f"{self._replicas.uri} is being cleaned up faster than it can be read")

    def _is_of_this_log(self, view: View) -> bool:
        """Take note of which log it is. False: this view is of one that was given up meanwhile."""
        registered = self._replicas.controller.known()
        if registered is None:
            return True
        if view.configuration.epoch < registered.lineage:
            return False
        self.lineage = registered.lineage
        return True

    def advance(self, view: View, seen: Mapping[int, TableVersion] = NOTHING) -> None:
        """Take note of what is published, unless more of it is known.

        Args:
            view: all that is.
            seen: versions that were read on the way.
        """
        self._roots.logs.forget_proven()
        with self._mutex:
            if seen:
                first = sorted(seen)[:KEPT]
                whole = {number: data for number in first if is_whole(data := _data(seen[number]))}
                self._passed = view.configuration.epoch, whole
            if self._view is None or view.end >= self._view.end:
                self._view = view

    def note_made(self, view: View, data: bytes) -> None:
        """Take note of the newest version, which this process has made.

        Args:
            view: what is published with it.
            data: its file.
        """
        before = self._puts.get(view.end - 1)
        self._puts = {view.end: data} | ({} if before is None else {view.end - 1: before})

    def report(self, replica: Replica) -> None:
        """Take note of a replica that gives no answer; after `lag_ms` it is taken out.

        Raises:
            OSError: nobody else is in sync, or nobody can say so.
        """
        view = self.view()
        if view is not None and self._roots.note_down(replica) >= self.lag_ms:
            self._mended(view, UnreachableError(replica))

    def mend(self, failed: ReplicaError) -> None:
        """Bring into force what is registered, without a replica that failed.

        Raises:
            OSError: that is not possible now.
        """
        view = self.view()
        if view is not None:
            self._mended(view, failed)


def _data(content: TableVersion) -> bytes:
    assert isinstance(content, VersionFile)
    return content.data
