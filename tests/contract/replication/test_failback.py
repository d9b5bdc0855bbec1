"""Failover and failback: topics go to another cluster and come back; nothing of their earlier lives counts for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalike.admin.cluster_mirror import Mirror, promote
from kafkalike.consumer import KafkaConsumer
from kafkalike.errors import KafkaError, TopicDeletedError, UnknownTopicOrPartitionError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.model.clock import Deadline
from kafkalike.model.structs import OffsetAndMetadata
from kafkalike.producer import KafkaProducer
from tests.tools.clusters import on_disk, on_three_disks
from tests.tools.consumer import read_to_end
from tests.tools.findings import errors_of
from tests.tools.records import batch_now
from tests.tools.transactional import T0, committed, values

pytestmark = pytest.mark.slow

Open = Callable[[], Cluster]


@pytest.fixture(params=["one root", pytest.param("three roots", marks=pytest.mark.full)])
def open_first(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the first cluster, as another process does."""
    if request.param == "one root":
        return lambda: on_disk(tmp_path / "first")
    return lambda: on_three_disks(tmp_path / "first")


@pytest.fixture
def open_second(tmp_path: Path) -> Open:
    """Opens the second one."""
    return lambda: on_disk(tmp_path / "second")


@pytest.fixture
def first(open_first: Open) -> Cluster:
    """The first cluster, with two topics and a transaction in both."""
    cluster = open_first()
    for name in ("t", "u"):
        cluster.create_topic(name, 1, {})
    transact(cluster, "1")
    return cluster


def transact(cluster: Cluster, value: str, transactional_id: str = "tx") -> None:
    """One transaction of a producer of its own into both topics."""
    with KafkaProducer(bootstrap_servers=cluster, transactional_id=transactional_id) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for name in ("t", "u"):
            producer.send(name, value.encode())
        producer.commit_transaction()


def go_over(source: Open, target: Open) -> None:
    """Bring all topics of a cluster to another one, which goes on with them, and delete them there."""
    assert Mirror(source(), target()).run().sound
    promote(target(), ".*")
    for name in ("t", "u"):
        source().delete_topic(name)


def read(cluster: Cluster, group: str | None) -> list[bytes | None]:
    """What a consumer reads of `t`, to the end; as a member of a group, from where that is."""
    with KafkaConsumer("t", bootstrap_servers=cluster, group_id=group, auto_offset_reset="earliest") as consumer:
        return [record.value for record in read_to_end(consumer)]


def check(open_cluster: Open, *expected: bytes) -> None:
    """Both topics hold these records, whoever helps, and nothing is wrong with the cluster."""
    cluster = open_cluster()
    assert cluster.transactions.maintain(_deadline(cluster)) == []
    for name in ("t", "u"):
        assert values(cluster, name) == list(expected)
    assert read(open_cluster(), None) == list(expected)


def _deadline(cluster: Cluster) -> Deadline:
    return Deadline(cluster.clock, 10_000)


def test_transactions_before_and_after_a_failback_are_there_once(
    first: Cluster, open_first: Open, open_second: Open
) -> None:
    """Also with the transactional id that wrote before, one of its own, and after a second failback."""
    go_over(open_first, open_second)
    transact(open_second(), "2")
    go_over(open_second, open_first)
    check(open_first, b"1", b"2")

    transact(open_first(), "3")
    transact(open_first(), "4", "another")
    check(open_first, b"1", b"2", b"3", b"4")

    go_over(open_first, open_second)
    check(open_second, b"1", b"2", b"3", b"4")
    transact(open_second(), "5")
    check(open_second, b"1", b"2", b"3", b"4", b"5")
    go_over(open_second, open_first)
    transact(open_first(), "6")
    check(open_first, b"1", b"2", b"3", b"4", b"5", b"6")


def test_transactions_of_a_mirror_that_was_promoted_and_mirrored_anew_are_not_replayed(
    first: Cluster, open_first: Open, open_second: Open
) -> None:
    """The second cluster tries a promotion out, and is made a mirror again."""
    assert Mirror(open_first(), open_second()).run().sound
    promote(open_second(), ".*")
    for number in range(5):
        transact(open_second(), f"trial {number}")
    for name in ("t", "u"):
        open_second().delete_topic(name)
    assert Mirror(open_first(), open_second()).run().sound
    transact(open_first(), "2")
    assert Mirror(open_first(), open_second()).run().sound

    check(open_second, b"1", b"2")
    promote(open_second(), ".*")
    check(open_second, b"1", b"2")
    transact(open_second(), "3")
    check(open_second, b"1", b"2", b"3")


def test_transaction_that_is_open_across_a_failback_is_refused(
    first: Cluster, open_first: Open, open_second: Open
) -> None:
    """Its records and offsets belong to the topic that was deleted, though the table has the same id."""
    with KafkaProducer(bootstrap_servers=open_first(), transactional_id="open") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"late")
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, "g")
        producer.flush()
        go_over(open_first, open_second)
        go_over(open_second, open_first)

        with pytest.raises(UnknownTopicOrPartitionError):
            producer.commit_transaction()
        producer.abort_transaction()

    check(open_first, b"1")
    assert committed(open_first()) == {}


def test_transaction_of_offsets_that_is_open_across_a_failback_is_refused(
    first: Cluster, open_first: Open, open_second: Open
) -> None:
    with KafkaProducer(bootstrap_servers=open_first(), transactional_id="open") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, "g")
        go_over(open_first, open_second)
        go_over(open_second, open_first)

        with pytest.raises(UnknownTopicOrPartitionError):
            producer.commit_transaction()
        producer.abort_transaction()

    assert committed(open_first()) == {}


def test_transaction_that_was_cut_off_before_its_topics_got_it_is_not_brought_after_a_failback(
    first: Cluster, open_first: Open, open_second: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its producer comes back, and is not held up by what can never be brought."""
    with KafkaProducer(bootstrap_servers=open_first(), transactional_id="cut") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"late")
        with monkeypatch.context() as patch:
            patch.setenv("KAFKALIKE_FAULT", "transaction.before_apply:raise@1")
            patch.setattr("kafkalike.model.faults._visits", {})
            with pytest.raises((KafkaError, OSError)):
                producer.commit_transaction()
        open_second()
        # The mirror brings what is decided first: so its records are there, and once.
        go_over(open_first, open_second)
        go_over(open_second, open_first)
        producer.commit_transaction()

    assert values(open_first(), "t") == [b"1", b"late"]
    transact(open_first(), "2", "cut")
    assert values(open_first(), "t") == [b"1", b"late", b"2"]


def test_committed_offsets_of_the_topic_before_do_not_count_after_a_failback(
    first: Cluster, open_first: Open, open_second: Open
) -> None:
    """The second cluster went on from an earlier moment: at the same offsets it has other records."""
    assert Mirror(open_first(), open_second()).run().sound
    open_first().log("t").append(batch_now("lost"))
    assert read(open_first(), "ahead") == [b"1", b"lost"]
    promote(open_second(), ".*")
    open_second().log("t").append(batch_now("other", "next"))
    for name in ("t", "u"):
        open_first().delete_topic(name)

    go_over(open_second, open_first)

    assert read(open_first(), "ahead") == [b"1", b"other", b"next"]


def test_committed_offsets_come_along_both_ways(first: Cluster, open_first: Open, open_second: Open) -> None:
    assert read(open_first(), "g") == [b"1"]
    go_over(open_first, open_second)
    transact(open_second(), "2")
    assert read(open_second(), "g") == [b"2"]
    go_over(open_second, open_first)
    transact(open_first(), "3")

    assert read(open_first(), "g") == [b"3"]


def test_clients_that_are_open_across_a_failback_are_told_or_begin_anew(
    first: Cluster, open_first: Open, open_second: Open
) -> None:
    log: TopicLog = open_first().log("t")
    with KafkaConsumer("t", bootstrap_servers=open_first(), group_id="g", auto_offset_reset="earliest") as consumer:
        assert [record.value for record in read_to_end(consumer)] == [b"1"]
        go_over(open_first, open_second)
        transact(open_second(), "2")
        go_over(open_second, open_first)

        with pytest.raises(TopicDeletedError):
            log.refresh()
        with pytest.raises(TopicDeletedError):
            log.append(batch_now("late"))
        found: list[bytes] = []
        while b"2" not in found:
            with contextlib.suppress(TopicDeletedError):
                found += [record.value for record in read_to_end(consumer)]
        assert found in ([b"1", b"2"], [b"2"])


def test_tables_keep_their_id_so_that_checkpoints_go_on(first: Cluster, open_first: Open, open_second: Open) -> None:
    before = first.topic("t")
    go_over(open_first, open_second)
    away = open_second().topic("t")
    go_over(open_second, open_first)
    after = open_first().topic("t")

    assert before.topic_id == before.table_id == away.topic_id == away.table_id == after.table_id
    assert after.topic_id != before.topic_id
    assert errors_of(open_first().root) == [] or open_first().root.count(",")
