"""Naming: how a write is called across restarts, and what that says about one that comes again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kafkalike.model.appends import TxnId
from kafkalike.model.transactions.values import WriteName

WHOLE: Final = "the cluster"
"""Stands for a topic's name where the latest version is that of a decision about several topics."""


@dataclass(frozen=True, slots=True)
class Naming:
    """The name of one write of an application."""

    app_id: str
    """The application."""
    version: int
    """Number of the write; rises with each one."""
    check: Callable[[str, int | None], TxnId]
    """Takes a topic, or `WHOLE`, and the latest version of the application there, None for none.

    Returns the name of the write to that topic; raises if the topic cannot have been waiting for it."""

    decided_as: str | None = None
    """Transactional id of the application's writes to several topics; None: one that is made of the application."""

    @classmethod
    def of(cls, txn: TxnId) -> Naming:
        """The same name everywhere, whatever was written before."""
        return cls(txn.app_id, txn.version, lambda topic, known: txn)  # noqa: ARG005

    @property
    def name(self) -> WriteName:
        """The name as a decision has it."""
        return WriteName(self.app_id, self.version)

    @property
    def transactional_id(self) -> str:
        """The id under which the application's writes to several topics are decided."""
        return f"spark {self.app_id}" if self.decided_as is None else self.decided_as
