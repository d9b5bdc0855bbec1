"""Computed once: a DataFrame that several jobs read in, the same rows for each of them out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark import StorageLevel

from kafkalike.log.job_errors import let_go

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextlib.contextmanager
def computed_once(frame: DataFrame) -> Iterator[DataFrame]:
    """Keep the rows of a DataFrame while a block of code runs.

    Where the session has a checkpoint directory (`SparkContext.setCheckpointDir`, `spark.checkpoint.dir`), the rows are
    kept there and are the same whatever happens to executors. Elsewhere the executors keep them, in memory and on disk:
    what one of them had is computed again when it dies, and rows of a DataFrame that is not deterministic differ then.

    Args:
        frame: any batch DataFrame.
    """
    if frame.sparkSession.sparkContext.getCheckpointDir() is None:
        rows = frame.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            yield rows
        finally:
            let_go(rows)
    else:
        rows = frame.checkpoint(eager=True)
        try:
            yield rows
        finally:
            _remove(rows)


def _remove(checkpointed: DataFrame) -> None:
    """Remove the files of a checkpoint: Spark itself does so only when told to, and when the rows are collected."""
    jvm: Any = checkpointed.sparkSession.sparkContext._jvm  # noqa: SLF001 - PySpark has no public file system
    session: Any = checkpointed.sparkSession._jsparkSession  # noqa: SLF001
    plan: Any = checkpointed._jdf.queryExecution().logical()  # noqa: SLF001
    with contextlib.suppress(Py4JError, OSError):
        path = jvm.org.apache.hadoop.fs.Path(plan.rdd().getCheckpointFile().get())
        path.getFileSystem(session.sessionState().newHadoopConf()).delete(path, True)  # noqa: FBT003 - with its files
