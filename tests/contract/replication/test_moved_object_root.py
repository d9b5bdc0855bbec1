"""Roots are copied between a disk and a bucket, and within a bucket while they are written to (docs/operations.md)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from obstore.store import LocalStore, S3Store

from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.connect import connect
from tests.tools.cli import call
from tests.tools.object_servers import BUCKET, S3, ObjectServer, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with running(S3, tmp_path_factory.mktemp("s3")) as found:
        yield found


def in_bucket(server: ObjectServer, prefix: str) -> S3Store:
    """A place of the bucket, as any tool that copies sees it."""
    options: Any = dict(server.options)
    allow = options.pop("allow_http")
    return S3Store(BUCKET, prefix=prefix, config=options, client_options={"allow_http": allow == "true"})


def copied(source: LocalStore | S3Store, to: LocalStore | S3Store) -> int:
    """Copy all files as they are listed, but locks; those that are there with the same size are left out."""
    there = {one["path"]: one["size"] for some in to.list() for one in some}
    count = 0
    for one in [one for some in source.list() for one in some]:
        path = one["path"]
        if not path.startswith("__locks") and there.get(path) != one["size"]:
            to.put(path, source.get(path).bytes())
            count += 1
    return count


def sent(root: str, options: dict[str, str] | None, *values: bytes) -> None:
    with KafkaProducer(bootstrap_servers=root, storage_options=options, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.send("t", value)
        producer.commit_transaction()


def read(root: str, options: dict[str, str] | None) -> list[bytes | None]:
    """What a group reads on, and commits."""
    how: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest", "consumer_timeout_ms": 1500}
    how["storage_options"] = options
    with KafkaConsumer("t", bootstrap_servers=root, **how) as consumer:
        return [record.value for record in consumer]


@pytest.mark.objects
@pytest.mark.timeout(300)
def test_a_root_moves_to_a_bucket_and_back(server: ObjectServer, tmp_path: Path) -> None:
    """Offsets, groups and transactional ids go along; `verify` finds nothing."""
    disk, bucket, back = tmp_path / "disk", "s3://bucket/moved", tmp_path / "back"
    sent(str(disk), None, b"one")
    assert read(str(disk), None) == [b"one"]

    copied(LocalStore(disk), in_bucket(server, "moved"))
    sent(bucket, server.options, b"two")
    assert read(bucket, server.options) == [b"two"]
    assert call(connect(bucket, server.options), "verify").code == 0

    copied(in_bucket(server, "moved"), LocalStore(back, mkdir=True))
    sent(str(back), None, b"three")
    assert read(str(back), None) == [b"three"]
    assert call(connect(str(back)), "verify").code == 0
    assert connect(str(back)).log("t").log_end(0) == 3


@pytest.mark.objects
@pytest.mark.timeout(300)
def test_a_copy_in_two_rounds_is_a_backup_while_records_are_written(server: ObjectServer) -> None:
    """The first round takes what it finds; the second one what the commits that it found need."""
    root, stop = "s3://bucket/live", threading.Event()
    written: list[int] = []
    sent(root, server.options, b"first")

    def write() -> None:
        with KafkaProducer(bootstrap_servers=root, storage_options=server.options) as producer:
            while not stop.is_set():
                written.append(producer.send("t", b"%d" % len(written)).get(60).offset)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        copied(in_bucket(server, "live"), in_bucket(server, "backup"))
        before = len(written)
        copied(in_bucket(server, "live"), in_bucket(server, "backup"))
    finally:
        stop.set()
        writer.join()

    restored = connect("s3://bucket/backup", server.options)
    assert call(restored, "verify").code == 0
    log = restored.log("t")
    log.refresh()
    assert log.log_end(0) >= before
