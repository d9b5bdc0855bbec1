"""The topics that a Spark job writes to: what its tasks must know of them, and their logs after the job."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalike.errors import TopicAlreadyExistsError, TopicDeletedError, UnknownTopicOrPartitionError
from kafkalike.log.topic.batch_payload import PARQUET_CODECS
from kafkalike.log.topic.column_rules import Rules
from kafkalike.log.topic.record_rules import MAX_TIMESTAMP_MS, codec_for
from kafkalike.model.config.dead_letter_config import topic_settings
from kafkalike.model.config.topic_config import NO_CHECKS, TopicConfig
from kafkalike.model.dead_letter import SUFFIX, default_topic
from kafkalike.model.names import check_topic_name
from kafkalike.spark.writes.staged_files import KnownTopic, StagingTarget, TaskResult, TopicRuns

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.topic import TopicInfo


def target_of(
    cluster: Cluster,
    topic: str | None,
    *,
    codec: str,
    written: bool = False,
    timestamps: bool = True,
    names_partitions: bool = False,
) -> StagingTarget:
    """Where the records of a job go; creates the topic of all of them unless they say how many partitions it needs.

    Args:
        cluster: where the records go.
        topic: the topic of all records; None: each record names its own.
        codec: compression, used when a topic says `producer`.
        written: whether that topic has the records already; see `found_again`.
        timestamps: whether a column `timestamp` is the time of the records.
        names_partitions: whether records may name their partitions: then a topic that is missing gets as many as they
            name, when the tasks have seen all of them.

    Raises:
        InvalidTopicError, UnknownTopicOrPartitionError: a bad name, or a topic that is missing and must not be created.
    """
    creates = cluster.server.auto_create_topics
    infos = cluster.topics() if topic is None or names_partitions else {}
    if topic is not None:
        info = infos.get(check_topic_name(topic))
        if info is None and not (names_partitions and creates):
            info = cluster.ensure_topic(topic)
        infos = {} if info is None else {topic: info}
    known = {name: _known(cluster, info, codec) for name, info in infos.items()}
    if known.keys() == {topic} or not creates:
        return StagingTarget(topic=topic, known=known, missing=None, written=written, timestamps=timestamps)
    config = _config(cluster, {})
    missing = replace(_rules(cluster, None, cluster.server.num_partitions, config), grows=names_partitions)
    named = {**_with_schemas(cluster, missing, config, known), **_of_letters(cluster, infos, grows=names_partitions)}
    return StagingTarget(
        topic=topic,
        known=known,
        missing=missing,
        missing_codec=_segment_codec(cluster, config, codec),
        named=named,
        written=written,
        timestamps=timestamps,
    )


def _config(cluster: Cluster, configs: Mapping[str, str]) -> TopicConfig:
    return TopicConfig.from_properties(cluster.server.effective(configs))


def _known(cluster: Cluster, info: TopicInfo, codec: str) -> KnownTopic:
    config = _config(cluster, info.configs)
    rules = _rules(cluster, info.name, info.num_partitions, config)
    return KnownTopic(info.topic_id, rules, _segment_codec(cluster, config, codec))


def _segment_codec(cluster: Cluster, config: TopicConfig, codec: str) -> str | None:
    """See `KnownTopic.codec`."""
    # Elsewhere than on a disk no file is changed once it is there; and LogAppendTime is only known at the commit.
    ready = cluster.store.coordination.reach == "machine" and not config.log_append_time
    return PARQUET_CODECS[codec_for(config, codec)] if ready else None


def _rules(cluster: Cluster, topic: str | None, num_partitions: int, config: TopicConfig) -> Rules:
    """A topic's rules now; records without key begin at a partition drawn anew.

    A topic without a name is one that is missing and has no subject.
    """
    turn = random.randrange(num_partitions)  # noqa: S311 - spreads small writes, guards nothing
    ids = _schema_ids(cluster, topic, config) if config.schemas is not NO_CHECKS else ()
    return Rules.of(num_partitions, config, cluster.clock, turn, ids)


def _with_schemas(
    cluster: Cluster, missing: Rules, config: TopicConfig, known: Mapping[str, KnownTopic]
) -> dict[str, Rules]:
    """Rules of topics that do not exist, and have schemas already: registered before the first record, as usual."""
    if config.schemas is NO_CHECKS:
        return {}
    from kafkalike.model.schemas.admission import admitted, topics_with_subjects

    state, parts = cluster.schemas.state, config.schemas.parts.items()
    names = {name for part, strategy in parts for name in topics_with_subjects(state, part, strategy)} - known.keys()
    return {
        name: replace(
            missing, schema_ids=tuple((part, admitted(state, name, part, strategy)) for part, strategy in parts)
        )
        for name in names
    }


def _of_letters(cluster: Cluster, infos: Mapping[str, TopicInfo], *, grows: bool) -> dict[str, Rules]:
    """Rules of dead-letter topics that do not exist: letters are longer than their records, and of any age."""
    made: dict[frozenset[tuple[str, str]], Rules] = {}
    found: dict[str, Rules] = {}
    for source, info in infos.items():
        name = default_topic(source)
        if name in infos:
            continue
        # No schemas are checked there, so topics of the same settings have the same rules.
        settings = frozenset(info.configs.items())
        rules = made.get(settings)
        if rules is None:
            config = _config(cluster, _letters_configs(cluster, info))
            rules = replace(_rules(cluster, name, cluster.server.num_partitions, config), grows=grows)
            made[settings] = rules
        found[name] = rules
    return found


def _letters_configs(cluster: Cluster, source: TopicInfo) -> dict[str, str]:
    return topic_settings(cluster.server.effective(source.configs))


def _schema_ids(cluster: Cluster, topic: str | None, config: TopicConfig) -> tuple[tuple[str, frozenset[int]], ...]:
    """Ids of the schemas that keys and values may have, fresh."""
    from kafkalike.model.schemas.admission import admitted
    from kafkalike.model.schemas.schema import RECORD_NAME

    known = cluster.schemas.refresh()
    return tuple(
        (
            part,
            frozenset() if topic is None and strategy != RECORD_NAME else admitted(known, topic or "", part, strategy),
        )
        for part, strategy in config.schemas.parts.items()
    )


def open_logs(
    cluster: Cluster,
    topic: str | None,
    results: Sequence[TaskResult],
    sources: Mapping[str, int] | None = None,
) -> list[TopicLog]:
    """The logs of a job's topics, each of which is created if it was missing when the job began.

    Args:
        cluster: where the topics are.
        topic: the topic of all records; None: those that the tasks name. It is created without any record too.
        results: what the tasks say.
        sources: how many partitions the topics have that a streaming query reads: a missing topic of one's name gets
            as many, and each other one as many as the largest; and none is created without a record. None: only the
            records count.

    Raises:
        TopicDeletedError: records were given their partitions for another life of the topic.
        TopicAlreadyExistsError: it was missing, and has other settings now than it would have been created with.
        UnknownTopicOrPartitionError: it was missing, and has fewer partitions now than the records name.
    """
    staged: dict[str, list[TopicRuns]] = {}
    for result in results:
        for name, put in result.topics.items():
            staged.setdefault(name, []).append(put)
    missing = {name: puts[0].assumed for name, puts in staged.items() if puts[0].assumed is not None}
    is_empty = topic is not None and topic not in staged
    # A batch whose topics were all there asks for nothing more: their logs look for themselves.
    infos = cluster.topics() if missing or is_empty else {}
    if topic is not None and is_empty:
        if topic not in infos and sources is not None:
            return []
        cluster.ensure_topic(topic)
    # All that exist first: where one of them refuses the records, none of the others is created.
    for name in sorted(missing, key=lambda name: name not in infos):
        wanted, needed = missing[name], 1 + max(put.highest for put in staged[name])
        if wanted.grows:
            read = 0 if not sources else sources.get(name, max(sources.values()))
            wanted = replace(wanted, num_partitions=max(wanted.num_partitions, needed, read))
        _check_assumed(cluster, _ensured(cluster, name, wanted, infos), wanted, needed)
    return [_open_log(cluster, name, staged.get(name, [])) for name in (sorted(staged) if topic is None else [topic])]


def _check_assumed(cluster: Cluster, info: TopicInfo, assumed: Rules, needed: int) -> None:
    """Check that a topic which was missing takes records that were checked by assumed rules.

    Where it grows, any number of partitions will do that the records can go to.
    """
    now = _rules(cluster, info.name, info.num_partitions, _config(cluster, info.configs))
    if assumed.grows:
        assumed = replace(assumed, num_partitions=info.num_partitions, grows=False)
    if _lasting(now) != _lasting(assumed):
        raise TopicAlreadyExistsError(
            f"topic {info.name!r} did not exist when the job began, and was created meanwhile with settings that are "
            "not the cluster's defaults; nothing was written; run it again"
        )
    if needed > info.num_partitions:
        raise UnknownTopicOrPartitionError(
            f"{info.name}: partition {needed - 1} does not exist: the topic was created by another writer meanwhile "
            f"and has partitions 0 to {info.num_partitions - 1}; nothing was written; give it more partitions and run "
            "it again"
        )


def _open_log(cluster: Cluster, name: str, staged: Sequence[TopicRuns]) -> TopicLog:
    log = cluster.log(name)
    for known in {put.topic_id for put in staged if put.topic_id is not None} - {log.info.topic_id}:
        raise TopicDeletedError(name, known, log.info.topic_id)
    return log


def _ensured(cluster: Cluster, name: str, assumed: Rules, infos: Mapping[str, TopicInfo]) -> TopicInfo:
    """A topic that was missing; one that is to take dead letters gets the settings for it."""
    if name in infos or not cluster.server.auto_create_topics:
        return cluster.ensure_topic(name)
    source, total = infos.get(name.removesuffix(SUFFIX)), assumed.num_partitions
    configs: dict[str, str] = {}
    if source is not None:
        letters = _letters_configs(cluster, source)
        if _lasting(_rules(cluster, name, total, _config(cluster, letters))) == _lasting(replace(assumed, grows=False)):
            configs = letters
    try:
        return cluster.create_topic(name, total, configs)
    except TopicAlreadyExistsError:
        return cluster.topic(name)


def _lasting(rules: Rules) -> Rules:
    """Rules without what differs from one moment to the next.

    The limits of time become what they are counted with, and of the schemas only stays which parts are checked.
    """
    before = 0 if rules.min_time_ms == 0 else rules.now_ms - rules.min_time_ms
    after = 0 if rules.max_time_ms == MAX_TIMESTAMP_MS else rules.max_time_ms - rules.now_ms
    ids = tuple((part, frozenset[int]()) for part, _ in rules.schema_ids)
    now_ms = int(rules.now_ms > 0)
    return replace(rules, first_turn=0, now_ms=now_ms, min_time_ms=before, max_time_ms=after, schema_ids=ids)
