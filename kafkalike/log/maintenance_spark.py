"""Maintenance through Spark: table versions for storages where only Delta's own log store keeps writers apart.

Data files are written by this process, as on a local root; the table version is made by Delta in Spark's JVM, from the
same actions. Delta lets it land beside appends, and refuses it when another writer has removed one of the files.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

# The import registers the conversion of Java's conflicts to the classes of `delta.exceptions`.
import delta  # noqa: F401
import delta.exceptions as conflicts
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafkalike.errors import KafkaStorageError
from kafkalike.log.append_spark import own_session
from kafkalike.log.java_errors import innermost
from kafkalike.log.session import running_session
from kafkalike.log.writer import Commit, actions_of

if TYPE_CHECKING:
    from kafkalike.log.topic_log import DeltaTopicLog

CONFLICTS: Final = tuple(getattr(conflicts, name) for name in conflicts.__all__)

METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"


def commit_through_spark(log: DeltaTopicLog, wanted: Commit) -> bool:
    """Make a table version out of the actions of a commit; which number it gets, Delta decides.

    Returns:
        False when another writer has changed the same files, or was faster; nothing was done.

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
        with _active(spark):
            transaction = _delta_log(spark, log).startTransaction()
            if transaction.readVersion() >= wanted.version:
                # Delta looks for conflicts above the version that it reads. A rival that has removed the same files
                # up to there would go unseen, and what it put in their place would stand beside ours.
                return False
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


@contextlib.contextmanager
def _active(spark: SparkSession) -> Iterator[None]:
    """Make a session the one that Delta reads its settings from in this thread."""
    sessions: Any = SparkSession._get_j_spark_session_class(spark.sparkContext._jvm)  # noqa: SLF001 - as PySpark does it
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())


def _delta_log(spark: SparkSession, log: DeltaTopicLog) -> Any:  # noqa: ANN401 - a Java object
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    java: Any = spark._jsparkSession  # noqa: SLF001
    return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(java, log.files.uri)
