"""The topics that a Spark job writes to: the rules that its tasks need, and the logs after the job."""

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
from kafkalike.model.names import RECORD_NAME, check_topic_name
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
    """Resolve the topics of a job's records.

    The topic of all records is created if it is missing, unless the records name their partitions.

    Args:
        cluster: cluster of the topics.
        topic: the topic of all records; None: each record names its own.
        codec: compression, used when a topic says `producer`.
        written: whether that topic already has the records; see `found_again`.
        timestamps: whether a column `timestamp` is the time of the records.
        names_partitions: whether records may name their partitions. A missing topic then gets as many as they name,
            after the tasks have seen all of them.

    Raises:
        InvalidTopicError, UnknownTopicOrPartitionError: the name is invalid, or the topic is missing and topics are not
            created automatically.
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
    """Return a topic's compression; see `KnownTopic.codec`."""
    # Only on a disk are files changed after they were written; and LogAppendTime is only known at the commit.
    ready = cluster.store.coordination.reach == "machine" and not config.log_append_time
    return PARQUET_CODECS[codec_for(config, codec)] if ready else None


def _rules(cluster: Cluster, topic: str | None, num_partitions: int, config: TopicConfig) -> Rules:
    """Return a topic's current rules, with a random first partition for records without a key.

    A topic without a name is missing and has no subject.
    """
    turn = random.randrange(num_partitions)  # noqa: S311 - spreads small writes, guards nothing
    ids = _schema_ids(cluster, topic, config) if config.schemas is not NO_CHECKS else ()
    return Rules.of(num_partitions, config, cluster.clock, turn, ids)


def _with_schemas(
    cluster: Cluster, missing: Rules, config: TopicConfig, known: Mapping[str, KnownTopic]
) -> dict[str, Rules]:
    """Return the rules of missing topics that already have schemas, because schemas are usually registered first."""
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
    """Return the rules of missing dead-letter topics, because letters are longer than their records, and of any age."""
    made: dict[frozenset[tuple[str, str]], Rules] = {}
    found: dict[str, Rules] = {}
    for source, info in infos.items():
        name = default_topic(source)
        if name in infos:
            continue
        # These topics do not check schemas, so topics with the same settings share their rules.
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
    """Return the current ids of the schemas that keys and values may have."""
    from kafkalike.model.schemas.admission import admitted

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
    """Open the logs of a job's topics, and create the topics that were missing.

    Args:
        cluster: cluster of the topics.
        topic: the topic of all records, which is created even without records; None: the topics in the tasks' results.
        results: the tasks' results.
        sources: numbers of partitions of the topics that a streaming query reads. A missing topic of all records gets
            at least the largest number, another one that of the topic of its name if there is one; without records, it
            is not created. None: only the records count.

    Raises:
        TopicDeletedError: records got their partitions for an earlier topic of that name.
        TopicAlreadyExistsError: the topic was missing, and was created meanwhile with other settings.
        UnknownTopicOrPartitionError: the topic was missing, and was created meanwhile with too few partitions.
    """
    staged: dict[str, list[TopicRuns]] = {}
    for result in results:
        for name, put in result.topics.items():
            staged.setdefault(name, []).append(put)
    missing = {name: puts[0].assumed for name, puts in staged.items() if puts[0].assumed is not None}
    is_empty = topic is not None and topic not in staged
    # If all topics existed, nothing is looked up here, because their logs refresh themselves.
    infos = cluster.topics() if missing or is_empty else {}
    if topic is not None and is_empty:
        if topic not in infos and sources is not None:
            return []
        cluster.ensure_topic(topic)
    # Existing topics first: if an existing topic rejects its records, the missing ones are not created.
    for name in sorted(missing, key=lambda name: name not in infos):
        wanted, needed = missing[name], 1 + max(put.highest for put in staged[name])
        if wanted.grows:
            # If all records go to one topic, those of later batches may have partitions of each topic that is read.
            read = partitions_read(sources, name if topic is None else None)
            most = max(wanted.num_partitions, needed, read)
            wanted = replace(wanted, num_partitions=most)
        _check_assumed(cluster, _ensured(cluster, name, wanted, infos), wanted, needed)
    return [_open_log(cluster, name, staged.get(name, [])) for name in (sorted(staged) if topic is None else [topic])]


def partitions_read(sources: Mapping[str, int] | None, topic: str | None) -> int:
    """Return how many partitions a missing topic needs to copy the topics that a streaming query reads.

    Args:
        sources: numbers of partitions of the topics that the query reads, if it is a streaming one.
        topic: the missing topic; None if it gets the records of all topics that the query reads.

    Returns:
        The number of the topic of the same name if the query reads it, or else the largest one; 0 without sources.

    >>> partitions_read({"orders": 3, "clicks": 8}, "orders"), partitions_read({"orders": 3, "clicks": 8}, "all")
    (3, 8)
    >>> partitions_read({"orders": 3, "clicks": 8}, None)
    8
    >>> partitions_read({}, "orders"), partitions_read(None, "orders")
    (0, 0)
    """
    if not sources:
        return 0
    most = max(sources.values())
    return most if topic is None else sources.get(topic, most)


def _check_assumed(cluster: Cluster, info: TopicInfo, assumed: Rules, needed: int) -> None:
    """Check that a newly created topic accepts records that were checked by assumed rules.

    If the number of partitions follows the records, any number that covers them will do.
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
    """Create a missing topic, or open it; a dead-letter topic gets its special settings."""
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
    """Remove the parts of rules that change over time.

    Time limits become durations, and schema ids are reduced to the checked parts.
    """
    before = 0 if rules.min_time_ms == 0 else rules.now_ms - rules.min_time_ms
    after = 0 if rules.max_time_ms == MAX_TIMESTAMP_MS else rules.max_time_ms - rules.now_ms
    ids = tuple((part, frozenset[int]()) for part, _ in rules.schema_ids)
    now_ms = int(rules.now_ms > 0)
    return replace(rules, first_turn=0, now_ms=now_ms, min_time_ms=before, max_time_ms=after, schema_ids=ids)
