"""What Spark refuses on a topic, a batch write without a mode or a statement, refused with what to do instead.

Spark and Delta refuse to change a topic's view, each in words about tables. A Python source has no say there, so the
error is told anew where it comes back, as with modes. What runs is the same, but for two kinds of statements: with
Delta's catalog `CREATE TABLE … USING kafkalike` would make a table that nothing can use, and a change of the table
below a root, named by its path, would be one behind the log's back (decision 093). Both are refused.
"""

from __future__ import annotations

import re
import sys
from functools import wraps
from pathlib import Path
from typing import Any, Final

from pyspark.errors import AnalysisException, PySparkException

from kafkalike.log.cluster.cluster import is_root
from kafkalike.spark.format.input_partitions import TYPES

CONDITION: Final = "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"

_TABLES: Final = (
    ("readwriter", "DataFrameWriter", "format", ("saveAsTable",)),
    ("readwriter", "DataFrameWriterV2", "using", ("create", "replace", "createOrReplace")),
    ("streaming.readwriter", "DataStreamWriter", "format", ("toTable",)),
)
"""Methods that write to tables of a catalog, and those that name their format, by module and class."""

_NAMED: Final = "_kafkalike_format"
"""Attribute of a writer: the format that it was given."""

_WRITERS: Final = ("pyspark.sql.readwriter", "pyspark.sql.connect.readwriter")


def explain_modes(source: str) -> None:
    """Let writers say what to do where Spark refuses a write of a format.

    `save` without a mode names the word that is missing. Methods that write to tables of a catalog name the method that
    writes to topics.

    Spark wants a mode for every source in Python, in its planner, before any code of the source runs; so the error can
    only be told anew where it comes back. What is written is the same.

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
        # Delta's catalog would end in a NullPointerException.
        if source in {getattr(self, _NAMED, None), kwargs.get("format"), *args[1:2]}:
            raise AnalysisException(
                f"{method.__name__}: a topic is no table of a catalog. Write with .format({source!r}), the options "
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
"""What a view of a topic begins with."""

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
"""What to do instead of a statement, by its first words."""


def change_of(statement: str) -> tuple[str, str] | None:
    """What a statement would do, as in `INSTEAD`, and to what; None for one that changes no rows of a table."""
    found = _CHANGE.match(statement)
    if found is None:
        return None
    words = found[1].upper().split()
    return " ".join(words[:2]) if words[0] == "INSERT" else words[0], found[2]


def makes_table(statement: str) -> str | None:
    """Of which format a table is that a statement makes; None for any other statement."""
    found = _TABLE.match(statement)
    return None if found is None else found[1].lower()


def below_root(target: str) -> bool:
    """Whether a statement's target is a table of a cluster, named by its path on this machine: delta.`/data/log/t`.

    >>> below_root("orders"), below_root("delta.`/data/no/root/orders`")
    (False, False)
    """
    found = _PATH.fullmatch(target)
    return found is not None and is_root(Path(found[1]).parent)


def explain_statements(source: str) -> None:
    """Let `SparkSession.sql` say what to do instead where Spark refuses to change a topic, or it does: by its path.

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
        change = change_of(sqlQuery)
        if change is not None and below_root(change[1]):
            raise AnalysisException(
                f"{change[1]} is a table of kafkalike, and nothing was changed: {INSTEAD[change[0]]}. Who must change "
                "the table itself has DeltaTable.forPath, and then `kafkalike verify`"
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
        # Refused for what is inserted.
        return None
    try:
        columns = spark.table(target).columns
    except PySparkException:
        return None
    of_topic = tuple(columns[: len(SOURCE_COLUMNS)]) == SOURCE_COLUMNS
    return INSTEAD[kind] if of_topic or f"`{source}`" in str(error) or f": {source}" in str(error) else None
