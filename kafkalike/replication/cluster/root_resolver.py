"""Root resolver: open the roots that users name: folders of this machine and locations in object stores."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkalike.errors import KafkaConnectionError
from kafkalike.log.cluster.server_defaults import environments_file, server_file
from kafkalike.model.config.server_config import SERVER_PROPERTIES_FILE, ServerProperties
from kafkalike.model.config.storage_options import SentOptions, StorageOptions
from kafkalike.replication.cluster.broker_storage import BrokerStorage, BucketRoot, FolderRoot
from kafkalike.replication.cluster.root_sign import Founding, Sign, sign_of
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.root_uri import normalise_root
from kafkalike.storage.timeouts import calls_of

if TYPE_CHECKING:
    from kafkalike.storage.port import Storage


class RootResolver:
    """Opens roots.

    Args:
        options: the user's options of object stores.
        environ: environment variables with the options that are not given; None: this process's environment.
    """

    def __init__(self, options: StorageOptions | None = None, environ: Mapping[str, str] | None = None) -> None:
        self._options = options
        self._environ = environ
        self._opened: dict[str, Storage] = {}

    def named(self, root: str) -> str:
        """Return the normalized name of a root that can be a broker's.

        Raises:
            KafkaConfigurationError: it cannot be one, or has no credentials.
        """
        try:
            normalised, local = calls_of(root).call(lambda: normalise_root(root))
        except OSError:
            # It hangs, so it is a folder; its file system was checked when the root was made.
            return os.path.abspath(os.path.expanduser(root))  # noqa: PTH100, PTH111
        return normalised if local else self.open(normalised).uri

    def open(self, uri: str) -> Storage:
        """Open a root.

        Raises:
            KafkaConfigurationError: the root is read-only, or has no credentials.
        """
        found = self._opened.get(uri)
        if found is None:
            found = self._opened[uri] = self._open(uri)
        return found

    def _open(self, uri: str) -> Storage:
        if is_folder(uri):
            return LocalStorage(uri)
        # Imports obstore, which takes 0.1 s and starts threads that a fork does not survive.
        from kafkalike.storage.objects import open_objects

        found = open_objects(uri, self._options, self._environ, impatient=True)
        assert found is not None, "what is no folder is in an object store"
        return found

    def broker(self, uri: str, founding: Founding) -> BrokerStorage:
        """Open the root of a broker."""
        found = self.open(uri)
        if isinstance(found, LocalStorage):
            return BrokerStorage(FolderRoot(found, founding))
        from kafkalike.storage.objects import ObjectStorage

        assert isinstance(found, ObjectStorage)
        return BrokerStorage(BucketRoot(found, founding, found.impatient_client))

    def server_file(self, uri: str) -> Mapping[str, ServerProperties]:
        """Read a root's own `server.properties`, by its name; empty if it has none.

        Raises:
            InvalidConfigurationError: the file cannot be read, or holds a bad setting.
            OSError: the root does not answer.
        """
        store = self.open(uri)
        return calls_of(uri).call(lambda: server_file(store)) if is_folder(uri) else server_file(store)

    def rack_of(self, uri: str) -> str | None:
        """Return the rack in a root's `server.properties`, or in the environment; None if neither names one.

        Raises:
            InvalidConfigurationError: the file cannot be read, or holds a bad setting.
            KafkaConnectionError: the root does not answer.
        """
        try:
            found = self.server_file(uri) or environments_file()
        except OSError as cause:
            raise KafkaConnectionError(
                f"the {SERVER_PROPERTIES_FILE} of {uri}, which may name its rack, cannot be read: {cause}"
            ) from cause
        return next((config.get("broker.rack").strip() for config in found.values()), "") or None

    def sign(self, uri: str, name: str) -> Sign | None:
        """Read the sign of a root from a file; None if it has none.

        Raises:
            OSError: the root does not answer.
            ValueError: the file is damaged.
        """
        store = self.open(uri)
        if is_folder(uri):
            return calls_of(uri).call(lambda: sign_of(store, name))
        return sign_of(store, name)

    def to_send(self, uris: list[str]) -> SentOptions | None:
        """Return the options that other processes need to open roots; None if all are folders."""
        sent = {uri: options.given() for uri in uris if (options := self.open(uri).tasks.sent_options()) is not None}
        return SentOptions({}, sent) if sent else None


def is_folder(uri: str) -> bool:
    """Return whether a normalized root is a folder of this machine."""
    return "://" not in uri


def real_name(uri: str) -> str:
    """Return a root's path without links."""
    if not is_folder(uri):
        return uri
    try:
        return calls_of(uri).call(lambda: os.path.realpath(uri))
    except OSError:
        # It does not answer, so no other name is known.
        return uri


def exists(uri: str) -> bool:
    """Return whether a root exists; locations in object stores always do."""
    try:
        return not is_folder(uri) or calls_of(uri).call(lambda: os.path.exists(uri))  # noqa: PTH110
    except OSError:
        return False
