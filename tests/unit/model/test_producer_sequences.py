"""Verdicts on the batches of idempotent producers, with the cases of Kafka's ProducerStateManagerTest."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import InvalidProducerEpochError, KafkaError, OutOfOrderSequenceNumberError
from kafkalike.model.appends.producer_sequences import (
    EXPIRATION_MS,
    KEPT_BATCHES,
    KNOWN_KEY,
    MOST_LINKS,
    MOST_PRODUCERS,
    PRODUCERS_APP,
    SEQUENCES,
    ProducerSequences,
    SequencedBatch,
    TakenBatches,
    judge_all,
)

LAST = SEQUENCES - 1
NOW = 1_000_000_000

Step = tuple[int, int, int]
"""Epoch, first sequence and number of records."""


def batch(epoch: int, first: int, count: int = 1, *, producer: int = 1, partition: int = 0) -> SequencedBatch:
    return SequencedBatch(producer, epoch, partition, first, count)


def after(*steps: Step, time_ms: int = NOW) -> ProducerSequences:
    """What is known when batches were written one after the other, each at the offset of its place times 100."""
    known, before = ProducerSequences(-1), None
    for at, (epoch, first, count) in enumerate(steps):
        note = known.to_note([(batch(epoch, first, count), at * 100)], before, time_ms)
        known.note({"time": time_ms, **note}, 0)
        before = at
    return known


def verdict(known: ProducerSequences, *wanted: SequencedBatch, now_ms: int = NOW) -> list[Any]:
    """`write`, the offset of a duplicate, or the class of a refusal, for each batch."""
    found = judge_all(known.entries, wanted, now_ms)
    return [type(v.error) if v.error else "write" if v.writes else v.offset for v in found]


OUT = OutOfOrderSequenceNumberError
OLD = InvalidProducerEpochError

CASES: dict[str, tuple[list[Step], Step, Any]] = {
    "testBasicIdMapping: first batch": ([], (0, 0, 1), "write"),
    "testBasicIdMapping: next sequence": ([(0, 0, 1)], (0, 1, 1), "write"),
    "testBasicIdMapping: next sequence of many": ([(0, 0, 1), (0, 1, 5)], (0, 6, 2), "write"),
    "testBasicIdMapping: newer epoch from 0": ([(0, 0, 1), (0, 1, 1)], (1, 0, 1), "write"),
    "testBasicIdMapping: newer epoch after 0": ([(0, 0, 1)], (1, 1, 1), OUT),
    "testBasicIdMapping: older epoch": ([(0, 0, 1), (1, 0, 1)], (0, 1, 1), OLD),
    "testBasicIdMapping: older epoch, same sequences": ([(0, 0, 1), (1, 0, 1)], (0, 0, 1), OLD),
    "testOutOfSequence: gap": ([(0, 0, 1)], (0, 2, 1), OUT),
    "testOutOfSequence: within the latest batch": ([(0, 0, 10)], (0, 5, 5), OUT),
    "testOutOfSequence: longer than a batch": ([(0, 0, 10)], (0, 0, 11), OUT),
    "testDuplicate: latest batch": ([(0, 0, 3), (0, 3, 2)], (0, 3, 2), 100),
    "testDuplicate: fifth of the last": ([(0, n, 1) for n in range(5)], (0, 0, 1), 0),
    "testDuplicate: sixth of the last": ([(0, n, 1) for n in range(6)], (0, 0, 1), OUT),
    "testDuplicate: of a newer epoch": ([(0, 0, 1), (1, 0, 1)], (1, 0, 1), 100),
    "testNoValidationOnFirstEntry: any first sequence": ([], (5, 16, 1), "write"),
    "testNoValidationOnFirstEntry: next one": ([(5, 16, 4)], (5, 20, 1), "write"),
    "testProducerSequenceWrapAround": ([(15, LAST, 1)], (15, 0, 1), "write"),
    "testProducerSequenceWithWrapAroundBatchRecord": ([(15, LAST - 9, 20)], (15, 10, 1), "write"),
    "testProducerSequenceWithWrapAroundBatchRecord: repeated": ([(15, LAST - 9, 20)], (15, LAST - 9, 20), 0),
    "testProducerSequenceInvalidWrapAround": ([(15, LAST, 1)], (15, 1, 1), OUT),
    "testProducerSequenceInvalidWrapAround: too early": ([(15, LAST - 1, 1)], (15, 0, 1), OUT),
    "testOutOfSequenceAfterEpochBump": ([(0, 0, 1), (1, 0, 1)], (1, 2, 1), OUT),
}


@pytest.mark.parametrize(("steps", "wanted", "expected"), CASES.values(), ids=CASES)
def test_verdict_on_a_batch(steps: list[Step], wanted: Step, expected: Any) -> None:
    assert verdict(after(*steps), batch(*wanted)) == [expected]


def test_pid_expiration_timeout_forgets_a_silent_producer() -> None:
    """As testPidExpirationTimeout; also an older epoch counts as new then."""
    known = after((3, 0, 1), (3, 1, 1))
    assert verdict(known, batch(3, 7), now_ms=NOW + EXPIRATION_MS) == [OUT]
    assert verdict(known, batch(3, 7), now_ms=NOW + EXPIRATION_MS + 1) == ["write"]
    assert verdict(known, batch(0, 1), now_ms=NOW + EXPIRATION_MS + 1) == ["write"]


def test_partitions_and_producers_have_sequences_of_their_own() -> None:
    known = after((0, 0, 1), (0, 1, 1))
    assert verdict(known, batch(0, 1), batch(0, 1, partition=1), batch(0, 1, producer=2)) == [100, "write", "write"]


def test_batches_of_one_append_follow_each_other() -> None:
    known = after((0, 0, 1))
    found = judge_all(known.entries, [batch(0, 1, 4), None, batch(0, 5), batch(0, 1, 4), batch(0, 7)], NOW)
    assert [v.writes for v in found] == [True, True, True, False, False]
    assert found[3].twin == 0
    assert isinstance(found[4].error, OUT)


def test_batch_after_a_refused_one_is_out_of_order() -> None:
    """As testPrepareUpdateDoesNotMutate: a refused batch does not count as written."""
    known = after((0, 0, 1))
    assert verdict(known, batch(0, 2), batch(0, 3), batch(0, 1)) == [OUT, OUT, "write"]
    assert verdict(known, batch(0, 1)) == ["write"]


def test_message_of_a_gap_names_producer_partition_and_sequences() -> None:
    with pytest.raises(OUT, match="sequence 7 of producer 1 in partition 0 does not follow its latest one, 3"):
        after((0, 0, 4)).entries[1, 0].judge(batch(0, 7))


# --- notes -------------------------------------------------------------------------------------


@dataclass
class Log:
    """The notes of a table's commits, and what a process that has seen all of them knows."""

    notes: list[dict[str, Any]] = field(default_factory=list)
    known: ProducerSequences = field(default_factory=lambda: ProducerSequences(-1))
    marker: int | None = None

    def commit(self, *batches: SequencedBatch) -> None:
        note = self.known.to_note([(b, 10 * len(self.notes)) for b in batches], self.marker, NOW) if batches else {}
        if batches:
            self.marker = len(self.notes)
        self.notes.append({"time": NOW, **note})
        self.known.note(self.notes[-1], 0)

    def loaded(self, checkpoint: int) -> ProducerSequences:
        """What a process knows that loads a checkpoint and reads older commits as far as it must."""
        newer = ProducerSequences(checkpoint)
        for note in self.notes[checkpoint + 1 :]:
            newer.note(note, 0)
        if newer.complete:
            return newer
        markers = [at for at, note in enumerate(self.notes[: checkpoint + 1]) if "producers" in note]
        link = newer.before if newer.before is not None else max(markers, default=-1)
        read = []
        while link != -1:
            read.append(self.notes[link])
            if KNOWN_KEY in read[-1]:
                break
            link = read[-1]["producersBefore"]
        assert len(read) <= MOST_LINKS
        older = ProducerSequences(0)
        for note in reversed(read):
            older.note(note, 0)
        return newer.after(older)


steps = st.lists(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1), st.booleans()), max_size=3, unique_by=lambda s: s[:2]),
    min_size=1,
    max_size=40,
)


@given(steps, st.data())
def test_sequences_read_back_from_any_checkpoint_are_complete(commits: list[Any], data: Any) -> None:
    log, state = Log(), dict[tuple[int, int], tuple[int, int]]()
    for commit in commits:
        batches = []
        for producer, partition, bump in commit:
            epoch, following = state.get((producer, partition), (0, 0))
            epoch, following = (epoch + 1, 0) if bump and following else (epoch, following)
            batches.append(SequencedBatch(producer, epoch, partition, following, 2))
            state[producer, partition] = (epoch, following + 2)
        log.commit(*batches)
    checkpoint = data.draw(st.integers(-1, len(commits) - 1))

    found = log.loaded(checkpoint)

    assert found.complete
    assert found.entries == log.known.entries


def test_lone_producer_is_read_back_from_one_commit() -> None:
    log = Log()
    for first in range(20):
        log.commit(batch(0, first))
    assert [KNOWN_KEY in note for note in log.notes[1:]] == [True] * 19


def test_malformed_notes_change_nothing() -> None:
    known = after((0, 0, 1))
    before = dict(known.entries)
    row = [1, 0, 0, 1, 1, 7]
    for note in (
        {"producers": 5},
        {"producers": [row]},
        {"producers": [[1, 2]], "producersBefore": 3},
        {"producers": [["x"] * 6], "producersBefore": 3},
        {"producers": [row], "producersBefore": None},
        {"producers": [row], "producersBefore": 3, "producersKnown": [[1, 0, 0, 5, []]]},
        {"producers": [row], "producersBefore": 3, "time": "noon"},
    ):
        known.note(note, 0)
    assert known.entries == before


def test_producers_that_wrote_longest_ago_are_forgotten_first() -> None:
    known = ProducerSequences(-1)
    rows = [[producer, 0, 0, 0, 1, producer] for producer in range(MOST_PRODUCERS)]
    known.note({"producers": rows, "producersBefore": -1}, NOW)
    known.note({"producers": [[0, 0, 0, 1, 1, 7], [MOST_PRODUCERS, 0, 0, 0, 1, 8]], "producersBefore": 0}, NOW)

    assert len(known.entries) == MOST_PRODUCERS
    assert (0, 0) in known.entries
    assert (1, 0) not in known.entries


def test_producers_that_have_been_silent_for_long_are_forgotten_one_for_each_new_batch() -> None:
    known = ProducerSequences(-1)
    for producer, minute in enumerate((0, 0, 15, 21, 21)):
        row = [producer, 0, 0, 0, 1, producer]
        known.note({"producers": [row], "producersBefore": 0, "time": NOW + minute * 60_000}, 0)

    assert [producer for producer, _ in known.entries] == [2, 3, 4]


def test_application_of_sequences_is_reserved() -> None:
    assert PRODUCERS_APP == "kafkalike.producers"


# --- against Kafka's rules, written another way -------------------------------------------------


@dataclass
class Oracle:
    """All batches of one producer and partition, and Kafka's rules over them."""

    epoch: int = -1
    written: list[Step] = field(default_factory=list)

    def judge(self, epoch: int, first: int, count: int) -> Any:
        sequence = [(first + n) % SEQUENCES for n in range(count)]
        mine = [step for step in self.written if step[0] == self.epoch]
        if epoch == self.epoch and (epoch, first, count) in mine[-5:]:
            return self.written.index((epoch, first, count)) * 100
        if self.written and epoch < self.epoch:
            return OLD
        expected = sequence[0]
        if self.written:
            latest = mine[-1]
            expected = 0 if epoch > self.epoch else (latest[1] + latest[2]) % SEQUENCES
        if sequence[0] != expected:
            return OUT
        self.epoch = epoch
        self.written.append((epoch, first, count))
        return "write"


near = st.integers(0, 6) | st.integers(LAST - 6, LAST)


@given(st.lists(st.tuples(st.integers(0, 2), near, st.integers(1, 4)), max_size=30))
def test_verdicts_are_those_of_kafkas_rules(wanted: list[Step]) -> None:
    oracle, known = Oracle(), ProducerSequences(-1)
    for step in wanted:
        expected = oracle.judge(*step)
        assert verdict(known, batch(*step)) == [expected]
        if expected == "write":
            placed = [(batch(*step), (len(oracle.written) - 1) * 100)]
            known.note({"time": NOW, **known.to_note(placed, None, NOW)}, 0)


def test_refusals_are_errors_of_kafkas_clients() -> None:
    assert (OUT.errno, OLD.errno) == (45, 47)
    assert issubclass(OUT, KafkaError)


def test_latest_batches_of_a_producer_are_recorded_anew_with_their_sequences_and_offsets() -> None:
    """As a repartition does; the first one runs over the largest sequence."""
    known = after((0, LAST - 1, 3), (0, 1, 1))

    (entry,) = known.entries.values()
    assert list(entry.placed(1, 0)) == [(batch(0, LAST - 1, 3), 0), (batch(0, 1), 100)]


# --- batches of transactions -----------------------------------------------------------------------


def test_retried_batch_of_a_transaction_gets_the_place_of_the_first_try() -> None:
    taken = TakenBatches()
    first, second = taken.place("t", batch(0, 0, 2)), taken.place("t", batch(0, 2))

    again = taken.place("t", batch(0, 0, 2))

    assert [place.link.batch for place in (first, second)] == [batch(0, 0, 2), batch(0, 2)]
    assert [place.retried for place in (first, second, again)] == [False, False, True]
    assert again.link is first.link


def test_batch_of_a_transaction_after_a_gap_names_the_batch_before_and_is_not_remembered() -> None:
    taken = TakenBatches()
    first = taken.place("t", batch(0, 0, 2))

    late = taken.place("t", batch(0, 3))

    assert late.after is first.link
    assert taken.place("t", batch(0, 3)).after is first.link
    assert taken.place("t", batch(0, 2)).after is None


def test_sixth_batch_of_a_transaction_makes_the_first_one_unknown() -> None:
    taken = TakenBatches()
    places = [taken.place("t", batch(0, n)) for n in range(KEPT_BATCHES + 1)]

    assert taken.place("t", batch(0, 1)).retried
    assert taken.place("t", batch(0, 0)).after is places[-1].link


def test_batches_of_another_epoch_topic_or_partition_start_their_own_sequence() -> None:
    taken = TakenBatches()
    taken.place("t", batch(0, 0))

    others = [taken.place("t", batch(0, 5, partition=1)), taken.place("u", batch(0, 5)), taken.place("t", batch(1, 5))]

    assert [(place.retried, place.after) for place in others] == [(False, None)] * 3


def test_forgotten_producer_of_a_transaction_may_start_with_any_sequence() -> None:
    taken = TakenBatches()
    taken.place("t", batch(0, 0))

    taken.forget("t", batch(0, 0))

    place = taken.place("t", batch(0, 7))
    assert (place.retried, place.after) == (False, None)


def test_taken_batches_of_the_least_recent_producer_are_forgotten_beyond_the_limit() -> None:
    taken = TakenBatches()
    for producer in range(MOST_PRODUCERS):
        taken.place("t", batch(0, 0, producer=producer))
    taken.place("t", batch(0, 1, producer=0))

    taken.place("t", batch(0, 0, producer=MOST_PRODUCERS))

    assert len(taken.known) == MOST_PRODUCERS
    assert taken.place("t", batch(0, 0, producer=0)).retried
    assert not taken.place("t", batch(0, 0, producer=1)).retried
