"""Idempotent producers behind several writers of an object store, who commit for each other, fail and lose answers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from kafkalike.errors import KafkaError
from kafkalike.log.topic.batch_payload import unpack_sequences
from kafkalike.log.topic.column_batch import column_batch
from kafkalike.log.topic.producer_append import BatchOutcome, SentBatch, append_batches
from kafkalike.model.appends.producer_sequences import ProducerEntry, SequencedBatch
from tests.contract.delta.test_combined_log import Place, combined_of
from tests.tools.effort import seeds
from tests.tools.records import NOW_MS, batch

SEEDS = seeds(200, 25)
MUTANT_SEEDS = 200
"""Within so many trials a fault must be found."""


def batch_of(values: list[str], partition: int) -> SentBatch:
    columns = {"value": pa.array([v.encode() for v in values]), "partition": pa.array([partition] * len(values))}
    return SentBatch(column_batch(pa.table(columns), NOW_MS))


@dataclass
class Producer:
    """Sends a numbered batch through any writer until it has an answer, as a client with one request under way."""

    number: int
    sent: int = 0
    pending: list[str] = field(default_factory=list)
    acked: dict[str, int] = field(default_factory=dict)

    def next_batch(self, rng: random.Random) -> SentBatch:
        if not self.pending:
            self.pending = [f"{self.number}.{self.sent + n}" for n in range(rng.randint(1, 3))]
        plain = batch_of(self.pending, self.number % 2)
        sequence = SequencedBatch(self.number, 0, self.number % 2, self.sent, len(self.pending))
        return SentBatch(plain.columns, sequence)

    def take(self, result: BatchOutcome) -> None:
        assert result.error is None, result.error
        for nth, value in enumerate(self.pending):
            self.acked[value] = result.base_offset + nth
        self.sent += len(self.pending)
        self.pending = []


class Gateway:
    """One process with a log of the topic; it may be asked again while it is busy, and refuses then."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.log = place.log()
        self.busy = False

    def serve(self, producers: list[Producer]) -> int:
        """Append what some producers have to send; return how many batches were in the log before."""
        free = [producer for producer in producers if producer not in serving]
        if self.busy or not free:
            return 0
        self.busy = True
        rng = self.place.mood.rng
        chosen = rng.sample(free, rng.randint(1, len(free)))
        serving.extend(chosen)
        try:
            batches = [producer.next_batch(rng) for producer in chosen]
            results = append_batches(self.log, batches, timeout_ms=rng.choice([200.0, 60_000.0]))
        except (KafkaError, OSError):
            return 0
        finally:
            self.busy = False
            for producer in chosen:
                serving.remove(producer)
        for producer, result in zip(chosen, results, strict=True):
            # The answer may be lost, too.
            if rng.random() > self.place.mood.trouble:
                producer.take(result)
        return sum(result.duplicate for result in results)


serving: list[Producer] = []
"""Producers with a request under way."""


def played(seed: int, trouble: float) -> tuple[Place, list[Producer], int]:
    place = Place(seed)
    rng = place.mood.rng
    gateways = [Gateway(place) for _ in range(rng.randint(2, 3))]
    producers = [Producer(number) for number in range(1, rng.randint(2, 5))]
    for gateway in gateways:
        if rng.random() < 0.5:
            combined_of(gateway.log).meet()
    place.mood.trouble = trouble
    again = 0

    def act() -> None:
        nonlocal again
        again += rng.choice(gateways).serve(producers)

    for _ in range(rng.randint(4, 10)):
        place.mood.others = [act for _ in range(rng.randint(0, 5))]
        act()
    place.mood.settle()
    place.mood.trouble = 0.0
    for producer in producers:
        while producer.pending:
            again += Gateway(place).serve([producer])
    return place, producers, again


def judge(place: Place, producers: list[Producer]) -> None:
    found: dict[int, list[tuple[int, str]]] = {}
    for rows in place.read().values():
        for offset, value in rows:
            found.setdefault(int(value.partition(".")[0]), []).append((offset, value))
    for producer in producers:
        rows = found.get(producer.number, [])
        assert [value for _, value in rows] == [f"{producer.number}.{n}" for n in range(producer.sent)]
        assert {value: offset for offset, value in rows} == producer.acked


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("trouble", [0.0, 0.05, 0.3], ids=["quiet", "rare-trouble", "trouble"])
def test_no_schedule_loses_doubles_or_reorders_a_batch(trouble: float) -> None:
    again = sent = 0
    for seed in SEEDS:
        place, producers, duplicates = played(seed, trouble)
        try:
            judge(place, producers)
        except AssertionError as wrong:
            raise AssertionError(f"seed {seed}, trouble {trouble}: {wrong}") from wrong
        again += duplicates
        sent += sum(producer.sent for producer in producers)

    assert sent > len(SEEDS)
    assert (again > 0) == (trouble > 0)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_trial_finds_a_writer_that_knows_no_duplicate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerEntry, "judge", lambda _self, _batch: None)

    assert any(_wrong(seed) for seed in range(MUTANT_SEEDS))


def _wrong(seed: int) -> bool:
    serving.clear()
    try:
        judge(*played(seed, 0.3)[:2])
    except (AssertionError, KafkaError):
        return True
    return False


# --- one by one ---------------------------------------------------------------------------------


def sent(first: int, *values: str, producer: int = 1) -> SentBatch:
    return SentBatch(batch_of(list(values), 0).columns, SequencedBatch(producer, 0, 0, first, len(values)))


def left_waiting(place: Place, *batches: SentBatch) -> None:
    """Batches that a writer has put beside the table before it died."""

    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    dead = place.busy_log()
    dead.refresh()
    place.mood.before.append(("put _waiting", lambda: place.mood.before.append(("read _delta_log", die))))
    with pytest.raises(Died):
        append_batches(dead, batches)


def offsets(results: list[BatchOutcome]) -> list[tuple[int, bool]]:
    return [(result.base_offset, result.duplicate) for result in results]


def test_waiting_batches_of_a_dead_writer_are_taken_and_their_retry_is_recognized() -> None:
    place = Place()
    leader = place.busy_log()
    leader.append(batch("first"))
    left_waiting(place, sent(0, "a", "b"), sent(0, "c", producer=2))

    leader.append(batch("next"))

    assert [value for _, value in place.read()[0]] == ["first", "a", "b", "c", "next"]
    assert offsets(append_batches(place.log(), [sent(0, "c", producer=2), sent(0, "a", "b")])) == [(3, True), (1, True)]


def test_waiting_batches_of_a_dead_writer_are_left_out_once_their_retry_was_written() -> None:
    place = Place()
    leader = place.busy_log()
    leader.append(batch("first"))
    left_waiting(place, sent(0, "a", "b"), sent(0, "c", producer=2))
    combined_of(leader).company = type(combined_of(leader).company)()

    assert offsets(append_batches(leader, [sent(0, "a", "b")])) == [(1, False)]
    combined_of(leader).meet()
    leader.append(batch("next"))
    place.busy_log().append(batch("last"))

    assert [value for _, value in place.read()[0]] == ["first", "a", "b", "next", "last"]
    assert offsets(append_batches(leader, [sent(0, "c", producer=2)])) == [(5, False)]


def test_batches_of_one_producer_that_wait_apart_land_in_two_versions() -> None:
    place = Place()
    leader = place.busy_log()
    append_batches(leader, [sent(0, "a")])
    left_waiting(place, sent(1, "b"))
    left_waiting(place, sent(1, "b"))

    assert offsets(append_batches(leader, [sent(1, "b")])) == [(1, False)]
    leader.append(batch("next"))

    assert [value for _, value in place.read()[0]] == ["a", "b", "next"]


def test_earlier_releases_cannot_read_a_waiting_append_with_sequences() -> None:
    """They would commit it without its sequences."""
    place = Place()
    place.busy_log().append(batch("first"))
    before = set(place.waiting())
    left_waiting(place, sent(0, "a"))
    (name,) = set(place.waiting()) - before
    content = place.store.at("t").read(f"_waiting/{name}")

    (records, codec, txn), sequences = unpack_sequences(content)

    assert (records.values, codec, txn) == ([b"a"], "none", None)
    assert sequences == [(0, 1, SequencedBatch(1, 0, 0, 0, 1))]
    assert b'"partitions"' not in content
