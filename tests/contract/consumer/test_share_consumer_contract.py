"""Share consumers: what each member gets, and what becomes of it; over all clusters."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkalike import (
    AcknowledgeType,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    KafkaShareConsumer,
    OffsetAndMetadata,
    TopicPartition,
    errors,
)
from kafkalike.admin.testing import ManualClock, MemoryCluster
from kafkalike.consumer.share_delivery import ShareReader
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.share_group import ShareGroup
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import ConsumerRecord, MemberToRemove

ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE
REJECT, RENEW = AcknowledgeType.REJECT, AcknowledgeType.RENEW
T0 = TopicPartition("jobs", 0)

Make = Callable[..., KafkaShareConsumer]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000)


@contextlib.contextmanager
def members(cluster: Cluster, clock: ManualClock) -> Iterator[Make]:
    made: list[KafkaShareConsumer] = []

    def make(*topics: str, **settings: Any) -> KafkaShareConsumer:
        usual = {"group_id": "work", "share_auto_offset_reset": "earliest", "session_timeout_ms": 10_000_000}
        made.append(
            KafkaShareConsumer(*topics or ("jobs",), bootstrap_servers=cluster, clock=clock, **{**usual, **settings})
        )
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def member_of(cluster: Cluster, clock: ManualClock) -> Iterator[Make]:
    with members(cluster, clock) as make:
        yield make


@pytest.fixture
def quick_member_of(clock: ManualClock) -> Iterator[tuple[Cluster, Make]]:
    """Members of a cluster in memory, for what the storage has no part in."""
    cluster = MemoryCluster()
    with members(cluster, clock) as make:
        yield cluster, make


def places_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the first offset of each read from now on."""
    read: list[int] = []
    real = ShareReader.read

    def noted(self: ShareReader, *args: Any) -> Any:
        read.append(args[2].first)
        return real(self, *args)

    monkeypatch.setattr(ShareReader, "read", noted)
    return read


def write(cluster: Cluster, *values: bytes, partition: int = 0, headers: Any = None) -> None:
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        for value in values:
            producer.send("jobs", value, partition=partition, headers=headers)


def failing(error: BaseException) -> Callable[..., Any]:
    """A method that is interrupted."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def given(records: list[ConsumerRecord]) -> list[tuple[bytes, int | None]]:
    return [(record.value, record.delivery_count) for record in records]


# --- over all clusters ---------------------------------------------------------------------------


def test_members_share_a_partition_and_finish_it(cluster: Cluster, member_of: Make, clock: ManualClock) -> None:
    cluster.create_topic("jobs", 1, {})
    write(cluster, b"a", b"b", b"c", b"d")
    one, two = member_of(max_poll_records=2), member_of()

    first = one.poll()
    second = two.poll()
    one.acknowledge(first[0])
    one.acknowledge(first[1], RELEASE)
    done = one.commit_sync()
    again = two.poll()
    two.commit()

    assert given(first) == [(b"a", 1), (b"b", 1)]
    assert given(second) == [(b"c", 1), (b"d", 1)]
    assert done == {T0: None}
    assert given(again) == [(b"b", 2)]
    share = cluster.groups.refresh().shares["work"][T0]
    assert (share.start, share.runs) == (4, ())
    assert cluster.groups.state.share_groups == ["work"]
    assert "work" not in cluster.groups.state.consumer_groups


def test_lock_of_a_silent_member_ends(cluster: Cluster, member_of: Make, clock: ManualClock) -> None:
    cluster.create_topic("jobs", 1, {})
    write(cluster, b"a", b"b")
    slow, quick = member_of(), member_of(share_acknowledgement_mode="explicit")
    told: list[tuple[dict[TopicPartition, set[int]], Any]] = []
    slow.set_acknowledgement_commit_callback(lambda offsets, error: told.append((offsets, error)))

    late = slow.poll()
    before = quick.poll()
    clock.seconds += 30
    after = quick.poll()
    slow.acknowledge(late[0])
    refused = slow.commit_sync()
    slow.poll()

    assert given(late) == [(b"a", 1), (b"b", 1)]
    assert before == []
    assert given(after) == [(b"a", 2), (b"b", 2)]
    assert isinstance(refused[T0], errors.InvalidRecordStateError)
    assert [(offsets, type(error)) for offsets, error in told] == [({T0: {0, 1}}, errors.InvalidRecordStateError)]
    for record in after:
        quick.acknowledge(record)


def test_closed_member_gives_its_records_back(cluster: Cluster, member_of: Make) -> None:
    cluster.create_topic("jobs", 1, {})
    write(cluster, b"a", b"b", b"c")
    first = member_of()
    records = first.poll()
    first.acknowledge(records[1])
    first.close()

    assert given(member_of().poll()) == [(b"a", 2), (b"c", 2)]
    assert [m.client_id for m in cluster.groups.refresh().group("work").members.values()] == ["kafkalike"]


# --- acknowledgement -----------------------------------------------------------------------------


@pytest.fixture
def filled(quick_member_of: tuple[Cluster, Make]) -> tuple[Cluster, Make]:
    cluster, make = quick_member_of
    cluster.create_topic("jobs", 1, {})
    write(cluster, b"a", b"b", b"c")
    return cluster, make


def test_next_poll_accepts_in_implicit_mode(filled: tuple[Cluster, Make]) -> None:
    cluster, make = filled
    consumer = make(max_poll_records=2)
    polls = [given(consumer.poll()) for _ in range(3)]
    assert polls == [[(b"a", 1), (b"b", 1)], [(b"c", 1)], []]
    assert cluster.groups.refresh().shares["work"][T0].start == 3


def test_poll_with_open_records_is_refused_in_explicit_mode(filled: tuple[Cluster, Make]) -> None:
    consumer = filled[1](share_acknowledgement_mode="explicit")
    records = consumer.poll()
    consumer.acknowledge(records[0])
    with pytest.raises(errors.IllegalStateError, match="jobs-0 @ 1 was not acknowledged"):
        consumer.poll()
    consumer.acknowledge(records[1], REJECT)
    consumer.acknowledge_offset("jobs", 0, 2, RELEASE)
    assert given(consumer.poll()) == [(b"c", 2)]


def test_released_record_is_archived_after_its_last_delivery(filled: tuple[Cluster, Make]) -> None:
    consumer = filled[1](share_delivery_count_limit=3, max_poll_records=1)
    seen = []
    for _ in range(4):
        record = consumer.poll()[0]
        seen.append((record.value, record.delivery_count))
        consumer.acknowledge(record, RELEASE)
    assert seen == [(b"a", 1), (b"a", 2), (b"a", 3), (b"b", 1)]


def test_renewed_record_stays_locked(filled: tuple[Cluster, Make], clock: ManualClock) -> None:
    cluster, make = filled
    worker, other = make(max_poll_records=1), make()
    record = worker.poll()[0]
    clock.seconds += 20
    worker.acknowledge(record, RENEW)
    assert worker.commit_sync() == {T0: None}
    clock.seconds += 20
    others = given(other.poll())
    worker.acknowledge(record)
    assert worker.commit_sync() == {T0: None}
    other.commit()
    assert others == [(b"b", 1), (b"c", 1)]
    assert cluster.groups.refresh().shares["work"][T0].start == 3


def test_release_with_delay_waits(filled: tuple[Cluster, Make], clock: ManualClock) -> None:
    consumer = filled[1](max_poll_records=1)
    consumer.acknowledge(consumer.poll()[0], RELEASE, delay_ms=5_000)
    order = [given(consumer.poll()), given(consumer.poll()), given(consumer.poll())]
    waited = given(consumer.poll(timeout_ms=60_000))
    assert order == [[(b"b", 1)], [(b"c", 1)], []]
    assert waited == [(b"a", 2)]
    assert clock.seconds < 1_700_000_006.5


def test_unknown_record_cannot_be_acknowledged(filled: tuple[Cluster, Make]) -> None:
    consumer = filled[1]()
    record = consumer.poll()[0]
    consumer.commit()
    with pytest.raises(errors.IllegalStateError, match="jobs-0 @ 0 cannot be acknowledged"):
        consumer.acknowledge(record)


def test_late_acknowledgement_counts_if_nobody_took_the_record(
    filled: tuple[Cluster, Make], clock: ManualClock
) -> None:
    consumer = filled[1]()
    consumer.poll()
    clock.seconds += 3600
    assert consumer.commit_sync() == {T0: None}


# --- interrupts and failures ---------------------------------------------------------------------


def test_records_of_an_interrupted_poll_come_with_the_next_one(
    filled: tuple[Cluster, Make], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were locked, and the application never got them: the delivery does not count."""
    cluster, make = filled
    consumer = make()
    with monkeypatch.context() as patch:
        patch.setattr(ShareReader, "read", failing(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            consumer.poll()
    locked = cluster.groups.refresh().shares["work"][T0].runs
    assert [(run.first, run.last, run.state.name) for run in locked] == [(0, 2, "ACQUIRED")]
    assert given(consumer.poll()) == [(b"a", 1), (b"b", 1), (b"c", 1)]


def test_records_that_cannot_be_read_stay_in_the_queue(
    filled: tuple[Cluster, Make], monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = filled[1](share_delivery_count_limit=2)
    with monkeypatch.context() as patch:
        patch.setattr(ShareReader, "read", failing(errors.CorruptRecordError("a damaged file")))
        for _ in range(3):
            with pytest.raises(errors.CorruptRecordError):
                consumer.poll()
    assert given(consumer.poll()) == [(b"a", 1), (b"b", 1), (b"c", 1)]


def test_interrupted_commit_can_be_repeated(filled: tuple[Cluster, Make], monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, make = filled
    consumer = make()
    consumer.poll()
    with monkeypatch.context() as patch:
        patch.setattr(ShareGroup, "exchange", failing(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            consumer.commit_sync()
    assert consumer.commit_sync() == {T0: None}
    assert cluster.groups.refresh().shares["work"][T0].start == 3


def test_member_whose_session_expired_keeps_its_locks(filled: tuple[Cluster, Make], clock: ManualClock) -> None:
    cluster, make = filled
    consumer = make(session_timeout_ms=10_000, heartbeat_interval_ms=3_000, max_poll_interval_ms=5_000)
    consumer.poll(max_records=1)
    member = consumer.share_group_metadata().member_id
    with KafkaAdminClient(bootstrap_servers=cluster) as admin:
        admin.remove_group_members("work", [MemberToRemove(member_id=member)])
    again = given(consumer.poll())
    assert again == [(b"b", 1), (b"c", 1)]
    assert list(cluster.groups.refresh().group("work").members) == [member]
    assert cluster.groups.state.shares["work"][T0].start == 1


def test_consumer_belongs_to_one_thread_and_process(filled: tuple[Cluster, Make]) -> None:
    consumer = filled[1]()
    consumer.close()
    consumer.close()
    with pytest.raises(errors.IllegalStateError, match="KafkaShareConsumer is closed"):
        consumer.poll()
    with pytest.raises(TypeError, match="a KafkaShareConsumer cannot be pickled"):
        pickle.dumps(consumer)


# --- where a group starts ------------------------------------------------------------------------

STARTS = {"latest": [], "earliest": [b"a", b"b", b"c"], "by_duration:PT1H": [b"b", b"c"], "by_duration:PT1S": []}


@pytest.mark.parametrize(("reset", "values"), STARTS.items(), ids=STARTS)
def test_new_group_starts_where_its_setting_says(
    quick_member_of: tuple[Cluster, Make], clock: ManualClock, reset: str, values: list[bytes]
) -> None:
    cluster, make = quick_member_of
    cluster.create_topic("jobs", 1, {})
    now = clock.now_ms()
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        for value, minutes in ((b"a", 90), (b"b", 30), (b"c", 10)):
            producer.send("jobs", value, timestamp_ms=now - minutes * 60_000)
    consumer = make(share_auto_offset_reset=reset)
    old = [record.value for record in consumer.poll()]
    write(cluster, b"new")
    assert [*old, *(record.value for record in consumer.poll())] == [*values, b"new"]


def test_added_partition_is_read_from_its_beginning(quick_member_of: tuple[Cluster, Make]) -> None:
    cluster, make = quick_member_of
    cluster.create_topic("jobs", 1, {})
    consumer = make(share_auto_offset_reset="latest")
    assert consumer.poll() == []
    cluster.add_partitions("jobs", 2)
    write(cluster, b"early", partition=1)
    assert given(consumer.poll()) == [(b"early", 1)]


def test_recreated_topic_starts_anew(filled: tuple[Cluster, Make]) -> None:
    cluster, make = filled
    consumer = make()
    consumer.poll()
    cluster.delete_topic("jobs")
    cluster.create_topic("jobs", 1, {})
    write(cluster, b"new")
    assert given(consumer.poll()) == [(b"new", 1)]


def test_deleted_topic_has_no_records(filled: tuple[Cluster, Make], caplog: pytest.LogCaptureFixture) -> None:
    cluster, make = filled
    consumer = make()
    records = consumer.poll()
    cluster.delete_topic("jobs")
    assert [len(records), consumer.poll(), consumer.poll(timeout_ms=10)] == [3, [], []]
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "topic jobs does not exist; waiting for it"
    ]


# --- scheduled records ---------------------------------------------------------------------------


def test_scheduled_record_is_delivered_at_its_time(filled: tuple[Cluster, Make], clock: ManualClock) -> None:
    cluster, make = filled
    write(cluster, b"later", headers=[("deliver_at", str(clock.now_ms() + 60_000).encode())])
    write(cluster, b"d")
    consumer = make()
    now = [record.value for _ in range(3) for record in consumer.poll()]
    clock.seconds += 59
    early = consumer.poll()
    clock.seconds += 1
    assert now == [b"a", b"b", b"c", b"d"]
    assert early == []
    assert given(consumer.poll()) == [(b"later", 1)]


# --- wrong calls ---------------------------------------------------------------------------------


def test_record_that_cannot_be_deserialized_is_retried_and_archived(quick_member_of: tuple[Cluster, Make]) -> None:
    cluster, make = quick_member_of
    cluster.create_topic("jobs", 1, {})
    write(cluster, b"1", b"x", b"3")
    consumer = make(value_deserializer=int, share_delivery_count_limit=2)
    seen: list[object] = []
    for _ in range(6):
        try:
            seen += [record.value for record in consumer.poll()]
        except errors.RecordDeserializationError as error:
            seen.append(error.offset)
    assert seen == [1, 1, 1, 3]


def test_consumer_of_another_kind_is_refused(filled: tuple[Cluster, Make], clock: ManualClock) -> None:
    cluster, make = filled
    make().poll()
    other = KafkaConsumer("jobs", bootstrap_servers=cluster, group_id="work", clock=clock)
    assert other.poll() == {}
    assert [m.client_id for m in cluster.groups.refresh().group("work").members.values()] == ["kafkalike"]
    other.close()


def test_group_id_of_a_share_group_is_refused_to_consumers(filled: tuple[Cluster, Make]) -> None:
    cluster, make = filled
    make().close()
    with make() as worker:
        worker.poll()
    admin = KafkaAdminClient(bootstrap_servers=cluster)
    with (
        KafkaConsumer("jobs", bootstrap_servers=cluster, group_id="work", enable_auto_commit=False) as member,
        KafkaConsumer(bootstrap_servers=cluster, group_id="work", enable_auto_commit=False) as alone,
        KafkaProducer(bootstrap_servers=cluster, transactional_id="t") as producer,
    ):
        with pytest.raises(errors.GroupIdNotFoundError, match="'work' is a share group, not a consumer group"):
            member.poll()
        with pytest.raises(errors.GroupIdNotFoundError, match="'work' is a share group"):
            alone.commit({T0: OffsetAndMetadata(1, "", -1)})
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1, "", -1)}, "work")
        with pytest.raises(errors.GroupIdNotFoundError, match="'work' is a share group"):
            producer.commit_transaction()
        producer.abort_transaction()
    altered = admin.alter_group_offsets("work", {T0: OffsetAndMetadata(1, "", -1)})
    assert altered == {T0: errors.GroupIdNotFoundError}
    group = cluster.groups.refresh().group("work")
    assert (len(group.offsets), len(group.members)) == (0, 0)


def test_group_id_of_a_consumer_group_is_refused_to_share_consumers(filled: tuple[Cluster, Make]) -> None:
    cluster, make = filled
    admin = KafkaAdminClient(bootstrap_servers=cluster)
    admin.alter_group_offsets("work", {T0: OffsetAndMetadata(1, "", -1)})
    worker = make()
    with pytest.raises(errors.GroupIdNotFoundError, match="'work' is a consumer group, not a share group"):
        worker.poll()
    assert cluster.groups.refresh().share_groups == []
    admin.delete_groups(["work"])
    assert given(worker.poll()) == [(b"a", 1), (b"b", 1), (b"c", 1)]


WRONG = {
    "no group": ({"group_id": None}, "needs the setting 'group_id'"),
    "unknown setting": ({"share_acknowledgment_mode": "implicit"}, "did you mean 'share_acknowledgement_mode'"),
    "bad mode": ({"share_acknowledgement_mode": "both"}, "one of 'implicit', 'explicit'"),
    "bad duration": ({"share_auto_offset_reset": "by_duration:12h"}, "PT12H is needed, not '12h'"),
    "empty duration": ({"share_auto_offset_reset": "by_duration:P"}, "PT12H is needed, not 'P'"),
    "bad limit": ({"share_delivery_count_limit": 0}, "from 1"),
    "heartbeat above session": ({"session_timeout_ms": 5_000}, "must be below 'session_timeout_ms'"),
}


@pytest.mark.parametrize(("settings", "words"), WRONG.values(), ids=WRONG)
def test_wrong_setting_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.KafkaConfigurationError, match=words):
        KafkaShareConsumer("jobs", bootstrap_servers=MemoryCluster(), **{"group_id": "g", **settings})


# --- records of one acquisition for several polls --------------------------------------------------


class CostlyClock(ManualClock):
    """Each look at the monotonic clock takes a moment, so an acquisition costs more than an idle application."""

    step = 0.001

    def monotonic(self) -> float:
        self.seconds += self.step
        return super().monotonic()


def test_fast_application_gets_several_polls_from_one_acquisition() -> None:
    cluster, clock = MemoryCluster(), CostlyClock(1_700_000_000)
    cluster.create_topic("jobs", 1, {})
    write(cluster, *(b"%d" % n for n in range(200)))
    with members(cluster, clock) as make:
        consumer = make(max_poll_records=10)
        polls = [len(consumer.poll()) for _ in range(20)]
        before = cluster.groups.look()[0]
        assert consumer.poll() == []
    assert polls == [10] * 20
    assert before < 15
    assert cluster.groups.refresh().shares["work"][T0].start == 200


def test_slow_application_acquires_only_records_that_it_takes_before_the_next_acquisition() -> None:
    """A worker that dies then counts few deliveries of records that the application never got."""
    cluster, clock = MemoryCluster(), CostlyClock(1_700_000_000)
    cluster.create_topic("jobs", 1, {})
    write(cluster, *(b"%d" % n for n in range(600)))
    clock.step = 0.02  # as in a crowd: an acquisition takes as long as the work
    with members(cluster, clock) as make:
        consumer = make(max_poll_records=10)
        waiting = []
        for nth in range(1, 21):
            assert len(consumer.poll()) == 10
            waiting.append(cluster.groups.refresh().shares["work"][T0].end - 10 * nth)
            clock.seconds += 0.1
    assert max(waiting) <= 20


def test_record_limit_acquires_what_one_poll_returns() -> None:
    cluster, clock = MemoryCluster(), CostlyClock(1_700_000_000)
    cluster.create_topic("jobs", 1, {})
    write(cluster, *(b"%d" % n for n in range(50)))
    with members(cluster, clock) as make:
        consumer = make(max_poll_records=10, share_acquire_mode="record_limit")
        for nth in range(1, 6):
            assert len(consumer.poll()) == 10
            assert cluster.groups.refresh().shares["work"][T0].end == 10 * nth


def test_records_that_waited_too_long_in_a_consumer_are_returned_uncounted() -> None:
    cluster, clock = MemoryCluster(), CostlyClock(1_700_000_000)
    cluster.create_topic("jobs", 1, {})
    write(cluster, *(b"%d" % n for n in range(100)))
    with members(cluster, clock) as make:
        consumer, other = make(max_poll_records=10), make(share_acquire_mode="record_limit")
        got = [int(record.value or b"") for _ in range(2) for record in consumer.poll()]
        clock.seconds += 1
        later = consumer.poll()
        consumer.close()
        rest = other.poll()
    assert got == [*range(20)]
    assert given(later) == [(b"%d" % n, 1) for n in range(20, 30)]
    assert given(rest) == [*((b"%d" % n, 2) for n in range(20, 30)), *((b"%d" % n, 1) for n in range(30, 100))]


# --- scheduled records by file statistics -----------------------------------------------------------


def test_poll_does_not_read_files_whose_records_are_not_due(
    cluster: Cluster, member_of: Make, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("jobs", 1, {})
    now = int(clock.seconds * 1000)

    def at(later_ms: int) -> list[tuple[str, bytes]]:
        return [("deliver_at", str(now + later_ms).encode())]

    write(cluster, b"late", b"later", headers=at(60_000))
    write(cluster, b"now")
    write(cluster, b"soon", headers=at(1_000))
    read = places_read(monkeypatch)
    consumer = member_of()

    first = given(consumer.poll())
    places, runs = list(read), cluster.groups.refresh().shares["work"][T0].runs
    clock.seconds += 1
    soon = given(consumer.poll())
    clock.seconds += 60
    late = given(consumer.poll())

    assert first == [(b"now", 1)]
    assert places == [2]
    assert [(run.first, run.last, run.until_ms - now) for run in runs if run.until_ms > now + 30_000] == [
        (0, 1, 60_000)
    ]
    assert soon == [(b"soon", 1)]
    assert late == [(b"late", 1), (b"later", 1)]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_million_scheduled_records_neither_grow_the_state_nor_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, clock = MemoryCluster(), ManualClock(1_700_000_000)
    cluster.create_topic("jobs", 1, {})
    log, files = cluster.log("jobs"), 2_000
    for nth in range(files):
        batch = RecordBatch()
        for _ in range(500):
            batch.add(0, None, b"late", 0, [("deliver_at", b"%d" % (clock.now_ms() + 60_000 + 7 * nth))])
        log.append(batch)
    write(cluster, b"now")
    read = places_read(monkeypatch)
    with members(cluster, clock) as make:
        consumer = make()
        first = given(consumer.poll())
        consumer.commit()
        size, version = len(cluster.groups.rows[-1].value), cluster.groups.version
        clock.seconds += 30
        idle = [consumer.poll() for _ in range(10)]
        reads, after = list(read), cluster.groups.look()[0]
        clock.seconds += 45
        late = given(consumer.poll())
    assert first == [(b"now", 1)]
    assert reads == [500 * files]
    assert idle == [[]] * 10
    assert after == version
    assert size < 30_000
    assert late == [(b"late", 1)] * 500


def test_producer_schedules_a_record() -> None:
    cluster, clock = MemoryCluster(), ManualClock(1_700_000_000)
    cluster.create_topic("jobs", 1, {})
    at = clock.now_ms() + 60_000
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        producer.send("jobs", b"later", headers=[("a", b"b")], deliver_at_ms=at)
        with pytest.raises(errors.IllegalArgumentError, match="either deliver_at_ms or the header"):
            producer.send("jobs", b"x", headers=[("deliver_at", b"1")], deliver_at_ms=at)
        with pytest.raises(errors.IllegalArgumentError, match="from 0 to"):
            producer.send("jobs", b"x", deliver_at_ms=-1)
        with pytest.raises(TypeError, match="whole number of ms"):
            producer.send("jobs", b"x", deliver_at_ms=1.5)  # type: ignore[arg-type]
    with members(cluster, clock) as make:
        consumer = make()
        early = consumer.poll()
        clock.seconds += 60
        (record,) = consumer.poll()
    assert early == []
    assert list(record.headers) == [("a", b"b"), ("deliver_at", str(at).encode())]
