"""Epoch marker: the version of a table at one root that names the replicas from there on.

For callers that have the folder of one root in hand, and no replicas that could be asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalike.delta.actions import log_name
from kafkalike.delta.checkpoint import make_checkpoint
from kafkalike.delta.layout import CONTROL_TABLES
from kafkalike.delta.replica_files import APPLICATION, VersionFile, application, newest_configuration, seal
from kafkalike.delta.row_files import seq_segment
from kafkalike.delta.snapshot import load_snapshot
from kafkalike.delta.table_state import load_table
from kafkalike.log.topic.topic_commits import segment_of
from kafkalike.model import faults

if TYPE_CHECKING:
    from kafkalike.delta.table_state import TableState
    from kafkalike.model.clock import Clock
    from kafkalike.model.replication.registration import Configuration, Replica
    from kafkalike.storage.port import Storage


TRIES: Final = 100
"""How often a version is put that others are faster with."""


def state_in(files: Storage, location: str) -> TableState:
    """What the log in a folder says, up to its end.

    Args:
        files: the folder.
        location: that of the table, as the metadata name it: a control table has other files than a topic.

    Raises:
        LogCorruptError, FileNotFoundError, OSError: see `load_table`.
    """
    return load_table(files, seq_segment if location in CONTROL_TABLES else segment_of)


def configuration_in(files: Storage, location: str) -> Configuration | None:
    """The newest configuration that the log in a folder says; None where it says none. See `state_in`."""
    return newest_configuration(state_in(files, location).txns)


def seal_table(files: Storage, location: str, configuration: Configuration, clock: Clock, *, point: str = "") -> None:
    """Put a version into a table of one root that says who takes the next ones, and a checkpoint of it.

    Args:
        files: the table.
        location: its folder, as the metadata name it.
        configuration: who; its epoch is higher than any that the table has, or the table has it already. Where it has
            a later one, nothing is done.
        clock: time.
        point: a fault point between the two.

    Raises:
        LogCorruptError: the table is damaged, and is to be repaired first.
        OSError: it gives no answer, or others are faster all the time.
    """
    for _ in range(TRIES):
        state = state_in(files, location)
        known = newest_configuration(state.txns)
        if known is not None and known.epoch > configuration.epoch:
            # Somebody has gone on from this one: what is at this root by now may not be published.
            return
        version = state.version
        if known == configuration:
            break
        version += 1
        if files.put_if_absent(log_name(version), seal(configuration, clock.now_ms()).data, durable=True):
            break
    else:
        raise OSError(f"others write {files.uri} all the time")
    if point:
        faults.point(point)
    snapshot = load_snapshot(files, version)
    if snapshot.damage is not None:
        raise snapshot.damage.refuse()
    # Who opens the table begins there, and must see the seal.
    make_checkpoint(files, snapshot, clock.now_ms())


def is_unregistered(files: Storage, state: TableState, replica: Replica) -> bool:
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
