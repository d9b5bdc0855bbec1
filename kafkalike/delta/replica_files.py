"""Replica files: a replica's folder in; what it says about the replica, out: its mark, and which of its versions count.

What notes on that mean is in `kafkalike.model.replication.log_spans`. They only grow, whoever writes them, and however
late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalike.delta.actions import log_name
from kafkalike.delta.log_files import LOG, NOTE, LogFiles, note_name, noted_span
from kafkalike.delta.version_file import is_whole
from kafkalike.model.replication.log_spans import Span, begun, compared, holding

if TYPE_CHECKING:
    from kafkalike.model.replication.registration import Replica
    from kafkalike.storage.port import Storage

MARK: Final = f"{LOG}/_replica"
"""A file that each replica has: where it is missing, nothing else that is missing means anything."""


def mark_replica(files: Storage, replica: Replica) -> None:
    """Make the place of a replica, unless it is there.

    Raises:
        OSError: the root cannot be reached.
    """
    files.make_folder(LOG)
    files.put_if_absent(MARK, str(tuple(replica)).encode())


def notes(store: Storage) -> list[Span]:
    """What was noted of a replica's log.

    Raises:
        OSError: it gives no answer, or is not there.
    """
    found = [noted_span(entry.name) for entry in store.list(LOG, after=NOTE)]
    # A folder that is gone lists nothing.
    store.size(MARK)
    return [span for span in found if span is not None]


def note_beginning(store: Storage, checkpoint: int) -> None:
    """Note which of a replica's own versions may not count once it has got a checkpoint, which comes after that.

    Raises:
        OSError: it gives no answer.
    """
    files = LogFiles.listed(store)
    span = begun(files.spans, max(files.checkpoints, default=-1), checkpoint)
    if span.first <= span.last:
        store.put_if_absent(note_name(span), b"", durable=True)


def note_cleaned(store: Storage, below: int) -> None:
    """Note that of a replica's own versions those below a checkpoint do not count, which are removed after that.

    Args:
        store: the replica.
        below: where its log is to begin; it has a checkpoint there, or above.

    Raises:
        OSError: it gives no answer.
    """
    if below <= 0:
        return
    known = notes(store)
    store.put_if_absent(note_name(Span(0, below - 1)), b"", durable=True)
    # The last one of those before stays: a list that others make meanwhile may have missed the new one.
    before = max((span.last for span in known if span.final and not span.first and span.last < below - 1), default=-1)
    for span in known:
        if span.last < before:
            store.remove(note_name(span), quietly=True)


def finish_notes(store: Storage, source: Storage) -> None:
    """Find out where the versions of a replica that came back cease to count, if that was not done.

    Nothing is removed: whoever has slept since before may find the place empty, and believe that nobody was there.

    Args:
        store: the replica.
        source: another one. It may have left the chain since: what counts there up to its newest checkpoint is right.

    Raises:
        OSError: one gives no answer.
    """
    files = LogFiles.listed(store)
    unfinished = [s for s in holding(files.spans, max(files.checkpoints, default=-1)) if not s.final]
    if not unfinished:
        return
    right = _right_at(source)
    judged = set[int]()

    def is_same(version: int) -> bool | None:
        if version not in right:
            return None
        theirs, mine = source.look(log_name(version)), store.look(log_name(version))
        if theirs is None or mine is None or not (is_whole(theirs) and is_whole(mine)):
            return None
        judged.add(version)
        return theirs == mine

    finals = [compared(span, files.present, is_same) for span in unfinished]
    if judged <= _right_at(source):
        for span in finals:
            store.put_if_absent(note_name(span), b"", durable=True)


def _right_at(source: Storage) -> frozenset[int]:
    """Versions that a replica has itself and that were published, whether it is in sync or not."""
    files = LogFiles.listed(source)
    # A folder that is gone lists nothing.
    source.size(MARK)
    newest = max(files.checkpoints, default=-1)
    return frozenset(version for version in files.commits if version <= newest)
