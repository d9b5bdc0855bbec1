"""Joined commits: what writers put for who opens a table, and what readers believe of it, whatever lies there."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalike.delta import commit_bundles as joined_content
from kafkalike.delta import commit_bundles as joining
from kafkalike.delta.actions import log_name
from kafkalike.delta.commit_bundles import (
    EACH,
    EVERY,
    MOST_BYTES,
    CommitBundle,
    CommitBundler,
    CommitFiles,
    proven,
    unpacked,
)
from kafkalike.delta.commit_file import CommitFile
from kafkalike.delta.damage import sealed
from kafkalike.delta.log_files import BLOCK, LogFiles, block_of, joined_name
from kafkalike.errors import LogCorruptError
from kafkalike.storage.memory import MemoryStorage
from tests.tools.effort import examples
from tests.tools.far import FarStore, tag_of

TABLE, OTHER = "0a1b", "2c3d"


def commit(version: int, by: str = "w") -> bytes:
    return CommitFile(version=version, time_ms=1000, operation="WRITE", append_id=f"{by}{version}").content()


def of(contents: Sequence[bytes], table_id: str = TABLE, first: int = 1, **files: bytes) -> CommitBundle:
    """As who joins them has it, by the names that the storage gives to contents."""
    return CommitBundle(
        table_id=table_id, first=first, contents=list(contents), tags=[tag_of(c) for c in contents], files=files
    )


def log_of(store: FarStore, versions: range, by: str = "w") -> None:
    for version in versions:
        store.replace(log_name(version), commit(version, by))


def joined(store: FarStore, versions: range, table_id: str = TABLE, by: str | None = None) -> None:
    """As a writer does that has read the commits, or with others."""
    there = {v: MemoryStorage.read(store, log_name(v)) if by is None else commit(v, by) for v in versions}
    found = of(list(there.values()), table_id, versions.start)
    store.replace(joined_name(block_of(versions.start)), found.packed())


def rewritten(store: FarStore, versions: range) -> None:
    joined(store, versions, by="x")
    log_of(store, versions)


def read(store: FarStore, versions: range) -> dict[int, bytes]:
    return dict(CommitFiles(store, LogFiles.listed(store)).read(list(versions)))


def the_truth(store: FarStore, versions: range) -> dict[int, bytes]:
    return {version: MemoryStorage.read(store, log_name(version)) for version in versions}


# --- the file ------------------------------------------------------------------------------------


@given(
    st.lists(st.binary(max_size=40), max_size=6),
    st.integers(0, 2**40),
    st.dictionaries(st.text(max_size=9), st.binary(max_size=40), max_size=3),
)
@settings(max_examples=examples(200, 20))
def test_a_joined_file_holds_commits_and_data_files_as_they_are(
    contents: list[bytes], first: int, files: dict[str, bytes]
) -> None:
    found = CommitBundle(table_id=TABLE, first=first, contents=contents, tags=["t"] * len(contents), files=files)

    assert unpacked(found.packed()) == found


@given(st.data())
@settings(max_examples=examples(300, 30))
def test_a_damaged_joined_file_is_none(data: st.DataObject) -> None:
    """Cut off, or with another byte anywhere."""
    content = of([commit(1), commit(2)], file=b"content").packed()
    at = data.draw(st.integers(0, len(content) - 1))
    other = data.draw(st.integers(1, 255))
    damaged = data.draw(
        st.sampled_from([content[:at], content[:at] + bytes([content[at] ^ other]) + content[at + 1 :]])
    )

    with pytest.raises(ValueError, match=r"format|hold"):
        unpacked(damaged)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]\n" + zlib.compress(b""),
        b'{"table":"t","first":1,"sizes":[]}\n' + zlib.compress(b""),
        b'{"table":1,"first":1,"sizes":[],"tags":[],"files":[]}\n' + zlib.compress(b""),
        b'{"table":"t","first":-1,"sizes":[],"tags":[],"files":[]}\n' + zlib.compress(b""),
        b'{"table":"t","first":1,"sizes":[true],"tags":["x"],"files":[]}\n' + zlib.compress(b"a"),
        b'{"table":"t","first":1,"sizes":[1],"tags":[],"files":[]}\n' + zlib.compress(b"a"),
        b'{"table":"t","first":1,"sizes":[1],"tags":[1],"files":[]}\n' + zlib.compress(b"a"),
        b'{"table":"t","first":1,"sizes":[1],"tags":["x"],"files":[["p",-1]]}\n' + zlib.compress(b"a"),
        b'{"table":"t","first":1,"sizes":[1],"tags":["x"],"files":[[["p"],1]]}\n' + zlib.compress(b"ab"),
        b'{"table":"t","first":1,"sizes":[1],"tags":["x"],"files":["p"]}\n' + zlib.compress(b"ab"),
        b'{"table":"t","first":1,"sizes":[2],"tags":["x"],"files":[]}\n' + zlib.compress(b"a"),
        b'{"table":"t","first":1,"sizes":[1],"tags":["x"],"files":[]}\n' + zlib.compress(b"ab"),
        b'{"table":"t","first":1,"sizes":[1],"tags":["x"],"files":[]}\n' + zlib.compress(b"a") * 2,
        b'{"table":"t","first":1,"sizes":[2],"tags":["x"],"files":[]}\n' + zlib.compress(b"a") + b"x",
        b'{"table":"t","first":1,"sizes":[1],"tags":["x"],"files":[]}\n' + zlib.compress(b"a")[:-1],
        b'{"table":"t","first":1,"sizes":[%d],"tags":["x"],"files":[]}\n' % (MOST_BYTES + 1),
        b'{"table":"t","first":1,"sizes":[1],"tags":["x"],"files":[]}\nno zlib',
    ],
)
def test_what_is_sealed_but_no_joined_file_is_none(body: bytes) -> None:
    """Of another release, or made by hand."""
    with pytest.raises(ValueError, match=r"hold|Expecting|dictionary update"):
        unpacked(sealed(body))


# --- reading -------------------------------------------------------------------------------------

ACTS: dict[str, Callable[[FarStore, range], None]] = {
    "joined": joined,
    "joined in part": lambda store, versions: joined(store, versions[: len(versions) // 2]),
    "joined further": lambda store, versions: joined(store, range(versions.start, versions.stop + 7), by="longer"),
    "damaged": lambda store, versions: store.replace(joined_name(block_of(versions.start)), b"1 00000000\nx"),
    "gone": lambda store, versions: store.remove(joined_name(block_of(versions.start))),
    "of other commits before": rewritten,
    "of other commits late": lambda store, versions: joined(store, versions, by="x"),
    "of longer commits": lambda store, versions: joined(store, versions, by="another"),
    "all rewritten": lambda store, versions: log_of(store, versions, "y"),
    "a commit replaced": lambda store, versions: store.replace(log_name(versions.start), commit(versions.start, "r")),
    "a longer one": lambda store, versions: store.replace(log_name(versions.stop - 1), commit(versions.stop - 1, "rr")),
}
"""What may befall a log, in any order. Commits of a version have the same length, but for those said to be longer."""


def agrees(seed: list[str], versions: range, wanted: range) -> bool:
    store = FarStore()
    log_of(store, versions)
    for act in seed:
        ACTS[act](store, versions)
    return read(store, wanted) == the_truth(store, wanted)


def drawn(data: st.DataObject) -> tuple[list[str], range, range]:
    start = data.draw(st.sampled_from([1, 98, 101, 5000]))
    versions = range(start, start + data.draw(st.integers(1, 30)))
    first = data.draw(st.integers(versions.start, versions.stop - 1))
    wanted = range(first, data.draw(st.integers(first + 1, versions.stop)))
    return data.draw(st.lists(st.sampled_from(sorted(ACTS)), max_size=4)), versions, wanted


@pytest.mark.slow
@given(st.data())
@settings(max_examples=examples(500, 50))
def test_a_reader_reads_what_the_commit_files_say_whatever_was_joined(data: st.DataObject) -> None:
    seed, versions, wanted = drawn(data)

    assert agrees(seed, versions, wanted)


@pytest.mark.parametrize(
    "seed",
    [
        ["joined", "a commit replaced"],
        ["of other commits before"],
        ["of other commits late"],
        ["joined", "all rewritten"],
    ],
)
def test_a_reader_that_goes_by_sizes_alone_is_found_out(seed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    right = joined_content._same

    def same(content: bytes, tag: str, size: int | None, listed: str | None) -> bool:
        return right(content, listed or tag, size, listed)

    assert agrees(seed, range(1, 20), range(1, 20))
    monkeypatch.setattr(joined_content, "_same", same)
    assert not agrees(seed, range(1, 20), range(1, 20))


@pytest.mark.parametrize(
    ("size", "tag", "listed", "believed"),
    [(1, "a", "a", True), (1, "a", "b", False), (1, "", "", False), (2, "a", "a", False)],
)
def test_a_commit_is_believed_that_has_the_name_and_the_size_of_the_listed_one(
    *, size: int, tag: str, listed: str, believed: bool
) -> None:
    """A storage that does not name contents proves nothing."""
    files = LogFiles((7,), {}, {7: 0}, {7: size}, {7: listed}, frozenset({0}))
    found = CommitBundle(table_id=TABLE, first=7, contents=[b"x"], tags=[tag])

    assert (proven(found, 0, files) == {7: b"x"}) is believed


def test_a_storage_that_calls_two_commits_the_same_proves_nothing() -> None:
    found = CommitBundle(table_id=TABLE, first=7, contents=[b"x", b"y"], tags=["a", "a"])

    for tags, believed in (({7: "a", 8: "a"}, {}), ({7: "a"}, {7: b"x"})):
        files = LogFiles(tuple(tags), {}, dict.fromkeys(tags, 0), dict.fromkeys(tags, 1), tags, frozenset({0}))
        assert proven(found, 0, files) == believed


def test_a_hundred_commits_are_read_with_one_request_and_those_of_the_latest() -> None:
    store = FarStore()
    log_of(store, range(1, 99))
    joined(store, range(1, 97))
    files = LogFiles.listed(store)
    store.asked.clear()

    found = dict(CommitFiles(store, files).read(list(range(1, 99))))

    assert found == the_truth(store, range(1, 99))
    assert store.asked == [f"get {name}" for name in (joined_name(0), *map(log_name, range(97, 99)))]


def test_many_blocks_are_read_with_a_request_each() -> None:
    """As above a checkpoint that is far behind, since its writer was killed or the table has very many files."""
    store = FarStore()
    log_of(store, range(1, 2001))
    for first in range(1, 2001, BLOCK):
        joined(store, range(first, first + BLOCK))
    files = LogFiles.listed(store)
    store.asked.clear()

    assert dict(CommitFiles(store, files).read(list(range(1, 2001)))) == the_truth(store, range(1, 2001))
    assert store.asked == [f"get {joined_name(block)}" for block in range(0, 2000, BLOCK)]


def test_joined_files_of_another_table_mislead() -> None:
    store = FarStore()
    log_of(store, range(1, 20))
    joined(store, range(1, 20), OTHER)
    found = CommitFiles(store, LogFiles.listed(store))

    list(found.read(list(range(1, 20))))

    assert found.tables == {OTHER}
    assert found.mislead(TABLE)
    assert not found.mislead(OTHER)


def test_where_no_request_is_to_be_spared_joined_files_are_not_looked_at() -> None:
    store = MemoryStorage()
    for version in range(1, 20):
        store.replace(log_name(version), commit(version))
    store.replace(joined_name(0), of([commit(1, "x")]).packed())

    found = dict(CommitFiles(store, LogFiles.listed(store)).read(list(range(1, 20))))

    assert found == {version: commit(version) for version in range(1, 20)}


# --- joining -------------------------------------------------------------------------------------


def written(store: FarStore, writer: CommitBundler, versions: range) -> None:
    for version in versions:
        assert store.put_if_absent(log_name(version), commit(version))
        writer.note(version, commit(version))
        if version % EVERY == 0:
            writer.join(version, TABLE)


def writing(store: FarStore) -> CommitBundler:
    return CommitBundler(store, EVERY)


def test_who_writes_alone_reads_nothing_to_join_commits() -> None:
    store = FarStore()
    written(store, writing(store), range(101, 251))

    assert {asked.partition(" ")[0] for asked in store.asked} == {"put"}
    assert LogFiles.listed(store).joined == {100, 200}
    assert unpacked(store.read(joined_name(100))).contents == [commit(v) for v in range(101, 201)]
    assert unpacked(store.read(joined_name(200))).first == 201
    assert read(store, range(101, 249)) == the_truth(store, range(101, 249))


def test_the_last_commit_of_a_block_may_be_joined_after_the_next_one_was_made() -> None:
    """A thread does it."""
    store = FarStore()
    writer = writing(store)
    for version in range(101, 203):
        store.put_if_absent(log_name(version), commit(version))
        writer.note(version, commit(version))
    store.asked.clear()

    writer.join(200, TABLE)

    assert store.asked == [f"put {joined_name(100)}"]
    assert len(unpacked(store.read(joined_name(100))).contents) == 100


def test_who_begins_in_the_middle_of_a_block_reads_what_comes_before_once() -> None:
    """Also where commits are made while it reads."""
    store = FarStore()
    log_of(store, range(101, 112))
    writer = writing(store)
    for version in range(112, 130):
        store.put_if_absent(log_name(version), commit(version))
        writer.note(version, commit(version))
    store.asked.clear()

    for version in (112, 116, 120, 124, 128):
        writer.join(version, TABLE)

    assert store.asked.count("list _delta_log") == 1
    assert [asked for asked in store.asked if asked.startswith("get")] == [
        f"get {log_name(v)}" for v in range(101, 112)
    ]
    assert unpacked(store.read(joined_name(100))) == of([commit(v) for v in range(101, 130)], first=101)


@pytest.mark.parametrize("lost", [6, 100, 101])
def test_a_commit_whose_answer_was_lost_is_read_to_be_joined(lost: int) -> None:
    """What the storage calls its content is not known then."""

    class Forgets(FarStore):
        def tag(self, name: str) -> str:
            return "" if name.endswith(log_name(lost)) else super().tag(name)

    store = Forgets()
    written(store, writing(store), range(1, 113))

    assert unpacked(store.read(joined_name(0))) == of([commit(v) for v in range(1, 101)])
    assert unpacked(store.read(joined_name(100))) == of([commit(v) for v in range(101, 113)], first=101)


def test_of_a_table_of_few_commits_each_is_joined_with_the_data_files() -> None:
    store = FarStore()
    writer = CommitBundler(store, EACH)
    for version in range(1, 8):
        store.put_if_absent(log_name(version), commit(version))
        writer.note(version, commit(version))
        store.replace(f"part-{version}", b"%d" % version)
        writer.join(version, TABLE, [f"part-{version}", f"part-{max(version - 1, 1)}"])
    store.asked.clear()
    found = CommitFiles(store, LogFiles.listed(store), every=EACH)

    assert dict(found.read(list(range(1, 8)))) == the_truth(store, range(1, 8))
    assert found.carried == {"part-7": b"7", "part-6": b"6"}
    assert store.asked == ["list _delta_log", f"get {joined_name(0)}"]


def test_writers_of_one_table_join_each_others_commits() -> None:
    store = FarStore()
    one, two = writing(store), writing(store)
    for at in range(1, 61, 3):
        written(store, one, range(at, at + 2))
        written(store, two, range(at + 2, at + 3))

    assert unpacked(store.read(joined_name(0))).contents == [commit(v) for v in range(1, 61)]


def test_the_first_version_is_in_the_first_block() -> None:
    store = FarStore()
    log_of(store, range(5))

    written(store, writing(store), range(5, 9))

    assert unpacked(store.read(joined_name(0))).first == 0


def test_commits_that_were_cleaned_up_are_left_out() -> None:
    store = FarStore()
    log_of(store, range(40, 55))

    written(store, writing(store), range(55, 57))

    assert unpacked(store.read(joined_name(0))) == of([commit(v) for v in range(40, 57)], first=40)


def test_commits_of_another_table_are_not_joined() -> None:
    store = FarStore()
    log_of(store, range(1, 10))
    joined(store, range(1, 10), OTHER, by="x")

    written(store, writing(store), range(10, 13))

    assert unpacked(store.read(joined_name(0))) == of([commit(v) for v in range(1, 13)])


def test_a_damaged_commit_is_not_joined() -> None:
    store = FarStore()
    log_of(store, range(1, 10))
    store.replace(log_name(7), b"{")

    with pytest.raises(LogCorruptError):
        written(store, writing(store), range(10, 13))

    assert not LogFiles.listed(store).joined


def test_where_the_log_went_back_own_commits_are_forgotten() -> None:
    """Somebody has put an older state of the table into its place, and others have written since."""
    store = FarStore()
    writer = writing(store)
    written(store, writer, range(1, 8))
    store.remove(joined_name(0))
    for version in range(4, 9):
        store.replace(log_name(version), commit(version, "x"))

    written(store, writer, range(9, 13))

    assert unpacked(store.read(joined_name(0))).contents == list(the_truth(store, range(1, 13)).values())


@pytest.mark.parametrize("alone", [True, False])
def test_commits_that_are_large_are_not_joined(*, alone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next block begins anew."""
    monkeypatch.setattr(joining, "MOST_BYTES", 10 * len(commit(10)))
    store = FarStore()
    writer = writing(store)
    written(store, writer if alone else writing(store), range(1, 50))

    written(store, writer, range(50, 100))
    assert len(unpacked(store.read(joined_name(0))).contents) == 8
    written(store, writer, range(100, 111))
    assert unpacked(store.read(joined_name(100))).contents == [commit(v) for v in range(101, 109)]


def test_a_block_is_a_hundred_versions_above_a_checkpoint() -> None:
    assert [block_of(v) for v in (0, 1, 100, 101, 200, 201)] == [0, 0, 0, 100, 100, 200]
    assert BLOCK % EVERY == 0
