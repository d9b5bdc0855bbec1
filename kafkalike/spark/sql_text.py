"""SQL literals and identifiers, and the mark of views that kafkalike has made.

Such a view has a mark in the metadata of its first column.
"""

from __future__ import annotations

import re
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from kafkalike.errors import IllegalArgumentError

MARK: Final = "kafkalike"


def literal(text: str) -> str:
    """A text as a SQL literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quoted(name: str) -> str:
    """A name as a SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def identifier(name: str) -> str:
    """A name as people write it: in backquotes only where SQL wants them."""
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else quoted(name)


def is_marked(spark: SparkSession, view: str) -> bool:
    """Whether kafkalike has made what has this name in the session; also where the view's topic is gone."""
    try:
        schema = spark.table(quoted(view)).schema
    except AnalysisException:
        return True
    return any(MARK in field.metadata for field in schema)


def make_marked(frame: DataFrame, view: str) -> None:
    """Make a DataFrame a temporary view with a mark, in place of the one that has the name."""
    frame.withMetadata(frame.columns[0], {MARK: "view"}).createOrReplaceTempView(quoted(view))


def check_free(spark: SparkSession, view: str) -> None:
    """Refuse a name that something has which kafkalike has not made: it would be replaced, or hidden.

    Raises:
        IllegalArgumentError: says what to do.
    """
    if spark.catalog.tableExists(quoted(view)) and not is_marked(spark, view):
        raise IllegalArgumentError(
            f"{view} is a table or view of this session that kafkalike has not made, and would be replaced or hidden; "
            "nothing was made. Name the view with name='…', or drop the other one"
        )
