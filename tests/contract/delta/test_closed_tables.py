"""A topic's table is closed to foreign writers by Delta's own protocol: others read it, only kafkalike writes it."""

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.admin.cluster_mirror import Mirror
from kafkalike.admin.testing import MemoryCluster
from kafkalike.connect import connect
from kafkalike.delta.actions import log_name
from kafkalike.delta.commit_file import creation, topic_creation
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model import faults
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.config.server_config import SERVER_PROPERTIES_VARIABLE
from tests.tools.cli import Done, call
from tests.tools.clusters import on_three_disks
from tests.tools.consumer import read_to_end
from tests.tools.findings import errors_of
from tests.tools.records import all_records, batch, batch_now

FEATURE = "changeOnlyThroughKafkalike"
OPEN = {"kafkalike.foreign.writes": "allow"}
CLOSED_PROTOCOL = {
    "minReaderVersion": 1,
    "minWriterVersion": 7,
    "writerFeatures": ["appendOnly", "invariants", "changeOnlyThroughKafkalike"],
}
OPEN_PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
RECORDS = {0: [(0, "a"), (1, "b")]}


def make(root: str, **configs: str) -> None:
    cluster = connect(root)
    cluster.create_topic("t", 1, {name.replace("_", "."): text for name, text in configs.items()})
    cluster.log("t").append(batch_now("a", "b"))


def protocols(root: str, table: str = "t") -> list[dict[str, Any]]:
    """The protocols that the commits of a table set, oldest first."""
    lines = [
        json.loads(line)
        for commit in sorted(Path(root, table, "_delta_log").glob("*.json"))
        for line in commit.read_text(encoding="utf-8").splitlines()
    ]
    return [line["protocol"] for line in lines if "protocol" in line]


def configs(root: str, *change: str) -> Done:
    return call(connect(root), "configs", "--alter", "--entity-type", "topics", "--entity-name", "t", *change)


def alter(root: str, value: str) -> None:
    assert configs(root, "--add-config", f"kafkalike.foreign.writes={value}").code == 0


WRITES: dict[str, Callable[[str], object]] = {
    "append": lambda path: write_deltalake(path, DeltaTable(path).to_pyarrow_table(), mode="append"),
    "overwrite": lambda path: write_deltalake(path, DeltaTable(path).to_pyarrow_table(), mode="overwrite"),
    "delete": lambda path: DeltaTable(path).delete("offset = 0"),
    "update": lambda path: DeltaTable(path).update({"value": "key"}),
    "merge": lambda path: (
        DeltaTable(path)
        .merge(pa.table({"o": pa.array([0], pa.int64())}), "t.offset = s.o", "s", "t")
        .when_matched_delete()
        .execute()
    ),
    "compact": lambda path: DeltaTable(path).optimize.compact(),
    "z-order": lambda path: DeltaTable(path).optimize.z_order(["offset"]),
    "restore": lambda path: DeltaTable(path).restore(0),
    "alter": lambda path: DeltaTable(path).alter.set_table_properties({"a": "b"}, raise_if_not_exists=False),
    "polars append": lambda path: pl.read_delta(path).write_delta(path, mode="append"),
    "polars overwrite": lambda path: pl.read_delta(path).write_delta(path, mode="overwrite"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_foreign_write_to_a_new_topic_is_rejected_by_name(root: str, write: Callable[[str], object]) -> None:
    make(root)

    with pytest.raises(DeltaError, match=FEATURE):
        write(f"{root}/t")

    assert all_records(root) == RECORDS
    assert errors_of(root) == []


@pytest.mark.parametrize("act", ["vacuum", "repair"])
def test_foreign_clean_up_of_a_closed_table_is_rejected(root: str, act: str) -> None:
    """Both would write to the log: one of a file that no version names, the other of one that is away."""
    make(root)
    live = Path(DeltaTable(f"{root}/t").file_uris()[0])
    stray = live.with_name("part-0-stray.parquet")
    away = live.with_name("away")
    table = DeltaTable(f"{root}/t")
    acts: dict[str, Callable[[], object]] = {
        "vacuum": lambda: table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True),
        "repair": table.repair,
    }
    shutil.copy(live, stray)
    if act == "repair":
        live.rename(away)

    with pytest.raises(DeltaError, match=FEATURE):
        acts[act]()

    if act == "repair":
        away.rename(live)
    assert stray.exists()
    assert all_records(root) == RECORDS


def test_foreign_engines_read_a_closed_table(root: str) -> None:
    make(root)

    assert DeltaTable(f"{root}/t").to_pyarrow_table()["value"].to_pylist() == [b"a", b"b"]
    assert pl.read_delta(f"{root}/t")["offset"].to_list() == [0, 1]
    assert pl.scan_delta(f"{root}/t").filter(pl.col("offset") == 1).collect().height == 1
    assert DeltaTable(f"{root}/t", version=0).to_pyarrow_table().num_rows == 0


def test_duckdb_reads_a_closed_table_and_cannot_insert(root: str) -> None:
    """DuckDB and its delta extension are not among the locked packages: `pip install duckdb duckdb-extension-delta`."""
    duckdb = pytest.importorskip("duckdb")
    spec = importlib.util.find_spec("duckdb_extension_delta")
    if spec is None or spec.origin is None:
        pytest.skip("duckdb-extension-delta is not installed")
    extension = next(Path(spec.origin).parent.rglob("delta.duckdb_extension"))
    make(root)
    connection = duckdb.connect()
    connection.execute(f"LOAD '{extension}'")
    connection.execute(f"ATTACH '{root}/t' AS t (TYPE delta)")

    assert connection.execute('SELECT "offset" FROM t ORDER BY 1').fetchall() == [(0,), (1,)]
    with pytest.raises(duckdb.Error, match=FEATURE):
        connection.execute("INSERT INTO t SELECT * FROM t")


@pytest.mark.parametrize("table", ["__cluster_metadata", "__consumer_offsets"])
def test_foreign_write_to_a_control_table_is_rejected(root: str, table: str) -> None:
    make(root, **{"kafkalike.foreign.writes": "allow"})
    with KafkaConsumer("t", bootstrap_servers=root, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.poll(1_000)
        consumer.commit()

    with pytest.raises(DeltaError, match=FEATURE):
        DeltaTable(f"{root}/{table}").delete()
    assert DeltaTable(f"{root}/{table}").to_pyarrow_table().num_rows > 0


def test_topic_that_allows_foreign_writes_has_the_lowest_protocol(root: str) -> None:
    make(root, **OPEN)

    assert protocols(root) == [OPEN_PROTOCOL]
    write_deltalake(f"{root}/t", DeltaTable(f"{root}/t").to_pyarrow_table().slice(0, 0), mode="append")


def test_setting_opens_and_closes_an_existing_table(root: str) -> None:
    make(root)
    log = connect(root, access="spark").log("t")

    alter(root, "allow")
    write_deltalake(f"{root}/t", DeltaTable(f"{root}/t").to_pyarrow_table().slice(0, 0), mode="append")
    assert configs(root, "--delete-config", "kafkalike.foreign.writes").code == 0
    with pytest.raises(DeltaError, match=FEATURE):
        DeltaTable(f"{root}/t").delete()

    assert protocols(root) == [CLOSED_PROTOCOL, OPEN_PROTOCOL, CLOSED_PROTOCOL]
    # Whoever had the topic open follows both.
    assert log.append(batch("c")).ranges == {0: range(2, 3)}
    assert all_records(root) == {0: [*RECORDS[0], (2, "c")]}


def test_setting_that_is_set_again_changes_nothing(root: str) -> None:
    make(root)

    alter(root, "reject")
    alter(root, "reject")

    assert protocols(root) == [CLOSED_PROTOCOL]


def test_unknown_value_of_the_setting_is_rejected(root: str) -> None:
    make(root)

    done = configs(root, "--add-config", "kafkalike.foreign.writes=maybe")

    assert (done.code, "kafkalike.foreign.writes" in done.err) == (1, True)
    assert protocols(root) == [CLOSED_PROTOCOL]


def test_change_of_the_setting_that_was_cut_off_is_finished_by_maintenance(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(root)

    def cut_off(name: str) -> None:
        if name == "commit.before" and connect(root).topic("t").configs:
            raise KeyboardInterrupt

    monkeypatch.setattr(faults, "point", cut_off)
    with pytest.raises(KeyboardInterrupt):
        connect(root).edit_configs("t", lambda _: OPEN)
    monkeypatch.undo()
    assert protocols(root) == [CLOSED_PROTOCOL]

    maintain(connect(root), clock=SYSTEM_CLOCK)

    assert protocols(root) == [CLOSED_PROTOCOL, OPEN_PROTOCOL]


def test_change_of_the_setting_that_was_cut_off_is_finished_by_the_same_call(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(root)
    with monkeypatch.context() as patched:
        patched.setattr("kafkalike.log.topic.topic_log.TopicLog.apply_foreign_writes", lambda *_: False)
        alter(root, "allow")
    assert protocols(root) == [CLOSED_PROTOCOL]

    alter(root, "allow")

    assert protocols(root) == [CLOSED_PROTOCOL, OPEN_PROTOCOL]


def test_server_default_opens_new_topics(root: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    defaults = tmp_path / "server.properties"
    defaults.write_text("log.kafkalike.foreign.writes=allow\n", encoding="utf-8")
    monkeypatch.setenv(SERVER_PROPERTIES_VARIABLE, str(defaults))
    make(root)
    connect(root).create_topic("closed", 1, {"kafkalike.foreign.writes": "reject"})

    assert protocols(root) == [OPEN_PROTOCOL]
    assert protocols(root, "closed") == [CLOSED_PROTOCOL]


def test_tables_of_an_earlier_release_are_closed_by_maintenance(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(
            "kafkalike.log.cluster.root_tables.topic_creation",
            lambda *args, **kwargs: topic_creation(*args, **{**kwargs, "closed": False}),
        )
        earlier.setattr(
            "kafkalike.delta.row_table.creation", lambda *args, **kwargs: creation(*args, **kwargs, closed=False)
        )
        make(root)
    reader, writer = connect(root).log("t"), connect(root).log("t")
    assert protocols(root) == protocols(root, "__cluster_metadata") == [OPEN_PROTOCOL]

    maintain(connect(root), clock=SYSTEM_CLOCK, dry_run=True)
    assert protocols(root) == [OPEN_PROTOCOL]
    maintain(connect(root), clock=SYSTEM_CLOCK)

    assert protocols(root) == protocols(root, "__cluster_metadata") == [OPEN_PROTOCOL, CLOSED_PROTOCOL]
    writer.append(batch("c"))
    reader.refresh()
    assert reader.log_end(0) == 3
    assert all_records(root) == {0: [*RECORDS[0], (2, "c")]}


@pytest.mark.slow
def test_checkpoint_keeps_a_table_closed(root: str) -> None:
    make(root)
    log = connect(root, access="spark").log("t")
    for n in range(120):
        log.append(batch(str(n)))
    log.clean_log()
    assert list(Path(root, "t", "_delta_log").glob("*.checkpoint.parquet"))
    for commit in Path(root, "t", "_delta_log").glob("*.json"):
        if int(commit.stem) < 100:
            commit.unlink()

    with pytest.raises(DeltaError, match=FEATURE):
        DeltaTable(f"{root}/t").delete()
    assert connect(root).log("t").append(batch("x")).ranges == {0: range(122, 123)}


def test_checkpoint_of_another_engine_keeps_a_table_closed(root: str) -> None:
    make(root)
    DeltaTable(f"{root}/t").create_checkpoint()

    log = connect(root, access="spark").log("t")
    log.append(batch("c"))
    log.clean_log()

    with pytest.raises(DeltaError, match=FEATURE):
        DeltaTable(f"{root}/t").delete()
    assert all_records(root) == {0: [*RECORDS[0], (2, "c")]}


@pytest.mark.parametrize("configs", [{}, OPEN], ids=["closed", "open"])
def test_repaired_first_version_is_closed_as_the_setting_says(root: str, configs: dict[str, str]) -> None:
    make(root, **configs)
    Path(root, "t", "_delta_log", f"{0:020}.json").write_text("{", encoding="utf-8")

    assert call(connect(root), "verify", "--repair", "--execute").code == 0

    assert protocols(root) == [OPEN_PROTOCOL if configs else CLOSED_PROTOCOL]


@pytest.mark.parametrize("configs", [{}, OPEN], ids=["closed", "open"])
def test_mirror_has_the_protocol_of_its_source(tmp_path: Path, configs: dict[str, str]) -> None:
    source, target = str(tmp_path / "a"), str(tmp_path / "b")
    make(source, **configs)
    mirror = Mirror(source, target)
    mirror.run()
    alter(source, "reject" if configs else "allow")
    mirror.run()

    assert protocols(target) == protocols(source)
    assert len(protocols(target)) == 2
    assert all_records(target) == RECORDS


def test_producer_and_consumer_work_on_a_closed_topic(root: str) -> None:
    with KafkaProducer(bootstrap_servers=root) as producer:
        producer.send("t", b"x").get(10)
    with KafkaConsumer("t", bootstrap_servers=root, auto_offset_reset="earliest") as consumer:
        assert [record.value for record in read_to_end(consumer)] == [b"x"]
    assert protocols(root) == [CLOSED_PROTOCOL]


@pytest.mark.slow
def test_all_replicas_of_a_topic_are_opened_and_closed(tmp_path: Path) -> None:
    cluster = on_three_disks(tmp_path)
    cluster.create_topic("t", 2, {}, replication_factor=3)
    cluster.edit_configs("t", lambda _: OPEN)
    cluster.edit_configs("t", lambda _: {})
    cluster.log("t").append(batch("a"))

    location = cluster.topic("t").location
    expected = [CLOSED_PROTOCOL, OPEN_PROTOCOL, CLOSED_PROTOCOL]
    assert [protocols(str(tmp_path / str(broker)), location) for broker in (1, 2, 3)] == [expected] * 3
    assert [protocols(str(tmp_path / str(n)), "__cluster_metadata") for n in (1, 2, 3)] == [[CLOSED_PROTOCOL]] * 3


def test_table_in_an_object_store_is_opened_and_closed() -> None:
    cluster = MemoryCluster()
    cluster.create_topic("t", 1, {})
    log = cluster.log("t")
    log.append(batch("a"))
    cluster.edit_configs("t", lambda _: OPEN)
    log.append(batch("b"))
    cluster.edit_configs("t", lambda _: {})
    log.append(batch("c"))

    read = [cluster.files_of(log.info).read(log_name(version)) for version in range(6)]
    found = [json.loads(line) for content in read for line in content.splitlines()]
    assert [one["protocol"] for one in found if "protocol" in one] == [CLOSED_PROTOCOL, OPEN_PROTOCOL, CLOSED_PROTOCOL]
    assert log.log_end(0) == 3
