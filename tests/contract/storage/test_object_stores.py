"""A cluster in an object store: options that nobody sees, errors that say what to do, topics and their upkeep."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import traceback
from collections.abc import Callable, Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from kafkalike import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafkalike.cli import main
from kafkalike.connect import connect
from kafkalike.errors import (
    IllegalStateError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    KafkaStorageError,
    TopicAuthorizationFailedError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.cluster_state import topic_row
from kafkalike.storage.objects import PART_BYTES, ObjectStorage
from tests.tools.clusters import object_store
from tests.tools.fault_proxy import FAULTS, FaultProxy, fault_proxy
from tests.tools.findings import errors_of
from tests.tools.kinds import GOOGLE_TOO
from tests.tools.object_servers import AZURE_ACCOUNT, GOOGLE, S3, ObjectServer, in_environment
from tests.tools.records import all_records, batch, everything, open_log
from tests.tools.upkeep import AT_ONCE, EAGER

SECRETS = ("dummy-key-id", "dummy-secret-key", "Eby8vdM02xNO", "canary")


@pytest.fixture(params=GOOGLE_TOO)
def server(request: pytest.FixtureRequest, object_server: Callable[[str], ObjectServer]) -> ObjectServer:
    """A running object store."""
    return object_server(request.param)


@pytest.fixture
def proxy(server: ObjectServer) -> Iterator[FaultProxy]:
    """A proxy before it, without faults at first."""
    with fault_proxy(server.port) as running:
        yield running


@pytest.fixture
def place(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new root whose options are in the environment."""
    for name, value in in_environment(server).items():
        monkeypatch.setenv(name, value)
    return server.new_root()


def test_every_client_takes_the_options(server: ObjectServer) -> None:
    """Producer, consumer with a group, admin; the root in two spellings."""
    root = server.new_root()
    other = root.replace("s3://", "s3a://").replace("az://", "azure://") + "/"

    with KafkaAdminClient(bootstrap_servers=root, storage_options=server.options) as admin:
        admin.create_topics({"t": {"num_partitions": 2}})
    with KafkaProducer(bootstrap_servers=other, storage_options=server.options) as producer:
        sent = [producer.send("t", b"%d" % n, partition=n % 2).get().offset for n in range(10)]
    with KafkaConsumer(
        "t",
        bootstrap_servers=root,
        storage_options=server.options,
        group_id="g",
        auto_offset_reset="earliest",
        consumer_timeout_ms=3000,
    ) as consumer:
        read = sorted(int(record.value) for record in consumer)
        consumer.commit()

    assert sent == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert read == list(range(10))
    with KafkaAdminClient(bootstrap_servers=other, storage_options=server.options) as admin:
        assert {tp.partition: at.offset for tp, at in admin.list_group_offsets(["g"])["g"].items()} == {0: 5, 1: 5}


def test_a_root_in_two_spellings_is_one_root(server: ObjectServer) -> None:
    """It is tried out once, and its writers in this process queue together."""
    root = server.new_root()
    first, second = object_store(server, root), object_store(server, root.replace("s3:", "s3a:") + "/")

    assert first.uri == second.uri
    assert first._root is second._root


def test_commands_take_the_options_from_a_file_or_the_environment(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    root, file = server.new_root(), tmp_path / "client.properties"
    file.write_text("".join(f"storage.options.{name}={value}\n" for name, value in server.options.items()))
    named = ["--bootstrap-server", root]

    assert main(["topics", *named, "--command-config", str(file), "--create", "--topic", "t"]) == 0
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"value\n" * 10)))
    assert main(["console-producer", *named, "--command-config", str(file), "--topic", "t"]) == 0
    consume = ["--topic", "t", "--from-beginning", "--max-messages", "10"]
    assert main(["console-consumer", *named, "--command-config", str(file), *consume]) == 0
    assert main(["consumer-groups", *named, "--command-config", str(file), "--list"]) == 0
    assert main(["metrics", *named, "--command-config", str(file), "--json"]) == 0
    for command in (["verify"], ["maintain"], ["history", "t"], ["dump-log", "--topic", "t"], ["sql-views"]):
        assert main([*command, *named, "--command-config", str(file)]) == 0
    for name, value in in_environment(server).items():
        monkeypatch.setenv(name, value)
    for command in (["verify"], ["maintain"]):
        assert main([*command, *named]) == 0

    shown = capsysbinary.readouterr()
    assert shown.out.count(b"value\n") == 10
    assert not any(secret.encode() in shown.out + shown.err for secret in SECRETS)


def test_no_secret_is_ever_shown_or_stored(
    server: ObjectServer, proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in representations, logs, errors with all that caused them, nor in any object."""
    caplog.set_level(logging.DEBUG)
    behind = server.behind(proxy.port)
    root, shown = behind.new_root(), []
    cluster = connect(root, behind.options)
    assert isinstance(cluster, Cluster)
    cluster.create_topic("t", 1, {})
    log = open_log(cluster)
    log.append(batch("v"))
    shown += [repr(cluster), repr(cluster.store), repr(log), str(vars(cluster.store))]
    proxy.plan.faults = {"busy": 0.5, "reset": 0.5}
    for call in (lambda: log.append(batch("w")), lambda: connect(server.behind(proxy.port).new_root(), behind.options)):
        with pytest.raises(KafkaError) as failed:
            call()
        shown.append("".join(traceback.format_exception(failed.value)))
    proxy.plan.faults = {}
    for name in ("access_key_id", "secret_access_key", "account_key"):
        if name in behind.options:
            wrong = {**behind.options, name: "Y2FuYXJ5" if name == "account_key" else "canary"}
            with pytest.raises(KafkaError) as failed:
                connect(root, wrong).topics()
            shown.append("".join(traceback.format_exception(failed.value)))

    stored = [cluster.store.read(e.name) for e in cluster.store.list(deep=True)]
    stored += [cluster.store.at(t).read(f"_delta_log/{e.name}") for t in ("t",) for e in log.files.list("_delta_log")]
    text = "\n".join([*shown, caplog.text]) + str(stored)
    assert [secret for secret in SECRETS if secret in text] == []


def test_a_store_travels_without_its_options(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a machine with an environment of its own."""
    store = object_store(server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", AZURE_ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "YW5vdGhlcg==")
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")

    packed = pickle.dumps(store.at("t"))

    assert [secret for secret in SECRETS if secret.encode() in packed] == []
    assert pickle.loads(packed).uri == f"{store.uri}/t"  # noqa: S301 - made two lines above


def test_a_bucket_that_is_not_there_is_no_connection(server: ObjectServer) -> None:
    root = server.new_root().replace("//bucket/", "//no-such-bucket/")

    with pytest.raises(KafkaConnectionError, match=r"NoSuchBucket|ContainerNotFound"):
        connect(root, server.options)


def test_a_server_that_is_not_there_is_no_connection(server: ObjectServer, proxy: FaultProxy) -> None:
    proxy.plan.faults = {"reset": 1.0}

    with pytest.raises(KafkaConnectionError, match="gives no answer"):
        connect(server.new_root(), server.behind(proxy.port).options)


@pytest.mark.parametrize("server", [kind for kind in GOOGLE_TOO if kind.values != (GOOGLE,)], indirect=True)
def test_credentials_that_may_not_write_are_told_at_the_first_write(server: ObjectServer) -> None:
    """The connection stands, since they may still read. fake-gcs-server asks nobody who they are."""
    name = "secret_access_key" if server.kind == S3 else "account_key"
    store = object_store(server)
    cluster = connect(store.uri, {**server.options, name: "Y2FuYXJ5"})
    assert isinstance(cluster, Cluster)

    with pytest.raises(TopicAuthorizationFailedError, match="403"):
        cluster.store.coordination.check_writable()


@pytest.mark.usefixtures("place")
def test_a_store_that_is_sent_to_tasks_takes_its_options_along(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them: nothing of the other machine's environment is added."""
    store = object_store(server)
    store.replace("t/file", b"0123456789")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "another")
    monkeypatch.setenv("AZURE_STORAGE_SAS_KEY", "sv=another")

    sent = pickle.loads(pickle.dumps(store.tasks.sendable(store).at("t")))  # noqa: S301 - as Spark does it

    assert sent.read_range("file", 2, 5).to_pybytes() == b"234"
    assert pickle.loads(pickle.dumps(sent)).read("file") == b"0123456789"  # noqa: S301
    assert [secret for secret in SECRETS if secret in repr(sent) + repr(store.tasks.sent_options())] == []


def test_a_child_after_a_fork_is_told_so(server: ObjectServer) -> None:
    """It would wait for ever for threads that are not there."""
    cluster = connect(server.new_root(), server.options)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        told = ""
        for call in (cluster.topics, lambda: connect(server.new_root(), server.options)):
            try:
                call()
            except IllegalStateError as cause:
                told += str(cause)
        os.write(write, told.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as stream:
        told = stream.read()

    assert told.count("does not survive a fork") == 2


def test_options_without_an_object_store_are_refused(server: ObjectServer, tmp_path: Path) -> None:
    """Nothing is taken and ignored."""
    cluster = connect(server.new_root(), server.options)

    for root in (str(tmp_path), cluster):
        with pytest.raises(KafkaConfigurationError, match="storage_options are for"):
            connect(root, server.options)


# --- topics and upkeep ---------------------------------------------------------------------------


def test_a_topic_that_is_made_again_is_another_one(place: str) -> None:
    """In a folder of its own; who has the old one open is told."""
    cluster = connect(place)
    cluster.create_topic("t", 1, {})
    old = open_log(cluster)
    old.append(batch("old"))

    cluster.delete_topic("t")
    cluster.create_topic("t", 1, {})
    open_log(cluster).append(batch("new"))

    assert all_records(place) == {0: [(0, "new")]}
    with pytest.raises(KafkaError, match="deleted"):
        old.append(batch("late"))


def test_maintenance_does_the_same_there(place: str) -> None:
    """Small files are merged, old versions of keys go, files that nobody names are removed; no finding is left."""
    cluster = connect(place)
    cluster.create_topic("merged", 1, {**AT_ONCE, "retention.ms": "-1"})
    cluster.create_topic("compacted", 1, dict(EAGER))
    for number in range(8):
        open_log(cluster, "merged").append(batch(f"v{number}", at_ms=SYSTEM_CLOCK.now_ms()))
        open_log(cluster, "compacted").append(batch(f"v{number}", key=b"k", at_ms=1_000 + 10 * number))
    before = everything(open_log(cluster, "merged"))

    merged, compacted = sorted(maintain(cluster, clock=SYSTEM_CLOCK).topics, key=lambda t: t.topic, reverse=True)

    assert [t.problems for t in (merged, compacted)] == [[], []]
    assert merged.merged_segments == 8
    assert compacted.compacted_records > 0
    assert merged.vacuumed_files == 8
    assert everything(open_log(connect(place), "merged")) == before
    assert all_records(place, "compacted")[0][-1] == (7, "v7")
    assert len(open_log(cluster, "merged").files.list("partition=0")) == 1
    assert errors_of(place) == []


def test_a_table_with_many_versions_is_opened_by_its_checkpoint(place: str) -> None:
    cluster = connect(place)
    cluster.create_topic("t", 1, {})
    log = open_log(cluster)
    for number in range(205):
        log.append(batch(str(number)))
    cluster.settle()

    assert "_last_checkpoint" in {e.name for e in log.files.list("_delta_log")}
    assert all_records(place) == {0: [(n, str(n)) for n in range(205)]}


# --- a network that is not sound -----------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS)
def test_a_store_keeps_its_word_through_each_fault(server: ObjectServer, proxy: FaultProxy, fault: str) -> None:
    """A put says that it created the object, or that it did not, or that it does not know; reads are right or fail."""
    store = object_store(server.behind(proxy.port))
    store.coordination.check_writable()
    direct = object_store(server, store.uri)
    big = bytes(PART_BYTES + 1)
    proxy.plan.late_seconds = 0.1
    proxy.plan.faults = {fault: 0.3}

    said = {}
    for number in range(60):
        with contextlib.suppress(OSError):
            said[number] = store.put_if_absent(str(number), b"%d" % number)
    with contextlib.suppress(OSError), store.open_output("big") as stream:
        stream.write(big)
    read = {}
    for number in range(60):
        with contextlib.suppress(OSError):
            read[number] = store.read(str(number))
    proxy.close()

    assert proxy.done[fault] > 0
    for number, created in said.items():
        assert direct.read(str(number)) == b"%d" % number
        assert created or fault == "doubled"
    assert all(content == b"%d" % number for number, content in read.items())
    assert {int(e.name) for e in direct.list() if e.name.isdigit()} >= set(said)
    if "big" in {e.name for e in direct.list()}:
        assert direct.size("big") in {0, len(big)}


def test_appends_through_a_bad_network_are_there_once_or_told(server: ObjectServer, proxy: FaultProxy) -> None:
    """A tenth of the requests goes wrong, in every way. What was acknowledged is there once, in its place."""
    behind = server.behind(proxy.port)
    root = behind.new_root()
    cluster = connect(root, behind.options)
    cluster.create_topic("t", 1, {})
    log = open_log(cluster)
    proxy.plan.late_seconds = 0.2
    proxy.plan.faults = dict.fromkeys(FAULTS, 0.015)

    acked, refused, unknown = {}, set(), set()
    for number in range(150):
        try:
            done = log.append(batch(str(number)))
        except KafkaStorageError:
            refused.add(str(number))
        except KafkaError:
            unknown.add(str(number))
        else:
            acked[done.ranges[0][0]] = str(number)
    proxy.plan.faults = {}
    proxy.close()
    read = everything(open_log(connect(root, server.options)))[0]

    assert sum(proxy.done[fault] for fault in FAULTS) > 20
    assert [offset for offset, _ in read] == list(range(len(read)))
    assert len({value for _, value in read}) == len(read)
    assert dict(read).items() >= acked.items()
    assert {value for _, value in read}.isdisjoint(refused)
    assert {value for _, value in read} <= set(acked.values()) | unknown
    assert len(acked) > 100


def test_what_a_bad_network_breaks_is_told_as_the_storages_and_heals(server: ObjectServer, proxy: FaultProxy) -> None:
    """Never as damage: opening, reading and looking again fail with a retriable error, or work."""
    behind = server.behind(proxy.port)
    root = behind.new_root()
    cluster = connect(root, behind.options)
    cluster.create_topic("t", 1, {})
    for number in range(105):
        open_log(cluster).append(batch(str(number)))
    cluster.settle()
    proxy.plan.faults = {"reset": 0.45, "truncated": 0.45}
    told: list[KafkaError] = []

    for _ in range(6):
        try:
            assert len(everything(open_log(connect(root, behind.options)))[0]) == 105
        except KafkaError as error:
            told.append(error)
    proxy.plan.faults = {}

    assert told
    assert [e for e in told if not isinstance(e, KafkaStorageError)] == []
    assert len(everything(open_log(connect(root, behind.options)))[0]) == 105


def test_requests_end_with_the_callers_deadline(server: ObjectServer, proxy: FaultProxy) -> None:
    """A storage that needs three seconds for an answer is too slow for a change that has one, and not for others."""
    behind = server.behind(proxy.port)
    root = behind.new_root()
    connect(root, behind.options).create_topic("t", 1, {})
    cluster = connect(root, behind.options)
    assert isinstance(cluster, Cluster)
    info = cluster.topic("t")

    def change(timeout_ms: float) -> None:
        cluster.metadata.transact(lambda s: [topic_row(s.seq + 1, 1, info, "touched")], timeout_ms)

    proxy.plan.seconds = {"GET": 3.0}
    with pytest.raises(KafkaStorageError, match="timed out"):
        change(1_000)
    refused = len(connect(root, server.options).metadata.rows)
    change(60_000)

    assert refused == 1
    assert len(connect(root, server.options).metadata.rows) == 2


def test_the_store_of_such_a_cluster_is_one_of_objects(server: ObjectServer) -> None:
    cluster = connect(server.new_root(), server.options)

    assert isinstance(cluster, Cluster)
    assert isinstance(cluster.store, ObjectStorage)
