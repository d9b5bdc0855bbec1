"""Demo: the flights of New York in 2013 in, a tour of what kafkalike does with them out."""

from kafkalike.demo.tour import run

__all__ = ["run"]
