"""Clients that were opened before a cluster was made, and act after it: what they saw then counts no more."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.connect import connect
from kafkalike.errors import KafkaConfigurationError, KafkaError, UnsupportedVersionError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.verify.verify import verify
from kafkalike.model.group_rows import OFFSET, GroupRow
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from tests.tools.consumer import texts
from tests.tools.forked import killed
from tests.tools.records import batch_now
from tests.tools.three_roots import opened


def several(roots: Sequence[Path]) -> ReplicatedCluster:
    cluster = connect([str(root) for root in roots])
    assert isinstance(cluster, ReplicatedCluster)
    return cluster


def cluster_ids(roots: Sequence[Path]) -> set[str]:
    return {(root / "__brokers").read_text().split('"cluster": "')[1][:32] for root in roots}


# --- several roots -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("lost", [1, 2, 3], ids=["first", "second", "third"])
def test_early_client_joins_the_cluster_that_others_made_after_a_root_was_lost(roots: list[Path], lost: int) -> None:
    """It must not found a new one where the lost root was."""
    early = opened(roots)
    opened(roots).create_topic("t", 1, {})
    opened(roots).log("t").append(batch_now("a"))
    shutil.rmtree(roots[lost - 1])
    roots[lost - 1].mkdir()

    early.create_topic("u", 1, {}, replication_factor=2)
    early.log("t").append(batch_now("b"))

    assert not list(roots[lost - 1].glob("__brokers*"))
    left = [root for root in roots if root != roots[lost - 1]]
    assert texts(opened(roots), "t") == texts(several(left), "t") == ["a", "b"]
    assert sorted(several(left).topics()) == ["t", "u"]


@pytest.mark.slow
def test_early_reader_sees_that_a_root_is_lost_and_reads_the_others(roots: list[Path]) -> None:
    """To a client that believes that nothing was made, a root without files looks empty."""
    early = opened(roots)
    cluster = opened(roots)
    cluster.create_topic("t", 1, {}, assignments={0: [1, 2, 3]})
    cluster.log("t").append(batch_now("a"))
    shutil.rmtree(roots[0])
    roots[0].mkdir()

    assert texts(early, "t") == ["a"]
    assert not early.replication.alive(1)


@pytest.mark.slow
@pytest.mark.parametrize("order", list(itertools.permutations([0, 1, 2])), ids=lambda order: "".join(map(str, order)))
def test_early_client_that_named_the_roots_in_another_order_goes_on_with_the_ids_that_were_given(
    roots: list[Path], order: tuple[int, ...]
) -> None:
    early = several([roots[at] for at in order])
    opened(roots).create_topic("t", 1, {}, assignments={0: [3, 2]})
    opened(roots).log("t").append(batch_now("a"))

    early.log("t").append(batch_now("b"))
    early.create_topic("u", 1, {}, assignments={0: [1]})

    assert [broker.uri for broker in early.replication.brokers()] == list(map(str, roots))
    assert (roots[0] / early.topic("u").location).exists()
    assert texts(opened(roots), "t") == ["a", "b"]
    assert not verify(opened(roots), ["t", "u"]).findings


@pytest.mark.slow
def test_two_that_name_the_roots_in_different_orders_at_once_make_one_cluster(roots: list[Path]) -> None:
    orders = list(itertools.permutations(roots))
    clusters = [several(order) for order in orders]
    ready = threading.Barrier(len(clusters))
    failed: list[BaseException] = []

    def make(number: int) -> None:
        ready.wait()
        try:
            clusters[number].create_topic(f"t{number}", 1, {}, replication_factor=3)
            clusters[number].log(f"t{number}").append(batch_now(str(number)))
        except BaseException as cause:  # noqa: BLE001
            failed.append(cause)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(len(clusters))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failed
    assert len(cluster_ids(roots)) == 1
    for order in orders:
        assert sorted(several(order).topics()) == [f"t{n}" for n in range(6)]
    assert [texts(several(roots), f"t{n}") for n in range(6)] == [[str(n)] for n in range(6)]


@pytest.mark.slow
def test_of_two_that_name_some_of_the_same_roots_one_gets_all_of_its_own(tmp_path: Path) -> None:
    """The other one is refused before it has signed any."""
    a, b, c, d = (tmp_path / name for name in "abcd")
    d.mkdir()
    second = several([d, c, b])
    killed(lambda: several([a, b, c]).create_topic("t", 1, {}), "founding.after_claims")

    with pytest.raises(KafkaConfigurationError, match="was begun"):
        second.create_topic("u", 1, {})
    several([a, b, c]).create_topic("t", 1, {})
    with pytest.raises(KafkaConfigurationError, match="not a root of the cluster"):
        second.create_topic("u", 1, {})

    assert not list(d.iterdir())
    assert sorted(several([a, b, c]).topics()) == ["t"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["founding.after_claim", "founding.after_claims", "founding.after_sign@1", "founding.after_sign@3"]
)
def test_founding_that_was_killed_is_finished_by_a_client_that_was_opened_before(roots: list[Path], point: str) -> None:
    early = several(roots[::-1])
    killed(lambda: several(roots).create_topic("t", 1, {}), point)

    early.create_topic("u", 1, {}, replication_factor=3)

    assert len(cluster_ids(roots)) == 1
    assert [broker.uri for broker in early.replication.brokers()] == list(map(str, roots))
    assert "u" in several(roots[:1]).topics()


@pytest.mark.slow
def test_founder_that_comes_too_late_leaves_a_claim_that_nobody_follows(roots: list[Path]) -> None:
    """It was stopped between its look and its claim, and the root that it claims was lost meanwhile."""
    opened(roots).create_topic("t", 1, {})
    shutil.rmtree(roots[0])
    roots[0].mkdir()
    (roots[0] / "__brokers.claim").write_text(
        json.dumps({"v": 1, "cluster": "other", "broker": 1, "roots": dict(enumerate(map(str, roots), start=1))})
    )

    assert sorted(opened(roots).topics()) == ["t"]
    opened(roots).create_topic("u", 1, {}, replication_factor=2)
    assert sorted(several(roots[1:]).topics()) == ["t", "u"]


# --- one root that became one of several ---------------------------------------------------------


@pytest.mark.slow
def test_several_roots_are_not_made_over_a_cluster_that_one_of_them_became_meanwhile(roots: list[Path]) -> None:
    """The client that began was killed before it claimed that root."""
    early = connect(str(roots[1]))
    killed(lambda: several(roots).create_topic("t", 1, {}), "founding.after_claim")
    early.create_topic("u", 1, {})

    with pytest.raises(KafkaConfigurationError, match="cluster of one root"):
        several(roots).create_topic("t", 1, {})

    assert sorted(connect(str(roots[1])).topics()) == ["u"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 2, 3], ids=["first", "second", "third", "without a vote"])
def test_early_client_of_one_root_is_refused_after_it_became_one_of_several(tmp_path: Path, number: int) -> None:
    """Before the first byte: what it wrote would be at one root alone."""
    roots = [tmp_path / str(n) for n in (1, 2, 3, 4)]
    creator, producer, member = (connect(str(roots[number])) for _ in range(3))
    assert isinstance(member, Cluster)
    several(roots).create_topic("t", 1, {}, replication_factor=3)
    before = sorted(str(path) for path in roots[number].rglob("*"))

    with pytest.raises(UnsupportedVersionError, match=r"restart this client|several roots"):
        creator.create_topic("u", 1, {})
    with (
        KafkaProducer(bootstrap_servers=producer, max_block_ms=1000) as sender,
        pytest.raises(KafkaError, match=r"restart this client|several roots"),
    ):
        sender.send("t", b"x").get(timeout=5)
    with pytest.raises(UnsupportedVersionError, match=r"restart this client|several roots"):
        member.groups.transact(
            lambda state: [GroupRow(seq=state.seq + 1, time_ms=1, kind=OFFSET, group_id="g", topic="t", partition=0)]
        )

    assert sorted(str(path) for path in roots[number].rglob("*")) == before
    assert texts(several(roots), "t") == []


@pytest.mark.slow
def test_early_client_of_one_root_is_refused_while_a_cluster_is_being_made(roots: list[Path]) -> None:
    early = connect(str(roots[1]))
    killed(lambda: several(roots).create_topic("t", 1, {}), "founding.after_claims")

    with pytest.raises(UnsupportedVersionError, match="several roots"):
        early.create_topic("u", 1, {})

    several(roots).create_topic("t", 1, {})
    assert sorted(several(roots).topics()) == ["t"]


def test_cluster_of_several_is_not_made_over_one_that_a_client_made_of_one_of_its_roots(roots: list[Path]) -> None:
    early = several(roots)
    connect(str(roots[2])).create_topic("t", 1, {})

    with pytest.raises(KafkaConfigurationError, match="cluster of one root"):
        early.create_topic("u", 1, {})

    assert sorted(connect(str(roots[2])).topics()) == ["t"]


@pytest.mark.slow
@pytest.mark.parametrize("table", ["groups", "schemas"])
def test_early_client_makes_no_control_table_at_a_root_that_has_got_others(tmp_path: Path, table: str) -> None:
    """It looked at the metadata when these had one root, and the table was not there."""
    one, two = tmp_path / "one", tmp_path / "two"
    connect(str(one)).create_topic("t", 1, {})
    early = connect(str(one))
    assert isinstance(early, Cluster)
    early.metadata.refresh()

    connect(str(one)).replication.add_broker(str(two))

    with pytest.raises(UnsupportedVersionError, match="several roots"):
        getattr(early, table).transact(lambda _: pytest.fail("nothing is planned"))
    with KafkaConsumer("t", bootstrap_servers=str(two), group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.poll(500)
        consumer.commit()


@pytest.mark.slow
def test_single_clients_and_clients_of_several_roots_that_start_at_once_lose_nothing(tmp_path: Path) -> None:
    """One of the two kinds gets the root; what it acknowledged is there."""
    for number in range(5):
        roots = [tmp_path / f"{number}{name}" for name in "abc"]
        clusters = [connect(str(roots[2])), several(roots), connect(str(roots[0])), several(roots[::-1])]
        ready = threading.Barrier(4)
        acknowledged: list[tuple[int, str]] = []

        def write(at: int) -> None:
            ready.wait()  # noqa: B023
            try:
                clusters[at].create_topic(f"t{at}", 1, {})  # noqa: B023
                clusters[at].log(f"t{at}").append(batch_now(str(at)))  # noqa: B023
            except KafkaError:
                return
            acknowledged.append((at, f"t{at}"))  # noqa: B023

        threads = [threading.Thread(target=write, args=(at,)) for at in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        where = [roots[2:], roots, roots[:1], roots]
        for at, topic in acknowledged:
            assert texts(several(where[at]) if at % 2 else connect(str(where[at][0])), topic) == [str(at)]
