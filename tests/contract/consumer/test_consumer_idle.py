"""A consumer that has nothing to read: which partitions it asks, and what it says of a root or a log that is gone."""

import runpy
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kafkalike.admin.testing import ManualClock
from kafkalike.connect import check_founded, connect
from kafkalike.consumer import KafkaConsumer
from kafkalike.delta.layout import CLUSTER_METADATA
from kafkalike.errors import KafkaConnectionError, OffsetOutOfRangeError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model import clock
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import ConsumerRecord, TopicPartition
from kafkalike.producer import KafkaProducer
from kafkalike.storage.local import LocalStorage
from tests.tools.clusters import on_disk
from tests.tools.upkeep import AT_ONCE

Make = Callable[..., KafkaConsumer]


def write(cluster: Cluster, partition: int, value: bytes, topic: str = "orders") -> None:
    batch = RecordBatch()
    batch.add(partition, None, value, 1000)
    cluster.log(topic).append(batch)


def values(polled: dict[TopicPartition, list[ConsumerRecord]]) -> dict[int, list[bytes | None]]:
    return {tp.partition: [record.value for record in records] for tp, records in polled.items()}


def idle(cluster: Cluster, consumer_of: Make, partitions: int) -> KafkaConsumer:
    """A consumer that has read all partitions of a topic to their ends."""
    cluster.create_topic("orders", partitions, {})
    consumer = consumer_of()
    consumer.assign([TopicPartition("orders", p) for p in range(partitions)])
    consumer.poll()
    consumer.poll()
    return consumer


# --- what is asked -----------------------------------------------------------------------------


def test_a_partition_that_was_read_to_its_end_is_read_again_when_it_gets_a_record(
    cluster: Cluster, consumer_of: Make
) -> None:
    """Again and again, whichever partition it is."""
    consumer = idle(cluster, consumer_of, 3)

    found = []
    for nth, partition in enumerate([1, 1, 0, 2, 1]):
        write(cluster, partition, b"%d" % nth)
        found.append(values(consumer.poll()))
        assert consumer.poll() == {}

    assert found == [{1: [b"0"]}, {1: [b"1"]}, {0: [b"2"]}, {2: [b"3"]}, {1: [b"4"]}]


def test_an_idle_partition_can_be_sought_paused_and_resumed(cluster: Cluster, consumer_of: Make) -> None:
    """What the application says of it takes effect, though its table has not moved."""
    tp = TopicPartition("orders", 0)
    consumer = idle(cluster, consumer_of, 2)
    write(cluster, 0, b"a")
    assert values(consumer.poll()) == {0: [b"a"]}
    assert consumer.poll() == {}

    consumer.seek(tp, 0)
    assert values(consumer.poll()) == {0: [b"a"]}
    assert consumer.poll() == {}
    consumer.pause(tp)
    write(cluster, 0, b"b")
    assert consumer.poll() == {}
    consumer.resume(tp)
    assert values(consumer.poll()) == {0: [b"b"]}


def test_an_idle_partition_that_is_assigned_again_goes_on(cluster: Cluster, consumer_of: Make) -> None:
    """It may be left out for a while, and others may come beside it."""
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    consumer = idle(cluster, consumer_of, 2)

    consumer.assign([first])
    consumer.poll()
    write(cluster, 1, b"passed over")
    consumer.poll()
    consumer.assign([first, second])
    write(cluster, 0, b"a")

    assert values(consumer.poll()) == {0: [b"a"], 1: [b"passed over"]}


def test_an_idle_poll_does_not_ask_partitions_whose_table_has_not_moved(
    cluster: Cluster, consumer_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work of an idle poll does not grow with the partitions; one table version asks those that got records."""
    consumer = idle(cluster, consumer_of, 50)
    kind = type(cluster.log("orders").reader(0, 0))
    asked: list[int] = []
    read = kind.read

    def counted(reader: Any, max_bytes: int) -> Any:
        asked.append(reader._partition)
        return read(reader, max_bytes)

    monkeypatch.setattr(kind, "read", counted)

    consumer.poll()
    before = list(asked)
    write(cluster, 7, b"a")
    consumer.poll()
    consumer.poll()

    assert before == []
    assert set(asked) == {7}


@pytest.mark.slow
def test_an_idle_poll_looks_at_the_metadata_as_often_for_many_topics_as_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are one table for all topics; each topic's own table is looked at once."""
    cluster = on_disk(str(tmp_path))
    names = [f"topic-{number}" for number in range(20)]
    for name in names:
        cluster.create_topic(name, 1, {})
    looked: list[str] = []
    read = LocalStorage.read

    def counted(store: LocalStorage, name: str) -> bytes:
        looked.append(Path(store.uri).name)
        return read(store, name)

    found = []
    for subscribed in (names[:1], names):
        with KafkaConsumer(*subscribed, bootstrap_servers=on_disk(str(tmp_path))) as consumer:
            consumer.poll()
            consumer.poll()
            with monkeypatch.context() as patched:
                patched.setattr(LocalStorage, "read", counted)
                looked.clear()
                consumer.poll()
                found.append((looked.count(CLUSTER_METADATA), [looked.count(name) for name in subscribed]))

    assert found[0][0] > 0
    assert found == [(found[0][0], [1]), (found[0][0], [1] * 20)]


# --- what is gone ------------------------------------------------------------------------------


@pytest.mark.parametrize("configs", [{}, {"group_id": "g"}], ids=["alone", "group"])
@pytest.mark.parametrize("topic", ["orders", "missing"])
def test_a_root_that_vanishes_is_told_at_every_poll_until_it_is_back(
    tmp_path: Path, topic: str, configs: dict[str, Any]
) -> None:
    """It looks like a log in which nothing is new; by the time of a look it is an error that may pass."""
    root, away, clock = tmp_path / "root", tmp_path / "away", ManualClock()
    cluster = on_disk(str(root), clock=clock)
    cluster.create_topic("orders", 1, {})
    with KafkaConsumer(
        topic, bootstrap_servers=cluster, clock=clock, auto_offset_reset="earliest", **configs
    ) as consumer:
        consumer.poll()
        root.rename(away)

        clock.seconds += 11
        for _ in range(3):
            with pytest.raises(KafkaConnectionError, match="has vanished"):
                consumer.poll()
        shutil.rmtree(root, ignore_errors=True)
        away.rename(root)
        write(on_disk(str(root)), 0, b"back")
        clock.seconds += 11
        found = values(consumer.poll()) | values(consumer.poll())

    assert found == ({0: [b"back"]} if topic == "orders" else {})


@pytest.mark.parametrize("group_id", [None, "billing"], ids=["alone", "group"])
def test_poll_of_a_root_without_a_cluster_fails_and_creates_nothing(any_root: str, group_id: str | None) -> None:
    """A misspelled root is not a cluster without records; a producer's first record makes the same consumer work."""
    with KafkaConsumer(
        "orders", bootstrap_servers=any_root, group_id=group_id, auto_offset_reset="earliest"
    ) as consumer:
        for _ in range(2):
            with pytest.raises(KafkaConnectionError, match="does not hold a cluster: check bootstrap_servers"):
                consumer.poll(100)
        with pytest.raises(KafkaConnectionError):
            check_founded(connect(any_root, access="read"))
        with KafkaProducer(bootstrap_servers=any_root) as producer:
            producer.send("orders", b"tea")

        assert [r.value for records in consumer.poll(10_000).values() for r in records] == [b"tea"]


@pytest.mark.slow
def test_a_reader_that_was_suspended_looks_anew_before_it_speaks_of_loss(tmp_path: Path) -> None:
    """Its clock stood still while others merged its files and cleaned up the log: no newer version is to be seen."""
    clock = ManualClock()
    other = on_disk(str(tmp_path))
    other.create_topic("orders", 1, {**AT_ONCE, "retention.ms": "-1"})
    written = [b"%d" % nth for nth in range(12)]
    for value in written:
        write(other, 0, value)
    consumer = KafkaConsumer(bootstrap_servers=on_disk(str(tmp_path), clock=clock), clock=clock)
    consumer.assign([TopicPartition("orders", 0)])
    consumer.seek(TopicPartition("orders", 0), 0)
    consumer.poll(max_records=1)
    before = set(DeltaTable(str(tmp_path / "orders")).file_uris())

    maintain(other, clock=SYSTEM_CLOCK)
    write(other, 0, b"last")
    table = DeltaTable(str(tmp_path / "orders"))
    live = set(table.file_uris())
    assert not live & before
    table.create_checkpoint()
    for path in (tmp_path / "orders").rglob("*.parquet"):
        if "_delta_log" not in path.parts and str(path) not in live:
            path.unlink(missing_ok=True)
    for version in range(table.version()):
        (tmp_path / "orders" / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)

    consumer.seek(TopicPartition("orders", 0), 0)
    assert values(consumer.poll()) == {0: [*written, b"last"]}


def test_a_reader_whose_metadata_are_old_tells_retention_from_loss(tmp_path: Path) -> None:
    """The log start has moved and the files below it are gone, and only the table was looked at since."""
    other = on_disk(str(tmp_path))
    other.create_topic("orders", 1, {**AT_ONCE, "retention.ms": "-1"})
    for nth in range(6):
        write(other, 0, b"%d" % nth)
    log = on_disk(str(tmp_path)).log("orders")
    reader = log.reader(0, 0)

    other.move_log_start("orders", {0: 3}, "delete_records", "r")
    maintain(other, clock=SYSTEM_CLOCK)
    log.refresh(metadata=False)

    assert log.log_start(0) == 0
    with pytest.raises(OffsetOutOfRangeError, match="delete_records"):
        reader.read(1 << 20)
    assert log.log_start(0) == 3


def test_the_systems_clock_counts_a_suspend_where_there_is_one_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLOCK_BOOTTIME on Linux; here as on a machine that was suspended for a thousand seconds."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("no CLOCK_BOOTTIME here")
    told = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda kind: told(kind) + 1000 * (kind == time.CLOCK_BOOTTIME))

    counted = runpy.run_path(clock.__file__)["SYSTEM_CLOCK"].monotonic()

    assert counted >= time.monotonic() + 999
