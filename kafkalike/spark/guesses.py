"""Guesses: names of topics in; their tables, loaded beside the look at the topics, where they lie as a rule, out.

The first topic of a name has its table in a folder of that name (decision 022). Whether this one has, the look says; a
guess that it does not confirm is not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from kafkalike.model.names import check_topic_name
from kafkalike.spark.jvm.failures import SPARK_FAILURES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog


def is_one_far_root(cluster: Cluster) -> bool:
    """Whether a cluster is one root where each look is a wait."""
    return cluster.store.far and "," not in cluster.root


class Guesses:
    """Tables that are loaded while the topics are looked at.

    Args:
        spark: the session.
        cluster: whose topics, in an object store.
        names: theirs.
        options: of Delta's reader.
    """

    def __init__(self, spark: SparkSession, cluster: Cluster, names: Sequence[str], options: Mapping[str, str]) -> None:
        self._spark = spark
        self._cluster = cluster
        self._names = names
        self._options = options
        self._loaded: dict[str, DataFrame] = {}

    def logs(self) -> list[TopicLog]:
        """The topics, opened.

        Raises:
            InvalidTopicError, UnknownTopicOrPartitionError: no such topic.
            KafkaStorageError: the storage does not answer.
        """
        wheres = [self._cluster.first_table_uri(check_topic_name(name)) for name in self._names]
        with ThreadPoolExecutor(1) as pool:
            look = pool.submit(lambda: [self._cluster.log(name) for name in self._names])
            for where in wheres:
                # Not there, or no such version: what the look says will be loaded, or is the error.
                with suppress(*SPARK_FAILURES):
                    self._loaded[where] = self._spark.read.format("delta").options(**self._options).load(where)
            return look.result()

    def loaded(self, uri: str) -> DataFrame | None:
        """The table of a place, if it was loaded."""
        return self._loaded.get(uri)
