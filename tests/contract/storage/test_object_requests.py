"""What a cluster in an object store costs: the requests of an append, a poll, a commit and an open, by number."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafkalike import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafkalike.admin.testing import ManualClock
from kafkalike.connect import connect
from kafkalike.delta.actions import Add, log_name
from kafkalike.delta.commit_bundles import CommitBundle
from kafkalike.delta.commit_file import CommitFile
from kafkalike.delta.log_cleaner import Helpers, LogCleaner
from kafkalike.delta.log_files import joined_name, last_checkpoint
from kafkalike.delta.table_state import end_app
from kafkalike.errors import KafkaError, LogCorruptError, TopicDeletedError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.topic.batch_payload import segment_stats
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.object_client import KINDS
from kafkalike.storage.shared_root import QUIET_SECONDS, SHORTEST_SECONDS
from tests.tools.fault_proxy import fault_proxy
from tests.tools.kinds import OBJECT_STORES
from tests.tools.object_servers import BUCKET, S3, ObjectServer
from tests.tools.records import batch, everything, open_log

Server = Callable[[str], ObjectServer]


@pytest.fixture(params=OBJECT_STORES)
def server(request: pytest.FixtureRequest, object_server: Server) -> ObjectServer:
    """A running object store."""
    return object_server(request.param)


def another(server: ObjectServer, root: str) -> Cluster:
    """The root as another process has it: other options share nothing."""
    return connect(root, {**server.options, "timeout": "19s"})


class Meter:
    """Counts a cluster's requests."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._before: Mapping[str, int] = cluster.requests

    def read(self) -> dict[str, int]:
        """Requests since the last time, by kind."""
        before, self._before = self._before, self._cluster.requests
        return {kind: count - before[kind] for kind, count in self._before.items() if count != before[kind]}


@pytest.fixture
def cluster(server: ObjectServer) -> Cluster:
    """A cluster with a topic of one partition."""
    cluster = connect(server.new_root(), server.options)
    cluster.create_topic("t", 1, {})
    return cluster


def test_a_lone_append_makes_two_puts_and_looks_three_times(cluster: Cluster) -> None:
    """At the topics, the next version and the one before; all beside the first put."""
    log = open_log(cluster)
    log.append(batch("first"))
    meter = Meter(cluster)

    for number in range(2):
        log.append(batch(str(number)))
        assert meter.read() == {"put": 2, "get": 2, "head": 1}


@pytest.mark.slow
def test_the_counts_are_those_of_the_wire(object_server: Server) -> None:
    server = object_server(S3)
    with fault_proxy(server.port) as proxy:
        behind = server.behind(proxy.port)
        cluster = connect(behind.new_root(), behind.options)
        cluster.create_topic("t", 2, {})
        log = open_log(cluster)
        log.append(batch("a", "b"))
        everything(open_log(cluster))
        log.files.list("_delta_log")
        made = cluster.requests

        assert proxy.done["PUT"] == made["put"]
        assert proxy.done["HEAD"] == made["head"]
        assert proxy.done["DELETE"] == made["delete"]
        assert proxy.done["GET"] == made["get"] + made["list"]


def test_a_produced_record_costs_what_a_lone_append_does(server: ObjectServer, cluster: Cluster) -> None:
    """The producer looks at the topics, not at the log, before it appends."""
    with KafkaProducer(bootstrap_servers=cluster.root, storage_options=server.options) as producer:
        producer.send("t", b"first").get()
        meter = Meter(cluster)
        producer.send("t", b"second").get()

        made = meter.read()
        metrics = producer.metrics() or {}
        assert metrics["object-store-metrics"]["put-total"] == cluster.requests["put"]
    assert made.pop("get") <= 3
    assert made == {"put": 2, "head": 1}


def test_a_poll_with_a_record_gets_its_commit_and_its_file(server: ObjectServer, cluster: Cluster) -> None:
    log = open_log(cluster)
    log.append(batch("first"))
    reading = another(server, cluster.root)
    with KafkaConsumer(
        "t", bootstrap_servers=reading, auto_offset_reset="earliest", group_id=None, consumer_timeout_ms=100
    ) as consumer:
        assert [r.value for r in consumer] == [b"first"]
        log.append(batch("second"))
        meter = Meter(reading)

        found = consumer.poll(timeout_ms=30_000)

        assert [r.value for r in found[TopicPartition("t", 0)]] == [b"second"]
        # And a look at the topics, where it is time for one.
        assert meter.read().items() <= {"get": 2}.items() | {"get": 3}.items() | {"get": 4}.items()


def test_idle_polls_make_gets_alone_and_no_more_than_the_pace_allows(server: ObjectServer, cluster: Cluster) -> None:
    reading = another(server, cluster.root)
    with (
        KafkaConsumer("t", bootstrap_servers=reading) as one,
        KafkaConsumer("t", bootstrap_servers=another(server, cluster.root)) as two,
    ):
        one.poll(timeout_ms=500)
        two.poll(timeout_ms=500)
        meter, begun = Meter(reading), time.monotonic()
        for _ in range(200):
            one.poll()
            two.poll()
        passed = time.monotonic() - begun

        made = meter.read()
        assert made.keys() <= {"get"}
        # Two tables, and both consumers share the looks.
        assert made.get("get", 0) <= 2 * (passed / SHORTEST_SECONDS + 1)


def test_what_this_process_appends_is_polled_without_a_look(server: ObjectServer, cluster: Cluster) -> None:
    """Also right after a look that found nothing."""
    log = open_log(cluster)
    with KafkaConsumer(
        "t", bootstrap_servers=cluster.root, storage_options=server.options, auto_offset_reset="earliest"
    ) as consumer:
        consumer.poll(timeout_ms=300)
        for number in range(3):
            log.append(batch(str(number)))
            found = consumer.poll()
            assert [r.value for r in found[TopicPartition("t", 0)]] == [str(number).encode()]


def test_a_commit_of_offsets_makes_two_puts(server: ObjectServer, cluster: Cluster) -> None:
    open_log(cluster).append(batch("v"))
    partition = TopicPartition("t", 0)
    with KafkaConsumer(bootstrap_servers=cluster.root, storage_options=server.options, group_id="g") as consumer:
        consumer.assign([partition])
        consumer.commit({partition: OffsetAndMetadata(0)})
        meter = Meter(cluster)
        consumer.commit({partition: OffsetAndMetadata(1)})

        made = meter.read()
        assert made.pop("get") <= 4
        assert made.pop("head", 0) <= 1
        assert made == {"put": 2}


# --- opening -------------------------------------------------------------------------------------


def long_log(server: ObjectServer, cluster: Cluster, commits: int, after: int) -> None:
    """Give the topic a log of many commits with a checkpoint, as so many appends would, and some commits after it."""
    assert server.folder is not None
    info = cluster.topic("t")
    root = server.folder / "data" / BUCKET / cluster.root.removeprefix(f"s3://{BUCKET}/")
    files = LocalStorage(str(root)).at(info.location)

    def commit(version: int) -> None:
        add = Add(
            path=f"partition=0/part-{version:020d}.parquet",
            partition=0,
            size=1000,
            modification_ms=1000,
            data_change=True,
            stats=segment_stats(1, (version - 1, version - 1), (1000, 1000)),
        )
        content = CommitFile(
            version=version,
            time_ms=1000,
            operation="WRITE",
            append_id=f"{version:032x}",
            adds=[add],
            txns={end_app(0): version},
            note={"time": 1000},
        ).content()
        Path(root, info.location, log_name(version)).write_bytes(content)

    for version in range(1, commits + 1):
        commit(version)
    helpers = Helpers()
    assert LogCleaner(LocalStorage(str(root)), info.location, helpers, ManualClock()).clean(info.topic_id)
    assert "_last_checkpoint" in {entry.name for entry in files.list("_delta_log")}
    for version in range(commits + 1, commits + after + 1):
        commit(version)


def appended(cluster: Cluster, times: int) -> None:
    """Append to the topic; each checkpoint and each file of joined commits is there before the next append."""
    assert isinstance(cluster, Cluster)
    log = open_log(cluster)
    for number in range(times):
        log.append(batch(str(number)))
        cluster.settle()


@pytest.mark.objects
@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 3, 51])
def test_a_log_of_ten_thousand_commits_is_opened_with_eight_requests(object_server: Server, after: int) -> None:
    """A look at the topics, the name of the last checkpoint, a list, the checkpoint, joined commits, and at most three
    by themselves."""
    server = object_server(S3)
    first = connect(server.new_root(), server.options)
    first.create_topic("t", 1, {})
    long_log(server, first, 10_000, 0)
    appended(first, after)
    opened = another(server, first.root)
    opened.topics()
    meter = Meter(opened)

    log = opened.log("t")

    made = meter.read()
    assert log.log_end(0) == 10_000 + after
    assert sum(made.values()) <= 8
    assert made["list"] == 1


def test_every_fourth_commit_of_a_lone_writer_costs_one_put_more(cluster: Cluster) -> None:
    """And no other request."""
    assert isinstance(cluster, Cluster)
    log = open_log(cluster)
    for number in range(10):
        log.append(batch(str(number)))
    cluster.settle()
    meter = Meter(cluster)

    for number in range(12):
        log.append(batch(str(number)))
        cluster.settle()

    made = meter.read()
    assert made == {"put": 27, "get": 24, "head": 12}


def test_joined_commits_are_read_for_each_others_commits(server: ObjectServer, cluster: Cluster) -> None:
    """What the storage calls a content is the same in the answer to its put and in a list."""
    appended(cluster, 11)
    appended(another(server, cluster.root), 12)
    opened = connect(cluster.root, {**server.options, "timeout": "18s"})
    opened.topics()
    meter = Meter(opened)

    log = opened.log("t")

    assert meter.read() == {"get": 6, "list": 1}
    assert [value for _, value in everything(log)[0]] == [*map(str, range(11)), *map(str, range(12))]


def test_joined_commits_that_a_stopped_writer_puts_late_are_not_believed(
    server: ObjectServer, cluster: Cluster
) -> None:
    """Somebody has rewritten a commit meanwhile, at the same length."""
    appended(cluster, 12)
    log = open_log(cluster)
    late = log.files.read(joined_name(0))
    content = log.files.read(log_name(5))
    log.files.replace(log_name(5), content[:-9] + b"x" * 9)
    log.files.replace(joined_name(0), late)

    with pytest.raises(LogCorruptError, match=r"00005\.json is damaged"):
        open_log(another(server, cluster.root))


def test_deltalake_reads_tables_with_joined_commits(server: ObjectServer, cluster: Cluster) -> None:
    """Whatever those say."""
    appended(cluster, 9)
    log = open_log(cluster)
    wrong = CommitBundle(table_id=log.info.topic_id, first=0, contents=[b"{}"] * 9, tags=[""] * 9)
    log.files.replace(joined_name(0), wrong.packed())
    table = DeltaTable(log.files.uri, storage_options=server.options)

    assert table.version() == 9
    assert table.to_pyarrow_table().num_rows == 9


@pytest.mark.objects
@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 3, 50])
def test_a_new_process_has_a_record_of_a_long_log_after_eleven_requests(object_server: Server, after: int) -> None:
    """Ten to open it. It knows nothing, not even the topics. Nothing was written for a while."""
    server = object_server(S3)
    first = connect(server.new_root(), server.options)
    for number in range(12):
        first.create_topic(f"other{number}", 1, {})
    first.create_topic("t", 1, {})
    long_log(server, first, 10_000, 0)
    appended(first, after + 1)
    # Somebody who waits does not look again at what was quiet, and was listed a moment ago.
    SYSTEM_CLOCK.sleep(QUIET_SECONDS)
    options = {**server.options, "timeout": "19s"}
    with KafkaConsumer(bootstrap_servers=first.root, storage_options=options, group_id=None) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek(TopicPartition("t", 0), 10_000 + after)

        found = consumer.poll(timeout_ms=30_000)

        assert [record.value for record in found[TopicPartition("t", 0)]] == [str(after).encode()]
        metrics = (consumer.metrics() or {})["object-store-metrics"]
        asked = {kind: metrics[f"{kind}-total"] for kind in KINDS}
    assert sum(asked.values()) <= 10 + 1
    assert asked["list"] == 2


@pytest.mark.objects
@pytest.mark.slow
@pytest.mark.parametrize("after", [3, 49])
def test_a_new_producer_has_a_long_log_open_after_ten_requests(object_server: Server, after: int) -> None:
    """One more tries the storage, which somebody has done in whole a while ago, and one looks for `server.properties`.

    Then comes a lone append, which lists what waits, as it cannot know yet that nobody else writes.
    """
    server = object_server(S3)
    first = connect(server.new_root(), server.options)
    for number in range(12):
        first.create_topic(f"other{number}", 1, {})
    first.create_topic("t", 1, {})
    long_log(server, first, 10_000, 0)
    appended(first, after + 1)
    # To one who sees commits of a moment ago his own append is not a lone one.
    SYSTEM_CLOCK.sleep(QUIET_SECONDS)
    options = {**server.options, "timeout": f"{17 + after}s"}
    with KafkaProducer(bootstrap_servers=first.root, storage_options=options) as producer:
        assert producer.send("t", b"v").get().offset == 10_000 + after + 1

        metrics = (producer.metrics() or {})["object-store-metrics"]
        asked = {kind: metrics[f"{kind}-total"] for kind in KINDS}
    # The append looks at the topics twice, as its first plan is made beside the look.
    append = {"put": 2, "get": 3, "head": 2, "list": 1}
    assert sum(asked.values()) - sum(append.values()) <= 10 + 2
    assert asked["delete"] == 0


@pytest.mark.objects
@pytest.mark.slow
def test_after_maintenance_a_topic_is_opened_with_ten_requests_whatever_its_log(object_server: Server) -> None:
    """A quiet table has no commits above its checkpoint, however few there were."""
    server = object_server(S3)
    first = connect(server.new_root(), server.options)
    first.create_topic("t", 1, {})
    long_log(server, first, 10_000, 60)
    log = first.log("t")
    assert isinstance(log, TopicLog)
    assert log.clean_log()
    opened = another(server, first.root)
    meter = Meter(opened)

    assert opened.log("t").log_end(0) == 10_060

    assert sum(meter.read().values()) <= 10


@pytest.mark.objects
@pytest.mark.slow
def test_a_table_of_very_many_files_gets_a_checkpoint_each_hundred_commits(object_server: Server) -> None:
    """On a disk, where commits cost no requests, it would come after a tenth as many commits as there are files."""
    server = object_server(S3)
    cluster = connect(server.new_root(), server.options)
    cluster.create_topic("t", 1, {})
    long_log(server, cluster, 2000, 99)
    log = open_log(cluster)

    log.append(batch("the 2,100th"))
    assert isinstance(cluster, Cluster)
    cluster.settle()

    assert last_checkpoint(log.files) == 2100


# --- guarantees ----------------------------------------------------------------------------------


def test_an_append_to_a_topic_that_another_process_deleted_is_refused(server: ObjectServer, cluster: Cluster) -> None:
    """However short ago this one has looked."""
    log = open_log(cluster)
    log.append(batch("v"))

    another(server, cluster.root).delete_topic("t")

    with pytest.raises(TopicDeletedError):
        log.append(batch("late"))


def test_settings_that_another_process_changed_hold_for_the_next_append(server: ObjectServer, cluster: Cluster) -> None:
    """Both ways: what was planned by the old ones is neither written nor refused."""
    log = open_log(cluster)
    log.append(batch("v"))
    other = another(server, cluster.root)

    other.set_configs("t", {"max.message.bytes": "100"})
    with pytest.raises(KafkaError, match=r"max\.message\.bytes|larger"):
        log.append(batch("v" * 200))
    other.set_configs("t", {})
    log.append(batch("w" * 200))

    assert [value for _, value in everything(open_log(cluster))[0]] == ["v", "w" * 200]


def test_an_append_planned_beside_the_look_is_planned_anew_after_others(server: ObjectServer, cluster: Cluster) -> None:
    """Offsets go on where another process has ended; the file of the first plan goes."""
    assert isinstance(cluster, Cluster)
    log, other = open_log(cluster), open_log(another(server, cluster.root))
    for number in range(3):
        log.append(batch(f"a{number}"))
        other.append(batch(f"b{number}"))

    read = everything(open_log(another(server, cluster.root)))[0]
    assert read == list(enumerate(["a0", "b0", "a1", "b1", "a2", "b2"]))
    assert len(log.files.list("partition=0")) == 6


def test_no_acknowledged_record_is_lost_where_a_log_was_cleaned_up_past_a_writer(
    server: ObjectServer, cluster: Cluster
) -> None:
    """The writer knows a version that is gone, and those above it."""
    log = open_log(cluster)
    log.append(batch("0"))
    other = another(server, cluster.root)
    fast = open_log(other)
    for number in range(1, 101):
        fast.append(batch(str(number)))
    assert isinstance(other, Cluster)
    other.settle()
    for version in range(100):
        fast.files.remove(log_name(version))

    log.append(batch("late"))

    assert [value for _, value in everything(open_log(another(server, cluster.root)))[0]] == [
        *map(str, range(101)),
        "late",
    ]


def test_the_end_of_a_log_is_asked_for_however_short_ago_somebody_looked(
    server: ObjectServer, cluster: Cluster
) -> None:
    """A seek to it, and the question for it: what another process has acknowledged is before it."""
    log = open_log(cluster)
    log.append(batch("before"))
    partition = TopicPartition("t", 0)
    with KafkaConsumer(bootstrap_servers=another(server, cluster.root)) as consumer:
        consumer.assign([partition])
        consumer.poll(timeout_ms=500)
        for number in range(3):
            consumer.poll()
            log.append(batch(str(number)))
            consumer.seek_to_end(partition)
            assert consumer.position(partition) == number + 2
            assert consumer.end_offsets([partition]) == {partition: number + 2}


def test_many_small_files_are_fetched_side_by_side_and_once(server: ObjectServer, cluster: Cluster) -> None:
    """A reader that is behind waits for one request in sixteen."""
    log = open_log(cluster)
    for number in range(40):
        log.append(batch(str(number)))
    reading = open_log(another(server, cluster.root))
    meter = Meter(another(server, cluster.root))

    assert everything(reading)[0] == [(n, str(n)) for n in range(40)]
    assert meter.read()["get"] in range(40, 44)
