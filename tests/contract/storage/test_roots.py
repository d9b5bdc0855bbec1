"""Roots: what `bootstrap_servers` may name, and what is refused with a reason."""

from pathlib import Path
from typing import Any

import pytest

from kafkalike.admin.testing import MemoryCluster
from kafkalike.connect import connect
from kafkalike.errors import KafkaConfigurationError, UnsafeStorageError
from kafkalike.storage.root_uri import file_system_type, is_network_file_system, normalise_root


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


@pytest.mark.parametrize("root", ["s3://bucket/log", "gs://bucket/log"])
def test_remote_storages_are_taken(root: str) -> None:
    """As they are, without the last slash; more of their spellings are in `unit/storage/test_object_root.py`."""
    assert normalise_root(root + "/", {}) == (root, False)


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


@pytest.mark.parametrize("root", ["dbfs:/log", "s3:/bucket/log", "hdfs:/log", "abfss:/log@a.dfs.core.windows.net"])
def test_uri_with_one_slash_is_no_folder(root: str) -> None:
    """Databricks writes `dbfs:/log`: a folder of the name `dbfs:` below the working folder would hold the records."""
    told = rf"{root!r} looks like a URI: name an object store as scheme://bucket/path, .*\./{root}"
    with pytest.raises(KafkaConfigurationError, match=told):
        normalise_root(root, {})


@pytest.mark.parametrize("scheme", ["hdfs", "viewfs", "webhdfs"])
def test_hdfs_is_refused_by_name(scheme: str) -> None:
    """Nothing there keeps several writers apart, and who reads a topic may commit offsets."""
    with pytest.raises(UnsafeStorageError, match=rf"{scheme}://host/log is in HDFS.*S3, Azure or Google"):
        connect(f"{scheme}://user:secret@host/log")


@pytest.mark.parametrize("named", ["", " , ", [], 5, b"/a", [None]])
def test_a_root_must_be_named(named: Any) -> None:
    """Texts or paths, alone or in a list."""
    with pytest.raises(KafkaConfigurationError):
        connect(named)


def test_a_root_may_come_in_several_forms(tmp_path: Path) -> None:
    """Text, path, list; an opened cluster is taken as it is."""
    memory = MemoryCluster()

    assert connect(memory) is memory
    assert {connect(form).root for form in (str(tmp_path), tmp_path, [str(tmp_path)])} == {str(tmp_path)}


@pytest.mark.parametrize(
    "root", ["file://srv/log", "file:///data/log?x", "file:///data/log#1", "~nobody-of-that-name/log"]
)
def test_a_root_that_would_be_read_as_another_folder_is_refused(root: str) -> None:
    """A host, a query or a fragment would be dropped; a home of nobody does not exist."""
    with pytest.raises(KafkaConfigurationError):
        normalise_root(root)


def test_a_file_uri_may_name_this_machine() -> None:
    """`localhost` is no other host."""
    assert normalise_root("file://localhost/data/log") == ("/data/log", True)


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 0:50 / /srv rw,relatime shared:2 - nfs4 files:/export rw,vers=4.2
41 40 254:1 / /srv/local rw,relatime - xfs /dev/vdb rw
42 22 0:51 / /mnt/my\\040share rw - cifs //files/share rw
43 22 0:52 / /mnt/bucket rw - fuse.s3fs s3fs rw
44 22 0:53 / /twice rw - ext4 /dev/vdc rw
45 22 0:54 / /twice rw - ceph mon:/ rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/data/log", "ext4", False),
        ("/srv/log", "nfs4", True),
        ("/srv", "nfs4", True),
        ("/srvs/log", "ext4", False),
        ("/srv/local/log", "xfs", False),
        ("/mnt/my share/log", "cifs", True),
        ("/mnt/bucket/log", "fuse.s3fs", True),
        ("/twice/log", "ceph", True),
    ],
)
def test_the_file_system_of_a_path_is_that_of_the_nearest_mount(path: str, kind: str, network: bool) -> None:  # noqa: FBT001
    """As Linux lists them, the later of two at one place."""
    assert file_system_type(path, MOUNTS) == kind
    assert is_network_file_system(kind) is network


def test_a_network_file_system_is_refused_unless_it_is_allowed() -> None:
    """The error names its type and the way out."""
    with pytest.raises(UnsafeStorageError, match=r"nfs4.*KAFKALIKE_ALLOW_NETWORK_FILE_SYSTEM=1"):
        normalise_root("/srv/log", {}, MOUNTS)
    assert normalise_root("/srv/log", {"KAFKALIKE_ALLOW_NETWORK_FILE_SYSTEM": "1"}, MOUNTS) == ("/srv/log", True)


def test_a_local_disk_of_this_machine_is_taken(tmp_path: Path) -> None:
    """By its real list of mounts."""
    assert normalise_root(str(tmp_path), {}) == (str(tmp_path), True)


def test_sparks_writes_to_a_root_that_is_only_read_are_refused_however_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a list, or by the environment; nobody asks the storage first."""
    monkeypatch.setenv("KAFKALIKE_BOOTSTRAP_SERVERS", "hdfs://host/log")

    for named in (["hdfs://host/log"], " hdfs://host/log/ ", None):
        with pytest.raises(UnsafeStorageError, match=r"hdfs://host/log is in HDFS"):
            connect(named, access="spark_write")
