"""What a process imports, which takes its time before the first record."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from types import ModuleType

import pytest

from kafkalike.errors.optional_imports import EXTRAS, advice, require_module
from tests.tools.blocks import PROJECT


def test_a_process_that_sends_one_record_does_not_import_pandas_deltalake_or_pyspark(root: str) -> None:
    """pandas takes half a second of its own; deltalake brings a runtime with threads that a fork does not survive."""
    code = """
import sys
from kafkalike import KafkaProducer
with KafkaProducer(bootstrap_servers=sys.argv[1]) as producer:
    producer.send("orders", b"v").get(60)
sys.exit(", ".join({"pandas", "deltalake", "pyspark"} & sys.modules.keys()) or None)
"""
    subprocess.run([sys.executable, "-c", code, root], check=True, timeout=120)


def test_a_gateway_that_serves_a_producer_and_a_consumer_does_not_import_pandas(root: str) -> None:
    """It was a third of the time of a gateway's start."""
    code = """
import sys
from confluent_kafka import Consumer, Producer, TopicPartition
from kafkalike.connect import connect
from kafkalike.gateway.gateway_server import GatewayServer
server = GatewayServer(connect(sys.argv[1]))
server.start()
producer = Producer({"bootstrap.servers": server.bootstrap_servers})
producer.produce("t", b"v", b"k", 0, headers={"h": b"x"})
producer.flush(60)
consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "g"})
consumer.assign([TopicPartition("t", 0, 0)])
assert consumer.poll(60).value() == b"v"
consumer.close()
server.stop()
sys.exit("pandas" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, root], check=True, timeout=120)


def test_a_process_that_opens_a_cluster_imports_no_more_than_it_needs(root: str) -> None:
    """Commands of operators do nothing else; `pyarrow.compute` alone takes 30 ms."""
    code = """
import sys
from kafkalike.connect import connect
connect(sys.argv[1]).topics()
sys.exit(bool({"pandas", "deltalake", "pyspark", "obstore", "pyarrow.compute"} & sys.modules.keys()))
"""
    subprocess.run([sys.executable, "-c", code, root], check=True, timeout=120)


def test_a_process_that_opens_a_cluster_loads_only_what_a_folder_without_transactions_needs(root: str) -> None:
    """Half of the modules are for object stores, transactions and logs of topics; they took 60 ms of each command."""
    code = """
import sys
from kafkalike.connect import connect
connect(sys.argv[1]).topics()
needless = {
    "kafkalike.delta.group_commit.group_commit",
    "kafkalike.log.topic.topic_log",
    "kafkalike.log.transactions",
    "kafkalike.model.appends.group_commit",
    "kafkalike.model.transactions.transaction_protocol",
}
sys.exit(", ".join(needless & sys.modules.keys()) or None)
"""
    subprocess.run([sys.executable, "-c", code, root], check=True, timeout=120)


def test_a_process_that_writes_to_a_folder_loads_nothing_of_object_stores(root: str) -> None:
    code = """
import sys
from kafkalike import KafkaProducer
with KafkaProducer(bootstrap_servers=sys.argv[1]) as producer:
    producer.send("orders", b"v").get(60)
needless = {
    "kafkalike.storage.objects",
    "kafkalike.delta.group_commit.group_commit",
    "kafkalike.delta.group_commit.control_group_commit",
    "kafkalike.log.topic.topic_group_commit",
    "kafkalike.model.appends.group_commit",
    "kafkalike.model.transactions.transaction_protocol",
}
sys.exit(", ".join(needless & sys.modules.keys()) or None)
"""
    subprocess.run([sys.executable, "-c", code, root], check=True, timeout=120)


def test_a_process_that_writes_and_reads_a_folder_imports_no_file_systems_of_pyarrow(root: str) -> None:
    """`pyarrow.parquet` imports them, and they import `ssl`: 35 ms of CPU time."""
    code = """
import sys
from kafkalike import KafkaConsumer, KafkaProducer
with KafkaProducer(bootstrap_servers=sys.argv[1]) as producer:
    producer.send("orders", b"v").get(60)
with KafkaConsumer("orders", bootstrap_servers=sys.argv[1], auto_offset_reset="earliest", group_id="g") as consumer:
    assert consumer.poll(60_000)
sys.exit(", ".join({"pyarrow.parquet", "pyarrow.fs", "ssl"} & sys.modules.keys()) or None)
"""
    subprocess.run([sys.executable, "-c", code, root], check=True, timeout=120)


def test_a_thread_that_makes_a_checkpoint_does_not_import_pandas(root: str) -> None:
    """It would take the interpreter from the appends beside it."""
    code = """
import sys
from kafkalike import KafkaProducer
from kafkalike.storage.local import LocalStorage
from kafkalike.delta.checkpoint import make_checkpoint
from kafkalike.delta.snapshot import load_snapshot
with KafkaProducer(bootstrap_servers=sys.argv[1]) as producer:
    producer.send("orders", b"v").get(60)
store = LocalStorage(sys.argv[1]).at("orders")
for _ in range(2):
    make_checkpoint(store, load_snapshot(store), 1)
assert store.read("_delta_log/_last_checkpoint")
sys.exit("pandas" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, root], check=True, timeout=120)


def test_a_process_that_reads_does_not_import_pandas(root: str) -> None:
    """Nor does a task of Spark's, which reads by `read_range`: it took 0.2 s of the first one of each process."""
    code = """
import sys
from kafkalike import KafkaConsumer, KafkaProducer, KafkaShareConsumer, find_records
from kafkalike.connect import open_cluster
from kafkalike.spark.format.input_partitions import FIELDS, plan_range, read_range
with KafkaProducer(bootstrap_servers=sys.argv[1]) as producer:
    producer.send("orders", b"v", key=b"k").get(60)
with KafkaConsumer("orders", bootstrap_servers=sys.argv[1], auto_offset_reset="earliest") as consumer:
    assert consumer.poll_arrow(timeout_ms=60_000).num_rows == 1
work = {"group_id": "work", "share_auto_offset_reset": "earliest", "bootstrap_servers": sys.argv[1]}
with KafkaShareConsumer("orders", **work) as worker:
    assert len(worker.poll(timeout_ms=60_000)) == 1
cluster = open_cluster(sys.argv[1])
plan = plan_range(cluster.log("orders"), cluster.store, 0, range(1))
assert [batch.num_rows for batch in read_range(plan, tuple(FIELDS))] == [1]
assert len(find_records("orders", sys.argv[1], key=b"k").records) == 1
sys.exit("pandas" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, root], check=True, timeout=120)


WITHOUT = """
import sys
from importlib import import_module
from kafkalike.errors.optional_imports import EXTRAS

class WithoutExtras:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in EXTRAS else self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(WithoutExtras, sys.meta_path)

def refused(extra, do, kind=ImportError):
    try:
        do()
    except kind as error:
        assert f"pip install 'kafkalike[{extra}]'" in str(error), repr(error)
        assert "\\n" not in str(error), repr(error)
    else:
        raise AssertionError("nothing was missing")
"""
"""Begins a program in which only the packages of a plain `pip install kafkalike` can be imported."""


def test_what_needs_an_extra_that_is_not_installed_says_how_to_install_it(root: str) -> None:
    """The registry itself needs none."""
    code = """
from kafkalike.errors import KafkaConfigurationError
from kafkalike.schemas import Registry, RemoteRegistry, Schema

for part in ("Serializer", "Deserializer"):
    for form in ("Avro", "Protobuf", "JSON"):
        refused("schemas", lambda: getattr(import_module("kafkalike.schemas"), form + part))
registry = Registry(sys.argv[1])
assert registry.get_subjects() == []
for text, form in (('syntax = "proto3"; message M {}', "PROTOBUF"), ('{"type": "object"}', "JSON")):
    refused("schemas", lambda: registry.register_schema("t", Schema(text, form)), KafkaConfigurationError)
refused("schemas", lambda: RemoteRegistry({"url": "http://127.0.0.1:1"}), KafkaConfigurationError)

import kafkalike.spark as ks
from kafkalike.ui import notebook
for name in ("create_view", "read", "read_stream", "register_sql", "session", "write", "write_stream"):
    refused("spark", lambda: getattr(ks, name))
refused("ui", lambda: notebook.console(sys.argv[1]), KafkaConfigurationError)
refused("spark", lambda: notebook.console(sys.argv[1], spark=object()), KafkaConfigurationError)
refused("ui", lambda: notebook.lag(sys.argv[1])._repr_html_(), KafkaConfigurationError)
"""
    subprocess.run([sys.executable, "-c", WITHOUT + code, root], check=True, timeout=120)


def test_clients_admin_and_commands_work_without_extras(root: str) -> None:
    """Every command is found, and one that needs an extra ends with one line."""
    code = """
import contextlib, io
from kafkalike import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafkalike.cli.app import COMMANDS, app, run

def said(*args):
    out = io.TextIOWrapper(io.BytesIO(), write_through=True)
    with contextlib.redirect_stderr(out), contextlib.redirect_stdout(out):
        code = run(args)
    return code, out.buffer.getvalue().decode()

root = ("--bootstrap-server", sys.argv[1])
code, text = said("topics", "--create", "--topic", "orders", "--partitions", "2", *root)
assert code == 0, text
with KafkaProducer(bootstrap_servers=sys.argv[1]) as producer:
    producer.send("orders", b"v").get(60)
with KafkaConsumer("orders", bootstrap_servers=sys.argv[1], auto_offset_reset="earliest") as consumer:
    assert sum(map(len, consumer.poll(60_000).values())) == 1
with KafkaAdminClient(bootstrap_servers=sys.argv[1]) as admin:
    assert list(admin.list_topics()) == ["orders"]
assert all(app.get_command(None, name) for name in COMMANDS)
for command in ("conf-path", "docs-path", "verify", "maintain", "dlq list", "metrics --json", "topics --list"):
    code, text = said(*command.split(), *(root if "path" not in command else ()))
    assert code == 0, text
for command, extra, begins in (
    ("demo", "demo", "The demo needs"),
    ("gateway --listen 127.0.0.1:0", "gateway", "Error: gateways need"),
    ("schema-registry --port 0", "registry", "Error: services of schemas need"),
    ("sql", "spark", "Error: this command needs"),
    ("sql-views", "spark", "Error: this command needs"),
    ("ui --port 0", "ui", "Error: web consoles need"),
):
    code, text = said(*command.split(), *root)
    assert (code, text.count("\\n")) == (1, 1), text
    assert f"pip install 'kafkalike[{extra}]'" in text, text
    assert text.startswith(f"{begins} "), text
"""
    subprocess.run([sys.executable, "-c", WITHOUT + code, root], check=True, timeout=120)


def test_a_job_without_spark_ends_with_one_line() -> None:
    code = """
import runpy
sys.argv[:] = ["-m"]
runpy.run_module("kafkalike.jobs.produce", run_name="__main__")
"""

    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + code], capture_output=True, text=True, check=False, timeout=60
    )

    assert (done.returncode, done.stderr) == (1, "Error: jobs need pyspark: pip install 'kafkalike[spark]'\n")


def test_an_error_that_no_extra_mends_stays_as_it_is() -> None:
    """A damaged installation is not an extra that is missing."""
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'kafkalike\.model\.nothing'$"):
        require_module("kafkalike.model.nothing", "tests")


def test_another_version_of_spark_is_named_and_not_to_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = ModuleType("pyspark")
    spark.__version__ = "3.5.9"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyspark", spark)

    assert advice(ImportError("cannot import name", name="pyspark.sql"), "kafkalike.spark.session needs") == (
        "kafkalike.spark.session needs pyspark 4.0.1 to 4.2, and 3.5.9 is here. "
        "In an environment of its own, run pip install 'kafkalike[spark]'"
    )


def test_pandas_beside_a_platforms_own_spark_is_installed_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra would replace that Spark."""
    error = ModuleNotFoundError("No module named 'pandas'", name="pandas")
    monkeypatch.setitem(sys.modules, "pyspark", ModuleType("pyspark"))
    monkeypatch.delitem(sys.modules, "pandas", raising=False)

    assert advice(error, "writes from Spark need") == "writes from Spark need pandas: pip install 'pandas>=2.2,<3'"


def test_every_package_of_an_extra_for_users_has_its_advice() -> None:
    """By what can be imported of it; the advice names an extra that has it."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    modules: dict[str, set[str]] = {}
    for module, distributions in packages_distributions().items():
        for name in distributions:
            modules.setdefault(re.sub(r"[-_.]+", "-", name).lower(), set()).add(module)
    brought = {
        extra: {re.split(r"[\[<>=~!;]", wanted)[0] for wanted in wants} - {"kafkalike", "delta-spark"}
        for extra, wants in project["optional-dependencies"].items()
        if extra not in {"bench", "dev", "docs"}
    }
    brought["connect"].add("grpcio")
    # The set-up of a developer has no JupyterLab.
    modules.setdefault("jupyterlab", {"jupyterlab"})

    named = {name for names in brought.values() for name in names}
    assert {name for name in named if not modules[name] & EXTRAS.keys()} == set()
    for module, extra in EXTRAS.items():
        assert any(module in modules[name] for name in brought[extra] | {"py4j"}), module
