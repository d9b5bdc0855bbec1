"""Looks of one process at a storage that asks money for each: how often it is asked, and what answers are shared."""

from __future__ import annotations

import threading

import pytest

from kafkalike.admin.testing import ManualClock
from kafkalike.storage.scheduler import NOW, Pace
from kafkalike.storage.shared_root import SHORTEST_SECONDS, Looks, pause_seconds

TAIL = Pace(longest=1.0)


class World:
    """A storage of files, and the looks at it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.looks = Looks(self.clock.monotonic)
        self.files: dict[str, bytes] = {}
        self.asked = 0

    def look(self, name: str, pace: Pace = NOW) -> bytes | None:
        def ask() -> bytes | None:
            self.asked += 1
            return self.files.get(name)

        return self.looks.look(name, pace, ask)

    def wait(self, name: str, seconds: float, step: float = 0.01) -> int:
        """Wait for a file; returns how often the storage was asked."""
        before, end = self.asked, self.clock.seconds + seconds
        while self.clock.seconds < end:
            self.look(name, TAIL)
            self.clock.seconds += step
        return self.asked - before


@pytest.fixture
def world() -> World:
    """A storage without files."""
    return World()


@pytest.mark.parametrize(
    ("idle", "longest", "pause"),
    [(0.0, 1.0, SHORTEST_SECONDS), (1.0, 1.0, 0.2), (4.0, 1.0, 0.8), (60.0, 1.0, 1.0), (60.0, 30.0, 12.0)],
)
def test_looks_come_less_often_the_longer_nothing_came(idle: float, longest: float, pause: float) -> None:
    assert pause_seconds(idle, longest) == pytest.approx(pause)


def test_who_waits_takes_what_was_asked_since_its_round_began(world: World) -> None:
    """However long the round takes: many topics are looked at side by side before the first of them is read."""
    begun = world.clock.monotonic()
    world.look("log/1", TAIL)
    world.clock.seconds += 30

    assert world.looks.has_answer("log/1", Pace(begun, TAIL.longest))
    world.look("log/1", Pace(begun, TAIL.longest))
    assert world.asked == 1

    assert not world.looks.has_answer("log/1", TAIL)
    world.look("log/1", Pace(begun + 1, TAIL.longest))
    assert world.asked == 2


@pytest.mark.slow
def test_an_idle_folder_is_asked_once_a_second_however_many_wait(world: World) -> None:
    world.wait("log/1", 60)

    assert world.wait("log/1", 100, step=0.001) == pytest.approx(100, abs=1)


def test_after_something_new_looks_are_fast_and_slow_down_within_seconds(world: World) -> None:
    world.wait("log/1", 60)
    world.files["log/1"] = b"one"
    while world.look("log/1", TAIL) is None:
        world.clock.seconds += 0.01

    assert world.wait("log/2", 0.2) in {4, 5}
    assert world.wait("log/2", 10) < 25


def test_who_waits_takes_what_another_one_found(world: World) -> None:
    world.files["log/1"] = b"one"

    found = [world.look("log/1", TAIL) for _ in range(5)]

    assert found == [b"one"] * 5
    assert world.asked == 1


def test_what_this_process_made_is_known_without_a_question(world: World) -> None:
    world.look("log/1", TAIL)

    world.looks.made("log/1", b"one")

    assert world.look("log/1", TAIL) == b"one"
    assert world.asked == 1


def test_who_does_not_wait_is_answered_by_the_storage(world: World) -> None:
    world.look("log/1")
    world.files["log/1"] = b"one"

    assert world.look("log/1") == b"one"
    assert world.look("log/1") == b"one"
    assert world.asked == 3


def test_an_answer_counts_for_those_who_asked_before_it(world: World) -> None:
    """A question that was asked beside something else is not asked again."""
    begun = world.clock.seconds
    world.clock.seconds += 1
    world.look("log/1")

    assert world.look("log/1", Pace(since=begun)) is None
    assert world.asked == 1
    assert world.look("log/1", Pace(since=begun + 2)) is None
    assert world.asked == 2


def test_a_late_answer_does_not_hide_what_was_made_meanwhile(world: World) -> None:
    """The look had begun before."""

    def ask() -> bytes | None:
        world.clock.seconds += 0.01
        world.looks.made("log/1", b"one")
        return None

    world.looks.look("log/1", NOW, ask)

    assert world.look("log/1", TAIL) == b"one"


def test_a_file_that_is_gone_is_not_remembered(world: World) -> None:
    world.looks.made("log/1", b"one")
    world.clock.seconds += 0.01

    assert world.look("log/1") is None
    assert world.look("log/1", TAIL) is None
    world.looks.made("log/1", b"one")
    world.looks.forget("log/1")
    assert world.look("log/1", TAIL) is None


def test_threads_that_wait_ask_once(world: World) -> None:
    """The others wait for its answer."""
    inside, go_on = threading.Event(), threading.Event()
    found: list[bytes | None] = []

    def ask() -> bytes | None:
        world.asked += 1
        inside.set()
        go_on.wait(30)
        return b"one"

    threads = [threading.Thread(target=lambda: found.append(world.looks.look("log/1", TAIL, ask))) for _ in range(4)]
    for thread in threads:
        thread.start()
    inside.wait(30)
    go_on.set()
    for thread in threads:
        thread.join()

    assert found == [b"one"] * 4
    assert world.asked == 1


def test_a_question_that_fails_leaves_the_next_one_to_be_asked(world: World) -> None:
    def fail() -> bytes | None:
        raise OSError("away")

    with pytest.raises(OSError, match="away"):
        world.looks.look("log/1", TAIL, fail)

    assert world.look("log/1", TAIL) is None
    assert world.asked == 1
