"""A root that is a Delta table, or lies in one, or in another cluster's root: every client refuses it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kafkalike import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafkalike.admin import NewTopic
from kafkalike.admin.cluster_mirror import Mirror
from kafkalike.cli import main
from kafkalike.connect import connect
from kafkalike.errors import KafkaConfigurationError, KafkaStorageError
from tests.tools.records import batch_now


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A cluster with the topic `orders`."""
    connect(str(tmp_path / "root")).create_topic("orders", 1, {})
    connect(str(tmp_path / "root")).log("orders").append(batch_now("a"))
    return tmp_path / "root"


def files_of(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


CLIENTS: dict[str, Callable[[str], object]] = {
    "producer": lambda uri: KafkaProducer(bootstrap_servers=uri),
    "consumer": lambda uri: KafkaConsumer("t", bootstrap_servers=uri),
    "admin client": lambda uri: KafkaAdminClient(bootstrap_servers=uri).create_topics([NewTopic("t")]),
    "Spark reading": partial(connect, access="spark"),
    "Spark writing": partial(connect, access="spark_write"),
    "mirror": lambda uri: Mirror(uri, uri),
    "root among several": lambda uri: connect([uri, f"{uri}.other"]),
    "new root of a cluster": lambda uri: connect(f"{uri.partition('/root/')[0]}/grown").replication.add_broker(uri),
}


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
@pytest.mark.parametrize("below", ["orders", "orders/partition=0", "orders/new/deep", "new", "__staging"])
def test_root_within_a_cluster_is_refused(root: Path, client: Callable[[str], object], below: str) -> None:
    connect(str(root / "../grown")).create_topic("t", 1, {})
    before = files_of(root)

    with pytest.raises(KafkaConfigurationError, match=f"name the root of the cluster, {root}"):
        client(str(root / below))

    assert files_of(root) == before


@pytest.mark.parametrize("below", ["", "/country=DE", "/a/b"], ids=["table", "partition", "deep"])
def test_root_within_somebody_elses_delta_table_is_refused(tmp_path: Path, below: str) -> None:
    write_deltalake(str(tmp_path / "table"), pa.table({"country": ["DE"], "n": [1]}), partition_by=["country"])
    before = files_of(tmp_path)

    with pytest.raises(KafkaConfigurationError, match="a VACUUM of that table would delete the records"):
        connect(f"{tmp_path}/table{below}")

    assert files_of(tmp_path) == before


def test_root_behind_a_link_into_a_table_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root / "orders")

    with pytest.raises(KafkaConfigurationError, match="cannot be the root of a cluster"):
        connect(str(tmp_path / "link" / "new"))


def test_table_that_came_after_a_client_was_opened_counts(tmp_path: Path) -> None:
    """It looks again before it makes the root."""
    early = connect(str(tmp_path / "table" / "root"))
    several = connect([str(tmp_path / "table" / "a"), str(tmp_path / "b")])
    write_deltalake(str(tmp_path / "table"), pa.table({"n": [1]}))
    before = files_of(tmp_path)

    for cluster in (early, several):
        with pytest.raises(KafkaConfigurationError, match="lies in the Delta table"):
            cluster.create_topic("t", 1, {})

    assert files_of(tmp_path) == before


def test_command_refuses_a_topics_folder(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "--bootstrap-server", str(root / "orders"), "--create", "--topic", "t"]) == 1
    assert f"name the root of the cluster, {root}" in capsys.readouterr().err


def test_root_beside_a_cluster_may_be_named_by_way_of_it(root: Path) -> None:
    connect(f"{root}/orders/../../beside").create_topic("t", 1, {})

    assert sorted(connect(str(root.with_name("beside"))).topics()) == ["t"]


def test_cluster_that_lies_in_another_one_already_goes_on(root: Path) -> None:
    """It was made before this was refused: its records must be read."""
    connect(str(root)).create_topic("inner", 1, {})
    inner = root.with_name("inner")
    connect(str(inner)).create_topic("t", 1, {})
    inner.rename(root / "nested")

    connect(str(root / "nested")).log("t").append(batch_now("b"))

    assert sorted(connect(str(root / "nested")).topics()) == ["t"]


def test_place_within_a_cluster_is_refused_wherever_it_is(any_root: str) -> None:
    connect(any_root).create_topic("orders", 1, {})

    for below in ("orders", "orders/new", "new", "a/b"):
        with pytest.raises(KafkaConfigurationError, match="name the root of the cluster"):
            connect(f"{any_root}/{below}").create_topic("t", 1, {})
        with pytest.raises(KafkaConfigurationError, match="name the root of the cluster"):
            KafkaConsumer("t", bootstrap_servers=f"{any_root}/{below}")

    assert sorted(connect(any_root).topics()) == ["orders"]


def test_topic_is_not_made_over_another_cluster(any_root: str) -> None:
    """Its files would lie among those of that cluster."""
    connect(f"{any_root}/inner").create_topic("t", 1, {})
    outer = connect(any_root)
    outer.create_topic("u", 1, {})

    with pytest.raises(KafkaStorageError, match="topic 'inner' cannot be created"):
        outer.create_topic("inner", 1, {})

    assert sorted(outer.topics()) == ["u"]
    assert sorted(connect(f"{any_root}/inner").topics()) == ["t"]


@pytest.mark.parametrize("outer_first", [True, False], ids=["outer first", "inner first"])
def test_roots_of_one_cluster_that_lie_in_each_other_are_refused(tmp_path: Path, *, outer_first: bool) -> None:
    """Who loses the outer one loses both, whatever the replication factor says."""
    (tmp_path / "link").symlink_to(tmp_path / "a")
    roots = [str(tmp_path / "a"), str(tmp_path / "link" / "b")]
    before = files_of(tmp_path)

    with pytest.raises(KafkaConfigurationError, match=f"the root {roots[1]} lies in the root {roots[0]}"):
        connect(roots if outer_first else roots[::-1])

    assert files_of(tmp_path) == before


@pytest.mark.parametrize("number", [1, 2], ids=["one root", "two roots"])
def test_new_root_above_one_of_the_cluster_is_refused(tmp_path: Path, number: int) -> None:
    roots = [str(tmp_path / "above" / str(n)) for n in range(number)]
    connect(roots).create_topic("t", 1, {})
    before = files_of(tmp_path)

    with pytest.raises(KafkaConfigurationError, match=f"the root {roots[0]} lies in the root {tmp_path}/above"):
        connect(roots).replication.add_broker(str(tmp_path / "above"))

    assert files_of(tmp_path) == before
    connect(roots).log("t").append(batch_now("a"))


@pytest.mark.slow
def test_root_within_a_root_that_has_no_metadata_yet_is_refused(root: Path, tmp_path: Path) -> None:
    connect(str(root)).replication.add_broker(str(tmp_path / "second"))
    connect(str(root)).replication.add_broker(str(tmp_path / "added"))
    assert not (tmp_path / "added" / "__cluster_metadata").exists()

    for several in ([str(tmp_path / "added" / "new")], [str(tmp_path / "added" / "new"), str(tmp_path / "other")]):
        with pytest.raises(KafkaConfigurationError, match=f"name the root of the cluster, {tmp_path}/added"):
            connect(several)
