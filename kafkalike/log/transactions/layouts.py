"""Layouts: a part of a decision in; its records as a payload, or what is wrong with its staged files, out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from kafkalike.delta.damage import storage_errors
from kafkalike.errors import LogCorruptError
from kafkalike.log.runs.manifest import LAYOUT as RUNS
from kafkalike.log.runs.manifest import Manifest, load_manifest
from kafkalike.log.runs.runs import Run
from kafkalike.log.topic.decided import DecidedPayload, DecidedRecords, Load, StagedFileError
from kafkalike.log.topic.waiting_batch import partitions_in

if TYPE_CHECKING:
    from kafkalike.log.transactions.staging import Staging
    from kafkalike.model.transactions.values import Attempt, Committed, Part


def records_of(staging: Staging, committed: Committed, part: Part, load: Load) -> DecidedRecords:
    """The records that a decision brings into a topic.

    Args:
        staging: the staged files.
        committed: the decision.
        part: what it says of the topic.
        load: reads a staged batch.

    Raises:
        LogCorruptError: a staged file is gone or damaged, or this release does not know the layout.
        KafkaStorageError: the storage does not answer.
    """
    if part.layout != RUNS:
        return DecidedPayload(part, load)
    # It brings `pyarrow.compute`: 40 ms of each process that opens a cluster, which most never need.
    from kafkalike.log.runs.payload import DecidedRuns

    return DecidedRuns(staging.place(committed.attempt), _manifests(staging, committed, part))


def check_part(staging: Staging, committed: Committed, part: Part) -> None:
    """Look at all staged files of a topic.

    Raises:
        StagedFileError: one is gone, or not what was decided. Of what Spark's tasks have staged, only that it is there
            and long enough is looked at.
        KafkaStorageError: the storage does not answer.
    """
    if part.layout != RUNS:
        for file in part.files:
            staging.load(committed, part, file)
        return
    place = staging.place(committed.attempt)
    for manifest in _manifests(staging, committed, part):
        for name in manifest.files:
            least = max((run.stop for run in manifest.runs if isinstance(run, Run) and run.file == name), default=0)
            try:
                with storage_errors(place.uri):
                    size = place.size(name)
            except FileNotFoundError:
                raise StagedFileError.of(f"{place.uri}/{name}", "is gone", part.topic.name, committed.seq) from None
            if size < least:
                raise StagedFileError.of(f"{place.uri}/{name}", "is cut off", part.topic.name, committed.seq)


def staged_counts(staging: Staging, attempt: Attempt, topic_ids: Collection[str]) -> dict[str, dict[int, int]]:
    """Records that are staged for an open transaction, by topic id and partition.

    Looks at the beginning of each file. The counts are the highest that may be committed: a file whose writer got no
    answer may have been staged again.

    Args:
        staging: the staged files.
        attempt: the transaction.
        topic_ids: for which topics.

    Returns:
        Topics of which a file does not say its partitions at its beginning are missing; so are those of a transaction
        that has ended meanwhile.

    Raises:
        KafkaStorageError: the storage does not answer.
    """
    found: dict[str, Counter[int]] = {}
    unclear: set[str] = set()
    for name, topic_id, content in staging.heads(attempt, topic_ids):
        counts = _counts(content, name)
        if counts is None:
            unclear.add(topic_id)
        else:
            found.setdefault(topic_id, Counter()).update(counts)
    return {topic_id: dict(counts) for topic_id, counts in found.items() if topic_id not in unclear}


def _counts(head: bytes, where: str) -> Mapping[int, int] | None:
    if not head.startswith(b"{"):
        return partitions_in(head)
    try:
        return load_manifest(head, where).counts()
    except LogCorruptError:
        # It is damaged, or too large to be read whole for this.
        return None


def _manifests(staging: Staging, committed: Committed, part: Part) -> list[Manifest]:
    return [load_manifest(staging.read(committed, part, file), file.name) for file in part.files]
