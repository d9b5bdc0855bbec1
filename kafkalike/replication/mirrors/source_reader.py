"""Source reader: reads a topic at its source and builds its part of a pass; also creates mirrors."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafkalike.delta.actions import Add, TableCommit, log_name, parse_commit
from kafkalike.delta.checkpoint import checkpoint_of
from kafkalike.delta.layout import MIRRORS
from kafkalike.delta.log_files import LogFiles
from kafkalike.delta.snapshot import LogSnapshot, load_snapshot
from kafkalike.delta.table_state import REPAIR
from kafkalike.errors import KafkaError, LogCorruptError, MirrorError, TopicAlreadyExistsError
from kafkalike.model import faults
from kafkalike.model.mirror import AT_ONCE, Mirrored, Phase, Step, next_step
from kafkalike.replication.mirrors.data_file_copy import DataFiles, MissingSourceFileError
from kafkalike.replication.mirrors.roll_forward import TopicPart, checkpoint_file, diverged, has_version

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.topic import TopicInfo
    from kafkalike.storage.port import Storage


AHEAD = 16
"""Versions that are read in parallel."""


class CutTooOldError(Exception):
    """The source has removed files that a cut needs, so a new cut is necessary."""


class UnfinishedError(CutTooOldError):
    """The mirror lacks a pass that another client has just decided, which must be applied first."""


@dataclass(slots=True, kw_only=True)
class SourceReader:
    """Reads one topic for one pass."""

    info: TopicInfo
    """The mirror."""
    source: Storage
    """Files of the source's table."""
    target: Storage
    """Files of the mirror's table."""
    root: Storage
    """Files of the mirror's cluster."""
    data: DataFiles
    run: str
    number: int
    """Number of the topic in the pass."""
    now_ms: int
    durable: bool

    def part(self, wanted: int) -> Generator[str, None, TopicPart | None]:
        """Copy the necessary files, and build the topic's part of the pass.

        Args:
            wanted: version of the source to reach.

        Yields:
            A word after each step.

        Returns:
            The part; None if the mirror is up to date.

        Raises:
            MirrorError: the mirror has records that its source does not have.
            LogCorruptError, CorruptRecordError: the source is damaged; damaged data are not copied.
            CutTooOldError, UnfinishedError: see there.
            OSError: a storage did not answer.
        """
        assert self.info.mirror is not None
        end = max(self.info.mirror.version, 0)
        if not has_version(self.target, end):
            raise UnfinishedError
        if wanted == end and self.info.mirror.version >= 0:
            self._check_next(wanted)
            return None
        contents: dict[int, bytes] = {}
        if end < wanted <= end + AT_ONCE:
            contents = self._contents(end + 1, wanted)
            yield "read"
        newest = wanted if wanted > end else max(LogFiles.listed(self.source, max(wanted, 0)).commits, default=wanted)
        step = next_step(end=end, wanted=wanted, there=contents.keys(), same=self._same(end), newest=newest)
        if step is Step.DIVERGED or (step is not Step.NOTHING and self._written_to(end, contents)):
            raise diverged(self.info, min(end, newest) + 1)
        if step is Step.FOLLOW:
            return (yield from self._follow(contents))
        return (yield from self._restart(wanted)) if step is Step.RESTART else None

    def _check_next(self, version: int) -> None:
        """Raise if the version after the last intact one is damaged, because mirroring stops until it is repaired.

        Raises:
            LogCorruptError: it is damaged.
        """
        content = self.source.look(log_name(version + 1))
        if content is not None:
            parse_commit(version + 1, content, self.source.uri)

    def _contents(self, first: int, last: int) -> dict[int, bytes]:
        """Return the versions in the source's log, up to the first missing one."""
        found: dict[int, bytes] = {}
        for at in range(first, last + 1, AHEAD):
            versions = range(at, min(at + AHEAD, last + 1))
            self.source.scheduler.look_ahead([log_name(version) for version in versions])
            for version in versions:
                content = self.source.look(log_name(version))
                if content is None:
                    return found
                found[version] = content
        return found

    def _same(self, end: int) -> bool | None:
        """Compare the mirror's last version with the source's; None if the source's log does not have it anymore."""
        theirs = self.source.look(log_name(end))
        if theirs is None:
            return None
        mine = self.target.look(log_name(end))
        # A mirror's own log keeps fewer of the versions that it skipped.
        return None if mine is None and end > 0 else mine == theirs

    def _written_to(self, end: int, contents: Mapping[int, bytes]) -> bool:
        """Return whether the mirror has a next version that differs from the source's."""
        theirs = contents.get(end + 1)
        if theirs is None:
            # Unknown; another client may have applied a pass meanwhile.
            return False
        return self.target.look(log_name(end + 1)) not in {None, theirs}

    def _follow(self, contents: Mapping[int, bytes]) -> Generator[str, None, TopicPart | None]:
        commits = [parse_commit(version, content, self.source.uri) for version, content in sorted(contents.items())]
        if any(commit.operation == REPAIR for commit in commits):
            self._check_all_the_same()
        # A later version may remove files of an earlier one; such an earlier version cannot be read anymore.
        removed = {path for commit in commits for path in commit.removes}
        try:
            yield from self.data.bring((add for commit in commits for add in commit.adds), durable=self.durable)
        except MissingSourceFileError as cause:
            self._check_removed(cause, commits, removed)
            return (yield from self._restart(commits[-1].version))
        self._check_still_the_same(contents)
        return TopicPart(
            name=self.info.name,
            topic_id=self.info.topic_id,
            location=self.info.location,
            first=commits[0].version,
            versions=tuple(contents[commit.version].decode() for commit in commits),
            durable=self.durable,
        )

    def _check_still_the_same(self, contents: Mapping[int, bytes]) -> None:
        """Raise if the versions were repaired or restored while they were read."""
        last = max(contents)
        content = self.source.look(log_name(last))
        if content is not None and content != contents[last]:
            raise CutTooOldError

    def _check_removed(self, cause: MissingSourceFileError, commits: list[TableCommit], removed: set[str]) -> None:
        """Raise if a file is missing, unless a later version among these removes it from the table.

        Raises:
            LogCorruptError: the source's newest version names it: the source is damaged.
            CutTooOldError: it has left the table since the cut.
        """
        gone = {add.path for commit in commits for add in commit.adds} & {cause.path}
        if not gone <= removed:
            self._check_left(cause)
            raise CutTooOldError from cause

    def _check_left(self, cause: MissingSourceFileError) -> None:
        """Raise if the source's newest version names a missing file."""
        if cause.path in {add.path for add in live_adds(load_snapshot(self.source))}:
            raise LogCorruptError(f"{cause}, and its table's newest version names it: the source is damaged") from cause

    def _check_all_the_same(self) -> None:
        """Compare all versions that both logs have, because a repair may have replaced a damaged one.

        Raises:
            MirrorError: a version differs.
        """
        mine, theirs = LogFiles.listed(self.target).commits, set(LogFiles.listed(self.source).commits)
        for version in mine:
            if version in theirs and version > 0:
                before, now = self.target.look(log_name(version)), self.source.look(log_name(version))
                if before is None or now is None or before == now:
                    continue
                # A mirror puts a marker in the place of skipped versions.
                if parse_commit(version, before, self.target.uri).operation != REPAIR:
                    raise diverged(self.info, version)

    def _restart(self, wanted: int) -> Generator[str, None, TopicPart | None]:
        """Build a part with the checkpoint of a version, and copy the files that are live in it."""
        try:
            snapshot = load_snapshot(self.source, wanted)
        except LogCorruptError as cause:
            newest = max(LogFiles.listed(self.source).commits, default=-1)
            if newest > wanted:
                raise CutTooOldError from cause
            raise
        content = self.source.look(log_name(wanted))
        if content is None:
            raise CutTooOldError
        parse_commit(wanted, content, self.source.uri)
        adds = live_adds(snapshot)
        try:
            yield from self.data.bring(adds, durable=self.durable)
        except MissingSourceFileError as cause:
            self._check_left(cause)
            raise CutTooOldError from cause
        checkpoint, actions = checkpoint_of(snapshot, self.now_ms)
        name = checkpoint_file(self.run, self.number)
        faults.point("mirror.before_stage")
        mirrors = self.root.at(MIRRORS)
        mirrors.make_folder("")
        mirrors.put_if_absent(name, checkpoint, durable=True)
        yield "staged"
        return TopicPart(
            name=self.info.name,
            topic_id=self.info.topic_id,
            location=self.info.location,
            first=wanted,
            versions=(content.decode(),),
            checkpoint=name,
            checksum=zlib.crc32(checkpoint),
            actions=actions,
            after=max(self.info.mirror.version, 0) if self.info.mirror is not None else 0,
            durable=self.durable,
        )


def live_adds(snapshot: LogSnapshot) -> list[Add]:
    """Return the data files of a version."""
    found = {add.path: add for add in snapshot.adds()}
    for commit in snapshot.committed:
        for path in commit.removes:
            found.pop(path, None)
        found |= {add.path: add for add in commit.adds}
    return list(found.values())


def new_run() -> str:
    """Return a unique id."""
    return uuid.uuid4().hex


def first_version(files: Storage) -> bytes | None:
    """Return the first version of a source's table, if its log still has it intact."""
    content = files.look(log_name(0))
    try:
        if content is not None:
            parse_commit(0, content, files.uri)
    except KafkaError:
        return None
    return content


class MirrorCreator:
    """Creates mirrors, and tells them from other topics.

    Args:
        source: the cluster to copy.
        target: the cluster with the copies.
    """

    def __init__(self, source: Cluster, target: Cluster) -> None:
        self._source = source
        self._target = target

    def is_mine(self, info: TopicInfo) -> bool:
        """Return whether a topic of the target is a mirror of this source."""
        return info.mirror is not None and info.mirror.source == self._source.root

    def create(self, info: TopicInfo) -> None:
        """Create the mirror of a topic of the source, unless it exists.

        Raises:
            TopicAlreadyExistsError, MirrorError: see `check`.
        """
        now = self._target.clock.now_ms()
        mirrored = Mirrored(source=self._source.root, began_ms=now, time_ms=now)
        own = replace(info, mirror=None)
        try:
            self._target.create_mirror(own, mirrored, first_version(self._source.files_of(info)))
        except TopicAlreadyExistsError:
            # Another client may have created the same mirror.
            self.check(info, self._target.topic(info.name))

    def check(self, theirs: TopicInfo, mine: TopicInfo) -> None:
        """Reject a topic of the target that is not a mirror of this one.

        Raises:
            TopicAlreadyExistsError: it is a topic of the target's own.
            MirrorError: it is a mirror of another topic, or is being promoted.
        """
        name, mirror = mine.name, mine.mirror
        if mirror is None:
            raise TopicAlreadyExistsError(f"topic {name!r} exists at {self._target.root}, and is not a mirror")
        if mirror.source != self._source.root:
            raise MirrorError(f"topic {name!r} is a mirror of {mirror.source}, not of {self._source.root}")
        if mine.table_id != theirs.table_id:
            raise MirrorError(
                f"{name}: the topic was deleted and created again at {self._source.root}; its mirror stays as it was. "
                "Delete it at the target, and the new topic is mirrored"
            )
        if mirror.phase is not Phase.FOLLOWING:
            raise MirrorError(f"topic {name!r} is being promoted: run `kafkalike mirror promote` again")
