"""Rules of transactions: plan the rows of a step from the state of the groups' table, or raise a named error.

Every rule is called inside a change of that table, so it sees exactly the state before its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kafkalike import errors
from kafkalike.model.groups.partition_split import check_open
from kafkalike.model.transactions import transactional_id as txn
from kafkalike.model.transactions.group_claims import (
    GroupOffsets,
    Groups,
    ShareAcknowledgements,
    acknowledged_shares,
    offset_commit,
)

MAX_EPOCH: Final = 32_766
"""The highest assigned epoch; the next one is the first of a new producer id, as in Kafka."""

TAKES_OVER: Final = frozenset({txn.Why.TIMEOUT, txn.Why.ADMIN})
"""Reasons for a new epoch after which the id still belongs to its producer, which may start over."""


class UnsettledError(errors.ConcurrentTransactionsError):
    """The caller has not yet brought the id's last decision into all topics; its row must stay until then."""


def plan_init(
    groups: Groups,
    transactional_id: str,
    *,
    settled: int,
    timeout_ms: int,
    client_id: str,
    now_ms: int,
    after: tuple[int, int] | None = None,
) -> txn.Entries | None:
    """Plan a new epoch, which aborts an open transaction; None if it was planned before.

    See `Transactions.begin_session`.

    Args:
        groups: the current table.
        transactional_id: the id.
        settled: number of the id's last decision that the caller has brought into all topics; 0 for none.
        timeout_ms: transaction timeout of the new producer.
        client_id: client id of the new producer.
        now_ms: the time.
        after: producer id and epoch of the producer, if it continues; None fences it.

    Raises:
        ProducerFencedError: the id has another producer or epoch than `after`.
        UnsettledError: the table has a later decision.
    """
    known = groups.transactions.get(transactional_id)
    if after is not None and known is not None and (known.producer_id, known.epoch) != after:
        if known.follows == after:
            return None
        raise errors.ProducerFencedError(f"{transactional_id!r} has a newer producer")
    _check_settled(transactional_id, known, settled)
    made = txn.TransactionalIdState(
        producer_id=groups.seq + 1,
        epoch=0,
        why=txn.Why.INIT,
        timeout_ms=timeout_ms,
        client_id=client_id,
        changed_ms=now_ms,
        committed=None if known is None else _fact(known),
        follows=None if known is None else after,
    )
    if known is not None and known.epoch < MAX_EPOCH:
        made = replace(made, producer_id=known.producer_id, epoch=known.epoch + 1)
    return txn.Entries(transactional_id=transactional_id, standing=made, now_ms=now_ms)


def plan_next_epoch(
    groups: Groups, transactional_id: str, ended: txn.TransactionAttempt, *, settled: int, now_ms: int
) -> txn.Entries | None:
    """Plan the next epoch of a producer whose transaction has ended (KIP-890); None if it was planned before.

    Raises:
        ProducerFencedError, InvalidProducerEpochError: another producer has taken the id.
        UnsettledError: see `plan_init`.
    """
    known = groups.transactions.get(transactional_id)
    if known is None or known.follows != ended[:2]:
        known = current_state(groups, transactional_id, ended)
    return plan_init(
        groups,
        transactional_id,
        settled=settled,
        timeout_ms=known.timeout_ms,
        client_id=known.client_id,
        now_ms=now_ms,
        after=ended[:2],
    )


def was_committed(known: txn.TransactionalIdState, producer_id: int, epoch: int) -> bool:
    """Return whether the last transaction of an epoch that the current one `follows` was committed."""
    return known.committed is not None and known.committed.attempt[:2] == (producer_id, epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """A transaction to commit."""

    transactional_id: str
    attempt: txn.TransactionAttempt
    parts: tuple[txn.TransactionPart, ...] = ()
    offsets: GroupOffsets
    acknowledgements: ShareAcknowledgements = field(default_factory=dict)
    settled: int
    """Number of the id's previous decision, which is in all topics; 0 for none."""
    in_doubt: bool = False
    """True if an earlier try may have committed it."""
    name: txn.WriteName | None = None
    """Name that the application gives it."""


def committed_as(
    groups: Groups, transactional_id: str, attempt: txn.TransactionAttempt
) -> txn.CommittedTransaction | None:
    """Return the decision of an attempt if the table still has it, so that repeated calls find it."""
    known = groups.transactions.get(transactional_id)
    committed = None if known is None else known.committed
    return committed if committed is not None and committed.attempt == attempt else None


def plan_commit(groups: Groups, wanted: CommitRequest, topics: Mapping[str, str], now_ms: int) -> txn.Entries | None:
    """Plan a decision with its offsets; None if it was made before. See `TransactionSession.commit`.

    Args:
        groups: the current table.
        wanted: the transaction.
        topics: ids of the existing topics, by name.
        now_ms: the time.

    Raises: see `TransactionSession.commit`.
    """
    identity = wanted.transactional_id
    done = committed_as(groups, identity, wanted.attempt)
    if done is not None:
        # A topic may have been left out of it since; see `plan_drop`.
        if any(part not in wanted.parts for part in done.parts):
            raise errors.ProducerFencedError(
                f"{identity!r}: a copy of this producer, made by a fork, has committed another transaction"
            )
        return None
    known = current_state(groups, identity, wanted.attempt, in_doubt=wanted.in_doubt)
    if wanted.attempt.number <= known.number:
        raise errors.InvalidTxnStateError(f"transaction {wanted.attempt.number} of {identity!r} was aborted")
    _check_settled(identity, known, wanted.settled)
    for part in wanted.parts:
        check_open(groups.groups, part.topic.name, part.topic.topic_id)
        _check_there(topics, part.topic)
    offsets = tuple(
        offset_commit(groups, claim, tp, at, topics)
        for claim, positions in wanted.offsets.items()
        for tp, at in positions.items()
    )
    shares = acknowledged_shares(groups, wanted.acknowledgements, now_ms) if wanted.acknowledgements else ()
    decided = txn.CommittedTransaction(
        attempt=wanted.attempt,
        seq=groups.seq + 1,
        parts=wanted.parts,
        groups=tuple(sorted({c.group_id for c in wanted.offsets} | {m.group_id for m in wanted.acknowledgements})),
        name=wanted.name,
    )
    made = replace(
        known,
        number=wanted.attempt.number,
        why=txn.Why.COMMIT,
        changed_ms=now_ms,
        committed=decided,
        follows=None,
    )
    return txn.Entries(transactional_id=identity, standing=made, offsets=offsets, shares=shares, now_ms=now_ms)


def plan_abort(
    groups: Groups, transactional_id: str, attempt: txn.TransactionAttempt, *, settled: int, in_doubt: bool, now_ms: int
) -> txn.Entries | None:
    """Plan the outcome "aborted"; None if the transaction has it. See `TransactionSession.abort`.

    Raises:
        InvalidTxnStateError: it was committed.
        ProducerFencedError, InvalidProducerEpochError: its epoch has ended, which aborted it if it was open.
    """
    if committed_as(groups, transactional_id, attempt) is not None:
        raise errors.InvalidTxnStateError(
            f"transaction {attempt.number} of {transactional_id!r} is committed, by a call whose answer did not come: "
            "commit it again"
        )
    known = current_state(groups, transactional_id, attempt, in_doubt=in_doubt)
    if attempt.number <= known.number:
        return None
    _check_settled(transactional_id, known, settled)
    made = replace(
        known,
        number=attempt.number,
        why=txn.Why.ABORT,
        changed_ms=now_ms,
        committed=_fact(known),
        follows=None,
    )
    return txn.Entries(transactional_id=transactional_id, standing=made, now_ms=now_ms)


def plan_fence(
    groups: Groups,
    transactional_id: str,
    *,
    why: txn.Why,
    settled: int,
    now_ms: int,
    only: txn.TransactionAttempt | None = None,
) -> txn.Entries | None:
    """Plan a new epoch without a producer, which aborts an open transaction; None if that has happened.

    Args:
        groups: the current table.
        transactional_id: the id.
        why: `TIMEOUT` or `ADMIN`.
        settled: see `plan_init`.
        now_ms: the time.
        only: the open transaction to abort; None for any.

    Raises:
        TransactionalIdNotFoundError: the id does not exist.
        UnsettledError: see `plan_init`.
    """
    known = groups.transactions.get(transactional_id)
    if known is None:
        if only is not None:
            return None
        raise errors.TransactionalIdNotFoundError(f"transactional id {transactional_id!r} does not exist")
    if only is not None and not is_open(known, only):
        return None
    _check_settled(transactional_id, known, settled)
    made = replace(
        known,
        epoch=known.epoch + 1,
        number=0,
        why=why,
        changed_ms=now_ms,
        committed=_fact(known),
        follows=None,
    )
    return txn.Entries(transactional_id=transactional_id, standing=made, now_ms=now_ms)


def plan_forget(
    groups: Groups, transactional_id: str, *, settled: int, expiration_ms: int, now_ms: int
) -> txn.Entries | None:
    """Plan the row that deletes an unused id; None if it has been used or is deleted.

    A returning producer is fenced, because the id gets another producer id, the number of a later row.

    Raises:
        UnsettledError: see `plan_init`.
    """
    known = groups.transactions.get(transactional_id)
    if known is None or not expired(known, expiration_ms, now_ms):
        return None
    _check_settled(transactional_id, known, settled)
    return txn.Entries(transactional_id=transactional_id, standing=None, now_ms=now_ms)


def plan_drop(groups: Groups, transactional_id: str, seq: int, topic_id: str, now_ms: int) -> txn.Entries | None:
    """Plan to remove a topic from a decision, because its records are lost; None if that was done before.

    Args:
        groups: the current table.
        transactional_id: id of the decision.
        seq: its number.
        topic_id: the topic that does not get its records.
        now_ms: the time.
    """
    known = groups.transactions.get(transactional_id)
    unsettled = None if known is None else known.unsettled
    if known is None or unsettled is None or unsettled.seq != seq:
        return None
    parts = tuple(part for part in unsettled.parts if part.topic.topic_id != topic_id)
    if len(parts) == len(unsettled.parts):
        return None
    made = replace(known, changed_ms=now_ms, committed=replace(unsettled, parts=parts))
    return txn.Entries(transactional_id=transactional_id, standing=made, now_ms=now_ms)


def expired(known: txn.TransactionalIdState, expiration_ms: int, now_ms: int) -> bool:
    """Return whether an id has been unused for so long that it may be deleted."""
    return now_ms - known.changed_ms >= expiration_ms


def is_open(known: txn.TransactionalIdState, attempt: txn.TransactionAttempt) -> bool:
    """Return whether a transaction may still be committed."""
    current = (known.producer_id, known.epoch) == (attempt.producer_id, attempt.epoch)
    return current and attempt.number > known.number


def current_state(
    groups: Groups, transactional_id: str, attempt: txn.TransactionAttempt, *, in_doubt: bool = False
) -> txn.TransactionalIdState:
    """Return the state of an id if an attempt has its current epoch.

    Raises:
        ProducerFencedError, InvalidProducerEpochError: it has not.
    """
    known = groups.transactions.get(transactional_id)
    if known is not None and (known.producer_id, known.epoch) == (attempt.producer_id, attempt.epoch):
        return known
    committed = None if known is None else known.committed
    # The outcome is unknown for a deleted id, even if a new producer uses it and has not committed anything yet.
    forgotten = known is None or (known.producer_id != attempt.producer_id and committed is None)
    newer = forgotten or (committed is not None and committed.attempt > attempt)
    outcome = (
        "; whether its last transaction was committed is not known any more"
        if in_doubt and newer
        else "; nothing was committed"
    )
    if known is None or known.producer_id != attempt.producer_id:
        raise errors.ProducerFencedError(f"{transactional_id!r} has expired, or has another producer{outcome}")
    if known.epoch == attempt.epoch + 1 and known.why in TAKES_OVER:
        by = (
            "it was open for longer than its timeout"
            if known.why is txn.Why.TIMEOUT
            else "an administrator asked for it"
        )
        raise errors.InvalidProducerEpochError(f"the transaction of {transactional_id!r} was aborted: {by}{outcome}")
    raise errors.ProducerFencedError(
        f"{transactional_id!r} is in epoch {known.epoch}, this producer is of epoch {attempt.epoch}: another one has "
        f"called init_transactions{outcome}"
    )


def _check_settled(transactional_id: str, known: txn.TransactionalIdState | None, settled: int) -> None:
    unsettled = None if known is None else known.unsettled
    if unsettled is not None and unsettled.seq != settled:
        raise UnsettledError(f"{transactional_id!r}: its transaction before this one is not in all topics yet")


def _fact(known: txn.TransactionalIdState) -> txn.CommittedTransaction | None:
    """Return the part of the last decision that later rows keep."""
    committed = known.committed
    return None if committed is None else replace(committed, parts=(), groups=())


def _check_there(topics: Mapping[str, str], topic: txn.TopicLife) -> None:
    if topics.get(topic.name) != topic.topic_id:
        raise errors.UnknownTopicOrPartitionError(
            f"topic {topic.name!r} was deleted during the transaction; nothing was committed"
        )
