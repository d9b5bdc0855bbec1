"""Manifests: staged runs as a decided transaction names them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import LogCorruptError
from kafkalike.log.runs.run_manifest import (
    LargeRun,
    RunManifest,
    StagedRun,
    dump_manifest,
    in_order,
    load_manifest,
    move_runs,
)
from kafkalike.storage.memory import MemoryStorage

numbers = st.integers(0, 2**62)
files = st.sampled_from(["a.arrows", "b.arrows", "c.parquet"])
small = st.builds(
    StagedRun, task=numbers, file=files, start=numbers, stop=numbers, partition=numbers, rows=numbers, bytes=numbers
)
large = st.builds(
    LargeRun,
    task=numbers,
    file=files,
    partition=numbers,
    rows=numbers,
    bytes=numbers,
    min_time_ms=numbers,
    max_time_ms=numbers,
    footer_crc=numbers,
    due_ms=numbers,
)
manifests = st.builds(
    RunManifest,
    runs=st.lists(small | large, max_size=5).map(tuple),
    codec=st.sampled_from(["none", "zstd"]),
    time_ms=numbers,
)


@given(manifests)
def test_a_manifest_says_what_was_put_in(manifest: RunManifest) -> None:
    assert load_manifest(dump_manifest(manifest), "x") == manifest


@given(st.lists(manifests, max_size=4))
def test_runs_of_an_earlier_write_come_first(several: list[RunManifest]) -> None:
    """And within a write the order of its tasks stays."""
    runs = in_order(several)

    at = 0
    for manifest in several:
        own = runs[at : at + len(manifest.runs)]
        earlier = [run.task for run in runs[:at]]
        assert all(run.task > max(earlier, default=-1) for run in own)
        assert len({mine.task - its.task for mine, its in zip(own, manifest.runs, strict=True)}) <= 1
        at += len(own)
    assert at == len(runs)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"v":2,"codec":"none","time":0,"files":[],"runs":[]}',
        b'{"v":1,"codec":"none","time":0,"files":["a"],"runs":[[0,1,0,1,0,1,1]]}',
        b'{"v":1,"codec":"none","time":0,"files":["../a"],"runs":[[0,0,0,1,0,1,1]]}',
        b'{"v":1,"codec":"none","time":0,"files":["a"],"runs":[[0,0]]}',
    ],
)
def test_a_damaged_manifest_or_one_of_a_later_version_is_named(content: bytes) -> None:
    with pytest.raises(LogCorruptError, match="here does not name staged records"):
        load_manifest(content, "here")


def test_moved_runs_outlive_the_folder_of_their_job() -> None:
    root = MemoryStorage()
    job, place = root.at("job"), root.at("place")
    job.replace("a.arrows", b"records")
    manifest = RunManifest(runs=(StagedRun(0, "a.arrows", 0, 7, 0, 1, 7),), codec="none", time_ms=5)

    move_runs(job, manifest.files, place)
    job.remove("a.arrows")

    assert place.read("a.arrows") == b"records"


def test_runs_that_are_gone_are_not_named() -> None:
    """Nothing may be decided then."""
    root = MemoryStorage()
    manifest = RunManifest(runs=(StagedRun(0, "a.arrows", 0, 7, 0, 1, 7),), codec="none", time_ms=5)

    with pytest.raises(FileNotFoundError):
        move_runs(root.at("job"), manifest.files, root.at("place"))

    assert root.at("place").list() == []
