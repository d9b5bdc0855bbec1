"""What `Storage` promises: the same over a folder, memory, S3 and Azure."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from kafkalike.errors import KafkaTimeoutError
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.memory import MemoryStorage
from kafkalike.storage.objects import FIRST_BYTES, PART_BYTES
from kafkalike.storage.parquet import open_parquet, put_parquet
from kafkalike.storage.port import Storage
from kafkalike.storage.scheduler import Pace
from tests.tools.clusters import object_store
from tests.tools.kinds import ALL_STORES


@pytest.fixture(params=ALL_STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, object_server: Callable[[str], object]) -> Storage:
    """An empty store."""
    if request.param == "memory":
        return MemoryStorage()
    if request.param == "local":
        (tmp_path / "root").mkdir()
        return LocalStorage(str(tmp_path / "root"))
    return object_store(object_server(request.param))  # type: ignore[arg-type]


def test_a_name_that_is_not_there_is_not_found(store: Storage) -> None:
    for ask in (store.read, store.size, store.open_input):
        with pytest.raises(FileNotFoundError):
            ask("nothing")

    assert store.list() == []
    assert store.list("nowhere", deep=True) == []


BAD_NAMES = [
    pytest.param("a\0b", id="NUL"),
    pytest.param("\ud800", id="lone surrogate"),
    pytest.param("x" * 5000, id="long"),
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_name_that_no_storage_can_have_is_an_os_error(store: Storage, name: str) -> None:
    """A foreign writer may put any name into a table's log; callers expect that a storage raises nothing else."""
    for ask in (store.read, store.size, store.open_input, lambda bad: store.read_range(bad, 0, 1)):
        with pytest.raises(OSError, match=r"."):
            ask(name)
    if not isinstance(store, MemoryStorage):
        with pytest.raises(OSError, match=r"."):
            store.put_if_absent(name, b"x")
        with pytest.raises(OSError, match=r"."):
            store.replace(name, b"x")
    store.remove(name, quietly=True)
    left = {entry.name for entry in store.list(deep=True) if not entry.name.startswith("__probe/")}
    assert left <= {name}


@pytest.mark.parametrize(("start", "stop"), [(1, 9), (3, 4), (7, 9), (-2, 1)], ids=str)
def test_range_that_a_file_does_not_have_is_an_os_error(store: Storage, start: int, stop: int) -> None:
    store.replace("three", b"abc")

    with pytest.raises(OSError, match=r"."):
        store.read_range("three", start, stop)


def test_a_second_put_if_absent_changes_nothing(store: Storage) -> None:
    assert store.put_if_absent("a", b"first")
    assert not store.put_if_absent("a", b"second")
    assert not store.put_if_absent("a", b"first")

    assert store.read("a") == b"first"


@pytest.mark.slow
def test_of_many_puts_of_one_name_one_wins(store: Storage) -> None:
    """Sixteen at the same moment, again and again; the content is the winner's."""
    for turn in range(30):
        begin = threading.Barrier(16)

        def put(nth: int, name: str = f"race-{turn}", begin: threading.Barrier = begin) -> bool:
            begin.wait()
            return store.put_if_absent(name, b"%d" % nth)

        with ThreadPoolExecutor(16) as pool:
            won = list(pool.map(put, range(16)))

        assert sum(won) == 1
        assert store.read(f"race-{turn}") == b"%d" % won.index(True)


def test_replace_writes_over_what_is_there(store: Storage) -> None:
    store.replace("a", b"first")
    store.replace("a", b"second")

    assert store.read("a") == b"second"
    assert store.size("a") == 6


def test_a_store_below_has_its_own_names(store: Storage) -> None:
    below = store.at("t")
    below.make_folder("_delta_log")
    below.put_if_absent("_delta_log/0.json", b"x")

    assert below.read("_delta_log/0.json") == b"x"
    assert store.read("t/_delta_log/0.json") == b"x"
    assert below.uri == f"{store.uri}/t"


def test_a_listing_says_names_sizes_and_times(store: Storage) -> None:
    """The times by the storage's own clock, which tells whole seconds in an object store."""
    before = store.coordination.now_ns() // 1_000_000
    table = store.at("t")
    table.make_folder("_delta_log")
    table.put_if_absent("_delta_log/0.json", b"xyz")
    for name in ("partition=0/a.parquet", "partition=1/b.parquet", "c.parquet"):
        with table.open_output(name) as stream:
            stream.write(b"12345")
    after = store.coordination.now_ns() // 1_000_000

    assert {e.name: e.size for e in table.list("_delta_log")} == {"0.json": 3}
    assert {e.name for e in table.list()} == {"c.parquet"}
    assert {e.name: e.size for e in table.list(deep=True)} == {
        "partition=0/a.parquet": 5,
        "partition=1/b.parquet": 5,
        "c.parquet": 5,
    }
    assert {e.name for e in table.list("partition=0", deep=True)} == {"a.parquet"}
    assert all(before - 2_000 <= e.modified_ms <= after + 2_000 for e in table.list(deep=True))


def test_a_listing_may_begin_after_a_name(store: Storage) -> None:
    """Of folders below there are no names, unless they are asked for."""
    store.make_folder("log")
    store.make_folder("log/below")
    for name in ("log/1", "log/2", "log/20", "log/3", "log/below/4", "logs"):
        store.replace(name, b"x")

    assert sorted(entry.name for entry in store.list("log", after="2")) == ["20", "3"]
    assert sorted(entry.name for entry in store.list("log", deep=True, after="3")) == ["below/4"]
    assert store.list("log", after="z") == []


def test_a_listing_with_a_link_through_a_file_fails_instead_of_ending_there(tmp_path: Path) -> None:
    for name in ("0.json", "1.json", "2.json"):
        Path(tmp_path, name).write_bytes(b"x")
    Path(tmp_path, "link.json").symlink_to(tmp_path / "0.json" / "below")

    with pytest.raises(NotADirectoryError):
        LocalStorage(str(tmp_path)).list()


def test_a_look_finds_a_file_once_it_is_there(store: Storage) -> None:
    """Whoever waits hears of what this process puts at once."""
    waiting = Pace(longest=60.0)

    before = [store.look("a"), store.look("a", waiting), store.look("a", waiting)]
    assert store.put_if_absent("a", b"1")
    after = [store.look("a"), store.look("a", waiting), store.look("a", waiting)]
    store.remove("a")

    assert before == [None] * 3
    assert after == [b"1"] * 3
    assert [store.look("a"), store.look("a", waiting)] == [None] * 2


def test_calls_beside_each_other_give_their_results_in_order_and_have_ended_when_one_fails(store: Storage) -> None:
    """The first one is made by the caller's thread."""
    ended: list[int] = []

    def call(number: int) -> int:
        ended.append(number)
        if number == 1:
            raise OSError("one")
        return threading.get_ident() if number == 0 else number

    assert store.scheduler.beside([]) == []
    assert store.scheduler.beside([lambda: call(0), lambda: call(2), lambda: call(3)]) == [threading.get_ident(), 2, 3]
    ended.clear()
    with pytest.raises(OSError, match="one"):
        store.scheduler.beside(
            [lambda: call(0), lambda: call(1), lambda: call(2)] if store.scheduler.is_remote else [lambda: call(1)]
        )

    assert sorted(ended) == ([0, 1, 2] if store.scheduler.is_remote else [1])


def test_folders_whose_names_begin_alike_are_told_apart(store: Storage) -> None:
    for folder in ("t", "tt", "t~1"):
        store.at(folder).make_folder("")
        store.at(folder).replace("x", folder.encode())

    assert [e.name for e in store.list("t", deep=True)] == ["x"]


@pytest.mark.parametrize("size", [0, 1, FIRST_BYTES - 1, FIRST_BYTES, FIRST_BYTES + 1, PART_BYTES * 2 + 3])
def test_a_file_is_read_as_it_was_written(store: Storage, size: int) -> None:
    """Of any size, in one go, from any place, and to its end."""
    content = (bytes(range(251)) * (size // 251 + 1))[:size]
    with store.open_output("f") as stream:
        for start in range(0, size, 1_000_000):
            stream.write(content[start : start + 1_000_000])
        assert stream.tell() == size

    assert store.size("f") == size
    assert store.read("f") == content
    for step in (0, 65_536):
        with store.open_input("f", step) as file:
            assert file.size() == size
            assert file.read() == content
            for at in sorted({0, size // 2, max(0, size - 1), size}):
                file.seek(at)
                assert file.read(7) == content[at : at + 7]
                assert file.tell() == min(size, at + 7)


@pytest.mark.slow
def test_a_parquet_file_comes_back(store: Storage) -> None:
    table = pa.table({"n": pa.array(range(200_000), pa.int64()), "v": [b"%d" % n for n in range(200_000)]})

    size = put_parquet(store, "f.parquet", table, "none")

    assert store.size("f.parquet") == size
    with open_parquet(store, "f.parquet") as file:
        assert file.read().equals(table)
    with open_parquet(store, "f.parquet", 65_536) as file:
        second = pa.Table.from_batches(file.iter_batches(100_000, [1], ["n"]))
    assert second.equals(table.select(["n"]).slice(100_000)), "groups are even"


def test_a_copy_is_another_file(store: Storage) -> None:
    source, target = store.at("a"), store.at("b")
    for below in (source, target):
        below.make_folder("")
    source.replace("x", b"content")

    source.copy("x", target, "y")
    source.remove("x")

    assert target.read("y") == b"content"


@pytest.fixture
def no_hard_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk whose file system has none."""

    def refused(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", refused)


def two_folders(root: Path, content: bytes) -> tuple[LocalStorage, LocalStorage]:
    """A folder with a file `x`, and an empty one."""
    made = LocalStorage(str(root / "a")), LocalStorage(str(root / "b"))
    for store in made:
        store.make_folder("")
    made[0].replace("x", content)
    return made


@pytest.mark.usefixtures("no_hard_links")
def test_copy_that_fails_halfway_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader would take half a file for the whole one."""
    source, target = two_folders(tmp_path, b"whole")

    def full(_: str, to: str) -> None:
        Path(to).write_bytes(b"wh")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", full)
        with pytest.raises(OSError, match="No space"):
            source.copy("x", target, "y")

    assert list(Path(target.uri).iterdir()) == []
    assert source.copy("x", target, "y") is False
    assert target.read("y") == b"whole"
    assert [path.name for path in Path(target.uri).iterdir()] == ["y"]


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
def test_copy_over_half_a_file_replaces_it(tmp_path: Path, request: pytest.FixtureRequest, *, links: bool) -> None:
    """An older release has left it there."""
    source, target = two_folders(tmp_path, b"whole")
    target.replace("y", b"wh")
    if not links:
        request.getfixturevalue("no_hard_links")

    shared = source.copy("x", target, "y")

    assert (shared, target.read("y")) == (False, b"whole")


@pytest.mark.usefixtures("no_hard_links")
def test_copy_leaves_a_whole_file_as_it_is(tmp_path: Path) -> None:
    source, target = two_folders(tmp_path, b"whole")
    source.copy("x", target, "y")
    before = Path(target.path("y")).stat().st_ino

    source.copy("x", target, "y")

    assert Path(target.path("y")).stat().st_ino == before


def test_what_is_removed_is_gone_and_may_be_removed_again(store: Storage) -> None:
    store.replace("a", b"1")
    store.replace("b", b"1")

    for _ in range(2):
        store.remove("a")
        store.remove("b", quietly=True)

    assert store.list() == []


def test_turns_come_in_order_and_end_with_the_deadline(store: Storage) -> None:
    """Another thread waits, does something meanwhile, and gives up in time."""
    looked: list[int] = []

    def wait(timeout_ms: float) -> None:
        with store.coordination.turn("t", Deadline(SYSTEM_CLOCK, timeout_ms), lambda: looked.append(1)):
            looked.append(2)

    with ThreadPoolExecutor(1) as pool, store.coordination.turn("t", Deadline(SYSTEM_CLOCK, 60_000)):
        with pytest.raises(KafkaTimeoutError, match="nothing was written"):
            pool.submit(wait, 50).result()
        waiting = pool.submit(wait, 60_000)
        with store.coordination.turn("another", Deadline(SYSTEM_CLOCK, 60_000)):
            assert not waiting.done()

    waiting.result()
    assert looked[-1] == 2


def test_the_first_turns_of_two_threads_meet(store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """One has looked for the folder of locks, in vain; before it goes on another one makes it."""
    looks = os.path.isdir

    def take(name: str) -> None:
        with store.coordination.turn(name, Deadline(SYSTEM_CLOCK, 60_000)):
            pass

    def another_first(path: str) -> bool:
        found = looks(path)
        monkeypatch.undo()
        take("another")
        take("a third")
        return found

    monkeypatch.setattr(os.path, "isdir", another_first)
    take("t")


def test_each_heartbeat_is_told_from_the_last_one(store: Storage) -> None:
    """Also two within a second; by the storage's time, so that silence can be measured."""
    leases = store.coordination.leases()
    before = store.coordination.now_ns()
    seen = []
    for _ in range(3):
        leases.renew("g", "m")
        seen.append(leases.read("g", ["m", "nobody"])["m"])

    assert len(set(seen)) == 3
    assert all(abs(stamp - before) < 60_000_000_000 for stamp in seen)
    assert leases.read("another", ["m"]) == {}
    leases.drop("g", "m")
    assert leases.read("g", ["m"]) == {}
