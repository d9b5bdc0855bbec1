"""Admin base: the cluster of an admin client, and how errors become entries of a result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkalike.errors import BrokerResponseError, IllegalArgumentError, IllegalStateError
from kafkalike.model.clock import Clock

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


BROKER_ID: Final = 1
"""Id of the one broker there seems to be: the storage root."""


class AdminBase:
    """State of an admin client. Not thread-safe."""

    _clock: Clock
    _client_id: str
    _connected: Cluster
    _closed: bool

    @property
    def _cluster(self) -> Cluster:
        """The cluster, unless the client is closed.

        Raises:
            IllegalStateError: after `close`.
        """
        if self._closed:
            raise IllegalStateError("the admin client is closed")
        return self._connected


def outcome(name: str, error: BrokerResponseError | None) -> dict[str, Any]:
    """The entry of a result that says how the work on `name` went; `error_code` 0 is success."""
    return {
        "name": name,
        "error_code": 0 if error is None else error.errno,
        "error_message": None if error is None else str(error),
    }


def raise_first(errors: Iterable[BrokerResponseError | None]) -> None:
    """Raise the first error there is."""
    for error in errors:
        if error is not None:
            raise error


def as_names(names: object, what: str) -> list[Any]:
    """A list of names out of what a user gave; a bare str is refused, as each of its letters would be a name.

    Raises:
        IllegalArgumentError: for anything that is no collection of names.
    """
    if isinstance(names, (str, bytes)) or not isinstance(names, (Sequence, set, frozenset, dict)):
        raise IllegalArgumentError(f"{what} must be a list, not {names!r}")
    return list(names)
