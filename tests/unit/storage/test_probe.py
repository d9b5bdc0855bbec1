"""The probe: storages that are not what they say are found out, by name."""
# ruff: noqa: ARG002 - liars do not look at what they are given

import errno
from collections.abc import Callable

import pytest

from kafkalike.admin.testing import ManualClock
from kafkalike.errors import KafkaConnectionError, UnsafeStorageError
from kafkalike.storage.port import Entry, NotStoredError
from kafkalike.storage.probe import KEPT_MS, LEFT_MS, PROBES, TRIES, probe


class Storage:
    """An object store in memory; each kind of liar is one override."""

    uri = "s3://bucket/root"
    address = "https://store.example"

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.objects: dict[str, bytes] = {}
        self.written_ms: dict[str, int] = {}
        self.requests = 0

    def create(self, name: str, content: bytes) -> str | None:
        self.requests += 1
        if name in self.objects:
            return None
        self.objects[name] = content
        self.written_ms[name] = self.clock.now_ms()
        return "tag"

    def get_with_time(self, name: str) -> tuple[bytes, int]:
        if name not in self.objects:
            raise FileNotFoundError(name)
        return self.objects[name], self.clock.now_ms() // 1000 * 1_000_000_000

    def list(self, folder: str, *, deep: bool) -> list[Entry]:
        return [Entry(name.removeprefix(f"{folder}/"), 1, self.written_ms.get(name, 0)) for name in self.objects]

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


def test_an_honest_storage_is_proved_and_left_as_it_was(clock: ManualClock) -> None:
    storage = Storage(clock)

    proof = probe(storage, clock)

    assert proof.ahead_ns is not None
    assert abs(proof.ahead_ns) <= 1_000_000_000
    assert storage.objects == {}


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        (NoConditions, "a conditional create of a key that exists was answered with success"),
        (Overwrites, "an object had another content than the one put"),
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


# --- the key that is kept ------------------------------------------------------------------------


def test_who_comes_after_a_whole_trial_makes_one_request(clock: ManualClock) -> None:
    """The key of the first one cannot be created again; by that the storage shows that it knows the condition."""
    storage = Storage(clock)

    first = probe(storage, clock, whole=False)
    kept = dict(storage.objects)
    storage.requests = 0
    second = probe(storage, clock, whole=False)

    assert first.ahead_ns is not None
    assert second.ahead_ns is None
    assert len(kept) == 1
    assert storage.objects == kept
    assert storage.requests == 1


@pytest.mark.parametrize("kind", [NoConditions, Overwrites])
def test_a_kept_key_does_not_help_a_storage_without_conditions(
    clock: ManualClock, kind: Callable[[ManualClock], Storage]
) -> None:
    """It was good, and is reached through something else by now."""
    good, bad = Storage(clock), kind(clock)
    probe(good, clock, whole=False)
    bad.objects = dict(good.objects)

    if kind is NoConditions:
        with pytest.raises(UnsafeStorageError, match="was answered with success"):
            probe(bad, clock, whole=False)
    else:
        assert probe(bad, clock, whole=False).ahead_ns is None
        with pytest.raises(UnsafeStorageError, match="another content than the one put"):
            probe(bad, clock)


@pytest.mark.parametrize("kind", [NoConditions, Overwrites, Forgets, ListsLate, AnotherTime])
def test_who_finds_a_storage_unsafe_leaves_no_key(clock: ManualClock, kind: Callable[[ManualClock], Storage]) -> None:
    storage = kind(clock)

    for _ in range(2):
        with pytest.raises(UnsafeStorageError):
            probe(storage, clock, whole=False)

        assert storage.objects == {}


def test_another_address_is_tried_out_for_itself(clock: ManualClock) -> None:
    """A gateway before the same bucket may keep writers apart less well."""
    storage = Storage(clock)
    probe(storage, clock, whole=False)

    storage.address = "https://gateway.example"

    assert probe(storage, clock, whole=False).ahead_ns is not None
    assert len(storage.objects) == 2


def test_a_kept_key_counts_for_minutes_and_goes_after_an_hour(clock: ManualClock) -> None:
    """A clock that is an hour behind finds none, so it is found out."""
    storage = Storage(clock)
    probe(storage, clock, whole=False)
    first = set(storage.objects)

    clock.sleep(KEPT_MS / 1000)
    assert probe(storage, clock, whole=False).ahead_ns is not None
    assert first < set(storage.objects)
    clock.sleep(2 * KEPT_MS / 1000)
    assert probe(storage, clock, whole=False).ahead_ns is not None

    assert len(storage.objects) == 1
    assert not first & set(storage.objects)


def test_keys_that_killed_processes_have_left_go_after_a_day(clock: ManualClock) -> None:
    storage = Storage(clock)
    storage.create(f"{PROBES}/{'a' * 32}", b"first")
    clock.sleep(LEFT_MS / 1000 - 60)
    storage.create(f"{PROBES}/{'b' * 32}", b"first")
    probe(storage, clock, whole=False)
    assert len(storage.objects) == 3

    clock.sleep(KEPT_MS / 1000)
    probe(storage, clock, whole=False)

    assert f"{PROBES}/{'a' * 32}" not in storage.objects
    assert f"{PROBES}/{'b' * 32}" in storage.objects


def test_an_answer_that_is_lost_is_followed_by_a_whole_trial(clock: ManualClock) -> None:
    """With a key of its own; what the first request has left is kept, as others take it for no more than it is."""

    class Loses(Storage):
        def create(self, name: str, content: bytes) -> str | None:
            answer = super().create(name, content)
            if self.requests == 1:
                raise OSError(errno.EIO, "error sending request")
            return answer

    storage = Loses(clock)

    assert probe(storage, clock, whole=False).ahead_ns is not None
    assert len(storage.objects) == 1


# --- answers that prove nothing ------------------------------------------------------------------


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
