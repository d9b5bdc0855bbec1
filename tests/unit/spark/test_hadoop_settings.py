"""Hadoop's settings for a bucket: what its S3 client is told of the options of ours."""

import pytest

from kafkalike.errors import KafkaConfigurationError
from kafkalike.model.config.storage_options import StorageOptions, resolve_options
from kafkalike.storage.object_root import hadoop_settings, object_root

KEYS = {"access_key_id": "canary-id", "secret_access_key": "canary-key"}
SIMPLE = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"


def settings(root: str, **options: str) -> dict[str, str]:
    place = object_root(root)
    assert place is not None
    return dict(hadoop_settings(place, resolve_options(place.provider, StorageOptions(options), {})))


def test_keys_region_and_endpoint_are_those_of_one_bucket() -> None:
    """Others of the session stay as they are."""
    assert settings("s3://b/log", **KEYS, region="eu-west-1", endpoint="http://127.0.0.1:9000", allow_http="true") == {
        "fs.s3a.bucket.b.access.key": "canary-id",
        "fs.s3a.bucket.b.secret.key": "canary-key",
        "fs.s3a.bucket.b.aws.credentials.provider": SIMPLE,
        "fs.s3a.bucket.b.endpoint.region": "eu-west-1",
        "fs.s3a.bucket.b.path.style.access": "true",
        "fs.s3a.bucket.b.endpoint": "http://127.0.0.1:9000",
        "fs.s3a.bucket.b.connection.ssl.enabled": "false",
    }


def test_a_token_takes_the_provider_that_knows_tokens() -> None:
    found = settings("s3a://b/log", **KEYS, session_token="canary-token")  # noqa: S106 - of nobody

    assert found["fs.s3a.bucket.b.session.token"] == "canary-token"
    assert found["fs.s3a.bucket.b.aws.credentials.provider"].endswith("TemporaryAWSCredentialsProvider")


def test_nobody_is_anonymous_and_not_the_machine() -> None:
    """A client without a provider would ask the machine's metadata address."""
    found = settings("s3://b", skip_signature="true", virtual_hosted_style_request="true")

    assert found["fs.s3a.bucket.b.aws.credentials.provider"].endswith("AnonymousAWSCredentialsProvider")
    assert found["fs.s3a.bucket.b.path.style.access"] == "false"


def test_a_region_that_the_spelling_of_the_root_names_counts() -> None:
    assert settings("https://b.s3.eu-north-1.amazonaws.com/log", **KEYS)["fs.s3a.bucket.b.endpoint.region"] == (
        "eu-north-1"
    )


def test_a_role_is_to_be_set_as_hadoop_has_it() -> None:
    role = {"role_arn": "arn:aws:iam::1:role/r", "web_identity_token_file": "/token"}

    with pytest.raises(KafkaConfigurationError, match=r"fs\.s3a\.bucket\.b\.aws\.credentials\.provider"):
        settings("s3://b/log", **role)


def test_of_other_storages_hadoop_is_told_nothing() -> None:
    assert settings("gs://b/log", skip_signature="true") == {}
