"""What a statement of SQL would do, as far as errors about topics are told anew for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalike.spark.reads.format_registration import below_root, change_of, makes_table


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("DELETE FROM orders WHERE offset < 3", ("DELETE", "orders")),
        ("  delete\n from `a.b`", ("DELETE", "`a.b`")),
        ("update db . `x` SET value = NULL", ("UPDATE", "db . `x`")),
        ("MERGE INTO orders t USING s ON true WHEN MATCHED THEN DELETE", ("MERGE", "orders")),
        ("TRUNCATE TABLE orders", ("TRUNCATE", "orders")),
        ("INSERT OVERWRITE TABLE orders VALUES (1)", ("INSERT OVERWRITE", "orders")),
        ("INSERT OVERWRITE orders VALUES (1)", ("INSERT OVERWRITE", "orders")),
        ("insert into TABLE orders (value) VALUES (1)", ("INSERT INTO", "orders")),
        ("SELECT * FROM orders", None),
        ("WITH a AS (SELECT 1) SELECT * FROM a", None),
        ("DELETED FROM orders", None),
        ("", None),
    ],
)
def test_a_change_is_known_by_its_first_words(statement: str, expected: tuple[str, str] | None) -> None:
    assert change_of(statement) == expected


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("CREATE TABLE t USING kafkalike OPTIONS (topic 'x')", "kafkalike"),
        ("create or replace table if not exists a.b\n(key STRING)\nusing `KafkaLike`", "kafkalike"),
        ("CREATE TABLE t USING delta", "delta"),
        ("CREATE TEMPORARY VIEW t USING kafkalike", None),
        ("CREATE TABLE t AS SELECT 1", None),
    ],
)
def test_a_table_is_known_by_its_format(statement: str, expected: str | None) -> None:
    assert makes_table(statement) == expected


@pytest.mark.parametrize("named", ["delta.`{}/t`", "DELTA . `file:{}/t`", "`delta`.`file://{}/t/`"])
def test_a_table_is_known_by_its_path_below_a_root(tmp_path: Path, named: str) -> None:
    (tmp_path / "root" / "__cluster_metadata" / "_delta_log").mkdir(parents=True)

    assert below_root(named.format(tmp_path / "root"))
    assert not below_root(named.format(tmp_path / "other"))


@pytest.mark.parametrize("named", ["t", "`/data/t`", "delta.t", "db.`a.b`", "delta.`s3a://bucket/log/t`"])
def test_any_other_table_is_none_below_a_root(named: str) -> None:
    assert not below_root(named)
