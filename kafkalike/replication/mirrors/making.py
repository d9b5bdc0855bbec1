"""MirrorMaking: topics of a source in; their mirrors at the target, which hold nothing yet, out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalike.errors import MirrorError, TopicAlreadyExistsError
from kafkalike.model.mirrored import Mirrored, Phase
from kafkalike.replication.mirrors.reading import first_version

if TYPE_CHECKING:
    from kafkalike.log.cluster.delta_cluster import DeltaCluster
    from kafkalike.model.topic import TopicInfo


class MirrorMaking:
    """Makes mirrors, and tells them from other topics.

    Args:
        source: the cluster that is copied.
        target: the cluster with the copies.
    """

    def __init__(self, source: DeltaCluster, target: DeltaCluster) -> None:
        self._source = source
        self._target = target

    def is_mine(self, info: TopicInfo) -> bool:
        """Whether a topic of the target is a copy of one of the source."""
        return info.mirror is not None and info.mirror.source == self._source.root

    def create(self, info: TopicInfo) -> None:
        """Make the mirror of a topic of the source, unless it is there.

        Raises:
            TopicAlreadyExistsError, MirrorError: see `check`.
        """
        now = self._target.clock.now_ms()
        mirrored = Mirrored(source=self._source.root, began_ms=now, time_ms=now)
        own = replace(info, mirror=None)
        try:
            self._target.create_mirror(own, mirrored, first_version(self._source.files_of(info)))
        except TopicAlreadyExistsError:
            # Another mirror of the same source, perhaps.
            self.check(info, self._target.topic(info.name))

    def check(self, theirs: TopicInfo, mine: TopicInfo) -> None:
        """Refuse to bring anything to a topic that is no copy of this one.

        Raises:
            TopicAlreadyExistsError: it is a topic of the target's own.
            MirrorError: it is a copy of something else, or is being promoted.
        """
        name, mirror = mine.name, mine.mirror
        if mirror is None:
            raise TopicAlreadyExistsError(f"topic {name!r} exists at {self._target.root}, and is no mirror")
        if mirror.source != self._source.root:
            raise MirrorError(f"topic {name!r} is a mirror of {mirror.source}, not of {self._source.root}")
        if mine.table_id != theirs.table_id:
            raise MirrorError(
                f"{name}: the topic was deleted and created again at {self._source.root}; its mirror stays as it was. "
                "Delete it at the target, and the new topic is mirrored"
            )
        if mirror.phase is not Phase.FOLLOWING:
            raise MirrorError(f"topic {name!r} is being promoted: run `kafkalike mirror promote` again")
