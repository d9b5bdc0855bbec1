"""The heartbeat thread and the leases: heartbeats while the application works, and what happens without them."""

import contextlib
import gc
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalike.admin.testing import MemoryCluster
from kafkalike.connect import connect
from kafkalike.consumer import KafkaConsumer
from kafkalike.errors import CommitFailedError, KafkaStorageError, KafkaTimeoutError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.member import GroupMember, HeartbeatThread
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.group_rows import roster_row
from kafkalike.model.group_state import GroupsState
from kafkalike.model.groups.roster import Roster
from kafkalike.model.groups.sessions import Leases
from kafkalike.model.structs import GroupState, OffsetAndMetadata, TopicPartition
from kafkalike.storage.leases import LocalLeases, MemoryLeases
from kafkalike.storage.table_lock import TableLock
from tests.tools.interrupts import Interrupt, Spot, visits

T0 = TopicPartition("t", 0)


def await_that(holds: Callable[[], bool]) -> None:
    """Wait for what must come; only a broken heartbeat takes so long."""
    deadline = Deadline(SYSTEM_CLOCK, 30_000)
    while not holds():
        assert not deadline.expired()
        SYSTEM_CLOCK.sleep(0.005)


def member(cluster: Cluster, **settings: object) -> KafkaConsumer:
    """A consumer on the machine's clock that has joined."""
    quick = {"group_id": "g", "heartbeat_interval_ms": 30, "session_timeout_ms": 400, **settings}
    consumer = KafkaConsumer("t", bootstrap_servers=cluster, **quick)  # type: ignore[arg-type]
    await_that(lambda: consumer.poll() == {} and bool(cluster.groups.refresh().group("g").members))
    return consumer


def test_a_heartbeat_comes_less_often_where_it_costs_money(cluster: Cluster) -> None:
    """Others in the group know how often; what the user says counts. The session is Kafka's everywhere."""
    cluster.create_topic("t", 1, {})
    far = cluster.store.scheduler.is_remote
    with (
        KafkaConsumer("t", bootstrap_servers=cluster, group_id="g", client_id="default") as consumer,
        KafkaConsumer(
            "t", bootstrap_servers=cluster, group_id="g", client_id="given", heartbeat_interval_ms=2500
        ) as asked,
    ):
        consumer.poll()
        asked.poll()
        roster = cluster.groups.refresh().group("g").roster

        assert consumer.config.heartbeat_interval_ms == (10_000 if far else 3000)
        assert consumer.config.session_timeout_ms == 45_000
        assert {m.client_id: m.heartbeat_interval_ms for m in roster} == {
            "default": 10_000 if far else 3000,
            "given": 2500,
        }


def heartbeats() -> set[threading.Thread]:
    """Those that run; one of a consumer that an earlier test has left ends when its interval is over."""
    return {thread for thread in threading.enumerate() if thread.name == "kafkalike-heartbeat"}


@pytest.mark.slow
def test_a_member_lives_while_its_application_works(cluster: Cluster) -> None:
    """It does not poll, for longer than its session, and another member looks at it all the time."""
    cluster.create_topic("t", 1, {})
    with member(cluster, client_id="a") as busy, member(cluster, client_id="b") as other:
        stamps: set[int] = set()

        def watch() -> bool:
            other.poll()
            stamps.update(cluster.leases.read("g", [busy.group_metadata().member_id]).values())
            return len(stamps) > 20

        await_that(watch)

        assert len(cluster.groups.refresh().group("g").members) == 2
        busy.commit({T0: OffsetAndMetadata(0)})


def test_a_member_whose_application_hangs_leaves(cluster: Cluster) -> None:
    """max_poll_interval_ms passes: the thread leaves in its name, and a commit is refused."""
    cluster.create_topic("t", 1, {})
    with member(cluster, max_poll_interval_ms=100) as hanging:
        await_that(lambda: cluster.groups.refresh().group("g").state is GroupState.EMPTY)

        with pytest.raises(CommitFailedError):
            hanging.commit({T0: OffsetAndMetadata(0)})


@pytest.mark.slow
def test_a_consumer_that_is_forgotten_without_close_dies(cluster: Cluster) -> None:
    """Its thread does not keep it alive, so its session ends and its partitions go to others."""
    cluster.create_topic("t", 1, {})
    before = heartbeats()
    forgotten = member(cluster, session_timeout_ms=2000)
    (its_own,) = heartbeats() - before

    del forgotten
    gc.collect()
    await_that(lambda: not its_own.is_alive())

    with member(cluster) as successor:
        await_that(lambda: successor.poll() == {} and successor.assignment() == {T0})


def test_closing_ends_the_thread(cluster: Cluster) -> None:
    """And its lease is gone with it."""
    cluster.create_topic("t", 1, {})
    before = heartbeats()
    consumer = member(cluster, session_timeout_ms=10_000)
    name = consumer.group_metadata().member_id
    (its_own,) = heartbeats() - before

    consumer.close()

    assert not its_own.is_alive()
    assert heartbeats() <= before
    assert cluster.leases.read("g", [name]) == {}


def _run(whose: GroupMember | None, act: str, interrupt: Interrupt) -> list[Spot]:
    """The places of a heartbeat's beginning, or of its end."""
    pacemaker = HeartbeatThread(whose, SYSTEM_CLOCK)
    if act == "stop":
        pacemaker.start()
    interrupt.run(getattr(pacemaker, act))
    if act == "start":
        pacemaker.stop()
    return interrupt.places


@pytest.mark.parametrize("interrupted", ["start", "stop"])
def test_an_interrupt_at_any_line_leaves_a_heartbeat_that_can_begin_and_end(interrupted: str) -> None:
    """It would be missed only when the session is over; and `close` must not fail for want of a thread."""
    cluster = MemoryCluster()
    cluster.create_topic("t", 1, {})
    consumer = member(cluster)
    whose = consumer._context.member
    places = [*visits(_run(whose, interrupted, Interrupt(None, KeyboardInterrupt))), None]

    for place in places:
        before = heartbeats()
        pacemaker = HeartbeatThread(whose, SYSTEM_CLOCK)
        if interrupted == "stop":
            pacemaker.start()
        with contextlib.suppress(KeyboardInterrupt):
            Interrupt(place, KeyboardInterrupt).run(getattr(pacemaker, interrupted))

        pacemaker.start()
        running = pacemaker.running
        await_that(lambda before=before: len(heartbeats() - before) == 1)  # type: ignore[misc]
        pacemaker.stop()

        assert running, place
        await_that(lambda before=before: heartbeats() <= before)  # type: ignore[misc]
    assert len(places) > 5
    consumer.close()


# --- leases ----------------------------------------------------------------------------------


@pytest.fixture(params=["local", "memory"])
def leases(request: pytest.FixtureRequest, tmp_path: Path) -> Leases:
    if request.param == "local":
        return LocalLeases(str(tmp_path / "leases"))
    return MemoryLeases(SYSTEM_CLOCK.now_ms)


def test_a_lease_says_when_its_member_lived_last(leases: Leases) -> None:
    """Each heartbeat is later than the one before; who never gave one is missing; ids may hold anything."""
    odd = "a/b\0c ü" + "x" * 300

    leases.renew("g", odd)
    leases.renew("g", "b")
    first = leases.read("g", [odd, "b", "c"])
    SYSTEM_CLOCK.sleep(0.02)  # the clock of a file system may tick in steps of some ms
    leases.renew("g", odd)
    second = leases.read("g", [odd, "b"])

    assert first.keys() == {odd, "b"}
    assert second[odd] > first[odd]
    assert second["b"] == first["b"]
    assert leases.read("h", [odd]) == {}


def test_heartbeat_does_not_create_a_root_again_that_has_vanished(tmp_path: Path) -> None:
    """Its disk may be unmounted."""
    root = tmp_path / "root"
    leases = LocalLeases(str(root / "leases"))
    leases.renew("g", "a")
    shutil.rmtree(root)

    with pytest.raises(KafkaStorageError, match="cannot be written"):
        leases.renew("g", "a")
    assert not root.exists()


def test_a_dropped_lease_is_gone(leases: Leases) -> None:
    """Dropping what is not there does nothing."""
    leases.renew("g", "a")

    leases.drop("g", "a")
    leases.drop("g", "a")
    leases.drop("g", "b")

    assert leases.read("g", ["a"]) == {}


# --- a lock whose holder does nothing ----------------------------------------------------------


@pytest.mark.slow
def test_groups_go_on_while_a_stopped_process_holds_their_lock(root: str) -> None:
    """The version's file decides, not the lock, also for one who comes new; changes of topics do wait."""
    cluster = connect(root)
    assert isinstance(cluster, Cluster)
    cluster.create_topic("t", 1, {})

    def plan(state: GroupsState) -> list[object]:
        return [roster_row(state.seq + 1, "g", Roster(generation=state.seq + 1))]

    cluster.groups.transact(plan)  # type: ignore[arg-type]
    with (
        TableLock(f"{root}/__locks", "__consumer_offsets").held(),
        TableLock(f"{root}/__locks", "__cluster_metadata").held(),
    ):
        for _ in range(2):
            cluster.groups.transact(plan)  # type: ignore[arg-type]
        connect(root).groups.transact(plan, 20_000)  # type: ignore[arg-type]
        with pytest.raises(KafkaTimeoutError):
            cluster.groups.transact(plan, 0)  # type: ignore[arg-type]
        with pytest.raises(KafkaTimeoutError):
            cluster.metadata.transact(lambda _: [], 50)

    assert connect(root).groups.refresh().seq == 4
