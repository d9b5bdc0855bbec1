"""WriteHistory: when a topic was written to, from the times of its table commits, without reading a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalike.delta.actions import TableCommit, log_name, parse_commit
from kafkalike.delta.damage import storage_errors
from kafkalike.log.topic.topic_commits import maintenance_of
from kafkalike.model.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog

MINUTE_MS: Final = 60_000

PRUNE_MS: Final = 3_600_000
"""Minutes are forgotten this long after they have left the horizon."""

MOST_COMMITS: Final = 2000
"""Most commits that a call reads."""


class WriteVolume(NamedTuple):
    """Records and bytes of data files, as they were written."""

    records: int
    size_bytes: int


NOTHING: Final = WriteVolume(0, 0)


class _Known(NamedTuple):
    """State of a history."""

    minutes: Mapping[int, WriteVolume]
    """By the start of the minute, ms."""
    versions: range
    """Versions that were read."""
    oldest_ms: int | None
    """Time of the oldest commit that was read."""
    whole: bool = False
    """True if the log has no older commits."""
    pruned_ms: int = 0
    """Minutes before this time were forgotten."""

    def reaches(self, horizon_ms: int) -> bool:
        """Return True if all commits since a time are known."""
        return self.whole or (self.oldest_ms is not None and self.oldest_ms < horizon_ms)


class WriteHistory:
    """Records and bytes that commits have appended to a topic, by minute of the commit.

    Record times say nothing about the time of a write: a topic may be filled in one commit with the records of a year.
    Commits that only rewrite, remove or copy records count as nothing. The history begins with the oldest commit of the
    horizon that the table's log still has; a call that does not reach it leaves the rest for the next call. One thread
    may read commits while others ask for sums.
    """

    def __init__(self) -> None:
        self._known = _Known({}, range(0), None)
        """Replaced whole by `read`."""
        self._steps: dict[int, tuple[_Known, Mapping[int, WriteVolume]]] = {}
        """Sums by length of the steps, ms, with the state that they belong to."""

    @property
    def since_ms(self) -> int | None:
        """Time from which on all commits are known, ms; None for all times."""
        return None if self._known.whole else self._known.oldest_ms

    def read(self, log: TopicLog, horizon_ms: int, *, most: int = MOST_COMMITS, seconds: float = 60.0) -> bool:
        """Read the commits that are new, then older ones down to the horizon.

        Args:
            log: refreshed log of the topic.
            horizon_ms: older commits are not needed.
            most: limit of older commits for this call.
            seconds: limit of time for older commits; at least one is read.

        Returns:
            True if the history reaches the horizon or the oldest commit of the log.

        Raises:
            KafkaStorageError: the storage does not answer.
            LogCorruptError: a commit is damaged.
        """
        newest, deadline = log.version, SYSTEM_CLOCK.monotonic() + seconds
        before = self._known
        if before.versions and before.versions.stop == newest + 1 and before.reaches(horizon_ms):
            return True
        if not before.versions or not before.versions.stop <= newest + 1 < before.versions.stop + most:
            # The first look, a table that was rewound, or more new commits than a look reads.
            before = _Known({}, range(newest + 1, newest + 1), None, pruned_ms=horizon_ms)
            if log.last_append_ms() < horizon_ms:
                self._known = before._replace(versions=range(newest, newest + 1), oldest_ms=log.last_append_ms())
                return True
        found = [_commit(log, version) for version in range(before.versions.stop, newest + 1)]
        known = before._replace(versions=range(before.versions.start, newest + 1))
        read = 0
        while not known.reaches(horizon_ms) and read < most and (not read or SYSTEM_CLOCK.monotonic() < deadline):
            version = known.versions.start - 1
            commit = _commit(log, version) if version >= 0 else None
            if commit is None:
                # The log was cleaned up to here, or begins here.
                known = known._replace(whole=True)
                break
            found.append(commit)
            oldest_ms = commit.timestamp_ms if known.oldest_ms is None else min(known.oldest_ms, commit.timestamp_ms)
            known = known._replace(versions=range(version, newest + 1), oldest_ms=oldest_ms)
            read += 1
        self._take(before, known, [(one.timestamp_ms, _appended(one)) for one in found if one is not None], horizon_ms)
        return known.reaches(horizon_ms)

    def _take(self, before: _Known, known: _Known, new: Sequence[tuple[int, WriteVolume]], horizon_ms: int) -> None:
        """Replace the state by one with new writes, and the sums of the state before."""
        kept = [(step, sums) for step, (of, sums) in list(self._steps.items()) if of is before]
        minutes = known.minutes
        if horizon_ms - known.pruned_ms > PRUNE_MS:
            minutes, kept = {at: written for at, written in minutes.items() if at + MINUTE_MS > horizon_ms}, []
            known = known._replace(pruned_ms=horizon_ms)
        known = known._replace(minutes=_added(minutes, new, MINUTE_MS))
        # Adding up a day of minutes takes a ms, and there may be thousands of topics.
        self._steps = {step: (known, _added(sums, new, step)) for step, sums in kept}
        self._known = known

    def by_step(self, step_ms: int) -> Mapping[int, WriteVolume]:
        """Return the records and bytes written, by steps of whole minutes.

        Args:
            step_ms: a multiple of a minute.

        Returns:
            Sums by the start of each step with writes, ms; starts are multiples of the step.
        """
        known, kept = self._known, self._steps.get(step_ms)
        if kept is None or kept[0] is not known:
            kept = (known, _added({}, known.minutes.items(), step_ms))
            self._steps[step_ms] = kept
        return kept[1]


def _added(
    sums: Mapping[int, WriteVolume], new: Iterable[tuple[int, WriteVolume]], step_ms: int
) -> Mapping[int, WriteVolume]:
    """Return sums by step with new writes, by their time in ms."""
    found = dict(sums)
    for at, written in new:
        if written != NOTHING:
            start = at // step_ms * step_ms
            known = found.get(start, NOTHING)
            found[start] = WriteVolume(known.records + written.records, known.size_bytes + written.size_bytes)
    return found


def _commit(log: TopicLog, version: int) -> TableCommit | None:
    """Return a commit; None if the log was cleaned up."""
    try:
        with storage_errors(log.files.uri):
            return parse_commit(version, log.files.read(log_name(version)), log.files.uri)
    except FileNotFoundError:
        return None


def _appended(commit: TableCommit) -> WriteVolume:
    if maintenance_of(commit) or commit.removes or not commit.data_change:
        return NOTHING
    records = 0
    for add in commit.adds:
        count = add.stats.get("numRecords", 0)
        records += count if isinstance(count, int) else 0
    return WriteVolume(records, sum(add.size for add in commit.adds))
