"""Maintenance through Spark: commits and VACUUM for storages where only Delta's own log store keeps writers apart.

Data files are written by this process, as on a local root; the table version is made by Delta in Spark's JVM, from the
same actions. Delta lets it land beside appends, and refuses it when another writer has removed one of the files.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

# The import registers the conversion of Java's conflicts to the classes of `delta.exceptions`.
import delta
import delta.exceptions as conflicts
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from kafkalike.errors import KafkaStorageError
from kafkalike.log.append_spark import own_session
from kafkalike.log.java_errors import innermost
from kafkalike.log.session import running_session
from kafkalike.log.writer import Commit, actions_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalike.log.topic_log import DeltaTopicLog

CONFLICTS: Final = tuple(getattr(conflicts, name) for name in conflicts.__all__)

SAFE_HOURS: Final = 168
"""Hours that VACUUM leaves a file at least: without a lock nobody knows which files a writer is about to commit, so it
is Delta's own week (`delta.deletedFileRetentionDuration`) and not the minute of `file.delete.delay.ms`."""

HOUR_MS: Final = 3_600_000
METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"


def commit_through_spark(log: DeltaTopicLog, wanted: Commit) -> bool:
    """Make a table version out of the actions of a commit; which number it gets, Delta decides.

    Returns:
        False when another writer has changed the same files, and nothing was done.

    Raises:
        KafkaStorageError: Delta could not write.
    """
    spark = own_session(running_session())
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - Delta has no Python way to commit actions
    actions = jvm.java.util.ArrayList()
    for action in actions_of(wanted):
        actions.add(jvm.org.apache.spark.sql.delta.actions.Action.fromJson(json.dumps(action)))
    sequence = jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq()
    operation = getattr(jvm.org.apache.spark.sql.delta, "DeltaOperations$ManualUpdate$")
    spark.conf.set(METADATA, wanted.user_metadata)
    try:
        transaction = _delta_log(spark, log).startTransaction()
        transaction.commit(sequence, getattr(operation, "MODULE$"))
    except CONFLICTS:
        return False
    except (PySparkException, Py4JError) as cause:
        log.refresh()
        if log.find_append(wanted.append_id, wanted.version - 1) is None:
            message = f"{log.info.name}: Delta could not commit, nothing was done: {innermost(cause)}"
            raise KafkaStorageError(message) from cause
    finally:
        spark.conf.unset(METADATA)
    log.refresh()
    return True


def _delta_log(spark: SparkSession, log: DeltaTopicLog) -> Any:  # noqa: ANN401 - a Java object
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    java: Any = spark._jsparkSession  # noqa: SLF001
    return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(java, log.files.uri)


def vacuum_through_spark(log: DeltaTopicLog, delay_ms: int) -> int:
    """Remove files that no version of the last days names, by Delta's VACUUM.

    Args:
        log: the topic.
        delay_ms: how long files stay after they were taken out; never less than `SAFE_HOURS`.

    Returns:
        How many files went; 0 where Delta does not say.

    Raises:
        KafkaStorageError: Delta could not.
    """
    spark = own_session(running_session())
    hours = max(SAFE_HOURS, -(-delay_ms // HOUR_MS))
    try:
        delta.DeltaTable.forPath(spark, log.files.uri).vacuum(hours)
    except (*CONFLICTS, PySparkException, Py4JError) as cause:
        message = f"{log.info.name}: VACUUM failed: {innermost(cause)}"
        raise KafkaStorageError(message) from cause
    return 0
