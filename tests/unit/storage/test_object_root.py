"""Object roots: the spellings of one place are one place, and what is none is refused."""

import pytest

from kafkalike.errors import KafkaConfigurationError, UnsafeStorageError
from kafkalike.model.config.storage_options import StorageOptions
from kafkalike.storage.object_root import object_root
from kafkalike.storage.root_uri import normalise_root

AZURE = "abfss://box@acct.dfs.core.windows.net/a/b"


@pytest.mark.parametrize(
    ("spelled", "uri"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("s3a://bucket/a/b/", "s3://bucket/a/b"),
        ("S3A://bucket/a/b", "s3://bucket/a/b"),
        ("https://bucket.s3.amazonaws.com/a/b", "s3://bucket/a/b"),
        ("https://bucket.s3.eu-west-1.amazonaws.com/a/b/", "s3://bucket/a/b"),
        ("https://s3.eu-west-1.amazonaws.com/bucket/a/b", "s3://bucket/a/b"),
        ("https://s3-eu-west-1.amazonaws.com/bucket/a/b", "s3://bucket/a/b"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("gcs://bucket/a/", "gs://bucket/a"),
        ("https://storage.googleapis.com/bucket/a", "gs://bucket/a"),
        (AZURE, AZURE),
        (AZURE.replace("abfss", "abfs") + "/", AZURE),
        (AZURE.replace("abfss", "wasbs").replace("dfs", "blob"), AZURE),
        ("https://acct.blob.core.windows.net/box/a/b", AZURE),
        ("https://acct.dfs.core.windows.net/box/a/b", AZURE),
        ("abfss://box@acct/a/b", AZURE),
        ("az://box/a/b", "az://box/a/b"),
        ("abfs://box/a/b", "az://box/a/b"),
    ],
)
def test_the_spellings_of_a_root_are_one_root(spelled: str, uri: str) -> None:
    found = object_root(spelled)

    assert found is not None
    assert found.uri == uri
    assert normalise_root(spelled, {}) == (uri, False)


def test_a_host_implies_its_region() -> None:
    found = object_root("https://bucket.s3.eu-west-1.amazonaws.com/a")

    assert found is not None
    assert found.hints.given() == {"region": "eu-west-1"}


def test_azures_account_may_come_from_the_options() -> None:
    """Then the root is the one that a full URI names; two accounts are a contradiction, none is an error."""
    short, full = object_root("az://box/a/b"), object_root(AZURE)
    assert short is not None
    assert full is not None

    assert short.in_account(StorageOptions({"account_name": "acct"})) == full.in_account(StorageOptions())
    with pytest.raises(KafkaConfigurationError, match="another account"):
        full.in_account(StorageOptions({"account_name": "other"}))
    with pytest.raises(KafkaConfigurationError, match="account_name is needed"):
        short.in_account(StorageOptions())


@pytest.mark.parametrize(
    "root", ["/data", "file:///data", "hdfs://host/a", "https://host/a", "http://s3.amazonaws.com/b"]
)
def test_other_places_are_no_object_roots(root: str) -> None:
    assert object_root(root) is None


@pytest.mark.parametrize(
    "root",
    [
        "s3://",
        "s3:///a",
        "s3://bucket/a//b",
        "s3://bucket/a/../b",
        "s3://bucket/a%20b",
        "s3://bucket/a~b",
        "s3://bucket:80/a",
        "gs://bucket/ä",
    ],
)
def test_a_path_that_stores_read_in_several_ways_is_refused(root: str) -> None:
    with pytest.raises(KafkaConfigurationError):
        object_root(root)


@pytest.mark.parametrize(
    "root",
    [
        "s3://key:canary@bucket/a",
        "s3://bucket/a?X-Amz-Signature=canary",
        "https://acct.blob.core.windows.net/box/a?sig=canary",
        "abfss://box@some.other.host/a?sig=canary",
        "https://some.other.host/a?sig=canary",
        "http://me:canary@some.other.host/a",
    ],
)
def test_a_secret_in_a_root_is_refused_and_not_repeated(root: str) -> None:
    with pytest.raises((KafkaConfigurationError, UnsafeStorageError)) as refused:
        normalise_root(root, {})

    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("root", ["s3://bucket--use1-az4--x-s3/a", "abfss://box@onelake.dfs.fabric.microsoft.com/a"])
def test_storages_that_nobody_has_tried_are_refused(root: str) -> None:
    with pytest.raises(UnsafeStorageError, match="not tried with several writers"):
        object_root(root)
