"""Topic changes: what somebody wants of a topic in; a partition count and settings that it may have out."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalike.errors import InvalidConfigurationError, InvalidPartitionsError
from kafkalike.model.config.properties import PropertySet
from kafkalike.model.config.server import MAX_PARTITIONS
from kafkalike.model.config.topic import TOPIC_PROPERTIES


def check_partition_count(total: object) -> int:
    """A partition count that a topic may have.

    Raises:
        InvalidPartitionsError: below 1, above `MAX_PARTITIONS`, or not an int.
    """
    if isinstance(total, bool) or not isinstance(total, int):
        raise InvalidPartitionsError(f"number of partitions must be an int, not {total!r}")
    if not 1 <= total <= MAX_PARTITIONS:
        raise InvalidPartitionsError(f"number of partitions must be from 1 to {MAX_PARTITIONS}, not {total}")
    return total


def merge_configs(
    current: Mapping[str, str], name: str, operation: str, value: str | None, properties: PropertySet = TOPIC_PROPERTIES
) -> dict[str, str]:
    """Return the settings of a topic, or of a cluster, after one SET, DELETE, APPEND or SUBTRACT.

    APPEND and SUBTRACT work on list settings (`cleanup.policy`), from the current value or else Kafka's default.

    Raises:
        InvalidConfigurationError: unknown setting or operation, or a list operation on a setting that is no list.
    """
    after = dict(current)
    name = properties.name_of(name)
    known = properties.properties.get(name)
    if known is None:
        properties.check(name, value or "")
        raise AssertionError(name)
    if operation == "DELETE":
        after.pop(name, None)
        return after
    if value is None:
        raise InvalidConfigurationError(f"{properties.kind} setting {name!r}: {operation} needs a value")
    if operation == "SET":
        after[name] = value
        return after
    if operation not in {"APPEND", "SUBTRACT"}:
        raise InvalidConfigurationError(f"unknown operation {operation!r}; SET, DELETE, APPEND or SUBTRACT is needed")
    if not known.is_list:
        raise InvalidConfigurationError(
            f"{properties.kind} setting {name!r} is not a list, so {operation} has no meaning"
        )
    items = [item for item in after.get(name, known.default).split(",") if item]
    wanted = [item.strip() for item in value.split(",") if item.strip()]
    if operation == "APPEND":
        items += [item for item in wanted if item not in items]
    else:
        items = [item for item in items if item not in wanted]
    after[name] = ",".join(items)
    return after
