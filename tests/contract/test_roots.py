"""Roots: what `bootstrap_servers` may name, and what is refused with a reason."""

from pathlib import Path

import pytest

from kafkalike.errors import KafkaConfigurationError, UnsafeStorageError
from kafkalike.log.connect import connect
from kafkalike.log.storage import normalise_root
from kafkalike.testing import MemoryCluster


@pytest.mark.parametrize(
    ("root", "found"),
    [
        ("/data/log", "/data/log"),
        ("/data/log/", "/data/log"),
        ("file:///data/log", "/data/log"),
        ("file:/data/log", "/data/log"),
        ("/data/a:b", "/data/a:b"),
        ("./localhost:9092", f"{Path.cwd()}/localhost:9092"),
        ("data", f"{Path.cwd()}/data"),
        ("~/data", str(Path.home() / "data")),
    ],
)
def test_a_local_root_becomes_an_absolute_path(root: str, found: str) -> None:
    """Whatever way it is written."""
    assert normalise_root(root, {}) == (found, True)


@pytest.mark.parametrize("root", ["abfss://c@account/log", "gs://bucket/log", "hdfs://host/log"])
def test_storages_that_keep_writers_apart_are_taken(root: str) -> None:
    """As they are, without the last slash."""
    assert normalise_root(root + "/", {}) == (root, False)


@pytest.mark.parametrize("root", ["s3://bucket/log", "s3a://bucket/log"])
def test_s3_needs_a_lock_table(root: str) -> None:
    """Two drivers would overwrite each other's commits without one."""
    with pytest.raises(UnsafeStorageError, match="S3DynamoDBLogStore"):
        normalise_root(root, {})

    assert normalise_root(root, {"AWS_S3_LOCKING_PROVIDER": "dynamodb"}) == (root, False)


@pytest.mark.parametrize("root", ["localhost:9092", "kafka-1.internal:9092", "localhost", "127.0.0.1:9092"])
def test_a_brokers_address_is_told_from_a_folder(root: str) -> None:
    """Code that was written for Kafka gets a hint instead of a folder of that name."""
    with pytest.raises(KafkaConfigurationError, match="looks like a broker's address"):
        normalise_root(root, {})


@pytest.mark.parametrize("root", ["http://host/log", "ftp://host/log", "kafka://host:9092", "/a%20b", "/a\\b"])
def test_other_places_are_refused(root: str) -> None:
    """Unknown schemes, and names that `deltalake` would read in another way."""
    with pytest.raises(KafkaConfigurationError):
        normalise_root(root, {})


@pytest.mark.parametrize("named", ["", " , ", "/a,/b", ["/a", "/b"], [], 5, b"/a", [None]])
def test_one_root_must_be_named(named: object) -> None:
    """A text or path, alone or in a list; several are for later."""
    with pytest.raises(KafkaConfigurationError):
        connect(named)


def test_a_root_may_come_in_several_forms(tmp_path: Path) -> None:
    """Text, path, list; an opened cluster is taken as it is."""
    memory = MemoryCluster()

    assert connect(memory) is memory
    assert {connect(form).root for form in (str(tmp_path), tmp_path, [str(tmp_path)])} == {str(tmp_path)}
