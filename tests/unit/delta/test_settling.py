"""Settling what became of a version's file, answer by answer of the storage."""

from __future__ import annotations

import pytest

from kafkalike.delta.actions import log_name, parse_commit
from kafkalike.delta.commit_file import CommitFile, CommitPuts
from kafkalike.delta.table_state import FENCE
from kafkalike.errors import KafkaStorageError, UnknownOutcomeError
from kafkalike.storage.port import NotStoredError
from tests.tools.scripted_store import ScriptedStore, SleptClock

NAME = log_name(1)
MINE = CommitFile(version=1, time_ms=5, operation="WRITE", append_id="me").content()
ANOTHERS = CommitFile(version=1, time_ms=5, operation="WRITE", append_id="another").content()
FOREIGN = b'{"commitInfo":{"operation":"WRITE"}}\n'
LOST = OSError("lost")
WAITS = [0.05, 0.1, 0.2, 0.4, 0.8]


class World:
    """A storage of one table, and somebody who puts its version 1."""

    def __init__(self) -> None:
        self.store = ScriptedStore()
        self.clock = SleptClock()
        self.puts = CommitPuts(self.store, self.clock, lambda: 1.0)

    def put(self, version: int = 1, *, durable: bool = False) -> bool:
        return self.puts.put(version, MINE, "me", durable=durable)

    def lands(self, content: bytes, name: str = NAME) -> None:
        """A put that was under way arrives."""
        self.store._disk.files.setdefault(name, (content, 0))

    def there(self, name: str = NAME) -> bytes | None:
        found = self.store._disk.files.get(name)
        return None if found is None else found[0]


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("durable", [False, True])
def test_a_put_that_is_answered_is_settled(world: World, durable: bool) -> None:  # noqa: FBT001
    """It is durable when the store says so: nothing else is done."""
    assert world.put(durable=durable)

    assert world.there() == MINE
    assert world.store.calls == [f"{'durable put' if durable else 'put'} {NAME}"]


@pytest.mark.parametrize(("content", "mine"), [(MINE, True), (ANOTHERS, False), (FOREIGN, False)])
def test_a_file_that_exists_is_of_whom_its_id_says(world: World, content: bytes, mine: bool) -> None:  # noqa: FBT001
    """Storages put twice: one's own file may be there already."""
    world.lands(content)

    assert world.put() is mine

    assert world.there() == content
    assert world.clock.slept == []


def test_a_file_of_ones_own_that_landed_by_a_try_that_failed_is_made_durable(world: World) -> None:
    """Its put gave no answer, so nobody has flushed it for sure."""
    world.lands(MINE)

    assert world.put(durable=True)
    assert world.store.made("sync") == [NAME]

    world.store.syncs = [LOST]
    with pytest.raises(UnknownOutcomeError, match=r"commit to memory://") as unclear:
        world.put(durable=True)
    assert unclear.value.append_id == "me"
    assert world.put(durable=False)
    assert len(world.store.made("sync")) == 2


def test_a_refusal_is_one_when_no_try_before_it_is_in_doubt(world: World) -> None:
    """Nothing is under way then: no fence is needed."""
    world.store.puts = [NotStoredError("no room")]

    with pytest.raises(KafkaStorageError, match=r"^memory://: the storage refused the commit: no room$"):
        world.put()

    assert (world.there(), world.clock.slept) == (None, [])


@pytest.mark.parametrize("answer", [NotStoredError("no room"), OSError("lost")], ids=["refused", "no answer"])
def test_refusal_after_an_ambiguous_put_is_retried_with_back_off(world: World, answer: OSError) -> None:
    """The first try may still land, so the version is fenced. A refusing storage is no less busy than a silent one."""
    world.store.puts = [LOST, *[answer] * 4]

    with pytest.raises(KafkaStorageError, match="refused the commit"):
        world.put()

    assert parse_commit(1, world.there() or b"", "").operation == FENCE
    assert world.clock.slept == WAITS


def test_refusal_between_ambiguous_puts_keeps_the_first_error(world: World) -> None:
    world.store.puts = [LOST, NotStoredError("no room")]

    assert world.put()

    assert (world.there(), world.clock.slept) == (MINE, WAITS[:2])


@pytest.mark.parametrize("durable", [False, True])
def test_without_an_answer_the_version_is_given_to_an_empty_commit(world: World, durable: bool) -> None:  # noqa: FBT001
    """After five tries, with waits that double; the fence names the change that it keeps out."""
    world.store.puts = [LOST] * 5

    with pytest.raises(KafkaStorageError, match=r"^memory://: the storage refused the commit: lost$"):
        world.put(durable=durable)

    fence = parse_commit(1, world.there() or b"", "")
    assert (fence.operation, fence.version, fence.timestamp_ms, fence.adds) == (FENCE, 1, 2_550, ())
    assert fence.fences == "me"
    assert fence.append_id not in {None, "me"}
    assert world.store.made("durable put" if durable else "put") == [NAME] * 6
    assert world.clock.slept == WAITS


def test_a_put_that_fails_is_tried_again(world: World) -> None:
    """And says so when it succeeds."""
    world.store.puts = [LOST, LOST]

    assert world.put()

    assert (world.there(), world.clock.slept) == (MINE, WAITS[:2])


@pytest.mark.parametrize(("content", "mine"), [(MINE, True), (ANOTHERS, False), (FOREIGN, False)])
def test_what_lands_before_the_fence_settles_whose_the_version_is(world: World, content: bytes, mine: bool) -> None:  # noqa: FBT001
    """The fence finds the place taken; one's own is made durable there too."""
    world.store.puts = [*[LOST] * 5, lambda: world.lands(content)]

    assert world.put(durable=True) is mine

    assert world.there() == content
    assert world.store.made("sync") == ([NAME] if mine else [])


def test_what_landed_before_the_fence_and_cannot_be_flushed_is_in_doubt(world: World) -> None:
    """The error has the id of the change."""
    world.store.puts = [*[LOST] * 5, lambda: world.lands(MINE)]
    world.store.syncs = [LOST]

    with pytest.raises(UnknownOutcomeError) as unclear:
        world.put(durable=True)
    assert unclear.value.append_id == "me"


def test_when_the_fence_gets_no_answer_either_the_outcome_is_unknown(world: World) -> None:
    """The error has the id of the change, and the storage's last words."""
    world.store.puts = [*[LOST] * 9, OSError("still nothing")]

    with pytest.raises(UnknownOutcomeError, match=r"commit to memory://") as unclear:
        world.put()

    assert unclear.value.append_id == "me"
    assert str(unclear.value.__cause__) == "still nothing"
    assert world.clock.slept == WAITS * 2


def test_a_fence_whose_answer_was_lost_is_found_there(world: World) -> None:
    """By its own id: the version is closed."""

    def land_and_lose() -> None:
        world.store.puts.insert(0, None)
        world.store.put_if_absent(NAME, fence_of(world))
        raise OSError("the answer is lost")

    def fence_of(_: World) -> bytes:
        return held[0]

    held: list[bytes] = []
    put = world.store.put_if_absent

    def keeping(name: str, content: bytes, *, durable: bool = False) -> bool:
        held[:] = [content]
        return put(name, content, durable=durable)

    world.store.put_if_absent = keeping  # type: ignore[method-assign]
    world.store.puts = [*[LOST] * 5, land_and_lose]

    with pytest.raises(KafkaStorageError, match="refused the commit: the answer is lost"):
        world.put()

    assert parse_commit(1, world.there() or b"", "").operation == FENCE
    assert world.clock.slept == [*WAITS, 0.05]


def test_the_first_version_of_a_table_is_never_fenced(world: World) -> None:
    """A table of an empty commit is none. Whose the place is can be found out all the same."""
    world.store.puts = [LOST] * 5

    with pytest.raises(UnknownOutcomeError):
        world.put(0)
    assert world.there(log_name(0)) is None

    world.store.puts = [LOST] * 5
    world.store.reads = [lambda: world.lands(MINE, log_name(0))]
    assert world.put(0)


def test_a_file_that_is_said_to_exist_and_is_not_there_is_asked_for_again(world: World) -> None:
    """Then its place is closed as well, and the error says what was strange."""
    world.lands(ANOTHERS)
    world.store.reads = [FileNotFoundError()] * 5

    assert world.put() is False
    assert world.clock.slept == WAITS

    world.store.reads = [FileNotFoundError()] * 10
    with pytest.raises(UnknownOutcomeError) as unclear:
        world.put()
    assert str(unclear.value.__cause__) == f"{NAME} exists, and cannot be found"


def test_what_was_strange_does_not_hide_what_failed(world: World) -> None:
    """The first error is the one to tell."""
    world.lands(ANOTHERS)
    world.store.puts = [LOST]
    world.store.reads = [FileNotFoundError()] * 9

    with pytest.raises(UnknownOutcomeError) as unclear:
        world.put()

    assert unclear.value.__cause__ is LOST


def test_a_file_of_which_only_a_part_has_come_is_read_again(world: World) -> None:
    """Nobody knows yet whose it is."""
    world.lands(MINE[: len(MINE) // 2])
    world.store.reads = [None, lambda: world.store._disk.files.update({NAME: (MINE, 0)})]

    assert world.put()
    assert world.clock.slept == WAITS[:1]

    world.store._disk.files[NAME] = (MINE[: len(MINE) // 2], 0)
    with pytest.raises(UnknownOutcomeError) as unclear:
        world.put()
    assert f"{NAME} cannot be read: memory://" in str(unclear.value.__cause__)
