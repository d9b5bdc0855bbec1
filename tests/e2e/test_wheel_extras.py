"""The wheel with each extra, installed from a package index into an empty environment: `make wheel-extras`.

Prints what each takes on disk and what it brings.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.tools.blocks import PROJECT
from tests.tools.wheels import BESIDE, built, ran

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

CLIENTS = """
from kafkalike import KafkaAdminClient, KafkaConsumer, KafkaProducer
with KafkaProducer(bootstrap_servers="./log") as producer:
    producer.send("orders", b"tea").get(60)
with KafkaConsumer("orders", bootstrap_servers="./log", auto_offset_reset="earliest") as consumer:
    print([record.value for batch in consumer.poll(60_000).values() for record in batch])
print(KafkaAdminClient(bootstrap_servers="./log").list_topics())
import sys
print(sorted({"pyspark", "pandas", "deltalake", "obstore", "fastavro", "matplotlib"} & sys.modules.keys()))
"""

TRIALS: dict[str, tuple[str, str]] = {
    "": ("import kafkalike.cli.app", ""),
    "schemas": ("from kafkalike.schemas import AvroSerializer, JSONSerializer, ProtobufSerializer", ""),
    "registry": ("from kafkalike.schemas.service.registry_service import RegistryServer, RegistryService", ""),
    "ui": (
        """
from kafkalike.connect import connect
from kafkalike.ui.console_server import ConsoleServer
with_console = ConsoleServer(connect("./log"))
with_console.start()
with_console.stop()
""",
        "",
    ),
    "gateway": ("import kafkalike.gateway.gateway_server", ""),
    "spark": (
        """
import kafkalike.spark as ks
spark = ks.session()
ks.write(spark.sql("SELECT 'milk' AS value"), "orders", "./log")
ks.register_sql(spark, "./log", temporary=True)
print(spark.sql("SELECT count(*) FROM orders").collect()[0][0])
spark.stop()
""",
        "2",
    ),
    "connect": (
        "import pandas\nfrom pyspark.sql.connect.session import SparkSession\nprint(pandas.__version__[0])",
        "2",
    ),
    "notebooks": (
        """
import json, os, re, subprocess, sys, urllib.request
with subprocess.Popen(
    [os.path.join(os.path.dirname(sys.executable), "kafkalike"), "notebooks", "--no-browser", "--port", "0"],
    stderr=subprocess.PIPE, text=True,
) as lab:
    address = re.compile(r"(http://localhost:[0-9]+/).*token=([0-9a-f]+)")
    found = next(filter(None, map(address.search, lab.stderr)))
    with urllib.request.urlopen(f"{found[1]}api/contents?token={found[2]}", timeout=60) as answer:
        names = [one["name"] for one in json.load(answer)["content"]]
    lab.kill()
print("01_quickstart.ipynb" in names)
""",
        "True",
    ),
    "demo": (
        """
import io, subprocess, sys
from rich.console import Console
from kafkalike.cli.demo.tour import run
text = io.StringIO()
print("WRONG" if run(rows=2000, console=Console(file=text, width=200)) else "right")
sys.stdout.flush()
shell = text.getvalue().splitlines()[-1].strip()
subprocess.run(["bash", "-c", f"{shell} -e 'SELECT count(*) FROM boarding'"], check=True)
""",
        "60",
    ),
}
"""By extra, a program that needs it, and the last line that the program prints."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("dist"))


def new_environment(folder: Path) -> Path:
    """An empty environment; its Python."""
    ran("uv", "venv", "--quiet", folder / "venv", folder=folder, more={"PATH": BESIDE})
    return folder / "venv" / "bin" / "python"


def install(python: Path, *wanted: str) -> list[str]:
    """Install packages from the index; all that are installed then, as `name==version`."""
    ran(
        "uv",
        "pip",
        "install",
        "--quiet",
        "--python",
        python,
        *wanted,
        folder=python.parent,
        more={"PATH": BESIDE},
        seconds=1200,
    )
    listed = ran("uv", "pip", "freeze", "--python", python, folder=python.parent, more={"PATH": BESIDE})
    return [line for line in listed.splitlines() if not line.startswith("kafkalike")]


def megabytes(python: Path) -> float:
    files = (path for path in python.parents[1].rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files) / 1e6


@pytest.mark.parametrize("extra", TRIALS, ids=lambda extra: extra or "none")
def test_the_wheel_with_an_extra_does_what_the_extra_is_for(wheel: Path, tmp_path: Path, extra: str) -> None:
    """Clients and commands work with each of them, and import no more than without."""
    python = new_environment(tmp_path)
    packages = install(python, f"kafkalike[{extra}] @ {wheel.as_uri()}" if extra else str(wheel))
    size = megabytes(python)

    clients = ran(python, "-c", CLIENTS, folder=tmp_path).splitlines()
    program, last = TRIALS[extra]
    printed = ran(python, "-c", program, folder=tmp_path, seconds=600).splitlines()
    described = ran(python.parent / "kafkalike", "topics", "--list", "--bootstrap-server", "./log", folder=tmp_path)

    sys.stdout.write(f"\nkafkalike[{extra}]: {len(packages)} packages, {size:.0f} MB: {', '.join(packages)}\n")
    assert clients == ["[b'tea']", "['orders']", "[]"]
    assert (printed[-1] if printed else "") == last
    assert described == "orders\n"
    assert any(package.startswith("pyspark==4.2.") for package in packages) == (
        extra in {"spark", "connect", "demo", "notebooks"}
    )


def test_every_extra_for_users_is_tried() -> None:
    project: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    for_developers = {"bench", "dev", "docs"}

    assert set(project["optional-dependencies"]) - for_developers == set(TRIALS) - {""}


IN_A_SPARK_OF_ITS_OWN = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
from pyspark.sql.datasource import DataSource, DataSourceReader
class Numbers(DataSource):
    @classmethod
    def name(cls): return "numbers"
    def schema(self): return "n INT"
    def reader(self, schema): return Reader()
class Reader(DataSourceReader):
    def read(self, partition): yield (7,)
spark.dataSource.register(Numbers)
print(spark.version, spark.read.format("numbers").load().collect()[0][0])
spark.stop()
"""

TOO_OLD = """
import kafkalike.spark
try:
    kafkalike.spark.session
except ImportError as error:
    print(error)
"""


ANOTHER_SPARK = (
    "kafkalike.spark.session needs pyspark 4.0.1 to 4.2, and 3.5.9 is here. "
    "In an environment of its own, run pip install 'kafkalike[spark]'"
)


def test_platforms_own_spark_that_is_too_old_stays_and_is_named(wheel: Path, tmp_path: Path) -> None:
    """Clients and commands work beside it, and `kafkalike.spark` says what it needs."""
    python = new_environment(tmp_path)
    before = install(python, "pyspark==3.5.9", "pyarrow")
    after = install(python, str(wheel))

    clients = ran(python, "-c", CLIENTS, folder=tmp_path).splitlines()
    printed = ran(python, "-c", TOO_OLD, folder=tmp_path)

    assert set(before) <= set(after)
    assert clients == ["[b'tea']", "['orders']", "[]"]
    assert printed == f"{ANOTHER_SPARK}\n"


@pytest.mark.parametrize("version", ["4.0.5", "4.1.4"])
def test_platforms_own_spark_stays_with_the_extra_too(wheel: Path, tmp_path: Path, version: str) -> None:
    """Its own formats still work; the extra adds Delta and pandas, and replaces nothing."""
    python = new_environment(tmp_path)
    before = install(python, f"pyspark=={version}", "pyarrow")
    alone = install(python, str(wheel))
    printed = ran(
        python, "-c", IN_A_SPARK_OF_ITS_OWN, folder=tmp_path, more={"PYSPARK_PYTHON": str(python)}, seconds=600
    )
    after = install(python, f"kafkalike[spark] @ {wheel.as_uri()}")
    ran(python, "-c", CLIENTS, folder=tmp_path)
    counted = ran(python, "-c", TRIALS["spark"][0], folder=tmp_path, seconds=600).splitlines()

    assert set(before) <= set(alone) <= set(after)
    assert printed == f"{version} 7\n"
    assert "delta-spark==4.4.0" in after
    assert counted[-1] == "2"


def test_a_platforms_own_spark_of_the_right_version_is_used(wheel: Path, tmp_path: Path) -> None:
    """Without the extra, there is no package of Delta: the session fetches the jars that belong to this Spark."""
    python = new_environment(tmp_path)
    before = install(python, "pyspark==4.2.0", "pyarrow", "pandas<3")
    after = install(python, str(wheel))
    printed = ran(python, "-c", TRIALS["spark"][0], folder=tmp_path, seconds=600).splitlines()

    assert set(before) <= set(after)
    assert not any(package.startswith("delta-spark") for package in after)
    assert printed[-1] == "1"
