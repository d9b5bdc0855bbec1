"""Topic group commit: commit appends of several writers to one topic together, and record each writer's offsets."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkalike.delta.actions import APPEND, Add
from kafkalike.delta.group_commit.group_commit import GroupCommit
from kafkalike.delta.group_commit.staging_area import AtVersion, GroupedChange, OpenAppends
from kafkalike.delta.table import Table
from kafkalike.delta.table_change import Change, Landed, Plan, Still, Unchanged
from kafkalike.delta.table_state import TableState, end_app
from kafkalike.errors import KafkaError
from kafkalike.log.topic import batch_payload, producer_append
from kafkalike.log.topic.record_rules import SchemasOf, check_after, codec_for
from kafkalike.log.topic.topic_commits import names_of
from kafkalike.model import faults
from kafkalike.model.appends.producer_sequences import ProducerSequences, judge_all
from kafkalike.model.appends.taken_appends import PARTS_KEY, Placed, WaitingAppend
from kafkalike.model.appends.waiting_appends import OWN, numbered, to_note
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.record_batch import Appended, RecordBatch, TxnId

if TYPE_CHECKING:
    from kafkalike.model.config.topic_config import TopicConfig
    from kafkalike.model.topic import TopicInfo
    from kafkalike.storage.port import Storage

_log = logging.getLogger(__name__)

MOST_STORED: Final = 2 * 1024 * 1024
"""Most bytes of keys and values of an append that may wait in a staged file. A larger append only competes."""


@dataclass(frozen=True, slots=True)
class Append:
    """An append without offsets."""

    payload: batch_payload.Payload
    codec: str
    """The producer's codec."""
    txn: TxnId | None
    sequences: batch_payload.StagedSequences = ()
    """The batches of producers that the records are from; none if they have no sequences."""


class GroupedTopic(Protocol):
    """The methods of `TopicLog` that a group commit uses."""

    info: TopicInfo
    files: Storage
    clock: Clock

    @property
    def config(self) -> TopicConfig: ...  # noqa: D102

    @property
    def schemas(self) -> SchemasOf: ...  # noqa: D102

    def log_end(self, partition: int) -> int: ...  # noqa: D102

    def already_appended(self, txn: TxnId | None) -> Appended | None: ...  # noqa: D102

    def change_for_append(self, plan: Plan[Any], deadline: Deadline) -> Landed | Unchanged[Any]: ...  # noqa: D102

    def refresh_table(self) -> None: ...  # noqa: D102

    def producer_sequences(self, now_ms: int) -> ProducerSequences: ...  # noqa: D102

    def look_for_append(self) -> None: ...  # noqa: D102

    def exclusive(self, deadline: Deadline) -> AbstractContextManager[None]: ...  # noqa: D102


class TopicAppends:
    """The appends to a topic, as `GroupCommit` handles them.

    Args:
        log: the topic.
    """

    def __init__(self, log: GroupedTopic) -> None:
        self._log = log

    def change(self, plan: Plan[Any], deadline: Deadline) -> Landed | Unchanged[Any]:
        """Change the topic's table."""
        return self._log.change_for_append(plan, deadline)

    def look(self) -> None:
        """Look for new commits of the table."""
        self._log.refresh_table()

    def admit(self, own: Append) -> None:
        """Look at the table, and raise an error if the topic rejects an append."""
        log = self._log
        log.look_for_append()
        now = log.clock.now_ms()
        own.payload.check(log.info, log.config, now)
        codec_for(log.config, own.codec)
        if isinstance(own.payload, producer_append.SequencedPayload):
            own.payload.judge(log.producer_sequences(now), now, final=True)
            if not own.payload.counts():
                raise producer_append.SettledError

    def turn(self, deadline: Deadline) -> AbstractContextManager[None]:
        """Hold the table's write queue."""
        return self._log.exclusive(deadline)

    def storable(self, own: Append) -> bool:
        """True if the append may wait in a staged file."""
        if isinstance(own.payload, producer_append.SequencedPayload):
            return own.payload.size <= MOST_STORED
        if not isinstance(own.payload, batch_payload.BatchPayload):
            return False
        batch = own.payload.batch
        return sum(len(b) for column in (batch.keys, batch.values) for b in column if b) <= MOST_STORED

    def packed(self, own: Append) -> bytes:
        """Return the append's staged file."""
        if isinstance(own.payload, producer_append.SequencedPayload):
            staged = own.payload.staged
            return batch_payload.pack(
                own.payload.records(staged), own.codec, own.txn, producer_append.sequences_of(staged)
            )
        assert isinstance(own.payload, batch_payload.BatchPayload)
        return batch_payload.pack(own.payload.batch, own.codec, own.txn)

    def made(
        self,
        state: TableState,
        own: Append,
        part: WaitingAppend | None,
        others: Sequence[tuple[WaitingAppend, bytes]] | None,
    ) -> GroupedChange | Placed:
        """Plan a commit of an append together with waiting appends; see `Appends`."""
        log = self._log
        sequence = 0 if part is None else part.sequence
        done = log.already_appended(own.txn)
        if done is not None:
            return Placed(sequence, done.version, done.ranges, done.append_time_ms, duplicate=True)
        info, now = log.info, log.clock.now_ms()
        own.payload.check(info, log.config, now)
        if isinstance(own.payload, producer_append.SequencedPayload):
            payload = own.payload
            payload.judge(producer_append.recalled(state, log.files, now), now)
            if not payload.counts() and payload.refused and part is not None:
                # The file must be withdrawn: other writers may find later that its batches are in order.
                raise producer_append.SettledError
            if payload.counts():
                own = Append(
                    payload.payload(MOST_STORED), own.codec, own.txn, producer_append.sequences_of(payload.written)
                )
        if not own.payload.counts() and own.txn is None:
            return Placed(sequence, state.version, {}, now)
        taken, unfit = self._acceptable(state, own, others or (), now)
        # Appends of one codec follow each other, because each partition and codec gets one file. Own records that do
        # not wait come last, because they arrived after the waiting ones.
        appends = sorted(
            [*taken, (part or OWN, own)], key=lambda found: (self._codec(found[1]), found[0] is OWN, found[0])
        )
        counts = [append.payload.counts() for _, append in appends]
        partitions = {p for found in counts for p in found}
        runs = numbered({p: log.log_end(p) for p in partitions}, counts)
        ends = {p: state.end(p) for p in state.unrecorded}
        ends |= {p: max(run[p].stop for run in runs if p in run) for p in partitions}
        txns = {end_app(p): end for p, end in sorted(ends.items())}
        for _, append in appends:
            txns |= {} if append.txn is None else names_of(append.txn, state.txns)
        note = batch_payload.append_note(now, own.txn, state.txns)
        if others is not None:
            named = [(found, run, append.txn) for (found, append), run in zip(appends, runs, strict=True)]
            note[PARTS_KEY] = to_note([(n, r, None if t is None else (t.app_id, t.version)) for n, r, t in named])
        adds = self._written([append for _, append in appends], runs, now)
        faults.point("append.before_commit")
        change = Change(
            operation=APPEND,
            time_ms=now,
            adds=adds,
            txns=txns,
            note=note,
            requires=[AtVersion(state.version), Still(lambda: log.info is info, "the topic")],
        )
        placed = [
            one
            for (_, a), run in zip(appends, runs, strict=True)
            for one in producer_append.placed_sequences(a.sequences, run)
        ]
        if placed:
            change = producer_append.record_sequences(change, state, placed)
        mine = next(run for (found, _), run in zip(appends, runs, strict=True) if found is (part or OWN))
        return GroupedChange(change, mine, len(taken), unfit)

    def _codec(self, append: Append) -> str:
        return codec_for(self._log.config, append.codec)

    def _acceptable(
        self, state: TableState, own: Append, others: Sequence[tuple[WaitingAppend, bytes]], now: int
    ) -> tuple[list[tuple[WaitingAppend, Append]], list[WaitingAppend]]:
        """Return the waiting appends that the topic admits, one for each name, and others not to be read again."""
        log = self._log
        found, unfit = list[tuple[WaitingAppend, Append]](), list[WaitingAppend]()
        names = set() if own.txn is None else {own.txn.app_id}
        producers = {sequence.key for _, _, sequence in own.sequences if sequence is not None}
        for part, content in others:
            try:
                (batch, codec, txn), sequences = batch_payload.unpack_sequences(content)
                append = Append(batch_payload.BatchPayload(batch, log.schemas), codec, txn, sequences)
                append.payload.check(log.info, log.config, now)
                codec_for(log.config, codec)
                if txn is not None:
                    latest = state.txns.get(txn.app_id)
                    check_after(log.info.name, txn, latest)
                    if latest is not None and latest >= txn.version:
                        unfit.append(part)
                        continue
                    if txn.app_id in names:
                        continue
                    names.add(txn.app_id)
                if sequences:
                    wanted = [sequence for _, _, sequence in sequences]
                    keys = {sequence.key for sequence in wanted if sequence is not None}
                    verdicts = judge_all(producer_append.recalled(state, log.files, now).entries, wanted, now)
                    if not all(verdict.writes for verdict in verdicts):
                        unfit.append(part)
                        continue
                    if keys & producers:
                        continue
                    producers |= keys
            except Exception as cause:  # noqa: BLE001 - another writer's bad file must not stop the own append
                _log.debug("%s: append %s is left out: %r", log.info.name, part.name, cause)
                # A rejected append is not read again, because its writer tries it in its own turn.
                unfit.append(part)
                continue
            found.append((part, append))
        return found, unfit

    def _written(self, appends: Sequence[Append], runs: Sequence[Mapping[int, range]], now: int) -> list[Add]:
        """Write the data files: one for each partition and codec; other kinds of payload get files of their own."""
        config, adds = self._log.config, list[Add]()
        numbered_appends = zip(appends, runs, strict=True)
        try:
            for (codec, plain), group in groupby(
                numbered_appends, key=lambda found: _kind(self._codec(found[0]), found[0])
            ):
                members = list(group)
                payloads = [_joined([append for append, _ in members])] if plain else [a.payload for a, _ in members]
                plans = [_spans([run for _, run in members])] if plain else [dict(run) for _, run in members]
                for payload, plan in zip(payloads, plans, strict=True):
                    adds += payload.write(
                        self._log.files, plan, codec=codec, now_ms=now, now_counts=config.log_append_time
                    )
        except KafkaError:
            for add in adds:
                self._log.files.remove(add.path, quietly=True)
            raise
        return adds


class TopicGroupCommit(GroupCommit[Append]):
    """Appends of one process to one topic; the writer of the next version, in any process, commits them. Thread-safe.

    Args:
        log: the topic.
        table: its table.
        jitter: random number from 0 to 1.
        opened: the topic's open appends in this process.
    """

    def __init__(self, log: GroupedTopic, table: Table, jitter: Callable[[], float], opened: OpenAppends) -> None:
        super().__init__(table, TopicAppends(log), log.clock, jitter, opened)

    most_stored: Final = MOST_STORED

    def bring(self, payload: batch_payload.Payload, codec: str, txn: TxnId | None, deadline: Deadline) -> Appended:
        """Number the records of a payload, write and commit them: all of them or none; errors as in `append`."""
        placed = self.append(Append(payload, codec, txn), deadline)
        return Appended(
            version=placed.version,
            ranges=placed.ranges,
            append_time_ms=placed.time_ms,
            duplicate=placed.duplicate,
        )


def _kind(codec: str, append: Append) -> tuple[str, bool]:
    return codec, isinstance(append.payload, batch_payload.BatchPayload)


def _joined(appends: Sequence[Append]) -> batch_payload.Payload:
    """Return the records of several appends as one payload, in order."""
    if len(appends) == 1:
        return appends[0].payload
    whole = RecordBatch()
    for append in appends:
        assert isinstance(append.payload, batch_payload.BatchPayload)
        whole.extend(append.payload.batch)
    return batch_payload.BatchPayload(whole)


def _spans(runs: Sequence[Mapping[int, range]]) -> dict[int, range]:
    """Join consecutive runs into one for each partition."""
    starts: dict[int, int] = {}
    lengths: Counter[int] = Counter()
    for one in runs:
        for partition, run in one.items():
            starts.setdefault(partition, run.start)
            lengths[partition] += len(run)
    return {p: range(start, start + lengths[p]) for p, start in starts.items()}
