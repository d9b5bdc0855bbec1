"""Jobs for spark-submit; each is a command: `python -m kafkalike.jobs.produce --help`."""
