"""Judged copier worker: a member of a group that copies records to two topics in transactions, and writes a history.

Every transaction has the records of one poll. Some are aborted on purpose, some hang for a while before their commit.
A producer that was fenced by maintenance begins anew; one whose id another process has taken ends.
"""

import random
import sys
import time
import zlib
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any

from kafkalike import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer
from kafkalike.consumer.offset_commits import Polled, offsets_after
from kafkalike.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    KafkaStorageError,
    KafkaTimeoutError,
    ProducerFencedError,
    RebalanceInProgressError,
    TransactionAbortableError,
    UnknownOutcomeError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.structs import TopicPartition
from tests.jepsen.history import Recorder
from tests.processes.workers.common import cluster, orders, told_to_stop, wait_for_go

AGAIN = (KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError)
NOT_COMMITTED = (
    CommitFailedError,
    FencedInstanceIdError,
    InvalidProducerEpochError,
    ProducerFencedError,
    RebalanceInProgressError,
    TransactionAbortableError,
)
"""Errors of a commit that say that nothing was committed, if no call before it went without an answer."""
TRIES = 20

Sends = list[tuple[str, int, str]]
"""Topic, partition and value of each record."""


class Copier(ConsumerRebalanceListener):
    """One member, and its producer."""

    def __init__(self, asked: dict[str, Any], place: Cluster, recorder: Recorder) -> None:
        self.asked = asked
        self.place = place
        self.recorder = recorder
        self.chance = random.Random(asked["seed"])
        self.owned: set[TopicPartition] = set()
        self.count = 0
        self.lost: KafkaError | None = None
        self.consumer = KafkaConsumer(
            bootstrap_servers=place,
            group_id=asked["group"],
            client_id=asked["name"],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=asked["session_ms"],
            heartbeat_interval_ms=asked["session_ms"] / 5,
            partition_assignment_strategy=[asked["strategy"]],
            max_poll_records=asked["most"],
        )
        self.producer = self._producer()

    def _producer(self) -> KafkaProducer:
        return KafkaProducer(
            bootstrap_servers=self.place,
            transactional_id=self.asked["transactional_id"],
            transaction_timeout_ms=self.asked["timeout_ms"],
            client_id=self.asked["name"],
            batch_size=512,
        )

    # --- what the history says -----------------------------------------------------------------

    def begin(self) -> None:
        """Take the transactional id."""
        said = {"transactional_id": self.asked["transactional_id"]}
        self.recorder.event("invoke", "init", None, **said)
        for left in reversed(range(TRIES)):
            try:
                self.producer.init_transactions()
                break
            except AGAIN:
                if not left:
                    raise
        manager = self.producer._transactions
        session = None if manager is None else manager._session
        assert session is not None
        # A new producer id's epochs begin at 0 again.
        self.epoch = session.producer_id * 100_000 + session.epoch
        self.recorder.event("ok", "init", None, epoch=self.epoch, **said)

    def on_partitions_revoked(self, revoked: AbstractSet[TopicPartition]) -> None:
        self._owns(self.owned - revoked, "revoked", revoked)

    def on_partitions_assigned(self, assigned: AbstractSet[TopicPartition]) -> None:
        self._owns(self.owned | assigned, "assigned", assigned)

    def on_partitions_lost(self, lost: AbstractSet[TopicPartition]) -> None:
        self._owns(self.owned - lost, "lost", lost)

    def _owns(self, owned: Iterable[TopicPartition], how: str, which: AbstractSet[TopicPartition]) -> None:
        self.owned = set(owned)
        extra = {"how": how, "which": _names(which), "group": self.asked["group"]}
        self.recorder.event("invoke", "assign", _names(self.owned), **extra)
        self.recorder.event("ok", "assign", _names(self.owned), **extra)

    # --- one transaction -----------------------------------------------------------------------

    def step(self) -> None:
        """Copy what one poll gives."""
        polled = self.consumer.poll(timeout_ms=100)
        if not polled:
            return
        self.count += 1
        tag = f"{self.asked['name']}.{self.count}"
        sends: Sends = []
        for tp, records in polled.items():
            for record in records:
                value = f"{record.value.decode()}@{tag}"
                other = zlib.crc32(record.key) % self.asked["others"]
                sends += [(self.asked["outputs"][0], tp.partition, value), (self.asked["outputs"][1], other, value)]
        extra: dict[str, Any] = {
            "transactional_id": self.asked["transactional_id"],
            "epoch": self.epoch,
            "group": self.asked["group"],
            "offsets": {_name(tp): at.offset for tp, at in offsets_after(polled).items()},
        }
        read = ["poll", {_name(tp): [[r.offset, r.value.decode()] for r in some] for tp, some in polled.items()}]
        asked = [read, *(["send", f"{topic}-{p}", value] for topic, p, value in sends)]
        self.recorder.event("invoke", "txn", asked, **extra)
        kind, told = self._outcome(polled, sends, extra)
        done = [read, *(["send", f"{topic}-{p}", [told.get((topic, p, v)), v]] for topic, p, v in sends)]
        self.recorder.event(kind, "txn", done, **extra)
        self._take_the_id_again()
        if kind != "ok":
            self._go_back(polled)

    def _outcome(
        self, polled: Polled, sends: Sends, extra: dict[str, Any]
    ) -> tuple[str, dict[tuple[str, int, str], int]]:
        """What became of it, in the history's words, and the offsets of its records."""
        producer = self.producer
        try:
            producer.begin_transaction()
            keys = [r.key for some in polled.values() for r in some for _ in range(2)]
            for (topic, partition, value), key in zip(sends, keys, strict=True):
                producer.send(topic, value.encode(), key=key, partition=partition)
            producer.send_offsets_to_transaction(offsets_after(polled), self.consumer.group_metadata())
            if self.chance.random() < self.asked["hangs"]:
                producer.flush()
                time.sleep(self.chance.random() * self.asked["timeout_ms"] / 1000)
            if self.chance.random() < self.asked["aborts"]:
                producer.abort_transaction()
                return "fail", {}
        except (InvalidProducerEpochError, ProducerFencedError) as error:
            self._lost_id(error)
            return "fail", {}
        except KafkaError as error:
            return self._abort(error, "fail"), {}
        return self._commit(sends, extra)

    def _commit(self, sends: Sends, extra: dict[str, Any]) -> tuple[str, dict[tuple[str, int, str], int]]:
        extra["commit_invoked"] = time.monotonic_ns()
        unsure = False
        for _ in range(TRIES):
            try:
                ranges = self.producer.commit_transaction()
            except AGAIN:
                unsure = True
            except NOT_COMMITTED as error:
                kind = "info" if unsure else "fail"
                if isinstance(error, (InvalidProducerEpochError, ProducerFencedError)):
                    self._lost_id(error)
                    return kind, {}
                return self._abort(error, kind), {}
            else:
                left = {tp: iter(run) for tp, run in ranges.items()}
                return "ok", {
                    (topic, p, value): next(left[TopicPartition(topic, p)])
                    for topic, p, value in sends
                    if TopicPartition(topic, p) in left
                }
        raise AssertionError("the commit was never answered")

    def _abort(self, error: KafkaError, kind: str) -> str:
        print(f"again after {error!r}", file=sys.stderr, flush=True)  # noqa: T201 - for a test that fails
        for _ in range(TRIES):
            try:
                self.producer.abort_transaction()
            except AGAIN:
                continue
            except InvalidTxnStateError:
                raise
            except (InvalidProducerEpochError, ProducerFencedError) as lost:
                self._lost_id(lost)
                return kind
            else:
                return kind
        raise AssertionError("the abort was never answered")

    def _lost_id(self, error: KafkaError) -> None:
        """Keep it in mind until the history has the end of the transaction."""
        self.lost = error

    def _take_the_id_again(self) -> None:
        """Begin anew after maintenance; end where another process has the id."""
        error, self.lost = self.lost, None
        if error is None:
            return
        self.producer.close()
        if isinstance(error, ProducerFencedError):
            raise error
        self.producer = self._producer()
        self.begin()

    def _go_back(self, polled: Polled) -> None:
        """Read again what was not copied, as far as it is still this member's."""
        back = {tp: records[0].offset for tp, records in polled.items()}
        self.recorder.event("invoke", "seek", {_name(tp): offset for tp, offset in back.items()})
        for tp, offset in back.items():
            if tp in self.consumer.assignment():
                self.consumer.seek(tp, offset)
        self.recorder.event("ok", "seek", {_name(tp): offset for tp, offset in back.items()})


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"


def _names(partitions: Iterable[TopicPartition]) -> list[str]:
    return sorted(map(_name, partitions))


def main() -> None:
    asked = orders()
    with Recorder(asked["history"], asked["name"], asked["input"]) as recorder:
        copier = Copier(asked, cluster(asked["root"]), recorder)
        wait_for_go()
        stop = told_to_stop()
        try:
            copier.begin()
            copier.consumer.subscribe([asked["input"]], listener=copier)
            while not stop.is_set():
                copier.step()
        except ProducerFencedError:
            print("fenced", flush=True)  # noqa: T201 - the test reads it
        finally:
            copier.consumer.close()
            copier.producer.close()


if __name__ == "__main__":
    main()
