"""Cluster-wide defaults are kept in the cluster's metadata: a root that is lost takes none of them along."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from kafkalike import KafkaProducer
from kafkalike.admin import KafkaAdminClient
from kafkalike.admin.testing import ManualClock
from kafkalike.connect import connect
from kafkalike.delta.control_log import ControlLog
from kafkalike.errors import (
    IllegalArgumentError,
    InvalidConfigurationError,
    KafkaStorageError,
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.brokers import DEFAULTS
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.structs import AlterConfigOp, ConfigResource, ConfigResourceType
from kafkalike.replication.cluster.cluster_factory import open_several
from tests.contract.conftest import Opener
from tests.tools.cli import call
from tests.tools.clusters import object_store
from tests.tools.kinds import OBJECT_STORES, only_in_memory
from tests.tools.object_servers import S3, ObjectServer
from tests.tools.records import all_records, batch

YEAR_SECONDS = 366 * 86_400


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """Three folders; the first one has a file of server defaults."""
    folders = [tmp_path / name for name in ("1", "2", "3")]
    folders[0].mkdir()
    (folders[0] / "server.properties").write_text(
        "log.retention.ms=-1\nmin.insync.replicas=2\nauto.create.topics.enable=false\nreplica.lag.time.max.ms=1\n"
    )
    return folders


@pytest.mark.slow
def test_defaults_outlive_the_root_whose_file_named_them(roots: list[Path]) -> None:
    named = list(map(str, roots))
    cluster = connect(named)
    cluster.create_topic("t", 1, {}, replication_factor=3)
    cluster.log("t").append(batch((0, "v0"), (0, "v1")))
    shutil.rmtree(roots[0])

    left = connect(named)
    report = maintain(left, clock=ManualClock(SYSTEM_CLOCK.now_ms() / 1000 + YEAR_SECONDS))

    assert (report.problems, report.topics[0].deleted_records) == ([], 0)
    assert all_records(",".join(named))[0] == [(0, "v0"), (1, "v1")]
    with pytest.raises(UnknownTopicOrPartitionError, match=r"auto\.create\.topics\.enable=false"):
        left.ensure_topic("another")
    left.create_topic("alone", 1, {}, replication_factor=1)
    with pytest.raises(NotEnoughReplicasError):
        left.log("alone").append(batch((0, "v2")))


@pytest.mark.slow
def test_a_file_that_comes_after_the_founding_seeds_and_its_root_may_go(roots: list[Path]) -> None:
    """A client that connects to write records what it finds."""
    named = list(map(str, roots))
    file, away = roots[0] / "server.properties", roots[0].parent / "away"
    file.rename(away)
    connect(named).create_topic("t", 1, {}, replication_factor=3)
    connect(named).log("t").append(batch((0, "v0")))
    away.rename(file)
    with KafkaProducer(bootstrap_servers=named) as producer:
        producer.send("t", b"v1").get(60)
    shutil.rmtree(roots[0])

    report = maintain(connect(named), clock=ManualClock(SYSTEM_CLOCK.now_ms() / 1000 + YEAR_SECONDS))

    assert (report.problems, report.topics[0].deleted_records) == ([], 0)


@pytest.mark.slow
def test_nothing_is_deleted_by_defaults_that_nobody_recorded_while_a_root_is_away(roots: list[Path]) -> None:
    """As in clusters of earlier releases, whose metadata say nothing of defaults."""
    named = list(map(str, roots))
    cluster = connect(named)
    cluster.create_topic("t", 1, {}, replication_factor=3)
    cluster.log("t").append(batch((0, "v0")))
    forget_defaults(cluster)
    away = roots[0].rename(roots[0].with_name("away"))
    later = ManualClock(SYSTEM_CLOCK.now_ms() / 1000 + YEAR_SECONDS)

    with pytest.raises(KafkaStorageError, match=r"may be in a server\.properties of .*/1, which does not answer"):
        maintain(connect(named), clock=later)
    with pytest.raises(KafkaStorageError, match="not recorded yet"):
        # The 30 seconds for which a client retries a silent root pass on this clock.
        open_several(named, clock=later).log("t").append(batch((0, "v1")))

    away.rename(roots[0])
    assert maintain(connect(named), clock=later).topics[0].deleted_records == 0
    assert connect(named).metadata.refresh().defaults is not None
    roots[0].rename(away)
    assert maintain(connect(named), clock=later).topics[0].deleted_records == 0


@pytest.mark.slow
def test_a_file_equal_to_changed_defaults_goes_with_the_file_that_seeded_them(roots: list[Path]) -> None:
    """Each is judged by what the cluster says, not by the other."""
    named = list(map(str, roots))
    cluster = connect(named)
    cluster.create_topic("t", 1, {}, replication_factor=3)
    set_ = ("configs", "--broker-defaults", "--alter", "--add-config")
    call(cluster, *set_, "log.retention.ms=1000")
    (roots[1] / "server.properties").write_text("log.retention.ms=1000\n")

    assert connect(named).server.effective({})["retention.ms"] == "1000"

    (roots[1] / "server.properties").write_text("log.retention.ms=5\n")
    with pytest.raises(InvalidConfigurationError, match=r"/2/server\.properties differs from the defaults"):
        maintain(connect(named), clock=SYSTEM_CLOCK)
    assert call(connect(named), *set_, "log.retention.ms=5").err == ""
    assert connect(named).server.effective({})["retention.ms"] == "5"


@pytest.mark.slow
def test_an_operator_may_set_defaults_that_cannot_be_found_any_more(roots: list[Path]) -> None:
    named = list(map(str, roots))
    connect(named).create_topic("t", 1, {}, replication_factor=3)
    forget_defaults(connect(named, access="read"))
    shutil.rmtree(roots[0])
    cluster = connect(named)

    set_ = ("configs", "--broker-defaults", "--alter", "--add-config", "log.retention.ms=-1")
    done = call(cluster, *set_)

    assert (done.code, done.err) == (0, "")
    assert cluster.server.effective({})["retention.ms"] == "-1"


def forget_defaults(cluster: Cluster) -> None:
    """Leave metadata as they are of a cluster of an earlier release: without any row of defaults."""
    assert isinstance(cluster, Cluster)
    cluster.defaults.record()
    cluster.metadata.compact(lambda rows: [row for row in rows if row.kind != DEFAULTS])
    assert connect(cluster.root, access="read").metadata.refresh().defaults is None


# --- files --------------------------------------------------------------------------------------


def write_file(root: Path, *lines: str) -> Path:
    root.mkdir(exist_ok=True)
    file = root / "server.properties"
    file.write_text("\n".join(lines))
    return file


@pytest.fixture(params=["one root", "three roots"])
def folders(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    """The roots of a cluster that does not exist yet."""
    return [tmp_path / name for name in ("1", "2", "3")[: 1 if request.param == "one root" else 3]]


def test_a_file_seeds_once_and_may_go(folders: list[Path]) -> None:
    file = write_file(folders[-1], "log.retention.hours=2")
    named = list(map(str, folders))
    connect(named).create_topic("t", 1, {})
    admin = KafkaAdminClient(bootstrap_servers=connect(named))
    assert defaults_of(admin) == {"log.retention.hours": ("2", "STATIC_BROKER_CONFIG")}

    admin.alter_configs([ConfigResource("BROKER", "", {"log.retention.hours": 3})])
    assert connect(named).server.effective({})["retention.ms"] == "10800000"  # the file is that of the seed
    file.unlink()
    assert connect(named).server.effective({})["retention.ms"] == "10800000"
    admin.reset_configs([ConfigResource("BROKER", "")])
    file.write_text("log.retention.hours=2")
    assert connect(named).server.effective({})["retention.ms"] == "604800000"


@pytest.mark.slow
@pytest.mark.parametrize("by", ["root", "environment"])
def test_a_file_that_differs_is_refused_by_name_until_it_does_not(
    folders: list[Path], by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = list(map(str, folders))
    connect(named).create_topic("t", 1, {})
    KafkaAdminClient(bootstrap_servers=named).alter_configs([ConfigResource("BROKER", "", {"log.retention.ms": 5})])
    connect(named).log("t").append(batch((0, "v0")))
    other = write_file(
        folders[-1] if by == "root" else tmp_path / "elsewhere", "log.retention.ms=6", "num.partitions=1"
    )
    if by == "environment":
        monkeypatch.setenv("KAFKALIKE_SERVER_PROPERTIES", str(other))

    words = rf"{other} differs from the defaults of the cluster at .*: log\.retention\.ms=6 \(cluster: 5\)"
    with pytest.raises(InvalidConfigurationError, match=words):
        maintain(connect(named), clock=SYSTEM_CLOCK)
    with pytest.raises(InvalidConfigurationError, match=words):
        connect(named).log("t").append(batch((0, "v1")))
    with pytest.raises(InvalidConfigurationError, match=words):
        connect(named).create_topic("another", -1, {})

    cluster = connect(named)
    shown = call(cluster, "configs", "--broker-defaults", "--describe")
    taken = call(cluster, "configs", "--broker-defaults", "--alter", "--add-config", "log.retention.ms=6")
    assert ("log.retention.ms=5" in shown.out, taken.code) == (True, 0)
    connect(named).log("t").append(batch((0, "v1")))


@pytest.mark.parametrize("content", ["log.retention.hours=1", "log.retention.ms=-1"], ids=["hours", "ms"])
def test_files_of_two_roots_that_differ_found_nothing(roots: list[Path], content: str) -> None:
    (roots[0] / "server.properties").write_text("log.retention.ms=5")
    write_file(roots[2], content)
    named = list(map(str, roots))

    with pytest.raises(InvalidConfigurationError, match=r"1/server\.properties and .*3/server\.properties differ"):
        connect(named).create_topic("t", 1, {})

    (roots[2] / "server.properties").write_text("log.retention.ms=5")
    connect(named).create_topic("t", 1, {})
    assert connect(named).server.effective({})["retention.ms"] == "5"


@pytest.mark.parametrize("kind", ["link to nothing", "folder", "no permission"])
def test_a_file_that_is_there_and_cannot_be_read_never_counts_as_missing(
    folders: list[Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders[0].mkdir()
    file = folders[0] / "server.properties"
    if kind == "link to nothing":
        file.symlink_to("/nowhere/server.properties")
    elif kind == "folder":
        file.mkdir()
    else:
        file.write_text("log.retention.ms=-1")
        forbid(file, monkeypatch)
    named = list(map(str, folders))

    with pytest.raises(InvalidConfigurationError, match=r"1/server\.properties' cannot be read"):
        connect(named).create_topic("t", 1, {})


def forbid(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the permission to read; whoever runs as root has all of them."""
    real = Path.read_bytes

    def read_bytes(self: Path) -> bytes:
        if self == file:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return real(self)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)


@pytest.mark.slow
def test_a_root_that_is_added_takes_the_defaults_along(tmp_path: Path) -> None:
    """The file of the only root is recorded before there are others."""
    write_file(tmp_path / "1", "log.retention.ms=-1")
    one = connect(str(tmp_path / "1"))
    one.create_topic("t", 1, {})
    one.replication.add_broker(str(tmp_path / "2"))
    (tmp_path / "1" / "server.properties").unlink()

    assert connect(f"{tmp_path}/1,{tmp_path}/2").server.effective({})["retention.ms"] == "-1"


@pytest.mark.slow
def test_a_file_that_comes_with_an_added_root_is_refused_if_it_differs(roots: list[Path], tmp_path: Path) -> None:
    named = [*map(str, roots), str(tmp_path / "4")]
    connect(named[:3]).create_topic("t", 1, {})
    file = write_file(tmp_path / "4", "log.retention.ms=6")
    connect(named[:3]).replication.add_broker(named[3])

    with pytest.raises(InvalidConfigurationError, match=str(file)):
        connect(named).create_topic("another", 1, {})
    file.unlink()
    connect(named).create_topic("another", 1, {})


def test_of_two_that_found_a_cluster_with_different_files_one_is_refused(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were opened before there was a cluster, and have read their files."""
    named, found = list(map(str, folders)), list[Cluster]()
    files = [write_file(tmp_path / f"of{number}", f"num.partitions={number}") for number in (2, 3)]
    for number, file in enumerate(files, start=2):
        monkeypatch.setenv("KAFKALIKE_SERVER_PROPERTIES", str(file))
        found.append(connect(named))
        assert found[-1].server.num_partitions == number

    monkeypatch.setenv("KAFKALIKE_SERVER_PROPERTIES", str(files[0]))
    found[0].ensure_topic("t")

    with pytest.raises(InvalidConfigurationError, match=r"num\.partitions=3 \(cluster: 2\)"):
        found[1].ensure_topic("another")
    assert found[1].topic("t").num_partitions == 2
    assert list(found[0].topics()) == ["t"]


def test_a_client_that_was_interrupted_while_it_records_records_at_its_next_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_file(tmp_path / "c", "num.partitions=3")
    cluster = connect(str(tmp_path / "c"))

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ControlLog, "_transact_alone", interrupt)
        with pytest.raises(KeyboardInterrupt):
            cluster.create_topic("t", -1, {})
    cluster.create_topic("t", -1, {})

    assert cluster.topic("t").num_partitions == 3
    assert defaults_of(KafkaAdminClient(bootstrap_servers=cluster)) == {"num.partitions": ("3", "STATIC_BROKER_CONFIG")}


def test_no_folder_is_made_by_a_client_that_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_file(tmp_path / "elsewhere", "num.partitions=3")
    monkeypatch.setenv("KAFKALIKE_SERVER_PROPERTIES", str(file))

    assert connect(str(tmp_path / "c")).server.num_partitions == 3
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("kind", OBJECT_STORES)
def test_a_file_in_an_object_store_seeds_and_is_refused_if_it_differs(
    kind: str, object_server: Callable[[str], ObjectServer]
) -> None:
    server = object_server(kind)
    store = object_store(server)
    store.put_if_absent("server.properties", b"log.retention.ms=-1\nnum.partitions=2")
    connect(store.uri, server.options).ensure_topic("t")
    assert connect(store.uri, server.options).topic("t").num_partitions == 2
    store.remove("server.properties")
    other = connect(store.uri, {**server.options, "timeout": "19s"})
    assert other.server.effective({})["retention.ms"] == "-1"
    store.put_if_absent("server.properties", b"log.retention.ms=5")

    with pytest.raises(InvalidConfigurationError, match=r"server\.properties differs from the defaults"):
        maintain(connect(store.uri, {**server.options, "timeout": "18s"}), clock=SYSTEM_CLOCK)


@pytest.mark.parametrize("kind", [pytest.param(S3, marks=[pytest.mark.objects, pytest.mark.slow])])
def test_a_bucket_that_had_the_file_may_go(
    kind: str, object_server: Callable[[str], ObjectServer], tmp_path: Path
) -> None:
    """Of a bucket and two folders; a bucket's rack is in its file, too."""
    server = object_server(kind)
    store = object_store(server)
    store.put_if_absent("server.properties", b"log.retention.ms=-1\nbroker.rack=far")
    for name in ("2", "3"):
        write_file(tmp_path / name, "broker.rack=near")
    roots = [store.uri, str(tmp_path / "2"), str(tmp_path / "3")]
    cluster = connect(roots, server.options)
    cluster.create_topic("t", 1, {}, replication_factor=3)
    assert [broker.rack for broker in cluster.replication.brokers()] == ["far", "near", "near"]
    store.remove("server.properties")

    assert connect(roots, {**server.options, "timeout": "19s"}).server.effective({})["retention.ms"] == "-1"


# --- any kind of cluster -----------------------------------------------------------------------


def defaults_of(admin: KafkaAdminClient) -> dict[str, tuple[str, str]]:
    """The cluster-wide defaults that are set: value and source."""
    described = admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, "")])["broker"][""]
    return {
        name: (entry["value"], entry["config_source"])
        for name, entry in described.items()
        if name not in {"default.replication.factor", "replica.lag.time.max.ms"}
    }


def test_defaults_are_altered_described_and_reset(open_log_cluster: Opener) -> None:
    cluster = open_log_cluster()
    admin = KafkaAdminClient(bootstrap_servers=cluster)
    whole = ConfigResource(
        "BROKER", "", {"log.retention.ms": 5, "log.cleanup.policy": (AlterConfigOp.APPEND, "compact")}
    )
    cluster.create_topic("t", 1, {})

    assert admin.alter_configs([whole], validate_only=True) == {"broker": {"": "OK"}}
    assert defaults_of(admin) == {}
    assert admin.alter_configs([whole]) == {"broker": {"": "OK"}}

    other = KafkaAdminClient(bootstrap_servers=open_log_cluster(elsewhere=True))
    assert defaults_of(other) == {
        "log.retention.ms": ("5", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        "log.cleanup.policy": ("delete,compact", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
    }
    of_topic = other.describe_configs([ConfigResource("TOPIC", "t")], include_synonyms=True, config_filter="all")
    assert of_topic["topic"]["t"]["retention.ms"]["value"] == "5"
    assert of_topic["topic"]["t"]["retention.ms"]["synonyms"] == [
        {"name": "log.retention.ms", "value": "5", "source": "DYNAMIC_DEFAULT_BROKER_CONFIG"},
        {"name": "log.retention.ms", "value": "604800000", "source": "DEFAULT_CONFIG"},
    ]
    other.reset_configs([ConfigResource("BROKER", "", ["log.retention.ms", "log.cleanup.policy"])])
    assert defaults_of(admin) == {}


def test_open_clients_follow_a_changed_default_at_their_next_look(open_log_cluster: Opener) -> None:
    cluster = open_log_cluster()
    cluster.create_topic("t", 1, {})
    log = cluster.log("t")
    log.append(batch((0, "v0")))
    admin = KafkaAdminClient(bootstrap_servers=open_log_cluster(elsewhere=True))

    admin.alter_configs([ConfigResource("BROKER", "", {"message.max.bytes": 10, "auto.create.topics.enable": "false"})])

    log.refresh()
    with pytest.raises(MessageSizeTooLargeError):
        log.append(batch((0, "a value of more than ten bytes")))
    with pytest.raises(UnknownTopicOrPartitionError, match=r"auto\.create\.topics\.enable=false"):
        cluster.ensure_topic("another")


def test_open_client_creates_a_topic_by_the_defaults_of_the_moment(open_log_cluster: Opener) -> None:
    """Nobody has told it that they changed: it looks before it decides."""
    cluster = open_log_cluster()
    cluster.create_topic("t", 1, {})
    admin = KafkaAdminClient(bootstrap_servers=open_log_cluster(elsewhere=True))

    admin.alter_configs([ConfigResource("BROKER", "", {"num.partitions": 4})])

    assert cluster.create_topic("another", -1, {}).num_partitions == 4


@only_in_memory("open_log_cluster")
@pytest.mark.parametrize(
    ("configs", "message"),
    [
        pytest.param({"log.retention.ms": "soon"}, "whole number", id="value"),
        pytest.param({"broker.rack": "a"}, "applies to one root", id="setting of one root"),
        pytest.param({"controller.quorum.voters": "1"}, "applies to one root", id="setting of the founding"),
    ],
)
def test_a_default_that_cannot_be_is_refused(log_cluster: Cluster, configs: dict[str, str], message: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=log_cluster)
    with pytest.raises(InvalidConfigurationError, match=message):
        admin.alter_configs([ConfigResource("BROKER", "", configs)], raise_errors=True)
    with pytest.raises(IllegalArgumentError, match=r"did you mean 'log\.retention\.ms'"):
        admin.alter_configs([ConfigResource("BROKER", "", {"log.retention.m": 1})])

    assert defaults_of(admin) == {}


def test_the_command_changes_and_shows_defaults(log_cluster: Cluster) -> None:
    of_cluster = ("--entity-type", "brokers", "--entity-default")
    log_cluster.create_topic("first", 1, {})
    added = call(log_cluster, "configs", *of_cluster, "--alter", "--add-config", "log.retention.ms=-1,num.partitions=3")
    shown = call(log_cluster, "configs", *of_cluster, "--describe")
    log_cluster.create_topic("t", -1, {})
    deleted = call(log_cluster, "configs", *of_cluster, "--alter", "--delete-config", "log.retention.ms")
    again = call(log_cluster, "configs", "--broker-defaults", "--alter", "--delete-config", "log.retention.ms")

    assert (added.out, added.err) == ("Completed updating default config for brokers in the cluster.\n", "")
    assert shown.out.splitlines()[0] == "Default configs for brokers in the cluster are:"
    assert (
        "  log.retention.ms=-1 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=-1, "
        "DEFAULT_CONFIG:log.retention.ms=604800000}\n"
    ) in shown.out
    assert log_cluster.topic("t").num_partitions == 3
    assert deleted.code == 0
    assert (again.code, again.err) == (1, "Error: Invalid config(s): log.retention.ms\n")


def test_maintenance_runs_by_the_defaults(log_cluster: Cluster) -> None:
    log_cluster.create_topic("t", 1, {})
    log_cluster.log("t").append(batch((0, "v0")))
    admin = KafkaAdminClient(bootstrap_servers=log_cluster)
    later = ManualClock(SYSTEM_CLOCK.now_ms() / 1000 + YEAR_SECONDS)

    admin.alter_configs([ConfigResource("BROKER", "", {"log.retention.ms": -1})])
    kept = maintain(log_cluster, clock=later, works=["retention"])
    admin.alter_configs([ConfigResource("BROKER", "", {"log.retention.ms": 1})])
    gone = maintain(log_cluster, clock=later, works=["retention"])

    assert (kept.topics[0].deleted_records, gone.topics[0].deleted_records) == (0, 1)
