"""Published log: the published versions of a table with replicas, as far as this process knows.

All decisions are made in `kafkalike.model.replication`. This class keeps state between protocols, so that a look
usually costs one request to the leader.
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
from kafkalike.model.replication import registration
from kafkalike.model.replication.replica_effects import AHEAD
from kafkalike.model.replication.replica_protocol import Seen, StaleError, following, looking_up, mending, opening
from kafkalike.replication.tables.protocol_runner import ProtocolRunner
from kafkalike.replication.tables.replica_logs import ReplicaRegistry
from kafkalike.storage.port import NotStoredError
from kafkalike.storage.scheduler import NOW, Pace

TRIES: Final = 5
"""Attempts to load a table while other processes clean up its log."""

ASK_SECONDS: Final = 1.0
"""How often a process that sees no new version checks with the controller that it follows the registered leader."""

FAR_ASK_SECONDS: Final = 5.0
"""How often it checks where that takes requests."""

KEPT: Final = 1000
"""Maximum number of read versions that stay in memory until others are read."""

NOTHING: Final[Mapping[int, registration.TableVersion]] = MappingProxyType({})

_log = logging.getLogger(__name__)

_SEAL: Final = APPLICATION.encode()


class ControllerAwayError(NotStoredError):
    """A replica does not answer, and the controller cannot remove it."""


class PublishedLog:
    """The published versions of one table. Thread-safe.

    Args:
        replicas: its replicas and their registration.
        roots: runs protocols, and knows `replica.lag.time.max.ms`.
    """

    def __init__(self, replicas: ReplicaRegistry, roots: ProtocolRunner) -> None:
        self._replicas = replicas
        self._roots = roots
        self.lineage = 0
        """Rises when an unclean election has replaced the log."""
        self._mutex = threading.Lock()
        self._view: registration.View | None = None
        self._asked = 0.0
        self._puts: dict[int, bytes] = {}
        """The last two versions, if this process has made them."""
        self._passed: tuple[int, dict[int, bytes]] = -1, {}
        """Versions that the last update read, and its epoch: readers that are behind want these next."""

    def view(self) -> registration.View | None:
        """Return the published state as far as it is known; None if the table does not exist.

        Raises:
            OSError: no replica in sync answers.
        """
        known = self._view
        return self._open() if known is None else known

    def forget(self) -> None:
        """Drop all state; the next look loads it again."""
        self._view = None
        self._puts, self._passed = {}, (-1, {})

    def look(self, version: int, pace: Pace = NOW) -> bytes | None:
        """Return a version's file; None if the version is not published.

        Args:
            version: its number.
            pace: which answers of other looks of this process are recent enough.

        Raises:
            OSError: no replica in sync answers, for as long as a replica may lag.
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
        """Return a version that this process has just made, if reading it would take a request; else None."""
        view = self._view
        if view is None or not view.end - 1 <= version <= view.end:
            return None
        return (
            self._puts.get(version) if self._replicas.store_of(view.configuration.leader).scheduler.is_remote else None
        )

    def has(self, version: int) -> bool:
        """Return whether a version is known to be published; make no request."""
        view = self._view
        return view is not None and version <= view.end

    def file_of(self, version: int) -> bytes | None:
        """Return the file of a published version; None if log cleaning has removed it.

        Raises:
            OSError: no replica in sync answers.
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
        except registration.FellBehindError:
            # The reader notices the changed lineage.
            self.forget()
            self._open()
            return None
        except registration.UnreachableError as failed:
            raise failed.__cause__ or OSError(str(failed)) from None
        return None if found is None else _data(found)

    def _next(self, view: registration.View, pace: Pace) -> bytes | None:
        leader, version = view.configuration.leader, view.end + 1
        try:
            content = self._roots.logs.look(leader, version, pace)
        except OSError as cause:
            return self._without(view, leader, cause, surely=pace.surely)
        if content is None:
            if not self._is_outdated(view, surely=pace.surely):
                return None
        elif self._roots.logs.is_sure(leader, version) and _SEAL not in content and VersionFile(content).append_id:
            self.advance(registration.View(view.configuration, version))
            return content
        # A seal, another leader, a version of another engine, or a long sleep.
        view = self.followed(view)
        return self.file_of(version) if version <= view.end else None

    def _is_outdated(self, view: registration.View, *, surely: bool) -> bool:
        """Return whether a newer configuration is registered. A replica that was reassigned is not told about it."""
        known = self._replicas.controller.known()
        now = SYSTEM_CLOCK.monotonic()
        far = self._replicas.store_of(view.configuration.leader).scheduler.is_remote
        if surely or now - self._asked > (FAR_ASK_SECONDS if far else ASK_SECONDS):
            self._asked = now
            known = self._replicas.controller.registered()
        return known is not None and known.epoch > view.configuration.epoch

    def _without(
        self, view: registration.View, leader: registration.Replica, cause: OSError, *, surely: bool
    ) -> bytes | None:
        """Look without the leader, which does not answer; until it has lagged too long, nothing new is published.

        Raises:
            TimeoutError: `surely` is set, and it is still unknown whether there is a new version.
        """
        silent = f"broker {leader.broker} does not answer, and {self._replicas.uri} has no other leader yet"
        down_ms = self._roots.note_down(leader)
        registered = self._replicas.controller.registered()
        if registered is None or (registered.epoch <= view.configuration.epoch and down_ms < self._roots.lag_ms):
            if surely:
                raise TimeoutError(errno.ETIMEDOUT, silent) from cause
            return None
        try:
            mended = self._mended(view, registration.UnreachableError(leader))
        except ControllerAwayError as away:
            # No replica can take over as leader: published versions stay readable, and no new ones are published.
            _log.warning("%s: %s", self._replicas.uri, away)
            self._roots.note_answer(leader)
            if surely:
                raise TimeoutError(errno.ETIMEDOUT, silent) from away
            return None
        except NotStoredError:
            raise cause from None
        return self.file_of(view.end + 1) if view.end < mended.end else None

    def followed(self, view: registration.View) -> registration.View:
        """Return all that is published at this moment.

        Args:
            view: the state before.

        Raises:
            OSError: no replica in sync answers.
        """
        registered = self._replicas.controller.registered()
        if registered is not None and view.configuration.epoch < registered.lineage:
            # The log of this view was discarded, so versions after its end belong to another log.
            self.forget()
            return self._open() or view
        if registered is not None:
            self._roots.logs.note_epoch(registered.epoch)
        seen: Seen = {}
        self._read_ahead(view.configuration.leader, view.end)
        try:
            found = self._roots.carry_out(following(view, seen, registered))
        except registration.FellBehindError:
            self.forget()
            return self._open() or view
        except registration.ReplicaError as failed:
            return self._mended(view, failed)
        self.advance(found, seen)
        if registered is not None and found.configuration.epoch < registered.epoch:
            return self._mended(found, StaleError(registered.leader))
        return found

    def _read_ahead(self, leader: registration.Replica, since: int) -> None:
        try:
            self._roots.logs.prefetch(leader, since, AHEAD)
        except OSError:
            # Later calls retry it for as long as it may lag.
            self._roots.logs.forget_proven()

    def _mended(self, view: registration.View, failed: registration.ReplicaError) -> registration.View:
        """Apply the registered configuration, without a replica that failed.

        Raises:
            NotStoredError: that is not possible at the moment.
        """
        seen: Seen = {}
        try:
            view = self._roots.carry_out(mending(view, failed, seen))
        except registration.FellBehindError:
            self.forget()
            return self._open() or view
        except registration.NoReplicaLeftError:
            raise self._nobody(failed) from None
        except KafkaError as cause:
            raise ControllerAwayError(
                errno.EIO, f"broker {failed.replica.broker} does not answer, and {cause}"
            ) from cause
        self.advance(view, seen)
        return view

    def _nobody(self, failed: registration.ReplicaError) -> NotStoredError:
        uri, broker = self._replicas.uri, failed.replica.broker
        message = f"broker {broker} does not answer, and no other replica of {uri} is in sync"
        return NotStoredError(errno.ETIMEDOUT, message)

    def _open(self) -> registration.View | None:
        """Load the state of the log."""
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
            except registration.ReplicaError as failed:
                return None if self._is_unmade(registered) else self._repaired(failed)
            except registration.FellBehindError:
                continue
            if not self._is_of_this_log(view):
                continue
            self.advance(view, seen)
            return view
        raise OSError(
            errno.EAGAIN,
            f"{self._replicas.uri} lost versions to log cleaning in {TRIES} attempts to read it; try again",
        )

    def _is_unmade(self, registered: registration.Registration) -> bool:
        """Return whether the table is registered but not created: the log of each replica in sync is empty."""
        try:
            logs = [LogFiles.listed(self._replicas.store_of(replica)) for replica in registered.in_sync]
            return not any(log.commits or log.checkpoints for log in logs)
        except (OSError, LogCorruptError):
            return False

    def _repaired(self, failed: registration.ReplicaError) -> registration.View:
        """Load the state of the log although the leader does not answer, or has versions that no other replica has."""
        for _ in range(TRIES):
            seen: Seen = {}
            try:
                view, _, _ = self._roots.carry_out(opening(seen, repair=True))
            except (registration.FellBehindError, registration.ReplicaError):
                # Another replica may have failed meanwhile.
                continue
            except registration.NoReplicaLeftError:
                raise self._nobody(failed) from None
            except KafkaError as cause:
                raise OSError(errno.EIO, f"broker {failed.replica.broker} does not answer, and {cause}") from cause
            if not self._is_of_this_log(view):
                continue
            self.advance(view, seen)
            return view
        raise OSError(
            errno.EAGAIN,
            f"{self._replicas.uri} lost versions to log cleaning in {TRIES} attempts to read it; try again",
        )

    def _is_of_this_log(self, view: registration.View) -> bool:
        """Record the current lineage; return False if the view belongs to a log that was discarded meanwhile."""
        registered = self._replicas.controller.known()
        if registered is None:
            return True
        if view.configuration.epoch < registered.lineage:
            return False
        self.lineage = registered.lineage
        return True

    def advance(self, view: registration.View, seen: Mapping[int, registration.TableVersion] = NOTHING) -> None:
        """Record the published versions, unless more are known already.

        Args:
            view: the published state.
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

    def note_made(self, view: registration.View, data: bytes) -> None:
        """Record the newest version, which this process has made.

        Args:
            view: the published state, including it.
            data: its file.
        """
        before = self._puts.get(view.end - 1)
        self._puts = {view.end: data} | ({} if before is None else {view.end - 1: before})

    def report(self, replica: registration.Replica) -> None:
        """Record that a replica does not answer; after `replica.lag.time.max.ms`, remove it from the chain.

        Raises:
            OSError: no other replica is in sync, or the controller does not answer.
        """
        view = self.view()
        if view is not None and self._roots.note_down(replica) >= self._roots.lag_ms:
            self._mended(view, registration.UnreachableError(replica))

    def mend(self, failed: registration.ReplicaError) -> None:
        """Apply the registered configuration, without a replica that failed.

        Raises:
            OSError: that is not possible at the moment.
        """
        view = self.view()
        if view is not None:
            self._mended(view, failed)


def _data(content: registration.TableVersion) -> bytes:
    assert isinstance(content, VersionFile)
    return content.data
