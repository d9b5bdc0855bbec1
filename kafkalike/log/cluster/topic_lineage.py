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
"""Applications of this name, followed by a topic's id, have as their version the table version that was copied into it:
so who forgets a key is told of the copies."""

ORIGIN_APP: Final = "kafkalike.copied-from/"
"""The other way, in the copy's table: the topic that it was made from, and all that this one was made from. A copy of
a copy is noted in all of these, so that it is found when what lies between was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relatives:
    """Topics that have, or had, files in common with others; names, sorted, of those that exist."""

    copies: tuple[str, ...]
    """Those that were forked or restored from them, and from those."""
    origins: tuple[str, ...]
    """Those that they come from, and all others that come from there."""

    @property
    def names(self) -> tuple[str, ...]:
        """Both."""
        return (*self.copies, *self.origins)


def relatives_of(cluster: Cluster, topic_ids: Collection[str]) -> Relatives:
    """What was made from some topics, and what these were made from, looked up anew.

    Where one that others were made from is gone, the table of each topic of the cluster is opened, as only the copies
    tell of it.

    Args:
        cluster: where they are.
        topic_ids: the topics, whether they exist still or not.
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
    """Names of the topics that were made from some, `there` being those of them that exist."""
    logs = [cluster.log(name) for name in sorted(there)]
    gone = set(topic_ids) - {str(log.info.table_id) for log in logs}
    return {*copies_of(cluster, logs), *(made_from(cluster, gone) if gone else ())}


def origins_of(cluster: Cluster, log: TopicLog) -> list[TopicInfo]:
    """The topics that exist of those that one was made from, as of its log's last refresh; mirrors are none."""
    ids = set(origin_ids(log))
    return [info for info in cluster.topics().values() if info.table_id in ids and info.mirror is None]


def origin_ids(log: TopicLog) -> list[str]:
    """Ids of the topics that one was made from, whether they exist still or not."""
    return [app.removeprefix(ORIGIN_APP) for app in log.apps(ORIGIN_APP)]


def copies_of(cluster: Cluster, logs: Collection[TopicLog]) -> list[str]:
    """Names of the topics that were forked or restored from some, and from those, as far as they exist; looked up anew.

    Args:
        cluster: where they are.
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
    """Names of the topics that were made from topics which are gone; each topic's table is opened for it."""
    wanted = set(topic_ids)
    return [name for name in sorted(cluster.topics()) if wanted.intersection(origin_ids(cluster.log(name)))]


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
