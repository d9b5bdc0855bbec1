"""A producer of transactions by single requests, which may reconnect to any gateway, and does not wait if told so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalike.gateway import api_versions as keys
from tests.tools.wire_client import WireClient
from tests.tools.wire_transcript import batch, produced


class WireTransactional:
    """A producer whose transactional id is the name of its topic. Each request has a connection of its own.

    Args:
        address: a gateway.
        topic: the topic, whose partition 0 gets the records.
    """

    def __init__(self, address: str, topic: str) -> None:
        self._topic = topic
        self.producer = -1, -1
        self.producer = self.begin(address)

    def begin(self, address: str) -> tuple[int, int]:
        """Ask for the next epoch of this producer, and return producer id and epoch."""
        begun = _answer(address, self.beginning(self.producer))
        return int(begun.producer_id), int(begun.producer_epoch)

    def send(self, address: str, sequence: int, *values: bytes) -> int:
        """Send a batch, and return the code."""
        answer = _answer(address, self.batch(sequence, *values))
        return int(answer.responses[0].partition_responses[0].error_code)

    def end(self, address: str, *, commit: bool) -> int:
        """End the transaction, and return the code."""
        return int(_answer(address, self.ending(commit=commit)).error_code)

    def beginning(self, after: tuple[int, int] = (-1, -1)) -> Request:
        """Return a request for the next epoch, of a new producer or of the one with this id and epoch."""
        body = {"transactional_id": self._topic, "transaction_timeout": 60_000}
        return keys.INIT_PRODUCER_ID, 4, {**body, "producer_id": after[0], "producer_epoch": after[1]}

    def batch(self, sequence: int, *values: bytes) -> Request:
        """Return a request with records."""
        records = batch(*values, producer=self.producer, sequence=sequence, transactional=True)
        return keys.PRODUCE, 11, produced(self._topic, 0, records, tid=self._topic)

    def offsets(self, group: str, offset: int) -> Request:
        """Return a request that commits the offset of a group in the transaction."""
        item = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        topics = [{"name": self._topic, "partitions": [item]}]
        return keys.TXN_OFFSET_COMMIT, 0, {**self._body, "group_id": group, "topics": topics}

    def ending(self, *, commit: bool) -> Request:
        """Return a request that ends the transaction."""
        return keys.END_TXN, 3, {**self._body, "committed": commit}

    @property
    def _body(self) -> dict[str, Any]:
        producer_id, epoch = self.producer
        return {"transactional_id": self._topic, "producer_id": producer_id, "producer_epoch": epoch}


Request = tuple[int, int, Mapping[str, Any]]
"""API key, version and fields."""


def _answer(address: str, request: Request) -> Any:
    with WireClient(address) as wire:
        return wire.ask(*request)
