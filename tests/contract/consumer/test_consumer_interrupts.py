"""An interrupt on any line of the consumer's code: the application loses no record, and commits none it has not got."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkalike.admin.testing import ManualClock, MemoryCluster
from kafkalike.consumer import ConsumerRebalanceListener, KafkaConsumer
from kafkalike.errors import FencedInstanceIdError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import TopicPartition
from tests.tools.effort import examples
from tests.tools.interrupts import interrupted

CODE = ("kafkalike/consumer/", "kafkalike/log/group/")
T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
WRITTEN = {T0: [b"a0", b"a1", b"a2"], T1: [b"b0", b"b1", b"b2"]}

STEP = examples(1, 5)
"""One of so many places is interrupted."""


def filled() -> Cluster:
    cluster = MemoryCluster()
    cluster.create_topic("orders", 2, {})
    for tp, values in WRITTEN.items():
        batch = RecordBatch()
        for value in values:
            batch.add(tp.partition, None, value, 1000)
        cluster.log("orders").append(batch)
    return cluster


Got = dict[TopicPartition, list[Any]]


def by_poll(consumer: KafkaConsumer, got: Got) -> None:
    for tp, records in consumer.poll(max_records=4).items():
        got[tp] += [record.value for record in records]


def by_arrow(consumer: KafkaConsumer, got: Got) -> None:
    table = consumer.poll_arrow(max_records=4)
    if table is not None:
        for row in table.to_pylist():
            got[TopicPartition(row["topic"], row["partition"])].append(row["value"])


def by_iteration(consumer: KafkaConsumer, got: Got) -> None:
    record = next(consumer, None)
    if record is not None:
        got[TopicPartition(record.topic, record.partition)].append(record.value)


class Told(ConsumerRebalanceListener):
    """Remembers of which partitions it was told at last."""

    def __init__(self) -> None:
        self.held: set[TopicPartition] = set()

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.held -= revoked

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.held |= assigned


class Application:
    """A consumer that reads in one way, and what the application got from it."""

    def __init__(self, take: Callable[[KafkaConsumer, Got], None], **configs: Any) -> None:
        self.listener, self.got = Told(), {tp: list[Any]() for tp in WRITTEN}
        self.consumer = KafkaConsumer(
            bootstrap_servers=filled(),
            auto_offset_reset="earliest",
            clock=ManualClock(),
            consumer_timeout_ms=0,
            **configs,
        )
        self.consumer.subscribe(["orders"], listener=self.listener)
        self._take = take

    def take(self) -> None:
        """What a call puts into `got` it has returned: an interrupt is only inside the consumer's own code."""
        self._take(self.consumer, self.got)


def every_place(
    before: int, take: Callable[[KafkaConsumer, Got], None], **configs: Any
) -> Iterator[tuple[Application, bool]]:
    """Applications one of whose calls was interrupted, each some places further on."""

    def new() -> Application:
        made = Application(take, **configs)
        for _ in range(before):
            made.take()
        return made

    return interrupted(new, Application.take, CODE, least=20, step=STEP)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("take", "configs", "before"),
    [
        pytest.param(by_poll, {}, 0, id="first poll"),
        pytest.param(by_poll, {}, 1, id="second poll"),
        pytest.param(by_poll, {"group_id": "g"}, 0, id="first poll of a group's member"),
        pytest.param(by_poll, {"fetch_min_bytes": 10}, 1, id="poll that waits for bytes"),
        pytest.param(by_arrow, {}, 1, id="poll_arrow"),
        pytest.param(by_iteration, {}, 0, id="first record"),
        pytest.param(by_iteration, {}, 1, id="second record"),
        pytest.param(by_iteration, {"group_id": "g"}, 5, id="last record of a group's member"),
    ],
)
def test_an_interrupt_on_any_line_loses_no_record(
    take: Callable[[KafkaConsumer, Got], None], configs: dict[str, Any], before: int
) -> None:
    """Each record arrives once, in order, and the listener knows what is held."""
    for application, _ in every_place(before, take, **configs):
        for _time in range(10):
            application.take()

        assert application.got == WRITTEN
        assert application.listener.held == {T0, T1}


@pytest.mark.slow
@pytest.mark.parametrize("take", [by_poll, by_arrow, by_iteration])
def test_after_an_interrupt_a_commit_is_of_what_was_handed_out(take: Callable[[KafkaConsumer, Got], None]) -> None:
    """The next member of the group begins with the first record that the application has not got."""
    for application, _ in every_place(1, take, group_id="g", enable_auto_commit=False):
        consumer, got = application.consumer, application.got
        consumer.commit()

        assert {tp: consumer.committed(tp) or 0 for tp in got} == {tp: len(have) for tp, have in got.items()}


@pytest.mark.slow
def test_a_seek_that_was_interrupted_leaves_an_iteration_where_the_consumer_says_it_stands() -> None:
    """It was done or it was not, on whatever line the interrupt came."""

    def new() -> tuple[KafkaConsumer, int]:
        consumer = KafkaConsumer(
            bootstrap_servers=filled(), auto_offset_reset="earliest", clock=ManualClock(), consumer_timeout_ms=0
        )
        consumer.assign([T0])
        return consumer, next(consumer).offset

    for (consumer, first), _ in interrupted(new, lambda made: made[0].seek(T0, 0), CODE, least=5):
        stands = consumer.position(T0)

        assert first == 0
        assert next(consumer).offset == stands


def test_an_interrupt_inside_a_listener_has_it_told_again() -> None:
    """What it does there, a seek for instance, is not left out."""
    calls: list[set[TopicPartition]] = []

    class Interrupted(Told):
        def on_partitions_assigned(self, assigned: Any) -> None:
            calls.append(set(assigned))
            if len(calls) == 1:
                raise KeyboardInterrupt

    consumer = KafkaConsumer(bootstrap_servers=filled(), auto_offset_reset="earliest", clock=ManualClock())
    consumer.subscribe(["orders"], listener=Interrupted())

    with pytest.raises(KeyboardInterrupt):
        consumer.poll()
    consumer.poll()

    assert calls == [{T0, T1}, {T0, T1}]


class Interrupting(Told):
    """Is interrupted in its first call of one kind."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.calls: list[tuple[str, set[TopicPartition]]] = []
        self._kind: str | None = kind

    def _told(self, kind: str, partitions: Any) -> None:
        self.calls.append((kind, set(partitions)))
        if self._kind == kind:
            self._kind = None
            raise KeyboardInterrupt

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._told("revoked", revoked)
        super().on_partitions_revoked(revoked)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._told("assigned", assigned)
        super().on_partitions_assigned(assigned)

    def on_partitions_lost(self, lost: Any) -> None:
        self._told("lost", lost)
        self.held -= lost


def test_a_listener_is_not_told_again_of_what_has_gone_to_another_member_meanwhile() -> None:
    """Interrupted in `on_partitions_assigned`, it is told again; a rebalance came between, and one partition moves."""
    cluster, clock = filled(), ManualClock()
    settings = {"group_id": "g", "partition_assignment_strategy": "cooperative-sticky", "clock": clock}
    listener = Interrupting("assigned")
    one, two = (KafkaConsumer(bootstrap_servers=cluster, **settings) for _ in range(2))  # type: ignore[arg-type]
    one.subscribe(["orders"], listener=listener)
    two.subscribe(["orders"])
    with pytest.raises(KeyboardInterrupt):
        one.poll()

    two.poll()
    one.poll()
    two.poll()

    (moved,), (stayed,) = two.assignment(), one.assignment()
    assert listener.calls == [("assigned", {T0, T1}), ("revoked", {moved}), ("assigned", {stayed})]
    assert listener.held == {stayed}


def test_one_that_was_interrupted_as_it_heard_of_a_rival_with_its_name_hears_it_again() -> None:
    """It holds nothing after that, and every poll says why."""
    cluster, clock = filled(), ManualClock()
    settings = {"group_id": "g", "group_instance_id": "a", "clock": clock}
    listener = Interrupting("lost")
    old, new = (KafkaConsumer(bootstrap_servers=cluster, **settings) for _ in range(2))  # type: ignore[arg-type]
    old.subscribe(["orders"], listener=listener)
    new.subscribe(["orders"])
    old.poll()
    new.poll()
    with pytest.raises(KeyboardInterrupt):
        old.poll()

    for _ in range(2):
        with pytest.raises(FencedInstanceIdError):
            old.poll()

    assert listener.calls[2:] == [("lost", {T0, T1}), ("lost", {T0, T1})]
    assert old.assignment() == set()
    assert new.assignment() == {T0, T1}
