"""Groups whose clients compute the assignments: consumers with their own assignor, and other protocol types."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaAdminClient as ForeignAdmin
from kafka import KafkaConsumer as ForeignConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor

from kafkalike import KafkaProducer
from kafkalike.gateway.gateway_server import GatewayServer
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.groups.roster import Roster

Served = tuple[Cluster, str]
Create = Callable[[int], str]


class OwnAssignor(RangePartitionAssignor):  # type: ignore[misc]
    """An assignor that the roster does not have."""

    name = "own"


class Reader:
    """A foreign consumer in a thread."""

    def __init__(self, address: str, name: str) -> None:
        self.read: list[tuple[int, int]] = []
        self._stop = threading.Event()
        self._consumer = ForeignConsumer(
            name,
            bootstrap_servers=address,
            group_id=name,
            partition_assignment_strategy=[OwnAssignor],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
            session_timeout_ms=10_000,
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for records in self._consumer.poll(timeout_ms=100).values():
                self.read += [(r.partition, r.offset) for r in records]
                # A rebalance may have taken the partitions meanwhile; then the next owner reads the records again.
                with contextlib.suppress(Exception):
                    self._consumer.commit()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close(autocommit=False)


def wait_until(cluster: Cluster, group_id: str, met: Callable[[Roster], bool]) -> Roster:
    end = time.monotonic() + 30
    while not met(roster := cluster.groups.refresh().group(group_id).roster):
        assert time.monotonic() < end, roster
        time.sleep(0.02)
    return roster


def stable(members: int) -> Callable[[Roster], bool]:
    return lambda roster: len(roster.members) == members and roster.state.value == "Stable"


@pytest.mark.slow
def test_consumers_with_their_own_assignor_share_a_group_over_two_gateways(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(4)
    second = GatewayServer(cluster)
    second.start()
    readers = [Reader(address, name), Reader(second.bootstrap_servers, name)]
    try:
        roster = wait_until(cluster, name, stable(2))
        with KafkaProducer(bootstrap_servers=cluster) as producer:
            for number in range(40):
                producer.send(name, b"v", partition=number % 4)
        end = time.monotonic() + 30
        while len({at for reader in readers for at in reader.read}) < 40:
            assert time.monotonic() < end
            time.sleep(0.02)

        assert (roster.protocol, roster.protocol_type, bool(roster.led)) == ("own", "consumer", True)
        assert sorted({p for p, _ in readers[0].read} | {p for p, _ in readers[1].read}) == [0, 1, 2, 3]
    finally:
        for reader in readers:
            reader.close()
        second.stop()

    # A member whose connection ends while it joins leaves when its session expires.
    wait_until(cluster, name, lambda roster: not roster.members)
    group = cluster.groups.refresh().group(name)
    assert (group.roster.members, group.roster.led) == ({}, None)
    assert {tp.partition: at.position.offset for tp, at in group.offsets.items()} == {0: 10, 1: 10, 2: 10, 3: 10}


class Worker:
    """A client of protocol type `connect`, as bytes of requests."""

    def __init__(self, address: str, group_id: str, kind: str = "connect", session_ms: int = 10_000) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._group, self._kind, self._session_ms = group_id, kind, session_ms
        self.member_id, self.generation = "", -1

    def send_join(self, metadata: bytes) -> None:
        body = _text(self._group) + struct.pack(">ii", self._session_ms, 60_000)
        body += _text(self.member_id) + _text(self._kind)
        self._send(11, 1, body + struct.pack(">i", 1) + _text("sessioned") + _bytes(metadata))

    def joined(self) -> tuple[int, str, dict[str, bytes]]:
        """Return the error, the leader and the members of the answer to `send_join`."""
        answer = self._answer()
        error, generation = answer.number(">h"), answer.number(">i")
        answer.text()
        leader, member_id = answer.text(), answer.text()
        members = {answer.text(): answer.data() for _ in range(answer.number(">i"))}
        if not error:
            self.member_id, self.generation = member_id, generation
        return error, leader, members

    def send_sync(self, assignments: dict[str, bytes]) -> None:
        items = b"".join(_text(member) + _bytes(data) for member, data in assignments.items())
        self._send(14, 0, self._me() + struct.pack(">i", len(assignments)) + items)

    def synced(self) -> tuple[int, bytes]:
        answer = self._answer()
        return answer.number(">h"), answer.data()

    @property
    def answered(self) -> bool:
        """True if an answer has come within 50 ms."""
        return bool(select.select([self._socket], [], [], 0.05)[0])

    def heartbeat(self) -> int:
        self._send(12, 0, self._me())
        return self._answer().number(">h")

    def close(self) -> None:
        self._socket.close()

    def _me(self) -> bytes:
        return _text(self._group) + struct.pack(">i", self.generation) + _text(self.member_id)

    def _send(self, key: int, version: int, body: bytes) -> None:
        request = struct.pack(">hhih", key, version, 1, -1) + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)

    def _answer(self) -> Answer:
        (size,) = struct.unpack(">i", self._socket.recv(4, socket.MSG_WAITALL))
        return Answer(self._socket.recv(size, socket.MSG_WAITALL))


class Answer:
    """Bytes of an answer, read from the front."""

    def __init__(self, data: bytes) -> None:
        self._bytes, self._at = data, 4

    def number(self, form: str) -> int:
        (found,) = struct.unpack_from(form, self._bytes, self._at)
        self._at += struct.calcsize(form)
        return int(found)

    def text(self) -> str:
        return self._taken(self.number(">h")).decode()

    def data(self) -> bytes:
        return self._taken(self.number(">i"))

    def _taken(self, size: int) -> bytes:
        self._at += size
        return self._bytes[self._at - size : self._at]


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _bytes(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


@pytest.fixture
def other(served: Served) -> Iterator[str]:
    """The address of a second gateway."""
    gateway = GatewayServer(served[0])
    gateway.start()
    yield gateway.bootstrap_servers
    gateway.stop()


def two_joined(served: Served, other: str, group_id: str, session_ms: int = 10_000) -> tuple[Worker, Worker]:
    """A leader at one gateway and a follower at the other, which have joined and have no assignment."""
    cluster, address = served
    leader, follower = (Worker(place, group_id, session_ms=session_ms) for place in (address, other))
    leader.send_join(b"first")
    assert leader.joined() == (0, leader.member_id, {leader.member_id: b"first"})
    leader.send_sync({leader.member_id: b"all"})
    assert leader.synced() == (0, b"all")
    follower.send_join(b"second")
    wait_until(cluster, group_id, lambda roster: len(roster.members) == 2)
    assert leader.heartbeat() == 27
    leader.send_join(b"first")
    assert follower.joined() == (0, leader.member_id, {})
    assert leader.joined() == (
        0,
        leader.member_id,
        {leader.member_id: b"first", follower.member_id: b"second"},
    )
    return leader, follower


@pytest.mark.slow
def test_workers_at_two_gateways_get_the_leaders_assignments(served: Served, other: str, topic: Create) -> None:
    name = topic(1)
    leader, follower = two_joined(served, other, name, session_ms=3000)
    follower.send_sync({})
    leader.send_sync({leader.member_id: b"mine", follower.member_id: b"yours"})
    foreign = ForeignAdmin(bootstrap_servers=other)

    assert (leader.synced(), follower.synced()) == ((0, b"mine"), (0, b"yours"))
    assert (leader.heartbeat(), follower.heartbeat()) == (0, 0)
    assert (name, "connect") in [(g["group_id"], g["protocol_type"]) for g in foreign.list_groups()]
    foreign.close()
    stranger = Worker(other, name, kind="sr")
    stranger.send_join(b"")
    while not stranger.answered:  # it is refused when a member gives a sign of life
        assert (leader.heartbeat(), follower.heartbeat()) == (0, 0)
    assert stranger.joined()[0] == 23
    for worker in (leader, follower, stranger):
        worker.close()


@pytest.mark.slow
def test_follower_leads_when_the_leader_dies_before_it_assigns(served: Served, other: str, topic: Create) -> None:
    name = topic(1)
    leader, follower = two_joined(served, other, name, session_ms=1500)
    leader.close()
    follower.send_sync({})

    assert follower.synced() == (27, b"")
    follower.send_join(b"second")
    assert follower.joined() == (0, follower.member_id, {follower.member_id: b"second"})
    follower.send_sync({follower.member_id: b"all"})
    assert follower.synced() == (0, b"all")
    follower.close()


def test_worker_moves_to_another_gateway_in_its_generation(served: Served, other: str, topic: Create) -> None:
    name = topic(1)
    leader, follower = two_joined(served, other, name)
    moved = Worker(other, name)
    moved.member_id, moved.generation = leader.member_id, leader.generation
    moved.send_sync({leader.member_id: b"mine", follower.member_id: b"yours"})

    assert moved.synced() == (0, b"mine")
    follower.send_sync({})
    assert follower.synced() == (0, b"yours")
    assert moved.heartbeat() == 0
    for worker in (leader, follower, moved):
        worker.close()
