"""A backup restored below open clients: what these knew is gone, and nothing they do may damage what is there."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from kafkalike import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic, TopicPartition
from kafkalike.connect import connect
from kafkalike.errors import KafkaError, LogCorruptError
from kafkalike.model.structs import OffsetAndMetadata
from kafkalike.schemas import Registry, Schema
from tests.tools.findings import errors_of

T0 = TopicPartition("t", 0)
SCHEMA = '{"type": "record", "name": "%s", "fields": []}'


class Clients:
    """One of each kind, all of which have seen and done more than the backup has."""

    def __init__(self, root: str, stack: ExitStack) -> None:
        self.root = root
        self.admin = KafkaAdminClient(bootstrap_servers=root)
        self.admin.create_topics([NewTopic("t", num_partitions=1)])
        self.registry = Registry(root)
        self.cluster = connect(root, access="spark")
        self.producer = stack.enter_context(KafkaProducer(bootstrap_servers=root))
        self.copier = stack.enter_context(KafkaProducer(bootstrap_servers=root, transactional_id="tx"))
        self.copier.init_transactions()
        self.reader = stack.enter_context(KafkaConsumer(bootstrap_servers=root, group_id="alone"))
        self.reader.assign([T0])
        self.member = stack.enter_context(
            KafkaConsumer("t", bootstrap_servers=root, group_id="members", auto_offset_reset="earliest")
        )
        self.count, self.copying = 0, False
        self.work()

    def work(self) -> None:
        """Each of them does something."""
        self.count += 1
        self.send()
        self.commit_alone()
        self.member.poll(100)
        self.commit_as_member()
        self.transact()
        self.create()
        self.configure()
        self.register()

    def send(self) -> None:
        self.producer.send("t", b"%d" % self.count).get(10)

    def commit_alone(self) -> None:
        self.reader.commit({T0: OffsetAndMetadata(1, f"{self.count}")})

    def commit_as_member(self) -> None:
        self.member.commit()

    def transact(self) -> None:
        if self.copying:
            # A commit whose outcome was an error is called again.
            self.copier.commit_transaction()
        self.copier.begin_transaction()
        self.copying = True
        self.copier.send("t", b"x%d" % self.count)
        self.copier.send_offsets_to_transaction({T0: OffsetAndMetadata(0, f"{self.count}")}, "copied")
        self.copier.commit_transaction()
        self.copying = False

    def create(self) -> None:
        self.admin.create_topics([NewTopic(f"t{self.count}", num_partitions=1)])

    def configure(self) -> None:
        self.cluster.set_configs("t", {"retention.ms": str(1_000_000_000 + self.count)})

    def register(self) -> None:
        self.registry.register_schema(f"s{self.count}", Schema(SCHEMA % f"S{self.count}"))


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[Clients]:
    """They are open across the whole test."""
    with ExitStack() as stack:
        made = Clients(str(tmp_path / "root"), stack)
        yield made
        with suppress(LogCorruptError):
            made.member.close(autocommit=False)


def restore(root: str, backup: Path) -> None:
    """As an operator does it, who has forgotten to stop the clients."""
    shutil.rmtree(root)
    shutil.copytree(backup, root)


ACTS: dict[str, Callable[[Clients], Any]] = {
    "commit": Clients.commit_alone,
    "commit as member": Clients.commit_as_member,
    "transaction": Clients.transact,
    "create": Clients.create,
    "configure": Clients.configure,
    "register": Clients.register,
}


@pytest.mark.slow
@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_open_client_over_a_restored_backup_is_refused_and_breaks_nothing(
    clients: Clients, tmp_path: Path, act: Callable[[Clients], Any]
) -> None:
    root = clients.root
    backup = tmp_path / "backup"
    shutil.copytree(root, backup)
    clients.work()
    clients.work()
    restore(root, backup)

    clients.count = 9
    for _ in range(2):
        with pytest.raises(
            LogCorruptError, match=r"version \d+, which this client has seen, is gone.*Restart this client"
        ):
            act(clients)

    assert errors_of(root) == []
    with KafkaConsumer(bootstrap_servers=root, group_id="alone") as fresh:
        fresh.assign([T0])
        assert fresh.committed(T0) == 1
        fresh.commit({T0: OffsetAndMetadata(2, "")})
        assert fresh.committed(T0) == 2
    KafkaAdminClient(bootstrap_servers=root).create_topics([NewTopic("new", num_partitions=1)])
    assert Registry(root).register_schema("new", Schema(SCHEMA % "New")) == 2
    assert errors_of(root) == []


@pytest.mark.slow
def test_open_producer_over_a_restored_backup_goes_on_at_its_log_end(clients: Clients, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    shutil.copytree(clients.root, backup)
    before = connect(clients.root, access="spark").log("t").log_end(0)
    clients.work()
    restore(clients.root, backup)

    assert clients.producer.send("t", b"next").get(10).offset == before
    assert errors_of(clients.root) == []


@pytest.mark.slow
def test_several_clients_at_once_over_a_restored_backup_leave_no_gap(clients: Clients, tmp_path: Path) -> None:
    """None takes what another one has just put for proof that its own version has a predecessor."""
    root, backup = clients.root, tmp_path / "backup"
    shutil.copytree(root, backup)
    others = [KafkaConsumer(bootstrap_servers=root, group_id=f"g{n}") for n in range(3)]
    for nth, one in enumerate(others):
        one.assign([T0])
        one.commit({T0: OffsetAndMetadata(nth, "")})
    for one in others:
        one.committed(T0)
    restore(root, backup)

    for one in others:
        with pytest.raises(KafkaError):
            one.commit({T0: OffsetAndMetadata(1, "")})

    assert errors_of(root) == []
    with KafkaConsumer(bootstrap_servers=root, group_id="new") as fresh:
        fresh.assign([T0])
        fresh.commit({T0: OffsetAndMetadata(1, "")})
        assert fresh.committed(T0) == 1
    for one in others:
        one.close(autocommit=False)


@pytest.mark.slow
def test_backup_that_is_restored_between_a_look_and_its_commit_gets_no_gap(
    clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version that was put has no predecessor: it is taken back, and the client is refused or goes on anew."""
    root, backup = clients.root, tmp_path / "backup"
    shutil.copytree(root, backup)
    end = connect(root, access="spark").log("t").log_end(0)
    clients.work()
    due = [True]

    def once(name: str) -> None:
        if name == "commit.before" and due.pop():
            due.append(False)
            restore(root, backup)

    monkeypatch.setattr("kafkalike.model.faults.point", once)

    with pytest.raises(LogCorruptError, match="Restart this client"):
        clients.commit_alone()
    assert errors_of(root) == []
    clients.send()
    due[:] = [True]
    assert clients.producer.send("t", b"next").get(10).offset == end
    assert errors_of(root) == []
