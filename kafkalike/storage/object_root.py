"""ObjectRoot: a place in an object store under one name, and the settings of Hadoop's S3A client for it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import urlsplit

from kafkalike.errors import KafkaConfigurationError, UnsafeStorageError
from kafkalike.model.config.storage_option_names import Provider
from kafkalike.model.config.storage_options import StorageOptions

S3_SCHEMES: Final = ("s3", "s3a", "s3n")
AZURE_SCHEMES: Final = ("abfs", "abfss", "adl", "az", "azure", "wasb", "wasbs")
GOOGLE_SCHEMES: Final = ("gs", "gcs")
OBJECT_SCHEMES: Final = (*S3_SCHEMES, *AZURE_SCHEMES, *GOOGLE_SCHEMES)

_AZURE_DOMAIN: Final = "core.windows.net"
_VIRTUAL_HOST: Final = re.compile(r"(?P<bucket>[a-z0-9.-]+)\.s3(?:[.-](?P<region>[a-z0-9-]+))?\.amazonaws\.com")
_PATH_STYLE: Final = re.compile(r"s3(?:[.-](?P<region>[a-z0-9-]+))?\.amazonaws\.com")
_AZURE_HOST: Final = re.compile(r"(?P<account>[a-z0-9]+)\.(?:blob|dfs)\.core\.windows\.net")
_GOOGLE_HOST: Final = "storage.googleapis.com"

_SEGMENT: Final = re.compile(r"[A-Za-z0-9!_.*'()=+@:,$&; -]+")
"""Allowed characters of a segment of a root's path: every storage and every client accepts them unchanged."""

_EXPRESS: Final = re.compile(r".*--[a-z0-9-]+--x-s3")


@dataclass(frozen=True, slots=True)
class ObjectRoot:
    """A place in an object store."""

    provider: Provider
    bucket: str
    """Name of the bucket or container."""
    path: str
    """Path without slashes at its ends; may be empty."""
    account: str = ""
    """Azure's storage account; empty if the URI does not name it."""
    hints: StorageOptions = field(default_factory=StorageOptions)
    """Options that the spelling implies, such as the region of a virtual host."""

    @property
    def uri(self) -> str:
        """The canonical URI of the place."""
        tail = f"/{self.path.strip('/')}" if self.path.strip("/") else ""
        if self.provider == "s3":
            return f"s3://{self.bucket}{tail}"
        if self.provider == "google":
            return f"gs://{self.bucket}{tail}"
        if not self.account:
            return f"az://{self.bucket}{tail}"
        return f"abfss://{self.bucket}@{self.account}.dfs.{_AZURE_DOMAIN}{tail}"

    def in_account(self, options: StorageOptions) -> ObjectRoot:
        """Return this place with the account that the options name.

        Raises:
            KafkaConfigurationError: URI and options name different accounts, or neither names one.
        """
        if self.provider != "azure":
            return self
        emulated = (options.get("use_emulator") or "").lower() in {"true", "1"}
        account = options.get("account_name") or self.account or ("devstoreaccount1" if emulated else "")
        if not account:
            raise KafkaConfigurationError(f"{self.uri}: the storage option account_name is needed")
        if self.account not in {"", account}:
            raise KafkaConfigurationError(
                f"{self.uri}: the storage option account_name names another account, {account!r}"
            )
        return replace(self, account=account)


def object_root(root: str) -> ObjectRoot | None:
    """Parse the URI of a place in an object store; None for any other URI.

    Raises:
        KafkaConfigurationError: the URI names no bucket, or has a query, a fragment, a user or a forbidden character.
        UnsafeStorageError: this kind of storage was never tested.
    """
    plain = root.partition("?")[0].partition("#")[0]
    found = _named(plain)
    if found is None:
        return None
    if plain != root:
        raise KafkaConfigurationError(
            f"{found.uri}: a root ends before `?` and `#`; what says who asks belongs into storage_options"
        )
    bucket = found.bucket
    if not bucket or "@" in bucket or ":" in bucket:
        raise KafkaConfigurationError("a root in an object store is scheme://bucket/path, without user or port")
    if _EXPRESS.fullmatch(bucket):
        raise UnsafeStorageError(f"{root}: S3 Express One Zone was not tried with several writers, so it is refused")
    path = found.path.strip("/")
    if any(part in {"", ".", ".."} or not _SEGMENT.fullmatch(part) for part in (path.split("/") if path else ())):
        raise KafkaConfigurationError(
            f"{root}: a root's path is made of letters, digits and !_.*'()=+@:,$&;- between single slashes"
        )
    return replace(found, path=path)


def named_root(root: ObjectRoot, named: Sequence[str]) -> str | None:
    """Return the longest URI that names a place or a parent of it; None if no URI does.

    Raises:
        KafkaConfigurationError: a URI names no bucket.
    """
    found: list[tuple[int, str]] = []
    for uri in named:
        other = object_root(uri)
        if other is None:
            raise KafkaConfigurationError(
                f"storage options are given for {uri}, which is not a place in an object store"
            )
        same = (other.provider, other.bucket) == (root.provider, root.bucket)
        below = not other.path or f"{root.path}/".startswith(f"{other.path}/")
        if same and below and (not other.account or not root.account or other.account == root.account):
            found.append((len(other.path), uri))
    return max(found)[1] if found else None


def _named(root: str) -> ObjectRoot | None:
    """Parse a URI without checks."""
    parts = urlsplit(root)
    scheme, host, path = parts.scheme.lower(), parts.netloc, parts.path
    if scheme in S3_SCHEMES:
        return ObjectRoot("s3", host, path)
    if scheme in GOOGLE_SCHEMES:
        return ObjectRoot("google", host, path)
    if scheme in AZURE_SCHEMES:
        container, account = _azure(root, host)
        return ObjectRoot("azure", container, path, account)
    return _of_host(host, path) if scheme == "https" else None


def _of_host(host: str, path: str) -> ObjectRoot | None:
    """Parse the host of Amazon, Azure or Google in a URL."""
    bucket, _, rest = path.lstrip("/").partition("/")
    if found := _VIRTUAL_HOST.fullmatch(host):
        return ObjectRoot("s3", found["bucket"], path, hints=_region(found))
    if found := _PATH_STYLE.fullmatch(host):
        return ObjectRoot("s3", bucket, rest, hints=_region(found))
    if found := _AZURE_HOST.fullmatch(host):
        return ObjectRoot("azure", bucket, rest, found["account"])
    return ObjectRoot("google", bucket, rest) if host == _GOOGLE_HOST else None


def _region(found: re.Match[str]) -> StorageOptions:
    return StorageOptions({"region": found["region"]} if found["region"] else {})


def _azure(root: str, host: str) -> tuple[str, str]:
    """Return container and account of `container@account.dfs.core.windows.net`, `container@account` or `container`."""
    container, at, where = host.partition("@")
    if not at:
        return container, ""
    found = _AZURE_HOST.fullmatch(where)
    if found is None and "." in where:
        raise UnsafeStorageError(f"{root}: {where} was not tried with several writers, so it is refused")
    return container, where if found is None else found["account"]


DEFAULT_REGION: Final = "us-east-1"
"""Default region of obstore."""

_PROVIDERS: Final = "org.apache.hadoop.fs.s3a"


def hadoop_settings(root: ObjectRoot, options: StorageOptions) -> Mapping[str, str]:
    """Return S3A's settings for one bucket; empty for storages other than S3.

    S3A prefers a bucket's settings to general ones. The credential provider is always named, because S3A's own list
    ends at the machine's metadata address.

    Args:
        root: the place.
        options: from `resolve_options`.

    Raises:
        KafkaConfigurationError: S3A cannot use these credentials.
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
