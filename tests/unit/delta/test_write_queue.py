"""The queue of a table's writers, over the lock files of a folder."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalike.delta.table_change import SHORT_PATIENCE_SECONDS, WriteQueue, turns_of
from kafkalike.errors import KafkaTimeoutError
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.storage.local import LocalStorage

PATIENCE = SHORT_PATIENCE_SECONDS / 5


def queue_of(root: Path, patience: float | None = PATIENCE, look: Callable[[], int] = lambda: 0) -> WriteQueue:
    (root / "__locks").mkdir(exist_ok=True)
    return WriteQueue(LocalStorage(str(root)), "t", SYSTEM_CLOCK, patience, look)


def seconds(count: float) -> Deadline:
    return Deadline(SYSTEM_CLOCK, count * 1000)


def test_thread_that_has_its_turn_goes_on_and_the_turn_ends_with_the_outer_block(tmp_path: Path) -> None:
    mine, other = queue_of(tmp_path), queue_of(tmp_path)
    with mine.held(seconds(10)):
        with mine.held(seconds(0)):
            pass
        with pytest.raises(KafkaTimeoutError), other.held(seconds(PATIENCE)):
            pass
    with other.held(seconds(0)):
        pass


def test_writer_without_end_of_patience_waits_until_the_deadline(tmp_path: Path) -> None:
    mine, other = queue_of(tmp_path, None), queue_of(tmp_path)
    with other.held(seconds(10)), pytest.raises(KafkaTimeoutError), mine.awaited(seconds(PATIENCE)):
        pass
    with mine.awaited(seconds(0)):
        pass


def test_impatient_writer_goes_on_beside_a_holder_that_writes_nothing_and_warns_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine, other = queue_of(tmp_path), queue_of(tmp_path)
    went_on = 0
    with caplog.at_level(logging.WARNING), other.held(seconds(10)):
        for _ in range(2):
            with mine.awaited(seconds(10)):
                went_on += 1
    with mine.awaited(seconds(10)), pytest.raises(KafkaTimeoutError), other.held(seconds(PATIENCE)):
        pass
    assert went_on == 2
    assert [record.message for record in caplog.records] == [
        f"{tmp_path}/t: a writer holds the lock and does nothing; going on without it"
    ]


def test_holder_that_writes_meanwhile_is_not_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    looks = iter(range(1000))
    mine, other = queue_of(tmp_path, look=lambda: next(looks)), queue_of(tmp_path)
    with caplog.at_level(logging.WARNING), other.held(seconds(10)), mine.awaited(seconds(10)):
        pass
    assert caplog.records == []


def test_impatient_writer_is_refused_when_its_deadline_is_over(tmp_path: Path) -> None:
    mine, other = queue_of(tmp_path, 10.0), queue_of(tmp_path)
    with other.held(seconds(10)), pytest.raises(KafkaTimeoutError), mine.awaited(seconds(PATIENCE), seen=0):
        pass


def test_turns_of_a_topic_keep_the_names_of_earlier_releases() -> None:
    assert turns_of("orders") == ["orders", "condense~orders", "maintenance~orders"]
