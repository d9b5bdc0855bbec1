"""Jobs for spark-submit; each is a command: `python -m kafkalike.jobs.produce --help`. And their shared parts."""

import sys

from kafkalike.errors import KafkaConfigurationError
from kafkalike.errors.optional_imports import require_module

if sys.argv[:1] == ["-m"]:
    # Python looks for the job to run: without Spark, the job's own imports would end in a traceback.
    try:
        require_module("pyspark", "jobs")
    except KafkaConfigurationError as error:
        sys.exit(f"Error: {error}")
