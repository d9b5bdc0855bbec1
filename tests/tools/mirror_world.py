"""Mirror world: a source that much happens to, two mirrors of it that are cut off anywhere, and what must hold.

The target is copied at any moment, and the copy promoted: it must be a moment of the source.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from kafkalike.delta.actions import log_name
from kafkalike.delta.checkpoint import make_checkpoint
from kafkalike.delta.log_files import LogFiles
from kafkalike.delta.snapshot import load_snapshot
from kafkalike.errors import KafkaError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.group_offsets import GroupOffsets, Membership
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.producer import KafkaProducer
from kafkalike.replication.mirrors.mirror_sync import MirrorSync, SyncResult
from kafkalike.replication.mirrors.promotion import promote, promoting
from kafkalike.storage.memory import MemoryStorage
from tests.tools.clusters import on_three_disks
from tests.tools.records import batch
from tests.tools.transactional import values
from tests.tools.upkeep import AT_ONCE, EAGER, pairs_of

NAMES: Final = ("a", "b", "c")
TX: Final = TopicPartition("a", 0)


def copy_of(store: MemoryStorage) -> MemoryStorage:
    """Another root with the same files."""
    made = MemoryStorage(store.uri)
    made._disk.files.update(store._disk.files)
    return made


@dataclass
class MirrorWorld:
    """One history.

    Args:
        seed: of its random choices.
        roots: a folder in which the target is to have three roots; None: it has one, in memory.
    """

    seed: int
    roots: Path | None = None
    source: MemoryStorage = field(default_factory=lambda: MemoryStorage("memory://source"))
    target: MemoryStorage = field(default_factory=lambda: MemoryStorage("memory://target"))
    written: dict[tuple[str, int, int], str | None] = field(default_factory=dict)
    """Value by topic, partition and offset, of all records that there ever were."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.cluster = Cluster(self.source)
        for name, configs in (("a", AT_ONCE), ("b", AT_ONCE), ("c", EAGER)):
            self.cluster.create_topic(name, 2, configs)
        self.number = 0
        self.producer: KafkaProducer | None = None
        self.mirrors: list[Generator[str, None, SyncResult] | None] = [None, None]
        self.passed = 0
        self.promoted = 0
        self.tolerant = False
        self.strides = self.random.choice(((1, 3, 20), (1, 1, 2), (2, 5)))

    # --- the source ----------------------------------------------------------------------------

    def append(self) -> None:
        self._keyed(self.random.choice(NAMES))

    def _keyed(self, name: str) -> None:
        self.number += 1
        partition = self.random.randrange(2)
        made = batch((partition, f"{self.number}"), key=b"%d" % self.random.randrange(4), at_ms=SYSTEM_CLOCK.now_ms())
        self._note(name, self.cluster.log(name).append(made).ranges, [f"{self.number}"])

    def _note(self, name: str, ranges: Mapping[int, range], what: list[str]) -> None:
        for partition, offsets in ranges.items():
            for offset, value in zip(offsets, what, strict=True):
                self.written[name, partition, offset] = value

    def transaction(self, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
        """One into a and b, with the offset of a group; with a patch, it is cut off between the topics."""
        producer = self.producer
        if producer is None:
            producer = self.producer = KafkaProducer(bootstrap_servers=self.cluster, transactional_id="tx")
            producer.init_transactions()
        self.number += 1
        value = f"x{self.number}"
        producer.begin_transaction()
        for name in ("a", "b"):
            producer.send(name, value.encode(), key=b"x", partition=1)
        producer.send_offsets_to_transaction({TX: OffsetAndMetadata(0, value)}, "tx")
        if monkeypatch is None:
            producer.commit_transaction()
            return
        with monkeypatch.context() as patch:
            patch.setenv("KAFKALIKE_FAULT", "transaction.before_apply:raise@2")
            patch.setattr("kafkalike.model.faults._visits", {})
            with pytest.raises((KafkaError, OSError)):
                producer.commit_transaction()
        self.producer = None
        producer.close(0)

    def commit(self) -> None:
        """A group commits the log end."""
        info, name = self.cluster.topics(), self.random.choice(NAMES)
        log = self.cluster.log(name)
        offsets = {TopicPartition(name, p): OffsetAndMetadata(log.log_end(p), "") for p in (0, 1)}
        GroupOffsets.of(self.cluster, SYSTEM_CLOCK).commit(
            Membership(group_id="g"), offsets, {name: info[name].topic_id}
        )

    def upkeep(self) -> None:
        maintain(self.cluster, ["c", "a"], clock=SYSTEM_CLOCK, works=["compaction", "merge", "vacuum"])

    def drop_records(self) -> None:
        log = self.cluster.log("c")
        self.cluster.move_log_start("c", {0: max(log.log_start(0), log.log_end(0) - 1)}, "delete_records", "r")
        maintain(self.cluster, ["c"], clock=SYSTEM_CLOCK, works=["retention", "vacuum"])

    def clean_log(self) -> None:
        self.clean(self.cluster, self.random.choice(NAMES))

    @staticmethod
    def clean(cluster: Cluster, name: str) -> None:
        """As after a day: the log begins at a checkpoint."""
        files = cluster.files_of(cluster.topic(name))
        newest = load_snapshot(files)
        if newest.newest:
            make_checkpoint(files, newest, SYSTEM_CLOCK.now_ms())
            for version in LogFiles.listed(files).commits[:-1]:
                files.remove(log_name(version))

    def configure(self) -> None:
        known = self.cluster.topic("c")
        self.cluster.set_configs("c", {**known.configs, "retention.bytes": str(self.random.randrange(10**9, 10**10))})

    # --- the mirrors ---------------------------------------------------------------------------

    def opened(self) -> Cluster:
        """The target, as another process has it."""
        if self.roots is None:
            return Cluster(self.target)
        return on_three_disks(self.roots, **{"replica.lag.time.max.ms": "200"})

    def mirroring(self) -> MirrorSync:
        return MirrorSync(Cluster(self.source), self.opened(), lambda name: name in NAMES, lambda _: True)

    def advance(self) -> None:
        """Some acts of one of the mirrors; another process's each time that it begins."""
        at = self.random.randrange(2)
        for _ in range(self.random.choice(self.strides)):
            steps = self.mirrors[at]
            if steps is None:
                steps = self.mirrors[at] = self.mirroring().steps()
            try:
                next(steps)
            except StopIteration as end:
                self.mirrors[at] = None
                self.passed += 1
                problems = [topic.problem for topic in end.value.topics.values() if topic.problem]
                assert self.tolerant or not problems, problems

    def kill(self) -> None:
        at = self.random.randrange(2)
        steps, self.mirrors[at] = self.mirrors[at], None
        del steps

    # --- what must hold ------------------------------------------------------------------------

    def check_promoted(self) -> None:
        """A copy of the target, promoted now, is a moment of the source, and goes on."""
        copy = copy_of(self.target)
        cluster = Cluster(copy)
        names = [name for name, info in cluster.topics().items() if info.mirror is not None and info.mirror.run]
        if not names:
            return
        promote(cluster, names)
        self.promoted += 1
        if {"a", "b"} <= set(names):
            self._check_moment(cluster)
        for name in names:
            self._check_topic(cluster, name)
        if {"a", "b"} <= set(names):
            self._check_goes_on(cluster)

    def _check_moment(self, cluster: Cluster) -> None:
        """Of each transaction there is all or nothing."""
        transactions = [{v for v in map(_text, values(cluster, n, 1)) if v.startswith("x")} for n in ("a", "b")]
        assert transactions[0] == transactions[1]
        known = cluster.groups.refresh().group("tx").offsets.get(TX)
        last = max((int(v[1:]) for v in transactions[0]), default=0)
        assert (known.position.metadata if known else "x0") == f"x{last}"

    def _check_topic(self, cluster: Cluster, name: str) -> None:
        log = cluster.log(name)
        found = {(p, offset): value for p in log.info.partitions for offset, _, value in pairs_of(log, p)}
        for (partition, offset), value in found.items():
            assert self.written.get((name, partition, offset), value) == value
        for partition in log.info.partitions:
            end = log.log_end(partition)
            if name != "c":
                assert [o for p, o in found if p == partition] == list(range(end))
            for group in cluster.groups.refresh().groups.values():
                at = group.offsets.get(TopicPartition(name, partition))
                assert at is None or at.position.offset <= end

    def _check_goes_on(self, cluster: Cluster) -> None:
        """Appends and transactions take the next offsets; none is taken for one of the source's."""
        ends = {name: cluster.log(name).log_end(1) for name in ("a", "b")}
        with KafkaProducer(bootstrap_servers=cluster, transactional_id="tx") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for name in ends:
                producer.send(name, b"new", partition=1)
            producer.commit_transaction()
        for name, end in ends.items():
            assert values(cluster, name, 1)[end:] == [b"new"]
        again = Cluster(cluster.store) if self.roots is None else self.opened()
        again.transactions.cut(["a", "b"], _deadline())

    def promote_beside(self, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Promote the target itself, cut off again and again, while mirrors go on, and the source; then it is written.

        The mirrors may say that there is nothing to mirror any more; nothing of theirs may come in afterwards.
        """
        promotion: Generator[str, None, Any] | None = None
        done = False
        self.tolerant, self.strides = True, (1, 1, 2)
        for _ in range(steps):
            what = self.random.randrange(20)
            if what < 2:
                self.transaction(monkeypatch if self.random.randrange(2) else None)
            elif what < 3:
                self.kill()
            elif what < 15:
                self.advance()
            elif what < 16:
                promotion = None
            elif not done:
                promotion = promotion or promoting(self.opened(), self.left())
                try:
                    next(promotion)
                except StopIteration:
                    done = True
            done = done or not self.left()
        promote(self.opened(), self.left())
        cluster = self.opened()
        self._check_moment(cluster)
        self._check_goes_on(cluster)
        for _ in range(30):
            self.advance()
        assert values(cluster, "a", 1)[-1:] == [b"new"]
        assert not self.left()

    def left(self) -> list[str]:
        """Topics of the target that are mirrors."""
        return [name for name, info in self.opened().topics().items() if info.mirror is not None]

    def check_same(self) -> None:
        """Without faults the target comes to be as its source."""
        self.mirrors = [None, None]
        mirroring = self.mirroring()
        assert mirroring.run().sound
        last = mirroring.run()
        assert last.sound
        assert not last.offsets
        mine, theirs = self.opened(), Cluster(self.source)
        for name in NAMES:
            ours, own = mine.topic(name), theirs.topic(name)
            assert (ours.topic_id, ours.configs, ours.num_partitions) == (own.topic_id, own.configs, own.num_partitions)
            assert {p: s.offset for p, s in ours.log_starts.items()} == {p: s.offset for p, s in own.log_starts.items()}
            for partition in own.partitions:
                assert pairs_of(mine.log(name), partition) == pairs_of(theirs.log(name), partition)
                assert mine.log(name).log_end(partition) == theirs.log(name).log_end(partition)
        groups = theirs.groups.refresh().groups
        for group_id, group in groups.items():
            mirrored = mine.groups.refresh().group(group_id).offsets
            assert {tp: at.position for tp, at in group.offsets.items()} == {
                tp: at.position for tp, at in mirrored.items()
            }

    def run(self, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """So many random acts."""
        acts: list[tuple[int, Any]] = [
            (6, self.append),
            (3, self.transaction),
            (2, lambda: self.transaction(monkeypatch)),
            (2, self.commit),
            (1, self.upkeep),
            (1, self.drop_records),
            (1, self.clean_log),
            (1, self.configure),
            (14, self.advance),
            (2, self.kill),
            (3, self.check_promoted),
        ]
        for _ in range(steps):
            self.random.choices([act for _, act in acts], [weight for weight, _ in acts])[0]()


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode()


def _deadline() -> Any:
    from kafkalike.model.clock import Deadline

    return Deadline(SYSTEM_CLOCK, 10_000)
