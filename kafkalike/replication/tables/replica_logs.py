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
from kafkalike.storage.port import NOW, Pace, Storage

_log = logging.getLogger(__name__)

_NEVER: Final = (2**63, -math.inf)

MARK_SECONDS: Final = 10.0
"""How often the whole mark of a replica is read: in between it is enough that it is there."""

SURE_SECONDS: Final = 600.0
"""How long after a look nobody can have made a version and cleaned it up: a log stays for an hour at least."""


class KnownLogs:
    """What was seen while one epoch was registered. It is replaced as a whole.

    Args:
        epoch: which one.
        since: when that was heard of, by the machine's clock.
    """

    def __init__(self, epoch: int, since: float) -> None:
        self.epoch = epoch
        self.since = since
        self.unmade: dict[Replica, tuple[int, float]] = {}
        """A version, and a time by the machine's clock at which the replica never had it, nor a later one: so nobody
        can have cleaned it up for an hour from then on, and no list of the log's folder is needed to know that."""
        self.surely_put: dict[Replica, int] = {}
        """A version that this process has put where clean-up cannot have been."""
        self.proven: dict[Replica, dict[int, bytes]] = {}
        """Versions that were read ahead, and are what they were made to be."""


class ReplicaLogs:
    """Reads the logs of a table's replicas, and puts versions into them. Thread-safe.

    Args:
        store_of: a replica → the folder of its table.
        registered: what the controller says; it may raise `KafkaError` or `OSError`.
    """

    def __init__(self, store_of: Callable[[Replica], Storage], registered: Callable[[], Registration]) -> None:
        self._store_of = store_of
        self._registered = registered
        self._checkpoints: dict[Replica, int] = {}
        """Newest checkpoint that was seen; they only grow."""
        self._marked: dict[Replica, float] = {}
        """When the mark of a replica was read."""
        self._known = KnownLogs(-1, SYSTEM_CLOCK.monotonic())

    def note_epoch(self, epoch: int) -> None:
        """Take note of the epoch that is registered. Of one that is new, what was seen before says nothing.

        A replica that left and came back has a checkpoint over what it lacks: the place of a version may be empty
        there, though it was made, or have one that was never published.
        """
        if epoch != self._known.epoch:
            self._known = KnownLogs(epoch, SYSTEM_CLOCK.monotonic())

    def counts(self, replica: Replica, version: int) -> bool:
        """Whether what a replica has in the place of a version is what was published there.

        Args:
            replica: whose log; it is in sync in the epoch that was noted last, or in a later one.
            version: one that was read before: where that surely was not cleaned up, nothing is asked.

        Raises:
            OSError: it gives no answer.
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
        """A replica's store.

        Raises:
            OSError: its mark cannot be found: the root is gone, or is another, empty one.
        """
        store, mark = self._store_of(replica), str(tuple(replica)).encode()
        now = SYSTEM_CLOCK.monotonic()
        known = now - self._marked.get(replica, -math.inf) < MARK_SECONDS
        # No mount is missing where a root is far, so that it was there a moment ago is enough.
        if known and (store.scheduler.is_remote or store.size(MARK) == len(mark)):
            return store
        if store.read(MARK) == mark:
            self._marked[replica] = now
        else:
            raise OSError(f"{store.uri} is not replica {replica}")
        return store

    def look(self, replica: Replica, version: int, pace: Pace = NOW) -> bytes | None:
        """The content of a version of a replica; None when there is none.

        Args:
            replica: whose log.
            version: which one.
            pace: which answers of other looks of this process will do.

        Raises:
            OSError: it gives no answer.
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
        """Note that a replica has never had a version; what was asked in another epoch says nothing in this one."""
        known = self._known
        if began >= known.since:
            known.unmade[replica] = version, began

    def _asked(self, replica: Replica, version: int, pace: Pace) -> tuple[bytes | None, float]:
        """A version of a replica, which must be there, and the time before it was asked, by the machine's clock."""
        began = SYSTEM_CLOCK.monotonic()
        found = self._store_of(replica).look(log_name(version), pace)
        if found is None:
            self.there(replica)
        return found, began

    def _whole_version(self, replica: Replica, version: int, damaged: bytes) -> bytes:
        """A version that is damaged at a replica in sync, as another one has it; the damaged one where nobody has.

        Both have the same one, and whoever reads it here goes on as if it was whole.
        """
        with contextlib.suppress(KafkaError, OSError):
            registered = self._registered()
            for other in registered.in_sync if replica in registered.in_sync else ():
                if other != replica:
                    with contextlib.suppress(OSError):
                        found = self.there(other).look(log_name(version))
                        if found is not None and is_whole(found) and self.counts(other, version):
                            _log.warning("version %d of %s is damaged there, and read elsewhere", version, replica)
                            return found
        return damaged

    def is_sure(self, replica: Replica, version: int) -> bool:
        """Whether clean-up cannot have emptied a version's place at a replica."""
        unmade, at = self._known.unmade.get(replica, _NEVER)
        return version >= unmade and SYSTEM_CLOCK.monotonic() - at < SURE_SECONDS

    def put(self, replica: Replica, version: int, content: bytes, *, durable: bool) -> bool:
        """Put a version into a replica's log, unless it has it.

        Args:
            replica: whose log.
            version: its number.
            content: the bytes of its file.
            durable: whether it must survive a power failure.

        Returns:
            Whether this call put it.

        Raises:
            NotStoredError: it is not there, and will not be.
            OSError: unknown: it gives no answer, or its root is gone.
        """
        began, known = SYSTEM_CLOCK.monotonic(), self._known
        made = self.there(replica).put_if_absent(log_name(version), content, durable=durable)
        if made and known is self._known and self.is_sure(replica, version):
            # Nobody has the next one before this one.
            known.surely_put[replica] = version
            self._note_unmade(replica, version + 1, began)
        return made

    def checkpoint(self, replica: Replica, about: int | None = None) -> int:
        """The newest checkpoint of a replica, or -1.

        Args:
            replica: whose.
            about: a version; where that surely was not cleaned up, one below it will do, and no list is made.

        Raises:
            OSError: it gives no answer.
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
        """List a log: its newest checkpoint, or -1, and the versions above it."""
        known = self._checkpoints.get(replica, -1)
        began = SYSTEM_CLOCK.monotonic()
        store = self._store_of(replica)
        # Not by `_last_checkpoint`: a late writer of an older one may move that back.
        files = LogFiles.listed(store, max(known, 0))
        newest = max(files.checkpoints, default=-1)
        if newest < 0:
            self.there(replica)
        newest = self._checkpoints[replica] = max(known, newest)
        # What a list lacks was made since it was asked for, or cleaned up, which a checkpoint above it would show.
        self._note_unmade(replica, max(newest, *files.commits[-1:], -1) + 1, began)
        return newest, [version for version in files.commits if version > newest]

    def prefetch(self, replica: Replica, since: int, most: int) -> None:
        """Read versions of a log ahead, and make sure that none of them was put where clean-up had been, with one list.

        Args:
            replica: whose.
            since: the last version that is known.
            most: how many versions, at most.

        Raises:
            OSError: it gives no answer.
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
        # One that is damaged is read by itself, and elsewhere.
        known.proven[replica] = {
            v: content for v, content in found.items() if v > newest and content is not None and is_whole(content)
        }

    def forget_proven(self) -> None:
        """Forget what was read ahead."""
        self._known.proven.clear()

    def end(self, replica: Replica) -> int:
        """The last version that a replica has; -1 where it has none.

        Raises:
            OSError: it gives no answer, or its root is gone.
        """
        files = LogFiles.listed(self.there(replica))
        return max((*files.commits, *files.checkpoints), default=-1)


class Controller(Protocol):
    """Who decides what is registered of one table."""

    def look(self) -> Registration:
        """What is registered."""
        ...

    def change(self, before: Registration, after: Registration) -> bool:
        """Change it, if it is still what was seen."""
        ...


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


class ReplicaRegistry:
    """The replicas of one table. Thread-safe.

    Args:
        uri: what the table is called in errors.
        make_store: a replica → the folder of its table.
        controller: what is registered of it.
    """

    def __init__(self, uri: str, make_store: Callable[[Replica], Storage], controller: TableController) -> None:
        self.uri = uri
        self.controller = controller
        self._make_store = make_store
        self._stores: dict[Replica, Storage] = {}

    def store_of(self, replica: Replica) -> Storage:
        """The folder of a replica."""
        found = self._stores.get(replica)
        if found is None:
            found = self._stores[replica] = self._make_store(replica)
        return found

    @property
    def registered(self) -> Registration | None:
        """What is registered of it, as far as is known; None when there is no such table."""
        return self.controller.known() or self.controller.registered()

    def in_sync(self) -> Sequence[Replica]:
        """Who has all that is published, the leader first; empty when there is no such table."""
        registered = self.registered
        return () if registered is None else tuple(reversed(registered.in_sync))

    def members(self) -> Sequence[Replica]:
        """Who must take the next version, in the order in which they do."""
        registered = self.registered
        return () if registered is None else registered.chain
