"""Other engines read a topic's table: Delta Kernel, on which Trino and Flink rest, delta-rs, Polars and DuckDB.

They read the table after appends, compaction, a forgotten key and merges, and the replica in another root.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyspark
import pytest
from deltalake import DeltaTable

from kafkalike.maintenance.forget import forget
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.spark.jvm.jars import IVY, JARS
from tests.tools.clusters import on_three_disks
from tests.tools.records import batch

SOURCE = Path(__file__).parents[1] / "tools" / "ReadTable.java"
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "segment.ms": "1",
    "kafkalike.replaced.file.delay.ms": "0",
}
EXPECTED = [(0, 2, b"ann", b"new"), (0, 4, b"cid", None), (0, 5, b"dan", b"last"), (1, 0, b"eve", b"other")]
COLUMNS = ["partition", "offset", "key", "value"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The table of a topic in each of three roots, after everything that changes one."""
    root = tmp_path_factory.mktemp("engines")
    cluster = on_three_disks(root)
    cluster.create_topic("orders", 2, COMPACTED)
    log = cluster.log("orders")
    written = ((b"ann", "old"), (b"bob", "x"), (b"ann", "new"), (b"bob", "y"), (b"cid", None), (b"dan", "last"))
    for nth, (key, value) in enumerate(written):
        log.append(batch(value, key=key, at_ms=1_000 * (nth + 1)))
    log.append(batch("other", partition=1, key=b"eve", at_ms=9_000))
    maintain(cluster, topics="orders")
    forget("orders", cluster, keys=b"bob", dry_run=False)
    maintain(cluster, topics="orders")
    return sorted(str(folder.parent) for folder in root.rglob("orders*/_delta_log"))


def by_delta_rs(table: str) -> list[Any]:
    return [tuple(row.values()) for row in DeltaTable(table).to_pyarrow_table(columns=COLUMNS).to_pylist()]


def by_polars(table: str) -> list[Any]:
    return pl.read_delta(table).select(COLUMNS).rows()


def by_duckdb(table: str) -> list[Any]:
    """Over Arrow: DuckDB fetches its own extension for Delta."""
    duckdb = pytest.importorskip(
        "duckdb", reason="NOT TESTED: DuckDB, which this environment lacks; make setup brings it"
    )
    topic = DeltaTable(table).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("topic", topic)
        found: list[Any] = connection.execute(
            'SELECT partition, "offset", key, value FROM topic WHERE "offset" >= 0'
        ).fetchall()
        return found


@pytest.mark.parametrize("read", [by_delta_rs, by_polars, by_duckdb], ids=["delta-rs", "polars", "duckdb"])
def test_engine_reads_the_leaders_and_the_replicas_tables(tables: list[str], read: Callable[[str], list[Any]]) -> None:
    assert [sorted(read(table)) for table in tables] == [EXPECTED] * 3


def test_delta_kernel_reads_the_leaders_and_the_replicas_tables(tables: list[str]) -> None:
    jars = [Path.home() / IVY / "jars" / name for name in JARS]
    path = ":".join((f"{Path(pyspark.__file__).parent}/jars/*", *map(str, jars)))

    done = subprocess.run(
        # It lives for seconds: what the better compiler gains later costs more.
        ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", path, str(SOURCE), *tables],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    found = [sorted(part.splitlines()[1:]) for part in done.stdout.split("table ")[1:]]
    lines = [
        f"{p} {offset} {key.decode()} {'-' if value is None else value.decode()}" for p, offset, key, value in EXPECTED
    ]
    assert found == [lines] * 3
