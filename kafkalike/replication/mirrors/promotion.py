"""Promotion: turns mirrors into writable topics, after all decided passes and before any later one."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kafkalike.delta.damage import storage_errors
from kafkalike.errors import KafkaError, MirrorError
from kafkalike.model import faults
from kafkalike.model.clock import Deadline
from kafkalike.model.cluster_state import ClusterState, MetadataRow, mirror_row
from kafkalike.model.mirror import SEAL, Phase
from kafkalike.model.record_batch import TRANSACTIONS
from kafkalike.replication.mirrors.roll_forward import find_lost, finish_all
from kafkalike.replication.mirrors.source_reader import new_run

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.topic import TopicInfo

TIMEOUT_MS: Final = 60_000


def promote(target: Cluster, names: Collection[str], *, force: bool = False) -> dict[str, int]:
    """Make mirrors writable topics. See `promoting`."""
    steps = promoting(target, names, force=force)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def promoting(target: Cluster, names: Collection[str], *, force: bool = False) -> Generator[str, None, dict[str, int]]:
    """Make mirrors writable topics, step by step; the next call finishes an interrupted promotion.

    The first step excludes these topics from further passes. Passes that were decided before are applied to all of
    their topics, so the topics show one moment of their source. Then an empty version ends each table's life as a copy
    and stops a pass that wakes up late. After that, the topics are like any others.

    Args:
        target: the cluster with the mirrors; their source is not contacted.
        names: topics.
        force: whether to promote a mirror with the records it has, if foreign writes make a decided pass fail.

    Returns:
        The last version of the source in each topic.

    Raises:
        UnknownTopicOrPartitionError: a topic does not exist; nothing was done.
        MirrorError: a topic is not a mirror, or a decided pass cannot be applied to it; all topics stay mirrors.
    """
    with storage_errors(target.store.uri):
        state = target.metadata.refresh()
        wanted = {name: state.require(name) for name in sorted(names)}
        for name, info in wanted.items():
            if info.mirror is None:
                raise MirrorError(f"topic {name!r} is not a mirror")
        seal = new_run()
        yield from _mark(target, wanted, Phase.PROMOTING, seal)
        problems: dict[str, KafkaError] = {}
        yield from finish_all(target, problems)
        find_lost(target, problems)
        for name, problem in problems.items():
            if name in wanted and not force:
                raise MirrorError(
                    f"{name} cannot be promoted as a moment of its source; --force takes it as it is: {problem}"
                ) from problem
        versions: dict[str, int] = {}
        for name, info in wanted.items():
            mirror = target.metadata.refresh().require(name).mirror
            if mirror is None or target.metadata.state.require(name).topic_id != info.topic_id:
                continue
            faults.point("mirror.before_seal")
            log = target.log(name)
            # With `force`, the topic may have less than the decided version.
            versions[name] = max(min(mirror.version, log.version) if name in problems else mirror.version, 0)
            # The version has the number that the mirror's writer would copy next. It restarts the numbering of decided
            # transactions, because the source's numbers do not apply to this cluster.
            log.seal(SEAL + mirror.seal, Deadline(target.clock, TIMEOUT_MS), {TRANSACTIONS: 0})
            yield "sealed"
            faults.point("mirror.before_adoption")
            target.adopt_mirror(info)
            yield "adopted"
        faults.point("mirror.before_promoted")
        yield from _mark(target, wanted, Phase.PROMOTED, "")
        return versions


def _mark(target: Cluster, wanted: dict[str, TopicInfo], phase: Phase, seal: str) -> Generator[str, None, None]:
    """Change the phase of all topics in one version of the metadata."""

    def plan(state: ClusterState) -> Sequence[MetadataRow]:
        rows: list[MetadataRow] = []
        now = target.clock.now_ms()
        for name, info in wanted.items():
            known = state.topics.get(name)
            if known is None or known.topic_id != info.topic_id or known.mirror is None:
                continue
            if known.mirror.phase is phase:
                # An interrupted promotion continues under its own seal.
                continue
            after = replace(known.mirror, phase=phase, seal=known.mirror.seal or seal, time_ms=now)
            rows.append(mirror_row(state.seq + len(rows) + 1, known, after, phase.value))
        return rows

    target.metadata.transact(plan)
    yield phase.value
