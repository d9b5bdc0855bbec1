"""RootWatch: a cluster in, an error out when its storage root has vanished."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafkalike.errors import KafkaConnectionError, LogCorruptError
from kafkalike.model.clock import Clock

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


log = logging.getLogger(__name__)


class RootWatch:
    """Distinguishes an empty log from one that is gone. Belongs to its consumer.

    Where the root is missing, each poll looks.

    A root that has vanished (removed, or its file system is not mounted) looks like one in which nothing is new. One
    that has never been there may be made later, so that is a warning.

    Args:
        cluster: whose root.
        clock: time.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._due = clock.monotonic()
        self._there = False
        self._warned = False

    def check(self, cause: LogCorruptError | None = None) -> None:
        """Look at the root, if it is time. Caller: poll.

        Args:
            cause: why it is time: the log could not be read.

        Raises:
            KafkaConnectionError: the root was there and is not any more.
        """
        now = self._clock.monotonic()
        if cause is None and now < self._due:
            return
        if self._cluster.there:
            self._there, self._due = True, now + self._cluster.root_interval
        elif self._there:
            raise KafkaConnectionError(
                f"the storage root {self._cluster.root} has vanished: it holds no topics any more; is its file system "
                "mounted?"
            ) from cause
        elif not self._warned:
            self._warned = True
            log.warning("the storage root %s does not exist, or is empty; waiting for topics", self._cluster.root)
