"""A cluster whose roots are buckets of several servers, or buckets and a folder: they are lost, and come back."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalike import ForgetOptions, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, forget, fork
from kafkalike.cli import main
from kafkalike.connect import connect
from kafkalike.errors import KafkaConfigurationError, UnsupportedVersionError
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.maintenance.verify.certificate_file import check_certificate
from kafkalike.maintenance.verify.replica_check import check_replicas
from kafkalike.maintenance.verify.verify import verify
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.config.server_config import ServerProperties
from kafkalike.model.config.storage_options import check_options
from kafkalike.replication.cluster.cluster_factory import open_several
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from tests.tools.away import away, back
from tests.tools.consumer import texts
from tests.tools.object_servers import StoppableS3, by_root, stoppable
from tests.tools.records import batch_now

pytestmark = [pytest.mark.objects, pytest.mark.slow]

LAG_MS = 1000


class Cluster:
    """Three buckets, each of a server of its own; or two of them and a folder, which is broker 2."""

    def __init__(self, servers: list[StoppableS3], folder: Path | None) -> None:
        self.servers = servers
        self.folder = folder
        self.options = by_root(servers)
        self.roots = [server.uri for server in servers]
        if folder is not None:
            self.roots.insert(1, str(folder))

    def open(self) -> ReplicatedCluster:
        """As another process would."""
        settings = {"replica.lag.time.max.ms": str(LAG_MS), "default.replication.factor": "3"}
        return open_several(
            self.roots, server=ServerProperties.from_properties(settings), storage_options=check_options(self.options)
        )

    def away(self, broker: int) -> None:
        """Its server is stopped, or its folder renamed."""
        if self.folder is not None and broker == 2:
            away(self.folder)
        else:
            self._server(broker).stop()

    def back(self, broker: int) -> None:
        """It is there again."""
        if self.folder is not None and broker == 2:
            back(self.folder)
        else:
            self._server(broker).start()

    def _server(self, broker: int) -> StoppableS3:
        return next(server for server in self.servers if server.uri == self.roots[broker - 1])


@pytest.fixture(params=["buckets", "mixed"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    mixed = request.param == "mixed"
    with stoppable(tmp_path / "servers", 2 if mixed else 3) as servers:
        yield Cluster(servers, tmp_path / "folder" if mixed else None)


def values(cluster: ReplicatedCluster, topic: str = "t") -> list[str]:
    return texts(cluster, topic)


def assert_sound(place: Cluster) -> None:
    cluster = place.open()
    assert not verify(cluster, ["t"]).findings
    assert not list(check_replicas(cluster))


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_clients_go_on_without_a_root_and_it_comes_back(place: Cluster, gone: int) -> None:
    cluster = place.open()
    cluster.create_topic("t", 1, {})
    with (
        KafkaProducer(bootstrap_servers=place.open()) as producer,
        KafkaConsumer("t", bootstrap_servers=place.open(), group_id="g", auto_offset_reset="earliest") as consumer,
    ):
        got: list[str] = []

        def poll(total: int) -> None:
            for _ in range(100):
                for messages in consumer.poll(timeout_ms=100).values():
                    got.extend(message.value.decode() for message in messages)
                if len(got) >= total:
                    return

        producer.send("t", b"a").get(timeout=60)
        poll(1)
        consumer.commit()

        place.away(gone)
        producer.send("t", b"b").get(timeout=60)
        poll(2)
        consumer.commit()

        # By a client that begins now: others ask a bucket that has just answered only after a moment again.
        registered = place.open().replication.replicas("t")
        assert set(registered.isr) == {1, 2, 3} - {gone}
        assert registered.offline == (gone,)
        place.back(gone)
        report = cluster.replication.replicate()
        assert not report.failed
        assert report.joined["t"] == [gone]
        producer.send("t", b"c").get(timeout=60)
        poll(3)
    assert got == ["a", "b", "c"]
    assert [sorted(cluster.replication.replicas(name).isr) for name in ("t", "__consumer_offsets")] == [[1, 2, 3]] * 2
    assert_sound(place)


def test_any_one_root_finds_the_others_and_says_whose_options_are_missing(place: Cluster) -> None:
    place.open().create_topic("t", 1, {})

    for root in place.roots:
        assert sorted(b.uri for b in connect(root, place.options).replication.brokers()) == sorted(place.roots)
    with pytest.raises(KafkaConfigurationError, match="no credentials for"):
        connect(place.roots[0], {place.roots[0]: place.options[place.roots[0]]})
    with pytest.raises(KafkaConfigurationError, match="not the URI of a root"):
        connect(place.roots, {"bucket": {"region": "x"}})


def test_buckets_of_one_name_at_several_servers_are_refused_to_hadoop_and_no_secret_is_told(place: Cluster) -> None:
    cluster = place.open()
    cluster.create_topic("t", 1, {})

    with pytest.raises(KafkaConfigurationError, match="several roots are in buckets called bucket") as refused:
        cluster.store.tasks.hadoop_settings()

    assert next(iter(place.options.values()))["secret_access_key"] not in str(refused.value)


def test_transactions_maintenance_and_deletion_leave_nothing_behind(place: Cluster) -> None:
    cluster = place.open()
    cluster.create_topic("t", 1, {})
    with KafkaProducer(bootstrap_servers=cluster, transactional_id="x") as producer:
        producer.init_transactions()
        for word in ("a", "b"):
            producer.begin_transaction()
            producer.send("t", word.encode())
            producer.commit_transaction()
        producer.begin_transaction()
        producer.send("t", b"never")
        producer.abort_transaction()
    KafkaAdminClient(bootstrap_servers=cluster).delete_records({TopicPartition("t", 0): 1})

    assert not maintain(place.open(), clock=SYSTEM_CLOCK).problems
    assert values(place.open()) == ["b"]
    assert_sound(place)
    location = cluster.topic("t").location
    cluster.delete_topic("t")
    assert not maintain(place.open(), clock=SYSTEM_CLOCK).problems
    for root in place.open().places():
        assert not root.at(location).list("_delta_log")


def test_tasks_elsewhere_read_with_what_was_sent_along(place: Cluster) -> None:
    """A store that is pickled without being asked to holds no secret."""
    cluster = place.open()
    cluster.create_topic("t", 1, {})
    cluster.log("t").append(batch_now("a"))
    files = cluster.files_of(cluster.topic("t"))
    path = next(entry.name for entry in files.list(deep=True) if entry.name.endswith(".parquet"))

    sent = pickle.loads(pickle.dumps(files.tasks.sendable(files)))  # noqa: S301
    root = pickle.loads(pickle.dumps(cluster.store.tasks.sendable(cluster.store)))  # noqa: S301

    assert sent.read(path) == files.read(path)
    assert root.at(cluster.topic("t").location).read(path) == files.read(path)
    secret = next(iter(place.options.values()))["secret_access_key"].encode()
    assert secret not in pickle.dumps(files)
    assert secret not in pickle.dumps(cluster.store)
    assert secret in pickle.dumps(cluster.store.tasks.sendable(cluster.store))


def test_two_of_three_roots_are_lost_for_good_and_what_was_acknowledged_is_there_after_recover(place: Cluster) -> None:
    cluster = place.open()
    cluster.create_topic("t", 1, {})
    cluster.log("t").append(batch_now("a"))
    place.away(1)
    cluster.log("t").append(batch_now("b"))
    place.away(2)

    left = place.open()
    recovered = left.replication.recover(place.roots[2])

    assert recovered.done
    assert recovered.lost == [1, 2]
    assert values(place.open()) == ["a", "b"]
    place.open().log("t").append(batch_now("c"))
    assert values(place.open()) == ["a", "b", "c"]


def test_the_command_line_takes_options_by_root(place: Cluster, tmp_path: Path) -> None:
    lines = [
        f"storage.options.{root.replace(':', chr(92) + ':')}.{name}={value}"
        for root, options in place.options.items()
        for name, value in options.items()
    ]
    config = tmp_path / "client.properties"
    config.write_text("\n".join(lines))

    named = ["--bootstrap-server", ",".join(place.roots), "--command-config", str(config)]
    assert main(["topics", "--create", "--topic", "t", *named]) == 0

    assert place.open().topic("t").num_partitions == 1


def test_a_topic_is_forked_and_keys_are_forgotten_at_all_roots(place: Cluster) -> None:
    """Buckets copy files by themselves, a folder links them; the fork has all of it at each root."""
    cluster = place.open()
    cluster.create_topic("t", 1, {"kafkalike.replaced.file.delay.ms": "0"})
    for value in "ab":
        made = batch_now(value)
        made.add(0, b"forget-me-0123456789", b"v", SYSTEM_CLOCK.now_ms())
        cluster.log("t").append(made)

    forked = fork("t", "new", cluster)
    report = forget("t", cluster, keys="forget-me-0123456789", dry_run=False, options=ForgetOptions(now=True))

    assert forked.files == 2
    assert values(place.open(), "new") == ["a", "v", "b", "v"]
    assert values(place.open()) == ["a", "b"]
    assert not list(check_replicas(place.open()))
    assert report.copies == ("new",)
    assert report.certificate is not None
    found = check_certificate(place.open(), report.certificate, [b"forget-me-0123456789"]).findings
    assert {f.kind for f in found} == {"file-not-gone", "key-not-gone"}
    assert all("/new~" in f.message for f in found)
    assert (
        forget("new", cluster, keys="forget-me-0123456789", dry_run=False, options=ForgetOptions(now=True)).records == 2
    )
    assert not check_certificate(place.open(), report.certificate, [b"forget-me-0123456789"]).findings


def test_a_replica_that_was_moved_away_is_emptied_and_comes_back_whole(place: Cluster) -> None:
    cluster = place.open()
    cluster.create_topic("t", 1, {"kafkalike.replaced.file.delay.ms": "0"})
    cluster.log("t").append(batch_now("a"))
    location = cluster.topic("t").location
    cluster.replication.reassign("t", [1, 2])
    assert not cluster.replication.replicate().failed

    assert maintain(place.open(), clock=SYSTEM_CLOCK).cleared_replicas == 1

    left = place.open().store.root_of(3).at(location)
    assert [entry.name for entry in left.list(deep=True)] == []
    assert left.list("_delta_log")
    cluster.replication.reassign("t", [3, 1])
    assert not cluster.replication.replicate().failed
    assert_sound(place)
    place.away(1)
    assert values(place.open()) == ["a"]


def test_client_that_was_opened_before_and_named_them_in_another_order_joins_the_cluster(place: Cluster) -> None:
    """The ids that were given count; a client of one of the roots alone is refused."""
    options = check_options(place.options)
    early = open_several(place.roots[::-1], storage_options=options)
    alone = connect(place.roots[0], place.options)
    place.open().create_topic("t", 1, {})
    place.open().log("t").append(batch_now("a"))

    early.log("t").append(batch_now("b"))

    assert [broker.uri for broker in early.replication.brokers()] == place.roots
    assert texts(place.open(), "t") == ["a", "b"]
    with pytest.raises(UnsupportedVersionError, match="several roots"):
        alone.create_topic("u", 1, {})


def test_root_within_a_cluster_is_refused_among_several(place: Cluster) -> None:
    place.open().create_topic("t", 1, {})

    with pytest.raises(KafkaConfigurationError, match="name the root of the cluster"):
        open_several([f"{root}/new" for root in place.roots], storage_options=check_options(place.options))
