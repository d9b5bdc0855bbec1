"""Topic lives: what the metadata say and what lies in a folder in; whether the folder is that of a dead topic, out.

A folder belongs to one life of one topic. The first topic of a name has the folder of that name; each later one has a
new folder with a random part. So who judges a folder goes by what can never change back: a name that was used stays
used, an id that is dead stays dead, and nobody makes the first place of a used name, or a random one, a second time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from kafkalike.model.cluster_state import ClusterState
from kafkalike.model.topic import TopicInfo

LATER_LIFE: Final = re.compile(r"(?P<name>[^~]+)~[0-9a-f]{32}")
"""The folder of a topic whose name was used before; `~` cannot be part of a topic's name."""

LONGEST_NAME: Final = 200
"""Characters of a topic's name that its folder's name takes. File systems allow 255 bytes; the random part of a later
life takes 33 of them, and the life of a replica up to 20."""

UNDER_WAY_MS: Final = 86_400_000
"""How long, ms, what no topic has may be what somebody is about to give to one."""


class Fate(Enum):
    """What may be done about a folder."""

    STAYS = auto()
    GOES = auto()
    GOES_AFTER_FENCE = auto()
    """A creator who was stopped may have it in hand: the metadata are fenced first, and looked at again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What lies in a folder right below the root."""

    folder: str
    table_id: str | None
    """Id of the table; "" where no file of a table's log is, None where there are some and no table can be read."""
    is_new: bool = False
    """The table has its first version only, which holds no record."""
    age_ms: float
    """Since anything there was changed, ms, by the storage's clock."""


def live_topic(state: ClusterState, table_id: str) -> TopicInfo | None:
    """The topic whose table has that id, if there is one."""
    return next((info for info in state.topics.values() if info.table_id == table_id), None)


def may_be_dead(state: ClusterState, folder: str) -> bool:
    """Whether a folder is worth a look: it has the name of one for a topic, and no topic has it."""
    used = any(state.was_used(name) for name in _names_of(state, folder))
    return used and all(info.location != folder for info in state.topics.values())


def _names_of(state: ClusterState, folder: str) -> list[str]:
    """Names of topics whose table may lie in a folder: several where long ones begin alike."""
    later = LATER_LIFE.fullmatch(folder)
    if later is None:
        return [folder]
    name = later["name"]
    if len(name) < LONGEST_NAME:
        return [name]
    return [used for used in (*state.topics, *state.gone) if used.startswith(name)]


def fate_of(state: ClusterState, found: Found, deleted: Mapping[str, str]) -> Fate:
    """What may be done about a folder.

    Args:
        state: the metadata, which are not older than the look into the folder.
        found: what lies there.
        deleted: folders by the ids of tables whose topics somebody was about to delete; these may live all the same.
    """
    if not may_be_dead(state, found.folder):
        return Fate.STAYS
    if found.table_id and live_topic(state, found.table_id):
        # A topic that was deleted, and has come back as a mirror of its former copy, has another folder now.
        return Fate.GOES if deleted.get(found.table_id) == found.folder else Fate.STAYS
    later = LATER_LIFE.fullmatch(found.folder)
    dead = {topic_id: folder for topic_id, folder in deleted.items() if live_topic(state, topic_id) is None}
    for name in _names_of(state, found.folder):
        if (last := state.gone.get(name)) is not None:
            dead[last.table_id] = last.location
    old = found.age_ms >= UNDER_WAY_MS
    if found.table_id:
        if found.table_id in dead or (found.is_new and not later):
            return Fate.GOES
        return Fate.GOES_AFTER_FENCE if found.is_new and old else Fate.STAYS
    # What late writers have left after the table was removed: files that no commit names, a commit without those below.
    known = found.table_id is not None or found.folder in dead.values()
    return Fate.GOES if known and old else Fate.STAYS
