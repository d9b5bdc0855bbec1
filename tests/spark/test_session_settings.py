"""Settings of a session that change what SQL text, types or zones mean: records and rows are the same under each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

import kafkalike.spark as ks
from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError
from kafkalike.model.partitioner import partition_for_key
from kafkalike.schemas import Registry, Schema
from kafkalike.spark.files.topic_export import export_topic, import_topic
from kafkalike.spark.sql.catalog_views import FUNCTIONS_SETTING
from tests.tools import awkward_records as awkward
from tests.tools.awkward_records import AUTUMN_MS, RECORDS, SPRING_MS, shown, stored
from tests.tools.session_settings import SETTINGS, WITH_ANSI, WITHOUT_ANSI, ZONE, settings, together

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

EACH: Final = [
    pytest.param(together(WITH_ANSI), id="together"),
    pytest.param(together(WITHOUT_ANSI), id="together-without-ansi"),
    *(pytest.param(wanted, id=name, marks=pytest.mark.full) for name, wanted in SETTINGS.items()),
]
"""Many at once, for each change; each by itself, for `make test-all`."""


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A cluster whose topic `in` has the awkward records. Each test has its own: Delta keeps what it knows of one."""
    root = str(tmp_path / "source")
    awkward.fill(root, "in")
    return root


@pytest.fixture(params=EACH)
def changed(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[Mapping[str, str]]:
    # So that they are made anew, by these settings.
    spark.conf.unset(FUNCTIONS_SETTING)
    with settings(spark, request.param):
        yield request.param
    for view in spark.catalog.listTables():
        spark.catalog.dropTempView(view.name)


def options(root: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": root, **more}


@pytest.mark.usefixtures("changed")
def test_reads_are_the_same_under_each_setting(spark: SparkSession, source: str) -> None:
    by_format = spark.read.format("kafkalike").options(**options(source, subscribe="in", includeHeaders="true"))

    assert shown(ks.read(spark, "in", source)) == RECORDS
    assert shown(ks.read(spark, "in", source, as_of=1)) == RECORDS
    assert shown(by_format.load()) == RECORDS
    assert shown(ks.read(spark, "in", source, key=b"a")) == (RECORDS[0], RECORDS[5])


@pytest.mark.usefixtures("changed")
def test_views_and_ranges_are_the_same_under_each_setting(spark: SparkSession, source: str) -> None:
    view = ks.register_sql(spark, source, temporary=True)["in"]

    def rows(query: str) -> tuple[awkward.Record, ...]:
        return shown(spark.sql(f"SELECT * FROM {query}"))  # noqa: S608 - the queries below

    assert rows(f"`{view}`") == RECORDS
    assert rows("kafkalike_range('in', NULL, NULL)") == RECORDS
    assert rows("kafkalike_offsets('in', 1, 1, NULL)") == RECORDS[4:]
    assert rows("kafkalike_key('in', CAST('a' AS BINARY))") == (RECORDS[0], RECORDS[5])
    assert rows(f"kafkalike_range('in', timestamp_millis({SPRING_MS}), NULL)") == RECORDS[2:3]
    assert rows(f"kafkalike_range('in', timestamp_millis({AUTUMN_MS}), timestamp_millis({SPRING_MS}))") == (
        *RECORDS[1:2],
        *RECORDS[3:5],
    )
    newest = spark.sql("SELECT last_timestamp FROM kafkalike_partitions ORDER BY partition")
    assert newest.schema["last_timestamp"].dataType == TimestampType()
    assert [row[0] for row in newest.select(F.unix_millis("last_timestamp")).collect()] == [
        SPRING_MS,
        AUTUMN_MS + 3_600_000,
    ]


@pytest.mark.usefixtures("changed")
def test_writes_are_the_same_under_each_setting(spark: SparkSession, root: str) -> None:
    for topic in ("one", "two", "three"):
        connect(root).create_topic(topic, awkward.PARTITIONS, {})
    frame = awkward.frame(spark)

    ks.write(frame, "one", root)
    sink = frame.write.format("kafkalike").options(**options(root, topic="two", useTimestampColumn="true"))
    sink.mode("append").save()
    with ks.transaction("t", root) as transaction:
        transaction.write(awkward.frame(spark, "three"))

    assert {topic: stored(root, topic) for topic in ("one", "two", "three")} == dict.fromkeys(
        ("one", "two", "three"), RECORDS
    )


def copied(spark: SparkSession, source: str, root: str, folder: Path) -> dict[str, tuple[awkward.Record, ...]]:
    """The topic `in`, copied by each source and sink of streams."""
    names = ("by-functions", "by-format", "by-delta")
    for topic in names:
        connect(root).create_topic(topic, awkward.PARTITIONS, {})
    earliest: dict[str, Any] = {"starting_offsets": "earliest"}
    with_headers = {"includeHeaders": "true"}

    def ended(query: Any) -> None:
        assert query.awaitTermination(120)

    def written(rows: DataFrame, topic: str) -> None:
        ended(ks.write_stream(rows, topic, root, checkpoint=str(folder / topic), available_now=True))

    written(ks.read_stream(spark, "in", source, options=with_headers, **earliest), "by-functions")
    written(ks.read_stream(spark, "in", source, engine="delta", **earliest), "by-delta")
    given = options(source, subscribe="in", startingOffsets="earliest", **with_headers)
    rows = spark.readStream.format("kafkalike").options(**given).load()
    where = options(root, topic="by-format", useTimestampColumn="true", checkpointLocation=str(folder / "by-format"))
    ended(rows.writeStream.format("kafkalike").options(**where).trigger(availableNow=True).start())
    return {topic: stored(root, topic) for topic in names}


@pytest.mark.usefixtures("changed")
def test_streams_are_the_same_under_each_setting(spark: SparkSession, source: str, root: str, tmp_path: Path) -> None:
    found = copied(spark, source, root, tmp_path)

    assert found == dict.fromkeys(("by-functions", "by-format", "by-delta"), RECORDS)


EVENT: Final = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "At", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "map", "values": "bytes"}},
    ],
}


@pytest.mark.usefixtures("changed")
def test_typed_columns_are_the_same_under_each_setting(spark: SparkSession, root: str) -> None:
    Registry(root).register_schema("events-value", Schema(json.dumps(EVENT), "AVRO"))
    connect(root).create_topic("events", 1, {})
    at = datetime.fromtimestamp(AUTUMN_MS / 1000, UTC)
    frame = spark.createDataFrame(
        [(1, at), (2, at)], StructType([StructField("id", LongType()), StructField("At", TimestampType())])
    )
    columns = frame.select(
        "id",
        "At",
        F.lit("n").alias("name"),
        F.create_map(F.lit("a"), F.lit(b"\x00").cast("binary")).alias("tags"),
    )

    ks.write(columns, "events", root, schemas="latest")
    view = ks.create_view(spark, "events", root, format="avro")

    found = spark.table(view)
    assert found.schema["At"].dataType == TimestampType()
    rows = found.select("id", F.unix_millis("At"), "name", F.expr("hex(tags['a'])"), "_error").orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(1, AUTUMN_MS, "n", "00", None), (2, AUTUMN_MS, "n", "00", None)]


FIELDS: Final = StructType(
    [StructField("Id", LongType()), StructField("at", TimestampType()), StructField("note", StringType())]
)


@pytest.mark.usefixtures("changed")
@pytest.mark.parametrize("kind", ["json", "csv"])
def test_text_columns_are_the_same_under_each_setting(spark: SparkSession, root: str, kind: str) -> None:
    lines = {
        "json": [b'{"Id": 1, "at": "2025-11-02T05:30:00Z", "note": "x"}', b"bad"],
        "csv": [b"1,2025-11-02T05:30:00Z,x", b'a"bad'],
    }
    connect(root).create_topic("lines", 1, {})
    ks.write(spark.createDataFrame([(line,) for line in lines[kind]], "value BINARY").coalesce(1), "lines", root)
    view = ks.create_view(spark, "lines", root, value_format=kind, schema=FIELDS)

    found = spark.table(view).orderBy("offset")
    assert found.schema["at"].dataType == TimestampType()
    rows = found.select("Id", F.unix_millis("at"), "note", F.col("value_error").isNull()).collect()
    assert [tuple(row) for row in rows] == [(1, AUTUMN_MS, "x", True), (None, None, None, False)]


@pytest.mark.usefixtures("changed")
@pytest.mark.parametrize("kind", [pytest.param("parquet", marks=pytest.mark.full), "json", "csv"])
def test_exports_are_the_same_under_each_setting(
    spark: SparkSession, source: str, root: str, tmp_path: Path, kind: str
) -> None:
    export_topic(spark, "in", str(tmp_path / "files"), source, file_format=kind)
    import_topic(spark, str(tmp_path / "files"), "back", root, file_format=kind, partitions=awkward.PARTITIONS)

    assert stored(root, "back") == RECORDS


def test_a_range_by_text_is_in_the_zone_of_the_session(spark: SparkSession, source: str) -> None:
    """A function of an earlier zone refuses what it would misread, and `register_sql` makes it anew."""
    query = "SELECT * FROM kafkalike_range('in', '{}', NULL)"
    ks.register_sql(spark, source, temporary=True)
    assert shown(spark.sql(query.format("2026-03-08 07:00:00"))) == RECORDS[2:3]

    with settings(spark, {ZONE: "America/New_York"}):
        with pytest.raises(PySparkException, match="time zone of the session has changed"):
            spark.sql(query.format("2026-03-08 03:00:00")).collect()
        with pytest.raises(PySparkException, match="time zone of the session has changed"):
            spark.sql("SELECT * FROM kafkalike_range('in', NULL, '2026-03-08 03:00:00')").collect()
        assert shown(spark.sql("SELECT * FROM kafkalike_range('in', NULL, NULL)")) == RECORDS

        ks.register_sql(spark, source, temporary=True)

        assert shown(spark.sql(query.format("2026-03-08 03:00:00"))) == RECORDS[2:3]
        assert shown(spark.sql(query.format("2026-03-08T07:00:00Z"))) == RECORDS[2:3]
    ks.register_sql(spark, source, temporary=True)
    assert shown(spark.sql(query.format("2026-03-08 07:00:00"))) == RECORDS[2:3]


@pytest.mark.usefixtures("changed")
def test_partitions_and_dead_letters_are_the_same_under_each_setting(spark: SparkSession, root: str) -> None:
    """Columns that are made of other columns by expressions of ours."""
    connect(root).create_topic("letters", 1, {})
    keys = spark.createDataFrame(
        [(b"a",), (b"\xff\x00",), (b"",), (None,)], StructType([StructField("key", BinaryType())])
    )
    rows = awkward.frame(spark).where("partition = 1").withColumn("topic", F.lit("t"))
    bad = rows.withColumns({"_error": F.lit("bad"), "_raw": F.col("value"), "offset": F.lit(7)})

    found = [row[0] for row in keys.coalesce(1).select(ks.partition_column(F.col("key"), 64)).collect()]
    ks.write(ks.dead_letters(bad, "letters"), "letters", root)

    assert found == [partition_for_key(key, 64) for key in (b"a", b"\xff\x00", b"")] + [None]
    letters = stored(root, "letters")
    assert [(letter[2], letter[3], letter[5]) for letter in letters] == [
        (key, value, at_ms) for p, _, key, value, _, at_ms in RECORDS if p == 1
    ]
    headers = [dict(letter[4]) for letter in letters]
    assert headers[1]["k\u00e9"] == b"1"
    assert {one["__connect.errors.offset"] for one in headers} == {b"7"}


def test_a_session_with_reserved_keywords_reads_by_the_format_alone(
    spark: SparkSession, source: str, root: str
) -> None:
    """Delta reads names of columns as SQL, in which `offset` is a keyword there; the refusal says what to do."""
    connect(root).create_topic("one", awkward.PARTITIONS, {})
    given = options(source, subscribe="in", includeHeaders="true")

    with settings(spark, {"spark.sql.ansi.enforceReservedKeywords": "true"}):
        for refused in (
            lambda: ks.read(spark, "in", source),
            lambda: ks.register_sql(spark, source, temporary=True),
            lambda: ks.read_stream(spark, "in", source, engine="delta", starting_offsets="earliest"),
        ):
            with pytest.raises(IllegalArgumentError, match="enforceReservedKeywords is true"):
                refused()
        rows = spark.read.format("kafkalike").options(**given).load()
        ks.write(rows.drop("topic", "offset").coalesce(1), "one", root)
        assert shown(rows) == RECORDS

    assert stored(root, "one") == RECORDS
