"""Beginnings: a replica that came back by a checkpoint in; which of its versions count, out.

A head may have a version that nobody else got. It is taken out, the log goes on without it, and a checkpoint brings it
back; that version stays below, or lands there much later. So it is noted first, at the replica, that nothing up to the
checkpoint counts there. The notes only grow, whoever writes them, and however late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalike.log.table.actions import log_name
from kafkalike.log.table.log_files import LogFiles

if TYPE_CHECKING:
    from kafkalike.log.store.port import Store

NOTE: Final = "_counts_above."
"""Beginning of the names of notes in `_delta_log`; Delta's own readers ignore names that begin with `_`."""

_LOG: Final = "_delta_log"
_TIDY: Final = ".tidy"
"""Ending of the name of a note that what does not count was looked for, and removed."""


def counts_above(store: Store, newest: int) -> int:
    """The checkpoint that a replica came back with last; -1 where all that it has counts.

    Args:
        store: the replica.
        newest: its newest checkpoint. Who noted a later one was killed before it was there: what the replica has is
            needed then.

    Raises:
        OSError: it gives no answer.
    """
    return max((version for version, _ in _notes(store) if version <= newest), default=-1)


def note_beginning(store: Store, version: int) -> None:
    """Note that of a replica's own versions those up to a checkpoint do not count.

    Raises:
        OSError: it gives no answer.
    """
    store.put_if_absent(_name(version), b"", durable=True)


def tidy(store: Store, source: Store) -> None:
    """Remove a replica's versions that do not count and are not those of the source, unless that was done.

    Nobody takes them for published; Delta's own readers could, where they are asked for an old version by name.

    Args:
        store: the replica.
        source: another one, which has all that is published.

    Raises:
        OSError: one gives no answer.
    """
    notes = dict(sorted(_notes(store)))
    files = LogFiles.listed(store)
    version = max((noted for noted in notes if noted <= max(files.checkpoints, default=-1)), default=-1)
    if notes.get(version, True):
        return
    for number in files.commits:
        if number <= version and store.look(log_name(number)) != source.look(log_name(number)):
            store.remove(log_name(number))
    store.put_if_absent(_name(version) + _TIDY, b"")


def _name(version: int) -> str:
    return f"{_LOG}/{NOTE}{version:020d}"


def _notes(store: Store) -> list[tuple[int, bool]]:
    """Checkpoints that it came back with, and whether it is tidy since."""
    names = [entry.name for entry in store.list(_LOG, after=NOTE) if entry.name.startswith(NOTE)]
    return [(int(name.removeprefix(NOTE).removesuffix(_TIDY)), name.endswith(_TIDY)) for name in names]
