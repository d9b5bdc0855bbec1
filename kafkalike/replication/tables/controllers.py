"""Controllers: the ports behind which it is decided, and remembered, what is registered of one table."""

from __future__ import annotations

from typing import Protocol

from kafkalike.model.replication.registration import Registration


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
