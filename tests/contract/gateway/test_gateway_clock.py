"""The clock of a gateway's machine is set forward or back: sessions and long polls go on."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from kafkalike import KafkaProducer
from kafkalike.connect import connect
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.gateway_server import GatewayServer
from kafkalike.model.clock import SYSTEM_CLOCK
from tests.tools.wire_client import WireClient

HOUR_MS = 3_600_000


class AdjustedClock:
    """The machine's clock, set wrong by an administrator."""

    def __init__(self) -> None:
        self.off_ms = 0
        self.passed = 0.0
        """Seconds to add to the monotonic clock: they pass without waiting."""

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() + self.off_ms

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic() + self.passed

    def sleep(self, seconds: float) -> None:
        SYSTEM_CLOCK.sleep(seconds)


def beat(client: WireClient, member: str, epoch: int) -> Any:
    body = {
        "group_id": "g",
        "member_id": member,
        "member_epoch": epoch,
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": ["t"] if epoch == 0 else None,
        "topic_partitions": () if epoch == 0 else None,
    }
    return client.ask(keys.CONSUMER_GROUP_HEARTBEAT, 1, body)


@pytest.mark.parametrize("off_ms", [HOUR_MS, -HOUR_MS], ids=["forward", "back"])
def test_clock_that_is_set_expires_no_session_and_ends_no_long_poll(tmp_path: Path, off_ms: int) -> None:
    cluster, clock = connect(str(tmp_path)), AdjustedClock()
    cluster.create_topic("t", 1, {})
    server = GatewayServer(cluster, clock=clock)
    server.start()
    members = [str(uuid.uuid4()) for _ in range(2)]
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    poll = {"max_wait": 19_000, "min_bytes": 1, "topics": [{"topic": "t", "partitions": [part]}]}
    try:
        with WireClient(server.bootstrap_servers) as client, WireClient(server.bootstrap_servers) as reader:
            joined = [beat(client, member, 0) for member in members]
            reader.send(keys.FETCH, 12, poll)
            clock.off_ms = off_ms
            codes = []
            for _ in range(3):
                # The gateway looks for dead members each time.
                clock.passed += 10
                epochs = {
                    one: found.generation for one in members for found in [cluster.groups.refresh().group("g").roster]
                }
                codes += [int(beat(client, one, epoch).error_code) for one, epoch in epochs.items()]
            with KafkaProducer(bootstrap_servers=cluster) as producer:
                producer.send("t", b"v", partition=0).get(20)
            answer = reader.receive(keys.FETCH, 12)
            roster = cluster.groups.refresh().group("g").roster
    finally:
        server.stop()

    assert codes == [0] * 6
    assert (set(roster.members), roster.generation) == (set(members), int(joined[-1].member_epoch))
    assert answer.responses[0].partitions[0].records
