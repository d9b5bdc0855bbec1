"""Hadoop: a place in S3 and the options of its client in, the settings of Hadoop's S3A client for its bucket out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafkalike.errors import KafkaConfigurationError
from kafkalike.model.config.storage_options import StorageOptions
from kafkalike.storage.object_root import ObjectRoot

DEFAULT_REGION: Final = "us-east-1"
"""That of obstore, where no option names one."""

_PROVIDERS: Final = "org.apache.hadoop.fs.s3a"


def hadoop_settings(root: ObjectRoot, options: StorageOptions) -> Mapping[str, str]:
    """Settings of one bucket, whose names S3A looks up before those of all buckets. Empty for other storages than S3.

    The provider of credentials is always named: S3A's own list ends at the machine's metadata address.

    Args:
        root: the place.
        options: from `resolve_options`.

    Raises:
        KafkaConfigurationError: S3A cannot be told who asks.
    """
    if root.provider != "s3":
        return {}
    virtual = (options.get("virtual_hosted_style_request") or "").lower() in {"true", "1"}
    settings = {
        **_credentials(root, options),
        "endpoint.region": options.get("region") or root.hints.get("region") or DEFAULT_REGION,
        "path.style.access": str(not virtual).lower(),
    }
    endpoint = options.get("endpoint")
    if endpoint is not None:
        settings["endpoint"] = endpoint
        settings["connection.ssl.enabled"] = str(not endpoint.lower().startswith("http:")).lower()
    return {f"fs.s3a.bucket.{root.bucket}.{name}": value for name, value in settings.items()}


def _credentials(root: ObjectRoot, options: StorageOptions) -> dict[str, str]:
    if (options.get("skip_signature") or "").lower() in {"true", "1"}:
        return {"aws.credentials.provider": f"{_PROVIDERS}.AnonymousAWSCredentialsProvider"}
    key, secret, token = map(options.get, ("access_key_id", "secret_access_key", "session_token"))
    if key is None or secret is None:
        raise KafkaConfigurationError(
            f"{root.uri}: Hadoop's S3 client can be told an access_key_id and a secret_access_key, and the storage "
            f"options have none; set fs.s3a.bucket.{root.bucket}.aws.credentials.provider in the session, or read with "
            'format("kafkalike"), which takes all of them'
        )
    keys = {"access.key": key, "secret.key": secret}
    if token is None:
        return {**keys, "aws.credentials.provider": f"{_PROVIDERS}.SimpleAWSCredentialsProvider"}
    return {
        **keys,
        "session.token": token,
        "aws.credentials.provider": f"{_PROVIDERS}.TemporaryAWSCredentialsProvider",
    }
