"""Recovery: replace voters and leaders after roots were lost, and report lost data.

A recovery never starts by itself: its caller declares that the roots that do not answer are lost for good.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kafkalike.delta.actions import log_name
from kafkalike.delta.layout import is_folder_of
from kafkalike.delta.replica_files import newest_configuration
from kafkalike.delta.row_files import ROWS
from kafkalike.errors import KafkaConfigurationError, KafkaError, KafkaStorageError, PolicyViolationError
from kafkalike.model.replication.quorum_protocol import MetadataQuorum, QuorumMember, Recovery
from kafkalike.model.replication.registers import NoMajorityError, UnreachableVoterError, VotersReplacedError, majority
from kafkalike.model.replication.registration import Registration, Replica, without
from kafkalike.model.replication.takeover import OtherTakeoverError, TakeoverResult, VoterSet, taking_over
from kafkalike.replication.cluster.cluster_storage import replica_in
from kafkalike.replication.cluster.controller import registered_row
from kafkalike.replication.cluster.epoch_marker import is_unregistered, state_in
from kafkalike.replication.cluster.mirror_store import mirror_at
from kafkalike.replication.cluster.root_sign import sign_of
from kafkalike.replication.tables.voter_files import Voter
from kafkalike.replication.tables.voter_roots import VoterRoots

if TYPE_CHECKING:
    from kafkalike.model.brokers import ReplicatedTable
    from kafkalike.model.cluster_state import ClusterState, MetadataRow
    from kafkalike.replication.cluster.replica_manager import BrokerContext
    from kafkalike.replication.tables.quorum_storage import QuorumStorage
    from kafkalike.storage.port import Storage


class _End(NamedTuple):
    """The end of a replica's log."""

    epoch: int
    """The epoch of its last configuration."""
    is_member: bool
    """True if it is in the chain of that configuration."""
    version: int
    replica: Replica
    ends: str
    """End offsets by partition, for people."""


def _has_more(whole: Sequence[_End], copy: _End) -> bool:
    """Return whether the same root has a log with everything that a copy was made of."""
    return any(
        end.replica.broker == copy.replica.broker and end.replica != copy.replica and end.version >= copy.version - 1
        for end in whole
    )


class Recoveries:
    """Describes the voters of a cluster, and replaces them.

    Args:
        cluster: the cluster.
    """

    def __init__(self, cluster: BrokerContext) -> None:
        self._cluster = cluster
        self._store: QuorumStorage = cluster.store.metadata_root.table
        self._known = self._store.voters
        self._folders: dict[int, Sequence[str]] = {}
        """Folders of each root, by broker; cached, because nothing else changes them during a takeover."""

    def describe(self) -> MetadataQuorum:
        """Return the voters and their last versions, read from the roots.

        Raises:
            KafkaStorageError: no reachable root names the voters.
        """
        voters = self._voters()
        members = [self._member(voter, votes=True) for voter in voters.voters]
        members += [self._member(voter, votes=False) for voter in voters.observers]
        signs = (sign_of(self._cluster.store.roots[broker].plain) for broker in self._cluster.store.alive())
        cluster = next((sign.cluster for sign in signs if sign is not None), "")
        return MetadataQuorum(cluster_id=cluster, epoch=voters.epoch, members=members)

    def _voters(self) -> VoterSet:
        # A root that failed a moment ago must not count as lost.
        self._cluster.store.ask_again()
        found = self._known.look()
        if found is None:
            raise KafkaStorageError(f"no reachable root of {self._cluster.root} names the voters of the metadata")
        return found

    def _member(self, voter: Voter, *, votes: bool) -> QuorumMember:
        version = self._known.last_of(voter)
        time_ms = None
        if version is not None and version >= 0:
            listed = self._known.folder_of(voter).list("_delta_log", after=log_name(version - 1).rpartition("/")[2])
            time_ms = next((entry.modified_ms for entry in listed), None)
        return QuorumMember(
            broker=voter.broker, uri=voter.uri, id=voter.id, votes=votes, version=version, time_ms=time_ms
        )

    # --- others take over ----------------------------------------------------------------------

    def recover(
        self, source: str | None = None, voters: Collection[int] | None = None, *, dry_run: bool = False
    ) -> Recovery:
        """Replace the voters that do not answer, and report lost data.

        Args:
            source: a root that is left, to confirm which cluster is meant; None: any.
            voters: broker ids of the new voters, one, three or five; None: as many reachable brokers as voted before.
            dry_run: whether to report only.

        Returns:
            The result; unchanged if all voters answer and no others are named.

        Raises:
            KafkaConfigurationError: the source is not a root of the cluster, or the brokers cannot be voters.
            KafkaStorageError: a root stopped answering; run the recovery again.
        """
        before = self._voters()
        alive = self._cluster.store.alive()
        self._folders.clear()
        if source is not None and all(self._cluster.store.roots[broker].uri != source for broker in alive):
            raise KafkaConfigurationError(f"{source} is not a reachable root of this cluster")
        silent = [voter for voter in before.voters if self._known.last_of(voter) is None]
        after = self._wanted(before, alive, voters)
        lost = [voter.broker for voter in silent]
        known = [
            last for voter in (*before.voters, *before.observers) if (last := self._known.last_of(voter)) is not None
        ]
        sure = len(silent) <= len(before.voters) - majority(len(before.voters))
        planned = Recovery(
            lost=lost,
            voters=[voter.broker for voter in after.voters],
            version=max(known, default=-1),
            sure=sure,
            findings=self._findings(before, silent, alive, sure=sure),
        )
        if not silent and voters is None and self._known.is_open(before):
            return planned
        if dry_run:
            return planned
        taken = self._taken(before, after, planned)
        self._known.look()
        self._store.mark_observers()
        self._cluster.metadata.reload()
        self._register(alive, sure=planned.sure)
        return Recovery(
            lost=lost,
            voters=planned.voters,
            version=taken.version,
            sure=taken.sure,
            adopted=taken.adopted,
            findings=planned.findings,
            done=True,
        )

    def _wanted(self, before: VoterSet, alive: Sequence[int], named: Collection[int] | None) -> VoterSet:
        if named is None:
            kept = [voter.broker for voter in before.voters if voter.broker in alive]
            spare = [broker for broker in alive if broker not in kept]
            size = max((n for n in (1, 3, 5) if n <= min(len(alive), max(len(before.voters), 1))), default=1)
            named = sorted((*kept, *spare)[:size])
        if len(set(named)) not in {1, 3, 5} or not set(named) <= set(alive):
            raise KafkaConfigurationError(
                f"name one, three or five voters out of the brokers that answer: {', '.join(map(str, alive))}"
            )
        epoch = before.epoch + 1
        life = secrets.token_hex(4)

        def of(broker: int) -> Voter:
            return Voter(broker, f"{epoch}.{broker}.{life}", self._cluster.store.root_of(broker).uri)

        others = [broker for broker in alive if broker not in named]
        return VoterSet(epoch, tuple(of(broker) for broker in named), tuple(of(broker) for broker in others))

    def _taken(self, before: VoterSet, after: VoterSet, planned: Recovery) -> TakeoverResult:
        why = "; ".join(planned.findings)
        roots = VoterRoots(self._known.folder_of, self._cluster.clock, why)
        if before.epoch and not self._known.is_open(before):
            # An earlier takeover was interrupted before any vote for these voters.
            earlier = self._known.set_of(before.epoch - 1)
            if earlier is None:
                raise KafkaStorageError(f"no reachable root names the voters of epoch {before.epoch - 1}")
            before, after = earlier, before
        try:
            try:
                return roots.carry_out(taking_over(before, after, lossy=True))
            except OtherTakeoverError as other:
                return roots.carry_out(taking_over(before, other.after, lossy=True))
        except (NoMajorityError, UnreachableVoterError, VotersReplacedError) as cause:
            raise KafkaStorageError(
                f"the takeover failed, and the metadata accept no changes until it is run again: {cause!r}"
            ) from cause
        except OtherTakeoverError as other:
            raise PolicyViolationError(
                f"another recovery has chosen other voters meanwhile; check `kafkalike metadata-quorum`: {other.after}"
            ) from other

    # --- losses --------------------------------------------------------------------------------

    def _findings(self, before: VoterSet, silent: Sequence[Voter], alive: Sequence[int], *, sure: bool) -> list[str]:
        found = [self._of_metadata(before, silent)] if silent else []
        state = self._cluster.metadata.refresh()
        for table in sorted(state.replicas.values(), key=lambda table: table.location):
            found += self._of_table(table, alive, sure=sure)
        found += self._of_strangers(state, alive)
        return found

    def _of_metadata(self, before: VoterSet, silent: Sequence[Voter]) -> str:
        kept = {v.broker: self._known.last_of(v) for v in (*before.voters, *before.observers) if v not in silent}
        gone = ", ".join(str(voter.broker) for voter in silent)
        last = max((version for version in kept.values() if version is not None), default=-1)
        if len(before.voters) - len(silent) >= majority(len(before.voters)):
            return f"metadata: nothing is missing, as a majority of the voters answers; brokers {gone} are lost"
        return (
            f"metadata: versions after {last} may be missing: brokers {gone} may have decided some by themselves. "
            "Topics, settings, leaders and brokers are as of that version"
        )

    def _ends(self, table: ReplicatedTable, alive: Collection[int], *, sure: bool) -> list[_End]:
        """Return the ends of the replicas at reachable roots.

        If metadata may be lost, include replicas that the remaining metadata do not know.
        """
        found: list[_End] = []
        whole: list[_End] = []
        copies: list[_End] = []
        registered = table.registration
        known = {*registered.chain, *(registered.name(broker) for broker in table.assigned)}
        for replica, store in self._there(table.location, alive):
            if sure and replica not in known:
                continue
            try:
                state = state_in(store, table.location)
            except (OSError, KafkaError):
                # The root has no replica of the table, or an unreadable one.
                continue
            configuration = newest_configuration(state.txns)
            if configuration is None:
                continue
            ends = ", ".join(f"{p}: {state.end(p)}" for p in self._partitions(table))
            files = {entry.name for entry in store.list(deep=True)}
            if lost := sum(segment.path not in files for segment in state.index):
                ends += f"; {lost} of its data files are gone"
            end = _End(configuration.epoch, replica in configuration.chain, state.version, replica, ends)
            found.append(end)
            whole += [] if lost else [end]
            copies += [end] if replica not in known and is_unregistered(store, state, replica) else []
        return [end for end in found if end not in copies or not _has_more(whole, end)]

    def _is_mirror_there(self, table: ReplicatedTable, alive: Collection[int]) -> bool:
        if mirror_at(self._cluster.metadata.state, table.location) is None or table.leader not in alive:
            return False
        # Any other replica means that the mirror was promoted, and that the remaining metadata do not know it.
        return all(replica == table.registration.leader for replica, _ in self._there(table.location, alive))

    def _there(self, location: str, alive: Collection[int]) -> Iterator[tuple[Replica, Storage]]:
        for broker in sorted(alive):
            root = self._cluster.store.root_of(broker)
            if broker not in self._folders:
                self._folders[broker] = root.folders()
            for folder in self._folders[broker]:
                if is_folder_of(folder, location):
                    yield replica_in(folder, location, broker), root.at(folder)

    def _partitions(self, table: ReplicatedTable) -> Sequence[int]:
        topics = self._cluster.metadata.state.topics.values()
        return next((info.partitions for info in topics if info.location == table.location), (ROWS,))

    def _of_table(self, table: ReplicatedTable, alive: Sequence[int], *, sure: bool) -> list[str]:
        registered, ends = table.registration, self._ends(table, alive, sure=sure)
        if self._is_mirror_there(table, alive):
            return []
        said: list[str] = []
        newest = max(ends, default=None)
        if newest is not None and newest.epoch > registered.epoch:
            said.append(
                f"{table.location}: the metadata that are left say epoch {registered.epoch}, its log says "
                f"{newest.epoch}: broker {newest.replica.broker} leads from here on, in a new epoch"
            )
        elif all(replica.broker not in alive for replica in registered.in_sync):
            who = ", ".join(str(replica.broker) for replica in registered.in_sync)
            # If no other replica is left, an unclean election considers replicas that the metadata do not know, too.
            newest = newest or max(self._ends(table, alive, sure=False), default=None)
            if newest is None:
                said.append(f"{table.location}: no replica is left; its records are lost")
            else:
                said.append(
                    f"{table.location}: no replica in sync is left (brokers {who} were); "
                    f"broker {newest.replica.broker} has records up to version {newest.version}"
                    + (f", log ends by partition {newest.ends}" if newest.ends else "")
                    + ": later ones are lost once it is elected unclean"
                )
        return said

    def _of_strangers(self, state: ClusterState, alive: Sequence[int]) -> list[str]:
        """Report tables at roots that the metadata do not name: the missing metadata created or deleted them."""
        known = {table.location for table in state.replicas.values()}
        known |= {info.location for info in (*state.topics.values(), *state.gone.values())}
        said: dict[str, list[int]] = {}
        for broker in alive:
            root = self._cluster.store.root_of(broker)
            for name in root.folders():
                if name.startswith("_") or any(is_folder_of(name, location) for location in known):
                    continue
                if root.at(name).list("_delta_log"):
                    said.setdefault(name, []).append(broker)
        return [
            f"{name}: a table on brokers {', '.join(map(str, brokers))} that no topic of the metadata left is about"
            for name, brokers in sorted(said.items())
        ]

    # --- leaders -------------------------------------------------------------------------------

    def _register(self, alive: Sequence[int], *, sure: bool) -> None:
        """Remove lost roots from the chains, and register the replicas of the table's own log if that is newer.

        Args:
            alive: brokers whose roots answer.
            sure: whether no decision can be lost.
        """

        def plan(state: ClusterState) -> Sequence[MetadataRow]:
            rows: list[MetadataRow] = []
            for table in state.replicas.values():
                after = self._recovered(table, alive, sure=sure)
                if after == table.registration:
                    continue
                row = registered_row(state, self._cluster.clock.now_ms(), table, after, "recovered: roots are lost")
                rows.append(replace(row, seq=state.seq + 1 + len(rows)))
            return rows

        self._cluster.metadata.transact(plan)

    def _recovered(self, table: ReplicatedTable, alive: Collection[int], *, sure: bool) -> Registration:
        before, newest = table.registration, max(self._ends(table, alive, sure=sure), default=None)
        if self._is_mirror_there(table, alive):
            # The log of a mirror belongs to its source.
            return before
        if not sure and any(replica.broker in alive for replica in before.in_sync):
            # It is unknown which replicas were given up meanwhile, so other replicas come back under new names, empty.
            before = before._replace(life=secrets.randbits(62) + 1, renamed=())
        if newest is not None and newest.epoch > before.epoch:
            # This replica has the seal of that epoch, so it has all acknowledged records; others join it again.
            life = before.life if sure else secrets.randbits(62) + 1
            renamed = before.renamed if sure else ()
            return Registration(newest.epoch + 1, (newest.replica,), None, life, before.losses, renamed)
        after = before
        if any(replica.broker in alive for replica in before.in_sync):
            for replica in before.chain:
                if replica.broker not in alive:
                    after = without(after, replica)
        return after
