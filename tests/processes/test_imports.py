"""What a process imports, which takes its time before the first record."""

import subprocess
import sys


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
    "kafkalike.model.group_commit",
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
    "kafkalike.model.group_commit",
    "kafkalike.model.transactions.transaction_protocol",
}
sys.exit(", ".join(needless & sys.modules.keys()) or None)
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
from kafkalike import KafkaConsumer, KafkaProducer, find_records
from kafkalike.connect import open_cluster
from kafkalike.spark.format.input_partitions import FIELDS, plan_range, read_range
with KafkaProducer(bootstrap_servers=sys.argv[1]) as producer:
    producer.send("orders", b"v", key=b"k").get(60)
with KafkaConsumer("orders", bootstrap_servers=sys.argv[1], auto_offset_reset="earliest") as consumer:
    assert consumer.poll_arrow(timeout_ms=60_000).num_rows == 1
cluster = open_cluster(sys.argv[1])
plan = plan_range(cluster.log("orders"), cluster.store, 0, range(1))
assert [batch.num_rows for batch in read_range(plan, tuple(FIELDS))] == [1]
assert len(find_records("orders", sys.argv[1], key=b"k").records) == 1
sys.exit("pandas" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, root], check=True, timeout=120)


def test_what_needs_an_extra_that_is_not_installed_says_how_to_install_it(root: str) -> None:
    """The registry itself needs none."""
    code = """
import sys
from importlib import import_module

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"fastavro", "google", "httpx", "jsonschema", "re2", "referencing"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from kafkalike.errors import KafkaConfigurationError
from kafkalike.schemas import Registry, RemoteRegistry, Schema

def refused(kind, do):
    try:
        do()
    except kind as error:
        assert "pip install 'kafkalike[schemas]'" in str(error), repr(error)
    else:
        raise AssertionError("nothing was missing")

for part in ("Serializer", "Deserializer"):
    for form in ("Avro", "Protobuf", "JSON"):
        refused(ModuleNotFoundError, lambda: getattr(import_module("kafkalike.schemas"), form + part))
registry = Registry(sys.argv[1])
assert registry.get_subjects() == []
for text, form in (('syntax = "proto3"; message M {}', "PROTOBUF"), ('{"type": "object"}', "JSON")):
    refused(KafkaConfigurationError, lambda: registry.register_schema("t", Schema(text, form)))
refused(KafkaConfigurationError, lambda: RemoteRegistry({"url": "http://127.0.0.1:1"}))
"""
    subprocess.run([sys.executable, "-c", code, root], check=True, timeout=120)
