"""Passed: what a pass of a mirror did, topic by topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkalike.errors import KafkaError


@dataclass(slots=True)
class TopicPass:
    """What a pass did for one topic."""

    name: str
    before: int = -1
    """Version of the mirror's table before; -1 for one that had nothing."""
    version: int = -1
    """And after."""
    restarted: bool = False
    """It began anew at a checkpoint: what came between cannot be read version by version."""
    bytes: int = 0
    """Bytes of data files that were copied."""
    problem: str = ""
    """Why it did not get further; empty when all is well."""


@dataclass(slots=True)
class Passed:
    """What a pass did."""

    topics: dict[str, TopicPass] = field(default_factory=dict)
    offsets: int = 0
    """Committed offsets that were brought."""
    held: list[str] = field(default_factory=list)
    """Groups that have members, or offsets of their own, at the target: these stay."""
    cut_ms: int = 0
    """Time before the moment of the source that the target has now, ms; 0 when none was found."""
    overtaken: bool = False
    """Another mirror has decided a pass meanwhile; this one did nothing."""

    @property
    def sound(self) -> bool:
        """Whether all topics could be brought."""
        return not any(topic.problem for topic in self.topics.values())


def note(passed: Passed, problems: Mapping[str, KafkaError]) -> None:
    """Take note of what topics met; what a topic met first stays."""
    for name, problem in problems.items():
        if name in passed.topics and not passed.topics[name].problem:
            passed.topics[name].problem = str(problem)
