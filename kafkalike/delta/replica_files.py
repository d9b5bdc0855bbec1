"""Replica files: a replica's mark, its notes on the versions that do not count, and its version files and seals.

`kafkalike.model.replication.registration` defines the meaning of the notes. A late or repeated note is harmless,
because the set of versions that do not count only grows.
"""

from __future__ import annotations

import json
import re
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalike.delta.actions import APPEND_KEY, CHECKSUM_KEY, Add, TableCommit, log_name, parse_commit
from kafkalike.delta.commit_file import CommitFile
from kafkalike.delta.log_files import LOG, NOTE, LogFiles, note_name, noted_span
from kafkalike.delta.table_state import REPLICAS, SEAL
from kafkalike.model.record_batch import HOLES, cleaner_app
from kafkalike.model.replication.registration import Configuration, Replica, Span, begun, compared, holding

if TYPE_CHECKING:
    from kafkalike.storage.port import Storage


MARK: Final = f"{LOG}/_replica"
"""File of each replica. If it is missing, the replica's folder was removed or is not mounted, and other missing files
prove nothing."""


def mark_replica(files: Storage, replica: Replica) -> None:
    """Create the folder and the mark of a replica, if they are missing.

    Raises:
        OSError: the root cannot be reached.
    """
    files.make_folder(LOG)
    files.put_if_absent(MARK, str(tuple(replica)).encode())


def notes(store: Storage) -> list[Span]:
    """Return the notes of a replica's log.

    Raises:
        OSError: the replica does not answer, or is missing.
    """
    found = [noted_span(entry.name) for entry in store.list(LOG, after=NOTE)]
    # The list of a missing folder is empty.
    store.size(MARK)
    return [span for span in found if span is not None]


def note_beginning(store: Storage, checkpoint: int) -> None:
    """Note, before a replica gets a checkpoint, which of its own versions may not count from then on.

    Raises:
        OSError: the replica does not answer.
    """
    files = LogFiles.listed(store)
    span = begun(files.spans, max(files.checkpoints, default=-1), checkpoint)
    if span.first <= span.last:
        store.put_if_absent(note_name(span), b"", durable=True)


def note_cleaned(store: Storage, below: int) -> None:
    """Note, before commits below a checkpoint are removed, that these versions of the replica do not count.

    Args:
        store: the replica.
        below: the version that its log is to start with; it has a checkpoint there or above.

    Raises:
        OSError: the replica does not answer.
    """
    if below <= 0:
        return
    known = notes(store)
    store.put_if_absent(note_name(Span(0, below - 1)), b"", durable=True)
    # Keep the last older note: a concurrent list may have missed the new one.
    before = max((span.last for span in known if span.final and not span.first and span.last < below - 1), default=-1)
    for span in known:
        if span.last < before:
            store.remove(note_name(span), quietly=True)


def finish_notes(store: Storage, source: Storage) -> None:
    """Determine which versions of a returning replica do not count, unless that is done.

    No file is removed: a client that slept since before would find an empty place, and take the version for
    unpublished.

    Args:
        store: the replica.
        source: another replica. It may have left the chain since, but its log up to its newest checkpoint is right.

    Raises:
        OSError: a replica does not answer.
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
    """Return the published versions that a replica has itself, in sync or not."""
    files = LogFiles.listed(source)
    # The list of a missing folder is empty.
    source.size(MARK)
    newest = max(files.checkpoints, default=-1)
    return frozenset(version for version in files.commits if version <= newest)


APPLICATION: Final = REPLICAS
"""Prefix of the Delta transaction that names a configuration."""

_APPLICATION: Final = APPLICATION.encode()


_APPEND: Final = re.compile(rb'"userMetadata":\s?"\{\\"' + APPEND_KEY.encode() + rb'\\":\s?\\"([0-9A-Za-z-]+)\\"')
"""The id in the first line of our own commits."""


@dataclass(frozen=True)
class VersionFile:
    """Content of a version's file; a `Version` of the replication rules."""

    data: bytes

    @cached_property
    def commit(self) -> TableCommit:
        """The parsed commit, without its version number.

        Raises:
            LogCorruptError: the file is damaged.
        """
        return parse_commit(0, self.data, "a replica")

    @property
    def append_id(self) -> str:
        """Id of the change that made the version; empty for a foreign writer's."""
        # Readers ask for it at each version, so the file is not parsed.
        quick = _APPEND.search(self.data.partition(b"\n")[0])
        return quick[1].decode() if quick else self.commit.append_id or ""

    @property
    def configuration(self) -> Configuration | None:
        """Configuration of the versions after this one, if it is a seal."""
        if _APPLICATION not in self.data:
            # Nearly every version: return without parsing.
            return None
        return newest_configuration(self.commit.txns)


def is_whole(content: bytes) -> bool:
    """Return True if a version's file matches its checksum, or has none, as a foreign writer's."""
    first, _, rest = content.partition(b"\n")
    try:
        wanted = json.loads(first).get("commitInfo", {}).get(CHECKSUM_KEY)
    except (ValueError, AttributeError):
        return False
    return wanted is None or wanted == zlib.crc32(rest)


class LostFile(NamedTuple):
    """A data file that the log names and no replica has."""

    add: Add
    txns: Mapping[str, int]
    """Latest version of each application that has written to the table."""

    @property
    def holes(self) -> dict[str, int]:
        """Application that records the offset below which records of the partition may be missing, with that offset."""
        last = (self.add.stats.get("maxValues") or {}).get("offset")
        if self.add.partition is None or last is None:
            # A file of a control table, or a foreign writer's without statistics.
            return {}
        app = cleaner_app(self.add.partition, HOLES)
        return {app: max(int(last) + 1, self.txns.get(app, 0))}


def seal(configuration: Configuration, time_ms: int, lost: Sequence[LostFile] = ()) -> VersionFile:
    """Make a version that puts a configuration in force.

    Args:
        configuration: the new one.
        time_ms: now, ms.
        lost: data files lost in an unclean election. The version removes them, and records that their records are
            missing.
    """
    holes: dict[str, int] = {}
    for file in lost:
        holes |= {app: max(below, holes.get(app, 0)) for app, below in file.holes.items()}
    wanted = CommitFile(
        version=0,
        time_ms=time_ms,
        operation=SEAL,
        append_id=uuid.uuid4().hex,
        removes=[file.add for file in lost],
        txns={application(configuration): configuration.epoch, **holes},
        note={"lost": [file.add.path for file in lost]} if lost else {},
    )
    return VersionFile(wanted.content())


def application(configuration: Configuration) -> str:
    """Return the Delta application that names a chain: `kafkalike.replicas:1,3.2,2` has life 2 of broker 3."""
    names = (f"{r.broker}.{r.life}" if r.life else str(r.broker) for r in configuration.chain)
    return APPLICATION + ",".join(names)


def newest_configuration(txns: Mapping[str, int]) -> Configuration | None:
    """Return the configuration with the highest epoch among a table's Delta transactions; None without one."""
    found = [(epoch, name) for name, epoch in txns.items() if name.startswith(APPLICATION)]
    if not found:
        return None
    epoch, name = max(found)
    return Configuration(epoch, tuple(map(_replica, name.removeprefix(APPLICATION).split(","))))


def _replica(name: str) -> Replica:
    broker, _, life = name.partition(".")
    return Replica(int(broker), int(life or 0))
