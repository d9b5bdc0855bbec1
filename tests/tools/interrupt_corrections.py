"""Interrupted corrections: forgetting keys, undoing an append or a transaction, forking a topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import kafkalike
from kafkalike import ForgetOptions
from kafkalike.errors import IllegalArgumentError, TopicAlreadyExistsError
from kafkalike.maintenance.verify.certificate_file import check_certificate
from kafkalike.maintenance.verify.topic_history import topic_history
from kafkalike.model.maintenance.record_removal import parse_certificate
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import TopicPartition
from kafkalike.producer import KafkaProducer
from tests.tools.interrupt_world import HELD, World
from tests.tools.records import NOW_MS, all_records, open_log
from tests.tools.upkeep import AT_ONCE, keyed, open_cluster, pairs_of

TOPIC: Final = "keys"
KEY: Final = "forget-me-0123456789"

Pairs = list[tuple[int, str | None, str | None]]


class Correcting(World):
    """A topic of three appends, each with the key and another one."""

    rewritten = frozenset({TOPIC})

    def prepare(self) -> None:
        self.cluster.create_topic(TOPIC, 1, {**AT_ONCE, "retention.ms": "-1"})
        log = open_log(self.cluster, TOPIC)
        for turn in range(3):
            log.append(keyed((KEY, f"gone-{turn}"), (f"other-{turn}", f"kept-{turn}"), at_ms=NOW_MS + turn))

    def pairs(self, topic: str = TOPIC) -> Pairs:
        """What a client that comes new reads."""
        return pairs_of(open_log(open_cluster(self.root), topic))


class Forget(Correcting):
    """Keys are forgotten, with a certificate; the next run with the same one ends what was begun."""

    def prepare(self) -> None:
        super().prepare()
        self.paper = Path(f"{self.root}.certificate")

    def forget(self) -> None:
        kafkalike.forget(
            TOPIC,
            self.cluster,
            keys=KEY,
            dry_run=False,
            options=ForgetOptions(tombstone=True, now=True, certificate=self.paper),
        )

    def operate(self) -> None:
        self.forget()

    def check(self) -> Iterator[str]:
        try:
            self.forget()
        except IllegalArgumentError:  # a certificate that is finished is used once
            if not parse_certificate(self.paper.read_text()).finished:
                raise
        found = self.pairs()
        if [(key, value) for _, key, value in found if key != KEY] != [(f"other-{n}", f"kept-{n}") for n in range(3)]:
            yield f"other keys: {found}"
        if [value for _, key, value in found if key == KEY and value is not None]:
            yield f"the key is still there: {found}"
        if not any(key == KEY for _, key, _ in found):
            yield "no tombstone"
        certificate = parse_certificate(self.paper.read_text())
        report = check_certificate(open_cluster(self.root), certificate, [KEY.encode()])
        yield from (f"certificate: {finding}" for finding in report.findings if not finding.warning)

    def end(self) -> None:
        self.paper.unlink(missing_ok=True)


class Undo(Correcting):
    """An append is undone; asked again, it is gone, and nothing else is."""

    def prepare(self) -> None:
        super().prepare()
        self.append = [one for event in topic_history(self.cluster, TOPIC) for one in event.appends][1]

    def operate(self) -> None:
        kafkalike.undo(TOPIC, self.append, self.cluster, dry_run=False)

    def check(self) -> Iterator[str]:
        if (found := self.pairs()) not in (self.left(), sorted([*self.left(), *self.taken()])):
            yield f"half undone: {found}"
        self.operate()
        if (found := self.pairs()) != self.left():
            yield f"undone twice, and there is {found}"

    def taken(self) -> Pairs:
        return [(2, KEY, "gone-1"), (3, "other-1", "kept-1")]

    def left(self) -> Pairs:
        return [
            (2 * n + at, k, f"{v}-{n}") for n in (0, 2) for at, k, v in ((0, KEY, "gone"), (1, f"other-{n}", "kept"))
        ]


class Repartition(Correcting):
    """More partitions; called again, it goes on, and the records are where their keys belong."""

    def operate(self) -> None:
        kafkalike.repartition(TOPIC, 2, self.cluster)

    def check(self) -> Iterator[str]:
        done = kafkalike.repartition(TOPIC, 2, open_cluster(self.root))
        if done.partitions != 2:
            yield f"partitions: {done}"
        found = sorted(pair for pairs in all_records(self.root, TOPIC).values() for pair in pairs)
        if found != [(2 * n + at, f"{value}-{n}") for n in range(3) for at, value in enumerate(("gone", "kept"))]:
            yield f"records: {found}"


class UndoTransaction(World):
    """A transaction of two topics is undone; asked again, it is gone from both."""

    rewritten = frozenset({"one", "two"})

    def prepare(self) -> None:
        for name in ("one", "two"):
            self.cluster.create_topic(name, 1, {**AT_ONCE, "retention.ms": "-1"})
            open_log(self.cluster, name).append(keyed(("k", "before"), at_ms=NOW_MS))
        with KafkaProducer(bootstrap_servers=self.cluster, transactional_id="x") as producer:
            producer.init_transactions()
            with kafkalike.transaction(producer):
                for name in ("one", "two"):
                    producer.send(name, b"within", partition=0)
        for name in ("one", "two"):
            open_log(self.cluster, name).append(keyed(("k", "after"), at_ms=NOW_MS))
        self.append = [one for event in topic_history(self.cluster, "one") for one in event.appends][1]

    def operate(self) -> None:
        kafkalike.undo(["one", "two"], self.append, self.cluster, dry_run=False)

    def check(self) -> Iterator[str]:
        self.operate()
        for name in ("one", "two"):
            if (found := all_records(self.root, name)) != {0: [(0, "before"), (2, "after")]}:
                yield f"{name} holds {found}"


class Fork(World):
    """A topic is forked with a group's offsets: as a whole, or empty; the next fork is whole."""

    rewritten = frozenset({"fork", "once-more"})

    def fork(self, new: str) -> None:
        kafkalike.fork("t", new, self.cluster, groups=["g"])

    def operate(self) -> None:
        self.fork("fork")

    def check(self) -> Iterator[str]:
        whole = {p: list(enumerate(HELD["t", p])) for p in range(2)}
        self.fork("once-more")
        if all_records(self.root, "once-more") != whole:
            yield f"once-more: {all_records(self.root, 'once-more')}"
        offsets = open_cluster(self.root).groups.refresh().group("g").offsets
        if offsets[TopicPartition("once-more", 1)].position.offset != 1:
            yield f"the group's offsets are {dict(offsets)}"
        try:
            self.fork("fork")
        except TopicAlreadyExistsError:
            if (found := all_records(self.root, "fork")) not in (whole, {0: [], 1: []}):
                yield f"fork: {found}"
        # What is written to one is not in the other.
        made = RecordBatch()
        made.add(0, None, b"new", NOW_MS)
        open_log(self.cluster, "once-more").append(made)
        if all_records(self.root) != whole:
            yield f"the source holds {all_records(self.root)}"


CORRECTION_CASES: Final[tuple[type[World], ...]] = (Forget, Undo, UndoTransaction, Fork, Repartition)
