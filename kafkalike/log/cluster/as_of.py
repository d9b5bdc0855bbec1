"""Versions of several topics' tables as of a time, which show of each transaction all or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kafkalike.delta.actions import log_name, parse_commit
from kafkalike.delta.damage import storage_errors
from kafkalike.delta.table_state import END_APP, TableState, load_table
from kafkalike.errors import IllegalArgumentError
from kafkalike.log.topic.segment_files import segment_of, versions
from kafkalike.model.clock import utc_text
from kafkalike.model.topic import TopicInfo
from kafkalike.model.transactions.transaction_views import APPLIED, Cut, Past, TopicCut, whole_versions
from kafkalike.storage.port import Storage

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


def cut_at(cluster: Cluster, infos: Iterable[TopicInfo], time_ms: int) -> Cut:
    """Several topics as of a time, and as much later as transactions needed that had reached one of them by then.

    Args:
        cluster: where they are.
        infos: the topics; every decided transaction is in all of them.
        time_ms: the time, by the clocks of those who wrote.

    Returns:
        Their versions; the groups' table has no such history, so its version is 0.

    Raises:
        IllegalArgumentError: a topic's log does not reach back so far, or the topic is younger.
        KafkaStorageError, LogCorruptError: a log cannot be read.
    """
    states: dict[tuple[str, int], TableState] = {}
    wanted = {str(info.name): info for info in infos}
    files = {name: cluster.files_of(info) for name, info in wanted.items()}

    def state(name: str, version: int) -> TableState:
        if (name, version) not in states:
            with storage_errors(files[name].uri):
                states[name, version] = load_table(files[name], segment_of, version)
        return states[name, version]

    pasts: dict[str, Past] = {}
    for name, where in files.items():
        version, later = _walked_back(name, where, time_ms)
        pasts[name] = Past(version=version, applied=state(name, version).txns.get(APPLIED, 0), later=later)
    seq, found = whole_versions(pasts)
    topics = {
        name: TopicCut(topic_id=wanted[name].topic_id, version=version, ends=_ends(state(name, version)))
        for name, version in found.items()
    }
    return Cut(seq=seq, groups_version=0, topics=topics)


def ends_at(cluster: Cluster, info: TopicInfo, version: int) -> Mapping[int, int]:
    """Log ends of a topic as of a version of its table, by partition that has any record or had one.

    Raises:
        KafkaStorageError, LogCorruptError: the log cannot be read, or does not reach back so far.
    """
    files = cluster.files_of(info)
    with storage_errors(files.uri):
        return _ends(load_table(files, segment_of, version))


def _walked_back(topic: str, files: Storage, time_ms: int) -> tuple[int, list[tuple[int, int]]]:
    """The newest version that is not younger than a time, and the later ones that brought in decisions."""
    later: list[tuple[int, int]] = []
    oldest = time_ms
    with storage_errors(files.uri):
        known = versions(files)
        for version in reversed(known):
            try:
                commit = parse_commit(version, files.read(log_name(version)), files.uri)
            except FileNotFoundError:
                # The log's own retention took it meanwhile.
                break
            if commit.timestamp_ms <= time_ms:
                return version, later
            oldest = commit.timestamp_ms
            if APPLIED in commit.txns:
                later.append((version, commit.txns[APPLIED]))
    why = "its table was made" if known[:1] == [0] else "what its table's log remembers begins"
    raise IllegalArgumentError(f"topic {topic!r} cannot be seen as of {utc_text(time_ms)}: {why} at {utc_text(oldest)}")


def _ends(state: TableState) -> Mapping[int, int]:
    """Log ends of a version, by partition that has any record or had one."""
    recorded = {int(app.removeprefix(END_APP)) for app in state.txns if app.startswith(END_APP)}
    partitions = recorded | {segment.partition for segment in state.index}
    return {p: state.end(p) for p in sorted(partitions)}
