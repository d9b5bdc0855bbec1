"""The pages of docs/ that need no Spark: their code blocks run, one after the other, in a world such as they name."""

from __future__ import annotations

import re
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from kafkalike import KafkaAdminClient, KafkaProducer, OffsetAndMetadata, TopicPartition
from tests.tools.blocks import all_blocks
from tests.tools.pages import PLAIN, EnoughError, World, filled, read_by, shell

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


def test_members_of_a_group_divide_the_partitions_and_take_over_those_of_one_that_leaves(tmp_path: Path) -> None:
    """The commands of docs/guide.md, each member in a process of its own."""
    create, member, describe = all_blocks("docs/guide.md", "Two consumers in one group")[:3]
    members, produce = describe.text.splitlines()
    command = [str(Path(sys.executable).with_name("kafkalike")), *shlex.split(member.text)[1:]]

    def owned() -> list[str]:
        # Before the first member has joined, the group does not exist.
        return sorted(re.findall(r"parcels:(\S+) *$", shell(f"{members} || true", tmp_path), re.MULTILINE))

    def read() -> int:
        shown = shell("kafkalike consumer-groups --describe --group packing", tmp_path)
        return sum(map(int, re.findall(r"parcels +\d +(\d+)", shown)))

    shell(create.text, tmp_path)
    with ExitStack() as until:
        one, other = (until.enter_context(Popen(command, cwd=tmp_path, stdout=PIPE)) for _ in range(2))
        until.callback(one.kill)
        until.callback(other.kill)
        while owned() != ["0,1", "2,3"]:
            assert (one.poll(), other.poll()) == (None, None)
        shell(produce, tmp_path)
        other.send_signal(signal.SIGINT)
        while owned() != ["0,1,2,3"] or read() < len("abcd"):
            assert one.poll() is None
        one.terminate()
        printed = [line for process in (one, other) for line in process.communicate()[0].decode().splitlines()]

    assert sorted(line.split("\t")[1] for line in printed) == ["1", "2", "3", "4"]


def _once(record: object) -> None:
    del record
    raise EnoughError


@pytest.mark.parametrize("page", PLAIN)
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path) -> None:
    """As they stand, in an empty folder or with what the page takes for granted."""
    with world_of(page, tmp_path) as world:
        told = world.run(page)

    assert [text for text in SAID[page] if text not in told] == []
