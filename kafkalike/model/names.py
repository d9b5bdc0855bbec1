"""Names: text in, checked topic and group names out."""

from __future__ import annotations

import re
from typing import Final, NewType

from kafkalike.errors import IllegalArgumentError, InvalidGroupIdError, InvalidTopicError, InvalidTopicTypeError

TopicName = NewType("TopicName", str)
TopicId = NewType("TopicId", str)
GroupId = NewType("GroupId", str)
MemberId = NewType("MemberId", str)

MAX_TOPIC_NAME: Final = 249
"""Characters; Kafka's own limit, so that name and partition number fit a file name of 255."""

INTERNAL_PREFIX: Final = "__"
"""Names that begin so belong to kafkalike's own tables."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: object) -> TopicName:
    """Return `name` when Kafka's rule allows it as the name of a user's topic.

    The rule (Kafka's `Topic.java`): 1 to 249 characters of `[a-zA-Z0-9._-]`, neither `.` nor `..`. Names that begin
    with `__` are reserved for kafkalike's own tables, and `_delta_log` is what Delta calls its own folder.

    Raises:
        InvalidTopicError: saying which part of the rule is broken (a ValueError); also a TypeError for what is no str.
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


def check_group_id(group_id: object) -> GroupId:
    """Return `group_id` when it can name a consumer group: any text that is not empty.

    Raises:
        InvalidGroupIdError: for anything else.
    """
    if not isinstance(group_id, str) or not group_id:
        raise InvalidGroupIdError(f"group_id must be a str that is not empty, not {group_id!r}")
    if not is_storable(group_id):
        raise InvalidGroupIdError(f"group_id {group_id!r} is no valid text: it has a half of a surrogate pair")
    return GroupId(group_id)


def check_transactional_id(transactional_id: object) -> str:
    """Return `transactional_id` when it can name a producer over its restarts: any text that is not empty.

    Raises:
        IllegalArgumentError: for anything else.
    """
    if not isinstance(transactional_id, str) or not transactional_id or not is_storable(transactional_id):
        raise IllegalArgumentError(f"transactional_id must be a valid text that is not empty, not {transactional_id!r}")
    return transactional_id


def is_storable(text: str) -> bool:
    """Whether a text can be stored: one with half of a surrogate pair has no bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


TABLE: Final = "__schemas"
