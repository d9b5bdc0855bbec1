"""Transaction report: the state of transactional ids for people, and decisions whose staged files are gone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from kafkalike.log.topic.transaction_append import StagedFileError
from kafkalike.log.transactions.effect_runner import EffectRunner, TransactionContext
from kafkalike.log.transactions.transaction_files import check_part, staged_counts
from kafkalike.model.clock import Deadline
from kafkalike.model.transactions.pending_decisions import PendingDecision
from kafkalike.model.transactions.roll_forward import looking
from kafkalike.model.transactions.rules import is_open
from kafkalike.model.transactions.transaction_views import LostPart, TransactionReport, TransactionState
from kafkalike.model.transactions.transactional_id import StagedFolder, TransactionalIdState, Why


def describe(
    home: TransactionContext, wanted: Collection[str] | None = None, *, staged: bool = False
) -> dict[str, TransactionReport]:
    """Descriptions by id; those that are not known are left out.

    Args:
        home: topics, groups and staged files.
        wanted: which ids; None for all.
        staged: see `Transactions.described`.
    """
    folders: defaultdict[int, list[StagedFolder]] = defaultdict(list)
    for folder in home.staging.folders():
        folders[folder.attempt.producer_id].append(folder)
    known = home.cluster.groups.refresh()
    describer = _Describer(home, staged=staged)
    found = {}
    for name in known.transactions if wanted is None else wanted:
        standing = known.transactions.get(name)
        if standing is not None:
            opened = [f for f in folders.get(standing.producer_id, ()) if is_open(standing, f.attempt)]
            found[name] = describer.described(name, standing, opened)
    return found


class _Describer:
    """Describes one id after the other, and looks at each topic once."""

    def __init__(self, home: TransactionContext, *, staged: bool) -> None:
        self._home = home
        self._staged = staged
        self._names: dict[str, str] = {
            info.topic_id: info.name for info in home.cluster.metadata.refresh().topics.values()
        }
        self._seen: dict[str, int | None] = {}
        """By topic id, the last decision that it has."""

    def described(self, name: str, standing: TransactionalIdState, opened: Sequence[StagedFolder]) -> TransactionReport:
        about = TransactionReport(
            transactional_id=name,
            state=TransactionState.ONGOING,
            producer_id=standing.producer_id,
            epoch=standing.epoch,
            number=standing.number,
            timeout_ms=standing.timeout_ms,
            client_id=standing.client_id,
            start_ms=-1,
            changed_ms=standing.changed_ms,
            reason=standing.why.value,
        )
        if opened:
            first = max(opened, key=lambda folder: folder.age_ms)
            return replace(
                about,
                number=first.attempt.number,
                start_ms=self._home.cluster.clock.now_ms() - first.age_ms,
                topics=self._topics_of(first),
            )
        decision = standing.unsettled
        unapplied = self._unapplied(standing)
        return replace(
            about,
            state=_state(standing, unapplied),
            topics={} if decision is None else {p.topic.name: p.counts for p in decision.parts},
            unapplied=tuple(unapplied),
            groups=() if decision is None else decision.groups,
        )

    def _topics_of(self, folder: StagedFolder) -> dict[str, Mapping[int, int]]:
        """Topics of an open transaction; those that still exist."""
        names = {topic_id: self._names[topic_id] for topic_id in folder.topics if topic_id in self._names}
        counts = staged_counts(self._home.staging, folder.attempt, names) if self._staged and names else {}
        return {name: counts.get(topic_id, {}) for topic_id, name in names.items()}

    def _unapplied(self, standing: TransactionalIdState) -> list[str]:
        """Topics that do not have what the id has decided."""
        found = []
        decision = standing.unsettled
        for part in () if decision is None else decision.parts:
            assert decision is not None
            topic = part.topic
            if self._names.get(topic.topic_id) != topic.name:
                continue
            if topic.topic_id not in self._seen:
                driver = EffectRunner(self._home, Deadline(self._home.cluster.clock, None))
                self._seen[topic.topic_id] = driver.run(looking(topic))
            last = self._seen[topic.topic_id]
            if last is not None and last < decision.seq:
                found.append(topic.name)
        return found


def _state(standing: TransactionalIdState, unapplied: Sequence[str]) -> TransactionState:
    if standing.why is Why.COMMIT:
        return TransactionState.PREPARE_COMMIT if unapplied else TransactionState.COMPLETE_COMMIT
    return TransactionState.EMPTY if standing.why is Why.INIT else TransactionState.COMPLETE_ABORT


def lost_parts(home: TransactionContext) -> Sequence[LostPart]:
    """See `Transactions.damaged`.

    Args:
        home: topics, groups and staged files.
    """
    known = home.cluster.groups.refresh()
    driver = EffectRunner(home, Deadline(home.cluster.clock, None))
    found = []
    for dues in known.unsettled.values():
        # One look at each topic, however many ids have written to it.
        topic = next(iter(dues)).part.topic
        last: int | None = driver.run(looking(topic))
        for due in () if last is None else dues.between(last, known.seq):
            why = _why(home, driver, due)
            if why is not None:
                found.append(
                    LostPart(
                        transactional_id=due.transactional_id,
                        seq=due.seq,
                        topic=topic.name,
                        topic_id=topic.topic_id,
                        counts=due.part.counts,
                        why=why,
                    )
                )
    return sorted(found, key=lambda lost: (lost.seq, lost.topic))


def _why(home: TransactionContext, driver: EffectRunner, due: PendingDecision) -> str | None:
    try:
        check_part(home.staging, due.committed, due.part)
    except StagedFileError as error:
        last: int | None = driver.run(looking(due.part.topic))
        # Somebody may have brought it in, and cleaned up, just now.
        return None if last is None or last >= due.seq else str(error)
    return None
