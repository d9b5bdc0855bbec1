"""Recipes of docs/retention.md and docs/sql.md, with the tools they are for; `make recipes` runs those that fetch."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from deltalake import DeltaTable

from kafkalike import KafkaProducer
from tests.tools.blocks import PROJECT, blocks
from tests.tools.wheels import BESIDE, built, clean, ran

PAGE = "docs/retention.md"


def recipe(heading: str, language: str, page: str = PAGE) -> list[str]:
    """The blocks of a recipe in a language."""
    return [text for found, text in blocks(heading, page) if found == language]


def environment(folder: Path, *packages: str) -> Path:
    """The programs of a fresh environment with some packages."""
    ran("uv", "venv", "--quiet", "--python", sys.executable, "tools", folder=folder, more={"PATH": BESIDE})
    python = folder / "tools" / "bin" / "python"
    ran("uv", "pip", "install", "--quiet", "--python", python, *packages, folder=folder, more={"PATH": BESIDE})
    return python.parent


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """Each key is known, and each program is there."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("NOT TESTED: the units of docs/retention.md, as there is no systemd-analyze")
    units = recipe("systemd", "ini")
    here = str(Path(sys.executable).with_name("kafkalike"))
    for number, text in enumerate(units):
        unit = tmp_path / f"kafkalike-{number}.service"
        unit.write_text(text.replace("/opt/kafkalike/bin/kafkalike", here).replace("User=log", "User=root"))

        ran("systemd-analyze", "verify", unit, folder=tmp_path)

    assert len(units) == 2


def test_files_for_other_systems_can_be_read() -> None:
    for heading in ("Databricks", "EMR"):
        assert all(isinstance(json.loads(text), dict) for text in recipe(heading, "json"))


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_files_for_other_systems_have_the_fields_that_those_publish(tmp_path: Path) -> None:
    """By Kubernetes's schemas, Databricks's and Amazon's own clients; a field that they do not know is seen."""
    (manifest,), (databricks,), (emr,) = (
        recipe("Kubernetes", "yaml"),
        recipe("Databricks", "json"),
        recipe("EMR", "json"),
    )
    for name, text in (("manifest.yaml", manifest), ("databricks.json", databricks), ("emr.json", emr)):
        (tmp_path / name).write_text(text)
    python = (
        environment(tmp_path, "kubernetes-validate", "setuptools", "pyyaml", "databricks-sdk", "botocore") / "python"
    )

    ran(python, "-c", CHECKS, folder=tmp_path)


CHECKS = """
import copy, json, kubernetes_validate, yaml
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator
from databricks.sdk.service.jobs import JobSettings

def kubernetes(given):
    try:
        kubernetes_validate.validate(given, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error)
    return ""

def databricks(given):
    return "" if JobSettings.from_dict(given).as_dict() == given else "a field is not known"

service = ServiceModel(Loader().load_service_model("emr-serverless", "service-2"))
shape = service.operation_model("StartJobRun").input_shape

def emr(given):
    return ParamValidator().validate(given, shape).generate_report()

for check, given, inside in (
    (kubernetes, yaml.safe_load(open("manifest.yaml")), lambda d: d["spec"]),
    (databricks, json.load(open("databricks.json")), lambda d: d["tasks"][0]),
    (emr, json.load(open("emr.json")), lambda d: d["jobDriver"]["sparkSubmit"]),
):
    assert not check(given), check(given)
    wrong = copy.deepcopy(given)
    inside(wrong)["unheardOf"] = "x"
    assert check(wrong), check
"""


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_airflow_runs_the_task(tmp_path: Path) -> None:
    """`airflow tasks test`, in an environment of Airflow's own."""
    (dag,) = recipe("Airflow", "python")
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "maintain.py").write_text(dag)
    with KafkaProducer(bootstrap_servers=str(tmp_path / "log")) as producer:
        producer.send("orders", b"tea")
    home = environment(tmp_path, "apache-airflow>=3,<4", "apache-airflow-providers-standard")
    own = {
        "PATH": f"{home}{os.pathsep}{BESIDE}",
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_VAR_LOG_ROOT": str(tmp_path / "log"),
    }

    ran("airflow", "db", "migrate", folder=tmp_path, more=own)
    dry, earnest = (
        ran(*shlex.split(line), folder=tmp_path, more=own) for line in recipe("Airflow", "sh")[0].splitlines()
    )

    assert '"dry_run": true' in dry
    assert '"dry_run": false' in earnest
    assert all("Command exited with return code 0" in told and '"topic": "orders"' in told for told in (dry, earnest))


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_dbt_makes_a_table_of_a_topic(tmp_path: Path) -> None:
    """With a Spark session in dbt's own process, the wheel and the settings that it brings."""
    with KafkaProducer(bootstrap_servers=str(tmp_path / "log")) as producer:
        for number in range(5):
            producer.send("orders", b"%d" % number)
    page = "docs/sql.md"
    profiles, project = recipe("dbt", "yaml", page)
    (model,), (command,) = recipe("dbt", "sql", page), recipe("dbt", "sh", page)
    for name, text in (("profiles.yml", profiles), ("dbt_project.yml", project), ("models/by_day.sql", model)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    wheel = built(tmp_path / "dist")
    home = environment(
        tmp_path, "dbt-core>=1.10,<1.11", "dbt-spark[session]>=1.9", f"kafkalike[spark] @ {wheel.as_uri()}"
    )
    path = {"PATH": f"{home}{os.pathsep}{clean()['PATH']}"}

    told = ran("bash", "-euc", command.replace("/srv/log", str(tmp_path / "log")), folder=tmp_path, more=path)

    assert "PASS=1 WARN=0 ERROR=0" in told
    table = tmp_path / "spark-warehouse" / "reports.db" / "by_day"
    assert list(table.glob("*.parquet"))


QUERIES = {
    "SELECT key, value FROM orders__text ORDER BY partition, offset": ["key,value", "alice,tea"],
    "SELECT topic, records FROM kafkalike_topics": ["topic,records", "orders,1"],
    "SELECT count(*) AS found FROM kafkalike_range('orders', NULL, NULL)": ["found", "1"],
}


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_jdbc_client_queries_topics_through_the_thrift_server(tmp_path: Path) -> None:
    """The program of the page, and Spark's own client; each statement's columns and rows."""
    root = str(tmp_path / "log")
    with KafkaProducer(bootstrap_servers=root) as producer:
        producer.send("orders", b"tea", key=b"alice")
    page, heading = "docs/sql.md", "DBeaver and JDBC"
    (program,), (command,) = recipe(heading, "python", page), recipe(heading, "sh", page)
    (tmp_path / "serve_sql.py").write_text(program)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    words = shlex.split(command.replace("/srv/log", root).replace("10000", port))
    beeline = Path(pyspark.__file__).parent / "bin" / "beeline"

    with subprocess.Popen([sys.executable, *words[1:]], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "serving\n"
            statements = [word for query in QUERIES for word in ("-e", query)]
            url = f"jdbc:hive2://127.0.0.1:{port}"
            told = ran(beeline, "-u", url, "--silent=true", "--outputformat=csv2", *statements, folder=tmp_path)
        finally:
            server.kill()

    lines = [line.rpartition("> ")[2] for line in told.splitlines()]
    assert [line for line in lines if line] == [line for rows in QUERIES.values() for line in rows]


HIVE = """
import sys, time
import kafkalike.spark as ks

root, port, folder = sys.argv[1:]
settings = {
    "spark.sql.catalogImplementation": "hive",
    # A session of its own for each client would lack Delta's jars, which this JVM got after its start.
    "spark.sql.hive.thriftServer.singleSession": "true",
    "spark.sql.warehouse.dir": f"{folder}/warehouse",
    "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
    "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
    "spark.hadoop.hive.server2.thrift.bind.host": "127.0.0.1",
    "spark.hadoop.hive.server2.thrift.port": port,
}
spark = ks.session("hive", **settings)
ks.register_sql(spark, root, database="log", tables=True)
server = spark._jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
server.startWithSparkSession(spark._jsparkSession, False)
print("serving", flush=True)
time.sleep(600)
"""


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_jdbc_client_reads_topics_as_tables_of_a_hive_metastore(tmp_path: Path) -> None:
    """Spark's embedded metastore, and Spark's own client."""
    root = str(tmp_path / "log")
    with KafkaProducer(bootstrap_servers=root) as producer:
        producer.send("orders", b"tea", key=b"alice")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    beeline = Path(pyspark.__file__).parent / "bin" / "beeline"
    command = [sys.executable, "-c", HIVE, root, port, str(tmp_path)]

    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "serving\n"
            statements = ["-e", "SHOW TABLES IN log", "-e", "SELECT CAST(value AS STRING) AS value FROM log.orders"]
            url = f"jdbc:hive2://127.0.0.1:{port}"
            told = ran(beeline, "-u", url, "--silent=true", "--outputformat=csv2", *statements, folder=tmp_path)
        finally:
            server.kill()

    assert "log,orders,false" in told
    assert told.split()[-2:] == ["value", "tea"]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_pipeline_reads_a_topic_into_tables_and_writes_a_topic(tmp_path: Path) -> None:
    """docs/spark.md, with other paths."""
    if not SPARK_PIPELINES.exists():
        pytest.skip("NOT TESTED: declarative pipelines, which this PySpark does not have")
    (told,) = recipe("Declarative pipelines", "sh", "docs/spark.md")
    project = tmp_path / "examples" / "pipeline"
    shutil.copytree(PROJECT / "examples" / "pipeline", project)
    spec = project / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace(PIPELINE, str(tmp_path)))
    program = told.replace(PIPELINE, str(tmp_path))

    output = ran("bash", "-ec", program, folder=tmp_path, more={"PATH": BESIDE, "TERM": "dumb"}, seconds=400)

    assert output.count('{"item": "desk", "amount": 300}') == 1
    spending = DeltaTable(project / "spark-warehouse" / "spending").to_pyarrow_table().to_pylist()
    assert spending == [{"customer": "ann", "amount": 300.0}]


SPARK_PIPELINES = Path(sys.executable).with_name("spark-pipelines")
PIPELINE = "/tmp/kafkalike-pipeline"  # noqa: S108 - the example names it; a test replaces it
