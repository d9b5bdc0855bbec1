"""The console's page for SQL: what reads is run, within limits; whatever else is refused before it does anything."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from starlette.testclient import TestClient

from kafkalike import KafkaProducer
from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError, KafkaTimeoutError
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.topic_sql import SQL_RESERVED
from kafkalike.spark.sql.queries import MOST_CELL, MOST_COLUMNS, MOST_ROWS, MOST_TEXTS, Answer, Queries, SqlQuery
from kafkalike.ui.access_control import AccessControl
from kafkalike.ui.app import console
from kafkalike.ui.cluster_view import ConsoleView
from tests.spark.workers.speculation import wait_until

CANARY = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A root with two topics; one has a name that SQL does not take as it is."""
    root = str(tmp_path_factory.mktemp("queries"))
    with KafkaProducer(bootstrap_servers=root) as producer:
        for number in range(300):
            producer.send("orders", CANARY.encode(), key=b"%d" % number)
        producer.send("a.b", b"\xff" * 5_000)
    return root


@pytest.fixture(scope="module")
def queries(spark: SparkSession, filled: str) -> Queries:
    return Queries(spark, connect(filled))


def ran(queries: Queries, text: str) -> Answer:
    return queries.run(SqlQuery(text))


def test_statements_that_read_are_run(queries: Queries) -> None:
    """Views, those of the cluster too, WITH, joins, windows, functions of a topic's range."""
    assert ran(queries, "SELECT count(*), max(offset) FROM orders").rows == [["300", "299"]]
    assert ran(queries, "SELECT topic, records FROM kafkalike_topics ORDER BY topic").rows == [
        ["a.b", "1"],
        ["orders", "300"],
    ]
    assert ran(queries, "WITH o AS (SELECT 1 AS x) SELECT x, NULL FROM o JOIN a_b ON true").rows == [["1", None]]
    assert ran(queries, "SELECT count(*) FROM kafkalike_offsets('orders', 0, 5, 10)").rows == [["5"]]
    assert ran(queries, "SELECT count(*) FROM `a.b` WHERE offset IN (SELECT min(offset) FROM orders)").rows == [["1"]]
    ranked = "SELECT r FROM (SELECT rank() OVER (PARTITION BY topic ORDER BY offset) r FROM orders) WHERE r > 299"
    assert ran(queries, ranked).rows == [["300"]]


@pytest.mark.parametrize(
    "text",
    ["DESCRIBE orders", "describe table orders", "DESC `orders`", "SHOW COLUMNS FROM orders", "SHOW COLUMNS IN orders"],
)
def test_columns_of_a_topic_and_their_types_are_listed(queries: Queries, text: str) -> None:
    answer = ran(queries, text)

    assert answer.columns == ["column", "type"]
    assert {("key", "binary"), ("partition", "int"), ("offset", "bigint")} <= {(one[0], one[1]) for one in answer.rows}


def test_columns_of_views_are_listed_by_their_names(queries: Queries) -> None:
    assert ran(queries, "DESCRIBE `a.b`").rows == ran(queries, "DESCRIBE orders").rows
    assert ["lag", "bigint"] in ran(queries, "DESCRIBE kafkalike_lag").rows


def test_rows_and_cells_have_limits(queries: Queries) -> None:
    answer = ran(queries, "SELECT * FROM orders")
    cut = ran(queries, "SELECT value, repeat('x', 100000), array(1, 2) FROM `a.b`")

    assert (len(answer.rows), answer.more) == (MOST_ROWS, True)
    assert [len(cell or "") for cell in cut.rows[0]] == [2 + MOST_CELL, MOST_CELL, 6]
    assert not cut.more


def test_an_answer_of_many_columns_has_a_bound(queries: Queries) -> None:
    """Spark cuts the cells before they come here."""
    columns = ", ".join(["repeat('x', 100000)"] * MOST_COLUMNS)
    answer = ran(queries, f"SELECT {columns} FROM orders")  # noqa: S608 - our own text

    assert sum(len(cell or "") for row in answer.rows for cell in row) <= MOST_TEXTS
    assert (len(answer.rows), answer.more) == (MOST_ROWS, True)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO orders SELECT 1",
        "FROM orders INSERT INTO orders SELECT *",
        "DELETE FROM orders",
        "UPDATE orders SET key = NULL",
        "MERGE INTO orders USING lag ON true WHEN MATCHED THEN DELETE",
        "TRUNCATE TABLE orders",
        "DROP VIEW orders",
        "CREATE TABLE t USING parquet LOCATION '{folder}' AS SELECT 1",
        "CREATE TEMPORARY VIEW v AS SELECT 1",
        "CREATE FUNCTION f AS 'java.lang.String'",
        "SET spark.x = 1",
        "SET VAR x = 1",
        "RESET",
        "ADD JAR '/tmp/x.jar'",
        "ADD FILE '/etc/passwd'",
        "CACHE TABLE orders",
        "REFRESH TABLE orders",
        "USE default",
        "EXPLAIN SELECT 1",
        "DESCRIBE EXTENDED orders",
        "DESCRIBE HISTORY orders",
        "DESCRIBE elsewhere",
        "SHOW COLUMNS IN orders IN default",
        "SHOW TABLES LIKE 'x*'",
        "EXECUTE IMMEDIATE 'SELECT 1'",
        "BEGIN SELECT 1; END",
        "INSERT OVERWRITE DIRECTORY '{folder}' USING csv SELECT 1",
        "SELECT TRANSFORM(key) USING 'touch {folder}/made' FROM orders",
        "SELECT reflect('java.lang.System', 'getProperty', 'user.home')",
        "SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'exit', 0)",
        "SELECT * FROM IDENTIFIER('text.`/etc/passwd`')",
        "SELECT * FROM IDENTIFIER('or' || 'ders')",
        "SELECT * FROM text.`/etc/passwd`",
        "SELECT * FROM delta.`{root}/orders`",
        "SELECT (SELECT max(value) FROM text.`/etc/passwd`)",
        "SELECT * FROM orders WHERE EXISTS (SELECT * FROM text.`/etc/passwd`)",
        "SELECT sum(offset) OVER w FROM orders WINDOW w AS (ORDER BY (SELECT max(value) FROM text.`/etc/passwd`))",
        "SELECT * FROM orders ORDER BY (SELECT max(value) FROM text.`/etc/passwd`)",
        "VALUES ((SELECT max(value) FROM text.`/etc/passwd`))",
        "SELECT * FROM explode(TABLE(text.`/etc/passwd`))",
        "SELECT * FROM orders UNPIVOT (v FOR n IN (offset, partition))",
        "WITH orders AS (SELECT 1) SELECT * FROM orders",
        # Names that read as two joined parts, or the other way around.
        "WITH `text, {secret}` AS (SELECT 1) SELECT * FROM text.`{secret}`",
        "WITH `TEXT, {secret}` AS (SELECT 1) SELECT * FROM text /* a */ . `{secret}`",
        "WITH `text, {secret}` AS (SELECT 1) SELECT * FROM (SELECT * FROM `text`.`{secret}`)",
        "WITH `text, {secret}` AS (SELECT 1) SELECT * FROM IDENTIFIER('text.`{secret}`')",
        "WITH `text, {secret}` AS (SELECT 1) SELECT (SELECT max(value) FROM text.`{secret}`)",
        "WITH `delta, {root}/orders` AS (SELECT 1) SELECT * FROM delta.`{root}/orders`",
        "WITH `a, b` AS (SELECT 1) SELECT * FROM `a, b`",
        "WITH text AS (SELECT 1) SELECT * FROM text.`{secret}`",
        "SELECT * FROM default.orders",
        "SELECT * FROM read_files('{secret}')",
        "SELECT * FROM orders VERSION AS OF 0",
        "SELECT * FROM text(:path)",
        "SELECT * FROM IDENTIFIER(:path)",
        "SELECT `reflect`('java.lang.System', 'getProperty', 'user.home')",
        # Functions that open what an argument names: a DTD, entities, an XSD, the file of a schema.
        "SELECT xpath_string('<!DOCTYPE a SYSTEM \"file://{secret}\"><a/>', 'a')",
        "SELECT `XPath`('<!DOCTYPE a SYSTEM \"http://127.0.0.1:1/x.dtd\"><a/>', 'a')",
        "SELECT from_xml('<a/>', 'b INT', map('rowValidationXSDPath', '{secret}'))",
        "SELECT * FROM VALUES (schema_of_xml('<a/>', map('rowValidationXSDPath', '{secret}')))",
        "SELECT from_avro(key, '', map('avroSchemaUrl', 'file://{secret}')) FROM orders",
        "SELECT from_protobuf(key, 'M', '{secret}') FROM orders",
        "DECLARE VARIABLE x INT",
        "BEGIN DECLARE x INT; SELECT * FROM text.`{secret}`; END",
        "DESCRIBE QUERY SELECT * FROM text.`{secret}`",
        "DESCRIBE text.`{secret}`",
        "EXPLAIN SELECT * FROM text.`{secret}`",
        "SHOW COLUMNS IN text.`{secret}`",
        "ANALYZE TABLE orders COMPUTE STATISTICS",
        "TABLE text.`{secret}`",
        "FROM text.`{secret}` |> SELECT *",
        "SELECT * FROM STREAM orders",
        "SELECT * FROM sql_keywords()",
        "SELECT 1; SELECT 2",
        "SELECT",
        "",
        "SELECT " + "1," * 200 + "1",
        "SELECT '" + "x" * 20_000 + "'",
    ],
)
def test_whatever_else_is_refused_and_does_nothing(queries: Queries, filled: str, tmp_path: Path, text: str) -> None:
    """A command, a file of the machine, a name that is made at run time, a place where Spark hides a part."""
    secret = Path(tmp_path, "secret.txt")
    secret.write_text("hunter2", encoding="utf-8")
    before = sorted(tmp_path.iterdir())
    for name, place in {"folder": tmp_path, "root": filled, "secret": secret}.items():
        text = text.replace(f"{{{name}}}", str(place))

    with pytest.raises(IllegalArgumentError):
        ran(queries, text)

    assert sorted(tmp_path.iterdir()) == before


def test_session_of_statements_takes_no_path_for_a_table(
    queries: Queries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second wall: a statement that the rules have overlooked."""
    secret = tmp_path / "secret.txt"
    secret.write_text("hunter2", encoding="utf-8")
    monkeypatch.setattr("kafkalike.spark.sql.queries.refusal", lambda *_: "")

    with pytest.raises(IllegalArgumentError, match=r"TABLE_OR_VIEW_NOT_FOUND|cannot be found"):
        ran(queries, f"SELECT * FROM text.`{secret}`")  # noqa: S608 - our own text


def test_no_secret_of_the_process_is_put_into_a_statement(queries: Queries, spark: SparkSession) -> None:
    """Spark puts variables of the environment and settings in place of `${…}` otherwise."""
    spark.conf.set("spark.kafkalike.test", "hidden")
    for name in ("env:HOME", "system:user.home", "spark.kafkalike.test", "hivevar:x"):
        assert ran(queries, f"SELECT '${{{name}}}'").rows == [[f"${{{name}}}"]]
    spark.conf.unset("spark.kafkalike.test")


def test_with_takes_no_name_that_a_table_of_the_catalog_has(queries: Queries, spark: SparkSession) -> None:
    """Beside the part that WITH reaches, the name would be that of the table."""
    spark.sql("CREATE TABLE kept_elsewhere USING delta AS SELECT 1 AS x")
    try:
        with pytest.raises(IllegalArgumentError, match="already"):
            ran(
                queries,
                "SELECT * FROM (WITH kept_elsewhere AS (SELECT 2) SELECT * FROM kept_elsewhere), kept_elsewhere",
            )
    finally:
        spark.sql("DROP TABLE kept_elsewhere")


ENDLESS = "SELECT count(*) FROM range(1000000000) a CROSS JOIN range(1000000000) b WHERE a.id * b.id % 7 = 8"


def test_a_statement_ends_when_its_time_is_over(spark: SparkSession, root: str) -> None:
    """And the jobs that it has begun."""
    connect(root).create_topic("orders", 1, {})
    with pytest.raises(KafkaTimeoutError, match="longer than 1 seconds"):
        ran(Queries(spark, connect(root), seconds=1), ENDLESS)

    # Spark's listeners hear of a job's end a little later.
    wait_until(lambda: spark.sparkContext.statusTracker().getActiveJobsIds() == [], "the end of the jobs")


def test_a_statement_that_goes_on_after_its_end_is_given_up_and_the_next_one_waits(
    spark: SparkSession, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark ends jobs, each in its own time, and nothing of what it does before there is one."""
    monkeypatch.setattr("kafkalike.spark.sql.queries.GRACE_SECONDS", 0)
    queries = Queries(spark, connect(filled), seconds=1)

    with pytest.raises(KafkaTimeoutError, match="longer than 1 seconds; Spark cannot end it where it is"):
        ran(queries, ENDLESS)
    queries.seconds = 60

    assert ran(queries, "SELECT 1").rows == [["1"]]


def test_a_statement_is_cancelled(queries: Queries) -> None:
    query = SqlQuery(ENDLESS)
    threading.Timer(1, query.cancel).start()

    with pytest.raises(KafkaTimeoutError, match="was cancelled"):
        queries.run(query)


def test_statement_that_cannot_start_stays_in_the_form_with_the_reason_below_it(queries: Queries, filled: str) -> None:
    desk = ConsoleView(connect(filled), SYSTEM_CLOCK, queries=queries)
    guard = AccessControl(token="", port=80)
    client = TestClient(console(desk, guard), base_url="http://localhost")

    empty = client.post("/sql", data={"sql": " ; ", "change_key": guard.change_key()})
    client.post("/sql", data={"sql": ENDLESS, "change_key": guard.change_key()})
    second = client.post("/sql", data={"sql": "SELECT 'second'", "change_key": guard.change_key()})
    (running,) = desk.running.all()
    client.post("/sql/cancel", data={"id": running.id, "change_key": guard.change_key()})
    running.thread.join(60)

    assert empty.status_code == 400
    assert "Type a statement." in empty.text
    assert second.status_code == 409
    assert "Another statement is running: wait until it ends, or cancel it." in second.text
    assert ">SELECT &#39;second&#39;</textarea>" in second.text
    assert f'id="statement-{running.id}"' in second.text
    assert "it was cancelled" in running.problem


def test_the_page_of_statements_names_all_views_of_the_cluster(queries: Queries, filled: str) -> None:
    desk = ConsoleView(connect(filled), SYSTEM_CLOCK, queries=queries)
    shown = TestClient(console(desk, AccessControl(token="", port=80)), base_url="http://localhost").get("/sql").text

    assert set(SQL_RESERVED) <= set(re.findall(r"\w+", shown))


def test_the_page_shows_rows_as_text(queries: Queries, filled: str) -> None:
    """Whatever stands in them; a console that is read-only, or has no Spark, runs nothing."""
    desk = ConsoleView(connect(filled), SYSTEM_CLOCK, queries=queries)
    guard = AccessControl(token="", port=80)
    client = TestClient(console(desk, guard), base_url="http://localhost")

    begun = client.post("/sql", data={"sql": "SELECT value FROM orders LIMIT 2;", "change_key": guard.change_key()})
    (id_,) = re.findall(r"statement-(\w+)", begun.text)
    job = desk.running.get(id_)
    assert job is not None
    job.thread.join(60)
    shown = client.get(f"/sql/{id_}").text

    assert "2 rows" in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert CANARY not in shown
    closed = TestClient(console(desk, AccessControl(token="", port=80, read_only=True)), base_url="http://localhost")
    assert "read-only" in closed.get("/sql").text
    assert closed.post("/sql", data={"sql": "SELECT 1", "change_key": guard.change_key()}).status_code == 403
    bare = TestClient(console(ConsoleView(connect(filled), SYSTEM_CLOCK), guard), base_url="http://localhost")
    assert "no Spark session" in bare.get("/sql").text
    assert bare.post("/sql", data={"sql": "SELECT 1", "change_key": guard.change_key()}).status_code == 400
