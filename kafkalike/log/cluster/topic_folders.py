"""Topic folders: where the tables of topics lie, which leftover folders are dead, and where a root may not lie.

A folder belongs to one life of one topic. The first topic of a name has the folder of that name. Each later one has a
new folder with a random part, so a late writer of a deleted topic never meets the table of the next one.

A folder is judged by facts that can never change back: a used name stays used, a dead id stays dead, and nobody creates
the first folder of a used name, or a folder with a random part, a second time.

A root may not lie in a Delta table or in another cluster's root (`check_not_enclosed`).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalike.delta.layout import BROKERS, CLUSTER_METADATA, DELETED, TOPIC_SCHEMA
from kafkalike.delta.snapshot import LogSnapshot, load_snapshot
from kafkalike.errors import KafkaConfigurationError, KafkaError, KafkaStorageError
from kafkalike.model.cluster_state import ClusterState
from kafkalike.model.topic import TopicInfo
from kafkalike.storage.port import TABLE_LOG, Storage

if TYPE_CHECKING:
    from kafkalike.model.names import TopicName
    from kafkalike.storage.objects import ObjectStorage


UUID_LENGTH: Final = 36

VERSION_FILE: Final = re.compile(r"\d{20}\.(json|.*parquet)|_last_checkpoint")
"""Name of a file of a table version: its presence proves that a table exists."""


def location_of(name: TopicName, *, used_before: bool) -> str:
    """Return the folder for the table of a new topic, relative to the root. A long name is cut: see `LONGEST_NAME`."""
    if used_before or len(name) > LONGEST_NAME:
        return f"{name[:LONGEST_NAME]}~{uuid.uuid4().hex}"
    return name


def is_later_life(location: str) -> bool:
    """True if a folder was made for one topic alone, so that no other client could have created it."""
    return LATER_LIFE.fullmatch(location) is not None


def topic_table(files: Storage) -> LogSnapshot | None:
    """Return the table at a place if it can be read and has the columns of a topic."""
    try:
        found = load_snapshot(files)
        schema = json.loads(found.metadata()["schemaString"])
    except (KafkaError, OSError, KeyError, ValueError):
        return None
    return found if schema == TOPIC_SCHEMA else None


def topic_id_of(folder: str) -> str:
    """Return the id of the topic whose table was moved into a folder of `__deleted`."""
    return folder[:UUID_LENGTH]


def check_first(name: TopicName, folder: Path, files: Storage) -> None:
    """Refuse a place for the first topic of a name unless it is free or holds the rest of a killed creation.

    Such a rest is an empty folder, or an empty table of kafkalike. Anything else is data of another program.

    Args:
        name: the topic.
        folder: the place.
        files: the same place as a store.

    Raises:
        KafkaStorageError: the folder holds other data.
    """
    if _holds_nothing(folder):
        return
    # Read after a file was seen, because another creator of the topic makes that file in one step with its table.
    table = topic_table(files)
    if table is not None and table.newest == 0:
        # A creation that was killed or is in progress has left an empty table, which serves as a new one.
        return
    what = "that kafkalike did not make" if table is None else "with records of a topic the metadata do not know"
    raise KafkaStorageError(
        f"topic {name!r} cannot be created: {folder} holds data {what}; move it or choose another name"
    )


def refuse_link(name: TopicName, folder: Path, root: Path) -> None:
    """Refuse a symbolic link in the place of a new topic if it leads out of the root.

    Raises:
        KafkaStorageError: the link leads out of the root.
    """
    if folder.is_symlink() and not folder.resolve().is_relative_to(root.resolve()):
        raise KafkaStorageError(
            f"topic {name!r} cannot be created: {folder} is a symbolic link to {folder.resolve()}, outside of "
            "the root; remove the link or choose another name"
        )


def put_aside(folder: Path, root: Path, topic_id: str) -> Path:
    """Rename the folder of a dead table, which is quick for any size. The caller has made sure that the id is dead.

    Returns:
        The new path, or the old one if the folder cannot be renamed.
    """
    aside = Path(root, DELETED, f"{topic_id}~{uuid.uuid4().hex}")
    with contextlib.suppress(OSError):
        aside.parent.mkdir(mode=0o700, exist_ok=True)
        return folder.rename(aside)
    return folder


def remove_folder(folder: Path, root: Path, topic_id: str) -> None:
    """Remove the folder of a dead table; maintenance removes the rest. The caller has made sure that the id is dead."""
    remove_tree(put_aside(folder, root, topic_id))


def remove_tree(folder: Path) -> None:
    """Remove a folder as far as possible; maintenance removes the rest."""
    import shutil  # only deletions need it, and its compressors

    shutil.rmtree(folder, ignore_errors=True)


def dead_folders(root: Storage, state: ClusterState, now_ms: int) -> Iterator[tuple[Path, str, bool]]:
    """Yield folders of tables that belong to no topic, left by killed deletions, or by killed or late creations.

    Args:
        root: the cluster's files, on a local disk.
        state: the metadata on disk.
        now_ms: the time, ms.

    Yields:
        The folder, its table's id, and whether a creator may still give it to a topic. If so, fence the metadata and
        read them again before removing the folder.
    """
    for name in suspects(state, root.folders()):
        folder, table = Path(root.uri, name), topic_table(root.at(name))
        if table is None:
            last = state.last(name)
            if last is not None and not is_later_life(name) and _holds_nothing(folder):
                yield folder, last.table_id, False
            continue
        topic_id, age_ms = str(table.metadata()["id"]), now_ms - _changed_ms(folder)
        fate = fate_of(state, Found(folder=name, table_id=topic_id, is_new=table.newest == 0, age_ms=age_ms), {})
        if fate is not Fate.STAYS:
            yield folder, topic_id, fate is Fate.GOES_AFTER_FENCE


def _changed_ms(folder: Path) -> float:
    """Return the time of a folder's last change, ms; infinity if the folder has disappeared."""
    try:
        return folder.stat().st_mtime * 1000
    except FileNotFoundError:
        return float("inf")


def _holds_nothing(folder: Path) -> bool:
    """True if a folder is missing or holds only the rest of a killed creation, such as a log without a version."""
    log = str(folder / "_delta_log")
    # `os.walk` skips folders that other processes remove meanwhile.
    files = [(above, name) for above, _, names in os.walk(folder) for name in names]
    return all(above == log and not VERSION_FILE.fullmatch(name) for above, name in files)


LATER_LIFE: Final = re.compile(r"(?P<name>[^~]+)~[0-9a-f]{32}")
"""Folder name of a topic whose name was used before; `~` cannot be part of a topic's name."""

LONGEST_NAME: Final = 200
"""Characters of a topic's name in its folder's name. File systems allow 255 bytes; the random part of a later life
takes 33, and the life of a replica up to 20."""

UNDER_WAY_MS: Final = 86_400_000
"""How long, ms, a creator may still give a folder without a topic to one."""


class Fate(Enum):
    """Verdict on a folder."""

    STAYS = auto()
    GOES = auto()
    GOES_AFTER_FENCE = auto()
    """A stopped creator may still use the folder, so fence the metadata and read them again before removing it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Content of a folder right below the root."""

    folder: str
    table_id: str | None
    """Id of the table; "" if the folder has no file of a table's log, None if it has some and no table can be read."""
    is_new: bool = False
    """True if the table has only its first version, which holds no record."""
    age_ms: float
    """Time since the last change of any file there, ms, by the storage's clock."""


def live_topic(state: ClusterState, table_id: str) -> TopicInfo | None:
    """Return the topic whose table has that id; None if no topic has it."""
    return next((info for info in state.topics.values() if info.table_id == table_id), None)


def suspects(state: ClusterState, folders: Iterable[str]) -> list[str]:
    """Return the folders that have a topic's folder name, and in which no topic lies."""
    live = {folder for info in state.topics.values() for folder in _folders_of(info)}
    return [
        folder
        for folder in folders
        if folder not in live and any(state.was_used(name) for name in _names_of(state, folder))
    ]


def _folders_of(info: TopicInfo) -> tuple[str, ...]:
    """Return the folders of a topic: that of its table, and of the table to which it is being repartitioned."""
    return (info.location,) if info.target is None else (info.location, info.target.location)


def _names_of(state: ClusterState, folder: str) -> list[str]:
    """Return the names of topics whose table may lie in a folder: several if long names share a beginning."""
    later = LATER_LIFE.fullmatch(folder)
    if later is None:
        return [folder]
    name = later["name"]
    if len(name) < LONGEST_NAME:
        return [name]
    return [used for used in (*state.topics, *state.gone) if used.startswith(name)]


def fate_of(state: ClusterState, found: Found, deleted: Mapping[str, str]) -> Fate:
    """Decide about a folder.

    Args:
        state: the metadata, read no earlier than the folder.
        found: the folder's content.
        deleted: folders by the ids of tables whose deletion was announced; such a topic may still exist.
    """
    if not suspects(state, [found.folder]):
        return Fate.STAYS
    if found.table_id and live_topic(state, found.table_id):
        # A topic that was deleted and recreated as a mirror of its former copy has another folder.
        return Fate.GOES if deleted.get(found.table_id) == found.folder else Fate.STAYS
    later = LATER_LIFE.fullmatch(found.folder)
    dead = {topic_id: folder for topic_id, folder in deleted.items() if live_topic(state, topic_id) is None}
    for info in state.topics.values():
        # Their records are in the topic's own table.
        dead.update({one.table_id: deleted.get(one.table_id, "") for one in info.ancestors})
    for name in _names_of(state, found.folder):
        if (last := state.gone.get(name)) is not None:
            dead[last.table_id] = last.location
            if last.target is not None:
                dead[last.target.topic_id] = last.target.location
    old = found.age_ms >= UNDER_WAY_MS
    if found.table_id:
        if found.table_id in dead or (found.is_new and not later):
            return Fate.GOES
        return Fate.GOES_AFTER_FENCE if found.is_new and old else Fate.STAYS
    # Late writers may leave files after the table was removed: unnamed data files, or a commit without earlier ones.
    known = found.table_id is not None or found.folder in dead.values()
    return Fate.GOES if known and old else Fate.STAYS


class EnclosingPlaces(NamedTuple):
    """Places that enclose a root."""

    table: str | None
    """Innermost Delta table that the root is, or lies in."""
    cluster: str | None
    """Innermost cluster root that the root lies in."""


def check_not_enclosed(store: Storage) -> None:
    """Refuse a root that is a Delta table, or lies in one, or in the root of another cluster.

    Args:
        store: the intended root, which does not hold a cluster yet.

    Raises:
        KafkaConfigurationError: the root is or lies in such a place. Parent places that do not answer are skipped.
    """
    found = _enclosing(store)
    if found.table is None and found.cluster is None:
        return
    what, harm = f"it lies in the root {found.cluster} of another cluster", ""
    if found.table is not None:
        what = "it is a Delta table" if found.table == store.uri else f"it lies in the Delta table {found.table}"
        harm = ", and a VACUUM of that table would delete the records"
    instead = "name a folder outside" if found.cluster is None else f"name the root of the cluster, {found.cluster}"
    raise KafkaConfigurationError(f"{store.uri} cannot be the root of a cluster: {what}{harm}; {instead}")


def _enclosing(store: Storage) -> EnclosingPlaces:
    if store.coordination.reach == "machine":
        return _in_folders(store.uri)
    if not store.scheduler.is_remote:
        return EnclosingPlaces(None, None)
    # Imported late because obstore takes 0.1 s and starts threads that do not survive a fork.
    from kafkalike.storage.objects import ObjectStorage

    return _in_objects(store) if isinstance(store, ObjectStorage) else EnclosingPlaces(None, None)


def _in_folders(uri: str) -> EnclosingPlaces:
    table = cluster = None
    own = (uri, os.path.realpath(uri))
    for place in _folders_above(uri):
        if table is None and os.path.isdir(f"{place}/{TABLE_LOG}"):  # noqa: PTH112 - quick
            table = place
        if cluster is None and place not in own and _is_root(place):
            cluster = place
    return EnclosingPlaces(table, cluster)


def _is_root(place: str) -> bool:
    # An added root may hold only its `BROKERS` file.
    return os.path.isdir(f"{place}/{CLUSTER_METADATA}") or os.path.isfile(f"{place}/{BROKERS}")  # noqa: PTH112, PTH113


def _folders_above(uri: str) -> Iterator[str]:
    """Yield a folder and its parents, by name and, if links lead elsewhere, by real path."""
    real = os.path.realpath(uri)
    # In `a/../b` the folder `a` is not above `b`.
    for path in dict.fromkeys((real if ".." in Path(uri).parts else uri, real)):
        yield from (str(each).rstrip("/") for each in (Path(path), *Path(path).parents))


def _in_objects(store: ObjectStorage) -> EnclosingPlaces:
    table = cluster = None
    for place in itertools.chain((store,), store.above()):
        # A client may use a root without permission to list the places above it.
        with contextlib.suppress(OSError):
            if table is None and place.holds(TABLE_LOG):
                table = place.uri
            if cluster is None and place is not store and place.holds(CLUSTER_METADATA):
                cluster = place.uri
    return EnclosingPlaces(table, cluster)
