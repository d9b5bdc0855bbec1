"""Beginnings: a replica's log in; which of its versions count, out.

A head may have a version that nobody else got. It is taken out, the log goes on without it, and a checkpoint brings it
back; that version stays below, or lands there much later. And who has slept since before clean-up may put a version
where that has been. So it is noted first, at the replica, up to which version its own log does not count. The notes
only grow, whoever writes them, and however late.
"""

from __future__ import annotations

from collections.abc import Mapping
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


def notes(store: Store) -> Mapping[int, bool]:
    """Up to which versions a replica's log was noted not to count, and whether what it had there was removed.

    Raises:
        OSError: it gives no answer.
    """
    names = [entry.name for entry in store.list(_LOG, after=NOTE) if entry.name.startswith(NOTE)]
    return {int(name.removeprefix(NOTE).removesuffix(_TIDY)): name.endswith(_TIDY) for name in sorted(names)}


def last_of(noted: Mapping[int, bool], newest: int) -> int:
    """The last note that holds, or -1.

    Args:
        noted: see `notes`.
        newest: the replica's newest checkpoint. Who noted a later one was killed before it was there: what the replica
            has is needed then.
    """
    return max((version for version in noted if version <= newest), default=-1)


def note_beginning(store: Store, version: int) -> None:
    """Note that of a replica's own versions those up to a checkpoint do not count, which it gets after that.

    Raises:
        OSError: it gives no answer.
    """
    store.put_if_absent(_name(version), b"", durable=True)


def note_cleaned(store: Store, below: int) -> None:
    """Note that of a replica's own versions those below a checkpoint do not count, which are removed after that.

    Args:
        store: the replica.
        below: where its log is to begin; it has a checkpoint there, or above.

    Raises:
        OSError: it gives no answer.
    """
    if below > 0:
        store.put_if_absent(_name(below - 1) + _TIDY, b"", durable=True)
        _drop_older(store, below - 1)


def tidy(store: Store, source: Store) -> None:
    """Remove a replica's versions that do not count and are not those of the source, unless that was done.

    Nobody takes them for published; Delta's own readers could, where they are asked for an old version by name.

    Args:
        store: the replica.
        source: another one, which has all that is published.

    Raises:
        OSError: one gives no answer.
    """
    noted, files = notes(store), LogFiles.listed(store)
    version = last_of(noted, max(files.checkpoints, default=-1))
    if noted.get(version, True):
        return
    for number in files.commits:
        if number <= version and store.look(log_name(number)) != source.look(log_name(number)):
            store.remove(log_name(number))
    store.put_if_absent(_name(version) + _TIDY, b"")
    _drop_older(store, version)


def _drop_older(store: Store, version: int) -> None:
    """Remove notes below one that holds."""
    for older in notes(store):
        if older < version:
            for ending in ("", _TIDY):
                store.discard(_name(older) + ending)


def _name(version: int) -> str:
    return f"{_LOG}/{NOTE}{version:020d}"
