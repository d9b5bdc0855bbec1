"""Epoch marker: the version of a table at one root that names the replicas from that version on.

For callers that have only the folder of one root and cannot ask the table's replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalike.delta.actions import log_name
from kafkalike.delta.checkpoint import make_checkpoint
from kafkalike.delta.layout import CONTROL_TABLES
from kafkalike.delta.replica_files import APPLICATION, VersionFile, application, newest_configuration, seal
from kafkalike.delta.row_files import seq_segment
from kafkalike.delta.snapshot import load_snapshot
from kafkalike.delta.table_state import TableState, load_table
from kafkalike.log.topic.topic_commits import segment_of
from kafkalike.model import faults

if TYPE_CHECKING:
    from kafkalike.model.clock import Clock
    from kafkalike.model.replication.registration import Configuration, Replica
    from kafkalike.storage.port import Storage


TRIES: Final = 100
"""Attempts to put a version before other writers."""


def state_in(files: Storage, location: str) -> TableState:
    """Load the log in a folder up to its end.

    Args:
        files: the folder.
        location: the table's folder in the metadata: control tables and topics have different files.

    Raises:
        LogCorruptError, FileNotFoundError, OSError: see `load_table`.
    """
    return load_table(files, seq_segment if location in CONTROL_TABLES else segment_of)


def configuration_in(files: Storage, location: str) -> Configuration | None:
    """Return the newest configuration in the log of a folder; None if it has none. See `state_in`."""
    return newest_configuration(state_in(files, location).txns)


def seal_table(files: Storage, location: str, configuration: Configuration, clock: Clock, *, point: str = "") -> None:
    """Put a version that names the replicas into a table of one root, and a checkpoint of it.

    Args:
        files: the table.
        location: its folder in the metadata.
        configuration: the replicas; its epoch is higher than any in the table, or the table has it already. If the
            table has a later one, this does nothing.
        clock: time.
        point: a fault point between the two.

    Raises:
        LogCorruptError: the table is damaged; repair it first.
        OSError: the root does not answer, or other writers win every attempt.
    """
    for _ in range(TRIES):
        state = state_in(files, location)
        known = newest_configuration(state.txns)
        if known is not None and known.epoch > configuration.epoch:
            # Another client has continued from this configuration, so later versions at this root may be unpublished.
            return
        version = state.version
        if known == configuration:
            break
        version += 1
        if files.put_if_absent(log_name(version), seal(configuration, clock.now_ms()).data, durable=True):
            break
    else:
        raise OSError(f"other writers committed to {files.uri} {TRIES} times in a row; stop them and retry")
    if point:
        faults.point(point)
    snapshot = load_snapshot(files, version)
    if snapshot.damage is not None:
        raise snapshot.damage.refuse()
    # A client that opens the table starts at the checkpoint, and must see the seal.
    make_checkpoint(files, snapshot, clock.now_ms())


def is_unregistered(files: Storage, state: TableState, replica: Replica) -> bool:
    """Return whether a log ends with the seal of an election that was never registered.

    A seal that was registered and then repeated with the same chain looks the same and may precede records, so the
    caller must also look for the log it was copied from.

    Args:
        files: the replica's files.
        state: its log, up to its end.
        replica: the replica.
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
