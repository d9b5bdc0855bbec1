"""`kafkalike get-offsets`, `delete-records`, `dump-log` and `verify` as a user types them."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalike.connect import connect

Run = Callable[..., subprocess.CompletedProcess[str]]
Fill = Callable[..., None]


@pytest.fixture
def orders(fill: Fill) -> None:
    """A topic of two partitions: times 100, 300, 200 in partition 0, nothing in partition 1."""
    fill("orders", [(b"k", b"one", 100), (b"k", b"two", 300)], partitions=2, headers=[("h", b"1")])
    fill("orders", [(None, None, 200)])


@pytest.mark.usefixtures("orders")
def test_offsets_are_printed(kafkalike: Run) -> None:
    """One line per partition that has an answer."""
    done = kafkalike("get-offsets", "--topic", "orders", "--time", "max-timestamp")

    assert (done.stdout, done.stderr, done.returncode) == ("orders:0:1\n", "", 0)


@pytest.mark.usefixtures("orders")
def test_records_are_deleted_by_a_file_of_offsets(kafkalike: Run, tmp_path: Path) -> None:
    """Partitions that fail are said, and do not keep others back."""
    entries = [
        {"topic": "orders", "partition": 0, "offset": 2},
        {"topic": "orders", "partition": 1, "offset": 9},
        {"topic": "nothing", "partition": 0, "offset": 1},
    ]
    (tmp_path / "offsets.json").write_text(json.dumps({"partitions": entries, "version": 1}))

    done = kafkalike("delete-records", "--offset-json-file", "offsets.json")

    assert done.stdout == (
        "Executing records delete operation\n"
        "Records delete operation completed:\n"
        "partition: orders-0\tlow_watermark: 2\n"
        "partition: orders-1\terror: orders-1: offset 9 is not in [0, 0)\n"
        "partition: nothing-0\terror: topic 'nothing' does not exist\n"
    )
    assert done.returncode == 1
    assert kafkalike("get-offsets", "--topic", "orders", "--time", "earliest").stdout == "orders:0:2\norders:1:0\n"


@pytest.mark.usefixtures("orders")
def test_commits_segments_and_records_are_dumped(kafkalike: Run, root: str) -> None:
    """Each commit with the segments it added, each record with key and payload."""
    done = kafkalike("dump-log", "--topic", "orders", "--print-data-log")

    lines = done.stdout.splitlines()
    first, second = connect(root).log("orders").segments(0)
    assert lines[0] == "Dumping orders"
    assert lines[1].startswith("version: 0 time: ")
    assert " operation: CREATE TABLE engine: " in lines[1]
    assert " operation: WRITE engine: kafkalike/" in lines[2]
    assert " appendId: " in lines[2]
    assert lines[3] == (
        f"  partition: 0 baseOffset: 0 lastOffset: 1 count: 2 minTimestamp: 100 maxTimestamp: 300 "
        f"size: {first.size_bytes} file: {first.path}"
    )
    assert lines[4:6] == [
        "| offset: 0 CreateTime: 100 keySize: 1 valueSize: 3 sequence: -1 headerKeys: [h] key: k payload: one",
        "| offset: 1 CreateTime: 300 keySize: 1 valueSize: 3 sequence: -1 headerKeys: [h] key: k payload: two",
    ]
    assert lines[7].endswith(second.path)
    assert lines[8:] == ["| offset: 2 CreateTime: 200 keySize: -1 valueSize: -1 sequence: -1 headerKeys: []"]


@pytest.mark.usefixtures("orders")
def test_one_file_is_dumped(kafkalike: Run, root: str) -> None:
    """By its path, as `dump-log` and errors print it."""
    _, second = connect(root).log("orders").segments(0)

    done = kafkalike("dump-log", "--files", second.path, "--deep-iteration")
    missing = kafkalike("dump-log", "--files", "nothing.parquet")

    assert len(done.stdout.splitlines()) == 4
    assert done.stdout.splitlines()[-1].startswith("| offset: 2 ")
    assert (missing.returncode, missing.stderr) == (1, "Error: no segment has the name nothing.parquet\n")


@pytest.mark.usefixtures("orders")
def test_a_sound_cluster_is_verified(kafkalike: Run) -> None:
    """Exit code 0, and what was looked at."""
    done = kafkalike("verify")

    assert (done.stdout, done.stderr, done.returncode) == (
        "Checked 1 topic, 2 partitions, 2 segments, 3 records\n0 errors, 0 warnings\n",
        "",
        0,
    )


@pytest.mark.usefixtures("orders")
def test_damage_is_named_with_its_place(kafkalike: Run, root: str) -> None:
    """Exit code 1; the same as text and as JSON."""
    _, second = connect(root).log("orders").segments(0)
    (Path(root) / "orders" / second.path).unlink()

    as_text = kafkalike("verify", "--topic", "ord.*")
    as_json = kafkalike("verify", "--json")

    assert as_text.returncode == as_json.returncode == 1
    assert as_text.stdout.splitlines() == [
        f"ERROR orders-0 [2, 3): missing-file: {second.path} is missing: its records are lost",
        "Checked 1 topic, 2 partitions, 2 segments, 2 records",
        "1 error, 0 warnings",
    ]
    report = json.loads(as_json.stdout)
    assert (report["sound"], report["errors"]) == (False, 1)
    assert report["findings"][0]["offsets"] == [2, 3]


def test_warnings_fail_only_when_strict(kafkalike: Run, fill: Fill) -> None:
    """A record in another partition than its key's may be meant."""
    fill("t", [(b"a", b"v", 1), (b"b", b"v", 1), (b"c", b"v", 1)], partitions=3)

    assert kafkalike("verify").returncode == 0
    assert kafkalike("verify", "--strict").returncode == 1


def test_verifying_a_topic_that_does_not_exist_is_an_error(kafkalike: Run) -> None:
    """A misspelt topic must not be called sound."""
    assert kafkalike("verify", "--topic", "t").returncode == 1
