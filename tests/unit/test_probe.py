"""The probe: storages that are not what they say are found out, by name."""
# ruff: noqa: ARG002 - liars do not look at what they are given

import errno
from collections.abc import Callable

import pytest

from kafkalike.errors import KafkaConnectionError, UnsafeStorageError
from kafkalike.log.store.port import Entry, NotStoredError
from kafkalike.log.store.probe import TRIES, probe
from kafkalike.testing import ManualClock


class Storage:
    """An object store in memory; each kind of liar is one override."""

    uri = "s3://bucket/root"

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.objects: dict[str, bytes] = {}
        self.requests = 0

    def create(self, name: str, content: bytes) -> str | None:
        self.requests += 1
        if name in self.objects:
            return None
        self.objects[name] = content
        return "tag"

    def get_with_time(self, name: str) -> tuple[bytes, int]:
        if name not in self.objects:
            raise FileNotFoundError(name)
        return self.objects[name], self.clock.now_ms() // 1000 * 1_000_000_000

    def list(self, folder: str, *, deep: bool) -> list[Entry]:
        return [Entry(name.removeprefix(f"{folder}/"), 1, 0) for name in self.objects]

    def delete(self, name: str) -> None:
        self.objects.pop(name, None)


class NoConditions(Storage):
    def create(self, name: str, content: bytes) -> str | None:
        self.objects[name] = content
        return "tag"


class Forgets(Storage):
    def get_with_time(self, name: str) -> tuple[bytes, int]:
        raise FileNotFoundError(name)


class Overwrites(Storage):
    def create(self, name: str, content: bytes) -> str | None:
        there = name in self.objects
        self.objects[name] = content
        return None if there else "tag"


class ListsLate(Storage):
    def list(self, folder: str, *, deep: bool) -> list[Entry]:
        return []


class NotImplemented501(Storage):
    def create(self, name: str, content: bytes) -> str | None:
        raise OSError(errno.EIO, "501 Not Implemented: NotImplemented: a header you provided")


class AnotherTime(Storage):
    def get_with_time(self, name: str) -> tuple[bytes, int]:
        content, now_ns = super().get_with_time(name)
        return content, now_ns - 301_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_an_honest_storage_is_proved_and_left_as_it_was(clock: ManualClock) -> None:
    storage = Storage(clock)

    proof = probe(storage, clock)

    assert abs(proof.ahead_ns) <= 1_000_000_000
    assert storage.objects == {}


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        (NoConditions, "a conditional create of a key that exists was answered with success"),
        (Overwrites, "an object held something else than what was put"),
        (Forgets, "an object was not found right after it was created"),
        (ListsLate, "an object was not listed right after it was created"),
        (NotImplemented501, "a conditional create was answered with: 501 Not Implemented"),
        (AnotherTime, "its clock is 30[01] s behind this machine's"),
    ],
)
def test_a_storage_that_loses_records_is_refused_with_what_was_seen(
    clock: ManualClock, kind: Callable[[ManualClock], Storage], seen: str
) -> None:
    """And the key that was tried is removed again."""
    storage = kind(clock)

    with pytest.raises(UnsafeStorageError, match=f"s3://bucket/root was tried .*{seen}"):
        probe(storage, clock)

    assert storage.objects == {}


def test_a_storage_that_is_busy_at_first_is_tried_again(clock: ManualClock) -> None:
    """Another key, since the first one may exist by now."""

    class Busy(Storage):
        def create(self, name: str, content: bytes) -> str | None:
            answer = super().create(name, content)
            if self.requests % 2:
                raise OSError(errno.EIO, "503 Service Unavailable: SlowDown")
            return answer

    storage = Busy(clock)

    probe(storage, clock)

    assert storage.requests >= 4


def test_a_storage_without_an_answer_is_no_connection(clock: ManualClock) -> None:
    class Silent(Storage):
        def create(self, name: str, content: bytes) -> str | None:
            self.requests += 1
            raise OSError(errno.EIO, "error sending request")

    storage = Silent(clock)

    with pytest.raises(KafkaConnectionError, match=r"gives no answer: .*error sending request"):
        probe(storage, clock)
    assert storage.requests == TRIES


@pytest.mark.parametrize(("number", "error"), [(errno.EACCES, PermissionError), (errno.ENXIO, KafkaConnectionError)])
def test_a_refusal_proves_nothing(clock: ManualClock, number: int, error: type[Exception]) -> None:
    """Credentials that may only read, and a bucket that is not there, are told apart."""

    class Refuses(Storage):
        def create(self, name: str, content: bytes) -> str | None:
            raise NotStoredError(number, "refused", name)

    with pytest.raises(error):
        probe(Refuses(clock), clock)
