"""Jobs for spark-submit; each is a command: `python -m kafkalike.cli.jobs.produce --help`. And their shared parts."""
