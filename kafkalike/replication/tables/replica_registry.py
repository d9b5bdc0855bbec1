"""Replica registry: which replicas of a table are registered, and the controller that decides and remembers it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kafkalike.model.replication.registration import Registration, Replica
from kafkalike.storage.port import Storage


class Controller(Protocol):
    """Who decides what is registered of one table."""

    def look(self) -> Registration:
        """What is registered."""
        ...

    def change(self, before: Registration, after: Registration) -> bool:
        """Change it, if it is still what was seen."""
        ...


class TableController(Controller, Protocol):
    """Who decides what is registered of one table, and says what was known of it last."""

    def known(self) -> Registration | None:
        """What was registered as of the last look at the controller; asks nobody. None: there is no such table."""
        ...

    def registered(self) -> Registration | None:
        """What is registered; what was, where the controller gives no answer. None: there is no such table."""
        ...

    def found(self) -> Registration:
        """Register the table, unless it is.

        Raises:
            KafkaError: it cannot be, or may be.
        """
        ...


class ReplicaRegistry:
    """The replicas of one table. Thread-safe.

    Args:
        uri: what the table is called in errors.
        make_store: a replica → the folder of its table.
        controller: what is registered of it.
    """

    def __init__(self, uri: str, make_store: Callable[[Replica], Storage], controller: TableController) -> None:
        self.uri = uri
        self.controller = controller
        self._make_store = make_store
        self._stores: dict[Replica, Storage] = {}

    def store_of(self, replica: Replica) -> Storage:
        """The folder of a replica."""
        found = self._stores.get(replica)
        if found is None:
            found = self._stores[replica] = self._make_store(replica)
        return found

    @property
    def registered(self) -> Registration | None:
        """What is registered of it, as far as is known; None when there is no such table."""
        return self.controller.known() or self.controller.registered()

    def in_sync(self) -> Sequence[Replica]:
        """Who has all that is published, the leader first; empty when there is no such table."""
        registered = self.registered
        return () if registered is None else tuple(reversed(registered.in_sync))

    def members(self) -> Sequence[Replica]:
        """Who must take the next version, in the order in which they do."""
        registered = self.registered
        return () if registered is None else registered.chain
