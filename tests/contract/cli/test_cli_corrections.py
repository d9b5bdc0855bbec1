"""`kafkalike forget`, `undo`, `fork` and `verify --certificate`, as docs/retention.md shows them."""

import base64
import json
from pathlib import Path

import pytest

from kafkalike import KafkaProducer
from kafkalike.admin.testing import MemoryCluster
from kafkalike.model.clock import SYSTEM_CLOCK
from tests.tools.cli import call
from tests.tools.records import all_records, everything
from tests.tools.upkeep import keyed, open_cluster, topic

NOW = SYSTEM_CLOCK.now_ms()
KEY = "forget-me-0123456789"


@pytest.fixture
def filled(root: str) -> str:
    """A root with a topic whose two appends each have the key."""
    log = topic(root, "orders", 1, {})
    for turn in range(2):
        log.append(keyed(("a", str(turn)), (KEY, str(turn)), at_ms=NOW + turn))
    return root


def test_a_dry_run_prints_what_would_go_and_a_run_what_went(filled: str, tmp_path: Path) -> None:
    paper = tmp_path / "done.json"
    where = ("--topic", "orders", "--key", KEY)

    planned = call(open_cluster(filled), "forget", *where)
    done = call(
        open_cluster(filled), "forget", *where, "--execute", "--now", "--certificate", str(paper), "--reason", "asked"
    )

    lines = planned.out.splitlines()
    assert lines[0].split() == ["TOPIC", "PARTITION", "RECORDS", "SEGMENTS", "BYTES"]
    assert lines[1].split()[:4] == ["orders", "0", "2", "2"]
    assert lines[2].startswith("2 records of 1 key would be removed")
    assert lines[-1] == "Dry run, nothing was changed: --execute does it."
    assert "2 records of 1 key removed" in done.out
    assert "2 files removed" in done.out
    assert f"Certificate: {paper}" in done.out
    assert all_records(filled, "orders") == {0: [(0, "0"), (2, "1")]}
    history = call(open_cluster(filled), "history", "orders", "--kind", "forget").out
    assert "reason: asked" in history
    assert KEY not in history


@pytest.mark.parametrize(
    ("form", "written"),
    [("text", KEY), ("hex", KEY.encode().hex()), ("base64", base64.b64encode(KEY.encode()).decode())],
)
def test_keys_are_written_in_several_forms_and_in_files(filled: str, tmp_path: Path, form: str, written: str) -> None:
    file = tmp_path / "keys.txt"
    file.write_text(f"{written}\n\n{written}\n", encoding="utf-8")

    for given in (("--key", written), ("--key-file", str(file))):
        report = json.loads(
            call(open_cluster(filled), "forget", "--topic", "orders", *given, "--key-format", form, "--json").out
        )
        assert (report["keys"], report["records"], report["executed"]) == (1, 2, False)


def test_a_certificate_is_checked_with_and_without_its_keys(filled: str, tmp_path: Path) -> None:
    paper = str(tmp_path / "done.json")
    call(open_cluster(filled), "forget", "--topic", "orders", "--key", KEY, "--execute", "--certificate", paper)

    early = call(open_cluster(filled), "verify", "--certificate", paper, "--key", KEY)
    for path in Path(filled, "orders").glob("partition=0/*.parquet"):
        if path.name in early.out:
            path.unlink()
    late = call(open_cluster(filled), "verify", "--certificate", paper)
    known = call(open_cluster(filled), "verify", "--certificate", paper, "--key", KEY, "--json")
    other = call(open_cluster(filled), "verify", "--certificate", paper, "--key", "other")

    assert early.code == 1
    assert "file-not-gone" in early.out
    assert "key-not-gone" in early.out
    # Without keys no record is read, and none is counted.
    assert (late.code, late.out) == (0, "Checked 1 topic, 1 segment\n0 errors, 0 warnings\n")
    assert (known.code, json.loads(known.out)["sound"]) == (0, True)
    assert (other.code, "not the keys" in other.err) == (1, True)


def test_a_later_run_removes_the_files_of_an_earlier_one_and_says_so(filled: str, tmp_path: Path) -> None:
    first, second = str(tmp_path / "first.json"), str(tmp_path / "second.json")
    key = ("--topic", "orders", "--key", KEY, "--execute")

    early = call(open_cluster(filled), "forget", *key, "--certificate", first)
    late = call(open_cluster(filled), "forget", *key, "--now", "--certificate", second)

    assert "another run with --now removes them at once" in early.out
    assert "2 files removed" in late.out
    assert call(open_cluster(filled), "verify", "--certificate", first, "--key", KEY).code == 0


def test_an_append_is_undone_by_the_id_that_the_history_shows(filled: str) -> None:
    events = [json.loads(line) for line in call(open_cluster(filled), "history", "orders", "--json").out.splitlines()]
    append = next(one for event in events for one in event["appends"])
    assert f"append {append}" in call(open_cluster(filled), "history", "orders").out

    planned = call(open_cluster(filled), "undo", "--topic", "orders", "--append", append)
    done = call(open_cluster(filled), "undo", "--topic", "orders", "--append", append, "--execute", "--json")

    assert f"2 records of append {append} would be removed" in planned.out
    assert json.loads(done.out)["records"] == 2
    assert all_records(filled, "orders") == {0: [(2, "1"), (3, "1")]}


def test_a_fork_is_made_as_of_now_and_as_of_a_version(filled: str) -> None:
    now = call(open_cluster(filled), "fork", "orders", "trial")
    then = call(open_cluster(filled), "fork", "orders", "first", "--as-of", "1", "--json")

    assert now.out == "Created topic trial from version 2 of orders: 2 files, which take no space.\n"
    assert json.loads(then.out)["version"] == 1
    assert len(all_records(filled, "first")[0]) == 2

    forgotten = call(open_cluster(filled), "forget", "--topic", "trial", "--key", KEY, "--execute").out
    after = call(open_cluster(filled), "forget", "--topic", "orders", "--key", KEY).out
    assert "Topic orders has the same origin, and has 2 records of the keys: forget them there, too" in forgotten
    assert "Topic trial was forked or restored from it, and has no records of the keys" in after
    assert "Topic first was forked or restored from it, and has 1 record" in after


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["forget", "--topic", "orders"], "--key or --key-file is needed"),
        (["forget", "--topic", "orders", "--key", "zz", "--key-format", "hex"], "not hex"),
        (["forget", "--topic", "orders", "--key", "k", "--now"], "--now needs --execute"),
        (["forget", "--topic", "orders", "--key", "k", "--certificate", "f"], "--certificate needs --execute"),
        (["forget", "--topic", "orders", "--key", "k", "--wait-minutes", "1"], "--wait-minutes needs --execute"),
        (["verify", "--key", "k"], "keys need --certificate"),
        (["fork", "orders", "new", "--as-of", "yesterday"], "--as-of must be"),
    ],
)
def test_wrong_usage_is_said(filled: str, args: list[str], said: str) -> None:
    done = call(open_cluster(filled), *args)

    assert done.code in {2, 1}
    assert said in done.err
    # What may be a key is not repeated.
    assert "'zz'" not in done.err


def test_forget_in_a_memory_cluster_removes_the_key_and_a_fork_keeps_it() -> None:
    cluster = MemoryCluster()
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        producer.send("t", key=b"k", value=b"1").get(timeout=10)
        producer.send("t", key=b"other", value=b"2").get(timeout=10)

    assert call(cluster, "fork", "t", "u").code == 0
    assert call(cluster, "forget", "--topic", "t", "--key", "k", "--execute").code == 0

    assert everything(cluster.log("t")) == {0: [(1, "2")]}
    assert everything(cluster.log("u")) == {0: [(0, "1"), (1, "2")]}
