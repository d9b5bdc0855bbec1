"""Modes: Spark's refusal of a batch write without a mode, or as a table, in; the same with what to do instead out."""

from __future__ import annotations

import sys
from functools import wraps
from typing import Any, Final

from pyspark.errors import AnalysisException

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
