"""Protocol runner: applies the effects of the replication protocols to the storages of a table's replicas.

All decisions, and their order, are made in `kafkalike.model.replication`, which is tested by simulation.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, TypeVar

from kafkalike.delta.actions import log_name
from kafkalike.delta.checkpoint import fold, make_checkpoint
from kafkalike.delta.log_files import LogFiles
from kafkalike.delta.replica_files import LostFile, VersionFile, mark_replica, newest_configuration, note_cleaned, seal
from kafkalike.delta.snapshot import load_snapshot
from kafkalike.errors import KafkaError, LogCorruptError
from kafkalike.model import faults
from kafkalike.model.clock import Clock
from kafkalike.model.effects import run
from kafkalike.model.replication import replica_effects as effects
from kafkalike.model.replication.registration import Replica, UnreachableError, View
from kafkalike.replication.tables.data_file_copier import DataFileCopier, txns_of
from kafkalike.replication.tables.replica_logs import Controller, ReplicaLogs
from kafkalike.storage.parquet import UNREADABLE
from kafkalike.storage.port import NotStoredError, Storage

_log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_WAIT_SECONDS: Final = 0.05
"""First wait before a replica that did not answer is retried; it doubles with each try."""

LONGEST_WAIT_SECONDS: Final = 1.0
"""Longest wait between two tries. At each try the runner also checks whether another client has removed the replica."""


class Landing:
    """Tracks whether a content may be stored at a replica, even if its protocol fails.

    Args:
        content: the content to put.
    """

    def __init__(self, content: VersionFile) -> None:
        self.content = content
        self.stored = False


class ProtocolRunner:
    """Runs the protocols of a table's replicas on their storages.

    Thread-safe, unless `durable` is changed meanwhile.

    Args:
        store_of: maps a replica to the folder of its table.
        controller: decides the registration.
        clock: time and waiting.
        lag_ms: `replica.lag.time.max.ms`: how long to retry a replica that does not answer.
        durable: whether commits and data must survive a power failure.
        down_before: how long a replica is known not to answer, ms, beyond the calls of this runner.
    """

    def __init__(
        self,
        store_of: Callable[[Replica], Storage],
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
        self.lag_ms = lag_ms
        self.durable = durable
        self._seen_epoch = -1
        """The epoch of the registration that was read last."""
        self.logs = ReplicaLogs(store_of, controller.look)
        self.supplies = DataFileCopier(store_of, self.logs.there, lambda: controller.look().in_sync)
        """The data files of this process's versions and of replicas."""
        self._down_since: dict[Replica, int] = {}
        """The time, ms, since which a replica has not answered."""
        self._carriers: Mapping[type, Callable[[Any], Any]] = {
            effects.Read: self._read,
            effects.Ahead: self._ahead,
            effects.Put: self._put,
            effects.Checkpoint: self._checkpoint,
            effects.End: self._end,
            effects.Load: self._load,
            effects.Supply: self._supply,
            effects.MakeCheckpoint: self._make_checkpoint,
            effects.CopyCheckpoint: self._copy_checkpoint,
            effects.Counts: lambda act: self.logs.counts(act.replica, act.version),
            effects.Missing: self._missing,
            effects.Fill: self._fill,
            effects.Discard: self._discard,
        }

    def make_replica(self, replica: Replica) -> None:
        """Make the folder of a replica, unless it exists.

        Raises:
            OSError: the root cannot be reached.
        """
        mark_replica(self._store_of(replica), replica)

    def down_ms(self, replica: Replica) -> int:
        """Return how long a replica has not answered, ms; 0 if it has, or was not asked."""
        since = self._down_since.get(replica)
        return 0 if since is None else max(1, self._clock.now_ms() - since)

    def carry_out(
        self,
        protocol: Generator[effects.ReplicaEffect, Any, T],
        landing: Landing | None = None,
        prepare: Callable[[int], object] = lambda _: None,
    ) -> T:
        """Run a protocol to its end.

        Args:
            protocol: the protocol.
            landing: records whether its content may have been put.
            prepare: called with each new incarnation of a replica before the first write to it.

        Raises:
            Exception: raised by the protocol.
            OSError: the controller does not answer.
        """
        return run(protocol, lambda effect: self._done(effect, landing, prepare), UnreachableError)

    def read_out(self, protocol: Generator[effects.ReplicaEffect, Any, T]) -> T:
        """Run a read-only protocol that asks each replica once.

        Args:
            protocol: the protocol; it raises `UnreachableError`, with its cause, if no replica answers.

        Raises:
            Exception: raised by the protocol.
        """

        def asked(effect: Any) -> Any:  # noqa: ANN401 - of one replica, with its answer
            try:
                return self.do(effect)
            except OSError as cause:
                raise UnreachableError(effect.replica) from cause

        return run(protocol, asked, UnreachableError)

    def note_epoch(self, epoch: int) -> None:
        """Record the registered epoch; a new epoch invalidates earlier observations."""
        self._seen_epoch = epoch
        self.logs.note_epoch(epoch)

    def do(self, act: effects.End) -> Any:  # noqa: ANN401 - what an effect comes to
        """Apply one effect once.

        Raises:
            OSError: the replica does not answer.
        """
        return self._whole(act.replica, act)

    def _done(self, act: effects.ReplicaEffect, landing: Landing | None, prepare: Callable[[int], object]) -> Any:  # noqa: ANN401 - what an effect comes to
        if isinstance(act, effects.LookAtController):
            registered = self._controller.look()
            self.note_epoch(registered.epoch)
            return registered
        if isinstance(act, effects.Register):
            return self._controller.change(act.before, act.after)
        if isinstance(act, effects.NewSeal):
            return seal(act.registration.configuration, self._clock.now_ms(), act.lost)
        if isinstance(act, effects.NewLife):
            life = secrets.randbits(62) + 1
            prepare(life)
            return life
        watched = landing if isinstance(act, effects.Put) and landing and act.content is landing.content else None
        return self._asked(act.source if isinstance(act, effects.CopyCheckpoint) else act.replica, act, watched)

    def _asked(self, replica: Replica, act: effects.ReplicaEffect, landing: Landing | None) -> Any:  # noqa: ANN401
        """Ask a replica and retry for as long as it may lag."""
        wait = FIRST_WAIT_SECONDS
        while True:
            before = landing is not None and landing.stored
            if landing is not None:
                # Assume that it is stored: an interrupt may come, and a call that timed out may still succeed.
                landing.stored = True
            try:
                found = self._whole(replica, act)
            except OSError as cause:
                if landing is not None and isinstance(cause, NotStoredError):
                    landing.stored = before
                left = self.lag_ms - self.note_down(replica)
                if left <= 0 or self._is_out(replica):
                    raise UnreachableError(replica) from cause
                self._clock.sleep(min(wait, left / 1000))
                wait = min(2 * wait, LONGEST_WAIT_SECONDS)
            else:
                if landing is not None:
                    landing.stored = before or bool(found)
                if self._down_since:
                    self._down_since.pop(replica, None)
                return found

    def note_answer(self, replica: Replica) -> None:
        """Restart the measure of how long a replica has not answered."""
        self._down_since.pop(replica, None)

    def note_down(self, replica: Replica) -> int:
        """Record that a replica does not answer, and return for how long, ms."""
        now = self._clock.now_ms()
        return max(now - self._down_since.setdefault(replica, now), self._down_before(replica))

    def _is_out(self, replica: Replica) -> bool:
        """Return whether another client has removed a replica meanwhile."""
        with contextlib.suppress(KafkaError, OSError):
            registered = self._controller.look()
            # A joining replica is outside the chain, too, and must be waited for.
            return registered.epoch > self._seen_epoch and replica not in registered.chain
        return False

    def _whole(self, replica: Replica, act: effects.ReplicaEffect) -> Any:  # noqa: ANN401 - what an effect comes to
        """Apply an effect. A gap in a log counts as damage only while the replica's root is there."""
        try:
            return self._carriers[type(act)](act)
        except LogCorruptError:
            self.logs.there(replica)
            raise

    def _read(self, act: effects.Read) -> VersionFile | None:
        found = self.logs.look(act.replica, act.version)
        return None if found is None else VersionFile(found)

    def _ahead(self, act: effects.Ahead) -> None:
        self.logs.prefetch(act.replica, act.since, act.most)

    def _put(self, act: effects.Put) -> bool:
        assert isinstance(act.content, VersionFile)
        faults.point("replicas.before_put")
        return self.logs.put(act.replica, act.version, act.content.data, durable=self.durable)

    def _checkpoint(self, act: effects.Checkpoint) -> int:
        return self.logs.checkpoint(act.replica, act.about)

    def _end(self, act: effects.End) -> int:
        return self.logs.end(act.replica)

    def _load(self, act: effects.Load) -> View | None:
        version = self.logs.checkpoint(act.replica)
        if version < 0:
            return None
        store = self.logs.there(act.replica)
        names = LogFiles.listed(store, version).checkpoints[version]
        try:
            txns = txns_of(store, names)
        except UNREADABLE as cause:
            txns = self._txns_elsewhere(act.replica, names, cause)
        found = newest_configuration(txns)
        if found is None:
            raise LogCorruptError(f"checkpoint {version} of {store.uri} does not name the table's replicas")
        return View(found, version)

    def _txns_elsewhere(self, replica: Replica, names: Sequence[str], cause: BaseException) -> dict[str, int]:
        """Read the same checkpoint at another replica in sync, which has the same transactions."""
        for other in self._controller.look().in_sync:
            if other != replica:
                with contextlib.suppress(*UNREADABLE):
                    return txns_of(self.logs.there(other), names)
        raise cause

    def _supply(self, act: effects.Supply) -> None:
        assert isinstance(act.content, VersionFile)
        faults.point("replicas.before_supply")
        adds = act.content.commit.adds
        if not adds:
            return
        self.supplies.supply(act.replica, adds, act.source, partly=act.partly, durable=self.durable)

    def _missing(self, act: effects.Missing) -> tuple[LostFile, ...]:
        return self.supplies.missing(act.replica)

    def _fill(self, act: effects.Fill) -> None:
        self.supplies.fill(act.replica, act.source, durable=self.durable)

    def _make_checkpoint(self, act: effects.MakeCheckpoint) -> None:
        store = self.logs.there(act.replica)
        if self.logs.checkpoint(act.replica) < act.version:
            make_checkpoint(store, load_snapshot(store, act.version, fold=fold), self._clock.now_ms())

    def _copy_checkpoint(self, act: effects.CopyCheckpoint) -> int:
        newest = self.logs.checkpoint(act.source)
        known = self.logs.checkpoint(act.replica)
        if known >= newest:
            return known
        return self.supplies.copy_checkpoint(act.source, act.replica, partly=act.partly, durable=self.durable)

    def _discard(self, act: effects.Discard) -> None:
        store = self.logs.there(act.replica)
        note_cleaned(store, act.below)
        for version in LogFiles.listed(store).present:
            if version < act.below:
                store.remove(log_name(version))
