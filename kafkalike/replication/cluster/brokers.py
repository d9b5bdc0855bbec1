"""Brokers: administer the brokers and replicas of a cluster of several roots; implements `Replication`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from kafkalike import errors
from kafkalike.delta.layout import BROKERS, CONTROL_TABLES
from kafkalike.log.cluster.single_broker import Replication
from kafkalike.log.cluster.topic_folders import check_not_enclosed
from kafkalike.model.brokers import Broker, ReplicatedTable
from kafkalike.model.clock import Deadline
from kafkalike.model.cluster_state import ClusterState, MetadataRow, broker_row, replicas_row
from kafkalike.model.replication.quorum_protocol import MetadataQuorum, Recovery
from kafkalike.model.replication.replica_assignment import check_factor
from kafkalike.model.replication.replicas import ReplicaEnd, Replicas, ReplicateReport
from kafkalike.replication.cluster.controller import owner
from kafkalike.replication.cluster.format_storage import check_apart, is_cluster
from kafkalike.replication.cluster.mirror_store import mirror_at
from kafkalike.replication.cluster.recovery import Recoveries
from kafkalike.replication.cluster.replica_manager import BrokerContext, FormerReplicas, ReplicaManager
from kafkalike.replication.cluster.root_sign import sign_of

if TYPE_CHECKING:
    from kafkalike.storage.port import Storage


class Brokers(Replication):
    """The brokers of a cluster, and the replicas of its tables.

    Args:
        cluster: the cluster.
    """

    def __init__(self, cluster: BrokerContext) -> None:
        self._cluster = cluster
        self._store = cluster.store

    # --- what there is -------------------------------------------------------------------------

    def brokers(self) -> Sequence[Broker]:
        """Return all brokers, by id."""
        known = self._state().brokers
        if not known:
            return [Broker(id=broker, uri=root.uri) for broker, root in sorted(self._store.roots.items())]
        return [known[broker] for broker in sorted(known)]

    def _state(self) -> ClusterState:
        return self._cluster.metadata.refresh()

    def quorum(self) -> MetadataQuorum:
        """Return the voters of the cluster's metadata."""
        return Recoveries(self._cluster).describe()

    def recover(
        self, source: str | None = None, voters: Collection[int] | None = None, *, dry_run: bool = False
    ) -> Recovery:
        """Recover a cluster from lost roots."""
        return Recoveries(self._cluster).recover(source, voters, dry_run=dry_run)

    def alive(self, broker: int) -> bool:
        """Return whether a broker's root answers."""
        return self._store.root_of(broker).is_there()

    def tables(self) -> Sequence[str]:
        """Return the names of topics and control tables that have replicas."""
        state = self._state()
        return sorted(owner(state, location)[0] for location in state.replicas)

    def _table(self, topic: str) -> ReplicatedTable:
        state = self._state()
        location = topic if topic in CONTROL_TABLES else state.require(topic).location
        found = state.replicas.get(location)
        if found is None:
            raise errors.UnknownTopicOrPartitionError(f"{topic!r} has no replicas")
        return found

    def replicas(self, topic: str, *, ends: bool = False) -> Replicas:
        """Return the replicas of a topic or control table."""
        return self._described(topic, self._table(topic), ends=ends)

    def _described(self, topic: str, table: ReplicatedTable, *, ends: bool) -> Replicas:
        registered = table.registration
        every = dict.fromkeys((*table.assigned, *(replica.broker for replica in registered.chain)))
        offline = tuple(broker for broker in every if not self.alive(broker))
        info = self._cluster.metadata.state.topics.get(topic)
        settings = self._cluster.server.effective({} if info is None else info.configs)
        return Replicas(
            topic=topic,
            leader=-1 if table.leader in offline else table.leader,
            epoch=registered.epoch,
            replicas=table.assigned,
            isr=table.isr,
            offline=offline,
            ends=tuple(self._end(table, broker) for broker in every) if ends else (),
            joining=None if registered.joining is None else registered.joining.broker,
            adding=table.adding,
            min_isr=int(settings["min.insync.replicas"]) if info is not None else 1,
            losses=tuple(
                f"epoch {loss.epoch}: broker {loss.replica.broker} was chosen, whose log ended at version {loss.kept}; "
                f"brokers {', '.join(str(replica.broker) for replica in loss.chain)} were in the chain before"
                + (f"; {loss.files} data files that its log names are lost" if loss.files else "")
                for loss in registered.losses
            ),
        )

    def _end(self, table: ReplicatedTable, broker: int) -> ReplicaEnd:
        in_sync = broker in table.isr
        if not self.alive(broker):
            return ReplicaEnd(broker=broker, in_sync=in_sync, version=None, bytes=None)
        version, size, time_ms = ReplicaManager(self._cluster, table.location).end_of(broker)
        return ReplicaEnd(broker=broker, in_sync=in_sync, version=version, bytes=size, time_ms=time_ms)

    # --- leaders -------------------------------------------------------------------------------

    def elect_leader(self, topic: str, kind: Literal["preferred", "unclean"] = "preferred") -> Replicas:
        """Elect another replica as the leader."""
        table = self._table(topic)
        self._check_no_mirror(self._cluster.metadata.state, table.location)
        helper = ReplicaManager(self._cluster, table.location)
        if kind == "unclean":
            helper.elect_unclean(topic)
            return self.replicas(topic)
        preferred = table.assigned[0]
        if table.leader == preferred:
            raise errors.ElectionNotNeededError(
                f"Leader election not needed for topic {topic}: broker {preferred} leads"
            )
        if preferred not in table.isr or not self.alive(preferred):
            raise errors.PreferredLeaderNotAvailableError(
                f"Failed to elect the preferred leader of topic {topic}: broker {preferred} is not in sync"
            )
        helper.lead(preferred)
        return self.replicas(topic)

    # --- where replicas shall be ---------------------------------------------------------------

    def reassign(self, topic: str, assigned: Sequence[int] | None) -> Replicas:
        """Assign replicas to brokers, or cancel a reassignment."""
        location = self._table(topic).location

        def plan(state: ClusterState) -> Sequence[MetadataRow]:
            table = state.replicas[location]
            self._check_no_mirror(state, location)
            wanted = self._kept(topic, table) if assigned is None else tuple(assigned)
            self._check(state, topic, table, wanted)
            if wanted == table.assigned:
                return []
            return [self._assigning(state, state.seq + 1, table, wanted)]

        self._cluster.metadata.transact(plan)
        return self.replicas(topic)

    @staticmethod
    def _check_no_mirror(state: ClusterState, location: str) -> None:
        """Reject changes to the replicas of a mirror, whose log must not get versions of its own.

        Raises:
            MirrorTopicError: the table is a mirror.
        """
        info = mirror_at(state, location)
        if info is not None:
            info.check_own()

    @staticmethod
    def _kept(topic: str, table: ReplicatedTable) -> tuple[int, ...]:
        if not table.reassigning:
            raise errors.NoReassignmentInProgressError(f"No reassignment of topic {topic} is in progress")
        stay = [broker for broker in table.assigned if broker not in table.adding]
        return (*stay, *(broker for broker in table.isr if broker not in stay))

    def _check(self, state: ClusterState, topic: str, table: ReplicatedTable, wanted: Sequence[int]) -> None:
        if not wanted or len(set(wanted)) < len(wanted):
            raise errors.InvalidReplicationAssignmentError(
                f"topic {topic}: {list(wanted)} is empty, or names a broker twice"
            )
        for broker in wanted:
            known = state.brokers.get(broker)
            if known is None:
                raise errors.InvalidReplicationAssignmentError(f"topic {topic}: broker {broker} does not exist")
            if known.draining and broker not in table.assigned:
                raise errors.InvalidReplicationAssignmentError(f"topic {topic}: broker {broker} is being drained")

    def _assigning(self, state: ClusterState, seq: int, table: ReplicatedTable, wanted: tuple[int, ...]) -> MetadataRow:
        changed = table.reassigned(wanted)
        name, topic_id = owner(state, table.location)
        change = f"replicas shall be {', '.join(map(str, wanted))}"
        return replicas_row(seq, self._cluster.clock.now_ms(), changed, change, topic=name, topic_id=topic_id)

    def reassigning(self) -> Mapping[str, Replicas]:
        """Return the topics with a reassignment in progress."""
        state = self._state()
        return {
            name: self._described(name, table, ends=False)
            for table in state.replicas.values()
            if table.reassigning
            for name in [owner(state, table.location)[0]]
        }

    def replicate(
        self,
        topics: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> ReplicateReport:
        """Bring replicas in sync."""
        deadline = Deadline(self._cluster.clock, timeout_ms)
        joined: dict[str, Sequence[int]] = {}
        left: dict[str, Sequence[int]] = {}
        led: dict[str, int] = {}
        failed: list[str] = []
        self._store.ask_again()
        for name in self.tables() if topics is None else topics:
            progress(name)
            if deadline.expired():
                failed.append(f"{name}: timeout_ms was over before its turn")
                continue
            before = self._table(name)
            if mirror_at(self._cluster.metadata.state, before.location) is not None:
                # A mirror has one replica until it is promoted.
                continue
            failed += (f"{name}: {why}" for why in ReplicaManager(self._cluster, before.location).replicate())
            after = self._table(name)
            if come := sorted(set(after.isr) - set(before.isr)):
                joined[name] = come
            if gone := sorted(set(before.isr) - set(after.isr)):
                left[name] = gone
            if after.leader != before.leader:
                led[name] = after.leader
        return ReplicateReport(joined=joined, left=left, led=led, failed=failed)

    # --- brokers -------------------------------------------------------------------------------

    def clear_former(self) -> int:
        """Remove data files of replicas that are not assigned anymore."""
        return FormerReplicas(self._cluster).clear()

    def add_broker(self, uri: str, *, rack: str | None = None, id: int | None = None) -> Broker:  # noqa: A002
        """Add a root to the cluster."""
        root = self._cluster.places.open(self._cluster.places.named(uri))
        self._cluster.metadata.transact(lambda _: [])
        made: list[Broker] = []

        def plan(state: ClusterState) -> Sequence[MetadataRow]:
            number = state.last_broker + 1 if id is None else id
            known = state.brokers.get(number)
            if (known is not None and known.uri != root.uri) or (known is None and number <= state.last_broker):
                raise errors.KafkaConfigurationError(
                    f"broker id {number} belongs, or belonged, to another root; choose another id"
                )
            if any(other.uri == root.uri and other.id != number for other in state.brokers.values()):
                raise errors.KafkaConfigurationError(f"{root.uri} is a broker already")
            check_apart(root.uri, [other.uri for other in state.brokers.values() if other.id != number])
            self._sign(root, number, state)
            made[:] = [Broker(id=number, uri=root.uri, rack=rack or self._cluster.places.rack_of(root.uri))]
            return [broker_row(state.seq + 1, self._cluster.clock.now_ms(), made[0], "added")]

        self._cluster.metadata.transact(plan)
        return made[0]

    def _sign(self, root: Storage, broker: int, state: ClusterState) -> None:
        own = next((sign for r in self._store.alive() if (sign := sign_of(self._store.roots[r].plain))), None)
        if own is None:
            raise errors.KafkaConnectionError(f"none of the roots {self._cluster.root} is there")
        where = {other.id: other.uri for other in state.brokers.values()} | {broker: root.uri}
        try:
            if sign_of(root) is None:
                if is_cluster(root):
                    raise errors.KafkaConfigurationError(f"{root.uri} is a cluster of its own")
                check_not_enclosed(root)
            root.coordination.check_writable()
            root.make_folder("")
            root.put_if_absent(BROKERS, own._replace(broker=broker, roots=where).content(), durable=True)
            said = sign_of(root)
        except OSError as cause:
            raise errors.KafkaConnectionError(f"the root {root.uri} cannot be made: {cause}") from cause
        if said is None or (said.cluster, said.broker) != (own.cluster, broker):
            raise errors.KafkaConfigurationError(f"{root.uri} is a root of another cluster, or another broker")
        for other in state.brokers:
            # Any root must suffice to find the new one. The location of a removed root may belong to the new one.
            if other != broker and self._store.root_of(other).is_there():
                store = self._store.root_of(other).plain
                store.replace(BROKERS, own._replace(broker=other, roots=where).content())

    def drain(self, broker: int) -> Sequence[str]:
        """Reassign a broker's replicas to other brokers."""
        tables: list[str] = []

        def plan(state: ClusterState) -> Sequence[MetadataRow]:
            known = self._known(state, broker)
            usable = self._cluster.usable(state)
            usable.pop(broker, None)
            now = self._cluster.clock.now_ms()
            drained = Broker(id=known.id, uri=known.uri, rack=known.rack, draining=True)
            rows = [] if known.draining else [broker_row(state.seq + 1, now, drained, "draining")]
            tables.clear()
            for table in state.replicas.values():
                if broker not in table.assigned:
                    if any(replica.broker == broker for replica in table.registration.chain):
                        tables.append(owner(state, table.location)[0])
                    continue
                self._check_no_mirror(state, table.location)
                others = [other for other in sorted(usable) if other not in table.assigned]
                check_factor(len(table.assigned), len(table.assigned) - 1 + len(others))
                tables.append(owner(state, table.location)[0])
                replacement = min(others, key=lambda other: sum(other in t.assigned for t in state.replicas.values()))
                wanted = tuple(replacement if other == broker else other for other in table.assigned)
                rows.append(self._assigning(state, state.seq + 1 + len(rows), table, wanted))
            return rows

        self._cluster.metadata.transact(plan)
        return sorted(tables)

    @staticmethod
    def _known(state: ClusterState, broker: int) -> Broker:
        known = state.brokers.get(broker)
        if known is None:
            raise errors.BrokerNotAvailableError(f"broker {broker} does not exist")
        return known

    def remove_broker(self, broker: int, *, lost: bool = False) -> None:
        """Remove a root from the cluster."""
        state = self._state()
        self._known(state, broker)
        if broker in self._store.metadata_root.brokers:
            raise errors.PolicyViolationError(
                f"broker {broker} votes on the cluster's metadata; name other voters with `kafkalike recover --voters`"
            )
        there = [
            table
            for table in state.replicas.values()
            if broker in table.assigned or any(replica.broker == broker for replica in table.registration.chain)
        ]
        names = ", ".join(sorted(owner(state, table.location)[0] for table in there))
        if there and not lost:
            raise errors.PolicyViolationError(
                f"broker {broker} has replicas of {names}: drain it first, and let `replicate` move them"
            )
        for table in there:
            if table.isr == (broker,):
                raise errors.PolicyViolationError(
                    f"broker {broker} has the only replica in sync of {owner(state, table.location)[0]}"
                )
            ReplicaManager(self._cluster, table.location).take_out(broker)

        def plan(state: ClusterState) -> Sequence[MetadataRow]:
            known, now = self._known(state, broker), self._cluster.clock.now_ms()
            rows = [broker_row(state.seq + 1, now, known, "removed", removed=True)]
            for table in state.replicas.values():
                if broker in table.assigned:
                    wanted = tuple(other for other in table.assigned if other != broker) or table.isr
                    rows.append(self._assigning(state, state.seq + 1 + len(rows), table, wanted))
            return rows

        self._cluster.metadata.transact(plan)
