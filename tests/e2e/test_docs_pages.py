"""The pages of docs/ that need no Spark: their code blocks run, one after the other, in a world such as they name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kafkalike import KafkaAdminClient, KafkaProducer, OffsetAndMetadata, TopicPartition
from tests.tools.pages import PLAIN, EnoughError, World, filled, read_by

SAID = {
    "coming-from.md": ["0\n", "[b'tea']"],
    "concepts.md": ["00000000000000000002.json", "2 segments", "append"],
    "console.md": [],
    "reference/consumer-groups.md": [],
    "guarantees.md": ["Completed updating config for topic orders"],
    "replicas.md": [
        *("Replicas: 1,2,3", "in sync", "0 errors"),
        *("orders: version -1 -> ", "following", "Promoted topic orders"),
    ],
    "operations.md": ["billing", "TransactionalId", "0 errors", "Created topic orders."],
    "queues.md": ["b'scale' 1", "[]\n", "START-OFFSET", "NEW-OFFSET"],
    "retention.md": [
        "nothing was changed",
        "log start 0: 0 -> 1",
        "retention.ms=604800000",
        "append      10 records",
        "orders-before",
    ],
}
"""What the blocks of each page print, among other things."""


@contextmanager
def world_of(page: str, folder: Path) -> Iterator[World]:
    """What a page takes for granted."""
    with ExitStack() as until:
        world = World(folder)
        match page:
            case "console.md":
                filled(folder, "orders")
                read_by(folder, "bills", "orders")
                world.names["spark"] = None  # the page of SQL has its own test
            case "reference/consumer-groups.md":
                filled(folder, "orders")
                read_by(folder, "billing", "orders")
                admin = KafkaAdminClient(bootstrap_servers=str(folder / "kafkalike-data"))
                admin.alter_group_offsets("billing", {TopicPartition("orders", 0): OffsetAndMetadata(0)})
                world.names["handle"] = _once
            case "guarantees.md":
                filled(folder, "orders")
            case "replicas.md":
                filled(folder, "orders")
                read_by(folder, "billing", "orders")
                for disk in "abc":
                    (folder / disk).mkdir()
                world.replaced = {"/mnt/": f"{folder}/"}
            case "operations.md":
                filled(folder, "orders", "customers", partitions=3)
                read_by(folder, "billing", "orders", "customers")
                producer = KafkaProducer(bootstrap_servers=str(folder / "kafkalike-data"), transactional_id="billing-1")
                producer.init_transactions()
                producer.begin_transaction()
                producer.send("orders", b"never committed").get(timeout=10)
                world.replaced = {"serve_appends(9309)": "serve_appends(0)"}
                # The page aborts it: then there is nothing to end.
                until.callback(producer.close)
            case "retention.md":
                filled(folder, "orders")
                world.replaced = {
                    "/opt/kafkalike/bin/kafkalike": str(Path(sys.executable).with_name("kafkalike")),
                    "/srv/log": str(folder / "kafkalike-data"),
                    "/var/log": str(folder),
                    "/tmp/maintain.lock": str(folder / "maintain.lock"),  # noqa: S108 - the page's
                    "--table-version 4711": "--table-version 1",
                }
        yield world


def _once(record: object) -> None:
    del record
    raise EnoughError


@pytest.mark.parametrize("page", PLAIN)
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path) -> None:
    """As they stand, in an empty folder or with what the page takes for granted."""
    with world_of(page, tmp_path) as world:
        told = world.run(page)

    assert [text for text in SAID[page] if text not in told] == []
