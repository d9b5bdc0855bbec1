"""Record removal: select records by key or by offset, and the certificate of forgotten keys.

Removed records leave holes, as compaction does: the offsets of all other records stay.

The certificate is JSON that the operator keeps outside of the cluster and can check later. It holds a fingerprint of
each key and the salt of the fingerprints, never a key in clear text.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from kafkalike.errors import IllegalArgumentError

Runs = tuple[range, ...]
"""Ranges of offsets in ascending order, which do not touch each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """The records to remove from one partition."""

    below: int
    """Records from this offset on are kept, because they were appended after the removal began."""
    keys: frozenset[bytes] = frozenset()
    """Keys whose records are removed."""
    offsets: Runs = ()
    """Records at these offsets are removed as well."""
    spared: frozenset[int] = frozenset()
    """Offsets of records that are kept regardless of their key: tombstones that already have the effect."""
    source: str | None = None
    """Only dead letters of this topic are removed; None to ignore the origin of records."""

    def takes(self, offset: int, key: bytes | None) -> bool:
        """Return whether a record is removed, ignoring `source`: the rule that the applying code must follow."""
        if offset >= self.below or offset in self.spared:
            return False
        return (key is not None and key in self.keys) or any(offset in run for run in self.offsets)


def runs_of(offsets: Iterable[int]) -> Runs:
    """Return offsets as ranges.

    >>> runs_of([3, 1, 2, 7])
    (range(1, 4), range(7, 8))
    """
    ordered = sorted(set(offsets))
    if not ordered:
        return ()
    cuts = [at for at, (before, after) in enumerate(pairwise(ordered), 1) if after > before + 1]
    bounds = [0, *cuts, len(ordered)]
    return tuple(range(ordered[low], ordered[high - 1] + 1) for low, high in pairwise(bounds))


def joined(*several: Iterable[range]) -> Runs:
    """Merge ranges; touching or overlapping ranges become one."""
    found: list[range] = []
    for run in sorted((run for runs in several for run in runs if run), key=lambda run: (run.start, run.stop)):
        if found and run.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, run.stop))
        else:
            found.append(run)
    return tuple(found)


def within(runs: Iterable[range], bounds: range) -> Runs:
    """Return the part of ranges inside other bounds."""
    cut = (range(max(run.start, bounds.start), min(run.stop, bounds.stop)) for run in runs)
    return tuple(run for run in cut if run)


def count(runs: Iterable[range]) -> int:
    """Return the number of offsets."""
    return sum(map(len, runs))


# --- keys ------------------------------------------------------------------------------------------


def fingerprint(salt: bytes, key: bytes) -> str:
    """Return the fingerprint of a key in a certificate: HMAC-SHA256 with a salt that only the certificate has.

    The certificate and the key together prove which key was meant. The root alone reveals nothing, even if there are
    few possible keys, because the salt is not stored below the root.
    """
    return hmac.new(salt, key, hashlib.sha256).hexdigest()


def digest(fingerprints: Iterable[str]) -> str:
    """Return one digest for all keys of a run, for the table's history."""
    return hashlib.sha256("\n".join(sorted(fingerprints)).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFound:
    """A partition's records of a key."""

    records: int
    last: int
    """Offset of the last record."""
    is_tombstone: bool
    """True if the last record is a tombstone."""


def tombstones_wanted(found: Mapping[bytes, KeyFound]) -> dict[bytes, bool]:
    """Return the keys of a partition that get a tombstone.

    A key whose only record is a tombstone keeps it, so that a repeated run does not add another.

    Args:
        found: the partition's records of the keys, without keys that it does not have.

    Returns:
        By key: True for a new tombstone, False to keep the existing one.
    """
    return {key: not (one.is_tombstone and one.records == 1) for key, one in found.items()}


# --- undoing appends -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPast:
    """A group that has read records to be undone."""

    group_id: str
    topic: str
    partition: int
    committed: int
    read: int
    """Number of the offsets that it has read."""


def groups_past(
    topic: str, undone: Mapping[int, Sequence[range]], committed: Mapping[str, Mapping[int, int]]
) -> list[GroupPast]:
    """Return the groups that have read past the first of some offsets.

    Args:
        topic: the topic.
        undone: offsets by partition.
        committed: by group: committed offsets by partition.
    """
    found = []
    for group_id, offsets in sorted(committed.items()):
        for partition, runs in sorted(undone.items()):
            at = offsets.get(partition)
            if at is None:
                continue
            read = count(within(runs, range(at)))
            if read:
                found.append(GroupPast(group_id=group_id, topic=topic, partition=partition, committed=at, read=read))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """The effect of undoing an append in one topic."""

    takes: Mapping[int, Runs] = field(default_factory=dict)
    """Offsets to remove, by partition, whose records still exist."""
    below_start: int = 0
    """Number of offsets below the log start, whose records are already deleted."""


def plan_undo(ranges: Mapping[int, range], log_starts: Mapping[int, int]) -> Undone:
    """Return which offsets of an append can be undone.

    Args:
        ranges: its offsets by partition.
        log_starts: log starts of the partitions.
    """
    takes = {p: within((run,), range(log_starts.get(p, 0), run.stop)) for p, run in sorted(ranges.items())}
    left = sum(count(runs) for runs in takes.values())
    return Undone(
        takes={p: runs for p, runs in takes.items() if runs},
        below_start=sum(map(len, ranges.values())) - left,
    )


KIND: Final = "kafkalike certificate of forgotten keys"
FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHash:
    """A data file before or after a removal."""

    path: str
    """Relative to the table's folder."""
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionMade:
    """A table version that removed records."""

    version: int
    partition: int
    removed: tuple[FileHash, ...]
    """Files that the version removed: they contained the records."""
    added: tuple[FileHash, ...]
    """Files that replace them: they contain all other records."""
    offsets: Runs
    """Offsets of the removed records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicForgotten:
    """The removal of records from one topic."""

    topic: str
    topic_id: str
    location: str
    """Its folder below the root."""
    looked_at: Mapping[int, int] = field(default_factory=dict)
    """By searched partition, its log end at that time. Later records were not searched."""
    versions: tuple[VersionMade, ...] = ()
    tombstones: Mapping[int, Runs] = field(default_factory=dict)
    """Offsets of tombstones that were written or kept; they contain the keys."""
    source: str | None = None
    """Only dead letters of this topic were removed; None if all records of the topic were searched."""

    @property
    def records(self) -> int:
        """Number of removed records."""
        return sum(len(run) for made in self.versions for run in made.offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Record of a run that removed all records of some keys."""

    run: str
    root: str
    began_ms: int
    who: str
    """User and host of the run."""
    reason: str
    salt: bytes
    fingerprints: tuple[str, ...]
    topics: tuple[TopicForgotten, ...] = ()
    finished: bool = False
    """False during the run or after an interruption; a run with the same keys and this file continues it."""
    ended_ms: int = 0
    gone_after_ms: int = 0
    """Time after which maintenance deletes the last of the files that contained the records."""
    open_transactions: tuple[str, ...] = ()
    """Transactional ids with records for the topics that were not committed at that time."""
    copies: tuple[str, ...] = ()
    """Topics with their own records that were made from the topics of the run."""
    origins: tuple[str, ...] = ()
    """Topics from which a topic of the run was made, and other topics made from them."""
    held: Mapping[str, int | None] = field(default_factory=dict)
    """By topic of either kind, the number of its records with a forgotten key at the end of the run; None if it could
    not be read."""

    def about(self, keys: Sequence[bytes]) -> bool:
        """Return whether these are exactly the forgotten keys."""
        return {fingerprint(self.salt, key) for key in keys} == set(self.fingerprints)

    @property
    def digest(self) -> str:
        """Digest that the table's history has in place of the keys."""
        return digest(self.fingerprints)

    def with_topic(self, topic: TopicForgotten) -> Certificate:
        """Return the certificate with the current state of one topic."""
        others = [one for one in self.topics if one.topic_id != topic.topic_id]
        return replace(self, topics=(*others, topic))

    def topic(self, topic_id: str) -> TopicForgotten | None:
        """Return the state of a topic so far, or None."""
        return next((one for one in self.topics if one.topic_id == topic_id), None)

    def to_json(self) -> str:
        """Return the content of the file."""
        said = {
            "kind": KIND,
            "format": FORMAT,
            "run": self.run,
            "root": self.root,
            "finished": self.finished,
            "began_ms": self.began_ms,
            "ended_ms": self.ended_ms,
            "gone_after_ms": self.gone_after_ms,
            "who": self.who,
            "reason": self.reason,
            "keys": {"hmac_sha256": list(self.fingerprints), "salt": self.salt.hex(), "digest": self.digest},
            "topics": [_topic_json(topic) for topic in self.topics],
            "open_transactions": list(self.open_transactions),
            "copies": list(self.copies),
            "origins": list(self.origins),
            "held": dict(self.held),
        }
        return json.dumps(said, indent=2) + "\n"


def parse_certificate(text: str) -> Certificate:
    """Parse the file of a certificate.

    Raises:
        IllegalArgumentError: it is not a certificate, is damaged, or a newer release made it.
    """
    try:
        said = json.loads(text)
        if not isinstance(said, dict) or said.get("kind") != KIND:
            raise IllegalArgumentError("the file is not a certificate of kafkalike")
        if said["format"] != FORMAT:
            raise IllegalArgumentError(f"the certificate has format {said['format']}; this release knows {FORMAT}")
        found = Certificate(
            run=str(said["run"]),
            root=str(said["root"]),
            finished=bool(said["finished"]),
            began_ms=int(said["began_ms"]),
            ended_ms=int(said["ended_ms"]),
            gone_after_ms=int(said["gone_after_ms"]),
            who=str(said["who"]),
            reason=str(said["reason"]),
            salt=bytes.fromhex(said["keys"]["salt"]),
            fingerprints=tuple(map(str, said["keys"]["hmac_sha256"])),
            topics=tuple(map(_topic, said["topics"])),
            open_transactions=tuple(map(str, said["open_transactions"])),
            copies=tuple(map(str, said["copies"])),
            # Certificates of 0.2.0 and before do not have these.
            origins=tuple(map(str, said.get("origins", ()))),
            held={str(name): None if n is None else int(n) for name, n in said.get("held", {}).items()},
        )
        if found.digest != said["keys"]["digest"]:
            raise IllegalArgumentError("the certificate was changed: its fingerprints do not match its digest")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
        if isinstance(cause, IllegalArgumentError):
            raise
        raise IllegalArgumentError(f"the certificate is damaged: {cause!r}") from cause
    return found


def _topic_json(topic: TopicForgotten) -> dict[str, Any]:
    return {
        "topic": topic.topic,
        "topic_id": topic.topic_id,
        "location": topic.location,
        "source": topic.source,
        "looked_at": {str(p): end for p, end in topic.looked_at.items()},
        "records": topic.records,
        "tombstones": {str(p): _runs_json(runs) for p, runs in topic.tombstones.items()},
        "versions": [
            {
                "version": made.version,
                "partition": made.partition,
                "offsets": _runs_json(made.offsets),
                "removed": [_file_json(file) for file in made.removed],
                "added": [_file_json(file) for file in made.added],
            }
            for made in topic.versions
        ],
    }


def _topic(said: Mapping[str, Any]) -> TopicForgotten:
    return TopicForgotten(
        topic=str(said["topic"]),
        topic_id=str(said["topic_id"]),
        location=_below(said["location"]),
        source=None if said["source"] is None else str(said["source"]),
        looked_at={int(p): int(end) for p, end in said["looked_at"].items()},
        tombstones={int(p): _runs(runs) for p, runs in said["tombstones"].items()},
        versions=tuple(
            VersionMade(
                version=int(made["version"]),
                partition=int(made["partition"]),
                offsets=_runs(made["offsets"]),
                removed=tuple(map(_file, made["removed"])),
                added=tuple(map(_file, made["added"])),
            )
            for made in said["versions"]
        ),
    )


def _runs_json(runs: Runs) -> list[list[int]]:
    return [[run.start, run.stop] for run in runs]


def _runs(said: Sequence[Sequence[int]]) -> Runs:
    return tuple(range(int(start), int(stop)) for start, stop in said)


def _file_json(file: FileHash) -> dict[str, Any]:
    return {"path": file.path, "size": file.size, "sha256": file.sha256}


def _file(said: Mapping[str, Any]) -> FileHash:
    return FileHash(path=_below(said["path"]), size=int(said["size"]), sha256=str(said["sha256"]))


def _below(path: object) -> str:
    """Check a path of a certificate, which any program may have written: it must not lead out of the folder."""
    text = str(path)
    if not text or text.startswith("/") or ".." in text.split("/") or "\\" in text or "\0" in text:
        raise IllegalArgumentError(f"the certificate names {text!r}, which is not a file of a topic")
    return text
