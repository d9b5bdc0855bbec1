"""Places: where a test of Spark has its root: a folder of this machine, or a bucket of a real S3 server, by s3a."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

import kafkalike.spark as ks
from tests.tools.kinds import DISK
from tests.tools.object_servers import S3, in_environment, running

PLACES: Final = [DISK, pytest.param(S3, marks=[pytest.mark.objects, pytest.mark.slow])]
"""For a fixture's `params`."""


@contextmanager
def new_roots(kind: str, spark: SparkSession, folder: Path) -> Iterator[Callable[[], str]]:
    """Roots that nobody has used, for as long as the block runs.

    In a bucket, the environment of this process says who asks, and the format is registered with it.
    """
    if kind == DISK:
        numbers = count()
        yield lambda: str(folder / f"cluster{next(numbers)}")
        return
    with running(kind, folder) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in in_environment(server).items():
            patch.setenv(name, value)
        ks.register_format(spark, server.options)
        try:
            yield lambda: server.new_root().replace("s3://", "s3a://")
        finally:
            ks.register_format(spark)
