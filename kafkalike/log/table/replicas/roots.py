"""Roots: a course of the rules in, its acts done to the stores of a table's replicas.

Nothing here decides anything: what comes after what stands in `kafkalike.model.replication`, which is simulated.
"""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from kafkalike import faults
from kafkalike.clock import SYSTEM_CLOCK, Clock
from kafkalike.errors import KafkaError, LogCorruptError
from kafkalike.log.store.parquet import UNREADABLE
from kafkalike.log.store.port import NOW, NotStoredError, Pace, Store
from kafkalike.log.table.actions import log_name
from kafkalike.log.table.checkpoints.make import make_checkpoint
from kafkalike.log.table.log_files import LogFiles
from kafkalike.log.table.replicas.supplies import MARK, Supplies, txns_of
from kafkalike.log.table.replicas.version_file import LostFile, VersionFile, is_whole, newest_configuration, seal
from kafkalike.log.table.snapshot import load_snapshot
from kafkalike.model.replication import acts
from kafkalike.model.replication.values import Registration, Replica, UnreachableError, View

_log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_WAIT_SECONDS: Final = 0.05

LONGEST_WAIT_SECONDS: Final = 1.0
"""Longest wait between two tries; then it is asked, too, whether somebody else has taken the replica out."""

_NEVER: Final = (2**63, -math.inf)

READ_AHEAD: Final = 1000
"""Versions that are read ahead at most."""

MARK_SECONDS: Final = 10.0
"""How often the whole mark of a replica is read: in between it is enough that it is there."""

SURE_SECONDS: Final = 600.0
"""How long after a look nobody can have made a version and cleaned it up: a log stays for an hour at least."""


class Controller(Protocol):
    """Who decides what is registered of one table."""

    def look(self) -> Registration:
        """What is registered."""
        ...

    def change(self, before: Registration, after: Registration) -> bool:
        """Change it, if it is still what was seen."""
        ...


class Landing:
    """Whether a content may stand somewhere, whatever becomes of the course that is to put it.

    Args:
        content: what is put.
    """

    def __init__(self, content: VersionFile) -> None:
        self.content = content
        self.stored = False


class ReplicaRoots:
    """Carries courses out. Thread-safe, as far as its users do not change `durable` meanwhile.

    Args:
        store_of: a replica → the folder of its table.
        controller: who decides what is registered.
        clock: time and waiting.
        lag_ms: `replica.lag.time.max.ms`: for how long one that does not answer is asked again.
        durable: whether commits and data must survive a power failure.
        down_before: for how long a replica is known to give no answer, ms, besides what is seen here.
    """

    def __init__(
        self,
        store_of: Callable[[Replica], Store],
        controller: Controller,
        clock: Clock,
        *,
        lag_ms: int = 30_000,
        durable: bool = False,
        down_before: Callable[[Replica], int] = lambda _: 0,
    ) -> None:
        self._down_before = down_before
        self._store_of = store_of
        self._controller = controller
        self._clock = clock
        self._lag_ms = lag_ms
        self.durable = durable
        self._seen_epoch = -1
        """Of the registration that was seen last."""
        self.supplies = Supplies(store_of, self._there, lambda: controller.look().in_sync)
        """Data files of this process's own versions, and those of replicas."""
        self._checkpoints: dict[Replica, int] = {}
        """Newest checkpoint that was seen; they only grow."""
        self._unmade: dict[Replica, tuple[int, float]] = {}
        """A version, and a time by the machine's clock at which the replica never had it, nor a later one: so nobody
        can have cleaned it up for an hour from then on, and no list of the log's folder is needed to know that."""
        self._surely_put: dict[Replica, int] = {}
        """A version that this process has put where clean-up cannot have been."""
        self._proven: dict[Replica, dict[int, bytes]] = {}
        """Versions that were read ahead, and are what they were made to be."""
        self._marked: dict[Replica, float] = {}
        """When the mark of a replica was read."""
        self._down_since: dict[Replica, int] = {}
        """Since when, ms, a replica has given no answer."""
        self._carriers: Mapping[type, Callable[[Any], Any]] = {
            acts.Read: self._read,
            acts.Put: self._put,
            acts.Checkpoint: self._checkpoint,
            acts.End: self._end,
            acts.Load: self._load,
            acts.Supply: self._supply,
            acts.MakeCheckpoint: self._make_checkpoint,
            acts.CopyCheckpoint: self._copy_checkpoint,
            acts.Missing: self._missing,
            acts.Discard: self._discard,
        }

    def make_replica(self, replica: Replica) -> None:
        """Make the place of a replica, unless it is there.

        Raises:
            OSError: the root cannot be reached.
        """
        store = self._store_of(replica)
        store.make_folder("_delta_log")
        store.put_if_absent(MARK, str(tuple(replica)).encode())

    def down_ms(self, replica: Replica) -> int:
        """For how long a replica has given no answer, ms; 0 when it has, or was not asked."""
        since = self._down_since.get(replica)
        return 0 if since is None else max(1, self._clock.now_ms() - since)

    def carry_out(self, course: Generator[acts.Act, Any, T], landing: Landing | None = None) -> T:
        """Carry a course out, to its end.

        Args:
            course: what is to be done.
            landing: notes whether its content may have been put.

        Raises:
            Exception: what the course raises; and `OSError` where the controller gives no answer.
        """
        try:
            act = course.send(None)
            while True:
                try:
                    found = self._done(act, landing)
                except UnreachableError as failed:
                    act = course.throw(failed)
                else:
                    act = course.send(found)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def note_epoch(self, epoch: int) -> None:
        """Take note of the epoch that is registered. Of one that is new, what was seen before says nothing.

        A replica that left and came back has a checkpoint over what it lacks: the place of a version may be empty
        there, though it was made.
        """
        if epoch != self._seen_epoch:
            self._seen_epoch = epoch
            self._unmade.clear()
            self._surely_put.clear()
            self._proven.clear()

    def do(self, act: acts.End) -> Any:  # noqa: ANN401 - what an act comes to
        """Do one act, once.

        Raises:
            OSError: the replica gives no answer.
        """
        return self._whole(act.replica, act)

    def _done(self, act: acts.Act, landing: Landing | None) -> Any:  # noqa: ANN401 - what an act comes to
        if isinstance(act, acts.LookAtController):
            registered = self._controller.look()
            self.note_epoch(registered.epoch)
            return registered
        if isinstance(act, acts.Register):
            return self._controller.change(act.before, act.after)
        if isinstance(act, acts.NewSeal):
            return seal(act.registration.configuration, self._clock.now_ms(), act.lost)
        if isinstance(act, acts.NewLife):
            return secrets.randbits(62) + 1
        watched = landing if isinstance(act, acts.Put) and landing and act.content is landing.content else None
        return self._asked(act.source if isinstance(act, acts.CopyCheckpoint) else act.replica, act, watched)

    def _asked(self, replica: Replica, act: acts.Act, landing: Landing | None) -> Any:  # noqa: ANN401
        """Ask a replica, again and again for as long as it may lag."""
        wait = FIRST_WAIT_SECONDS
        while True:
            try:
                found = self._whole(replica, act)
            except OSError as cause:
                if landing is not None and not isinstance(cause, NotStoredError):
                    landing.stored = True
                left = self._lag_ms - self.note_down(replica)
                if left <= 0 or self._is_out(replica):
                    raise UnreachableError(replica) from cause
                self._clock.sleep(min(wait, left / 1000))
                wait = min(2 * wait, LONGEST_WAIT_SECONDS)
            except BaseException:
                # An interrupt, in the middle of a put.
                if landing is not None:
                    landing.stored = True
                raise
            else:
                if landing is not None and found:
                    landing.stored = True
                if self._down_since:
                    self._down_since.pop(replica, None)
                return found

    def note_answer(self, replica: Replica) -> None:
        """Begin anew to count for how long a replica gives no answer."""
        self._down_since.pop(replica, None)

    def note_down(self, replica: Replica) -> int:
        """Note that a replica gives no answer; returns since how many ms."""
        now = self._clock.now_ms()
        return max(now - self._down_since.setdefault(replica, now), self._down_before(replica))

    def _is_out(self, replica: Replica) -> bool:
        """Whether somebody else has taken a replica out meanwhile."""
        with contextlib.suppress(KafkaError, OSError):
            registered = self._controller.look()
            # One that is to be let in is not in the chain either, and is waited for.
            return registered.epoch > self._seen_epoch and replica not in registered.chain
        return False

    def _whole(self, replica: Replica, act: acts.Act) -> Any:  # noqa: ANN401 - what an act comes to
        """Do an act. A log that lacks something is damaged only where the replica is there still."""
        try:
            return self._carriers[type(act)](act)
        except LogCorruptError:
            self._there(replica)
            raise

    def _there(self, replica: Replica) -> Store:
        """A replica's store.

        Raises:
            OSError: its mark cannot be found: the root is gone, or is another, empty one.
        """
        store, mark = self._store_of(replica), str(tuple(replica)).encode()
        now = SYSTEM_CLOCK.monotonic()
        known = now - self._marked.get(replica, -math.inf) < MARK_SECONDS
        # No mount is missing where a root is far, so that it was there a moment ago is enough.
        if known and (store.far or store.size(MARK) == len(mark)):
            return store
        if store.read(MARK) == mark:
            self._marked[replica] = now
        else:
            message = f"{store.uri} is not replica {replica}"
            raise OSError(message)
        return store

    def _read(self, act: acts.Read) -> VersionFile | None:
        found = self.look(act.replica, act.version)
        return None if found is None else VersionFile(found)

    def look(self, replica: Replica, version: int, pace: Pace = NOW) -> bytes | None:
        """The content of a version of a replica; None when there is none.

        Raises:
            OSError: it gives no answer.
        """
        began = SYSTEM_CLOCK.monotonic()
        proven = self._proven.get(replica)
        if proven is not None and version in proven:
            return proven[version]
        store = self._store_of(replica)

        def ask() -> bytes | None:
            found = store.look(log_name(version), pace)
            if found is None:
                self._there(replica)
            return found

        found = store.bounded(ask)
        if found is not None:
            return found if is_whole(found) else self._whole_version(replica, version, found)
        if not pace.waits and self.is_sure(replica, version):
            self._unmade[replica] = version, began
        return None

    def _whole_version(self, replica: Replica, version: int, damaged: bytes) -> bytes:
        """A version that is damaged at a replica in sync, as another one has it; the damaged one where nobody has.

        Both have the same one, and whoever reads it here goes on as if it was whole.
        """
        with contextlib.suppress(KafkaError, OSError):
            known = self._controller.look().in_sync
            for other in known if replica in known else ():
                if other != replica:
                    with contextlib.suppress(OSError):
                        found = self._there(other).look(log_name(version))
                        if found is not None and is_whole(found):
                            _log.warning("version %d of %s is damaged there, and read elsewhere", version, replica)
                            return found
        return damaged

    def is_sure(self, replica: Replica, version: int) -> bool:
        """Whether clean-up cannot have emptied a version's place at a replica."""
        unmade, at = self._unmade.get(replica, _NEVER)
        return version >= unmade and SYSTEM_CLOCK.monotonic() - at < SURE_SECONDS

    def _put(self, act: acts.Put) -> bool:
        assert isinstance(act.content, VersionFile)
        faults.point("replicas.before_put")
        store, began, content = self._store_of(act.replica), SYSTEM_CLOCK.monotonic(), act.content.data

        def put() -> bool:
            return self._there(act.replica).put_if_absent(log_name(act.version), content, durable=self.durable)

        made = store.bounded(put, long=True)
        if made and self.is_sure(act.replica, act.version):
            # Nobody has the next one before this one.
            self._surely_put[act.replica] = act.version
            self._unmade[act.replica] = act.version + 1, began
        return made

    def _checkpoint(self, act: acts.Checkpoint) -> int:
        known = self._checkpoints.get(act.replica, -1)
        about = act.about
        if about is not None and (
            self.is_sure(act.replica, about)
            or self._surely_put.get(act.replica) == about
            or about in self._proven.get(act.replica, ())
        ):
            return min(known, about - 1)
        return self._listed(act.replica)[0]

    def _listed(self, replica: Replica) -> tuple[int, Sequence[int]]:
        """List a log: its newest checkpoint, or -1, and the versions above it."""
        known = self._checkpoints.get(replica, -1)
        began = SYSTEM_CLOCK.monotonic()
        store = self._store_of(replica)
        # Not by `_last_checkpoint`: a late writer of an older one may move that back.
        files = LogFiles.listed(store, max(known, 0))
        newest = max(files.checkpoints, default=-1)
        if newest < 0:
            self._there(replica)
        newest = self._checkpoints[replica] = max(known, newest)
        # What a list lacks was made since it was asked for, or cleaned up, which a checkpoint above it would show.
        self._unmade[replica] = max(newest, *files.commits[-1:], -1) + 1, began
        return newest, [version for version in files.commits if version > newest]

    def prefetch(self, replica: Replica, since: int) -> None:
        """Read versions of a log ahead, and make sure that none of them was put where clean-up had been, with one list.

        Args:
            replica: whose.
            since: the last version that is known.

        Raises:
            OSError: it gives no answer.
        """
        newest, above = self._listed(replica)
        wanted = [version for version in above if version > since][:READ_AHEAD]
        if len(wanted) <= 1:
            return
        store = self._there(replica)
        contents = store.beside([partial(store.look, log_name(version)) for version in wanted])
        found = dict(zip(wanted, contents, strict=True))
        newest, _ = self._listed(replica)
        self._proven[replica] = {v: content for v, content in found.items() if content is not None and v > newest}

    def forget_proven(self) -> None:
        """Forget what was read ahead."""
        self._proven.clear()

    def _end(self, act: acts.End) -> int:
        files = LogFiles.listed(self._there(act.replica))
        return max((*files.commits, *files.checkpoints), default=-1)

    def _load(self, act: acts.Load) -> View | None:
        version = self._checkpoint(acts.Checkpoint(act.replica))
        if version < 0:
            return None
        store = self._there(act.replica)
        names = LogFiles.listed(store, version).checkpoints[version]
        try:
            txns = txns_of(store, names)
        except UNREADABLE as cause:
            txns = self._txns_elsewhere(act.replica, names, cause)
        found = newest_configuration(txns)
        if found is None:
            message = f"checkpoint {version} of {store.uri} does not say where the table's replicas are"
            raise LogCorruptError(message)
        return View(found, version)

    def _txns_elsewhere(self, replica: Replica, names: Sequence[str], cause: BaseException) -> dict[str, int]:
        """Of the same checkpoint of another replica in sync: those of one version say the same."""
        for other in self._controller.look().in_sync:
            if other != replica:
                with contextlib.suppress(*UNREADABLE):
                    return txns_of(self._there(other), names)
        raise cause

    def _supply(self, act: acts.Supply) -> None:
        assert isinstance(act.content, VersionFile)
        faults.point("replicas.before_supply")
        adds = act.content.commit.adds
        if not adds:
            return

        def supply() -> None:
            self.supplies.supply(act.replica, adds, act.source, partly=act.partly, durable=self.durable)

        if act.source is None and all(self.supplies.content_of(add.path) is not None for add in adds):
            # No other root is asked.
            self._store_of(act.replica).bounded(supply, long=True)
        else:
            supply()

    def _missing(self, act: acts.Missing) -> tuple[LostFile, ...]:
        return self.supplies.missing(act.replica)

    def _make_checkpoint(self, act: acts.MakeCheckpoint) -> None:
        store = self._there(act.replica)
        if self._checkpoint(acts.Checkpoint(act.replica)) < act.version:
            make_checkpoint(store, load_snapshot(store, act.version), self._clock.now_ms())

    def _copy_checkpoint(self, act: acts.CopyCheckpoint) -> int:
        newest = self._checkpoint(acts.Checkpoint(act.source))
        if self._checkpoint(acts.Checkpoint(act.replica)) >= newest:
            return self._checkpoints[act.replica]
        return self.supplies.copy_checkpoint(act.source, act.replica, partly=act.partly, durable=self.durable)

    def _discard(self, act: acts.Discard) -> None:
        store = self._there(act.replica)
        for version in LogFiles.listed(store).commits:
            if version < act.below:
                store.remove(log_name(version))
