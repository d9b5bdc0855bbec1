"""Mirroring: a source and a target cluster in, passes that bring the target to moments of the source out.

A pass is one moment of all transactions of the source: a cut. What it needs is copied first, where nobody looks for it;
then one version of the target's metadata decides it, for all topics at once; then it is brought to all topics, and to
the committed offsets, by whoever comes. So a target that is promoted at any moment is a moment of its source.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalike import faults
from kafkalike.clock import Deadline
from kafkalike.config.topic import TopicConfig
from kafkalike.errors import (
    KafkaError,
    KafkaStorageError,
    KafkaTimeoutError,
    MirrorError,
    TopicAlreadyExistsError,
    TopicDeletedError,
)
from kafkalike.log.mirrors.data_files import DataFiles
from kafkalike.log.mirrors.finishing import find_lost, finish, finish_all
from kafkalike.log.mirrors.manifest import Manifest, Part, pass_name
from kafkalike.log.mirrors.reading import CutTooOldError, Reading, UnfinishedError, first_version, new_run
from kafkalike.log.table.damage import storage_errors
from kafkalike.log.table.layout import MIRRORS
from kafkalike.log.table.log_cleaner import LogCleaner
from kafkalike.model.cluster_state import MetadataRow, log_start_row, mirror_row, topic_row
from kafkalike.model.mirrored import Mirrored, Phase
from kafkalike.model.mirrors.offsets import Copied, Due, offsets_due

if TYPE_CHECKING:
    from kafkalike.log.cluster.delta_cluster import DeltaCluster
    from kafkalike.model.cluster_state import ClusterState
    from kafkalike.model.topic import TopicInfo
    from kafkalike.model.transactions.views import Cut

TRIES: Final = 5
"""How often a cut is taken anew when the source has gone on past it."""

CUT_TIMEOUT_MS: Final = 60_000

CLEAN_EVERY: Final = 100
"""Versions after which a mirror's log is looked at, whether it is to be shortened."""

STALE_MS: Final = 86_400_000
"""Age from which on what a pass has staged is removed when nothing names it."""


@dataclass(slots=True)
class TopicPass:
    """What a pass did for one topic."""

    name: str
    before: int = -1
    """Version of the mirror's table before; -1 for one that had nothing."""
    version: int = -1
    """And after."""
    restarted: bool = False
    """It began anew at a checkpoint: what came between cannot be read version by version."""
    bytes: int = 0
    """Bytes of data files that were copied."""
    problem: str = ""
    """Why it did not get further; empty when all is well."""


@dataclass(slots=True)
class Passed:
    """What a pass did."""

    topics: dict[str, TopicPass] = field(default_factory=dict)
    offsets: int = 0
    """Committed offsets that were brought."""
    held: list[str] = field(default_factory=list)
    """Groups that have members, or offsets of their own, at the target: these stay."""
    cut_ms: int = 0
    """Time before the moment of the source that the target has now, ms; 0 when none was found."""
    overtaken: bool = False
    """Another mirror has decided a pass meanwhile; this one did nothing."""

    @property
    def sound(self) -> bool:
        """Whether all topics could be brought."""
        return not any(topic.problem for topic in self.topics.values())


class Mirroring:
    """Mirrors topics of one cluster to another one. One thread at a time; several processes may do the same.

    Args:
        source: the cluster that is copied. Nothing is written there, but decided transactions are brought into their
            topics if need be.
        target: the cluster with the copies.
        topics: which topics, by name.
        groups: which groups' committed offsets, by id.

    Raises:
        MirrorError: both are the same cluster, or the target has several roots.
    """

    def __init__(
        self,
        source: DeltaCluster,
        target: DeltaCluster,
        topics: Callable[[str], bool],
        groups: Callable[[str], bool],
    ) -> None:
        if source.root == target.root:
            message = f"source and target are the same cluster, {source.root}"
            raise MirrorError(message)
        target.check_may_mirror()
        self._source = source
        self._target = target
        self._topics = topics
        self._groups = groups
        self._data: dict[str, DataFiles] = {}
        self._cleaned: dict[str, int] = {}

    def run(self) -> Passed:
        """Make one pass, to its end.

        Raises:
            KafkaError: a cluster cannot be read or written; what single topics met is in the result.
            UnknownOutcomeError: the pass may be decided; the next one goes on from what is.
        """
        steps = self.steps()
        try:
            while True:
                next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def steps(self) -> Generator[str, None, Passed]:
        """The same, act by act: it may end after any of them, and another one goes on."""
        with storage_errors(self._target.store.uri):
            passed = Passed()
            yield from self._make_mirrors(passed)
            for left in reversed(range(TRIES)):
                problems: dict[str, KafkaError] = {}
                yield from finish_all(self._target, problems)
                _note(passed, problems)
                yield "finished"
                try:
                    yield from self._pass(passed)
                    break
                except CutTooOldError as cause:
                    lost: dict[str, KafkaError] = {}
                    if isinstance(cause, UnfinishedError):
                        find_lost(self._target, lost)
                        _note(passed, lost)
                    if not left and not lost:
                        message = f"{self._source.root} removes what its mirror needs faster than it can be copied"
                        raise KafkaTimeoutError(message) from cause
            yield from self._look_after(passed)
            return passed

    # --- which topics --------------------------------------------------------------------------

    def _make_mirrors(self, passed: Passed) -> Generator[str, None, None]:
        """Make the mirrors that are missing, and say which topics cannot be mirrored."""
        theirs, mine = self._source.topics(), self._target.topics()
        gone = {name for name, info in mine.items() if self._is_mine(info) and name not in theirs}
        for name in sorted({name for name in theirs if self._topics(name)} | {n for n in gone if self._topics(n)}):
            topic = passed.topics[name] = TopicPass(name)
            try:
                if name not in theirs:
                    message = f"{name}: the topic was deleted at {self._source.root}; its mirror stays as it was"
                    raise MirrorError(message)
                if name not in mine:
                    faults.point("mirror.before_create")
                    self._create(theirs[name])
                    yield "created"
                    continue
                self._check(theirs[name], mine[name])
                assert mine[name].mirror is not None
                topic.before = topic.version = mine[name].mirror.version  # type: ignore[union-attr]
            except KafkaError as error:
                topic.problem = str(error)

    def _is_mine(self, info: TopicInfo) -> bool:
        return info.mirror is not None and info.mirror.source == self._source.root

    def _create(self, info: TopicInfo) -> None:
        now = self._target.clock.now_ms()
        mirrored = Mirrored(source=self._source.root, began_ms=now, time_ms=now)
        own = replace(info, mirror=None)
        try:
            self._target.create_mirror(own, mirrored, first_version(self._source.files_of(info)))
        except TopicAlreadyExistsError:
            # Another mirror of the same source, perhaps.
            self._check(info, self._target.topic(info.name))

    def _check(self, theirs: TopicInfo, mine: TopicInfo) -> None:
        """Refuse to bring anything to a topic that is no copy of this one.

        Raises:
            TopicAlreadyExistsError: it is a topic of the target's own.
            MirrorError: it is a copy of something else, or is being promoted.
        """
        name, mirror = mine.name, mine.mirror
        if mirror is None:
            message = f"topic {name!r} exists at {self._target.root}, and is no mirror"
            raise TopicAlreadyExistsError(message)
        if mirror.source != self._source.root:
            message = f"topic {name!r} is a mirror of {mirror.source}, not of {self._source.root}"
            raise MirrorError(message)
        if mine.topic_id != theirs.topic_id:
            message = (
                f"{name}: the topic was deleted and created again at {self._source.root}; its mirror stays as it was. "
                "Delete it at the target, and the new topic is mirrored"
            )
            raise MirrorError(message)
        if mirror.phase is not Phase.FOLLOWING:
            message = f"topic {name!r} is being promoted: run `kafkalike mirror promote` again"
            raise MirrorError(message)

    # --- one pass ------------------------------------------------------------------------------

    def _pass(self, passed: Passed) -> Generator[str, None, None]:
        # What the decision rests on.
        mirrors = {
            name: info
            for name, info in self._target.topics().items()
            if name in passed.topics and not passed.topics[name].problem and self._is_mine(info)
        }
        before = self._target.clock.now_ms()
        cut = self._cut(mirrors, passed)
        if cut is None:
            return
        passed.cut_ms = before
        yield "cut"
        source_groups = self._source.groups.state
        if source_groups.seq != cut.seq:
            source_groups = self._source.groups.state_at(cut.groups_version)
        # After the cut: what its versions have removed lies below these log starts.
        theirs = self._source.topics()
        run, now = new_run(), self._target.clock.now_ms()
        parts: list[Part] = []
        for number, (name, info) in enumerate(mirrors.items()):
            if name not in cut.topics:
                continue
            topic = passed.topics[name]
            try:
                reading = self._reading(info, theirs[name], run=run, number=number, now_ms=now)
                with storage_errors(reading.source.uri):
                    part = yield from reading.part(cut.topics[name].version)
            except (KafkaError, KeyError) as error:
                topic.problem = str(error) if isinstance(error, KafkaError) else f"{name} was deleted at the source"
                continue
            topic.bytes = self._data[info.topic_id].copied
            if part is not None:
                parts.append(part)
                topic.restarted = bool(part.checkpoint)
        sound = {name: info for name, info in mirrors.items() if name in cut.topics and not passed.topics[name].problem}
        due = self._offsets(sound, cut, {p.name: p.last for p in parts})
        passed.held = due.held
        manifest = Manifest(run=run, parts=parts, offsets=due.offsets, groups_version=cut.groups_version)
        yield from self._decide(passed, sound, {name: theirs[name] for name in sound}, manifest)

    def _cut(self, mirrors: Mapping[str, TopicInfo], passed: Passed) -> Cut | None:
        """One moment of all transactions; topics that cannot be read are left out, and said."""
        names = sorted(mirrors)
        while names:
            try:
                return self._source.transactions.cut(names, Deadline(self._source.clock, CUT_TIMEOUT_MS))
            except KafkaError as cause:
                if isinstance(cause, (KafkaStorageError, KafkaTimeoutError)) and len(names) == len(mirrors):
                    self._source.metadata.refresh()
                sound = [name for name in names if self._can_be_cut(name, passed)]
                if sound == names:
                    raise
                names = sound
        return None

    def _can_be_cut(self, name: str, passed: Passed) -> bool:
        try:
            self._source.transactions.cut([name], Deadline(self._source.clock, CUT_TIMEOUT_MS))
        except KafkaError as cause:
            passed.topics[name].problem = str(cause)
            return False
        return True

    def _reading(self, info: TopicInfo, theirs: TopicInfo, *, run: str, number: int, now_ms: int) -> Reading:
        if theirs.topic_id != info.topic_id:
            raise TopicDeletedError(info.name, info.topic_id, theirs.topic_id)
        source, target = self._source.files_of(theirs), self._target.files_of(info)
        data = self._data.get(info.topic_id)
        if data is None or data.target.uri != target.uri:
            data = self._data[info.topic_id] = DataFiles(source, target, self._target.store)
        data.copied = 0
        effective = self._target.server.effective(theirs.configs)
        return Reading(
            info=info,
            source=source,
            target=target,
            root=self._target.store,
            data=data,
            run=run,
            number=number,
            now_ms=now_ms,
            durable=TopicConfig.from_properties(effective).flush,
        )

    def _offsets(self, mirrors: Mapping[str, TopicInfo], cut: Cut, last: Mapping[str, int]) -> Due:
        known = self._source.groups.state
        source = known if known.seq == cut.seq else self._source.groups.state_at(cut.groups_version)
        topics = {
            name: Copied(topic_id=info.topic_id, began_ms=info.mirror.began_ms, ends=cut.topics[name].ends)
            for name, info in mirrors.items()
            if info.mirror is not None and max(last.get(name, -1), info.mirror.version, 0) >= cut.topics[name].version
        }
        wanted = [group_id for group_id in source.groups if self._groups(group_id)]
        return offsets_due(source, self._target.groups.refresh(), topics, wanted, cut.groups_version)

    # --- deciding ------------------------------------------------------------------------------

    def _decide(
        self, passed: Passed, mirrors: Mapping[str, TopicInfo], theirs: Mapping[str, TopicInfo], manifest: Manifest
    ) -> Generator[str, None, None]:
        """Let one version of the metadata decide a pass, then bring it to its end."""
        last = {part.name: part.last for part in manifest.parts}
        touched = set(last) | {offset.topic for offset in manifest.offsets}
        changed = {n for n, info in mirrors.items() if n in touched or _differs(info, theirs[n])}
        if not changed:
            return
        mirror_files, name = self._target.store.at(MIRRORS), pass_name(manifest.run)
        if touched:
            mirror_files.make_folder("")
            faults.point("mirror.before_manifest")
            mirror_files.put_if_absent(name, manifest.dump(), durable=True)
            yield "manifest"
        decided: Sequence[MetadataRow] = ()

        def plan(state: ClusterState) -> Sequence[MetadataRow]:
            nonlocal decided
            seen = {topic: mirrors[topic] for topic in sorted(changed)}
            now = self._target.clock.now_ms()
            decided = _decision(state, seen, theirs, manifest, now) if _as_seen(state, seen) else ()
            return decided

        faults.point("mirror.before_decision")
        self._target.metadata.transact(plan)
        faults.point("mirror.after_decision")
        yield "decided"
        if not decided:
            passed.overtaken = True
            for part in manifest.parts:
                if part.checkpoint:
                    mirror_files.discard(part.checkpoint)
            mirror_files.discard(name)
            return
        problems: dict[str, KafkaError] = {}
        yield from finish(self._target, manifest, problems)
        for topic, version in last.items():
            if topic not in problems:
                passed.topics[topic].version = version
        passed.offsets = len(manifest.offsets)
        _note(passed, problems)

    # --- afterwards ----------------------------------------------------------------------------

    def _look_after(self, passed: Passed) -> Generator[str, None, None]:
        """Shorten logs that have grown, forget what stale passes have staged, say how far the source was seen."""
        state = self._target.metadata.refresh()
        for name, topic in passed.topics.items():
            info = state.topics.get(name)
            if info is None or info.mirror is None or topic.problem:
                continue
            if topic.restarted or topic.version - self._cleaned.get(info.topic_id, -CLEAN_EVERY) >= CLEAN_EVERY:
                cleaner = LogCleaner(self._target.store, info.location, self._target.helpers, self._target.clock)
                cleaner.clean(info.topic_id)
                self._cleaned[info.topic_id] = topic.version
                yield "cleaned"
        self._say_seen(passed)
        yield "seen"
        self._forget_stale({mirrored.run for mirrored in state.mirrors.values()})

    def _say_seen(self, passed: Passed) -> None:
        """Leave word how far the source was seen; for people and figures, nothing rests on it."""
        now_ms = self._target.clock.now_ms()
        sound = {name: [topic.version, passed.cut_ms] for name, topic in passed.topics.items() if not topic.problem}
        failed = {name: topic.problem for name, topic in passed.topics.items() if topic.problem}
        said = {"source": self._source.root, "time_ms": now_ms, "topics": sound, "problems": failed}
        if not passed.topics or passed.overtaken:
            return
        key = zlib.crc32("\n".join([self._source.root, *sorted(passed.topics)]).encode())
        files = self._target.store.at(MIRRORS)
        files.make_folder("")
        files.replace(f"{key:08x}.seen", json.dumps(said).encode())

    def _forget_stale(self, named: Iterable[str]) -> None:
        """Remove what passes have staged that were never decided."""
        files, kept = self._target.store.at(MIRRORS), set(named)
        horizon = self._target.store.now_ns() // 1_000_000 - STALE_MS
        stale = [e.name for e in files.list() if not e.name.endswith(".seen") and e.modified_ms < horizon]
        due = [name for name in stale if name.partition(".")[0] not in kept]
        files.beside([partial(files.discard, name) for name in due])


def _note(passed: Passed, problems: Mapping[str, KafkaError]) -> None:
    for name, problem in problems.items():
        if name in passed.topics and not passed.topics[name].problem:
            passed.topics[name].problem = str(problem)


def _as_seen(state: ClusterState, seen: Mapping[str, TopicInfo]) -> bool:
    """Whether mirrors stand as they did: neither promoted, nor brought further by another mirror."""
    for name, info in seen.items():
        known = state.topics.get(name)
        if known is None or known.topic_id != info.topic_id or known.mirror is None or info.mirror is None:
            return False
        if known.mirror.phase is not Phase.FOLLOWING or known.mirror.run != info.mirror.run:
            return False
    return True


def _decision(
    state: ClusterState,
    mirrors: Iterable[str],
    theirs: Mapping[str, TopicInfo],
    manifest: Manifest,
    now_ms: int,
) -> list[MetadataRow]:
    """The rows that decide a pass for some topics, with what has changed of their metadata."""
    last = {part.name: part.last for part in manifest.parts}
    rows: list[MetadataRow] = []
    for name in mirrors:
        info = state.topics[name]
        assert info.mirror is not None
        rows += _rows(state.seq + len(rows) + 1, info, theirs[name], now_ms)
        brought = replace(
            info.mirror,
            run=manifest.run,
            version=max(last.get(name, -1), info.mirror.version),
            groups_version=manifest.groups_version,
            time_ms=now_ms,
        )
        what = f"mirrored up to version {brought.version}"
        rows.append(mirror_row(state.seq + len(rows) + 1, info, brought, what))
    return rows


def _differs(mine: TopicInfo, theirs: TopicInfo) -> bool:
    """Whether the metadata of a mirror are not its source's."""
    same = mine.num_partitions == theirs.num_partitions and dict(mine.configs) == dict(theirs.configs)
    return not same or any(theirs.log_start(p) > mine.log_start(p) for p in theirs.log_starts)


def _rows(first: int, mine: TopicInfo, theirs: TopicInfo, now_ms: int) -> list[MetadataRow]:
    """Rows that make the metadata of a mirror its source's."""
    rows: list[MetadataRow] = []
    if mine.num_partitions != theirs.num_partitions or dict(mine.configs) != dict(theirs.configs):
        total = max(mine.num_partitions, theirs.num_partitions)
        after = replace(mine, num_partitions=total, configs=theirs.configs)
        rows.append(topic_row(first, now_ms, after, "changed as its source"))
    moved: dict[tuple[str, str], dict[int, int]] = {}
    for partition, start in theirs.log_starts.items():
        if start.offset > mine.log_start(partition):
            moved.setdefault((start.reason, start.run), {})[partition] = start.offset
    for (reason, run), starts in sorted(moved.items()):
        rows.append(log_start_row(first + len(rows), now_ms, mine, starts, reason=reason, run=run))
    return rows
