"""Local files: a session in; Hadoop's local files in its JVM without the processes that Hadoop starts for them, out.

Without its native library Hadoop runs `chmod` for each file that it creates, twice where it writes checksums, and
`readlink` for each rename in a stream's checkpoint: 55 ms of each micro-batch. Processes that tests start have Hadoop's
own.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE: Final = Path(__file__).with_name("LocalFiles.java")


def install(spark: SparkSession) -> None:
    """Serve all local paths of a session's JVM by LocalFiles.java, which is compiled there."""
    context: Any = spark.sparkContext
    compiler = context._jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setTargetVersion(8)
    compiler.cook(SOURCE.read_text("utf-8"))
    (constructor,) = compiler.getClassLoader().loadClass("kafkalike.tests.LocalFiles").getConstructors()
    constructor.newInstance(context._jvm.java.util.ArrayList().toArray()).install(context._jsc.hadoopConfiguration())
