"""Failback world: two clusters of several roots between which topics go over and back, and a model of what they hold.

Roots vanish and come back, topics are deleted and created again, transactions with offsets stay open across all of it,
and clients are used that were opened before the clusters existed. Each record and each committed offset is compared.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafkalike.admin.cluster_mirror import Mirror, promote
from kafkalike.consumer import KafkaConsumer
from kafkalike.errors import (
    InvalidTxnStateError,
    KafkaError,
    NotEnoughReplicasError,
    TopicDeletedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.log.group.membership import Membership
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.maintenance.verify.verify import verify
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.producer import KafkaProducer
from tests.tools.away import away, back
from tests.tools.clusters import on_disk
from tests.tools.records import batch
from tests.tools.transactional import values

NAMES: Final = ("s", "t", "u")
PARTITIONS: Final = (0, 1)
GROUPS: Final = ("g", "h")
OLD_MS: Final = 40 * 86_400_000
"""Age of all records: a retention of seven days, which is Kafka's default, would delete them."""

PROPERTIES: Final = "log.retention.ms=-1\nauto.create.topics.enable=false\nreplica.lag.time.max.ms=20\n"
SEVERAL: Final = "min.insync.replicas=2\ndefault.replication.factor=3\n"
"""They stand at one root alone."""

OPEN_AT_MOST: Final = 4

EARLY: Final = 6
"""Clients of a cluster from before it existed: some are used for the first time where the first root is away."""


@dataclass(eq=False)
class Topic:
    """One life of a topic at one cluster."""

    name: str
    records: dict[int, list[bytes]] = field(default_factory=lambda: {p: [] for p in PARTITIONS})
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    """Offsets by group and partition."""

    def copied(self) -> Topic:
        """What a mirror of it has."""
        return copy.deepcopy(self)


class Side:
    """One cluster: its roots, what it must hold, and its clients that stay open."""

    def __init__(self, base: Path, number: int) -> None:
        self.roots = [base / str(n) for n in range(1, number + 1)]
        self.topics: dict[str, Topic] = {}
        self.mirrors: dict[str, tuple[Topic, Topic]] = {}
        """By name, the topic that is mirrored, and what the mirror has of it."""
        self.gone: Path | None = None
        """The root that is away."""
        self.roots[0].mkdir(parents=True)
        (self.roots[0] / "server.properties").write_text(PROPERTIES + SEVERAL * (number > 1))
        # Before there is anything: a client of all roots, and one of a single root, if there are several.
        self.early = [self.opened() for _ in range(EARLY)]
        self.lone = [on_disk(root) for root in self.roots] if number > 1 else []
        self.producer: KafkaProducer | None = None

    def opened(self) -> Cluster:
        """The cluster, as another process has it."""
        return on_disk(",".join(map(str, self.roots)))

    def bring_back(self) -> None:
        """All roots are there, and have all."""
        if self.gone is not None:
            back(self.gone)
            self.gone = None
        if len(self.roots) > 1 and self.topics:
            self.opened().replication.replicate()


@dataclass(eq=False)
class Open:
    """A transaction that is open."""

    side: Side
    producer: KafkaProducer
    records: list[tuple[Topic, int, bytes]] = field(default_factory=list)
    offsets: dict[tuple[Topic, str, int], int] = field(default_factory=dict)

    @property
    def is_sound(self) -> bool:
        """Whether all topics are those that it began with."""
        topics = {topic for topic, _, _ in self.records} | {topic for topic, _, _ in self.offsets}
        return all(self.side.topics.get(topic.name) is topic for topic in topics)


class FailbackWorld:
    """One history.

    Args:
        seed: of its random choices.
        base: an empty folder.
    """

    def __init__(self, seed: int, base: Path) -> None:
        self.random = random.Random(seed)
        self.sides = (
            Side(base / "first", 3),
            Side(base / "second", self.random.choice((1, 3))),
        )
        self.owner: dict[str, int] = {}
        self.count = 0
        self.open: list[Open] = []
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    def close(self) -> None:
        """End all clients."""
        for side in self.sides:
            with contextlib.suppress(OSError, KafkaError):
                side.bring_back()
            if side.producer is not None:
                side.producer.close(5)
        for one in self.open:
            one.producer.close(5)

    # --- acts ----------------------------------------------------------------------------------

    def run(self, acts: int) -> None:
        """So many random acts; then everything is compared."""
        for name in NAMES:
            self.create(name)
        choices: Sequence[tuple[int, Callable[[], None]]] = [
            (10, self.append),
            (6, self.send),
            (6, self.consume),
            (5, self.begin),
            (12, self.add),
            (6, self.finish),
            (5, self.outlive),
            (4, self.fail_back),
            (5, self.create_again),
            (8, self.mirror),
            (5, self.promote),
            (5, self.retire),
            (4, self.lose_root),
            (4, self.return_root),
            (3, self.maintain),
            (2, self.write_as_lone_client),
            (3, self.check_defaults),
            (4, self.check_some),
        ]
        for _ in range(acts):
            act = self.random.choices([act for _, act in choices], [weight for weight, _ in choices])[0]
            try:
                act()
            except KafkaError as error:
                # Only where a root is away; what the act has done is looked up then.
                if not any(side.gone for side in self.sides):
                    raise
                self.failed[f"{act.__name__}: {type(error).__name__}"] += 1
            else:
                self.done[act.__name__] += 1
            for side in self.sides:
                assert side.gone is None or not side.gone.exists(), "something was made in the place of a lost root"
        self.check_all()

    def _value(self) -> bytes:
        self.count += 1
        return b"%d" % self.count

    def _client(self, side: Side) -> Cluster:
        return self.random.choice(side.early) if self.random.random() < 0.5 else side.opened()

    def _any_topic(self) -> tuple[Side, Topic] | None:
        side = self.random.choice(self.sides)
        return (side, self.random.choice(list(side.topics.values()))) if side.topics else None

    def create(self, name: str) -> None:
        """Create a topic at the cluster that is to have it."""
        number = self.owner.setdefault(name, 0)
        side = self.sides[number]
        self._client(side).create_topic(name, len(PARTITIONS), {})
        side.topics[name] = Topic(name)

    def append(self) -> None:
        found = self._any_topic()
        if found is None:
            return
        self._append(*found, self.random.choice(PARTITIONS))

    def _append(self, side: Side, topic: Topic, partition: int) -> None:
        value = self._value()
        made = batch((partition, value), at_ms=SYSTEM_CLOCK.now_ms() - OLD_MS)
        self._written(side, topic, partition, value, lambda: self._client(side).log(topic.name).append(made))

    def send(self) -> None:
        """By a producer that stays open."""
        found = self._any_topic()
        if found is None:
            return
        side, topic = found
        producer = side.producer = side.producer or KafkaProducer(bootstrap_servers=side.early[0], max_block_ms=5_000)
        partition, value = self.random.choice(PARTITIONS), self._value()
        stamp = SYSTEM_CLOCK.now_ms() - OLD_MS
        self._written(
            side,
            topic,
            partition,
            value,
            lambda: producer.send(topic.name, value, partition=partition, timestamp_ms=stamp).get(20),
        )

    def _written(self, side: Side, topic: Topic, partition: int, value: bytes, write: Callable[[], object]) -> None:
        try:
            write()
        except NotEnoughReplicasError:
            if side.gone is None:
                raise
            return
        except KafkaError:
            side.bring_back()
            if values(side.opened(), topic.name, partition)[-1:] == [value]:
                topic.records[partition].append(value)
            return
        topic.records[partition].append(value)

    def consume(self) -> None:
        """A group reads on from its offset, and commits."""
        found = self._any_topic()
        if found is not None:
            self._consume(*found, self.random.choice(GROUPS), self.random.choice(PARTITIONS))

    def _consume(self, side: Side, topic: Topic, group: str, partition: int) -> None:
        """What a group reads is what the model has behind the offset that the group has committed."""
        tp = TopicPartition(topic.name, partition)
        cluster = self._client(side)
        ids = {topic.name: str(cluster.topic(topic.name).topic_id)}
        offsets = GroupOffsets.of(cluster, SYSTEM_CLOCK)
        known = offsets.committed(group, [tp], ids).get(tp)
        since = topic.committed.get((group, partition), 0)
        assert (known.offset if known else 0) == since, (group, tp)
        with KafkaConsumer(
            bootstrap_servers=cluster, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            consumer.assign([tp])
            read: list[bytes | None] = []
            while polled := consumer.poll(timeout_ms=0):
                read += [record.value for record in polled[tp]]
            end = consumer.position(tp)
        expected = topic.records[partition][since:]
        if side.gone is not None and end < len(topic.records[partition]):
            # Until another replica takes over from the lost leader, a client sees what it saw before. It never goes
            # back.
            assert (read, max(end, since)) == (expected[: len(read)], end), (group, tp, since, read)
            self.failed["consume: stale"] += 1
            return
        assert (read, end) == (expected, len(topic.records[partition])), (group, tp, since)
        try:
            offsets.commit(Membership(group_id=group), {tp: OffsetAndMetadata(end)}, ids)
        except KafkaError:
            side.bring_back()
            found_again = GroupOffsets.of(side.opened(), SYSTEM_CLOCK).committed(group, [tp], ids).get(tp)
            if found_again is not None:
                topic.committed[group, partition] = found_again.offset
            return
        topic.committed[group, partition] = end

    # --- transactions --------------------------------------------------------------------------

    def begin(self) -> None:
        if len(self.open) == OPEN_AT_MOST:
            return
        side = self.random.choice(self.sides)
        if not side.topics:
            return
        used = {one.producer.config.transactional_id for one in self.open}
        name = self.random.choice([name for name in (f"tx{n}" for n in range(2 * OPEN_AT_MOST)) if name not in used])
        self._begin(side, name)

    def _begin(self, side: Side, name: str) -> Open:
        """Open a transaction with a transactional id that no other open one has."""
        producer = KafkaProducer(bootstrap_servers=self._client(side), transactional_id=name, max_block_ms=5_000)
        one = Open(side, producer)
        try:
            producer.init_transactions()
            producer.begin_transaction()
        except KafkaError:
            producer.close(1)
            raise
        self.open.append(one)
        return one

    def add(self) -> None:
        """A record, or an offset of a group, to an open transaction."""
        if not self.open:
            return
        one = self.random.choice(self.open)
        if not one.side.topics:
            return
        topic, partition = self.random.choice(list(one.side.topics.values())), self.random.choice(PARTITIONS)
        # Half of them have offsets alone: records of a topic that is gone would be refused in any case.
        if one.offsets or self.random.random() < 0.5:
            self._give(one, topic, self.random.choice(GROUPS), partition)
            return
        self._put(one, topic, partition)

    def _put(self, one: Open, topic: Topic, partition: int) -> None:
        """Let a transaction write a record."""
        value = self._value()
        stamp = SYSTEM_CLOCK.now_ms() - OLD_MS
        try:
            one.producer.send(topic.name, value, partition=partition, timestamp_ms=stamp).get(20)
        except KafkaError as error:
            # By a producer that knows another topic of that name, or without a root.
            if not one.side.gone and one.is_sound and not isinstance(error, TopicDeletedError):
                raise
            self._abort(one)
            return
        one.records.append((topic, partition, value))

    def _give(self, one: Open, topic: Topic, group: str, partition: int) -> None:
        """Let a transaction commit an offset of a group."""
        at = self.random.randint(0, len(topic.records[partition]))
        mine = {t.name: t for t, _, _ in one.offsets}
        try:
            one.producer.send_offsets_to_transaction(
                {TopicPartition(topic.name, partition): OffsetAndMetadata(at)}, group
            )
        except KafkaError:
            if mine.get(topic.name, topic) is topic and not any(side.gone for side in self.sides):
                assert not one.is_sound
            self._abort(one)
            return
        one.offsets[topic, group, partition] = at

    def outlive(self) -> None:
        """A topic goes, and another one takes its name, while a transaction with its offsets alone is open.

        What may happen between the offset and the commit happens there or not: other topics, other offsets, records.
        """
        if not any(one.offsets and not one.records for one in self.open):
            self.begin()
            found = [one for one in self.open if not one.records]
            if not found:
                return
            one = self.random.choice(found)
            owned = [topic for name, topic in one.side.topics.items() if one.side is self.sides[self.owner[name]]]
            if not owned:
                return
            self._give(one, self.random.choice(owned), self.random.choice(GROUPS), self.random.choice(PARTITIONS))
            if one not in self.open:
                return
        one = self.random.choice([one for one in self.open if one.offsets and not one.records])
        given = list(one.offsets)
        topic = self.random.choice(given)[0]
        if one.is_sound and one.side is self.sides[self.owner[topic.name]]:
            self._create_again(topic.name)
            successor = one.side.topics[topic.name]
            for partition in PARTITIONS[: self.random.randint(0, len(PARTITIONS))]:
                self._append(one.side, successor, partition)
        if one in self.open:
            self._commit(one)
        for topic, group, partition in given:
            if topic.name in one.side.topics:
                self._consume(one.side, one.side.topics[topic.name], group, partition)

    def fail_back(self) -> None:
        """A topic with records of a transaction goes over, is written to there, comes back, and gets another one.

        What its cluster decided about the topic before it went is in what came back: it counts once.
        """
        name = self.random.choice(NAMES)
        home, other = self.sides[self.owner[name]], self.sides[1 - self.owner[name]]
        self._transact(home, name)
        self._go_over(name)
        self._append(other, other.topics[name], self.random.choice(PARTITIONS))
        self._go_over(name)
        self._transact(home, name)
        self._check_topic(home.opened(), home.topics[name])

    def _transact(self, side: Side, name: str) -> None:
        """A whole transaction with records of a topic and of any topic of its cluster."""
        one = self._begin(side, "back")
        for topic in (side.topics[name], self.random.choice(list(side.topics.values()))):
            if one in self.open:
                self._put(one, topic, self.random.choice(PARTITIONS))
        if one in self.open:
            self._commit(one)

    def _go_over(self, name: str) -> None:
        """A topic goes to the cluster that does not own it, in place of what that still has of it."""
        self._retire(name)
        self._mirror(name)
        self._promote(name)

    def finish(self) -> None:
        """Commit or abort a transaction: it has all of its records and offsets, or none."""
        if not self.open:
            return
        one = self.random.choice(self.open)
        if self.random.random() < 0.25:
            self._abort(one)
        else:
            self._commit(one)

    def _commit(self, one: Open) -> None:
        sound = one.is_sound
        for _ in range(5):
            try:
                one.producer.commit_transaction()
                break
            except UnknownTopicOrPartitionError:
                assert not sound
                self._abort(one)
                return
            except KafkaError:
                if not one.side.gone:
                    if sound:
                        raise
                    self._abort(one)
                    return
                one.side.bring_back()
        assert sound, "offsets or records for a topic that was deleted were committed"
        self._committed(one)

    def _abort(self, one: Open) -> None:
        for _ in range(5):
            try:
                one.producer.abort_transaction()
                break
            except InvalidTxnStateError:
                one.producer.commit_transaction()
                assert one.is_sound
                self._committed(one)
                return
            except KafkaError:
                one.side.bring_back()
        self._over(one)

    def _committed(self, one: Open) -> None:
        for topic, partition, value in one.records:
            topic.records[partition].append(value)
        for (topic, group, partition), at in one.offsets.items():
            topic.committed[group, partition] = at
        self._over(one)

    def _over(self, one: Open) -> None:
        self.open.remove(one)
        one.producer.close(5)

    # --- topics --------------------------------------------------------------------------------

    def create_again(self) -> None:
        """Another topic takes a name."""
        self._create_again(self.random.choice(NAMES))

    def _create_again(self, name: str) -> None:
        side = self.sides[self.owner[name]]
        self._surely(side, lambda: self._client(side).delete_topic(name))
        del side.topics[name]
        self._surely(side, lambda: self.create(name))

    def mirror(self) -> None:
        """One pass for a topic, to the cluster that does not own it."""
        self._mirror(self.random.choice(NAMES))

    def _mirror(self, name: str) -> None:
        source, target = self.sides[self.owner[name]], self.sides[1 - self.owner[name]]
        topic = source.topics[name]
        if name in target.topics:
            return
        if name in target.mirrors and target.mirrors[name][0] is not topic:
            self._surely(target, lambda: self._client(target).delete_topic(name))
            del target.mirrors[name]
        passed = None
        for _ in range(3):
            try:
                passed = Mirror(self._client(source), self._client(target), topics=[name]).run()
            except KafkaError:
                passed = None
            if passed is not None and passed.sound:
                break
            source.bring_back()
            target.bring_back()
        assert passed is not None
        assert passed.sound, passed
        target.mirrors[name] = topic, topic.copied()

    def promote(self) -> None:
        """A mirror becomes a topic, and its cluster the owner."""
        self._promote(self.random.choice(NAMES))

    def _promote(self, name: str) -> None:
        number = 1 - self.owner[name]
        side = self.sides[number]
        if name not in side.mirrors:
            return
        self._surely(side, lambda: promote(self._client(side), [name]))
        if len(side.roots) > 1:
            side.bring_back()
            side.opened().replication.reassign(name, [1, 2, 3])
            assert not side.opened().replication.replicate().failed
        side.topics[name] = side.mirrors.pop(name)[1]
        self.owner[name] = number

    def retire(self) -> None:
        """Delete what the former owner of a topic still has of it, so that it can be mirrored back."""
        self._retire(self.random.choice(NAMES))

    def _retire(self, name: str) -> None:
        side = self.sides[1 - self.owner[name]]
        if name in side.topics:
            self._surely(side, lambda: self._client(side).delete_topic(name))
            del side.topics[name]

    def _surely(self, side: Side, act: Callable[[], object]) -> None:
        """Do something that is not done by halves: again with all roots, where it fails without one."""
        if side.gone is None:
            act()
            return
        try:
            act()
        except KafkaError:
            side.bring_back()
            try:
                act()
            except (UnknownTopicOrPartitionError, KafkaError) as error:
                if "exist" not in str(error) and "no mirror" not in str(error):
                    raise

    # --- roots ---------------------------------------------------------------------------------

    def lose_root(self) -> None:
        side = self.random.choice(self.sides)
        if len(side.roots) > 1 and side.gone is None and side.topics:
            side.bring_back()  # all replicas have all
            # The first one half of the time: it has the properties, and was claimed first.
            side.gone = self.random.choice((side.roots[0], *side.roots[1:], side.roots[0]))
            away(side.gone)

    def return_root(self) -> None:
        self.random.choice(self.sides).bring_back()

    def write_as_lone_client(self) -> None:
        """A client that names one of several roots, from before they were a cluster, writes nothing."""
        side = self.random.choice(self.sides)
        if not side.lone or not side.topics or side.gone is not None:
            return
        client = self.random.choice(side.lone)
        name = self.random.choice(list(side.topics))
        for write in (
            lambda: client.create_topic(f"new-{self.count}", 1, {}),
            lambda: client.log(name).append(batch("lone")),
        ):
            try:
                write()
            except (UnsupportedVersionError, UnknownTopicOrPartitionError):
                continue
            raise AssertionError("a client of one root wrote past the other ones")

    # --- what must hold ------------------------------------------------------------------------

    def maintain(self) -> None:
        """Nothing is due: retention is off, by a default that stands at one root."""
        side = self.random.choice(self.sides)
        maintain(self._client(side) if self.random.random() < 0.3 else side.opened(), clock=SYSTEM_CLOCK)

    def check_defaults(self) -> None:
        """They hold for every new client, also where the root that says them is away."""
        side = self.random.choice(self.sides)
        if not side.topics:
            return
        cluster = side.opened()
        name = self.random.choice(list(side.topics))
        log = cluster.log(name)
        found = log.config.min_isr, cluster.server.effective(log.info.configs)["retention.ms"]
        assert found == (2 if len(side.roots) > 1 else 1, "-1"), found
        try:
            cluster.ensure_topic("not-there")
        except UnknownTopicOrPartitionError:
            return
        raise AssertionError("a topic was created by itself")

    def check_some(self) -> None:
        found = self._any_topic()
        if found is not None and found[0].gone is None:
            self._check_topic(found[0].opened(), found[1])

    def _check_topic(self, cluster: Cluster, topic: Topic) -> None:
        for partition in PARTITIONS:
            assert values(cluster, topic.name, partition) == topic.records[partition], (topic.name, partition)
        ids = {topic.name: str(cluster.topic(topic.name).topic_id)}
        for group in GROUPS:
            tps = [TopicPartition(topic.name, p) for p in PARTITIONS]
            known = GroupOffsets.of(cluster, SYSTEM_CLOCK).committed(group, tps, ids)
            expected = {p: topic.committed.get((group, p)) for p in PARTITIONS}
            assert {p: known[tp].offset if tp in known else None for p, tp in enumerate(tps)} == expected, group

    def check_all(self) -> None:
        """Everything, with all roots, by new clients; transactions that are open show nothing."""
        for side in self.sides:
            side.bring_back()
            cluster = side.opened()
            assert set(cluster.topics()) == set(side.topics) | set(side.mirrors)
            for topic in side.topics.values():
                self._check_topic(cluster, topic)
            for topic in (mirrored for _, mirrored in side.mirrors.values()):
                self._check_topic(cluster, topic)
            wrong = [
                found for found in verify(cluster, cluster.topics()).findings if found.kind != "committed-beyond-end"
            ]
            assert wrong == []
