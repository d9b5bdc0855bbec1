"""PatientControlLog: the cluster's metadata, which readers go on with as they were while the controller is away."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import TypeVar

from kafkalike.delta.control_log import ControlLog
from kafkalike.delta.log_cleaner import Helpers
from kafkalike.delta.row_table import RowTable
from kafkalike.errors import KafkaStorageError
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.row_value import ControlState

S = TypeVar("S", bound=ControlState)
R = TypeVar("R")

_log = logging.getLogger(__name__)

WARN_SECONDS = 30.0


class PatientControlLog(ControlLog[S, R]):
    """A control log whose root may be away: what was read before is what counts then. Changes are refused.

    Args:
        table: see `ControlLog`.
        helpers: see `ControlLog`.
        properties: see `ControlLog`.
        before_change: see `ControlLog`.
        before_look: called before each look; it may refuse it.
    """

    _warned = -math.inf

    def __init__(
        self,
        table: RowTable[S, R],
        *,
        helpers: Helpers,
        properties: Mapping[str, str],
        before_change: Callable[[], object],
        before_look: Callable[[], object],
    ) -> None:
        super().__init__(table, helpers=helpers, properties=properties, before_change=before_change)
        self._before_look = before_look

    def refresh(self, *, waiting: bool = False, since: float = math.inf, surely: bool = False) -> S:
        """Apply rows that others added, where the root answers."""
        self._before_look()
        try:
            return super().refresh(waiting=waiting, since=since, surely=surely)
        except KafkaStorageError as cause:
            if not self._table.loaded:
                raise
            now = SYSTEM_CLOCK.monotonic()
            if now - self._warned > WARN_SECONDS:
                self._warned = now
                _log.warning("the controller gives no answer, what it said before counts: %s", cause)
            return self._rows.state

    def refresh_strictly(self) -> S:
        """The same.

        Raises:
            KafkaStorageError: the root does not answer.
        """
        self._before_look()
        return super().refresh()
