"""Group rows: the rows of `__consumer_offsets`, and the content of rows about share groups, settings, transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalike.model.groups.roster import CLIENT_LED_VERSION, Roster, dump_roster
from kafkalike.model.names import CONSUMER_OFFSETS
from kafkalike.model.row_value import UNREADABLE, as_text, damaged, row_value
from kafkalike.model.structs import TopicPartition

if TYPE_CHECKING:
    # Functions that need transactions or share groups import them, because most clusters have none and each process
    # would pay for the import.
    from kafkalike.model.shares.share_partition import SharePartition
    from kafkalike.model.transactions.transactional_id import Entries, TransactionalIdState

OFFSET: Final = "offset"
MEMBER: Final = "member"
TRANSACTION: Final = "transaction"
SHARE: Final = "share"
"""Also the protocol of a share group's members."""
CONFIG: Final = "config"

VERSIONS: Final = {OFFSET: 1, MEMBER: CLIENT_LED_VERSION, SHARE: 1, CONFIG: 1}
"""The newest format of each kind of row, except `transaction` rows: see `transactions.transactional_id`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """One row of `__consumer_offsets`; `seq` orders the rows of the table."""

    seq: int
    kind: str
    """`offset`: a committed offset. `member`: the group's new roster. `share`: the new state of a share partition.
    `config`: the settings of a group. `transaction`: the new state of a transactional id."""
    group_id: str
    """In a `transaction` row, the transactional id."""
    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    offset: int | None = None
    """Next offset to read; None in an `offset` row deletes the commit. In a `share` row, the start offset; None deletes
    the state."""
    leader_epoch: int = -1
    metadata: str = ""
    generation: int = -1
    """-1 for commits from outside the group."""
    member_id: str = ""
    """The member that committed; in a `member` row, the member that caused the change."""
    client_id: str = ""
    value: str = ""
    """`member` rows: the roster as JSON, see `kafkalike.model.groups.roster`. `share` rows: see
    `kafkalike.model.shares.share_partition`. `transaction` rows: see
    `kafkalike.model.transactions.transactional_id`. Empty in `offset` rows."""
    time_ms: int


def roster_row(seq: int, group_id: str, roster: Roster, by: str = "", why: str = "") -> GroupRow:
    """Return the row with a group's new roster.

    Args:
        seq: number of the row.
        group_id: the group.
        roster: its members; the row's time is `roster.changed_ms`.
        by: id of the member that caused the change.
        why: description of the change for people, written to the row's `metadata`.
    """
    client = roster.members.get(by)
    return GroupRow(
        seq=seq,
        kind=MEMBER,
        group_id=group_id,
        generation=roster.generation,
        member_id=by,
        client_id="" if client is None else client.client_id,
        metadata=why,
        value=dump_roster(roster),
        time_ms=roster.changed_ms,
    )


def share_row(
    seq: int, group_id: str, tp: TopicPartition, share: SharePartition | None, *, now_ms: int, by: str = ""
) -> GroupRow:
    """Return the row with the new state of a share partition, which None deletes; `by` is the id of a member."""
    from kafkalike.model.shares.share_runs import dump_share

    return GroupRow(
        seq=seq,
        kind=SHARE,
        group_id=group_id,
        topic=tp.topic,
        topic_id=None if share is None else share.topic_id,
        partition=tp.partition,
        offset=None if share is None else share.start,
        member_id=by,
        value="" if share is None else dump_share(share),
        time_ms=now_ms,
    )


def transaction_rows(first: int, entries: Entries) -> list[GroupRow]:
    """Return the rows for the entries of a transaction rule.

    Args:
        first: number of the first row.
        entries: new state of a transactional id, and offsets and share partitions to commit.
    """
    from kafkalike.model.transactions.transactional_id import dump_dead, dump_standing

    standing = entries.standing
    about = GroupRow(
        seq=first,
        kind=TRANSACTION,
        group_id=entries.transactional_id,
        client_id="" if standing is None else standing.client_id,
        value=dump_dead() if standing is None else dump_standing(standing, first),
        time_ms=entries.now_ms,
    )
    offsets = [
        GroupRow(
            seq=first + nth,
            kind=OFFSET,
            group_id=said.group_id,
            topic=said.topic.name,
            topic_id=said.topic.topic_id,
            partition=said.partition,
            offset=said.offset,
            leader_epoch=said.leader_epoch,
            metadata=said.metadata,
            generation=said.generation,
            member_id=said.member_id,
            client_id=said.client_id,
            time_ms=entries.now_ms,
        )
        for nth, said in enumerate(entries.offsets, start=1)
    ]
    shares = [
        share_row(first + nth, said.group_id, said.tp, said.share, now_ms=entries.now_ms, by=said.member_id)
        for nth, said in enumerate(entries.shares, start=1 + len(offsets))
    ]
    return [about, *offsets, *shares]


def standing_of(row: GroupRow) -> TransactionalIdState | None:
    """Parse a `transaction` row; None if the row deletes the id.

    Raises:
        UnsupportedVersionError, LogCorruptError: it cannot be read.
    """
    from kafkalike.model.transactions.transactional_id import FORMAT, load_standing

    try:
        return load_standing(
            row_value(CONSUMER_OFFSETS, row, {TRANSACTION: FORMAT}), row.seq, row.time_ms, row.client_id
        )
    except UNREADABLE as cause:
        raise damaged(CONSUMER_OFFSETS, row, cause) from cause


def share_of(row: GroupRow) -> tuple[TopicPartition, SharePartition | None]:
    """Parse a `share` row; None if the row deletes the state.

    Raises:
        UnsupportedVersionError, LogCorruptError: it cannot be read.
    """
    from kafkalike.model.shares.share_runs import load_share

    try:
        value = row_value(CONSUMER_OFFSETS, row, VERSIONS)
        if row.topic is None or row.partition is None:
            raise ValueError("no topic or partition")
        where = TopicPartition(row.topic, row.partition)
        return where, None if row.offset is None else load_share(value, row.topic_id or "")
    except UNREADABLE as cause:
        raise damaged(CONSUMER_OFFSETS, row, cause) from cause


def configs_of(row: GroupRow) -> dict[str, str]:
    """Parse a `config` row.

    Raises:
        UnsupportedVersionError, LogCorruptError: it cannot be read.
    """
    try:
        found = row_value(CONSUMER_OFFSETS, row, VERSIONS)["configs"]
        return {as_text(name, "configs"): as_text(value, "configs") for name, value in found.items()}
    except UNREADABLE as cause:
        raise damaged(CONSUMER_OFFSETS, row, cause) from cause
