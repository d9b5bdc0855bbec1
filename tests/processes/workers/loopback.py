"""Loopback worker: a process that sees no address but the loopback uses an object store; prints what the kernel saw.

It runs in a network namespace of its own, with the server. There an address that is not the loopback's has no route,
and the kernel counts each try to reach one.
"""

import json
import socket
import tempfile
from pathlib import Path

from kafkalike import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafkalike.connect import connect
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.maintenance.verify.verify import verify
from kafkalike.model.clock import SYSTEM_CLOCK
from tests.processes.workers.common import orders
from tests.tools.machines import bring_loopback_up
from tests.tools.object_servers import running

METADATA = ("169.254.169.254", 80)
"""Where clouds tell a machine who it is."""


def tries_elsewhere() -> int:
    """How often somebody in this namespace has tried to reach an address without a route, by IPv4 or IPv6."""
    names, values = (line.split() for line in Path("/proc/net/snmp").read_text().splitlines()[:2])
    counted = int(values[names.index("OutNoRoutes")])
    for line in Path("/proc/net/snmp6").read_text().splitlines():
        name, value = line.split()
        counted += int(value) if name == "Ip6OutNoRoutes" else 0
    return counted


def use(kind: str, folder: Path) -> int:
    """All kinds of clients, on a new root; how many records came back."""
    with running(kind, folder) as server:
        root, options = server.new_root(), server.options
        with KafkaAdminClient(bootstrap_servers=root, storage_options=options) as admin:
            admin.create_topics({"t": {"num_partitions": 2}, "gone": {"num_partitions": 1}})
            admin.delete_topics(["gone"])
        with KafkaProducer(bootstrap_servers=root, storage_options=options) as producer:
            for number in range(20):
                producer.send("t", b"%d" % number, partition=number % 2)
        with KafkaConsumer(
            "t",
            bootstrap_servers=root,
            storage_options=options,
            group_id="g",
            auto_offset_reset="earliest",
            consumer_timeout_ms=3000,
        ) as consumer:
            read = sum(1 for _ in consumer)
        cluster = connect(root, options)
        report = maintain(cluster, clock=SYSTEM_CLOCK)
        assert not report.failed, report
        assert verify(cluster, cluster.topics()).findings == []
    return read


def main() -> None:
    bring_loopback_up()
    before = tries_elsewhere()
    with tempfile.TemporaryDirectory() as folder:
        read = use(orders()["kind"], Path(folder))
    elsewhere = tries_elsewhere() - before
    with socket.socket() as asking:
        refused = asking.connect_ex(METADATA)
    told = {"read": read, "elsewhere": elsewhere, "refused": refused, "counted": tries_elsewhere() - before - elsewhere}
    print(json.dumps(told))  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main()
