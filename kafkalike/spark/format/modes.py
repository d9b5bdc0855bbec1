"""Modes: Spark's refusal of a batch write without a mode in, the same with the word that is missing out."""

from __future__ import annotations

import sys
from functools import wraps
from typing import Any, Final

from pyspark.errors import AnalysisException

CONDITION: Final = "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"

_WRITERS: Final = ("pyspark.sql.readwriter", "pyspark.sql.connect.readwriter")


def explain_modes(source: str) -> None:
    """Let `DataFrameWriter.save` say which word is missing where Spark refuses a write of a format.

    Spark wants a mode for every source in Python, in its planner, before any code of the source runs; so the error can
    only be told anew where it comes back. What is written is the same.

    Args:
        source: name of the format.
    """
    for module in _WRITERS:
        writer = getattr(sys.modules.get(module), "DataFrameWriter", None)
        if writer is not None and source not in getattr(writer.save, "explained", ()):
            writer.save = _explained(writer.save, source)


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
        message = f'add .mode("append") before .save(): records are added to topics. Spark said: [{CONDITION}] {said}'
        raise AnalysisException(message)

    explained.explained = (*getattr(save, "explained", ()), source)  # type: ignore[attr-defined]
    return explained
