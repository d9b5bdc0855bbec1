"""Topic lineage: versions of topics' tables as of a time, and the topics that were forked or restored from others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalike.delta.actions import log_name, parse_commit
from kafkalike.delta.damage import storage_errors
from kafkalike.delta.table_state import END_APP, TableState, load_table
from kafkalike.errors import IllegalArgumentError
from kafkalike.log.topic.topic_commits import segment_of, versions
from kafkalike.model.clock import utc_text
from kafkalike.model.topic import TopicInfo
from kafkalike.model.transactions.transaction_views import APPLIED, Cut, Past, TopicCut, whole_versions
from kafkalike.storage.port import Storage

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog


COPY_APP: Final = "kafkalike.copy/"
"""Applications of this name, followed by a topic's id, have as their version the table version that was copied into
that topic. So `forget` can report copies of a topic."""

ORIGIN_APP: Final = "kafkalike.copied-from/"
"""The reverse, in the copy's table: the topic that it was made from, and all of that topic's own origins. So a copy of
a copy is found even after the topic between them was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relatives:
    """Names, sorted, of existing topics that share, or have shared, files with others."""

    copies: tuple[str, ...]
    """Topics that were forked or restored from them, directly or through others."""
    origins: tuple[str, ...]
    """Topics that they were made from, and all other topics made from those."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of copies and origins."""
        return (*self.copies, *self.origins)


def relatives_of(cluster: Cluster, topic_ids: Collection[str]) -> Relatives:
    """Look up the topics that were made from some topics, and the topics that these were made from.

    If an origin was deleted, the table of every topic of the cluster is opened, because only the copies record it.

    Args:
        cluster: the topics' cluster.
        topic_ids: ids of the topics, existing or deleted.
    """
    known = {str(info.table_id): info for info in cluster.topics().values()}
    wanted = set(topic_ids)
    own = {known[one].name for one in wanted & known.keys()}
    copies = _made_from(cluster, wanted, own)
    before = {one for name in own for one in origin_ids(cluster.log(name))} - wanted
    there = {known[one].name for one in before & known.keys() if known[one].mirror is None}
    family = {*there, *_made_from(cluster, before, there)} if before else set()
    return Relatives(copies=tuple(sorted(copies - own)), origins=tuple(sorted(family - copies - own)))


def _made_from(cluster: Cluster, topic_ids: Collection[str], there: Collection[str]) -> set[str]:
    """Return the names of the topics made from some; `there` has the names of the existing ones among them."""
    logs = [cluster.log(name) for name in sorted(there)]
    gone = set(topic_ids) - {str(log.info.table_id) for log in logs}
    return {*copies_of(cluster, logs), *(made_from(cluster, gone) if gone else ())}


def origins_of(cluster: Cluster, log: TopicLog) -> list[TopicInfo]:
    """Return the existing topics that one was made from, mirrors excluded, as of its log's last refresh."""
    ids = set(origin_ids(log))
    return [info for info in cluster.topics().values() if info.table_id in ids and info.mirror is None]


def origin_ids(log: TopicLog) -> list[str]:
    """Return the ids of the topics that one was made from, existing or deleted."""
    return [app.removeprefix(ORIGIN_APP) for app in log.apps(ORIGIN_APP)]


def copies_of(cluster: Cluster, logs: Collection[TopicLog]) -> list[str]:
    """Look up the existing topics that were forked or restored from some, directly or through others; names, sorted.

    Args:
        cluster: the topics' cluster.
        logs: the topics.
    """
    by_id = {str(info.table_id): name for name, info in cluster.topics().items()}
    found: set[str] = set()
    waiting = list(logs)
    while waiting:
        log = waiting.pop()
        log.refresh()
        for app in log.apps(COPY_APP):
            name = by_id.get(app.removeprefix(COPY_APP))
            if name is not None and name not in found:
                found.add(name)
                waiting.append(cluster.log(name))
    return sorted(found)


def made_from(cluster: Cluster, topic_ids: Collection[str]) -> list[str]:
    """Return the names of the topics made from deleted topics; opens each topic's table."""
    wanted = set(topic_ids)
    return [name for name in sorted(cluster.topics()) if wanted.intersection(origin_ids(cluster.log(name)))]


def cut_at(cluster: Cluster, infos: Iterable[TopicInfo], time_ms: int) -> Cut:
    """Return several topics as of a time, or later if a transaction had reached only some of them by then.

    Args:
        cluster: the topics' cluster.
        infos: the topics; every decided transaction is in all of them.
        time_ms: the time, by the writers' clocks.

    Returns:
        Their versions. The groups' table keeps no such history, so its version is 0.

    Raises:
        IllegalArgumentError: a topic's log does not reach back to that time, or the topic is younger.
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
    """Return a topic's log ends as of a table version, for each partition that has or had a record.

    Raises:
        KafkaStorageError, LogCorruptError: the log cannot be read, or does not reach back to that version.
    """
    files = cluster.files_of(info)
    with storage_errors(files.uri):
        return _ends(load_table(files, segment_of, version))


def _walked_back(topic: str, files: Storage, time_ms: int) -> tuple[int, list[tuple[int, int]]]:
    """Return the newest version that is not younger than a time, and the later versions that applied decisions."""
    later: list[tuple[int, int]] = []
    oldest = time_ms
    with storage_errors(files.uri):
        known = versions(files)
        for version in reversed(known):
            try:
                commit = parse_commit(version, files.read(log_name(version)), files.uri)
            except FileNotFoundError:
                # Retention of the table's log has removed it meanwhile.
                break
            if commit.timestamp_ms <= time_ms:
                return version, later
            oldest = commit.timestamp_ms
            if APPLIED in commit.txns:
                later.append((version, commit.txns[APPLIED]))
    why = "its table was made" if known[:1] == [0] else "the history that its table's log keeps begins"
    raise IllegalArgumentError(f"topic {topic!r} cannot be seen as of {utc_text(time_ms)}: {why} at {utc_text(oldest)}")


def _ends(state: TableState) -> Mapping[int, int]:
    """Return the log ends of a version, for each partition that has or had a record."""
    recorded = {int(app.removeprefix(END_APP)) for app in state.txns if app.startswith(END_APP)}
    partitions = recorded | {segment.partition for segment in state.index}
    return {p: state.end(p) for p in sorted(partitions)}
