"""Replica files: a replica's mark, its notes on the versions that do not count, and its version files and seals.

`kafkalike.model.replication.log_spans` defines the meaning of the notes. Notes are only ever added, whoever writes them
and however late.
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
from kafkalike.model.maintenance.compaction import HOLES, cleaner_app
from kafkalike.model.replication.log_spans import Span, begun, compared, holding
from kafkalike.model.replication.registration import Configuration, Replica

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


APPLICATION: Final = REPLICAS
"""Beginning of the name of the Delta transaction by which a version says a configuration."""

_APPLICATION: Final = APPLICATION.encode()


_APPEND: Final = re.compile(rb'"userMetadata":\s?"\{\\"' + APPEND_KEY.encode() + rb'\\":\s?\\"([0-9A-Za-z-]+)\\"')
"""Where our own writers say the id, in the first line."""


@dataclass(frozen=True)
class VersionFile:
    """The content of a version, byte by byte; a `Version` of the rules."""

    data: bytes

    @cached_property
    def commit(self) -> TableCommit:
        """What it says, its number excepted.

        Raises:
            LogCorruptError: it is damaged.
        """
        return parse_commit(0, self.data, "a replica")

    @property
    def append_id(self) -> str:
        """Whose it is; empty for those of foreign writers."""
        # Readers ask it of each version: it need not be parsed for that.
        quick = _APPEND.search(self.data.partition(b"\n")[0])
        return quick[1].decode() if quick else self.commit.append_id or ""

    @property
    def configuration(self) -> Configuration | None:
        """The configuration of the versions after it, if it is a seal."""
        if _APPLICATION not in self.data:
            # Nearly all: they need not be parsed for it.
            return None
        return newest_configuration(self.commit.txns)


def is_whole(content: bytes) -> bool:
    """Whether a version's file is what its writer has made, as far as its checksum says; foreign writers have none."""
    first, _, rest = content.partition(b"\n")
    try:
        wanted = json.loads(first).get("commitInfo", {}).get(CHECKSUM_KEY)
    except (ValueError, AttributeError):
        return False
    return wanted is None or wanted == zlib.crc32(rest)


class LostFile(NamedTuple):
    """A data file that a log names and nobody has any more."""

    add: Add
    txns: Mapping[str, int]
    """Latest versions of the applications that have written the log."""

    @property
    def holes(self) -> dict[str, int]:
        """The application that says below which offset of the file's partition records may be missing."""
        last = (self.add.stats.get("maxValues") or {}).get("offset")
        if self.add.partition is None or last is None:
            # Of a control table, or a foreign writer's without statistics.
            return {}
        app = cleaner_app(self.add.partition, HOLES)
        return {app: max(int(last) + 1, self.txns.get(app, 0))}


def seal(configuration: Configuration, time_ms: int, lost: Sequence[LostFile] = ()) -> VersionFile:
    """A version that puts a configuration in force.

    Args:
        configuration: which one.
        time_ms: now, ms.
        lost: data files that nobody has any more, after an unclean election; it takes them out, and says that their
            records are missing.
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
    """The Delta application that says a chain, such as `kafkalike.replicas:1,3.2,2`: broker 3's has life 2."""
    names = (f"{r.broker}.{r.life}" if r.life else str(r.broker) for r in configuration.chain)
    return APPLICATION + ",".join(names)


def newest_configuration(txns: Mapping[str, int]) -> Configuration | None:
    """The configuration of the highest epoch among a table's Delta transactions; None when there is none."""
    found = [(epoch, name) for name, epoch in txns.items() if name.startswith(APPLICATION)]
    if not found:
        return None
    epoch, name = max(found)
    return Configuration(epoch, tuple(map(_replica, name.removeprefix(APPLICATION).split(","))))


def _replica(name: str) -> Replica:
    broker, _, life = name.partition(".")
    return Replica(int(broker), int(life or 0))
