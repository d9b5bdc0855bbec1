"""Batches of idempotent producers are written once, whichever log, process or state of the table meets them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kafkalike.connect import connect
from kafkalike.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumberError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.topic.column_batch import column_batch
from kafkalike.log.topic.producer_append import BatchOutcome, SentBatch, append_batches
from kafkalike.model.appends.producer_sequences import MOST_LINKS, SequencedBatch
from kafkalike.model.record_batch import TxnId
from tests.tools.forked import killed
from tests.tools.partitions import partition_records
from tests.tools.records import NOW_MS, batch, make_topic, open_log

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalike.log.topic.topic_log import TopicLog
    from tests.contract.conftest import Opener

OUT = OutOfOrderSequenceNumberError


def sent(
    first: int | None, *values: str, producer: int = 7, epoch: int = 0, partition: int = 0, key: bytes | None = b"k"
) -> SentBatch:
    """A batch of a producer; without sequence if `first` is None."""
    columns = {
        "value": pa.array([value.encode() for value in values]),
        "key": pa.array([key] * len(values), pa.binary()),
        "partition": pa.array([partition] * len(values), pa.int32()),
    }
    made = column_batch(pa.table(columns), NOW_MS)
    sequence = None if first is None else SequencedBatch(producer, epoch, partition, first, len(values))
    return SentBatch(made, sequence)


def told(results: list[BatchOutcome]) -> list[Any]:
    """The first offset of each batch, in a list if it was in the log before; or the class of its refusal."""
    return [
        type(r.error) if r.error is not None else [r.base_offset] if r.duplicate else r.base_offset for r in results
    ]


def append(log: TopicLog, *batches: SentBatch) -> list[Any]:
    return told(append_batches(log, batches))


def values(log: TopicLog, partition: int = 0) -> list[str]:
    log.refresh()
    return [value.decode() for _, value in partition_records(log, partition) if value is not None]


@pytest.fixture
def logs(open_log_cluster: Opener) -> list[TopicLog]:
    """Two logs of a topic with two partitions, as two processes have them."""
    open_log_cluster().create_topic("t", 2, {})
    return [open_log_cluster().log("t"), open_log_cluster(elsewhere=True).log("t")]


def test_retry_through_another_log_gets_the_offset_of_the_first_try(logs: list[TopicLog]) -> None:
    one, two = logs
    assert append(one, sent(0, "a", "b")) == [0]
    assert append(two, sent(0, "a", "b")) == [[0]]
    assert append(two, sent(2, "c")) == [2]
    assert append(one, sent(2, "c"), sent(3, "d")) == [[2], 3]
    assert values(one) == ["a", "b", "c", "d"]


def test_verdicts_of_one_append_are_independent(logs: list[TopicLog]) -> None:
    one, two = logs
    append(one, sent(0, "a"), sent(0, "x", producer=8, epoch=3))
    found = append(
        two,
        sent(0, "a"),
        sent(2, "gap"),
        sent(0, "old", producer=8, epoch=2),
        sent(None, "plain"),
        sent(1, "b"),
        sent(0, "p", partition=1),
        sent(1, "b"),
        sent(None, "also"),
    )

    assert found == [[0], OUT, InvalidProducerEpochError, 2, 3, 0, [3], 4]
    assert values(one) == ["a", "x", "plain", "b", "also"]
    assert values(one, 1) == ["p"]


def test_append_without_a_batch_to_write_makes_no_version(logs: list[TopicLog]) -> None:
    one, two = logs
    append(one, sent(0, "a"))
    two.refresh()
    before = two.version
    assert append(two, sent(0, "a"), sent(9, "gap")) == [[0], OUT]
    two.refresh()
    assert two.version == before


def test_record_that_the_topic_rejects_refuses_its_batch_alone(open_log_cluster: Opener) -> None:
    """The producer's next batch is a gap then, as a broker would find it."""
    cluster = open_log_cluster()
    cluster.create_topic("t", 2, {"cleanup.policy": "compact", "max.message.bytes": "1000"})
    log = cluster.log("t")
    found = append(
        log,
        sent(0, "a"),
        sent(1, "b", key=None),
        sent(2, "c"),
        sent(0, "x" * 2000, producer=8),
        sent(0, "y", producer=9, partition=2),
        sent(0, "z", producer=10),
    )

    assert found == [0, InvalidRecordError, OUT, MessageSizeTooLargeError, UnknownTopicOrPartitionError, 1]
    assert values(log) == ["a", "z"]
    assert append(log, sent(1, "b", key=None)) == [InvalidRecordError]


def test_two_logs_that_race_with_the_same_batches_write_each_once(logs: list[TopicLog]) -> None:
    rounds = 6
    answers: list[list[Any]] = [[], []]
    start = threading.Barrier(2)

    def run(at: int) -> None:
        for number in range(rounds):
            start.wait()
            answers[at] += append_batches(logs[at], [sent(2 * number, f"{number}a", f"{number}b")])

    threads = [threading.Thread(target=run, args=(at,)) for at in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [r.error for r in answers[0] + answers[1]] == [None] * 2 * rounds
    assert [r.base_offset for r in answers[0]] == [r.base_offset for r in answers[1]] == list(range(0, 2 * rounds, 2))
    assert [a.duplicate + b.duplicate for a, b in zip(*answers, strict=True)] == [1] * rounds
    assert values(logs[0]) == [f"{number}{letter}" for number in range(rounds) for letter in "ab"]


@pytest.mark.slow
def test_retry_after_a_checkpoint_is_recognized(tmp_path: Path) -> None:
    """Producers write at different times, others write between, and a new process loads a checkpoint."""
    root = str(tmp_path / "cluster")
    log = make_topic(root)
    append(log, sent(0, "early", producer=1))
    for number in range(MOST_LINKS + 5):
        append(log, sent(number, f"{number}"), sent(0, "x", producer=100 + number, partition=1))
        log.append(batch("native"))
    end = log.log_end(0)
    DeltaTable(f"{root}/t").create_checkpoint()
    log.append(batch((1, "native")))

    new = open_log(connect(root))
    new.refresh()

    assert not new._table.state.producers.complete
    assert append(new, sent(MOST_LINKS + 4, f"{MOST_LINKS + 4}")) == [[end - 2]]
    assert append(new, sent(0, "early", producer=1)) == [[0]]
    assert append(new, sent(5, "gap", producer=1)) == [OUT]
    assert append(new, sent(0, "x", producer=100, partition=1)) == [[0]]
    assert append(new, sent(MOST_LINKS + 5, "next"), sent(1, "next", producer=1)) == [end, end + 1]


def test_native_appends_between_leave_the_sequences_alone(logs: list[TopicLog]) -> None:
    one, two = logs
    append(one, sent(0, "a"))
    two.append(batch("n"), txn=TxnId("job", 1))
    assert append(two, sent(0, "a"), sent(1, "b")) == [[0], 2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "answer"),
    [("append.before_files", 1), ("append.before_commit", 1), ("append.after_commit", [1])],
    ids=["before-the-files", "before-the-commit", "after-the-commit"],
)
def test_retry_for_a_killed_writer_is_written_once(tmp_path: Path, place: str, answer: Any) -> None:
    root = str(tmp_path / "cluster")
    make_topic(root)
    append(open_log(connect(root)), sent(0, "a"))
    killed(lambda: append(open_log(connect(root)), sent(1, "b")), place)

    log = open_log(connect(root))

    assert append(log, sent(1, "b"), sent(2, "c")) == [answer, 2]
    assert values(log) == ["a", "b", "c"]


@pytest.mark.slow
@pytest.mark.usefixtures("foreign_writes")
def test_foreign_compaction_and_checkpoint_between_leave_the_sequences_alone(tmp_path: Path) -> None:
    root = str(tmp_path / "cluster")
    make_topic(root)
    log = open_log(connect(root))
    for number in range(5):
        append(log, sent(number, f"{number}"))
    table = DeltaTable(f"{root}/t")
    table.optimize.compact()
    table.create_checkpoint()

    new = open_log(connect(root))

    assert append(log, sent(0, "0")) == [[0]]
    assert append(new, sent(4, "4"), sent(1, "1"), sent(5, "5")) == [[4], [1], 5]
    assert new._table.state.checkpoint == 6
    assert values(new) == ["0", "1", "2", "3", "4", "5"]


def test_sequences_of_a_log_that_lost_its_commits_are_unknown(tmp_path: Path) -> None:
    """Clean-up leaves an hour of commits; a table copied without them has no sequences, and its producers go on."""
    root = str(tmp_path / "cluster")
    make_topic(root)
    append(open_log(connect(root)), sent(0, "a"))
    DeltaTable(f"{root}/t").create_checkpoint()
    (tmp_path / "cluster" / "t" / "_delta_log" / f"{1:020d}.json").unlink()

    assert append(open_log(connect(root)), sent(7, "b")) == [1]


def test_silent_producer_is_unknown_again(open_log_cluster: Opener) -> None:
    cluster = open_log_cluster()
    cluster.create_topic("t", 1, {})
    log = cluster.log("t")
    append(log, sent(0, "a"))
    state = log._table.state
    entry = state.producers.entries[7, 0]
    state.producers.entries[7, 0] = type(entry)(entry.epoch, entry.batches, entry.time_ms - 601_000)
    assert append(log, sent(5, "b")) == [1]
