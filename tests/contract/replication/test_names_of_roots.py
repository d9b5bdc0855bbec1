"""The names under which clients reach the roots of a cluster: links, other orders, places where they were not made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkalike.admin import KafkaAdminClient
from kafkalike.connect import connect
from kafkalike.errors import KafkaConfigurationError, LogCorruptError
from kafkalike.model.config.server_config import ServerProperties
from kafkalike.model.structs import NewTopic
from kafkalike.replication.cluster.cluster_factory import open_several
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from tests.tools.records import fill, open_log, records_of


def opened(*roots: Path) -> ReplicatedCluster:
    """The cluster of these roots, as a process opens it that waits for nobody."""
    return open_several(
        [str(root) for root in roots], server=ServerProperties.from_properties({"replica.lag.time.max.ms": "1"})
    )


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """Three roots with a topic on all of them, whose leader is the first one."""
    made = [tmp_path / str(n) for n in (1, 2, 3)]
    with KafkaAdminClient(bootstrap_servers=opened(*made)) as admin:
        admin.create_topics([NewTopic("t", replica_assignments={0: [1, 2, 3]})])
    fill(opened(*made), "t", "a")
    return made


def in_sync(*roots: Path) -> list[int]:
    """Brokers in sync of the topic."""
    with KafkaAdminClient(bootstrap_servers=opened(*roots)) as admin:
        return sorted(admin.describe_topics(["t"])[0]["partitions"][0]["isr_nodes"])


def values(*roots: Path) -> list[str]:
    """The topic's values, as a client reads them that names these roots."""
    return [value for _, value in records_of(open_log(opened(*roots)), 0)]


@pytest.mark.slow
@pytest.mark.parametrize("named", ["link", "folder/link"])
def test_a_root_may_be_named_by_a_link(roots: list[Path], tmp_path: Path, named: str) -> None:
    """It is the same root, and stays in sync."""
    (tmp_path / "folder").mkdir()
    link = tmp_path / named
    link.symlink_to(roots[0])

    fill(opened(link, *roots[1:]), "t", "b")
    fill(opened(link), "t", "c")

    assert values(roots[1]) == ["a", "b", "c"]
    assert in_sync(*roots) == [1, 2, 3]


@pytest.mark.slow
def test_a_cluster_made_by_links_is_opened_without_them(tmp_path: Path) -> None:
    """And the reverse."""
    for n in (1, 2):
        (tmp_path / str(n)).mkdir()
        (tmp_path / f"link{n}").symlink_to(tmp_path / str(n))
    links, plain = [tmp_path / "link1", tmp_path / "link2"], [tmp_path / "1", tmp_path / "2"]
    with KafkaAdminClient(bootstrap_servers=opened(*links)) as admin:
        admin.create_topics([NewTopic("t", replica_assignments={0: [1, 2]})])
    fill(opened(*plain), "t", "a")

    assert values(*links) == values(plain[0]) == ["a"]
    assert in_sync(*plain) == [1, 2]


def test_one_folder_is_not_two_brokers(tmp_path: Path) -> None:
    """Whatever it is called: a cluster of it would lose all with one disk."""
    (tmp_path / "link").symlink_to(tmp_path / "1")
    with pytest.raises(KafkaConfigurationError, match="twice"):
        opened(tmp_path / "1", tmp_path / "link")
    assert not (tmp_path / "1").exists()


def test_roots_that_were_moved_are_refused_by_name(roots: list[Path], tmp_path: Path) -> None:
    """The error says where they belong; nothing waits for them in vain."""
    moved = [root.rename(tmp_path / f"moved-{root.name}") for root in roots]
    with pytest.raises(KafkaConfigurationError, match=f"broker 1, which belongs at {roots[0]}"):
        opened(*moved)
    with pytest.raises(KafkaConfigurationError, match=f"broker 2, which belongs at {roots[1]}"):
        opened(moved[1])


@pytest.mark.slow
def test_a_root_in_anothers_place_counts_as_away(roots: list[Path], tmp_path: Path) -> None:
    """What it has is not taken for what belongs there, and comes back when it is put right."""
    away = roots[1].rename(tmp_path / "away")
    roots[0].rename(roots[1])
    with pytest.raises(KafkaConfigurationError, match="broker 1, which belongs at"):
        opened(roots[1])
    roots[1].rename(roots[0])
    away.rename(roots[1])
    fill(opened(*roots), "t", "b")

    assert values(*reversed(roots)) == ["a", "b"]


@pytest.mark.slow
@pytest.mark.parametrize("hindered", [0, 1, 2])
def test_writers_queue_elsewhere_where_a_root_lets_nobody_queue(roots: list[Path], hindered: int) -> None:
    """Such as one that is read-only: queues are for fairness alone."""
    locks = roots[hindered] / "__locks"
    shutil.rmtree(locks, ignore_errors=True)
    locks.write_text("in the way")

    fill(opened(*roots), "t", "b")

    assert values(*roots) == ["a", "b"]


@pytest.mark.slow
def test_a_removed_root_comes_back_as_a_new_broker(roots: list[Path], tmp_path: Path) -> None:
    """At the same place, once it is empty; it is not signed as the one that was removed."""
    added = opened(*roots).replication.add_broker(str(tmp_path / "4"))
    cluster = opened(*roots)
    cluster.replication.remove_broker(added.id)
    shutil.rmtree(tmp_path / "4")

    assert cluster.replication.add_broker(str(tmp_path / "4")).id == 5

    assert cluster.store.root_of(5).is_there()
    assert opened(tmp_path / "4").store.root_of(5).is_there()


def test_a_cluster_of_one_root_and_a_new_root_are_not_named_together(roots: list[Path], tmp_path: Path) -> None:
    single = connect(str(tmp_path / "single"), access="spark")
    single.create_topic("x", 1, {})

    with pytest.raises(KafkaConfigurationError, match="name it alone"):
        opened(tmp_path / "single", tmp_path / "new")


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_a_root_whose_sign_is_damaged_counts_as_away(roots: list[Path], damaged: int) -> None:
    """Alone it is refused by name."""
    (roots[damaged] / "__brokers").write_text("{bro")

    fill(opened(*roots), "t", "b")

    assert values(*roots) == ["a", "b"]
    with pytest.raises(LogCorruptError, match="__brokers is damaged"):
        opened(roots[damaged])
