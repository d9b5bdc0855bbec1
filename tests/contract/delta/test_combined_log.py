"""Several writers of one topic where there are no locks: they commit for each other; nothing is lost, doubled or wrong.

Real logs and tables, over a store in memory that loses answers and lets others act between any two requests.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalike.cli.log.dump_log import _commit_line
from kafkalike.delta.actions import log_name
from kafkalike.delta.commit_file import lines_of
from kafkalike.delta.damage import sealed
from kafkalike.delta.group_commit import group_commit as combining
from kafkalike.delta.group_commit import staging_area as appends
from kafkalike.delta.group_commit import staging_area as waiting_files
from kafkalike.delta.layout import CLUSTER_METADATA, ROOT_FORMAT
from kafkalike.delta.snapshot import load_snapshot
from kafkalike.errors import (
    CorruptRecordError,
    KafkaError,
    KafkaStorageError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    TopicDeletedError,
    UnknownOutcomeError,
    UnsupportedVersionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.topic import topic_group_commit as combined
from kafkalike.log.topic.batch_payload import pack, unpack
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.maintenance.verify.topic_history import list_commits
from kafkalike.model.appends import group_commit as protocol
from kafkalike.model.appends.taken_appends import TakenAppends, WaitingAppend
from kafkalike.model.appends.waiting_appends import MOST_PARTS, ForgottenError
from kafkalike.model.record_batch import TxnId
from tests.tools.effort import examples, seeds
from tests.tools.everywhere import EverywhereStore, Mood, NoThreads, SimulatedClock
from tests.tools.records import batch, everything

SEEDS = seeds(120, 60)


MUTANT_SEEDS = 300
"""Within so many trials a fault must be found."""


def combined_of(log: TopicLog) -> combined.TopicGroupCommit:
    assert log._combined is not None
    return log._combined


class Place:
    """A root with one topic of two partitions, and writers that know nothing of each other."""

    def __init__(self, seed: int = 0, settings: Mapping[str, str] | None = None) -> None:
        self.clock = SimulatedClock()
        self.mood = Mood(random.Random(seed))
        self.store = EverywhereStore(self.clock, self.mood)
        self.cluster().create_topic("t", 2, {"message.timestamp.before.max.ms": str(2**62), **(settings or {})})

    def cluster(self) -> Cluster:
        cluster = Cluster(self.store, clock=self.clock)
        cluster.helpers = NoThreads()
        return cluster

    def log(self) -> TopicLog:
        found = self.cluster().log("t")
        assert isinstance(found, TopicLog)
        return found

    def busy_log(self) -> TopicLog:
        """One that has met others."""
        log = self.log()
        combined_of(log).meet()
        return log

    def read(self) -> dict[int, list[tuple[int, str]]]:
        return everything(self.log())

    def waiting(self) -> list[str]:
        return [entry.name for entry in self.store.at("t").list("_waiting")]


class Writer:
    """Appends to the topic when it is told to, and keeps what it was told."""

    def __init__(self, place: Place, name: str) -> None:
        self.place = place
        self.name = name
        self.log = place.log()
        self.count = 0
        self.busy = False
        self.acked: dict[str, dict[int, range]] = {}
        self.refused: list[str] = []
        self.unknown: list[str] = []

    def append(self) -> None:
        if self.busy:
            return
        self.busy = True
        self.count += 1
        label, rng = f"{self.name}.{self.count}", self.place.mood.rng
        partitions = [rng.randint(0, 1) for _ in range(rng.randint(1, 3))]
        records = batch(*((p, f"{label}.{nth}") for nth, p in enumerate(partitions)))
        try:
            done = self.log.append(records, timeout_ms=rng.choice([200.0, 60_000.0]))
        except UnknownOutcomeError:
            self.unknown.append(label)
        except (KafkaError, OSError):
            self.refused.append(label)
        else:
            self.acked[label] = dict(done.ranges)
            assert sum(map(len, done.ranges.values())) == len(partitions)
        finally:
            self.busy = False


def played(seed: int, trouble: float) -> tuple[Place, list[Writer]]:
    place = Place(seed)
    rng = place.mood.rng
    writers = [Writer(place, f"w{n}") for n in range(rng.randint(2, 4))]
    for writer in writers:
        if rng.random() < 0.5:
            combined_of(writer.log).meet()
    place.mood.trouble = trouble
    for _ in range(rng.randint(3, 8)):
        place.mood.others = [rng.choice(writers).append for _ in range(rng.randint(0, 6))]
        rng.choice(writers).append()
    place.mood.settle()
    return place, writers


def loaded(place: Place, *, far: bool) -> list[tuple[int, list[dict[str, Any]]]]:
    """What the log says: to a reader who uses joined commits, or to one who does not."""
    place.mood.far = far
    return load_snapshot(place.store.at("t")).commits


def judge(place: Place, writers: list[Writer]) -> None:
    found: dict[str, list[tuple[int, int]]] = {}
    order: dict[tuple[str, int], list[int]] = {}
    for partition, rows in place.read().items():
        assert [offset for offset, _ in rows] == list(range(len(rows)))
        for offset, value in rows:
            label, _, _ = value.rpartition(".")
            name, _, number = label.rpartition(".")
            assert (partition, offset) not in found.get(label, [])
            found.setdefault(label, []).append((partition, offset))
            order.setdefault((name, partition), []).append(int(number))
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert loaded(place, far=True) == loaded(place, far=False)
    for writer in writers:
        for label, runs in writer.acked.items():
            assert sorted(found[label]) == sorted((p, o) for p, run in runs.items() for o in run)
        assert [label for label in writer.refused if label in found] == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("trouble", [0.0, 0.05, 0.3])
def test_no_schedule_loses_doubles_or_reorders_an_append(trouble: float) -> None:
    """Two to four writers; others act between any two requests; requests fail and land late."""
    acked = refused = unknown = shared = 0
    for seed in SEEDS:
        place, writers = played(seed, trouble)
        try:
            judge(place, writers)
        except AssertionError as wrong:
            raise AssertionError(f"seed {seed}, trouble {trouble}: {wrong}") from wrong
        acked += sum(len(w.acked) for w in writers)
        refused += sum(len(w.refused) for w in writers)
        unknown += sum(len(w.unknown) for w in writers)
        shared += len(place.log()._table.state.taken.latest)

    # The trial is of what it says: appends are combined, and all three endings occur.
    assert acked > len(SEEDS)
    assert shared > 0
    assert refused > 0
    assert (unknown > 0) == (trouble > 0)


def _takes_what_is_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TakenAppends, "may_take", lambda _self, _part: True)


def _makes_it_on_any_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(appends.AtVersion, "broken", lambda _self, _state: "")


def _takes_nothing_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(waiting_files.StagingArea, "withdraw", lambda _self, _part: None)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "mutant",
    [
        _takes_what_is_taken,
        _makes_it_on_any_version,
        _takes_nothing_back,
    ],
    ids=lambda mutant: mutant.__name__,
)
def test_the_trial_finds_a_log_that_is_wrong(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)

    assert any(_wrong(seed) for seed in range(MUTANT_SEEDS))


def _wrong(seed: int) -> bool:
    try:
        judge(*played(seed, (0.0, 0.05, 0.3)[seed % 3]))
    except (AssertionError, KafkaError, AttributeError):
        return True
    return False


# --- one by one ----------------------------------------------------------------------------------


def test_a_lone_writer_asks_for_nothing_that_waits() -> None:
    """No list, nothing beside the table."""
    place = Place()
    log = place.log()
    for number in range(5):
        log.append(batch(str(number)))

    assert [call for call in place.mood.calls if "_waiting" in call] == []
    assert place.read()[0] == [(n, str(n)) for n in range(5)]


def test_one_commits_for_another_that_waits() -> None:
    """Its records stand in one file with those of the other; each is told its own offsets."""
    place = Place()
    first, second = place.busy_log(), place.busy_log()
    answers = []
    place.mood.before.append(("read _delta_log/00000000000000000001", lambda: None))

    def other() -> None:
        answers.append(second.append(batch("b0", "b1")))

    first.append(batch("first"))
    second.refresh()
    place.mood.before.append(("list _waiting", lambda: None))
    place.mood.before.append(("put _waiting", lambda: place.mood.before.append(("read _delta_log", lead))))

    def lead() -> None:
        answers.append(first.append(batch("a")))

    other()

    assert [dict(a.ranges) for a in answers] == [{0: range(3, 4)}, {0: range(1, 3)}]
    assert answers[0].version == answers[1].version
    assert place.read()[0] == [(0, "first"), (1, "b0"), (2, "b1"), (3, "a")]
    assert len(place.log().segments(0)) == 2


def waits(place: Place, log: TopicLog, records: str, **more: object) -> None:
    """Put an append beside the table whose writer then dies."""

    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    place.mood.before.append(("put _waiting", lambda: place.mood.before.append(("read _delta_log", die))))
    with pytest.raises(Died):
        log.append(batch(records), **more)  # type: ignore[arg-type]
    assert len(place.waiting()) >= 1


def test_what_a_dead_writer_has_left_is_committed_once() -> None:
    """It may land, as nobody was told what became of it; and its file stays."""
    place = Place()
    leader, dead = place.busy_log(), place.busy_log()
    leader.append(batch("first"))
    dead.refresh()
    waits(place, dead, "left")

    for number in range(3):
        leader.append(batch(str(number)))
    place.busy_log().append(batch("new"))

    assert [value for _, value in place.read()[0]] == ["first", "left", "0", "1", "2", "new"]


def test_what_has_waited_for_long_is_not_taken() -> None:
    """Its writer is gone; whoever reads would see records of long ago."""
    place = Place()
    leader, dead = place.busy_log(), place.busy_log()
    leader.append(batch("first"))
    dead.refresh()
    waits(place, dead, "left")
    place.clock.sleep(waiting_files.STALE_MS / 1000 + 1)
    combined_of(leader).meet()

    leader.append(batch("later"))

    assert [value for _, value in place.read()[0]] == ["first", "later"]


def test_an_interrupted_append_is_settled_before_the_next_one_of_its_thread() -> None:
    """It never lands after it."""
    place = Place()
    log, other = place.busy_log(), place.busy_log()
    other.append(batch("first"))
    log.refresh()
    waits(place, log, "interrupted")

    log.append(batch("next"))
    combined_of(other).meet()
    other.append(batch("last"))

    assert [value for _, value in place.read()[0]] == ["first", "next", "last"]


def test_nothing_is_written_while_an_earlier_append_is_in_doubt() -> None:
    place = Place()
    log, other = place.busy_log(), place.busy_log()
    other.append(batch("first"))
    log.refresh()
    waits(place, log, "interrupted")
    place.mood.trouble = 1.0

    with pytest.raises(KafkaStorageError, match="in doubt"):
        log.append(batch("next"))

    place.mood.settle()
    log.append(batch("after"))
    assert [value for _, value in place.read()[0]] == ["first", "after"]


def test_an_append_in_doubt_is_settled_by_the_next_log_of_the_process() -> None:
    """A producer closes logs that it has not used for long, and opens them again."""
    place = Place()
    cluster, other = place.cluster(), place.busy_log()
    log = cluster.log("t")
    combined_of(log).meet()
    other.append(batch("first"))
    log.refresh()
    waits(place, log, "interrupted")

    cluster.log("t").append(batch("next"))
    combined_of(other).meet()
    other.append(batch("last"))

    assert [value for _, value in place.read()[0]] == ["first", "next", "last"]


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0, 10])
def test_a_thread_goes_on_though_the_log_no_longer_tells_of_its_append_in_doubt(kept: int) -> None:
    """The log was cleaned above the append, or would take too many reads; its caller was told that it is unknown."""
    place = Place()
    log, other = place.busy_log(), place.busy_log()
    other.append(batch("first"))
    log.refresh()
    waits(place, log, "interrupted")
    part = combined_of(log).open.left()[0]
    place.clock.sleep(waiting_files.STALE_MS / 1000 + 1)
    for number in range(110):
        other.append(batch(f"o{number}"))
    other._home.helpers.wait(20.0)
    files = place.store.at("t")
    checkpoint = max(e.name for e in files.list("_delta_log") if ".checkpoint" in e.name)
    for version in range(int(checkpoint[:20]) - kept):
        files.remove(log_name(version), quietly=True)

    log.append(batch("next"))
    combined_of(other).meet()
    other.append(batch("last"))

    values = [value for _, value in place.read()[0]]
    assert values[-2:] == ["next", "last"]
    assert "interrupted" not in values
    assert files.read(f"_waiting/{part.name}") == waiting_files.WITHDRAWN
    assert combined_of(log).open.left() == []


def test_what_became_of_an_append_is_asked_with_few_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a log that is long."""
    monkeypatch.setattr(waiting_files, "MOST_RECALLED", 4)
    place = Place()
    log = place.log()
    for number in range(6):
        log.append(batch(str(number)))

    assert combined_of(log).files.recalled(WaitingAppend(2, "a", 1), 6) == {}
    with pytest.raises(ForgottenError, match="look for append id a-1 with"):
        combined_of(log).files.recalled(WaitingAppend(1, "a", 1), 6)


def test_dump_log_shows_what_an_error_names() -> None:
    """The appends that one commit took."""
    place = Place()
    leader, log = place.busy_log(), place.busy_log()
    leader.append(batch("first"))
    log.refresh()
    waits(place, log, "left")
    part = combined_of(log).open.left()[0]
    leader.append(batch("a"))

    shown = [_commit_line(commit) for commit in list_commits(place.cluster(), "t")]

    assert part.id in str(UnknownOutcomeError("append", part.id))
    assert [f" parts: {part.id}" in line for line in shown] == [False, False, True]


def test_a_writer_whose_time_is_over_takes_its_append_back() -> None:
    """Another one is busy and does not look; then nobody takes the append any more."""
    place = Place()
    log, other = place.busy_log(), place.busy_log()
    other.append(batch("first"))
    log.refresh()

    with pytest.raises(KafkaTimeoutError, match="nothing was written"):
        log.append(batch("late"), timeout_ms=0.0)
    other.append(batch("next"))
    log.append(batch("again"))

    assert [value for _, value in place.read()[0]] == ["first", "next", "again"]


@pytest.mark.slow
def test_a_busy_writer_that_has_met_nobody_is_told() -> None:
    """By a version that it has not made."""
    place = Place()
    busy, late = place.log(), place.log()
    busy.append(batch("0"))
    count = 0

    def go_on() -> None:
        nonlocal count
        count += 1
        if count < 40:
            place.mood.before.append(("put _delta_log", go_on))
            busy.append(batch(f"busy{count}"))

    place.mood.before.append(("put _delta_log", go_on))
    late.append(batch("late"))

    assert not combined_of(busy).company.alone(place.clock.monotonic())
    assert (0, "0") in place.read()[0]
    assert "late" in [value for _, value in place.read()[0]]


def test_what_a_topic_does_not_take_any_more_is_left_to_its_own_writer() -> None:
    """Settings that changed while an append waited."""
    place = Place()
    leader, log = place.busy_log(), place.busy_log()
    leader.append(batch("first"))
    log.refresh()

    def change() -> None:
        cluster = place.cluster()
        cluster.set_configs("t", {**cluster.log("t").info.configs, "max.message.bytes": "100"})
        leader.append(batch("small"))

    place.mood.before.append(("put _waiting", lambda: place.mood.before.append(("read _delta_log", change))))
    with pytest.raises(MessageSizeTooLargeError):
        log.append(batch("x" * 200))
    log.append(batch("again"))

    assert [value for _, value in place.read()[0]] == ["first", "small", "again"]


def newer_format(place: Place) -> None:
    """What a newer release does to a root."""
    files = place.store.at(CLUSTER_METADATA)
    actions = [json.loads(line) for line in files.read(log_name(0)).splitlines()]
    found = next(action["metaData"] for action in actions if "metaData" in action)
    found["configuration"][ROOT_FORMAT] = "3"
    version = len(files.list("_delta_log"))
    assert files.put_if_absent(log_name(version), lines_of({"operation": "UPGRADE"}, [{"metaData": found}]))


def test_what_is_refused_was_never_put_beside_the_table() -> None:
    """Others would have it in hand from then on. So all that an append must have seen is looked at before."""
    place = Place()
    log, other = place.busy_log(), place.log()
    other.append(batch("first"))
    log.refresh()
    cluster = place.cluster()
    cluster.set_configs("t", {**cluster.log("t").info.configs, "max.message.bytes": "100"})

    with pytest.raises(MessageSizeTooLargeError):
        log.append(batch("x" * 200))
    newer_format(place)
    with pytest.raises(UnsupportedVersionError, match="has format 3"):
        log.append(batch("late"))

    assert [call for call in place.mood.calls if call.startswith("put _waiting")] == []
    assert place.waiting() == []


def test_an_append_that_waits_in_a_root_that_becomes_newer_is_unknown_and_the_next_one_refused_by_name() -> None:
    """No older release may write the version that would settle it; nothing else is written, and nobody takes it."""
    place = Place()
    log, other = place.busy_log(), place.log()
    other.append(batch("first"))
    log.refresh()
    place.mood.before.append(("put _waiting", lambda: newer_format(place)))

    with pytest.raises(UnknownOutcomeError) as unknown:
        log.append(batch("late"))
    for _ in range(2):
        with pytest.raises(UnsupportedVersionError, match="has format 3"):
            log.append(batch("again"))

    assert isinstance(unknown.value.__cause__, UnsupportedVersionError)
    assert [place.store.at("t").read(f"_waiting/{name}") for name in place.waiting()] == [waiting_files.WITHDRAWN]


def test_a_deleted_topic_takes_nothing() -> None:
    place = Place()
    log, other = place.busy_log(), place.busy_log()
    other.append(batch("first"))
    log.refresh()

    place.mood.before.append(("put _waiting", lambda: place.cluster().delete_topic("t")))
    with pytest.raises(TopicDeletedError):
        log.append(batch("late"))


def test_a_named_write_lands_once_however_it_comes() -> None:
    """Waiting or not; and it is told its own offsets when it comes again."""
    place = Place()
    leader, log = place.busy_log(), place.busy_log()
    leader.append(batch("first"))
    log.refresh()
    waits(place, log, "named", txn=TxnId("job", 7))
    leader.append(batch("a"))

    again = place.busy_log().append(batch("named"), txn=TxnId("job", 7))

    assert again.duplicate
    assert dict(again.ranges) == {0: range(1, 2)}
    assert [value for _, value in place.read()[0]] == ["first", "named", "a"]


def test_files_of_one_commit_have_the_codecs_of_their_producers() -> None:
    place = Place()
    leader, log = place.busy_log(), place.busy_log()
    leader.append(batch("first"))
    log.refresh()
    waits(place, log, "zipped", codec="gzip")

    leader.append(batch("plain"), codec="zstd")

    assert [value for _, value in place.read()[0]] == ["first", "zipped", "plain"]
    assert len(place.log().segments(0)) == 3


def test_a_live_writer_that_nobody_takes_along_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a busy topic, too: it makes a version itself after a few that passed it over."""
    place = Place()
    leader, log = place.busy_log(), place.log()
    leader.append(batch("first"))
    log.refresh()
    combined_of(log).meet()
    count, sleep = 0, place.clock.sleep

    def refuse() -> None:
        cluster = place.cluster()
        cluster.set_configs("t", {**cluster.log("t").info.configs, "max.message.bytes": "100"})

    def meanwhile(seconds: float) -> None:
        nonlocal count
        sleep(seconds)
        monkeypatch.setattr(place.clock, "sleep", sleep)
        leader.append(batch("o"))
        count += 1
        monkeypatch.setattr(place.clock, "sleep", meanwhile)

    place.mood.before.append(("put _waiting", refuse))
    monkeypatch.setattr(place.clock, "sleep", meanwhile)
    with pytest.raises(MessageSizeTooLargeError):
        log.append(batch("x" * 200), timeout_ms=600_000)

    assert protocol.PASSED_OVER <= count <= 3 * protocol.PASSED_OVER


def test_a_large_append_asks_for_room_where_others_are_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take nothing more until it is there; then the word is gone."""
    monkeypatch.setattr(combined, "MOST_STORED", 10)
    place = Place()
    log, other, third = place.busy_log(), place.busy_log(), place.busy_log()
    other.append(batch("o1"))
    gave_way = []

    def small() -> None:
        gave_way.append([name for name in place.waiting() if "-room-" in name])
        with pytest.raises(KafkaTimeoutError):
            third.append(batch("o2"), timeout_ms=300.0)

    def once() -> None:
        other.append(batch("o0"))
        place.mood.before.append(("put _delta_log", small))

    place.mood.before.append(("put _waiting", once))
    log.refresh()
    log.append(batch("x" * 100))

    assert [len(names) for names in gave_way] == [1]
    assert [name for name in place.waiting() if "-room-" in name] == []
    values = [value for _, value in place.read()[0]]
    assert values[-1] == "x" * 100
    assert "o2" not in values


def test_a_large_append_only_races(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combined, "MOST_STORED", 10)
    place = Place()
    log, other = place.busy_log(), place.busy_log()
    other.append(batch("first"))

    def others() -> None:
        other.append(batch("o"))

    place.mood.before.append(("put _delta_log", others))

    log.append(batch("x" * 100))

    assert combined_of(log).open._free == []
    assert [value for _, value in place.read()[0]] == ["first", "o", "x" * 100]


def test_whoever_has_time_goes_on_however_slow_the_storage_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that looks for nobody is told by a version, which is lost again and again, for longer than it may take
    to find out what became of an append."""
    monkeypatch.setattr(combined, "MOST_STORED", 10)
    place = Place()
    deaf, log = place.log(), place.busy_log()
    deaf.append(batch("0"))
    lost = []

    def slow() -> None:
        place.clock.sleep(combining.GRACE_MS / 1000 * 0.6)
        lost.append(place.clock.monotonic())
        place.log().append(batch(f"other{len(lost)}"))
        if len(lost) < 3:
            place.mood.before.append(("put _delta_log", slow))

    log.refresh()
    place.mood.before.append(("put _delta_log", slow))
    log.append(batch("x" * 100), timeout_ms=60_000.0)

    assert len(lost) == 3
    assert [value for _, value in place.read()[0]] == ["0", "other1", "other2", "other3", "x" * 100]


def test_a_batch_is_unpacked_as_it_was_packed() -> None:
    made = batch("v", None, (1, "w"), key=b"k", headers=[("h", b"x"), ("n", None)])
    made.add(1, None, b"", 5, None)

    found, codec, txn = unpack(pack(made, "zstd", TxnId("a", 3, 1)))

    assert (found, codec, txn) == (made, "zstd", TxnId("a", 3, 1))


@pytest.mark.parametrize("content", [b"", b"withdrawn\n", b"2 00000000\n", b"[]\n", sealed(b""), sealed(b"[]\n")])
def test_what_is_no_batch_is_refused(content: bytes) -> None:
    with pytest.raises(KafkaError, match="cannot be read"):
        unpack(content)


def test_a_damaged_batch_is_refused() -> None:
    packed = pack(batch("value"), "none", None)

    for wrong in (packed[:-1], packed + b"x", packed.replace(b"value", b"valux")):
        with pytest.raises(CorruptRecordError, match="cannot be read"):
            unpack(wrong)


PACKED = pack(batch("value", (1, "w"), key=b"k", headers=[("h", b"x"), ("n", None)]), "zstd", TxnId("job", 3, 1))


def test_any_flipped_bit_is_found() -> None:
    """In the head, too: it says where the records go and what they are called."""
    for bit in range(8 * len(PACKED)):
        wrong = bytearray(PACKED)
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptRecordError):
            unpack(bytes(wrong))


def head_of(packed: bytes) -> tuple[dict[str, Any], bytes]:
    _, line, body = packed.split(b"\n", 2)
    return json.loads(line), body


def forged(head: object) -> bytes:
    """A file with a right checksum, by somebody who may write to the storage."""
    return sealed(json.dumps(head).encode() + b"\n" + head_of(PACKED)[1])


HEADS: list[dict[str, object]] = [
    {"txn": ["a", "x", None]},
    {"txn": ["a", True, None]},
    {"txn": ["a", 2**63, None]},
    {"txn": [7, 1, None]},
    {"txn": ["\ud800", 1, None]},
    {"txn": ["a", 1, 0.5]},
    {"txn": "abc"},
    {"txn": ["kafkalike.end/0", 2**40, None]},
    {"partitions": [float("inf"), 1]},
    {"partitions": [0.0, 1]},
    {"partitions": [False, 1]},
    {"partitions": ["0", 1]},
    {"partitions": "01"},
    {"timestamps": [2**63, 1]},
    {"timestamps": [None, 1]},
    {"headers": [[[7, None]], None]},
    {"headers": [[["h", -1]], None]},
    {"headers": [["hh"], None]},
    {"headers": {}},
    {"keys": [True, 0]},
    {"keys": [-1, 3]},
    {"values": [10**6, 1]},
    {"codec": "rar"},
    {"codec": None},
]


@pytest.mark.parametrize("wrong", HEADS, ids=str)
def test_a_forged_head_is_left_out_and_hurts_nobody(wrong: dict[str, object]) -> None:
    place = Place()
    log = place.busy_log()
    log.append(batch("first"))
    place.store.at("t").put_if_absent(f"_waiting/{log.version:020d}-aa-1", forged({**head_of(PACKED)[0], **wrong}))

    log.append(batch("next"))

    assert place.read()[0] == [(0, "first"), (1, "next")]
    assert place.read()[1] == []
    assert place.log()._table.state.txns.keys() <= {"kafkalike.end/0", "kafkalike.end/1"}


def test_a_right_file_is_taken_as_those_forged_ones_would_be() -> None:
    place = Place()
    log = place.busy_log()
    log.append(batch("first"))
    place.store.at("t").put_if_absent(f"_waiting/{log.version:020d}-aa-1", forged(head_of(PACKED)[0]))

    log.append(batch("next"))

    assert [value for _, value in place.read()[0]] == ["first", "next", "value"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["codec", "txn", "partitions", "timestamps", "keys", "values", "headers"]


@pytest.mark.slow
@given(JSON | st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3).map(lambda w: {**head_of(PACKED)[0], **w}))
@settings(max_examples=examples(200, 50), deadline=None)
def test_whatever_json_waits_an_append_beside_it_lands_and_can_be_read(head: object) -> None:
    place = Place()
    log, beside = place.busy_log(), place.busy_log()
    log.append(batch("first"))
    place.store.at("t").put_if_absent(f"_waiting/{log.version:020d}-aa-1", forged(head))

    log.append(batch("next"))
    combined_of(beside).meet()
    beside.append(batch("last"))

    values = [value for _, value in place.read()[0]]
    assert [v for v in values if v != "value"] == ["first", "next", "last"]


def test_what_hangs_together_too_deep_is_left_out() -> None:
    with pytest.raises(CorruptRecordError):
        unpack(sealed(b"[" * 200_000 + b"\n"))


@pytest.mark.parametrize("content", [b"withdrawn\n", b"no append at all", pack(batch("x" * 200), "none", None)])
def test_dead_files_take_nobodys_place(content: bytes) -> None:
    """More of them than a commit takes, and all older than the append of one that lives.

    They were withdrawn, are no appends, or the topic does not take them any more.
    """
    place = Place(settings={"max.message.bytes": "150"})
    log, dead = place.busy_log(), place.busy_log()
    log.append(batch("first"))
    for nth in range(MOST_PARTS):
        place.store.at("t").put_if_absent(f"_waiting/{log.version - 1:020d}-{nth + 300:x}-1", content)
    dead.refresh()
    waits(place, dead, "left")

    log.append(batch("a"))
    combined_of(log).meet()
    log.append(batch("b"))

    assert "left" in [value for _, value in place.read()[0]]
