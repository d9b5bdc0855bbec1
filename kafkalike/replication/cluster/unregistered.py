"""Unregistered: a replica's log in; whether an unclean election has made it and was then never registered, out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalike.delta.actions import log_name
from kafkalike.delta.version_file import APPLICATION, VersionFile, application, newest_configuration

if TYPE_CHECKING:
    from kafkalike.delta.table_state import TableState
    from kafkalike.model.replication.values import Replica
    from kafkalike.storage.port import Store


def is_unregistered(files: Store, state: TableState, replica: Replica) -> bool:
    """Whether a log ends with the seal that such an election puts before it is registered, and was never gone on with.

    One that was registered, and then sealed again with the same chain, looks the same, and may have records: so whoever
    asks looks for what it was made of, too.

    Args:
        files: the replica's.
        state: its log, up to its end.
        replica: whose.
    """
    newest = newest_configuration(state.txns)
    if newest is None or newest.chain != (replica,):
        return False
    others = [name for name in state.txns if name.startswith(APPLICATION) and name != application(newest)]
    named = (newest_configuration({name: 0}) for name in others)
    if any(known is not None and replica in known.chain for known in named):
        return False
    last = files.look(log_name(state.version))
    return last is not None and VersionFile(last).configuration == newest
