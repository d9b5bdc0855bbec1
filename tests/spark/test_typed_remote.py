"""Views and columns of records whose schemas a service knows: tasks ask it, and say nothing of who asks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.connect import connect
from kafkalike.schemas import Schema, open_registry
from kafkalike.schemas.service.credentials import Credentials
from kafkalike.spark import ReaderSchemaOptions, RecordSchemas, create_view, write
from tests.tools.avro_cases import avro
from tests.tools.records import fill
from tests.tools.registries import served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "canary-7f"  # noqa: S105 - of a service of this test


def order(*more: str) -> dict[str, object]:
    fields = [{"name": name, "type": "long", "default": 0} for name in ("id", *more)]
    return {"type": "record", "name": "Order", "fields": fields}


def schema(*more: str) -> Schema:
    return Schema(json.dumps(order(*more)))


@pytest.mark.full
def test_tasks_ask_a_registry_behind_an_address(spark: SparkSession, root: str) -> None:
    """For schemas that were registered after the view was made, too. When it is away, the query says so: that is no
    fault of a record, and what is known already is read."""
    cluster = connect(root)
    cluster.create_topic("orders", 1, {})
    with served(allowed=Credentials(users={"ann": SECRET.encode()})) as url:
        asked = {"url": url, "basic.auth.user.info": f"ann:{SECRET}", "max.retries": "0"}
        registry = open_registry(asked)
        first = registry.register_schema("orders-value", schema())
        fill(cluster, "orders", avro(order(), {"id": 1}, first))
        create_view(spark, "orders", root, format="avro", schema_options=ReaderSchemaOptions(registry=asked))
        later = registry.register_schema("orders-value", schema("a"))
        fill(cluster, "orders", avro(order("a"), {"id": 2, "a": 9}, later))
        found = spark.sql("SELECT id, _error FROM orders__values ORDER BY offset")
        plan = found._jdf.queryExecution().toString()
        rows = [tuple(row) for row in found.collect()]
        write(spark.range(3, 4), "orders", root, schemas=RecordSchemas(value="latest", registry=asked))
        unseen = registry.register_schema("orders-value", schema("a", "b"))
        told = spark.sql("SELECT id FROM orders__values WHERE offset = 2").collect()
    known = spark.sql("SELECT id FROM orders__values WHERE offset = 0").collect()
    fill(cluster, "orders", avro(order("a", "b"), {"id": 4, "a": 0, "b": 0}, unseen))

    assert rows == [(1, None), (2, None)]
    assert [row["id"] for row in told] == [3]
    assert [row["id"] for row in known] == [1]
    assert SECRET not in plan
    with pytest.raises(PySparkException, match=r"(?i)registry|connect") as away:
        spark.table("orders__values").where(F.col("offset") == 3).collect()
    assert SECRET not in str(away.value)
