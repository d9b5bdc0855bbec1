"""Strategies: Confluent's rules for the subject of a record's schema."""

from __future__ import annotations

from typing import Final, Literal

Part = Literal["key", "value"]

TOPIC_NAME: Final = "TopicNameStrategy"
"""`<topic>-key` and `<topic>-value`."""
RECORD_NAME: Final = "RecordNameStrategy"
"""The full name of the record's schema."""
TOPIC_RECORD_NAME: Final = "TopicRecordNameStrategy"
"""`<topic>-<full name>`."""

STRATEGIES: Final = (TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME)
