"""Jobs by spark-submit: `consume` and `produce` of 5,000 rows against a plain Delta copy by a bare spark-submit.

The copy gets Delta by `--packages`, as Delta's documentation has it; what that needs is in the cache before the first
round. The jobs get kafkalike's settings by SPARK_CONF_DIR. A time is that of the whole process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path

from benchmarks.harness import Report, ratio, rounds
from kafkalike.spark import session, write
from kafkalike.spark.jvm.jars import ARTIFACT

ROWS = 5_000
RUNS = 3

COPY = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
spark = builder.config("spark.sql.catalog.spark_catalog", catalog).getOrCreate()
spark.read.format("delta").load(sys.argv[1]).write.format("delta").mode("append").save(sys.argv[2])
spark.stop()
"""


def told(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def submit(options: list[str], env: Mapping[str, str], *arguments: str) -> None:
    """Run spark-submit to its end."""
    command = [str(Path(sys.executable).with_name("spark-submit")), *options, *arguments]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.returncode}: {done.stdout[-1_000:]} {done.stderr[-3_000:]}"


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        root, table = f"{folder}/root", f"{folder}/table"
        spark = session("bench-submit", "local[2]")
        frame = spark.range(ROWS).selectExpr("concat('key ', id) AS key", "concat('value ', id) AS value")
        frame.write.format("delta").save(table)
        frame.write.parquet(f"{folder}/files")
        write(frame, "orders", root)
        spark.stop()
        copy = Path(folder, "plain_copy.py")
        copy.write_text(COPY)
        kafkalike = str(Path(sys.executable).with_name("kafkalike"))
        conf = {"SPARK_CONF_DIR": told(kafkalike, "conf-path")}
        consume, produce = (told(kafkalike, "job-path", name) for name in ("consume", "produce"))
        at = ["--bootstrap-server", root, "--topic"]
        packages = ["--packages", f"{ARTIFACT}:{version('delta-spark')}"]
        output = ["--format", "parquet", f"{folder}/out"]
        figures = rounds(
            {
                "consume": partial(submit, [], conf, consume, *at, "orders", *output),
                "produce": partial(submit, [], conf, produce, *at, "copies", "--format", "parquet", f"{folder}/files"),
                "plain": partial(submit, packages, {}, str(copy), table, f"{folder}/copied"),
            },
            runs=RUNS,
        )
        report = Report("submit")
        report.keep("submit", figures)
        plain = figures["plain"]
        for name in ("consume", "produce"):
            report.add(
                f"{name}.py, {ROWS:,} rows",
                f"{figures[name].median:.1f} s",
                f"a plain Delta copy {plain.median:.1f} s",
                f"{ratio(figures[name], plain):.2f} x its time",
                "<= 0.85 x",
            )
        report.finish()


if __name__ == "__main__":
    main()
