"""Beside: a topic and keys in, the files out that have records with them and are not part of the table."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import TYPE_CHECKING

from kafkalike.maintenance.upkeep.vacuum import Delays, leftovers
from kafkalike.maintenance.verify.key_bytes import has_record

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog


def lying_about(log: TopicLog, keys: Collection[bytes], now_ms: int) -> tuple[set[str], set[str]]:
    """Files with such records that merging or compaction has replaced, or that a killed process has written.

    Args:
        log: the topic.
        keys: in clear.
        now_ms: the time, ms.

    Returns:
        Those that were part of the table, and those of which nobody knows: a writer may be about to commit one.

    Raises:
        LogCorruptError, OSError: the table's log cannot be read, or the storage does not answer.
    """
    log.refresh()
    idle = leftovers(log.files, log.live_paths, now_ms, Delays(deleted_ms=0, replaced_ms=0), orphan_ms=0)
    found: tuple[set[str], set[str]] = set(), set()
    for file in idle:
        if not file.path.endswith(".parquet"):
            continue
        with contextlib.suppress(FileNotFoundError):
            if has_record(log.files, file.path, keys):
                found[0 if file.was_live else 1].add(file.path)
    return found
