"""Spark Connect: detection of its sessions, access of its server to the cluster's root, and the place of tasks.

A client of Spark Connect has no JVM. The client opens the root, names and commits; reads run in the server's tasks. So
both must reach the same root.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import pyarrow as pa

from kafkalike.errors import KafkaConfigurationError, UnsupportedVersionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalike.log.cluster.cluster import Cluster


CONNECT: Final = "pyspark.sql.connect"
REMOTE: Final = "spark.remote"
REMOTE_VARIABLE: Final = "SPARK_REMOTE"

_seen: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
"""Roots that a session's server is known to reach, by session."""


def is_remote(spark: SparkSession) -> bool:
    """Return whether a session belongs to Spark Connect."""
    return type(spark).__module__.startswith(CONNECT)


def need_jvm(spark: SparkSession, what: str) -> None:
    """Refuse a session of Spark Connect.

    Args:
        spark: the session.
        what: the action that needs a JVM, for people.

    Raises:
        UnsupportedVersionError: the session belongs to Spark Connect.
    """
    if is_remote(spark):
        raise UnsupportedVersionError(f"{what} needs a session with a JVM, which Spark Connect does not have")


def check_same_root(spark: SparkSession, cluster: Cluster) -> None:
    """Check that the server of a session sees the same cluster folder as this process. Costs a job, once per root.

    Raises:
        KafkaConfigurationError: the server's folder of that name is another one.
    """
    if not is_remote(spark) or cluster.store.coordination.reach != "machine" or cluster.root in _seen.get(spark, ()):
        return
    sign = Path(cluster.store.uri, f".kafkalike-connect-{uuid.uuid4().hex}")
    sign.parent.mkdir(parents=True, exist_ok=True)
    sign.touch()
    try:
        look = partial(_there, str(sign))
        found = [row["there"] for row in spark.range(0, 1, 1, 1).mapInArrow(look, "there BOOLEAN").collect()]
    finally:
        sign.unlink(missing_ok=True)
    if found != [True]:
        raise KafkaConfigurationError(
            f"{cluster.root} is another folder for the Spark Connect server than for this client: use "
            'format("kafkalike"), which works at the server, or a root that both reach, such as one in an object store'
        )
    _seen[spark] = _seen.get(spark, set()) | {cluster.root}


def _there(sign: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return in a task whether a file exists."""
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"there": [os.path.exists(sign)]})  # noqa: PTH110 - no Path for one look


def tasks_here(spark: SparkSession) -> str | None:
    """Return a local folder that is removed with Spark's JVM; None if tasks run on other machines.

    Args:
        spark: the session.
    """
    if is_remote(spark):
        return None
    context: Any = spark.sparkContext
    if not (context.master or "").startswith("local"):
        return None
    # PySpark keeps its own files there, without a public name for it.
    return getattr(context, "_temp_dir", None)
