"""RootResolver: opens the roots that users name: folders of this machine and places in object stores."""

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
        options: the user's, of object stores.
        environ: environment variables, which say what these do not; None takes the process's own.
    """

    def __init__(self, options: StorageOptions | None = None, environ: Mapping[str, str] | None = None) -> None:
        self._options = options
        self._environ = environ
        self._opened: dict[str, Storage] = {}

    def named(self, root: str) -> str:
        """The one name of a root that can be a broker's.

        Raises:
            KafkaConfigurationError: it cannot be one, or nothing says who asks.
        """
        try:
            normalised, local = calls_of(root).call(lambda: normalise_root(root))
        except OSError:
            # It hangs, so it is a folder; which file system it is on was looked at when it was made.
            return os.path.abspath(os.path.expanduser(root))  # noqa: PTH100, PTH111
        return normalised if local else self.open(normalised).uri

    def open(self, uri: str) -> Storage:
        """A root.

        Raises:
            KafkaConfigurationError: it can only be read, or nothing says who asks.
        """
        found = self._opened.get(uri)
        if found is None:
            found = self._opened[uri] = self._open(uri)
        return found

    def _open(self, uri: str) -> Storage:
        if is_folder(uri):
            return LocalStorage(uri)
        # It brings obstore: 0.1 s, and a runtime with threads that a fork does not survive.
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
        """A root's own `server.properties`, by its name; empty where it has none.

        Raises:
            InvalidConfigurationError: the file cannot be read, or holds a bad setting.
            OSError: the root gives no answer.
        """
        store = self.open(uri)
        return calls_of(uri).call(lambda: server_file(store)) if is_folder(uri) else server_file(store)

    def rack_of(self, uri: str) -> str | None:
        """The rack that a root's `server.properties` names, else that of the environment; None where none is named.

        Raises:
            InvalidConfigurationError: the file cannot be read, or holds a bad setting.
            KafkaConnectionError: the root gives no answer.
        """
        try:
            found = self.server_file(uri) or environments_file()
        except OSError as cause:
            raise KafkaConnectionError(
                f"the {SERVER_PROPERTIES_FILE} of {uri}, which may name its rack, cannot be read: {cause}"
            ) from cause
        return next((config.get("broker.rack").strip() for config in found.values()), "") or None

    def sign(self, uri: str, name: str) -> Sign | None:
        """What a root says of itself in a file; None where it says nothing.

        Raises:
            OSError: it gives no answer.
            ValueError: the file is damaged.
        """
        store = self.open(uri)
        if is_folder(uri):
            return calls_of(uri).call(lambda: sign_of(store, name))
        return sign_of(store, name)

    def to_send(self, uris: list[str]) -> SentOptions | None:
        """What other processes need to open roots; None where these are folders."""
        sent = {uri: options.given() for uri in uris if (options := self.open(uri).tasks.sent_options()) is not None}
        return SentOptions({}, sent) if sent else None


def is_folder(uri: str) -> bool:
    """Whether a normalised root is a folder of this machine."""
    return "://" not in uri


def real_name(uri: str) -> str:
    """What a root is called without links."""
    if not is_folder(uri):
        return uri
    try:
        return calls_of(uri).call(lambda: os.path.realpath(uri))
    except OSError:
        # It gives no answer, so it has no other name that would be known.
        return uri


def exists(uri: str) -> bool:
    """Whether there is something at a root; of places in object stores that is taken for granted."""
    try:
        return not is_folder(uri) or calls_of(uri).call(lambda: os.path.exists(uri))  # noqa: PTH110
    except OSError:
        return False
