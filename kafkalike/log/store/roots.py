"""Roots: what the user named in, an absolute path or URI out; knows which storages keep several writers apart."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kafkalike.errors import KafkaConfigurationError, UnsafeStorageError

SAFE_SCHEMES: Final = {
    "abfs": "Azure Data Lake Gen2: rename without overwrite is atomic",
    "abfss": "Azure Data Lake Gen2: rename without overwrite is atomic",
    "gs": "Google Cloud Storage: put with a precondition is atomic",
    "hdfs": "HDFS: rename without overwrite is atomic",
}
"""Remote storages whose own Delta log store keeps several writers apart, and why."""

S3_SCHEMES: Final = ("s3", "s3a")
S3_LOCK_VARIABLE: Final = "AWS_S3_LOCKING_PROVIDER"
"""Set to `dynamodb` when every writer uses Delta's `S3DynamoDBLogStore`."""


_MISREAD: Final = re.compile(r"%[0-9a-fA-F]{2}" if os.sep == "\\" else r"%[0-9a-fA-F]{2}|\\")
"""What `deltalake` reads in another way than the operating system: escapes, and `\\` as a slash."""


def normalise_root(root: str, environ: dict[str, str] | None = None) -> tuple[str, bool]:
    """Turn what the user named into an absolute path or a URI.

    Returns:
        The root, and whether it is a local folder.

    Raises:
        UnsafeStorageError: the storage cannot keep several writers apart.
        KafkaConfigurationError: it looks like a Kafka broker's address, names no storage that is known, or is a folder
            whose name holds a backslash or something like `%20`.
    """
    environ = dict(os.environ) if environ is None else environ
    scheme = urlsplit(root).scheme if "://" in root or root.startswith("file:") else ""
    if scheme in {"", "file"}:
        if not scheme and _looks_like_broker(root):
            message = (
                f"bootstrap_servers={root!r} looks like a broker's address; kafkalike has no brokers: "
                f"name a storage root such as ./kafkalike-data (a folder of that very name: ./{root})"
            )
            raise KafkaConfigurationError(message)
        path = urlsplit(root).path if scheme else root
        if _MISREAD.search(path):
            message = (
                f"bootstrap_servers={root!r}: deltalake reads a percent sign with two digits, or a backslash, as "
                "another character; rename the folder"
            )
            raise KafkaConfigurationError(message)
        return str(Path(path).expanduser().absolute()), True
    if scheme in S3_SCHEMES:
        if environ.get(S3_LOCK_VARIABLE, "").lower() != "dynamodb":
            message = (
                f"{root}: Delta's default log store on S3 lets two drivers overwrite each other's commits, which loses "
                f"acknowledged records; use S3DynamoDBLogStore in every writer and set {S3_LOCK_VARIABLE}=dynamodb"
            )
            raise UnsafeStorageError(message)
        return root.rstrip("/"), False
    if scheme not in SAFE_SCHEMES:
        message = f"{root}: storage scheme {scheme!r} is not known; known are file, {', '.join(SAFE_SCHEMES)}, s3, s3a"
        raise KafkaConfigurationError(message)
    return root.rstrip("/"), False


def _looks_like_broker(root: str) -> bool:
    host, colon, port = root.rpartition(":")
    return root == "localhost" or (bool(colon) and port.isdigit() and "/" not in host)
