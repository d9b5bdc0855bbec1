"""Registry: what a user gives as `partition_assignment_strategy` in, schemes by name out."""

from __future__ import annotations

from typing import Any, Final

from kafkalike.errors import KafkaConfigurationError
from kafkalike.log.group.assignors.base import PartitionAssignor
from kafkalike.log.group.assignors.plain import RangePartitionAssignor, RoundRobinPartitionAssignor
from kafkalike.log.group.assignors.sticky import CooperativeStickyAssignor, StickyPartitionAssignor
from kafkalike.model.groups.group_protocol import EXCLUSIVE, Scheme

DEFAULT_STRATEGY: Final[tuple[str, ...]] = ("range", "roundrobin")
"""kafka-python's default."""

BY_NAME: Final[dict[str, type[PartitionAssignor]]] = {
    kind.name: kind
    for kind in (
        RangePartitionAssignor,
        RoundRobinPartitionAssignor,
        StickyPartitionAssignor,
        CooperativeStickyAssignor,
    )
}


def schemes_of(strategy: Any) -> dict[str, Scheme]:  # noqa: ANN401 - what a user gave
    """The assignors of a member, the one that it likes best first.

    Args:
        strategy: a list of names, of `PartitionAssignor` classes, or of instances; or one of them.

    Raises:
        KafkaConfigurationError: an unknown name, something else, two of one name, or none.
    """
    given = list(strategy) if isinstance(strategy, list | tuple) else [strategy]
    schemes: dict[str, Scheme] = {}
    for one in given:
        assignor = _assignor(one)
        if assignor.name in schemes:
            raise _refused(f"there are two assignors named {assignor.name!r}")
        schemes[assignor.name] = Scheme(assignor.name, assignor.assign, assignor.protocol == "cooperative")
    if not schemes:
        raise _refused("at least one assignor is needed")
    return schemes


def _assignor(given: object) -> PartitionAssignor:
    if isinstance(given, str):
        if given not in BY_NAME:
            raise _refused(f"assignor {given!r} is not known; known are {', '.join(BY_NAME)}, and classes of your own")
        return BY_NAME[given]()
    if isinstance(given, type) and issubclass(given, PartitionAssignor):
        try:
            given = given()
        except TypeError as cause:
            raise _refused(f"{given!r} cannot be made without arguments: {cause}") from cause
    if not isinstance(given, PartitionAssignor):
        raise _refused(f"a name or a PartitionAssignor is needed, not {given!r}")
    name: object = getattr(given, "name", None)
    if not isinstance(name, str) or not name or name == EXCLUSIVE:
        raise _refused(f"{given!r} needs a class attribute 'name', which must not be {EXCLUSIVE!r}")
    if given.protocol not in {"eager", "cooperative"}:
        raise _refused(f"protocol of {name!r} must be 'eager' or 'cooperative', not {given.protocol!r}")
    return given


def _refused(why: str) -> KafkaConfigurationError:
    return KafkaConfigurationError(f"invalid value for setting 'partition_assignment_strategy': {why}")
