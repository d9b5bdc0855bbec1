"""TableReplicas: what one process knows of a table with replicas: who leads, what is published, and the next version.

All that decides is in `kafkalike.model.replication`. Here is what a process remembers between two courses, so that a
look costs one look at the leader, and a version one put at each member.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from kafkalike.clock import SYSTEM_CLOCK, Clock
from kafkalike.errors import KafkaError, LogCorruptError, UnknownOutcomeError
from kafkalike.log.store.port import NOW, NotStoredError, Pace, Store
from kafkalike.log.table.actions import log_name
from kafkalike.log.table.log_files import LogFiles
from kafkalike.log.table.replicas.roots import FIRST_WAIT_SECONDS, Controller, Landing, ReplicaRoots
from kafkalike.log.table.replicas.version_file import APPLICATION, VersionFile
from kafkalike.model.replication.course import Seen, StaleError, appending, following, mending, opening
from kafkalike.model.replication.membership import without
from kafkalike.model.replication.values import (
    FellBehindError,
    NoReplicaLeftError,
    Registration,
    Replica,
    ReplicaError,
    UnreachableError,
    View,
)

TRIES: Final = 5
"""How often a table is loaded that others clean up meanwhile."""

ASK_SECONDS: Final = 1.0
"""How often a process that sees nothing new makes sure that it looks at the leader that is registered."""

FAR_ASK_SECONDS: Final = 5.0
"""The same where that takes requests."""

_log = logging.getLogger(__name__)

_SEAL: Final = APPLICATION.encode()


class ControllerAwayError(NotStoredError):
    """A replica gives no answer, and nobody can say who is to go on without it."""


class TableController(Controller, Protocol):
    """Who decides what is registered of one table, and says what was known of it last."""

    def known(self) -> Registration | None:
        """What was registered as of the last look at the controller; asks nobody. None: there is no such table."""
        ...

    def registered(self) -> Registration | None:
        """What is registered; what was, where the controller gives no answer. None: there is no such table."""
        ...

    def found(self) -> Registration:
        """Register the table, unless it is.

        Raises:
            KafkaError: it cannot be, or may be.
        """
        ...


class TableReplicas:
    """The replicas of one table. Thread-safe.

    Args:
        uri: what the table is called in errors.
        store_of: a replica → the folder of its table.
        controller: what is registered of it.
        clock: time and waiting.
        lag_ms: `replica.lag.time.max.ms`.
        down_before: see `ReplicaRoots`.
    """

    def __init__(
        self,
        uri: str,
        store_of: Callable[[Replica], Store],
        controller: TableController,
        clock: Clock,
        *,
        lag_ms: int,
        down_before: Callable[[Replica], int] = lambda _: 0,
    ) -> None:
        self.uri = uri
        self.roots = ReplicaRoots(self.store_of, controller, clock, lag_ms=lag_ms, down_before=down_before)
        self.refused: int | None = None
        """The broker that did not take the first version when it was to be made."""
        self._make_store = store_of
        self._stores: dict[Replica, Store] = {}
        self.lineage = 0
        """Rises when the log was found to be another one: after an unclean election."""
        self._controller = controller
        self._clock = clock
        self._lag_ms = lag_ms
        self._mutex = threading.Lock()
        self._view: View | None = None
        self._asked = 0.0
        self._puts: dict[int, bytes] = {}
        """The last two versions, where this process has made them."""

    def store_of(self, replica: Replica) -> Store:
        """The folder of a replica."""
        found = self._stores.get(replica)
        if found is None:
            found = self._stores[replica] = self._make_store(replica)
        return found

    # --- who has it ----------------------------------------------------------------------------

    @property
    def registered(self) -> Registration | None:
        """What is registered of it, as far as is known; None when there is no such table."""
        return self._controller.known() or self._controller.registered()

    def in_sync(self) -> Sequence[Replica]:
        """Who has all that is published, the leader first; empty when there is no such table."""
        registered = self.registered
        return () if registered is None else tuple(reversed(registered.in_sync))

    def members(self) -> Sequence[Replica]:
        """Who must take the next version, in the order in which they do."""
        registered = self.registered
        return () if registered is None else registered.chain

    def report(self, replica: Replica) -> None:
        """Take note of a replica that gives no answer; after `lag_ms` it is taken out.

        Raises:
            OSError: nobody else is in sync, or nobody can say so.
        """
        view = self.view()
        if view is not None and self.roots.note_down(replica) >= self._lag_ms:
            self._mended(view, UnreachableError(replica))

    def mend(self, failed: ReplicaError) -> None:
        """Bring into force what is registered, without a replica that failed.

        Raises:
            OSError: that is not possible now.
        """
        view = self.view()
        if view is not None:
            self._mended(view, failed)

    # --- looking -------------------------------------------------------------------------------

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
        self._puts = {}

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
            view = self._followed(view)
        if version == view.end + 1:
            return self._next(view, pace)
        known = self.known(version)
        if known is not None:
            return known
        return self.published(version) if version <= view.end else None

    def known(self, version: int) -> bytes | None:
        """A version that this process has made a moment ago, where to ask for it takes a request; else None."""
        view = self._view
        if view is None or not view.end - 1 <= version <= view.end:
            return None
        return self._puts.get(version) if self.store_of(view.configuration.leader).far else None

    def published(self, version: int) -> bytes | None:
        """The file of a version that is published; None where clean-up has taken it.

        Raises:
            OSError: nobody in sync answers.
        """
        failed: OSError | None = None
        for replica in self.in_sync():
            try:
                found = self.roots.logs.look(replica, version)
            except OSError as cause:
                failed = failed or cause
            else:
                return found
        if failed is not None:
            raise failed
        return None

    def _next(self, view: View, pace: Pace) -> bytes | None:
        leader, version = view.configuration.leader, view.end + 1
        try:
            content = self.roots.logs.look(leader, version, pace)
        except OSError as cause:
            return self._without(view, leader, cause)
        if content is None:
            if not self._is_outdated(view):
                return None
        elif self.roots.logs.is_sure(leader, version) and _SEAL not in content:
            self._advance(View(view.configuration, version))
            return content
        # A seal, another leader, or after a long sleep.
        view = self._followed(view)
        return self.published(version) if version <= view.end else None

    def _is_outdated(self, view: View) -> bool:
        """Whether another configuration is registered. One that was taken out as planned does not hear of it."""
        known = self._controller.known()
        now = SYSTEM_CLOCK.monotonic()
        far = self.store_of(view.configuration.leader).far
        if now - self._asked > (FAR_ASK_SECONDS if far else ASK_SECONDS):
            self._asked = now
            known = self._controller.registered()
        return known is not None and known.epoch > view.configuration.epoch

    def _without(self, view: View, leader: Replica, cause: OSError) -> bytes | None:
        """Look where the leader gives no answer: for as long as it may lag there is nothing new."""
        down_ms = self.roots.note_down(leader)
        registered = self._controller.registered()
        if registered is None or (registered.epoch <= view.configuration.epoch and down_ms < self._lag_ms):
            return None
        try:
            mended = self._mended(view, UnreachableError(leader))
        except ControllerAwayError as away:
            # Nobody can lead instead of it: what is published can be read, and nothing else will be.
            _log.warning("%s: %s", self.uri, away)
            self.roots.note_answer(leader)
            return None
        except NotStoredError:
            raise cause from None
        return self.published(view.end + 1) if view.end < mended.end else None

    def _followed(self, view: View) -> View:
        """All that is published by now."""
        registered = self._controller.registered()
        seen: Seen = {}
        self._read_ahead(view.configuration.leader, view.end)
        try:
            found = self.roots.carry_out(following(view, seen, registered))
        except FellBehindError:
            self.forget()
            return self._open() or view
        except ReplicaError as failed:
            return self._mended(view, failed)
        self._advance(found)
        if registered is not None and found.configuration.epoch < registered.epoch:
            return self._mended(found, StaleError(registered.leader))
        return found

    def _read_ahead(self, leader: Replica, since: int) -> None:
        try:
            self.roots.logs.prefetch(leader, since)
        except OSError:
            # It is asked again, for as long as it may lag.
            self.roots.logs.forget_proven()

    def _mended(self, view: View, failed: ReplicaError) -> View:
        """Bring into force what is registered, without a replica that failed.

        Raises:
            NotStoredError: that is not possible now.
        """
        seen: Seen = {}
        try:
            view = self.roots.carry_out(mending(view, failed, seen))
        except FellBehindError:
            self.forget()
            return self._open() or view
        except NoReplicaLeftError:
            raise self._nobody(failed) from None
        except KafkaError as cause:
            raise ControllerAwayError(
                errno.EIO, f"broker {failed.replica.broker} gives no answer, and {cause}"
            ) from cause
        self._advance(view)
        return view

    def _nobody(self, failed: ReplicaError) -> NotStoredError:
        message = f"broker {failed.replica.broker} gives no answer, and no other replica of {self.uri} is in sync"
        return NotStoredError(errno.ETIMEDOUT, message)

    def _open(self) -> View | None:
        """Get to know the log."""
        for _ in range(TRIES):
            registered = self._controller.registered()
            if registered is None:
                return None
            seen: Seen = {}
            self.roots.note_epoch(registered.epoch)
            self._read_ahead(registered.leader, -1)
            try:
                view, _, _ = self.roots.carry_out(opening(seen, repair=False))
                if view.end < 0 and self.roots.logs.look(registered.decider, 0) is None:
                    return None
                if view.configuration.epoch < registered.epoch:
                    view = self._mended(view, StaleError(registered.leader))
            except UnreachableError as failed:
                return None if self._is_unmade(registered) else self._repaired(failed)
            except FellBehindError:
                continue
            self._note_lineage(view)
            self._advance(view)
            return view
        raise OSError(errno.EAGAIN, f"{self.uri} is being cleaned up faster than it can be read")

    def _is_unmade(self, registered: Registration) -> bool:
        """Whether it was registered, and who was to make it has not begun: no root answers that it has some of it."""
        try:
            return not any(LogFiles.listed(self.store_of(replica)).commits for replica in registered.in_sync)
        except (OSError, LogCorruptError):
            return False

    def _repaired(self, failed: UnreachableError) -> View:
        """Get to know the log without a leader that gives no answer."""
        for _ in range(TRIES):
            seen: Seen = {}
            try:
                view, _, _ = self.roots.carry_out(opening(seen, repair=True))
            except (FellBehindError, UnreachableError):
                # Another one may have gone meanwhile.
                continue
            except NoReplicaLeftError:
                raise self._nobody(failed) from None
            except KafkaError as cause:
                raise OSError(errno.EIO, f"broker {failed.replica.broker} gives no answer, and {cause}") from cause
            self._advance(view)
            return view
        raise OSError(errno.EAGAIN, f"{self.uri} is being cleaned up faster than it can be read")

    def _note_lineage(self, view: View) -> None:
        life = view.configuration.leader.life if view.configuration.chain else 0
        if life != self.lineage:
            self.lineage = life

    def _advance(self, view: View) -> None:
        self.roots.logs.forget_proven()
        with self._mutex:
            if self._view is None or view.end >= self._view.end:
                self._view = view

    # --- making versions -----------------------------------------------------------------------

    def put(self, version: int, data: bytes, *, durable: bool) -> bool:
        """Make a version, unless there is one.

        Returns:
            Whether it is this content; False when it is another one.

        Raises:
            NotStoredError: surely not there, and will not be.
            UnknownOutcomeError: it may be there, or may still come.
        """
        self.roots.durable = durable
        if version == 0:
            return self._created(data)
        view = self.view()
        if view is not None and view.end < version - 1:
            view = self._followed(view)
        if view is None or view.end < version - 1:
            raise NotStoredError(errno.ENOENT, f"{self.uri} has no version {version - 1}")
        if view.end >= version:
            return False
        return self._appended(view, VersionFile(data))

    def _appended(self, view: View, content: VersionFile) -> bool:
        landing, seen = Landing(content), Seen()
        try:
            self.roots.supplies.bring_new(view.configuration.chain, content.commit.adds)
            view, made = self.roots.carry_out(appending(view, content, seen), landing)
        except BaseException as cause:
            self.forget()
            if not isinstance(cause, (FellBehindError, NoReplicaLeftError, KafkaError, OSError)):
                self._forget_files(content)
                raise
            if landing.stored:
                self._forget_files(content)
                raise UnknownOutcomeError(f"commit to {self.uri}", content.append_id) from cause
            if isinstance(cause, FellBehindError):
                return False
            raise NotStoredError(errno.EIO, f"no replica of {self.uri} takes it: {cause}") from cause
        self._advance(view)
        if made:
            self._forget_files(content)
            before = self._puts.get(view.end - 1)
            self._puts = {view.end: content.data} | ({} if before is None else {view.end - 1: before})
        return made

    def _forget_files(self, content: VersionFile) -> None:
        """Nobody puts this content again."""
        for add in content.commit.adds:
            self.roots.supplies.forget(add.path)

    def _created(self, data: bytes) -> bool:
        """Make the first version at all members; the seal that names them comes after it."""
        stored, again, decided = False, True, data
        while again:
            again = False
            registered = self._controller.registered() or self._controller.found()
            decided = data
            for replica in registered.chain:
                try:
                    self.roots.make_replica(replica)
                    store = self.store_of(replica)
                    stored = store.put_if_absent(log_name(0), decided, durable=self.roots.durable) or stored
                    found = store.read(log_name(0))
                except OSError as cause:
                    self.refused = replica.broker
                    if again := self._waited(replica, registered):
                        break
                    if stored:
                        raise UnknownOutcomeError(
                            f"creation of {self.uri} at broker {replica.broker}: {cause}", VersionFile(data).append_id
                        ) from cause
                    raise NotStoredError(errno.EIO, f"broker {replica.broker} does not take it: {cause}") from cause
                if replica == registered.chain[0]:
                    decided = found
                elif found != decided:
                    raise NotStoredError(errno.EEXIST, f"there is another table at broker {replica.broker}")
        self.forget()
        self._open()
        return decided == data

    def _waited(self, replica: Replica, registered: Registration) -> bool:
        """Wait for a member that does not take the table; after `lag_ms` it is left out, so that the others have it.

        Returns:
            False where that is not to be.
        """
        left_ms = self._lag_ms - self.roots.note_down(replica)
        if left_ms > 0:
            self._clock.sleep(min(FIRST_WAIT_SECONDS, left_ms / 1000))
            return True
        try:
            self._controller.change(registered, without(registered, replica))
        except (NoReplicaLeftError, KafkaError, OSError):
            return False
        return True
