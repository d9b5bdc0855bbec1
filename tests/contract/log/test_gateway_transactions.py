"""Transactions of a gateway's producers: late and repeated requests, two processes, and killed ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalike.connect import connect
from kafkalike.errors import InvalidTxnStateError, OutOfOrderSequenceNumberError, ProducerFencedError
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.group_rows import GroupRow, transaction_rows
from kafkalike.model.group_state import GroupsState
from kafkalike.model.transactions.rules import MAX_EPOCH
from kafkalike.model.transactions.transactional_id import Entries
from tests.contract.log.test_producer_append import sent, values
from tests.tools.forked import killed
from tests.tools.records import open_log

if TYPE_CHECKING:
    from kafkalike.log.topic.producer_append import SentBatch


class Gateway:
    """One process's view of a producer with the transactional id `x`."""

    def __init__(self, root: Path) -> None:
        self.cluster = connect(str(root))
        self.transactions = self.cluster.transactions.behind_gateway()
        self.log = open_log(self.cluster)

    def begin(self) -> tuple[int, int]:
        session = self.cluster.transactions.begin_session("x", 60_000, "c", Deadline(SYSTEM_CLOCK, 30_000))
        return session.producer_id, session.epoch

    def raise_epoch(self, epoch: int) -> None:
        def plan(state: GroupsState) -> Sequence[GroupRow]:
            standing = replace(state.transactions["x"], epoch=epoch)
            return transaction_rows(state.seq + 1, Entries(transactional_id="x", standing=standing, now_ms=1))

        self.cluster.groups.transact(plan, 30_000)

    def stage(self, producer: tuple[int, int], batch: SentBatch) -> None:
        attempt = self.transactions.attempt("x", *producer)
        self.log.refresh_info()
        deadline = Deadline(SYSTEM_CLOCK, 30_000)
        self.transactions.stage("x", attempt, self.log, batch, codec="none", deadline=deadline)

    def end(self, producer: tuple[int, int], *, commit: bool = True) -> None:
        attempt = self.transactions.attempt("x", *producer)
        self.transactions.end("x", attempt, Deadline(SYSTEM_CLOCK, 30_000), commit=commit)


@pytest.fixture
def gateways(tmp_path: Path) -> list[Gateway]:
    connect(str(tmp_path)).create_topic("t", 2, {})
    return [Gateway(tmp_path), Gateway(tmp_path)]


def test_batches_of_two_gateways_are_committed_in_the_order_of_their_sequences(gateways: list[Gateway]) -> None:
    one, two = gateways
    producer = one.begin()
    two.stage(producer, sent(2, "c", producer=producer[0]))
    one.stage(producer, sent(0, "a", "b", producer=producer[0]))
    two.stage(producer, sent(0, "p", producer=producer[0], partition=1))
    assert values(one.log) == []
    one.end(producer)
    assert (values(two.log), values(two.log, 1)) == (["a", "b", "c"], ["p"])


def test_repeated_requests_change_nothing_at_any_gateway(gateways: list[Gateway]) -> None:
    one, two = gateways
    producer = one.begin()
    for gateway in (one, two, one):
        gateway.stage(producer, sent(0, "a", producer=producer[0]))
    for gateway in (one, two, one):
        gateway.end(producer)
    assert values(one.log) == ["a"]


def test_late_request_of_the_committed_transaction_before_is_not_written_again(gateways: list[Gateway]) -> None:
    one, two = gateways
    producer = one.begin()
    one.stage(producer, sent(0, "a", producer=producer[0]))
    one.end(producer)
    two.stage(producer, sent(0, "a", producer=producer[0]))
    one.stage(producer, sent(1, "b", producer=producer[0]))
    two.end(producer)
    assert values(one.log) == ["a", "b"]


def test_other_batch_with_the_same_first_sequence_is_refused(gateways: list[Gateway]) -> None:
    one, two = gateways
    producer = one.begin()
    one.stage(producer, sent(0, "a", producer=producer[0]))
    with pytest.raises(OutOfOrderSequenceNumberError, match="another batch with sequence 0 in t-0"):
        two.stage(producer, sent(0, "a", "b", producer=producer[0]))


def test_aborted_transaction_leaves_neither_records_nor_files(gateways: list[Gateway], tmp_path: Path) -> None:
    one, two = gateways
    producer = one.begin()
    one.stage(producer, sent(0, "a", producer=producer[0]))
    two.end(producer, commit=False)
    one.stage(producer, sent(1, "b", producer=producer[0]))
    one.end(producer)
    assert values(one.log) == ["b"]
    assert [path for path in (tmp_path / "__transactions").rglob("*") if path.is_file()] == []


def test_next_epoch_begins_its_sequences_anew_and_fences_the_old_one(gateways: list[Gateway]) -> None:
    """As EndTxn v5 does it."""
    one, two = gateways
    producer = one.begin()
    one.stage(producer, sent(0, "a", producer=producer[0]))
    deadline = Deadline(SYSTEM_CLOCK, 30_000)
    following = one.transactions.end_epoch("x", *producer, deadline, commit=True)

    assert following == (producer[0], producer[1] + 1)
    with pytest.raises(ProducerFencedError):
        two.stage(producer, sent(1, "late", producer=producer[0]))
    two.stage(following, sent(0, "b", producer=producer[0], epoch=following[1]))
    two.end(following)
    assert values(one.log) == ["a", "b"]


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("epoch", [0, MAX_EPOCH], ids=["first", "last"])
def test_repeated_end_of_an_epoch_gives_the_same_next_one(gateways: list[Gateway], *, epoch: int, commit: bool) -> None:
    """The answer to EndTxn v5 was lost. After the last epoch, the producer has another id."""
    one, two = gateways
    producer = one.begin()[0], epoch
    one.raise_epoch(epoch)
    one.stage(producer, sent(0, "a", producer=producer[0], epoch=epoch))
    deadline = Deadline(SYSTEM_CLOCK, 30_000)
    following = one.transactions.end_epoch("x", *producer, deadline, commit=commit)

    assert following[1] == (0 if epoch else 1)
    assert two.transactions.end_epoch("x", *producer, deadline, commit=commit) == following
    with pytest.raises(InvalidTxnStateError, match="was committed before" if commit else "was aborted before"):
        two.transactions.end_epoch("x", *producer, deadline, commit=not commit)


def test_repeated_end_does_not_give_the_epoch_of_another_producer(gateways: list[Gateway]) -> None:
    """The gateway died between the decision and the next epoch, and another producer has begun."""
    one, two = gateways
    producer = one.begin()
    one.stage(producer, sent(0, "a", producer=producer[0]))
    one.end(producer)
    two.begin()

    with pytest.raises(ProducerFencedError):
        one.transactions.end_epoch("x", *producer, Deadline(SYSTEM_CLOCK, 30_000), commit=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    ["transaction.before_commit", "transaction.after_commit", "transaction.before_apply", "transaction.after_apply"],
)
def test_killed_end_is_finished_by_another_gateway(tmp_path: Path, place: str) -> None:
    connect(str(tmp_path)).create_topic("t", 2, {})
    survivor = Gateway(tmp_path)
    producer = survivor.begin()
    survivor.stage(producer, sent(0, "a", producer=producer[0]))
    survivor.stage(producer, sent(0, "b", producer=producer[0], partition=1))
    killed(lambda: Gateway(tmp_path).end(producer), place)

    survivor.end(producer)

    assert (values(survivor.log), values(survivor.log, 1)) == (["a"], ["b"])


def test_log_of_a_topic_stays_open_between_transactions_until_it_is_unused(gateways: list[Gateway]) -> None:
    """To open a log reads the names of all files of a topic."""
    one, two = gateways
    producer = one.begin()
    log = one.transactions.log("t")
    for first in range(2):
        one.stage(producer, sent(first, "a", producer=producer[0]))
        one.end(producer)
        # The end has used it, so that it knows the new version without a look.
        assert log.log_end(0) == first + 1
    two.stage(producer, sent(2, "b", producer=producer[0]))
    two.end(producer)

    assert (one.transactions.open_logs, two.transactions.open_logs) == (1, 1)
    one.transactions.close_logs(lambda known: known is not log)
    assert one.transactions.log("t") is log
    one.transactions.close_logs(lambda known: known is log)
    assert one.transactions.open_logs == 0


def test_topic_created_again_is_opened_again(gateways: list[Gateway]) -> None:
    one = gateways[0]
    old = one.transactions.log("t")
    one.cluster.delete_topic("t")
    one.cluster.create_topic("t", 2, {})

    one.log = one.transactions.log("t")
    producer = one.begin()
    one.stage(producer, sent(0, "a", producer=producer[0]))
    one.end(producer)

    assert one.log.info.topic_id != old.info.topic_id
    assert values(one.log) == ["a"]


def test_batches_of_a_transaction_that_another_gateway_has_ended_are_not_kept(gateways: list[Gateway]) -> None:
    one, two = gateways
    producer = one.begin()
    for first in range(3):
        one.stage(producer, sent(first, "a", producer=producer[0]))
        assert one.transactions.held_batches == 1
        two.end(producer)
    one.stage(producer, sent(3, "b", producer=producer[0]))
    one.stage(producer, sent(4, "c", producer=producer[0]))
    assert one.transactions.held_batches == 2
    one.end(producer)

    assert one.transactions.held_batches == 0
    assert values(one.log) == ["a", "a", "a", "b", "c"]
