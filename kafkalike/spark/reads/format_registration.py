"""Registration: the format `kafkalike` in a session, with advice for writes and statements that Spark refuses.

Spark and Delta refuse to change a topic's view, each in terms of tables. A Python source cannot intervene there, so the
error is replaced when it comes back, for modes as well. Statements run unchanged, with two exceptions. With Delta's
catalog, `CREATE TABLE … USING kafkalike` would create a table that cannot be used. A change of the table below a root,
named by its path, would bypass the log (decision 093). Both are refused.
"""

from __future__ import annotations

import re
import sys
from functools import wraps
from pathlib import Path
from typing import Any, Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from kafkalike.connect import check_spark_reaches, connect
from kafkalike.log.cluster.cluster import is_root
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.spark.format.format import FORMAT, KafkalikeSource, check_storage, with_storage
from kafkalike.spark.format.input_partitions import TYPES
from kafkalike.spark.jvm.spark_connect import is_remote, tasks_here
from kafkalike.spark.jvm.spark_errors import show_named_errors
from kafkalike.spark.jvm.spark_version import HAS_PLANS
from kafkalike.spark.reads.stream_start import start_in_driver
from kafkalike.spark.reads.table_scan import scan_in_driver, scan_views_in_driver

CONDITION: Final = "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"

_TABLES: Final = (
    ("readwriter", "DataFrameWriter", "format", ("saveAsTable",)),
    ("readwriter", "DataFrameWriterV2", "using", ("create", "replace", "createOrReplace")),
    ("streaming.readwriter", "DataStreamWriter", "format", ("toTable",)),
)
"""Methods that write to tables of a catalog, and methods that name their format, by module and class."""

_NAMED: Final = "_kafkalike_format"
"""Attribute of a writer: the format that it was given."""

_WRITERS: Final = ("pyspark.sql.readwriter", "pyspark.sql.connect.readwriter")


def explain_modes(source: str) -> None:
    """Patch writers to give advice if Spark refuses a write of a format.

    For `save` without a mode, the error names the missing call. For methods that write to tables of a catalog, it names
    the method that writes to topics.

    Spark's planner requires a mode for every source in Python, before any code of the source runs, so the error can
    only be replaced when it comes back. The writes themselves are unchanged.

    Args:
        source: name of the format.
    """
    for module in _WRITERS:
        writer = getattr(sys.modules.get(module), "DataFrameWriter", None)
        if writer is not None and source not in getattr(writer.save, "explained", ()):
            writer.save = _explained(writer.save, source)
    for module, owner, names_format, methods in _TABLES:
        for where in ("pyspark.sql.", "pyspark.sql.connect."):
            writer = getattr(sys.modules.get(where + module), owner, None)
            own = None if writer is None else vars(writer).get(names_format)
            if writer is None or own is None or source in getattr(own, "explained", ()):
                continue
            setattr(writer, names_format, _noting(own, source))
            for method in methods:
                if method in vars(writer):
                    setattr(writer, method, _no_table(vars(writer)[method], source))


def _noting(method: Any, source: str) -> Any:  # noqa: ANN401 - PySpark's method
    @wraps(method)
    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        setattr(self, _NAMED, next(iter((*args, *kwargs.values())), None))
        return method(self, *args, **kwargs)

    noting.explained = (*getattr(method, "explained", ()), source)  # type: ignore[attr-defined]
    return noting


def _no_table(method: Any, source: str) -> Any:  # noqa: ANN401 - PySpark's method
    @wraps(method)
    def refused(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        # Delta's catalog would fail with a NullPointerException.
        if source in {getattr(self, _NAMED, None), kwargs.get("format"), *args[1:2]}:
            raise AnalysisException(
                f"{method.__name__}: a topic is not a table of a catalog. Write with .format({source!r}), the options "
                "kafka.bootstrap.servers and topic, and .mode('append').save(), or in a stream .start(); or INSERT "
                f"INTO a view that was made by CREATE TEMPORARY VIEW … USING {source} OPTIONS (…)"
            )
        return method(self, *args, **kwargs)

    return refused


def _explained(save: Any, source: str) -> Any:  # noqa: ANN401 - PySpark's method
    @wraps(save)
    def explained(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        try:
            save(self, *args, **kwargs)
        except AnalysisException as error:
            if error.getCondition() != CONDITION or source not in str(error):
                raise
            said = str(error).partition("]")[2].strip().partition("\n")[0]
        else:
            return
        raise AnalysisException(
            f'add .mode("append") before .save(): records are added to topics. Spark said: [{CONDITION}] {said}'
        )

    explained.explained = (*getattr(save, "explained", ()), source)  # type: ignore[attr-defined]
    return explained


_SESSIONS: Final = ("pyspark.sql.session", "pyspark.sql.classic.session", "pyspark.sql.connect.session")

SOURCE_COLUMNS: Final = tuple(name for name in TYPES if name != "headers")
"""The first columns of a topic's view."""

CATALOG: Final = "spark.sql.catalog.spark_catalog"

_NAME: Final = r"(?:`[^`]+`|\w+)"
_CHANGE: Final = re.compile(
    r"\s*(DELETE\s+FROM|UPDATE|MERGE\s+INTO|TRUNCATE\s+TABLE|INSERT\s+OVERWRITE(?:\s+TABLE)?|INSERT\s+INTO(?:\s+TABLE)?)"
    rf"\s+({_NAME}(?:\s*\.\s*{_NAME})*)",
    re.IGNORECASE,
)
_TABLE: Final = re.compile(
    r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?(?:EXTERNAL\s+)?TABLE\s.*?\sUSING\s+`?(\w+)`?", re.IGNORECASE | re.DOTALL
)

_USING: Final = re.compile(rf"\sUSING\s+`?{FORMAT}\b", re.IGNORECASE)
"""Part of a statement that makes a view or table of the format."""

_PATH: Final = re.compile(r"`?delta`?\s*\.\s*`(?:file:(?://(?=/))?)?(/[^`]+)`", re.IGNORECASE)

_DELETED: Final = (
    "records of a topic are deleted by `kafkalike delete-records` or by its retention.ms, those of a key by a record "
    "of it with a null value in a compacted topic"
)
_REPLACED: Final = (
    "a record of a topic is replaced by a newer one of its key: write that, and read max_by(value, offset) of each "
    "key; a compacted topic keeps only the newest"
)
_ADDED: Final = (
    "a topic's view is for reading: write with kafkalike.spark.write, or INSERT INTO a view that was made by CREATE "
    "TEMPORARY VIEW … USING kafkalike OPTIONS (…)"
)
INSTEAD: Final = {
    "DELETE": _DELETED,
    "TRUNCATE": _DELETED,
    "UPDATE": _REPLACED,
    "MERGE": _REPLACED,
    "INSERT OVERWRITE": "a topic cannot be overwritten, only added to: INSERT INTO; " + _DELETED,
    "INSERT INTO": _ADDED,
}
"""Advice by the first words of a statement."""


def change_of(statement: str) -> tuple[str, str] | None:
    """Return the kind of a statement, as in `INSTEAD`, and its target; None if it does not change rows of a table."""
    found = _CHANGE.match(statement)
    if found is None:
        return None
    words = found[1].upper().split()
    return " ".join(words[:2]) if words[0] == "INSERT" else words[0], found[2]


def makes_table(statement: str) -> str | None:
    """Return the format of the table that a statement creates; None for any other statement."""
    found = _TABLE.match(statement)
    return None if found is None else found[1].lower()


def below_root(target: str) -> bool:
    """Return whether a statement's target is a cluster's table, named by its path on this machine.

    Such a target looks like delta.`/data/log/t`.

    >>> below_root("orders"), below_root("delta.`/data/no/root/orders`")
    (False, False)
    """
    found = _PATH.fullmatch(target)
    return found is not None and is_root(Path(found[1]).parent)


def explain_statements(source: str) -> None:
    """Patch `SparkSession.sql` to give advice if a statement would change a topic, by its view or by its path.

    Args:
        source: name of the format.
    """
    for module in _SESSIONS:
        session = getattr(sys.modules.get(module), "SparkSession", None)
        own = None if session is None else vars(session).get("sql")
        if own is not None and source not in getattr(own, "explained", ()):
            session.sql = _explained_statement(own, source)  # type: ignore[union-attr]


def _explained_statement(sql: Any, source: str) -> Any:  # noqa: ANN401 - PySpark's method
    @wraps(sql)
    def explained(self: Any, sqlQuery: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401, N803 - Spark's name
        if makes_table(sqlQuery) == source and self.conf.get(CATALOG, None) is not None:
            raise AnalysisException(
                f"with Delta's catalog Spark opens no table USING {source}: use CREATE TEMPORARY VIEW … USING {source} "
                f"OPTIONS (…), or a session without {CATALOG}"
            )
        if HAS_PLANS and not is_remote(self) and _USING.search(sqlQuery):
            scan_views_in_driver(self)
        change = change_of(sqlQuery)
        if change is not None and below_root(change[1]):
            raise AnalysisException(
                f"{change[1]} is a table of kafkalike, and nothing was changed: {INSTEAD[change[0]]}. To change "
                "the table itself, use DeltaTable.forPath, then run `kafkalike verify`"
            )
        try:
            return sql(self, sqlQuery, *args, **kwargs)
        except PySparkException as error:
            instead = _instead(self, sqlQuery, error, source)
            if instead is None:
                raise
            said = f"{instead}. Spark said: {str(error).strip().partition(chr(10))[0]}"
        raise AnalysisException(said)

    explained.explained = (*getattr(sql, "explained", ()), source)  # type: ignore[attr-defined]
    return explained


def _instead(spark: Any, statement: str, error: PySparkException, source: str) -> str | None:  # noqa: ANN401
    change = change_of(statement)
    if change is None:
        return None
    kind, target = change
    if kind == "INSERT INTO" and "UNSUPPORTED_INSERT" not in str(error):
        # Refused because of the inserted values.
        return None
    try:
        columns = spark.table(target).columns
    except PySparkException:
        return None
    of_topic = tuple(columns[: len(SOURCE_COLUMNS)]) == SOURCE_COLUMNS
    return INSTEAD[kind] if of_topic or f"`{source}`" in str(error) or f": {source}" in str(error) else None


def register_format(
    spark: SparkSession,
    storage_options: StorageOptionsLike | None = None,
) -> None:
    """Register the format `kafkalike` in a session; `kafkalike.spark.session` does so itself.

    Args:
        spark: the session.
        storage_options: credentials and endpoint of an object store, for all reads and writes of the format in this
            session. Environment variables of the driver supply the missing ones. They go to the tasks as part of a
            function, and do not appear in plans, logs or settings of Spark.

    Raises:
        IllegalArgumentError: the storage options are not a dict of strings.
    """
    source, scratch = with_storage(KafkalikeSource, storage_options), tasks_here(spark)
    if scratch is not None:
        source = type(f"{source.__name__}WithScratch", (source,), {"scratch": scratch})
    spark.dataSource.register(source)
    if not is_remote(spark):
        start_in_driver()
        if HAS_PLANS:
            scan_in_driver()
    explain_modes(FORMAT)
    explain_statements(FORMAT)
    show_named_errors()


def session(
    app_name: str = "kafkalike",
    master: str | None = None,
    *,
    bootstrap_servers: Address | None = None,
    storage_options: Any = None,  # noqa: ANN401 - a dict of Spark's settings may be unpacked as `conf`
    **conf: str,
) -> SparkSession:
    """Build a SparkSession with Delta and kafkalike's settings, or configure the running one.

    `spark.read.format("kafkalike")` and `spark.readStream.format("kafkalike")` work in it.

    Args:
        app_name: name shown by Spark.
        master: Spark's master URL. None: from spark-submit or `SPARK_MASTER`, otherwise `local[*]`.
        bootstrap_servers: a cluster to read with `kafkalike.spark.read` or SQL. For a cluster in S3, a JVM that starts
            now gets Hadoop's S3 client, which is downloaded if it is missing (14 MB), and Hadoop gets the credentials
            at once, so that the session finds checkpoints in that bucket. None for the environment variable
            `KAFKALIKE_BOOTSTRAP_SERVERS`. The format and all writes work without it.
        storage_options: credentials and endpoint of object stores for the format; see `register_format`.
        **conf: more settings; they win over kafkalike's own. Pass dotted names as `**{"spark.x.y": "z"}`.

    Returns:
        The session. Settings of the JVM have no effect on a running JVM. Warnings of the JVM go to standard error,
        without the meaningless ones. Name another log configuration with `-Dlog4j2.configurationFile=` in
        `spark.driver.extraJavaOptions`.

    Raises:
        KafkaConfigurationError: `bootstrap_servers` or `storage_options` are wrong, or the running session lacks
            Hadoop's client for that root, or Delta or its extension; then no setting of it is changed.
        IllegalArgumentError: the storage options are not a dict of strings.
    """
    from kafkalike.spark.jvm.spark_session import delta_session, tell_hadoop

    check_storage(storage_options)
    cluster = None if bootstrap_servers is None else connect(bootstrap_servers, storage_options, access="offline")
    if cluster is not None:
        check_spark_reaches(cluster)
    made = delta_session(app_name, master, bootstrap_servers=bootstrap_servers, needs_delta=True, **conf)
    register_format(made, storage_options)
    if cluster is not None:
        tell_hadoop(made, cluster)
    return made
