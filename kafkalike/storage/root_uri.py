"""Roots: resolve the user's root to an absolute path or URI, and know which file systems keep several writers apart."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kafkalike.errors import KafkaConfigurationError, UnsafeStorageError
from kafkalike.storage.object_root import OBJECT_SCHEMES, object_root

HADOOP_SCHEMES: Final = frozenset({"hdfs", "viewfs", "webhdfs"})
"""Schemes of HDFS, which is rejected."""


NETWORK_VARIABLE: Final = "KAFKALIKE_ALLOW_NETWORK_FILE_SYSTEM"
"""Set to 1 to allow writing to a network file system."""

NETWORK_FILE_SYSTEMS: Final = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "fhgfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb2",
        "smb3",
        "smbfs",
        "wekafs",
    }
)
"""Types, in Linux's list of mounts, whose locks or hard links other machines may not see at once. Types that begin with
`fuse.` count, too."""

_ONE_SLASH: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""A URI without a host, such as Databricks' `dbfs:/log`."""

LOCAL_FUSE: Final = frozenset({"fuse.fuse-overlayfs"})
"""Types below `fuse.` on a local disk: the root of a container that runs without privileges."""

_MOUNTS: Final = Path("/proc/self/mountinfo")

_MISREAD: Final = re.compile(r"%[0-9a-fA-F]{2}" if os.sep == "\\" else r"%[0-9a-fA-F]{2}|\\")
"""Parts of a path that delta-rs reads differently from the operating system: escapes, and `\\` as a slash."""


def normalise_root(root: str, environ: dict[str, str] | None = None, mounts: str | None = None) -> tuple[str, bool]:
    """Resolve the user's root to an absolute path or a URI.

    Args:
        root: a path, a `file:` URI, or the URI of an object store.
        environ: environment variables; None takes the process's own.
        mounts: the mounts, in the form of Linux's `/proc/self/mountinfo`; None reads that.

    Returns:
        The root, and whether it is a local folder.

    Raises:
        UnsafeStorageError: the storage cannot keep several writers apart.
        KafkaConfigurationError: it looks like a Kafka broker's address, has an unknown scheme or a single slash behind
            it, is a `file:` URI with a host, a query or a fragment, begins with the home of an unknown user, or is a
            folder whose name holds a backslash or something like `%20`.
    """
    environ = dict(os.environ) if environ is None else environ
    scheme = urlsplit(root).scheme if "://" in root or root.startswith("file:") else ""
    if scheme in {"", "file"}:
        if not scheme and _looks_like_broker(root):
            raise KafkaConfigurationError(
                f"bootstrap_servers={root!r} looks like a broker's address; kafkalike has no brokers: "
                f"name a storage root such as ./kafkalike-data (a folder of that very name: ./{root})"
            )
        if not scheme and _ONE_SLASH.match(root):
            raise KafkaConfigurationError(
                f"bootstrap_servers={root!r} looks like a URI: name an object store as scheme://bucket/path, "
                f"or a folder by its path (a folder of that very name: ./{root})"
            )
        path = _path_of(root) if scheme else root
        if _MISREAD.search(path):
            raise KafkaConfigurationError(
                f"bootstrap_servers={root!r}: delta-rs reads a percent sign with two digits, or a backslash, as "
                "another character; rename the folder"
            )
        try:
            folder = str(Path(path).expanduser().absolute())
        except RuntimeError as cause:
            raise KafkaConfigurationError(
                f"bootstrap_servers={root!r}: {path.split('/')[0]!r} is the home of no user that is known here"
            ) from cause
        if environ.get(NETWORK_VARIABLE, "") in {"", "0"}:
            _refuse_network(folder, mounts)
        return folder, True
    found = object_root(root)
    if found is not None:
        return found.uri, False
    shown = re.sub(r"//[^/]*@", "//", root.partition("?")[0])  # without what may be a password
    if scheme in HADOOP_SCHEMES:
        raise UnsafeStorageError(
            f"{shown.rstrip('/')} is in HDFS, where nothing keeps several writers of a topic apart: name a local "
            "folder, or a place in S3, Azure or Google"
        )
    known = ", ".join(("file", *OBJECT_SCHEMES))
    raise KafkaConfigurationError(f"{shown}: storage scheme {scheme!r} is not known; known are {known}")


def _path_of(uri: str) -> str:
    """Return the path of a `file:` URI."""
    parts = urlsplit(uri)
    if parts.netloc not in {"", "localhost"}:
        raise KafkaConfigurationError(
            f"bootstrap_servers={uri!r} names the host {parts.netloc!r}, and a `file:` root is on this machine; "
            f"for the folder /{parts.netloc}{parts.path} write file:///{parts.netloc}{parts.path}"
        )
    if "?" in uri or "#" in uri:
        raise KafkaConfigurationError(
            f"bootstrap_servers={uri!r}: a `file:` URI ends at `?` or `#`; "
            "for a folder of such a name give the plain path"
        )
    return parts.path


def file_system_type(path: str, mounts: str) -> str:
    """Return the type of a path's file system; empty if it is unknown.

    Args:
        path: absolute, without symbolic links; it need not exist.
        mounts: content of Linux's `/proc/self/mountinfo`.
    """
    best, found = "", ""
    for line in mounts.splitlines():
        # `36 35 98:0 /inside /mount/point rw,noatime master:1 - ext4 /dev/sda1 rw`; at one place the later counts
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if not dash or len(fields) < 5:  # noqa: PLR2004 - the fifth is the mount point
            continue
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, found = point, after.split(" ")[0]
    return found


def is_network_file_system(kind: str) -> bool:
    """Return True if other machines may write to a file system of this type."""
    return kind in NETWORK_FILE_SYSTEMS or (kind.startswith("fuse.") and kind not in LOCAL_FUSE)


def allowed_network(folder: str, environ: Mapping[str, str] | None = None, mounts: str | None = None) -> bool:
    """Return True if a folder is on a network file system, and the user has allowed that.

    Args:
        folder: the root.
        environ: environment variables; None takes the process's own.
        mounts: see `normalise_root`.
    """
    allowed = (os.environ if environ is None else environ).get(NETWORK_VARIABLE, "")
    return allowed not in {"", "0"} and is_network_file_system(_kind_of(folder, mounts))


def _kind_of(folder: str, mounts: str | None) -> str:
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:  # not Linux
            return ""
    return file_system_type(os.path.realpath(folder), mounts)


def _refuse_network(folder: str, mounts: str | None) -> None:
    """Refuse a folder on a network file system, where locks and hard links may not keep several writers apart.

    Raises:
        UnsafeStorageError: it is on one.
    """
    kind = _kind_of(folder, mounts)
    if is_network_file_system(kind):
        raise UnsafeStorageError(
            f"{folder} is on a network file system ({kind}), whose locks and hard links may not keep several writers "
            f"apart, which loses acknowledged records; use a local disk or an object store. If only one machine "
            f"ever writes, set {NETWORK_VARIABLE}=1 to allow it"
        )


def _looks_like_broker(root: str) -> bool:
    host, colon, port = root.rpartition(":")
    return root == "localhost" or (bool(colon) and port.isdigit() and "/" not in host)
