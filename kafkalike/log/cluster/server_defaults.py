"""ServerDefaults: the settings in force, from a cluster's metadata and the `server.properties` of its roots.

The metadata record the settings, so the loss of a root loses none. A `server.properties` only seeds them, once. If the
source of a setting does not answer, reading the setting raises an error; it never counts as unset.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Final

from kafkalike.errors import InvalidConfigurationError, KafkaError, KafkaStorageError
from kafkalike.model.brokers import Defaults
from kafkalike.model.cluster_state import ClusterState, MetadataRow, defaults_row
from kafkalike.model.concurrency import OnError
from kafkalike.model.config import server_config

if TYPE_CHECKING:
    from kafkalike.log.cluster.control_logs import MetadataLog
    from kafkalike.model.clock import Clock
    from kafkalike.storage.port import Storage

_log = logging.getLogger(__name__)

ALTER: Final = "kafkalike configs --entity-type brokers --entity-default --alter --add-config NAME=VALUE"
"""The command that changes the defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFiles:
    """The `server.properties` files that a client finds."""

    found: Mapping[str, server_config.ServerProperties] = field(default_factory=dict)
    """Settings of each file, by the file's name."""
    silent: Sequence[str] = ()
    """Roots that do not answer and may hold a file."""

    def merged(self) -> server_config.ServerProperties:
        """Return the settings of all files.

        Raises:
            InvalidConfigurationError: two files differ.
        """
        settings: dict[str, str] = {}
        for (name, first), (other, second) in combinations(self.found.items(), 2):
            differing = first.conflicts(second)
            if differing:
                raise InvalidConfigurationError(
                    f"{name} and {other} differ in {', '.join(differing)}: these settings hold for the whole cluster; "
                    "make the files equal, or remove all but one"
                )
        for config in self.found.values():
            settings.update(config.settings)
        return server_config.ServerProperties(settings=settings)


def server_file(store: Storage) -> Mapping[str, server_config.ServerProperties]:
    """Read a root's `server.properties`, by the file's name; empty if the root has none.

    Raises:
        InvalidConfigurationError: the file cannot be read, or holds an invalid setting.
        OSError: the root does not answer.
    """
    name = f"{store.uri}/{server_config.SERVER_PROPERTIES_FILE}"
    if store.coordination.reach == "machine":
        own = server_config.ServerProperties.in_folder(store.uri)
        return {} if own is None else {name: own}
    try:
        content = store.read(server_config.SERVER_PROPERTIES_FILE)
    except FileNotFoundError:
        return {}
    return {name: server_config.ServerProperties.from_content(content, name)}


def files_of_root(store: Storage) -> ServerFiles:
    """Read the `server.properties` of a cluster's only root; if it has none, the file that the environment names.

    Raises:
        InvalidConfigurationError: the file cannot be read, or holds an invalid setting.
        KafkaStorageError: the root does not answer.
    """
    try:
        found = server_file(store)
    except OSError as cause:
        raise KafkaStorageError(
            str(server_config.unreadable(f"{store.uri}/{server_config.SERVER_PROPERTIES_FILE}", cause))
        ) from cause
    return ServerFiles(found=found or environments_file())


def environments_file() -> Mapping[str, server_config.ServerProperties]:
    """Read the file that `KAFKALIKE_SERVER_PROPERTIES` names, by its name; empty if the variable is not set."""
    named = server_config.ServerProperties.from_environment()
    return {} if named is None else dict([named])


def given(server: server_config.ServerProperties) -> Callable[[], ServerFiles]:
    """Return a reader of settings that a program passed instead of files."""
    return lambda: ServerFiles(found={"the settings that this client was given": server})


class ServerDefaults:
    """The defaults of one cluster. Thread-safe.

    Args:
        root: the cluster's name in errors.
        metadata: its metadata.
        clock: time.
        read: reads the files.
        several: whether the cluster has several roots and survives the loss of one; it then also records empty
            defaults.
        took: called with the settings when others come into force.
    """

    def __init__(
        self,
        root: str,
        metadata: MetadataLog,
        clock: Clock,
        read: Callable[[], ServerFiles],
        *,
        several: bool = False,
        took: Callable[[server_config.ServerProperties], None] = lambda _: None,
    ) -> None:
        self._root = root
        self._metadata = metadata
        self._clock = clock
        self._read = read
        self._several = several
        self._took = took
        self._files: ServerFiles | None = None
        self._known: tuple[Defaults | None, server_config.ServerProperties] | None = None
        self._flush: tuple[server_config.ServerProperties, bool] | None = None
        self._recorded = False
        self._mutex = threading.RLock()

    def in_force(self) -> server_config.ServerProperties:
        """Return the settings as of the last look at the metadata; the first call looks.

        Raises:
            InvalidConfigurationError: a file contradicts them, or cannot be read.
            KafkaStorageError: no settings are recorded, and a root that may hold a file does not answer.
        """
        state = self._metadata.state
        if not state.seq:
            state = self._metadata.refresh()
        known = self._known
        if known is not None and known[0] is state.defaults:
            return known[1]
        files = self._looked()
        config = self._decided(state.defaults, files)
        self._took(config)
        if not files.silent:
            self._known = state.defaults, config
        return config

    def flushes(self) -> bool:
        """Return whether committed offsets are flushed to disk; errors as `in_force`, also for a newer root format."""
        config, parsed = self.in_force(), self._flush
        if parsed is None or parsed[0] is not config:
            # Replaced whole, because another thread may be here with other settings.
            parsed = self._flush = (config, config.flush)
        return parsed[1]

    def _looked(self) -> ServerFiles:
        files = self._files
        if files is None or files.silent:
            files = self._files = self._read()
        return files

    def _decided(self, recorded: Defaults | None, files: ServerFiles) -> server_config.ServerProperties:
        if recorded is None or not recorded.are_set:
            if recorded is None and files.silent:
                raise self._unknown(files)
            return files.merged()
        config, seed = (
            server_config.ServerProperties(settings=recorded.settings),
            server_config.ServerProperties(settings=recorded.seed),
        )
        for name, file in files.found.items():
            differing = file.contradictions(config, seed)
            if differing:
                values = ", ".join(f"{key}={file.get(key)} (cluster: {config.get(key)})" for key in differing)
                raise InvalidConfigurationError(
                    f"{name} differs from the defaults of the cluster at {self._root}: {values}. The cluster keeps its "
                    f"defaults itself, and a file only seeds them once: change them with `{ALTER}`, or remove these "
                    "settings from the file"
                )
        return config

    def _unknown(self, files: ServerFiles) -> KafkaStorageError:
        return KafkaStorageError(
            f"the defaults of the cluster at {self._root} are not recorded yet, and may be in a "
            f"{server_config.SERVER_PROPERTIES_FILE} of {', '.join(files.silent)}, which does not answer: restore "
            f"access to it, or set the defaults with `{ALTER}`"
        )

    # --- recording -----------------------------------------------------------------------------

    def record(self) -> None:
        """Record the settings of the files in the metadata if no settings are recorded.

        Called before each change of metadata.

        A single root is created for that; a cluster of several roots must exist.
        """
        if self._recorded:
            return
        with self._mutex:
            state = self._metadata.refresh()
            if self._several and not state.seq:
                # Creating the cluster records them.
                return
            rows = self.first_rows(state)
            if not rows and self._files is not None and self._files.silent:
                # A root did not answer, so the next change looks again.
                return
            with OnError(self._forget_record):
                # Set before the write, because the write calls this method.
                self._recorded = True
                if rows:
                    self._metadata.transact(partial(self.first_rows, again=True))

    def _forget_record(self) -> None:
        self._recorded = False

    def record_early(self) -> None:
        """Record the settings of the files when a client connects, so that later clients do not need the files.

        Creates no cluster. If the metadata cannot be written, this client uses the files.
        """
        try:
            if self._recorded or not (self._several or self._looked().found) or not self._metadata.refresh().seq:
                return
            self.record()
        except KafkaError as cause:
            # Reading a default raises the same error.
            _log.debug("the defaults of %s were not recorded: %s", self._root, cause)

    def first_rows(
        self, state: ClusterState, *, after: int = 0, founding: bool = False, again: bool = False
    ) -> Sequence[MetadataRow]:
        """Return the row that records the settings of the files, if no settings are recorded yet.

        Args:
            state: the cluster's metadata.
            after: number of rows before this one in the same change.
            founding: whether the cluster is being created, so that all of its roots must answer.
            again: whether the files have just been read.

        Raises:
            InvalidConfigurationError: files differ from each other, or cannot be read.
            KafkaStorageError: a root did not answer.
        """
        known = state.defaults
        if known is not None and known.are_set:
            return []
        if not again:
            self._files = None
        files = self._looked()
        if files.silent and known is None:
            if founding:
                raise self._unknown(files)
            return []
        settings = files.merged().cluster_wide
        if not settings and (known is not None or not self._several):
            return []
        change = f"taken from {', '.join(files.found)}" if settings else "none are set"
        made = Defaults(settings=settings, seed=settings)
        return [defaults_row(state.seq + after + 1, self._clock.now_ms(), made, change)]

    # --- changing ------------------------------------------------------------------------------

    def edit(self, edit: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool = False) -> None:
        """Replace the settings in force by the result of `edit`.

        Raises:
            InvalidConfigurationError: a setting is unknown or has an invalid value.
        """

        def plan(state: ClusterState) -> Sequence[MetadataRow]:
            known = state.defaults or Defaults()
            settings = server_config.SERVER_PROPERTIES.check_all(edit(known.settings))
            fixed = sorted(server_config.PER_ROOT & settings.keys())
            if fixed:
                raise InvalidConfigurationError(
                    f"{', '.join(fixed)} cannot be a default of the cluster, because it applies to one root or to the "
                    f"creation of the cluster: set it in the {server_config.SERVER_PROPERTIES_FILE} of a root"
                )
            if validate_only or settings == known.settings:
                return []
            changed = Defaults(settings=settings, seed=known.seed)
            return [defaults_row(state.seq + 1, self._clock.now_ms(), changed, "changed")]

        self._metadata.transact(plan)
