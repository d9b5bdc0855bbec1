"""Base of the admin client: its cluster, and the entries of results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkalike.errors import BrokerResponseError, IllegalArgumentError, IllegalStateError
from kafkalike.model.clock import Clock

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


BROKER_ID: Final = 1
"""Id of the only broker that clients see: the storage root."""


class AdminBase:
    """State shared by all operations of an admin client. Not thread-safe."""

    _clock: Clock
    _client_id: str
    _connected: Cluster
    _closed: bool

    @property
    def _cluster(self) -> Cluster:
        """The client's cluster.

        Raises:
            IllegalStateError: the client is closed.
        """
        if self._closed:
            raise IllegalStateError("the admin client is closed: create another one")
        return self._connected


def outcome(name: str, error: BrokerResponseError | None) -> dict[str, Any]:
    """Return the result entry for an operation on `name`; `error_code` 0 means success."""
    return {
        "name": name,
        "error_code": 0 if error is None else error.errno,
        "error_message": None if error is None else str(error),
    }


def raise_first(errors: Iterable[BrokerResponseError | None]) -> None:
    """Raise the first error, if any."""
    for error in errors:
        if error is not None:
            raise error


def as_names(names: object, what: str) -> list[Any]:
    """Return a user's collection of names as a list; reject a bare str, because each of its letters would be a name.

    Raises:
        IllegalArgumentError: the argument is not a collection of names.
    """
    if isinstance(names, (str, bytes)) or not isinstance(names, (Sequence, set, frozenset, dict)):
        raise IllegalArgumentError(f"{what} must be a list, not {names!r}")
    return list(names)
