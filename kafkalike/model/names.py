"""Names: of topics, groups and transactional ids, with their checks; of control tables, subject strategies, things."""

from __future__ import annotations

import re
from typing import Final, Literal, NewType

from kafkalike.errors import IllegalArgumentError, InvalidGroupIdError, InvalidTopicError, InvalidTopicTypeError

TopicName = NewType("TopicName", str)
TopicId = NewType("TopicId", str)
GroupId = NewType("GroupId", str)
MemberId = NewType("MemberId", str)

MAX_TOPIC_NAME: Final = 249
"""Characters. Kafka's limit, so that name and partition number fit a file name of 255 characters."""

INTERNAL_PREFIX: Final = "__"
"""Prefix of the names of kafkalike's own tables."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: object) -> TopicName:
    """Return `name` if Kafka's rule allows it as the name of a user's topic.

    The rule (Kafka's `Topic.java`): 1 to 249 characters of `[a-zA-Z0-9._-]`, neither `.` nor `..`. Names with the
    prefix `__` are reserved for kafkalike's own tables, and `_delta_log` is the name of Delta's own folder.

    Raises:
        InvalidTopicError: the name breaks the rule; a ValueError, and also a TypeError if `name` is not a str.
    """
    if not isinstance(name, str):
        raise InvalidTopicTypeError(f"topic name must be a str, not {type(name).__name__}: {name!r}")
    if not name:
        raise InvalidTopicError("topic name must not be empty")
    shown = name if len(name) <= MAX_TOPIC_NAME else name[:40] + "…"
    if name in {".", ".."}:
        raise InvalidTopicError(f"topic name must not be {name!r}")
    if len(name) > MAX_TOPIC_NAME:
        raise InvalidTopicError(
            f"topic name {shown!r} has {len(name)} characters; at most {MAX_TOPIC_NAME} are allowed"
        )
    if not _LEGAL.fullmatch(name):
        raise InvalidTopicError(f"topic name {shown!r} has characters other than letters, digits, '.', '_' and '-'")
    if name.startswith(INTERNAL_PREFIX) or name == "_delta_log":
        raise InvalidTopicError(
            f"topic name {name!r} is reserved: names that begin with '__', and '_delta_log', are kafkalike's own"
        )
    return TopicName(name)


GATEWAYS_GROUP: Final = "__gateways"
"""Reserved group, whose members are the live gateways. Lists of groups leave it out."""

REPARTITIONS_GROUP: Final = "__repartitions"
"""Reserved group, whose offsets name the successors of repartitioned topics; see `GroupsState.successor`."""

RESERVED_GROUPS: Final = frozenset({GATEWAYS_GROUP, REPARTITIONS_GROUP})


def check_group_id(group_id: object) -> GroupId:
    """Return `group_id` when it can name a consumer group: any text that is not empty, but for `RESERVED_GROUPS`.

    Raises:
        InvalidGroupIdError: for anything else.
    """
    if not isinstance(group_id, str) or not group_id:
        raise InvalidGroupIdError(f"group_id must be a str that is not empty, not {group_id!r}")
    if not is_storable(group_id):
        raise InvalidGroupIdError(f"group_id {group_id!r} is not valid text: it has half of a surrogate pair")
    if group_id in RESERVED_GROUPS:
        what = "members are the gateways of the cluster" if group_id == GATEWAYS_GROUP else "offsets name topics"
        raise InvalidGroupIdError(f"group_id {group_id!r} is reserved: its {what}")
    return GroupId(group_id)


def check_transactional_id(transactional_id: object) -> str:
    """Return `transactional_id` if it can identify a producer across restarts: any non-empty text.

    Raises:
        IllegalArgumentError: it is empty or not valid text.
    """
    if not isinstance(transactional_id, str) or not transactional_id or not is_storable(transactional_id):
        raise IllegalArgumentError(f"transactional_id must be non-empty valid text, not {transactional_id!r}")
    return transactional_id


def is_storable(text: str) -> bool:
    """Return whether a text can be encoded as UTF-8; half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


CLUSTER_METADATA: Final = "__cluster_metadata"
CONSUMER_OFFSETS: Final = "__consumer_offsets"
SCHEMAS: Final = "__schemas"

Part = Literal["key", "value"]

TOPIC_NAME: Final = "TopicNameStrategy"
"""Subjects `<topic>-key` and `<topic>-value`."""
RECORD_NAME: Final = "RecordNameStrategy"
"""Subject: the full name of the record's schema."""
TOPIC_RECORD_NAME: Final = "TopicRecordNameStrategy"
"""Subjects `<topic>-<full name>`."""

STRATEGIES: Final = (TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME)
"""Strategies that name the subject of a schema."""


def counted(count: int, noun: str, thousands: str = "") -> str:
    """Return a number of things with their name, for output.

    Args:
        count: the number.
        noun: name of one thing; of several, with an `s`.
        thousands: separator of thousands.

    >>> counted(1, "topic"), counted(0, "record"), counted(1200, "data file", ",")
    ('1 topic', '0 records', '1,200 data files')
    """
    number = f"{count:,}".replace(",", thousands)
    return f"{number} {noun}" if count == 1 else f"{number} {noun}s"
