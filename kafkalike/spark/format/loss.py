"""Loss: what is gone in; an error, or a warning when the query may go on, out."""

from __future__ import annotations

import logging
from typing import Final

from kafkalike.errors import DataLossError

GONE: Final = (
    "Some records may have been lost because they are not available any more; either they were aged out, or the topic "
    "was deleted. Set failOnDataLoss to false to go on without them"
)

_log = logging.getLogger(__name__)


def report_loss(kind: str, message: str, *, fail: bool, hint: str | None = None) -> None:
    """Say that records may have been lost.

    Args:
        kind: Spark's sub-class of `KAFKA_DATA_LOSS`.
        message: names topic, partition, offsets and reason.
        fail: whether it is an error (`failOnDataLoss`); else it is a warning in the driver's log.
        hint: what to do; None for what helps when records are gone.

    Raises:
        DataLossError: `fail` says so.
    """
    text = f"KAFKA_DATA_LOSS.{kind}: {message}"
    if fail:
        raise DataLossError(f"{text}. {hint or GONE}")
    _log.warning("%s; the query goes on, as failOnDataLoss is false", text)
