"""Kafka's jars: print the jars of Spark's Kafka connector for `spark-submit --jars`.

spark-submit --jars "$(python -m kafkalike.jobs.kafka_jars)" "$(kafkalike job-path import_kafka)"

Spark's resolver fetches them once, in two rounds: the connector 4.2.0 requires the token provider 4.2.0, which Maven
Central does not have. The provider 4.0.0 works, but an exclusion in one round would exclude every version.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from zipfile import is_zipfile

from kafkalike.spark.jvm.jars import IVY

PROVIDER = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
ROUNDS: tuple[Mapping[str, str], ...] = (
    {"spark.jars.packages": f"{PROVIDER}:4.0.0"},
    {
        "spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "spark.jars.excludes": PROVIDER,
    },
)
"""Settings of the two sessions that fetch."""

JARS = (
    "org.apache.spark_spark-sql-kafka-0-10_2.13-4.2.0.jar",
    "org.apache.spark_spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    "org.apache.kafka_kafka-clients-3.9.2.jar",
    "org.apache.commons_commons-pool2-2.13.1.jar",
)
"""Jars of the connector that Spark does not include."""

START = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.appName("kafka-jars").master("local[1]").config("spark.ui.enabled", "false")
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
builder.getOrCreate().stop()
"""


def resolve(conf: Mapping[str, str], folder: Path) -> None:
    """Have Spark's resolver fetch the packages of the settings into `folder`/jars."""
    given = json.dumps({**conf, "spark.jars.ivy": str(folder)})
    # Spark's output goes to standard error, because `main` prints the names to standard output.
    subprocess.run([sys.executable, "-c", START, given], check=True, stdout=sys.stderr)  # noqa: S603


def main() -> int:
    """Print the jars, and return 1 if some could not be fetched."""
    folder = Path.home() / IVY
    jars = [folder / "jars" / name for name in JARS]
    if not all(is_zipfile(jar) for jar in jars):
        for conf in ROUNDS:
            resolve(conf, folder)
    missing = [jar.name for jar in jars if not is_zipfile(jar)]
    if missing:
        print(f"not fetched: {', '.join(missing)}", file=sys.stderr)
        return 1
    print(",".join(map(str, jars)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
