"""Mirror sync: one pass that brings the mirrors in a target cluster to one moment of their source cluster.

The moment is a consistent cut through all transactions of the source. A pass first stages its files. Then one
version of the target's metadata decides the pass for all topics at once. Then any client applies the decided pass to
all topics and committed offsets. So a target that is promoted at any time shows one moment of its source.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalike import errors
from kafkalike.delta.damage import storage_errors
from kafkalike.delta.layout import MIRRORS
from kafkalike.delta.log_cleaner import LogCleaner
from kafkalike.model import faults
from kafkalike.model.clock import Deadline
from kafkalike.model.cluster_state import ClusterState, MetadataRow
from kafkalike.model.config.topic_config import TopicConfig
from kafkalike.model.replication.mirror_offsets import OffsetsDue, SyncedTopic, offsets_due
from kafkalike.replication.mirrors import roll_forward, source_reader
from kafkalike.replication.mirrors.data_file_copy import DataFiles

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.topic import TopicInfo
    from kafkalike.model.transactions.transaction_views import Cut


TRIES: Final = 5
"""Attempts to find a cut that the source still has all files for."""

CUT_TIMEOUT_MS: Final = 60_000

CLEAN_EVERY: Final = 100
"""Number of versions after which a mirror's log is checked for cleaning."""

STALE_MS: Final = 86_400_000
"""Age after which unneeded staged files of passes are removed."""


class MirrorSync:
    """Mirrors topics of one cluster to another one.

    Not thread-safe; several processes may mirror the same topics.

    Args:
        source: the cluster to copy. Only decided transactions may be applied to its topics.
        target: the cluster with the copies.
        topics: selects topics, by name.
        groups: selects groups whose committed offsets are copied, by id.

    Raises:
        MirrorError: both are the same cluster.
    """

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        topics: Callable[[str], bool],
        groups: Callable[[str], bool],
    ) -> None:
        if source.root == target.root:
            raise errors.MirrorError(f"source and target are the same cluster, {source.root}")
        self._source = source
        self._target = target
        self._topics = topics
        self._groups = groups
        self._making = source_reader.MirrorCreator(source, target)
        self._data: dict[str, DataFiles] = {}
        self._cleaned: dict[str, int] = {}

    def run(self, progress: Callable[[str], None] = lambda _: None) -> SyncResult:
        """Make one complete pass.

        Args:
            progress: called with the name of each step that is done; `copied` is one data file.

        Raises:
            KafkaError: a cluster cannot be read or written; problems of single topics are in the result.
            UnknownOutcomeError: the pass may be decided; the next one continues from there.
        """
        steps = self.steps()
        try:
            while True:
                progress(next(steps))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def steps(self) -> Generator[str, None, SyncResult]:
        """Make one pass step by step; it may be interrupted after any step, and another pass continues."""
        with storage_errors(self._target.store.uri):
            passed = SyncResult()
            yield from self._make_mirrors(passed)
            for left in reversed(range(TRIES)):
                problems: dict[str, errors.KafkaError] = {}
                yield from roll_forward.finish_all(self._target, problems)
                note(passed, problems)
                yield "finished"
                try:
                    yield from self._pass(passed)
                    break
                except source_reader.CutTooOldError as cause:
                    lost: dict[str, errors.KafkaError] = {}
                    if isinstance(cause, source_reader.UnfinishedError):
                        roll_forward.find_lost(self._target, lost)
                        note(passed, lost)
                    if not left and not lost:
                        raise errors.KafkaTimeoutError(
                            f"{self._source.root} removes files faster than its mirror copies them; "
                            "raise kafkalike.replaced.file.delay.ms at the source, or mirror more often"
                        ) from cause
            yield from self._look_after(passed)
            return passed

    # --- which topics --------------------------------------------------------------------------

    def _make_mirrors(self, passed: SyncResult) -> Generator[str, None, None]:
        """Create missing mirrors, and report topics that cannot be mirrored."""
        theirs, mine = self._source.topics(), self._target.topics()
        gone = {name for name, info in mine.items() if self._making.is_mine(info) and name not in theirs}
        for name in sorted({name for name in theirs if self._topics(name)} | {n for n in gone if self._topics(n)}):
            topic = passed.topics[name] = TopicSync(name)
            try:
                if name not in theirs:
                    raise errors.MirrorError(
                        f"{name}: the topic was deleted at {self._source.root}; its mirror stays as it was"
                    )
                if name not in mine:
                    faults.point("mirror.before_create")
                    self._making.create(theirs[name])
                    yield "created"
                    continue
                self._making.check(theirs[name], mine[name])
                assert mine[name].mirror is not None
                topic.before = topic.version = mine[name].mirror.version  # type: ignore[union-attr]
            except errors.KafkaError as error:
                topic.problem = str(error)

    # --- one pass ------------------------------------------------------------------------------

    def _pass(self, passed: SyncResult) -> Generator[str, None, None]:
        # The decision is based on this state.
        mirrors = {
            name: info
            for name, info in self._target.topics().items()
            if name in passed.topics and not passed.topics[name].problem and self._making.is_mine(info)
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
        # After the cut, so that everything its versions have removed lies below these log starts.
        theirs = self._source.topics()
        run, now = source_reader.new_run(), self._target.clock.now_ms()
        parts: list[roll_forward.TopicPart] = []
        for number, (name, info) in enumerate(mirrors.items()):
            if name not in cut.topics:
                continue
            topic = passed.topics[name]
            try:
                reading = self._reading(info, theirs[name], run=run, number=number, now_ms=now)
                with storage_errors(reading.source.uri):
                    part = yield from reading.part(cut.topics[name].version)
            except (errors.KafkaError, KeyError) as error:
                topic.problem = (
                    str(error) if isinstance(error, errors.KafkaError) else f"{name} was deleted at the source"
                )
                continue
            topic.bytes = self._data[info.topic_id].copied
            if part is not None:
                parts.append(part)
                topic.restarted = bool(part.checkpoint)
        sound = {name: info for name, info in mirrors.items() if name in cut.topics and not passed.topics[name].problem}
        due = self._offsets(sound, cut, {p.name: p.last for p in parts})
        passed.held = due.held
        manifest = roll_forward.MirrorManifest(
            run=run, parts=parts, offsets=due.offsets, groups_version=cut.groups_version
        )
        yield from self._decide(passed, sound, {name: theirs[name] for name in sound}, manifest)

    def _cut(self, mirrors: Mapping[str, TopicInfo], passed: SyncResult) -> Cut | None:
        """Return one moment of all transactions; report topics that cannot be read, and leave them out."""
        names = sorted(mirrors)
        while names:
            try:
                return self._source.transactions.cut(names, Deadline(self._source.clock, CUT_TIMEOUT_MS))
            except errors.KafkaError as cause:
                if isinstance(cause, (errors.KafkaStorageError, errors.KafkaTimeoutError)) and len(names) == len(
                    mirrors
                ):
                    self._source.metadata.refresh()
                sound = [name for name in names if self._can_be_cut(name, passed)]
                if sound == names:
                    raise
                names = sound
        return None

    def _can_be_cut(self, name: str, passed: SyncResult) -> bool:
        try:
            self._source.transactions.cut([name], Deadline(self._source.clock, CUT_TIMEOUT_MS))
        except errors.KafkaError as cause:
            passed.topics[name].problem = str(cause)
            return False
        return True

    def _reading(
        self, info: TopicInfo, theirs: TopicInfo, *, run: str, number: int, now_ms: int
    ) -> source_reader.SourceReader:
        if theirs.table_id != info.table_id:
            raise errors.TopicDeletedError(info.name, info.table_id, theirs.table_id)
        source, target = self._source.files_of(theirs), self._target.mirror_files(info)
        data = self._data.get(info.topic_id)
        if data is None or data.target.uri != target.uri:
            data = self._data[info.topic_id] = DataFiles(source, target, self._target.mirror_root)
        data.copied = 0
        effective = self._target.server.effective(theirs.configs)
        return source_reader.SourceReader(
            info=info,
            source=source,
            target=target,
            root=self._target.mirror_root,
            data=data,
            run=run,
            number=number,
            now_ms=now_ms,
            durable=TopicConfig.from_properties(effective).flush,
        )

    def _offsets(self, mirrors: Mapping[str, TopicInfo], cut: Cut, last: Mapping[str, int]) -> OffsetsDue:
        known = self._source.groups.state
        source = known if known.seq == cut.seq else self._source.groups.state_at(cut.groups_version)
        topics = {
            name: SyncedTopic(
                topic_id=info.topic_id,
                source_id=cut.topics[name].topic_id,
                began_ms=info.mirror.began_ms,
                ends=cut.topics[name].ends,
            )
            for name, info in mirrors.items()
            if info.mirror is not None and max(last.get(name, -1), info.mirror.version, 0) >= cut.topics[name].version
        }
        wanted = [group_id for group_id in source.groups if self._groups(group_id)]
        return offsets_due(source, self._target.groups.refresh(), topics, wanted, cut.groups_version)

    # --- deciding ------------------------------------------------------------------------------

    def _decide(
        self,
        passed: SyncResult,
        mirrors: Mapping[str, TopicInfo],
        theirs: Mapping[str, TopicInfo],
        manifest: roll_forward.MirrorManifest,
    ) -> Generator[str, None, None]:
        """Decide a pass with one version of the metadata, then apply it."""
        last = {part.name: part.last for part in manifest.parts}
        touched = set(last) | {offset.topic for offset in manifest.offsets}
        changed = {n for n, info in mirrors.items() if n in touched or roll_forward.differs(info, theirs[n])}
        if not changed:
            return
        mirror_files, name = self._target.mirror_root.at(MIRRORS), roll_forward.pass_name(manifest.run)
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
            decided = (
                roll_forward.decision(state, seen, theirs, manifest, now) if roll_forward.as_seen(state, seen) else ()
            )
            return decided

        faults.point("mirror.before_decision")
        self._target.metadata.transact(plan)
        faults.point("mirror.after_decision")
        yield "decided"
        if not decided:
            passed.overtaken = True
            for part in manifest.parts:
                if part.checkpoint:
                    mirror_files.remove(part.checkpoint, quietly=True)
            mirror_files.remove(name, quietly=True)
            return
        problems: dict[str, errors.KafkaError] = {}
        yield from roll_forward.finish(self._target, manifest, problems)
        for topic, version in last.items():
            if topic not in problems:
                passed.topics[topic].version = version
        passed.offsets = len(manifest.offsets)
        note(passed, problems)

    # --- afterwards ----------------------------------------------------------------------------

    def _look_after(self, passed: SyncResult) -> Generator[str, None, None]:
        """Clean logs that have grown, remove staged files of old passes, and record the observed source state."""
        state = self._target.metadata.refresh()
        for name, topic in passed.topics.items():
            info = state.topics.get(name)
            if info is None or info.mirror is None or topic.problem:
                continue
            if topic.restarted or topic.version - self._cleaned.get(info.topic_id, -CLEAN_EVERY) >= CLEAN_EVERY:
                cleaner = LogCleaner(self._target.store, info.location, self._target.helpers, self._target.clock)
                cleaner.clean(info.table_id)
                self._cleaned[info.topic_id] = topic.version
                yield "cleaned"
        self._say_seen(passed)
        yield "seen"
        self._forget_stale({mirrored.run for mirrored in state.mirrors.values()})

    def _say_seen(self, passed: SyncResult) -> None:
        """Record what this pass saw of the source, for monitoring only."""
        now_ms = self._target.clock.now_ms()
        sound = {name: [topic.version, passed.cut_ms] for name, topic in passed.topics.items() if not topic.problem}
        failed = {name: topic.problem for name, topic in passed.topics.items() if topic.problem}
        said = {"source": self._source.root, "time_ms": now_ms, "topics": sound, "problems": failed}
        if not passed.topics or passed.overtaken:
            return
        key = zlib.crc32("\n".join([self._source.root, *sorted(passed.topics)]).encode())
        files = self._target.mirror_root.at(MIRRORS)
        files.make_folder("")
        files.replace(f"{key:08x}.seen", json.dumps(said).encode())

    def _forget_stale(self, named: Iterable[str]) -> None:
        """Remove staged files of passes that were never decided."""
        files, kept = self._target.mirror_root.at(MIRRORS), set(named)
        horizon = self._target.mirror_root.coordination.now_ns() // 1_000_000 - STALE_MS
        stale = [e.name for e in files.list() if not e.name.endswith(".seen") and e.modified_ms < horizon]
        due = [name for name in stale if name.partition(".")[0] not in kept]
        files.scheduler.beside([partial(files.remove, name, quietly=True) for name in due])


@dataclass(slots=True)
class TopicSync:
    """The result of a pass for one topic."""

    name: str
    before: int = -1
    """Version of the mirror's table before the pass; -1 if it was empty."""
    version: int = -1
    """Version of the mirror's table after the pass."""
    restarted: bool = False
    """True if the mirror restarted at a checkpoint, so that earlier versions cannot be read one by one."""
    bytes: int = 0
    """Number of copied bytes."""
    problem: str = ""
    """Why the topic made no more progress; empty without a problem."""


@dataclass(slots=True)
class SyncResult:
    """The result of a pass."""

    topics: dict[str, TopicSync] = field(default_factory=dict)
    offsets: int = 0
    """Number of committed offsets that were copied."""
    held: list[str] = field(default_factory=list)
    """Groups with members, or with offsets of their own, at the target; these were not changed."""
    cut_ms: int = 0
    """A time before the moment that the target has reached, ms; 0 if the pass found none."""
    overtaken: bool = False
    """True if another pass was decided meanwhile, so that this one changed nothing."""

    @property
    def sound(self) -> bool:
        """True if the pass had no problem with any topic."""
        return not any(topic.problem for topic in self.topics.values())


def note(passed: SyncResult, problems: Mapping[str, errors.KafkaError]) -> None:
    """Record the problems of topics; keep the first problem of each."""
    for name, problem in problems.items():
        if name in passed.topics and not passed.topics[name].problem:
            passed.topics[name].problem = str(problem)
