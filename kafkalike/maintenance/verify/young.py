"""Young: a topic's table in, whether its log still has every version and none but the first did more than add out.

Of such a table the files that are there are those that its versions have added, one version after the other.
"""

from __future__ import annotations

from typing import Final

from kafkalike.delta.actions import log_name, parse_commit
from kafkalike.errors import KafkaError
from kafkalike.log.topic.segment_files import versions
from kafkalike.storage.port import Storage

MOST_VERSIONS: Final = 500
"""Versions that are read, at most: some 50 ms."""


def is_young(files: Storage, most: int = MOST_VERSIONS) -> bool:
    """Whether a table's log holds all its versions, and those have taken nothing away and changed no metadata.

    A table in an object store counts as none: each version would be a request.

    Args:
        files: the table.
        most: a table with more versions counts as none.
    """
    if files.far:
        return False
    there = list(versions(files))
    if not there or len(there) > most or there != list(range(len(there))):
        return False
    try:
        commits = (parse_commit(version, files.read(log_name(version)), files.uri) for version in there)
        return not any(commit.removes or (commit.version > 0 and commit.table_id) for commit in commits)
    except (KafkaError, OSError):
        # Delta's source tells it, whichever way it reads.
        return False
