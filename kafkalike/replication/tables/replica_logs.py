"""Replica logs: the registered replicas of a table, and the versions in the log of each replica.

An empty place in a log can be a version that log cleaning has removed. A list of the log's folder settles it, because a
checkpoint lies above the place in that case. The results of lists are remembered, so most looks need none.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from kafkalike.delta.actions import log_name
from kafkalike.delta.log_files import LogFiles
from kafkalike.delta.replica_files import MARK, is_whole, notes
from kafkalike.errors import KafkaError
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.replication.registration import Registration, Replica, counts
from kafkalike.storage.port import Storage
from kafkalike.storage.scheduler import NOW, Pace

_log = logging.getLogger(__name__)

_NEVER: Final = (2**63, -math.inf)

MARK_SECONDS: Final = 10.0
"""How often the mark of a replica is read in full; in between, only its existence is checked."""

SURE_SECONDS: Final = 600.0
"""How long after a look an empty place surely was not cleaned: a version cannot be made and cleaned within it, because
logs are kept for at least an hour."""


class KnownLogs:
    """Observations made while one epoch was registered. It is replaced as a whole.

    Args:
        epoch: the epoch.
        since: when it was first read, by the machine's clock.
    """

    def __init__(self, epoch: int, since: float) -> None:
        self.epoch = epoch
        self.since = since
        self.unmade: dict[Replica, tuple[int, float]] = {}
        """By replica, a version, and a time by the machine's clock when the replica had neither that version nor a
        later one. For an hour after it, the version cannot have been cleaned up, and no list of the log's folder is
        needed."""
        self.surely_put: dict[Replica, int] = {}
        """By replica, a version that this process has put where log cleaning cannot have been."""
        self.proven: dict[Replica, dict[int, bytes]] = {}
        """By replica, versions that were prefetched and verified."""


class ReplicaLogs:
    """Reads the logs of a table's replicas and puts versions into them. Thread-safe.

    Args:
        store_of: maps a replica to the folder of its table.
        registered: asks the controller; may raise `KafkaError` or `OSError`.
    """

    def __init__(self, store_of: Callable[[Replica], Storage], registered: Callable[[], Registration]) -> None:
        self._store_of = store_of
        self._registered = registered
        self._checkpoints: dict[Replica, int] = {}
        """The newest known checkpoint of each replica; it only grows."""
        self._marked: dict[Replica, float] = {}
        """When the mark of a replica was last read."""
        self._known = KnownLogs(-1, SYSTEM_CLOCK.monotonic())

    def note_epoch(self, epoch: int) -> None:
        """Record the registered epoch; a new epoch invalidates earlier observations.

        A replica that left and came back has a checkpoint above its gaps: the place of a version may be empty although
        the version was published, or hold a version that never was.
        """
        if epoch != self._known.epoch:
            self._known = KnownLogs(epoch, SYSTEM_CLOCK.monotonic())

    def counts(self, replica: Replica, version: int) -> bool:
        """Return whether a replica's version is the published one.

        Args:
            replica: the replica; it is in sync in the epoch that was recorded last, or in a later one.
            version: a version that was read before; no request is made if it surely was not cleaned up.

        Raises:
            OSError: the replica does not answer.
        """
        if self.is_sure(replica, version) or version in self._known.proven.get(replica, ()):
            return True
        spans = notes(self._store_of(replica))
        about = [span.last for span in spans if span.has(version)]
        if not about:
            return True
        newest = self._checkpoints.get(replica, -1)
        if max(about) > newest:
            newest = self._listed(replica)[0]
        return counts(version, spans, newest)

    def there(self, replica: Replica) -> Storage:
        """Return a replica's storage.

        Raises:
            OSError: its mark is missing, because the root is missing, or an empty folder is in its place.
        """
        store, mark = self._store_of(replica), str(tuple(replica)).encode()
        now = SYSTEM_CLOCK.monotonic()
        known = now - self._marked.get(replica, -math.inf) < MARK_SECONDS
        # An object store has no mount that could be missing, so a recent check is enough.
        if known and (store.scheduler.is_remote or store.size(MARK) == len(mark)):
            return store
        if store.read(MARK) == mark:
            self._marked[replica] = now
        else:
            raise OSError(f"{store.uri} is not replica {replica}")
        return store

    def look(self, replica: Replica, version: int, pace: Pace = NOW) -> bytes | None:
        """Return the content of a version at a replica; None if it has none.

        Args:
            replica: the replica.
            version: its number.
            pace: which answers of other looks of this process are recent enough.

        Raises:
            OSError: the replica does not answer.
        """
        proven = self._known.proven.get(replica)
        if proven is not None and version in proven:
            return proven[version]
        found, began = self._asked(replica, version, pace)
        if found is not None:
            return found if is_whole(found) else self._whole_version(replica, version, found)
        if not pace.waits and self.is_sure(replica, version):
            self._note_unmade(replica, version, began)
        return None

    def _note_unmade(self, replica: Replica, version: int, began: float) -> None:
        """Record that a replica never had a version, unless it was asked in an earlier epoch."""
        known = self._known
        if began >= known.since:
            known.unmade[replica] = version, began

    def _asked(self, replica: Replica, version: int, pace: Pace) -> tuple[bytes | None, float]:
        """Return a version of a replica that must be there, and when it was asked, by the machine's clock."""
        began = SYSTEM_CLOCK.monotonic()
        found = self._store_of(replica).look(log_name(version), pace)
        if found is None:
            self.there(replica)
        return found, began

    def _whole_version(self, replica: Replica, version: int, damaged: bytes) -> bytes:
        """Return the intact copy of a version that is damaged at a replica in sync; the damaged one if there is none.

        Replicas in sync have the same version, so the reader can continue with the other copy.
        """
        with contextlib.suppress(KafkaError, OSError):
            registered = self._registered()
            for other in registered.in_sync if replica in registered.in_sync else ():
                if other != replica:
                    with contextlib.suppress(OSError):
                        found = self.there(other).look(log_name(version))
                        if found is not None and is_whole(found) and self.counts(other, version):
                            _log.warning("version %d is damaged at %s; read from %s instead", version, replica, other)
                            return found
        return damaged

    def is_sure(self, replica: Replica, version: int) -> bool:
        """Return whether log cleaning cannot have emptied a version's place at a replica."""
        unmade, at = self._known.unmade.get(replica, _NEVER)
        return version >= unmade and SYSTEM_CLOCK.monotonic() - at < SURE_SECONDS

    def put(self, replica: Replica, version: int, content: bytes, *, durable: bool) -> bool:
        """Put a version into a replica's log, unless it exists.

        Args:
            replica: the replica.
            version: its number.
            content: the bytes of its file.
            durable: whether it must survive a power failure.

        Returns:
            Whether this call put it.

        Raises:
            NotStoredError: it is not stored, and will not be.
            OSError: the outcome is unknown: the replica does not answer, or its root is missing.
        """
        began, known = SYSTEM_CLOCK.monotonic(), self._known
        made = self.there(replica).put_if_absent(log_name(version), content, durable=durable)
        if made and known is self._known and self.is_sure(replica, version):
            # A log ends before its first missing version.
            known.surely_put[replica] = version
            self._note_unmade(replica, version + 1, began)
        return made

    def checkpoint(self, replica: Replica, about: int | None = None) -> int:
        """Return the newest checkpoint of a replica, or -1.

        Args:
            replica: the replica.
            about: a version; if it surely was not cleaned up, an older checkpoint may be returned, without a list.

        Raises:
            OSError: the replica does not answer.
        """
        newest, known = self._checkpoints.get(replica, -1), self._known
        if about is not None and (
            self.is_sure(replica, about)
            or known.surely_put.get(replica) == about
            or about in known.proven.get(replica, ())
        ):
            return min(newest, about - 1)
        return self._listed(replica)[0]

    def _listed(self, replica: Replica) -> tuple[int, Sequence[int]]:
        """List a log; return its newest checkpoint, or -1, and the versions above it."""
        known = self._checkpoints.get(replica, -1)
        began = SYSTEM_CLOCK.monotonic()
        store = self._store_of(replica)
        # `_last_checkpoint` is not enough: a late writer of an older checkpoint may move it back.
        files = LogFiles.listed(store, max(known, 0))
        newest = max(files.checkpoints, default=-1)
        if newest < 0:
            self.there(replica)
        newest = self._checkpoints[replica] = max(known, newest)
        # A version missing from the list was made after it, or was cleaned up, in which case a checkpoint above it
        # exists.
        self._note_unmade(replica, max(newest, *files.commits[-1:], -1) + 1, began)
        return newest, [version for version in files.commits if version > newest]

    def prefetch(self, replica: Replica, since: int, most: int) -> None:
        """Prefetch versions of a log and verify with one list that none was put where log cleaning had been.

        Args:
            replica: the replica.
            since: the last known version.
            most: the maximum number of versions.

        Raises:
            OSError: the replica does not answer.
        """
        known = self._known
        _, above = self._listed(replica)
        wanted = [version for version in above if version > since][:most]
        if len(wanted) <= 1:
            return
        store = self.there(replica)
        contents = store.scheduler.beside([partial(store.look, log_name(version)) for version in wanted])
        found = dict(zip(wanted, contents, strict=True))
        newest, _ = self._listed(replica)
        # A damaged version is read again later, at another replica.
        known.proven[replica] = {
            v: content for v, content in found.items() if v > newest and content is not None and is_whole(content)
        }

    def forget_proven(self) -> None:
        """Drop the prefetched versions."""
        self._known.proven.clear()

    def end(self, replica: Replica) -> int:
        """Return the last version of a replica; -1 if it has none.

        Raises:
            OSError: the replica does not answer, or its root is missing.
        """
        files = LogFiles.listed(self.there(replica))
        return max((*files.commits, *files.checkpoints), default=-1)


class Controller(Protocol):
    """Decides the registration of one table."""

    def look(self) -> Registration:
        """Return the current registration."""
        ...

    def change(self, before: Registration, after: Registration) -> bool:
        """Change the registration if it still equals `before`; return whether it did."""
        ...


class TableController(Controller, Protocol):
    """Decides the registration of one table, and remembers the last known registration."""

    def known(self) -> Registration | None:
        """Return the registration that was read last, without a request; None if the table does not exist."""
        ...

    def registered(self) -> Registration | None:
        """Return the registration, or the last known one if the controller does not answer; None without a table."""
        ...

    def found(self) -> Registration:
        """Register the table, unless it is registered.

        Raises:
            KafkaError: it cannot be registered, or the outcome is unknown.
        """
        ...


class ReplicaRegistry:
    """The replicas of one table. Thread-safe.

    Args:
        uri: the table's name in errors.
        make_store: maps a replica to the folder of its table.
        controller: decides the table's registration.
    """

    def __init__(self, uri: str, make_store: Callable[[Replica], Storage], controller: TableController) -> None:
        self.uri = uri
        self.controller = controller
        self._make_store = make_store
        self._stores: dict[Replica, Storage] = {}

    def store_of(self, replica: Replica) -> Storage:
        """Return the folder of a replica."""
        found = self._stores.get(replica)
        if found is None:
            found = self._stores[replica] = self._make_store(replica)
        return found

    @property
    def registered(self) -> Registration | None:
        """The registration, as far as it is known; None if the table does not exist."""
        return self.controller.known() or self.controller.registered()

    def in_sync(self) -> Sequence[Replica]:
        """Return the replicas that have all published versions, the leader first; empty if the table does not exist."""
        registered = self.registered
        return () if registered is None else tuple(reversed(registered.in_sync))

    def members(self) -> Sequence[Replica]:
        """Return the replicas that must take the next version, in the order of the chain."""
        registered = self.registered
        return () if registered is None else registered.chain
