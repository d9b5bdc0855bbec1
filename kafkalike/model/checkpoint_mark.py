"""Checkpoint mark: the name under which the offsets of a streaming query say that they are ours (decision 011)."""

from typing import Final

MARK: Final = "kafkalike:offsets"
"""Stands beside the topics in the offsets of `format("kafkalike")`; no topic's name has a colon."""
