"""WriteHistory: when a topic was written to, from the times of its table commits, without reading a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalike.delta.actions import TableCommit, log_name, parse_commit
from kafkalike.delta.damage import storage_errors
from kafkalike.log.topic.topic_commits import maintenance_of
from kafkalike.model.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog

MINUTE_MS: Final = 60_000

MOST_COMMITS: Final = 2000
"""Most commits that a call reads."""


class Written(NamedTuple):
    """Records and bytes of data files, as they were written."""

    records: int
    size_bytes: int


NOTHING: Final = Written(0, 0)


class _Known(NamedTuple):
    """State of a history."""

    minutes: Mapping[int, Written]
    """By minutes since 1970."""
    versions: range
    """Versions that were read."""
    oldest_ms: int | None
    """Time of the oldest commit that was read."""
    whole: bool
    """True if the log has no older commits."""

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
        self._known = _Known({}, range(0), None, whole=False)
        """Replaced whole by `read`."""

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
        known = self._known
        if not known.versions or not known.versions.stop <= newest + 1 < known.versions.stop + most:
            # The first look, a table that was rewound, or more new commits than a look reads.
            known = _Known({}, range(newest + 1, newest + 1), None, whole=False)
            if log.last_append_ms() < horizon_ms:
                self._known = known._replace(versions=range(newest, newest + 1), oldest_ms=log.last_append_ms())
                return True
        minutes = {at: written for at, written in known.minutes.items() if (at + 1) * MINUTE_MS > horizon_ms}
        for version in range(known.versions.stop, newest + 1):
            _count(minutes, _commit(log, version))
        known = known._replace(minutes=minutes, versions=range(known.versions.start, newest + 1))
        read = 0
        while not known.reaches(horizon_ms) and read < most and (not read or SYSTEM_CLOCK.monotonic() < deadline):
            version = known.versions.start - 1
            commit = _commit(log, version) if version >= 0 else None
            if commit is None:
                # The log was cleaned up to here, or begins here.
                known = known._replace(whole=True)
                break
            _count(minutes, commit)
            oldest_ms = commit.timestamp_ms if known.oldest_ms is None else min(known.oldest_ms, commit.timestamp_ms)
            known = known._replace(versions=range(version, newest + 1), oldest_ms=oldest_ms)
            read += 1
        self._known = known
        return known.reaches(horizon_ms)

    def by_step(self, since_ms: int, step_ms: int) -> dict[int, Written]:
        """Return what was written by steps of whole minutes.

        Args:
            since_ms: steps that begin earlier are left out.
            step_ms: a multiple of a minute.

        Returns:
            Sums by the start of each step with writes, ms; starts are multiples of the step.
        """
        found: dict[int, Written] = {}
        for at, written in self._known.minutes.items():
            start = at * MINUTE_MS // step_ms * step_ms
            if start >= since_ms:
                known = found.get(start, NOTHING)
                found[start] = Written(known.records + written.records, known.size_bytes + written.size_bytes)
        return dict(sorted(found.items()))


def _count(minutes: dict[int, Written], commit: TableCommit | None) -> None:
    written = NOTHING if commit is None else _appended(commit)
    if commit is not None and written != NOTHING:
        at = commit.timestamp_ms // MINUTE_MS
        known = minutes.get(at, NOTHING)
        minutes[at] = Written(known.records + written.records, known.size_bytes + written.size_bytes)


def _commit(log: TopicLog, version: int) -> TableCommit | None:
    """Return a commit; None if the log was cleaned up."""
    try:
        with storage_errors(log.files.uri):
            return parse_commit(version, log.files.read(log_name(version)), log.files.uri)
    except FileNotFoundError:
        return None


def _appended(commit: TableCommit) -> Written:
    if maintenance_of(commit.user_metadata) or commit.removes or not commit.data_change:
        return NOTHING
    records = 0
    for add in commit.adds:
        count = add.stats.get("numRecords", 0)
        records += count if isinstance(count, int) else 0
    return Written(records, sum(add.size for add in commit.adds))
