"""ServerDefaults: the metadata of a cluster and the `server.properties` of its roots in, the settings in force out.

The metadata have them, so that a root that is lost takes none along. A file only seeds them, once. A setting never
counts as unset because its source gives no answer: whoever needs it gets an error instead.
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
from kafkalike.model.cluster_state import MetadataRow, defaults_row
from kafkalike.model.concurrency import OnError
from kafkalike.model.config.server_config import (
    PER_ROOT,
    SERVER_PROPERTIES,
    SERVER_PROPERTIES_FILE,
    ServerProperties,
    unreadable,
)

if TYPE_CHECKING:
    from kafkalike.log.cluster.control_logs import MetadataLog
    from kafkalike.model.clock import Clock
    from kafkalike.model.cluster_state import ClusterState
    from kafkalike.storage.port import Storage

_log = logging.getLogger(__name__)

ALTER: Final = "kafkalike configs --entity-type brokers --entity-default --alter --add-config NAME=VALUE"
"""The command that changes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFiles:
    """The files of server settings that a client finds."""

    found: Mapping[str, ServerProperties] = field(default_factory=dict)
    """By name."""
    silent: Sequence[str] = ()
    """Roots that give no answer, and may have one."""

    def merged(self) -> ServerProperties:
        """Return the settings of all files.

        Raises:
            InvalidConfigurationError: two of them differ.
        """
        settings: dict[str, str] = {}
        for (name, first), (other, second) in combinations(self.found.items(), 2):
            differing = first.conflicts(second)
            if differing:
                raise InvalidConfigurationError(
                    f"{name} and {other} differ in {', '.join(differing)}: these settings hold for the whole cluster; "
                    "make the files equal, or keep one of them"
                )
        for config in self.found.values():
            settings.update(config.settings)
        return ServerProperties(settings=settings)


def server_file(store: Storage) -> Mapping[str, ServerProperties]:
    """Read the file `server.properties` at a root, by its name; empty if there is none.

    Raises:
        InvalidConfigurationError: it cannot be read, or holds a bad setting.
        OSError: the root gives no answer.
    """
    name = f"{store.uri}/{SERVER_PROPERTIES_FILE}"
    if store.coordination.reach == "machine":
        own = ServerProperties.in_folder(store.uri)
        return {} if own is None else {name: own}
    try:
        content = store.read(SERVER_PROPERTIES_FILE)
    except FileNotFoundError:
        return {}
    return {name: ServerProperties.from_content(content, name)}


def files_of_root(store: Storage) -> ServerFiles:
    """Read the file of a cluster's only root, else the one that the environment names.

    Raises:
        InvalidConfigurationError: it cannot be read, or holds a bad setting.
        KafkaStorageError: the root gives no answer.
    """
    try:
        found = server_file(store)
    except OSError as cause:
        raise KafkaStorageError(str(unreadable(f"{store.uri}/{SERVER_PROPERTIES_FILE}", cause))) from cause
    return ServerFiles(found=found or environments_file())


def environments_file() -> Mapping[str, ServerProperties]:
    """Read the file that `KAFKALIKE_SERVER_PROPERTIES` names, by its name; empty if that is not set."""
    named = ServerProperties.from_environment()
    return {} if named is None else dict([named])


def given(server: ServerProperties) -> Callable[[], ServerFiles]:
    """Return a reader of settings that a program was given instead of files."""
    return lambda: ServerFiles(found={"the settings that this client was given": server})


class ServerDefaults:
    """The defaults of one cluster. Thread-safe.

    Args:
        root: the cluster, for errors.
        metadata: its metadata.
        clock: time.
        read: reads the files.
        several: whether the cluster may lose a root and live: then it records that there are no defaults, too.
        took: called with the settings whenever other ones are in force.
    """

    def __init__(
        self,
        root: str,
        metadata: Callable[[], MetadataLog],
        clock: Clock,
        read: Callable[[], ServerFiles],
        *,
        several: bool = False,
        took: Callable[[ServerProperties], None] = lambda _: None,
    ) -> None:
        self._root = root
        self._metadata = metadata
        self._clock = clock
        self._read = read
        self._several = several
        self._took = took
        self._files: ServerFiles | None = None
        self._known: tuple[Defaults | None, ServerProperties] | None = None
        self._recorded = False
        self._mutex = threading.RLock()

    def in_force(self) -> ServerProperties:
        """Return the settings as of the last look at the metadata; the first call looks.

        Raises:
            InvalidConfigurationError: a file differs from them, or cannot be read.
            KafkaStorageError: they cannot be known: nothing has recorded them, and a root gives no answer.
        """
        state = self._metadata().state
        if not state.seq:
            state = self._metadata().refresh()
        known = self._known
        if known is not None and known[0] is state.defaults:
            return known[1]
        files = self._looked()
        config = self._decided(state.defaults, files)
        self._took(config)
        if not files.silent:
            self._known = state.defaults, config
        return config

    def _looked(self) -> ServerFiles:
        files = self._files
        if files is None or files.silent:
            files = self._files = self._read()
        return files

    def _decided(self, recorded: Defaults | None, files: ServerFiles) -> ServerProperties:
        if recorded is None or not recorded.are_set:
            if recorded is None and files.silent:
                raise self._unknown(files)
            return files.merged()
        config, seed = ServerProperties(settings=recorded.settings), ServerProperties(settings=recorded.seed)
        for name, file in files.found.items():
            differing = file.contradictions(config, seed)
            if differing:
                values = ", ".join(f"{key}={file.get(key)} (cluster: {config.get(key)})" for key in differing)
                raise InvalidConfigurationError(
                    f"{name} differs from the defaults of the cluster at {self._root}: {values}. The cluster keeps its "
                    f"defaults itself, and a file only seeds them once: change them with `{ALTER}`, or take these "
                    "settings out of the file"
                )
        return config

    def _unknown(self, files: ServerFiles) -> KafkaStorageError:
        return KafkaStorageError(
            f"the defaults of the cluster at {self._root} are not recorded yet, and may be in a "
            f"{SERVER_PROPERTIES_FILE} of {', '.join(files.silent)}, which gives no answer: bring it back, or set them "
            f"with `{ALTER}`"
        )

    # --- recording -----------------------------------------------------------------------------

    def record(self) -> None:
        """Write the settings of the files into the metadata, if these have none. Caller: before each change of them.

        A cluster of several roots must exist; a single root is made.
        """
        if self._recorded:
            return
        with self._mutex:
            state = self._metadata().refresh()
            if self._several and not state.seq:
                # It is founded with them.
                return
            rows = self.first_rows(state)
            if not rows and self._files is not None and self._files.silent:
                # Nothing is known yet: the next change looks again.
                return
            with OnError(self._forget_record):
                # Set before the write, which calls this again.
                self._recorded = True
                if rows:
                    self._metadata().transact(partial(self.first_rows, again=True))

    def _forget_record(self) -> None:
        self._recorded = False

    def record_early(self) -> None:
        """Record what the files say when a client connects, so that others have it when the files are gone.

        A cluster that does not exist is not made. Where nothing can be written, this client goes by the files.
        """
        try:
            if self._recorded or not (self._several or self._looked().found) or not self._metadata().refresh().seq:
                return
            self.record()
        except KafkaError as cause:
            # Whoever needs a default gets the same error.
            _log.debug("the defaults of %s were not recorded: %s", self._root, cause)

    def first_rows(
        self, state: ClusterState, *, after: int = 0, founding: bool = False, again: bool = False
    ) -> Sequence[MetadataRow]:
        """Return the row that records what the files say, if nothing is recorded yet.

        Args:
            state: of the cluster.
            after: so many rows come before it.
            founding: whether the cluster is being made: then all of its roots must answer.
            again: whether the files were read a moment ago.

        Raises:
            InvalidConfigurationError: files differ from each other, or cannot be read.
            KafkaStorageError: a root gave no answer.
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
        """Replace the settings in force by what `edit` makes of them.

        Raises:
            InvalidConfigurationError: one is unknown, or has a value that it cannot have.
        """

        def plan(state: ClusterState) -> Sequence[MetadataRow]:
            known = state.defaults or Defaults()
            settings = SERVER_PROPERTIES.check_all(edit(known.settings))
            fixed = sorted(PER_ROOT & settings.keys())
            if fixed:
                raise InvalidConfigurationError(
                    f"{', '.join(fixed)} cannot be a default of the cluster: it belongs to one root, or to the moment "
                    f"of the founding, and is read from {SERVER_PROPERTIES_FILE} of a root"
                )
            if validate_only or settings == known.settings:
                return []
            changed = Defaults(settings=settings, seed=known.seed)
            return [defaults_row(state.seq + 1, self._clock.now_ms(), changed, "changed")]

        self._metadata().transact(plan)
