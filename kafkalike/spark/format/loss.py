"""Loss: what is gone in; an error, or a warning when the query may go on, out."""

from __future__ import annotations

import logging

from kafkalike.errors import DataLossError

_log = logging.getLogger(__name__)


def report_loss(kind: str, message: str, *, fail: bool) -> None:
    """Say that records may have been lost.

    Args:
        kind: Spark's sub-class of `KAFKA_DATA_LOSS`.
        message: names topic, partition, offsets and reason.
        fail: whether it is an error (`failOnDataLoss`); else it is a warning in the driver's log.

    Raises:
        DataLossError: `fail` says so.
    """
    text = f"KAFKA_DATA_LOSS.{kind}: {message}"
    if fail:
        hint = "Some records may have been lost because they are not available any more; either they were aged out, "
        hint += "or the topic was deleted. Set failOnDataLoss to false to go on without them"
        raise DataLossError(f"{text}. {hint}")
    _log.warning("%s; the query goes on, as failOnDataLoss is false", text)
