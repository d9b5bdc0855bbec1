"""Demo: the flights of New York in 2013 in, a tour of what kafkalike does with them out."""

from kafkalike.cli.demo.tour import run

__all__ = ["run"]
