"""Interrupted transactions: what is interrupted of a producer's transactions, one class for each operation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import kafkalike
from kafkalike.errors import IllegalStateError, InvalidTxnStateError, ProducerFencedError
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.producer import KafkaProducer
from tests.tools.interrupt_world import PATIENCE_MS, Place, World
from tests.tools.records import everything
from tests.tools.upkeep import open_cluster

TARGETS: Final[tuple[Place, ...]] = (("t", 0), ("t", 1), ("u", 0))
OFFSET: Final = 3
"""What a transaction commits for the group `g`."""


class Transacting(World):
    """A transaction that is to be committed into two topics and a group: all of it is there, or nothing."""

    values: tuple[str, ...] = ("tx-0", "tx-1", "tx-2")

    def prepare(self) -> None:
        self.producer = self.new_producer()
        self.producer.init_transactions()
        self.producer.begin_transaction()
        self.fill()
        self.producer.flush()

    def new_producer(self) -> KafkaProducer:
        """A producer of the transactional id."""
        return KafkaProducer(bootstrap_servers=self.cluster, transactional_id="x", delivery_timeout_ms=PATIENCE_MS)

    def fill(self) -> None:
        """Send a record to each partition, and an offset."""
        for (topic, partition), value in zip(TARGETS, self.values, strict=True):
            self.producer.send(topic, self.sends((topic, partition), value).encode(), partition=partition)
        self.producer.send_offsets_to_transaction({TopicPartition("t", 0): OffsetAndMetadata(OFFSET)}, "g")

    def is_committed(self) -> bool | None:
        """Whether everything is there; None when a part is."""
        fresh = open_cluster(self.root)
        found = [
            value in [v for _, v in everything(fresh.log(topic))[partition]]
            for (topic, partition), value in zip(TARGETS, self.values, strict=True)
        ]
        known = fresh.groups.refresh().group("g").offsets.get(TopicPartition("t", 0))
        found.append(known is not None and known.position.offset == OFFSET)
        return found[0] if len(set(found)) == 1 else None

    def outcome(self, expected: bool | None) -> Iterator[str]:  # noqa: FBT001
        """Say what is wrong; None: either outcome is right."""
        committed = self.is_committed()
        if committed is None or expected not in {None, committed}:
            yield f"committed: {committed} (None: a part of it), expected {expected}"

    def next_one(self) -> Iterator[str]:
        """Another transaction of the same producer."""
        self.producer.begin_transaction()
        self.producer.send("t", self.sends(("t", 1), "next").encode(), partition=1)
        ranges = self.producer.commit_transaction()
        self.told(("t", 1), "next", ranges[TopicPartition("t", 1)].start)
        return iter(())

    def end(self) -> None:
        self.producer.close(PATIENCE_MS / 1000)


class CommitOfProducer(Transacting):
    """A commit; asked for again, it has been made once."""

    def operate(self) -> None:
        self.producer.commit_transaction()

    def check(self) -> Iterator[str]:
        with contextlib.suppress(IllegalStateError):  # it was over
            self.producer.commit_transaction()
        if self.producer._transactions.phase != "ready":  # type: ignore[union-attr]
            yield "the commit cannot be asked for again"
        yield from self.outcome(expected=True)
        yield from self.next_one()


class CommitThenAbort(Transacting):
    """A commit that is cut off, and then given up: an abort says whether it was made."""

    def operate(self) -> None:
        self.producer.commit_transaction()

    def check(self) -> Iterator[str]:
        expected: bool | None = False
        try:
            self.producer.abort_transaction()
        except InvalidTxnStateError:
            expected = True
            self.producer.commit_transaction()
        except IllegalStateError:  # it was over
            expected = True
        yield from self.outcome(expected)
        yield from self.next_one()


class AbortOfProducer(Transacting):
    """An abort; asked for again, nothing is there."""

    def operate(self) -> None:
        self.producer.abort_transaction()

    def check(self) -> Iterator[str]:
        with contextlib.suppress(IllegalStateError):  # it was over
            self.producer.abort_transaction()
        yield from self.outcome(expected=False)
        yield from self.next_one()


class InitTransactions(Transacting):
    """A newer producer of the id takes over, while the older one has a transaction open."""

    def prepare(self) -> None:
        super().prepare()
        self.older, self.producer = self.producer, self.new_producer()

    def operate(self) -> None:
        self.producer.init_transactions()

    def check(self) -> Iterator[str]:
        self.producer.init_transactions()
        try:
            self.older.commit_transaction()
        except ProducerFencedError:
            pass
        else:
            yield "the older producer committed"
        yield from self.outcome(expected=False)
        yield from self.next_one()

    def end(self) -> None:
        self.older.close(PATIENCE_MS / 1000)
        super().end()


class TransactionBlock(Transacting):
    """A block of a program, from its begin to its end."""

    def prepare(self) -> None:
        self.producer = self.new_producer()

    def operate(self) -> None:
        with kafkalike.transaction(self.producer):
            self.fill()

    def check(self) -> Iterator[str]:
        yield from self.outcome(expected=None)
        self.producer.init_transactions()
        yield from self.next_one()


class CloseInTransaction(Transacting):
    """A producer that is closed with a transaction open; closed again, or followed by another one, it is aborted."""

    def operate(self) -> None:
        self.producer.close()

    def check(self) -> Iterator[str]:
        self.producer.close(PATIENCE_MS / 1000)
        yield from self.outcome(expected=False)
        self.producer = self.new_producer()
        self.producer.init_transactions()
        yield from self.next_one()


TRANSACTION_CASES: Final[tuple[type[World], ...]] = (
    CommitOfProducer,
    CommitThenAbort,
    AbortOfProducer,
    InitTransactions,
    TransactionBlock,
    CloseInTransaction,
)
