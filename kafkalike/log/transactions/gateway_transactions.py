"""Gateway transactions: transactions whose requests may come through any gateway, because their state is in storage.

A batch is staged under a name that its sequence gives it, so a repeated request finds the file. Offsets of groups are
staged, too. The end of the transaction lists the files. So a gateway that dies loses nothing: another one continues.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kafkalike import errors
from kafkalike.log.topic.batch_payload import Loose, pack, unpack_sequences
from kafkalike.log.topic.producer_append import SentBatch, sequences_of
from kafkalike.log.topic.record_rules import check_batch, codec_for
from kafkalike.log.transactions.effect_runner import EffectRunner, HeldTransaction, TransactionContext
from kafkalike.model import faults
from kafkalike.model.appends.producer_sequences import SEQUENCES, SequencedBatch
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.model.transactions import transaction_protocol as protocol
from kafkalike.model.transactions import transactional_id as txn
from kafkalike.model.transactions.group_claims import GroupClaim, GroupOffsets, check_claim
from kafkalike.model.transactions.roll_forward import finishing
from kafkalike.model.transactions.rules import CommitRequest, current_state, was_committed

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.clock import Deadline

HELD_BYTES: Final = 64 * 1024 * 1024
"""Bytes of staged batches of all transactions that one gateway keeps in memory, to avoid reading them again."""

BATCH_BYTES: Final = 4096
"""Bytes that a batch takes beside its content, about."""

MOST_IDS: Final = 10_000
"""Transactional ids whose last settled decision is remembered."""

REFUSALS: Final = (
    errors.CommitFailedError,
    errors.FencedInstanceIdError,
    errors.GroupIdNotFoundError,
    errors.IllegalGenerationError,
    errors.RebalanceInProgressError,
    errors.UnknownMemberIdError,
    errors.UnknownTopicOrPartitionError,
)
"""Errors after which a transaction can only be aborted, because its topics or groups have changed."""

OFFSETS: Final = "offsets-"
"""Beginning of the name of a staged file with offsets of a group."""

_BATCH: Final = re.compile(r"(\d+)\.(.+)")


@dataclass(frozen=True, slots=True)
class _StagedBatch:
    """A staged file with one batch of a producer."""

    file: txn.StagedFile
    sequence: SequencedBatch
    loose: Loose


class GatewayTransactions:
    """Transactions of producers behind gateways. Thread-safe.

    Args:
        home: topics, groups and staged files.
    """

    def __init__(self, home: TransactionContext) -> None:
        self._home = home
        self._cluster = home.cluster
        self._staging = home.staging
        self._lock = threading.Lock()
        self._held: dict[txn.TransactionAttempt, dict[str, _StagedBatch]] = {}
        """Batches that this process has staged, by file name; the oldest transaction first."""
        self._held_bytes = 0
        self._settled: dict[str, int] = {}
        """By transactional id, the number of the last decision that is known to be in all topics."""
        self._logs: dict[str, TopicLog] = {}
        """Open logs of topics with transactions, by topic id. To open a log reads the names of all files of a topic."""

    def log(self, name: str) -> TopicLog:
        """Return the open log of a topic, which the end of its transactions uses, too.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
        """
        info = self._cluster.metadata.state.topics.get(name)
        found = None if info is None else self._logs.get(info.topic_id)
        if found is None:
            found = self._cluster.log(name)
            found = self._logs.setdefault(found.info.topic_id, found)
        return found

    @property
    def held(self) -> HeldTransaction:
        """The open logs, for other changes by this process."""
        return HeldTransaction(logs=self._logs)

    @property
    def held_batches(self) -> int:
        """Number of batches that are kept in memory."""
        return sum(map(len, list(self._held.values())))

    @property
    def open_logs(self) -> int:
        """Number of topics whose logs are open."""
        return len(self._logs)

    def close_logs(self, unused: Callable[[TopicLog], bool]) -> None:
        """Close the open logs for which a function returns True."""
        for topic_id in [one for one, log in list(self._logs.items()) if unused(log)]:
            self._logs.pop(topic_id, None)

    def attempt(self, transactional_id: str, producer_id: int, epoch: int) -> txn.TransactionAttempt:
        """Return the current transaction of a producer.

        Raises:
            InvalidProducerIdMappingError: the id has another producer.
            ProducerFencedError, InvalidProducerEpochError: it has another epoch.
        """
        return self._standing(transactional_id, producer_id, epoch)[1]

    def _standing(
        self, transactional_id: str, producer_id: int, epoch: int
    ) -> tuple[txn.TransactionalIdState, txn.TransactionAttempt]:
        known = self._cluster.groups.refresh()
        owner = known.transactions.get(transactional_id)
        if owner is None or owner.producer_id != producer_id:
            raise errors.InvalidProducerIdMappingError(f"{transactional_id!r} has expired, or has another producer id")
        standing = current_state(known, transactional_id, txn.TransactionAttempt(producer_id, epoch, 1))
        return standing, txn.TransactionAttempt(producer_id, epoch, standing.number + 1)

    # --- staging -----------------------------------------------------------------------------------

    def stage(
        self,
        transactional_id: str,
        attempt: txn.TransactionAttempt,
        log: TopicLog,
        batch: SentBatch,
        *,
        codec: str,
        deadline: Deadline,
    ) -> None:
        """Store a batch of a transaction, unless it is stored, or belongs to the committed one before.

        Args:
            transactional_id: the id.
            attempt: from `attempt`.
            log: the topic, as of its last `refresh`.
            batch: with its sequence.
            codec: the producer's.
            deadline: until when to try.

        Raises:
            MessageSizeTooLargeError, InvalidTimestampError, InvalidRecordError: the topic rejects a record.
            OutOfOrderSequenceNumberError: the transaction has another batch with the same first sequence.
            KafkaStorageError: the storage refused, or did not answer; stage it again.
        """
        sequence = batch.sequence
        assert sequence is not None
        records = batch.columns.records()
        check_batch(records, log.info, log.config, log.clock.now_ms(), log.schemas)
        codec_for(log.config, codec)
        content = pack(records, codec, None, sequences_of([batch]))
        name = f"{sequence.partition * SEQUENCES + sequence.first}.{log.info.topic_id}"
        if self._was_committed(transactional_id, attempt, name):
            return
        if self._staging.put_once(attempt, name, content, deadline):
            file = txn.StagedFile(name, len(content), zlib.crc32(content))
            self._hold(attempt, _StagedBatch(file, sequence, (records, codec, None)))
        else:
            (known,) = self._staging.contents(attempt, [name])
            if unpack_sequences(known)[1] != [(sequence.partition, sequence.count, sequence)]:
                raise errors.OutOfOrderSequenceNumberError(
                    f"the transaction has another batch with sequence {sequence.first} in {log.info.name}-"
                    f"{sequence.partition}"
                )
        faults.point("transaction.staged")

    def has_before(self, attempt: txn.TransactionAttempt, topic_id: str, batch: SequencedBatch) -> bool:
        """Return whether the transaction has staged the batch before another one, through whichever gateway."""
        names = dict[int, str]()
        for name in self._staging.names(attempt):
            found = _BATCH.fullmatch(name)
            if found is not None and found[2] == topic_id and int(found[1]) // SEQUENCES == batch.partition:
                names[int(found[1]) % SEQUENCES] = name
        if not names:
            return False
        # Sequences wrap.
        name = names[max((first for first in names if first < batch.first), default=max(names))]
        known = self._held_by(attempt).get(name)
        if known is None:
            known = _staged_batch(name, self._staging.contents(attempt, [name])[0])
        return (known.sequence.last + 1) % SEQUENCES == batch.first

    def _was_committed(self, transactional_id: str, attempt: txn.TransactionAttempt, name: str) -> bool:
        """Return whether the transaction before has a file of this name: then its request was repeated, and is late."""
        standing = self._cluster.groups.state.transactions.get(transactional_id)
        before = None if standing is None else standing.unsettled
        if before is None or before.attempt[:2] != attempt[:2]:
            # Sequences restart at 0 in another epoch.
            return False
        return any(file.name == name for part in before.parts for file in part.files)

    def _hold(self, attempt: txn.TransactionAttempt, staged: _StagedBatch) -> None:
        with self._lock:
            if attempt not in self._held:
                # The client of an earlier one was killed, or has ended it through another gateway.
                for former in [one for one in self._held if one.producer_id == attempt.producer_id and one < attempt]:
                    self._drop(former)
            self._held.setdefault(attempt, {})[staged.file.name] = staged
            self._held_bytes += BATCH_BYTES + staged.file.size
            while self._held_bytes > HELD_BYTES:
                self._drop(next(iter(self._held)))

    def _drop(self, attempt: txn.TransactionAttempt) -> None:
        """Forget the batches of a transaction. The caller holds the lock."""
        self._held_bytes -= sum(BATCH_BYTES + one.file.size for one in self._held.pop(attempt, {}).values())

    def _held_by(self, attempt: txn.TransactionAttempt) -> dict[str, _StagedBatch]:
        with self._lock:
            return dict(self._held.get(attempt, {}))

    def add_offsets(
        self,
        attempt: txn.TransactionAttempt,
        claim: GroupClaim,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: Deadline,
    ) -> None:
        """Store offsets that the transaction commits for a group; later ones replace earlier ones.

        Raises:
            CommitFailedError, FencedInstanceIdError, RebalanceInProgressError, UnknownMemberIdError: the group does not
                have the member; nothing was stored.
            KafkaStorageError: the storage refused, or did not answer; add them again.
        """
        check_claim(self._cluster.groups.refresh().group(claim.group_id).roster, claim)
        name = f"{OFFSETS}{self._cluster.clock.now_ms():020d}-{uuid.uuid4().hex}"
        self._staging.put_once(attempt, name, _dump_offsets(claim, offsets), deadline)

    # --- ending ------------------------------------------------------------------------------------

    def end(self, transactional_id: str, attempt: txn.TransactionAttempt, deadline: Deadline, *, commit: bool) -> None:
        """Commit or abort the transaction that `attempt` has returned. May be called again, through any gateway.

        Raises:
            ProducerFencedError, InvalidProducerEpochError: see `attempt`; an open transaction is aborted.
            TransactionAbortableError: it cannot be committed: abort it.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: not finished; call again.
        """
        standing, _ = self._standing(transactional_id, attempt.producer_id, attempt.epoch)
        settled = self._settle(transactional_id, standing, deadline)
        if commit:
            self._commit(transactional_id, attempt, settled, deadline)
        elif self._staging.names(attempt):
            self._driver(deadline).run(protocol.aborting(transactional_id, attempt, settled=settled, in_doubt=False))
        with self._lock:
            self._drop(attempt)

    def _driver(self, deadline: Deadline, held: HeldTransaction | None = None) -> EffectRunner:
        return EffectRunner(self._home, deadline, held or self.held)

    def _settle(self, transactional_id: str, standing: txn.TransactionalIdState, deadline: Deadline) -> int:
        """Bring the id's last decision into all topics; return its number, 0 for none."""
        unsettled = standing.unsettled
        if unsettled is None:
            return 0
        if self._settled.get(transactional_id) != unsettled.seq:
            self._driver(deadline).run(finishing(self._cluster.groups.state, unsettled))
            self._note_settled(transactional_id, unsettled.seq)
        return unsettled.seq

    def _note_settled(self, transactional_id: str, seq: int) -> None:
        with self._lock:
            self._settled[transactional_id] = seq
            if len(self._settled) > MOST_IDS:
                del self._settled[next(iter(self._settled))]

    def _commit(self, transactional_id: str, attempt: txn.TransactionAttempt, settled: int, deadline: Deadline) -> None:
        held = HeldTransaction(attempt=attempt, logs=self._logs)
        parts, offsets = self._collected(attempt, held)
        if not parts and not offsets:
            return
        driver = self._driver(deadline, held)
        wanted = CommitRequest(
            transactional_id=transactional_id, attempt=attempt, parts=parts, offsets=offsets, settled=settled
        )
        try:
            driver.check_partitions(offsets)
            known, committed = driver.run(protocol.deciding(wanted))
        except REFUSALS as error:
            raise errors.TransactionAbortableError(f"{transactional_id!r} cannot be committed: {error}") from error
        driver.run(finishing(known, committed))
        self._note_settled(transactional_id, committed.seq)

    def _collected(
        self, attempt: txn.TransactionAttempt, held: HeldTransaction
    ) -> tuple[tuple[txn.TransactionPart, ...], GroupOffsets]:
        """Return what the transaction has staged, through whichever gateways."""
        mine = self._held_by(attempt)
        held.names = sorted(self._staging.names(attempt))
        missing = [name for name in held.names if name not in mine]
        found = dict(zip(missing, self._staging.contents(attempt, missing), strict=True))
        staged: dict[str, list[_StagedBatch]] = {}
        offsets: dict[GroupClaim, dict[TopicPartition, OffsetAndMetadata]] = {}
        for name in held.names:
            batch = _BATCH.fullmatch(name)
            if name.startswith(OFFSETS):
                _add_offsets(offsets, found[name])
            elif batch is not None:
                one = mine[name] if name in mine else _staged_batch(name, found[name])
                held.batches[name] = one.loose
                staged.setdefault(batch[2], []).append(one)
        names: dict[str, str] = {i.topic_id: i.name for i in self._cluster.metadata.refresh().topics.values()}
        gone = sorted(staged.keys() - names.keys())
        if gone:
            raise errors.TransactionAbortableError(f"a topic of the transaction was deleted: its id was {gone[0]}")
        return tuple(_part(txn.TopicLife(names[t], t), batches) for t, batches in sorted(staged.items())), offsets

    # --- epochs ------------------------------------------------------------------------------------

    def end_epoch(
        self, transactional_id: str, producer_id: int, epoch: int, deadline: Deadline, *, commit: bool
    ) -> tuple[int, int]:
        """Do `end`, and give the producer its next epoch, so that late requests of the old one fail (KIP-890).

        Returns:
            Producer id and epoch; the same ones for a repeated call.

        Raises: see `end`; and
            InvalidTxnStateError: an earlier call has ended the transaction the other way.
        """
        known = self._cluster.groups.refresh().transactions.get(transactional_id)
        if known is not None and known.follows == (producer_id, epoch):
            if was_committed(known, producer_id, epoch) is not commit:
                raise errors.InvalidTxnStateError(
                    f"the transaction of {transactional_id!r} was {'aborted' if commit else 'committed'} before"
                )
            return known.producer_id, known.epoch
        ended = self.attempt(transactional_id, producer_id, epoch)
        self.end(transactional_id, ended, deadline, commit=commit)
        made: txn.TransactionalIdState = self._driver(deadline).run(protocol.continuing(transactional_id, ended))
        return made.producer_id, made.epoch


def _staged_batch(name: str, content: bytes) -> _StagedBatch:
    loose, sequences = unpack_sequences(content)
    ((_, _, sequence),) = sequences
    assert sequence is not None
    return _StagedBatch(txn.StagedFile(name, len(content), zlib.crc32(content)), sequence, loose)


def _part(topic: txn.TopicLife, staged: Sequence[_StagedBatch]) -> txn.TransactionPart:
    """Return the entry of a topic, with the batches of each partition in the order of their sequences."""
    by_partition: dict[int, list[_StagedBatch]] = {}
    for one in staged:
        by_partition.setdefault(one.sequence.partition, []).append(one)
    files, counts = list[txn.StagedFile](), Counter[int]()
    for partition, batches in sorted(by_partition.items()):
        for one in _in_order(topic, batches):
            files.append(one.file)
            counts[partition] += one.sequence.count
    return txn.TransactionPart(topic=topic, counts=dict(counts), files=tuple(files), layout=txn.BATCHES)


def _in_order(topic: txn.TopicLife, batches: Sequence[_StagedBatch]) -> list[_StagedBatch]:
    """Return batches of one partition from the first sequence on.

    Raises:
        TransactionAbortableError: a batch between them is missing.
    """
    following = {(one.sequence.last + 1) % SEQUENCES for one in batches}
    by_first = {one.sequence.first: one for one in batches}
    firsts = by_first.keys() - following
    ordered = list[_StagedBatch]()
    if len(firsts) == 1:
        at = firsts.pop()
        while at in by_first:
            ordered.append(by_first.pop(at))
            at = (ordered[-1].sequence.last + 1) % SEQUENCES
    if by_first:
        raise errors.TransactionAbortableError(
            f"{topic.name}-{batches[0].sequence.partition}: batches of the transaction are missing between those with "
            f"the sequences {sorted(one.sequence.first for one in batches)[:10]}"
        )
    return ordered


def _dump_offsets(claim: GroupClaim, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> bytes:
    found = {
        "group": claim.group_id,
        "generation": claim.generation,
        "member": claim.member_id,
        "instance": claim.group_instance_id,
        "client": claim.client_id,
        "lives": claim.lives,
        "offsets": [[tp.topic, tp.partition, at.offset, at.leader_epoch, at.metadata] for tp, at in offsets.items()],
    }
    return json.dumps(found).encode()


def _add_offsets(offsets: dict[GroupClaim, dict[TopicPartition, OffsetAndMetadata]], content: bytes) -> None:
    """Add staged offsets; they replace earlier offsets of the same group."""
    found: dict[str, Any] = json.loads(content)
    claim = GroupClaim(
        group_id=found["group"],
        generation=found["generation"],
        member_id=found["member"],
        group_instance_id=found["instance"],
        client_id=found["client"],
        lives=tuple((name, topic_id) for name, topic_id in found["lives"]),
    )
    new = {
        TopicPartition(topic, partition): OffsetAndMetadata(offset, metadata, leader_epoch)
        for topic, partition, offset, leader_epoch, metadata in found["offsets"]
    }
    older: dict[TopicPartition, OffsetAndMetadata] = {}
    for known in [known for known in offsets if known.group_id == claim.group_id]:
        lives = {**dict(known.lives), **dict(claim.lives)}
        claim = replace(claim, lives=tuple(sorted(lives.items())))
        older |= offsets.pop(known)
    offsets[claim] = {**older, **new}
