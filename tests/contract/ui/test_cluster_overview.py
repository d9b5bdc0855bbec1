"""The overview: figures of topics and groups, faults of the cluster, and what one look costs."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalike.admin import KafkaAdminClient
from kafkalike.admin.cluster_mirror import Mirror
from kafkalike.admin.testing import ManualClock, MemoryCluster
from kafkalike.connect import connect
from kafkalike.errors import KafkaConfigurationError, KafkaStorageError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.ui.cluster_overview import NOW_MS, LagThresholds, Overview, OverviewSampler, rest_seconds
from kafkalike.ui.console_server import ConsoleServer
from tests.tools.records import batch

PATIENCE = 60.0


@pytest.fixture
def clock() -> ManualClock:
    """A clock to set."""
    return ManualClock(1_000_000)


@pytest.fixture
def cluster(clock: ManualClock) -> Cluster:
    """A cluster with two topics, one of which has records."""
    made = MemoryCluster(clock=clock)
    for name in ("orders", "quiet"):
        made.create_topic(name, 2, {})
    write(made, "orders", 30)
    return made


@pytest.fixture
def sampler(cluster: Cluster, clock: ManualClock) -> Iterator[OverviewSampler]:
    """A sampler of the cluster."""
    with KafkaAdminClient(bootstrap_servers=cluster, clock=clock) as admin:
        made = OverviewSampler(cluster, admin, clock)
        yield made
        made.stop()


def write(cluster: Cluster, topic: str, count: int) -> None:
    """Append records of now to partition 0, in one commit."""
    cluster.log(topic).append(batch(*["value"] * count, at_ms=cluster.clock.now_ms() - 5000))


def look(sampler: OverviewSampler) -> Overview:
    """Another look, however new the last one is."""
    sampler.expire()
    return sampler.newest(PATIENCE)


def test_topics_have_sizes_and_rates(sampler: OverviewSampler, cluster: Cluster, clock: ManualClock) -> None:
    """The rate is of the last minutes, by commit times; a topic without records was never written."""
    first = look(sampler).topics["orders"]
    clock.seconds += NOW_MS / 1000 + 60
    write(cluster, "orders", 60)
    second = look(sampler).topics

    assert (first.records, first.partitions, first.segments, first.written_ms) == (30, 2, 1, 1_000_000_000)
    assert first.records_per_second == 30 / (NOW_MS / 1000)
    assert second["orders"].records == 90
    assert second["orders"].records_per_second == 60 / (NOW_MS / 1000)
    assert second["orders"].size_bytes > first.size_bytes > 0
    assert (second["quiet"].records, second["quiet"].written_ms, second["quiet"].newest_ms) == (0, None, None)


def test_groups_wait_since_their_oldest_unread_record(
    sampler: OverviewSampler, cluster: Cluster, clock: ManualClock
) -> None:
    """That is what thresholds are about."""
    with KafkaAdminClient(bootstrap_servers=cluster, clock=clock) as admin:
        admin.alter_group_offsets("late", {TopicPartition("orders", 0): OffsetAndMetadata(10)})
        admin.alter_group_offsets("done", {TopicPartition("orders", 0): OffsetAndMetadata(30)})
    clock.seconds += 95

    groups = look(sampler).groups

    assert (groups["late"].lag.records, groups["late"].waiting_ms) == (20, 100_000)
    assert (groups["done"].lag.records, groups["done"].waiting_ms) == (0, 0)
    assert groups["late"].topics == ["orders"]
    levels = [LagThresholds().level(one) for one in (0, 59_999, 60_000, 599_999, 600_000)]
    assert levels == ["ok", "ok", "warn", "warn", "bad"]


def test_offsets_above_the_log_end_are_a_fault(sampler: OverviewSampler, cluster: Cluster) -> None:
    """The log has lost records that the group has read."""
    with KafkaAdminClient(bootstrap_servers=cluster) as admin:
        admin.alter_group_offsets("g", {TopicPartition("orders", 0): OffsetAndMetadata(99)})

    found = look(sampler)

    assert found.groups["g"].beyond
    assert LagThresholds().of(found.groups["g"]) == "bad"
    assert [problem.what for problem in found.problems] == [
        "Group g has committed offsets above the log end: the log has lost records."
    ]


def test_files_that_left_the_table_are_stale(tmp_path: Path) -> None:
    """As after a merge, until maintenance removes them."""
    made = connect(str(tmp_path / "root"))
    made.create_topic("t", 1, {})
    write(made, "t", 3)
    folder = next((tmp_path / "root").glob("t*/partition=0"))
    stale = folder / "part-00000000000000000000-left.parquet"
    stale.write_bytes(b"x" * 500)
    new = folder / "part-00000000000000000003-new.parquet"
    new.write_bytes(b"x" * 70)
    clock = ManualClock(stale.stat().st_mtime + 100)
    os.utime(new, (clock.seconds, clock.seconds))
    with KafkaAdminClient(bootstrap_servers=made, clock=SYSTEM_CLOCK) as admin:
        sampler = OverviewSampler(made, admin, clock)
        figures = look(sampler).topics["t"]

    assert figures.stale == (1, 500)


@pytest.mark.slow
def test_a_damaged_topic_and_a_lost_root_are_faults(tmp_path: Path) -> None:
    """The other topics keep their figures."""
    roots = [tmp_path / f"root-{number}" for number in range(3)]
    for root in roots:
        root.mkdir()
    made = connect(",".join(map(str, roots)))
    for name in ("orders", "sound"):
        made.create_topic(name, 1, {}, replication_factor=3)
        write(made, name, 1)
    roots[2].rename(tmp_path / "gone")
    with KafkaAdminClient(bootstrap_servers=made) as admin:
        found = look(OverviewSampler(made, admin, SYSTEM_CLOCK))

    assert found.topics["sound"].records == 1
    assert [broker.alive for broker in found.brokers] == [True, True, False]
    assert any(problem.what.startswith("Root 3 does not answer") for problem in found.problems)


def test_a_log_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    """With its error, and a link to the topic."""
    made = connect(str(tmp_path / "root"))
    for name in ("broken", "sound"):
        made.create_topic(name, 1, {})
        write(made, name, 2)
    for commit in (tmp_path / "root").glob("broken*/_delta_log/*.json"):
        commit.write_text("{", encoding="utf-8")
    with KafkaAdminClient(bootstrap_servers=made) as admin:
        found = look(OverviewSampler(connect(str(tmp_path / "root")), admin, SYSTEM_CLOCK))

    assert set(found.topics) == {"sound"}
    assert list(found.damaged) == ["broken"]
    assert [problem.href for problem in found.problems] == ["/topics/broken"]


def test_a_topic_that_was_created_again_starts_anew(sampler: OverviewSampler, cluster: Cluster) -> None:
    """Neither records nor rates of the deleted one remain."""
    look(sampler)
    cluster.delete_topic("orders")
    gone = look(sampler)
    cluster.create_topic("orders", 1, {})
    again = look(sampler).topics["orders"]

    assert "orders" not in gone.topics
    assert (again.records, again.partitions, again.records_per_second) == (0, 1, 0.0)


def test_a_page_does_not_wait_for_a_slow_look(
    sampler: OverviewSampler, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets the state before; the next page gets the new one, whose look ran in a thread of its own."""
    before = look(sampler)
    go, asked = threading.Event(), []
    once = cluster.topics

    def slow() -> object:
        asked.append(threading.current_thread().name)
        assert go.wait(PATIENCE)
        return once()

    monkeypatch.setattr(cluster, "topics", slow)
    write(cluster, "quiet", 5)
    sampler.expire()
    shown = [sampler.newest(0) for _ in range(3)]
    go.set()
    after = sampler.newest(PATIENCE)

    assert shown == [before] * 3
    assert after.topics["quiet"].records == 5
    assert set(asked) == {"kafkalike-ui-overview"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("error", [KafkaStorageError("no answer"), ZeroDivisionError()], ids=["storage", "bug"])
def test_a_look_that_fails_is_a_fault_and_the_next_one_mends_it(
    sampler: OverviewSampler, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The figures before it stay."""
    look(sampler)

    def fail() -> object:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(cluster, "topics", fail)
        failed = look(sampler)
        # The traceback of a bug is written after the page has its answer.
        for thread in threading.enumerate():
            if thread.name == "kafkalike-ui-overview":
                thread.join()

    assert [problem.what.partition(":")[0] for problem in failed.problems] == ["The cluster cannot be read"]
    assert failed.topics["orders"].records == 30
    assert look(sampler).problems == []


@pytest.mark.parametrize(
    ("took", "where", "rest"),
    [(0.1, "disk", 1.0), (2.0, "disk", 8.0), (0.1, "objects", 30.0), (20.0, "objects", 80.0)],
    ids=["local", "local, many topics", "object store", "object store, many topics"],
)
def test_looks_take_a_fifth_of_the_time_at_most(took: float, where: str, rest: float) -> None:
    """And few requests where they cost money."""
    assert rest_seconds(took, is_remote=where == "objects") == rest


def test_thresholds_are_in_ascending_order() -> None:
    """Before a port is opened."""
    with pytest.raises(KafkaConfigurationError, match="two ages in ascending order, not 60 and 5"):
        ConsoleServer(MemoryCluster(), lag_seconds=(60, 5))


def test_a_mirror_that_does_not_follow_is_a_fault(tmp_path: Path) -> None:
    """With the reason that its last pass gave."""
    source, target = connect(str(tmp_path / "source")), connect(str(tmp_path / "target"))
    source.create_topic("t", 1, {})
    write(source, "t", 3)
    Mirror(source, target, ".*").run()
    source.delete_topic("t")
    Mirror(connect(source.root), target, ".*").run()
    with KafkaAdminClient(bootstrap_servers=target) as admin:
        found = look(OverviewSampler(target, admin, SYSTEM_CLOCK))

    (problem,) = found.problems
    assert problem.what.startswith(f"Mirror t does not follow {source.root}: ")
    assert "was deleted at" in problem.what
    assert problem.href == "/topics/t"
