"""Typed: records with schemas as columns: batches against confluent-kafka's deserializers, views against Spark's own.

    python -m benchmarks.bench_typed [batches] [views]

`batches` measures decoding in one process: this package's batches into Arrow arrays, and confluent-kafka's
deserializers value by value, into Python objects alone. `views` measures one query over a topic of BENCH_ROWS records:
through a typed view, through Spark's `from_avro` where its jar can be had (SPARK_AVRO names the version), and of the
same records as JSON through `from_json`. The last column is the way's time by that of the typed view. BENCH_ROOT names
a folder that keeps the topics for the next run.
"""

from __future__ import annotations

import io
import json
import os
import random
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from fastavro import parse_schema, schemaless_writer
from pyspark.sql import SparkSession

from benchmarks.harness import Report
from kafkalike.cli.jobs.kafka_jars import resolve
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow.batch_decoder import BatchDecoder, reader_of
from kafkalike.schemas.arrow.batch_encoder import BatchEncoder
from kafkalike.spark.jvm.jars import IVY

ROWS = int(os.environ.get("BENCH_ROWS", "1000000"))
BATCH = 10_000
ROUNDS, SLOW_ROUNDS = 12, 2
"""Of queries, in which the ways take turns, after one that is not counted; fewer of `from_json`, which is slow."""
SOME = 20_000
"""Values that are decoded one by one."""

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "currency", "type": {"type": "enum", "name": "Currency", "symbols": ["EUR", "USD", "GBP"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": "int"}],
                },
            },
        },
    ],
}
PROTO = """
syntax = "proto3";
message Order {
  int64 id = 1; string customer = 2; double amount = 3; string currency = 4; int64 at = 5; optional string note = 6;
  repeated Line lines = 7;
}
message Line { string sku = 1; int32 n = 2; }
"""
JSON = {
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "customer": {"type": "string"},
        "amount": {"type": "number"},
        "currency": {"type": "string"},
        "at": {"type": "integer"},
        "note": {"type": ["string", "null"]},
        "lines": {
            "type": "array",
            "items": {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}}},
        },
    },
}


def orders(count: int) -> list[dict[str, Any]]:
    """Values."""
    rnd = random.Random(1)
    return [
        {
            "id": nth,
            "customer": f"customer-{nth % 5000}",
            "amount": round(rnd.random() * 100, 2),
            "currency": rnd.choice(["EUR", "USD", "GBP"]),
            "at": 1_700_000_000_000 + nth,
            "note": None if nth % 3 else f"note {nth}",
            "lines": [{"sku": f"sku{rnd.randrange(1000)}", "n": rnd.randrange(9)} for _ in range(rnd.randrange(4))],
        }
        for nth in range(count)
    ]


def avro_values(values: list[dict[str, Any]], number: int = 1) -> list[bytes]:
    """Records as fastavro writes them."""
    parsed, head = parse_schema(AVRO), b"\0" + struct.pack(">I", number)
    written = []
    for value in values:
        out = io.BytesIO()
        out.write(head)
        schemaless_writer(out, parsed, value)
        written.append(out.getvalue())
    return written


def best(work: Callable[[], object], times: int = 5) -> float:
    """Seconds of the fastest run."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return min(found)


def batches() -> None:
    """Batches against deserializers."""
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext
    from google.protobuf.message_factory import GetMessageClass

    from kafkalike.admin.testing import MemoryCluster
    from kafkalike.schemas import Registry
    from kafkalike.schemas import Schema as Shape
    from kafkalike.schemas.proto.proto_files import build_file

    values = orders(SOME)
    proto = build_file(Schema("PROTOBUF", PROTO), {})
    order = GetMessageClass(proto.message_types_by_name["Order"])
    registry = Registry(MemoryCluster())
    context = SerializationContext("t", MessageField.VALUE)
    latest = {"use.deprecated.format": False}
    cases: list[tuple[Schema, list[bytes], Callable[[Any], Any]]] = [
        (Schema("AVRO", json.dumps(AVRO)), avro_values(values), AvroDeserializer),
        (
            Schema("PROTOBUF", PROTO),
            [b"\0\0\0\0\1\0" + order(**value).SerializeToString() for value in values],
            lambda c: ProtobufDeserializer(order, latest, c),
        ),
        (
            Schema("JSON", json.dumps(JSON)),
            [b"\0\0\0\0\1" + json.dumps(value).encode() for value in values],
            lambda c: JSONDeserializer(json.dumps(JSON), schema_registry_client=c),
        ),
    ]
    report = Report("typed-batches")
    for schema, plain, deserializer in cases:
        number = registry.register_schema(f"{schema.type}-value", Shape(schema.text, schema.type))
        written = [b"\0" + struct.pack(">I", number) + value[5:] for value in plain]
        message = "Order" if schema.type == "PROTOBUF" else None
        decoder = BatchDecoder(reader_of(schema, registry, message=message), registry.schema_by_id)
        arrays = [pa.array(written[at : at + BATCH], pa.binary()) for at in range(0, SOME, BATCH)]
        columns = [decoder.decode(array)[0] for array in arrays]
        assert not any(column.null_count for column in columns)
        encoder = BatchEncoder(schema, number, registry, columns[0].type, depth=3)
        theirs = partial(deserializer(registry), ctx=context)
        theirs(written[0])
        few = written if schema.type != "JSON" else written[:2000]
        ours = best(each(decoder.decode, arrays)) / SOME
        encode = best(each(encoder.encode, columns), 2) / SOME
        rival = best(each(theirs, few), 2) / len(few)
        theirs_us = f"confluent-kafka: {rival * 1e6:.1f} µs"
        kind = {"AVRO": "Avro", "PROTOBUF": "Protobuf", "JSON": "JSON Schema"}[schema.type]
        report.add(f"{kind}: decode into Arrow", f"{ours * 1e6:.2f} µs", theirs_us, f"{rival / ours:.1f} x its speed")
        report.add(f"{kind}: encode from Arrow", f"{encode * 1e6:.2f} µs")
    report.finish()


def each(work: Callable[[Any], object], items: Sequence[Any]) -> Callable[[], None]:
    """What does some work for each item."""

    def run() -> None:
        for item in items:
            work(item)

    return run


QUERY = "SELECT currency, count(*), sum(amount), max(at), sum(size(lines)), count(note) FROM {} GROUP BY currency"
FEW = "SELECT count(*) FROM {} WHERE amount > 50 AND note IS NOT NULL"


def avro_jar(version: str) -> str:
    """Spark's Avro functions; fetched if they are not in the cache of Spark's resolver."""
    folder = Path.home() / IVY
    jar = folder / "jars" / f"org.apache.spark_spark-avro_2.13-{version}.jar"
    if not jar.exists():
        resolve({"spark.jars.packages": f"org.apache.spark:spark-avro_2.13:{version}"}, folder)
    return str(jar)


def views() -> None:
    """Views against Spark's functions."""
    import kafkalike.spark as ks
    from kafkalike.schemas import Registry
    from kafkalike.schemas import Schema as Shape
    from kafkalike.spark.jvm.jars import delta_jar_conf

    conf, report = {}, Report("typed-views")
    version = os.environ.get("SPARK_AVRO")
    if version:
        conf["spark.jars"] = ",".join([delta_jar_conf(s3=False)["spark.jars"], avro_jar(version)])
    spark = ks.session("typed", "local[2]", **conf)
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        root = os.environ.get("BENCH_ROOT", folder)
        number = Registry(root).register_schema("orders-value", Shape(json.dumps(AVRO)))
        if not Path(root, "plain").exists():
            fill(spark, root, number)
        ks.create_view(spark, "orders", root, format="avro", name="typed")
        topic = ks.read(spark, "orders", root)
        rivals: list[str] = ["typed"]
        if version:
            from pyspark.sql import functions as F  # noqa: N812
            from pyspark.sql.avro.functions import from_avro

            payload = F.expr("substring(value, 6)")
            topic.select(from_avro(payload, json.dumps(AVRO)).alias("v")).select("v.*").createOrReplaceTempView("jar")
            rivals.append("jar")
        ddl = (
            "id BIGINT, customer STRING, amount DOUBLE, currency STRING, at BIGINT, note STRING, "
            "lines ARRAY<STRUCT<sku: STRING, n: INT>>"
        )
        ks.create_view(spark, "plain", root, value_format="json", schema=ddl, name="from_json")
        rivals.append("from_json")
        for title, query in (("all fields", QUERY), ("a condition", FEW), ("count(*)", "SELECT count(*) FROM {}")):
            found: dict[str, list[float]] = {name: [] for name in rivals}
            for nth in range(ROUNDS + 1):
                for name in rivals:
                    if name == "from_json" and nth > SLOW_ROUNDS:
                        continue
                    begin = time.perf_counter()
                    spark.sql(query.format(name)).collect()
                    if nth:
                        found[name].append(time.perf_counter() - begin)
            own = found.pop("typed")
            for name, taken in found.items():
                rival = f"{'from_avro' if name == 'jar' else name}: {statistics.median(taken):.2f} s"
                ratio = statistics.median(theirs / ours for theirs, ours in zip(taken, own, strict=False))
                figure = f"{statistics.median(own):.2f} s"
                report.add(f"{title}, {ROWS:,} records", figure, rival, f"{ratio:.2f} x its speed")
    spark.stop()
    report.finish()


def fill(spark: SparkSession, root: str, number: int) -> None:
    """Two topics with the same values, Avro and JSON."""
    from pyspark.sql import functions as F  # noqa: N812

    import kafkalike.spark as ks
    from kafkalike.connect import connect

    for topic in ("orders", "plain"):
        connect(root).create_topic(topic, 4, {})

    def written(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values = orders(batch.num_rows)
            yield pa.RecordBatch.from_pydict(
                {"avro": avro_values(values, number), "json": [json.dumps(value).encode() for value in values]}
            )

    frame = spark.range(0, ROWS, 1, 4).mapInArrow(written, "avro BINARY, json BINARY").cache()
    partition = F.spark_partition_id().alias("partition")
    ks.write(frame.select(F.col("avro").alias("value"), partition), "orders", root)
    ks.write(frame.select(F.col("json").alias("value"), partition), "plain", root)
    frame.unpersist()


def main(asked: Sequence[str]) -> None:
    """Run what was asked for."""
    if not asked or "batches" in asked:
        batches()
    if not asked or "views" in asked:
        views()


if __name__ == "__main__":
    main(sys.argv[1:])
