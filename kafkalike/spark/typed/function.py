"""Function: what works on Arrow arrays in, what works on columns out."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf
from pyspark.sql.types import DataType


def over_arrays(work: Callable[[pa.Array], pa.Array], kind: DataType, name: str) -> Callable[[Column], Column]:
    """A function of a column, which Spark runs on batches in its Python workers.

    Args:
        work: gets an array and gives one of the same length. It is pickled.
        kind: the type of what it gives.
        name: what plans show.
    """

    def function(batch: pa.Array) -> pa.Array:
        return work(batch)

    function.__name__ = name
    made: Callable[[Column], Column] = arrow_udf(function, kind, ArrowUDFType.SCALAR)
    return made
