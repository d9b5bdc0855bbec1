"""Targets: the topics of a cluster in, what a job's tasks must know of them out; and those topics opened after it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalike.errors import TopicAlreadyExistsError, TopicDeletedError
from kafkalike.log.topic.batch_payload import PARQUET_CODECS
from kafkalike.log.topic.column_rules import Rules
from kafkalike.log.topic.validate import MAX_TIMESTAMP_MS, codec_for
from kafkalike.model.config.dead_letters import topic_settings
from kafkalike.model.config.topic import NO_CHECKS, TopicConfig
from kafkalike.model.dead_letters.letters import SUFFIX, default_topic
from kafkalike.spark.writes.staged_files import KnownTopic, Target, TaskResult

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.topic import TopicInfo


def target_of(
    cluster: Cluster, topic: str | None, *, codec: str, written: bool = False, timestamps: bool = True
) -> Target:
    """Where the records of a job go; creates the topic of all of them if need be.

    Args:
        cluster: where the records go.
        topic: the topic of all records; None: each record names its own.
        codec: compression, used when a topic says `producer`.
        written: whether that topic has the records already; see `found_again`.
        timestamps: whether a column `timestamp` is the time of the records.

    Raises:
        InvalidTopicError, UnknownTopicOrPartitionError: a bad name, or a topic that is missing and must not be created.
    """
    infos = cluster.topics() if topic is None else {topic: cluster.ensure_topic(topic)}
    known = {name: _known(cluster, info, codec) for name, info in infos.items()}
    missing, named = None, {}
    if topic is None and cluster.server.auto_create_topics:
        config = _config(cluster, {})
        missing = _rules(cluster, None, cluster.server.num_partitions, config)
        named = {**_with_schemas(cluster, missing, config, known), **_of_letters(cluster, infos)}
    return Target(topic=topic, known=known, missing=missing, named=named, written=written, timestamps=timestamps)


def _config(cluster: Cluster, configs: Mapping[str, str]) -> TopicConfig:
    return TopicConfig.from_properties(cluster.server.effective(configs))


def _known(cluster: Cluster, info: TopicInfo, codec: str) -> KnownTopic:
    config = _config(cluster, info.configs)
    # Elsewhere than on a disk no file is changed once it is there; and LogAppendTime is only known at the commit.
    ready = cluster.store.reach == "machine" and not config.log_append_time
    own = PARQUET_CODECS[codec_for(config, codec)] if ready else None
    return KnownTopic(info.topic_id, _rules(cluster, info.name, info.num_partitions, config), own)


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


def _of_letters(cluster: Cluster, infos: Mapping[str, TopicInfo]) -> dict[str, Rules]:
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
            rules = made[settings] = _rules(cluster, name, cluster.server.num_partitions, config)
        found[name] = rules
    return found


def _letters_configs(cluster: Cluster, source: TopicInfo) -> dict[str, str]:
    return topic_settings(cluster.server.effective(source.configs))


def _schema_ids(cluster: Cluster, topic: str | None, config: TopicConfig) -> tuple[tuple[str, frozenset[int]], ...]:
    """Ids of the schemas that keys and values may have, fresh."""
    from kafkalike.model.schemas.admission import admitted
    from kafkalike.model.schemas.strategies import RECORD_NAME

    known = cluster.schemas.refresh()
    return tuple(
        (
            part,
            frozenset() if topic is None and strategy != RECORD_NAME else admitted(known, topic or "", part, strategy),
        )
        for part, strategy in config.schemas.parts.items()
    )


def open_log(cluster: Cluster, name: str, results: Sequence[TaskResult]) -> TopicLog:
    """The log of a topic, which is created if it was missing when the job began.

    Raises:
        TopicDeletedError: records were given their partitions for another life of the topic.
        TopicAlreadyExistsError: it was missing, and has other settings now than it would have been created with.
    """
    staged = [result.topics[name] for result in results if name in result.topics]
    for assumed in {put.assumed for put in staged if put.assumed is not None}:
        info = _ensured(cluster, name, assumed)
        now = _rules(cluster, name, info.num_partitions, _config(cluster, info.configs))
        if _lasting(now) != _lasting(assumed):
            raise TopicAlreadyExistsError(
                f"topic {name!r} did not exist when the job began, and was created meanwhile with settings that are "
                "not the cluster's defaults; nothing was written; run it again"
            )
    log = cluster.log(name)
    for known in {put.topic_id for put in staged if put.topic_id is not None} - {log.info.topic_id}:
        raise TopicDeletedError(name, known, log.info.topic_id)
    return log


def _ensured(cluster: Cluster, name: str, assumed: Rules) -> TopicInfo:
    """A topic that was missing; one that is to take dead letters gets the settings for it."""
    known = cluster.topics()
    source = known.get(name.removesuffix(SUFFIX))
    if name not in known and source is not None and cluster.server.auto_create_topics:
        configs = _letters_configs(cluster, source)
        wanted = _rules(cluster, name, cluster.server.num_partitions, _config(cluster, configs))
        if _lasting(wanted) == _lasting(assumed):
            with suppress(TopicAlreadyExistsError):
                return cluster.create_topic(name, -1, configs)
    return cluster.ensure_topic(name)


def _lasting(rules: Rules) -> Rules:
    """Rules without what differs from one moment to the next.

    The limits of time become what they are counted with, and of the schemas only stays which parts are checked.
    """
    before = 0 if rules.min_time_ms == 0 else rules.now_ms - rules.min_time_ms
    after = 0 if rules.max_time_ms == MAX_TIMESTAMP_MS else rules.max_time_ms - rules.now_ms
    ids = tuple((part, frozenset[int]()) for part, _ in rules.schema_ids)
    now_ms = int(rules.now_ms > 0)
    return replace(rules, first_turn=0, now_ms=now_ms, min_time_ms=before, max_time_ms=after, schema_ids=ids)
