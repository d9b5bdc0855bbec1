"""Cases: what is interrupted, one class for each operation; `CASES` names them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from kafkalike.admin import KafkaAdminClient
from kafkalike.consumer import KafkaConsumer
from kafkalike.delta.checkpoint import make_checkpoint
from kafkalike.delta.log_files import last_checkpoint
from kafkalike.delta.snapshot import load_snapshot
from kafkalike.errors import IllegalStateError, KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.maintenance.fork import restore_as
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.structs import NewTopic, TopicPartition
from kafkalike.model.transactions import transaction_protocol as protocol
from kafkalike.model.transactions.rules import CommitRequest
from kafkalike.producer import KafkaProducer
from kafkalike.producer.future import FutureBatchMetadata, FutureRecordMetadata
from tests.tools.interrupt_world import HELD, PATIENCE_MS, Place, World, commit
from tests.tools.records import NOW_MS, all_records, batch, open_log
from tests.tools.upkeep import AT_ONCE, EAGER, keyed, open_cluster

ROUNDS: Final = 100
"""Polls after which a consumer that has not read everything never will; each waits for up to 50 ms."""


class Refresh(World):
    """A look at the metadata, the groups and a log after another client has changed all of them."""

    def prepare(self) -> None:
        self.log = open_log(self.cluster)
        self.cluster.groups.refresh()
        other = open_cluster(self.root)
        other.create_topic("n", 1, {"retention.ms": "-1"})
        open_log(other, "n").append(batch((0, "n0")))
        self.before["n", 0] = ["n0"]
        other.set_configs("t", {"retention.ms": "-1", "retention.bytes": "-1"})
        other.move_log_start("t", {0: 1}, "delete_records", "other")
        self.before["t", 0].pop(0)
        open_log(other).append(batch((0, "a3"), (1, "b2")))
        self.before["t", 0].append("a3")
        self.before["t", 1].append("b2")
        commit(other, "g", TopicPartition("t", 1), 2)
        other.delete_topic("u")
        del self.before["u", 0]

    def operate(self) -> None:
        self.cluster.metadata.refresh()
        self.cluster.groups.refresh()
        self.log.refresh()

    def logs(self) -> Mapping[str, TopicLog]:
        return {"t": self.log}


class FirstLoad(World):
    """The first look of a client at everything."""

    def operate(self) -> None:
        self.cluster.metadata.refresh()
        self.cluster.groups.refresh()
        self.cluster.log("t")


class Append(World):
    """Two appends to a log that stays open, with another client's append before them."""

    def prepare(self) -> None:
        self.log = open_log(self.cluster)
        open_log(open_cluster(self.root)).append(batch((0, "a3")))
        self.before["t", 0].append("a3")

    def operate(self) -> None:
        for number in range(2):
            records = [(p, self.sends(("t", p), f"new-{number}-{p}")) for p in range(2)]
            done = self.log.append(batch(*records), timeout_ms=PATIENCE_MS)
            for p, value in records:
                self.told(("t", p), value, done.ranges[p].start)

    def logs(self) -> Mapping[str, TopicLog]:
        return {"t": self.log}


class Send(World):
    """A producer that sends to a known, an unknown and a missing topic, and flushes."""

    def prepare(self) -> None:
        self.producer = KafkaProducer(bootstrap_servers=self.cluster, delivery_timeout_ms=PATIENCE_MS)
        self.futures: list[tuple[Place, str, FutureRecordMetadata]] = []
        self.producer.send("t", self.sends(("t", 0), "first").encode(), partition=0).get(timeout=30)

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self.sends((topic, partition), value)
        future = self.producer.send(topic, value.encode(), partition=partition)
        self.futures.append(((topic, partition), value, future))

    def send_some(self) -> None:
        self.send("t", "new-0")
        self.send("t", "new-1", 1)
        self.send("u", "new-2")
        self.send("made", "new-3")

    def operate(self) -> None:
        self.send_some()
        self.producer.flush()

    def check(self) -> Iterator[str]:
        self.send("t", "later-0")
        self.send("made", "later-1")
        self.producer.flush(PATIENCE_MS / 1000)
        yield from self.settled()

    def settled(self) -> Iterator[str]:
        for place, value, future in self.futures:
            if not future.is_done:
                yield f"{place}: {value} has no outcome"
            elif not future.succeeded():
                yield f"{place}: {value} failed with {future.exception!r}"
            else:
                self.told(place, value, future.get(timeout=0).offset)

    def end(self) -> None:
        self.producer.close(PATIENCE_MS / 1000)


class SendTables(Send):
    """A producer that sends tables between records."""

    def send_some(self) -> None:
        self.send("t", "new-0")
        for number in range(2):
            self.sends(("t", 0), f"table-{number}")
            table = pa.table({"value": [f"table-{number}"], "partition": [0]})
            self.tables.append((f"table-{number}", self.producer.send_arrow("t", table)))
            self.send("t", f"between-{number}")

    def prepare(self) -> None:
        super().prepare()
        self.tables: list[tuple[str, FutureBatchMetadata]] = []

    def settled(self) -> Iterator[str]:
        yield from super().settled()
        for value, future in self.tables:
            if not future.succeeded():
                yield f"{value} failed with {future.exception!r}"
            else:
                self.told(("t", 0), value, future.get(timeout=0).offsets[0].start)


class SendTablesTogether(SendTables):
    """A producer whose tables wait behind each other, as its sender is busy, and share a commit."""

    def prepare(self) -> None:
        super().prepare()
        self.inside, self.go_on = threading.Event(), threading.Event()
        self.send("u", "held")
        self.futures[-1][-1].add_callback(self.hold)
        assert self.inside.wait(PATIENCE_MS / 1000)

    def hold(self, _: object) -> None:
        self.inside.set()
        self.go_on.wait(PATIENCE_MS / 1000)

    def send_some(self) -> None:
        for number in range(3):
            self.sends(("t", 0), f"table-{number}")
            table = pa.table({"value": [f"table-{number}"], "partition": [0]})
            self.tables.append((f"table-{number}", self.producer.send_arrow("t", table)))
        self.go_on.set()

    def check(self) -> Iterator[str]:
        self.go_on.set()
        yield from super().check()

    def end(self) -> None:
        self.go_on.set()
        super().end()


class CloseProducer(Send):
    """A producer that is closed with records under way; closed again, it has sent everything."""

    def prepare(self) -> None:
        super().prepare()
        self.producer = KafkaProducer(bootstrap_servers=self.cluster, linger_ms=5000)
        self.send_some()

    def operate(self) -> None:
        self.producer.close()

    def check(self) -> Iterator[str]:
        self.producer.close(PATIENCE_MS / 1000)
        yield from self.settled()


class Reading(World):
    """What the cases with a consumer share: everything is handed out, and nothing beyond it is committed."""

    group: str | None = "readers"
    auto: bool = False

    def consumer(self, **settings: Any) -> KafkaConsumer:
        """A consumer of the client's cluster."""
        return KafkaConsumer(
            bootstrap_servers=self.cluster,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=self.auto,
            auto_commit_interval_ms=0 if self.auto else 5000,
            max_poll_records=2,
            **settings,
        )

    def prepare(self) -> None:
        self.got: dict[Place, set[int]] = {}
        self.consumers = self.start()

    def start(self) -> list[KafkaConsumer]:
        """The consumers, as far as the operation needs them."""
        consumer = self.consumer()
        consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
        return [consumer]

    def poll(self, consumer: KafkaConsumer) -> int:
        """Poll once, and note what came."""
        found = consumer.poll(timeout_ms=50)
        for tp, records in found.items():
            self.got.setdefault((tp.topic, tp.partition), set()).update(r.offset for r in records)
        return sum(map(len, found.values()))

    def live(self) -> list[KafkaConsumer]:
        """Consumers that are to read everything in the end."""
        return self.consumers

    def wanted(self) -> dict[Place, set[int]]:
        """What must have been handed out in the end."""
        return {("t", p): set(range(len(self.before["t", p]))) for p in range(2)}

    def missing(self) -> dict[Place, list[int]]:
        return {p: sorted(rest) for p, all_of in self.wanted().items() if (rest := all_of - self.got.get(p, set()))}

    def committed_too_far(self, when: str) -> Iterator[str]:
        """Offsets that the group has committed beyond what was handed out."""
        groups = open_cluster(self.root).groups.refresh()
        for tp, known in groups.group(self.group or "").offsets.items():
            below = set(range(known.position.offset)) - self.got.get((tp.topic, tp.partition), set())
            if below:
                yield f"{when}: {tp} is committed at {known.position.offset}, and {sorted(below)} were not handed out"

    def check(self) -> Iterator[str]:
        yield from self.committed_too_far("after the interrupt")
        try:
            self.commit_all()
        except KafkaError:
            if not self.may_be_out():
                raise
        yield from self.committed_too_far("after the next commit")
        self.read_on()
        if self.missing():
            yield f"never handed out: {self.missing()}"
        if not self.settled():
            yield f"assignments: {[sorted(c.assignment()) for c in self.live()]}"
        self.commit_all()
        yield from self.committed_too_far("in the end")

    def commit_all(self) -> None:
        """Let every consumer commit what it has read, if it has a group."""
        for consumer in self.live() if self.group is not None else ():
            consumer.commit()

    def read_on(self) -> None:
        """Poll until everything was handed out and each partition has its reader, or that will never be so."""
        for _ in range(ROUNDS):
            if not self.missing() and self.settled():
                return
            for consumer in self.live():
                self.poll(consumer)

    def may_be_out(self) -> bool:
        """Whether a consumer may be no member for a while."""
        return False

    def settled(self) -> bool:
        """Whether each partition has exactly one reader."""
        held = [tp for consumer in self.live() for tp in consumer.assignment()]
        return sorted(held) == [TopicPartition("t", 0), TopicPartition("t", 1)]

    def logs(self) -> Mapping[str, TopicLog]:
        found: Mapping[str, Any] = self.consumers[0]._context.logs._logs
        return found

    def end(self) -> None:
        for consumer in self.consumers:
            consumer.close(autocommit=False)


class Poll(Reading):
    """The first polls of a consumer that was given its partitions."""

    group = None

    def operate(self) -> None:
        for _ in range(3):
            self.poll(self.consumers[0])


class PollAndCommitAutomatically(Reading):
    """Polls that commit what the ones before them handed out."""

    auto = True

    def operate(self) -> None:
        for _ in range(3):
            self.poll(self.consumers[0])


class PollInGroup(Reading):
    """A consumer that joins a group, reads and commits."""

    def start(self) -> list[KafkaConsumer]:
        consumer = self.consumer()
        consumer.subscribe(["t"])
        return [consumer]

    def operate(self) -> None:
        for _ in range(3):
            self.poll(self.consumers[0])
        self.consumers[0].commit()

    def may_be_out(self) -> bool:
        return self.consumers[0]._context.member.membership is None  # type: ignore[union-attr]


class Commit(Reading):
    """A commit of a member that another member's row came before."""

    def start(self) -> list[KafkaConsumer]:
        consumer = self.consumer()
        consumer.subscribe(["t"])
        while self.poll(consumer) == 0:
            pass
        commit(open_cluster(self.root), "others", TopicPartition("t", 0), 2)
        return [consumer]

    def operate(self) -> None:
        self.consumers[0].commit()


class Join(Reading):
    """A second member joins, until both have a partition."""

    settings: Mapping[str, Any] = {}

    def start(self) -> list[KafkaConsumer]:
        first, second = self.consumer(**self.settings), self.consumer(**self.settings)
        first.subscribe(["t"])
        second.subscribe(["t"])
        while self.poll(first) == 0:
            pass
        return [first, second]

    def operate(self) -> None:
        for _ in range(4):
            for consumer in reversed(self.consumers):
                self.poll(consumer)

    def may_be_out(self) -> bool:
        return True

    def settled(self) -> bool:
        return super().settled() and all(consumer.assignment() for consumer in self.live())


class Leave(Join):
    """One of two members leaves, and the other one takes over."""

    settings: Mapping[str, Any] = {"session_timeout_ms": 1000, "heartbeat_interval_ms": 200}

    def start(self) -> list[KafkaConsumer]:
        self.left = False
        started = super().start()
        self.consumers = started
        while not self.settled():
            for consumer in started:
                self.poll(consumer)
        return started

    def operate(self) -> None:
        self.left = True
        self.consumers[1].close()
        self.poll(self.consumers[0])

    def live(self) -> list[KafkaConsumer]:
        return self.consumers[:1] if self.left else self.consumers

    def check(self) -> Iterator[str]:
        if self.left:
            # One whose closing was cut off is closed again, or else dies with its session.
            self.consumers[1].close()
        yield from super().check()


class CloseConsumer(Reading):
    """A consumer that commits and leaves; closed again, it has left."""

    auto = True

    def start(self) -> list[KafkaConsumer]:
        consumer = self.consumer()
        consumer.subscribe(["t"])
        while self.poll(consumer) == 0:
            pass
        return [consumer]

    def operate(self) -> None:
        self.consumers[0].close()

    def check(self) -> Iterator[str]:
        yield from self.committed_too_far("after the interrupt")
        self.consumers[0].close()
        members = open_cluster(self.root).groups.refresh().group(self.group or "").members
        if members:
            yield f"closed twice, and still members: {sorted(members)}"
        self.consumers = [self.consumer()]
        self.consumers[0].subscribe(["t"])
        yield from super().check()


class Create(World):
    """An admin client that creates two topics; asked again, they are there."""

    def prepare(self) -> None:
        self.admin = KafkaAdminClient(bootstrap_servers=self.cluster)
        self.admin.list_topics()

    def create(self, name: str) -> None:
        self.admin.create_topics([NewTopic(name, 2, topic_configs={"retention.ms": "-1"})])

    def operate(self) -> None:
        self.create("new-0")
        self.create("new-1")

    def check(self) -> Iterator[str]:
        for name in ("new-0", "new-1"):
            try:
                self.create(name)
            except TopicAlreadyExistsError:
                continue
        if not {"new-0", "new-1"} <= set(self.admin.list_topics()):
            yield f"topics that were created are missing: {self.admin.list_topics()}"

    def end(self) -> None:
        self.admin.close()


class Delete(Create):
    """An admin client that deletes a topic; asked again, it is gone, and its name is free."""

    gone = frozenset({"u"})

    def operate(self) -> None:
        self.admin.delete_topics(["u"])

    def check(self) -> Iterator[str]:
        with contextlib.suppress(UnknownTopicOrPartitionError):
            self.admin.delete_topics(["u"])
        if "u" in self.admin.list_topics():
            yield "u is still there"
        self.create("u")
        del self.before["u", 0]


class CloseAdmin(World):
    """An admin client that waits for the checkpoint that a thread of its cluster makes; closed again, it is closed."""

    def prepare(self) -> None:
        self.admin = KafkaAdminClient(bootstrap_servers=self.cluster)
        self.table = open_log(self.cluster).files
        self.cluster.helpers.start(lambda: make_checkpoint(self.table, load_snapshot(self.table), NOW_MS))

    def operate(self) -> None:
        self.admin.close()

    def refused(self) -> bool:
        """Whether the client is closed."""
        try:
            self.admin.list_topics()
        except IllegalStateError:
            return True
        return False

    def check(self) -> Iterator[str]:
        if self.refused():
            yield from self.under_way("closed")
        self.admin.close()
        self.admin.close()
        if not self.refused():
            yield "closed twice, and it still works"
        yield from self.under_way("closed twice")

    def under_way(self, when: str) -> Iterator[str]:
        """A checkpoint that `close` should have waited for."""
        if last_checkpoint(self.table) < 0:
            yield f"{when}, and the checkpoint is not there yet"


class Ensure(World):
    """Topics that are made when they are first needed, one of a name that was used before."""

    def prepare(self) -> None:
        other = open_cluster(self.root)
        self.cluster.topics()
        other.create_topic("used", 1, {})
        open_log(other, "used").append(batch((0, "old")))
        other.delete_topic("used")

    def operate(self) -> None:
        self.cluster.ensure_topic("made")
        self.cluster.ensure_topic("used")

    def check(self) -> Iterator[str]:
        first = [self.cluster.ensure_topic(name).topic_id for name in ("made", "used")]
        if first != [self.cluster.ensure_topic(name).topic_id for name in ("made", "used")]:
            yield "a topic was made twice"


class Maintain(World):
    """A run of maintenance that deletes, compacts, merges and removes files; the next one finishes it."""

    gone = frozenset({"old", "keys", "small"})
    rewritten = frozenset({"old", "keys", "small"})

    def prepare(self) -> None:
        for name, configs in (
            ("old", {**AT_ONCE, "retention.ms": "1", "segment.ms": "1"}),
            ("keys", EAGER),
            ("small", {**AT_ONCE, "retention.ms": "-1"}),
        ):
            self.cluster.create_topic(name, 1, configs)
            log = open_log(self.cluster, name)
            for turn in range(4):
                log.append(keyed(("k", f"{name}-{turn}"), (f"k{turn}", "x"), at_ms=NOW_MS + 10 * turn))

    def maintain(self) -> None:
        report = maintain(self.cluster, clock=SYSTEM_CLOCK)
        if report.failed:
            message = f"the run failed: {report}"
            raise AssertionError(message)

    def operate(self) -> None:
        # What it cannot read it may report.
        maintain(self.cluster, clock=SYSTEM_CLOCK)

    def check(self) -> Iterator[str]:
        self.maintain()
        self.maintain()
        kept = [value for _, value in all_records(self.root, "keys")[0] if value != "x"]
        # The newest segment is Kafka's active one, which is not compacted.
        if kept != ["keys-2", "keys-3"]:
            yield f"keys: holds {kept}"
        small = [value for _, value in all_records(self.root, "small")[0] if value != "x"]
        if small != [f"small-{turn}" for turn in range(4)]:
            yield f"small: holds {small}"
        if (end := self.cluster.log("old").log_end(0)) != 8:
            yield f"old: its log end is {end}, and 8 records were written"


class Restore(World):
    """A topic as it was two versions ago, under a new name: as a whole, or empty."""

    rewritten = frozenset({"again", "once-more"})

    def prepare(self) -> None:
        self.log = open_log(self.cluster)
        self.version = self.log.version
        self.log.append(batch((0, self.sends(("t", 0), "later"))))

    def operate(self) -> None:
        restore_as(self.cluster, "t", self.version, "again", "run")

    def check(self) -> Iterator[str]:
        restore_as(self.cluster, "t", self.version, "once-more", "run")
        whole = {p: list(enumerate(HELD["t", p])) for p in range(2)}
        if all_records(self.root, "once-more") != whole:
            yield f"once-more: {all_records(self.root, 'once-more')}"
        if "again" in self.cluster.topics():
            found = all_records(self.root, "again")
            if found not in (whole, {0: [], 1: []}):
                yield f"again: {found}"

    def logs(self) -> Mapping[str, TopicLog]:
        return {"t": self.log}


class Transact(World):
    """A transaction of one topic and a group, staged and committed; the same call goes on."""

    aborts = False

    def prepare(self) -> None:
        self.log = open_log(self.cluster)
        self.mine = self.cluster.transactions.begin_session("id", PATIENCE_MS, "c", self.soon())

    def soon(self) -> Deadline:
        return Deadline(SYSTEM_CLOCK, PATIENCE_MS)

    def operate(self) -> None:
        for p in range(2):
            value = f"new-{p}" if self.aborts else self.sends(("t", p), f"new-{p}")
            self.mine.stage(1, self.log, batch((p, value)))
        self.end_it()
        if not self.aborts:
            places = self.mine.commit(1, {}, self.soon())
            for p in range(2):
                self.told(("t", p), f"new-{p}", places["t"].ranges[p].start)

    def end_it(self) -> None:
        if self.aborts:
            self.mine.abort(1, self.soon())
        else:
            self.mine.commit(1, {}, self.soon())

    def check(self) -> Iterator[str]:
        self.end_it()
        self.log.refresh()
        self.mine.stage(2, self.log, batch((0, self.sends(("t", 0), "later"))))
        places = self.mine.commit(2, {}, self.soon())
        self.told(("t", 0), "later", places["t"].ranges[0].start)
        self.cluster.transactions.maintain(self.soon())
        for entry in self.cluster.store.list("__transactions", deep=True):
            yield f"{entry.name} is left"

    def logs(self) -> Mapping[str, TopicLog]:
        return {"t": self.log}


class AbortStaged(Transact):
    """The same aborted: nothing of it is ever there."""

    aborts = True


class TakeOver(World):
    """A new producer of an id whose last one was killed between its decision and its topic."""

    def prepare(self) -> None:
        other = open_cluster(self.root)
        mine = other.transactions.begin_session("id", PATIENCE_MS, "c", self.soon())
        for p in range(2):
            mine.stage(1, open_log(other), batch((p, self.sends(("t", p), f"new-{p}"))))
        opened = mine._current
        assert opened is not None
        driver = mine._drive(self.soon(), opened.held)
        wanted = CommitRequest(
            transactional_id="id", attempt=opened.attempt, parts=opened.parts(), offsets={}, settled=0
        )
        driver.run(protocol.deciding(wanted))

    def soon(self) -> Deadline:
        return Deadline(SYSTEM_CLOCK, PATIENCE_MS)

    def operate(self) -> None:
        self.cluster.transactions.begin_session("id", PATIENCE_MS, "c", self.soon())
        for p in range(2):
            self.told(("t", p), f"new-{p}", len(HELD["t", p]))

    def check(self) -> Iterator[str]:
        self.operate()
        self.cluster.transactions.maintain(self.soon())
        for entry in self.cluster.store.list("__transactions", deep=True):
            yield f"{entry.name} is left"


CASES: Final[tuple[type[World], ...]] = (
    Refresh,
    FirstLoad,
    Append,
    Send,
    SendTables,
    SendTablesTogether,
    CloseProducer,
    Poll,
    PollAndCommitAutomatically,
    PollInGroup,
    Commit,
    Join,
    Leave,
    CloseConsumer,
    Create,
    Delete,
    CloseAdmin,
    Ensure,
    Maintain,
    Restore,
    Transact,
    AbortStaged,
    TakeOver,
)
