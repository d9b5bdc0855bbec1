"""Voter files: what voters of the metadata keep beside the table, as values and as bytes, and under which names.

In the table's folder of each voter, with `<id>` for its name in a set of voters:

* `_quorum/<id>/<version>.<place>`: its registers, a row of files for each version.
* `_quorum/<id>/voter`: this root is that voter; a root without it is another one, or an empty one.
* `_quorum/<id>/open`: it votes, while this is empty. When other voters take over it says `closed`, and stays.
* `_delta_log/_voters.<epoch>.json`: a set of voters. One of a later epoch says that the others are over.
"""

from __future__ import annotations

import json
import re
import uuid
import zlib
from typing import Any, Final, NamedTuple

from kafkalike.delta.actions import TableCommit, parse_commit
from kafkalike.delta.commit_file import CommitFile
from kafkalike.model.replication.registers import Accept, Ballot, Prepare, Request
from kafkalike.model.replication.takeover import VoterSet

QUORUM: Final = "_quorum"
"""Folder of the voters' own files, which is no part of the table."""

TAKEN_OVER: Final = "VOTERS"
"""Operation of the version that new voters begin with."""

APPLICATION: Final = "kafkalike.voters"
"""Delta transaction's application of such a version; its version is the epoch of the set."""

_MARK: Final = re.compile(r"_voters\.(\d{10})\.json")


class Voter(NamedTuple):
    """A root, as a voter of one set."""

    broker: int
    id: str
    """Its name in this set, which it has in no other one."""
    uri: str
    """Where the root was when the set was named."""


class MetadataVersion(NamedTuple):
    """The content of a version, byte by byte; a value of registers."""

    data: bytes

    @property
    def commit(self) -> TableCommit:
        """What it says, its number excepted.

        Raises:
            LogCorruptError: it is damaged.
        """
        return parse_commit(0, self.data, "a voter")

    @property
    def opens(self) -> int | None:
        """The epoch of the voters that begin with it; None for other versions."""
        return self.commit.txns.get(APPLICATION)


def record(after: VoterSet, reached: tuple[Any, ...], time_ms: int, said: str) -> MetadataVersion:
    """The version that says that voters took over.

    Args:
        after: who votes from now on.
        reached: voters from before that answered.
        time_ms: ms since the epoch.
        said: why, for people.
    """
    note = {
        "voters": [voter.broker for voter in after.voters],
        "reached": [voter.broker for voter in reached],
        "why": said,
    }
    wanted = CommitFile(
        version=0,
        time_ms=time_ms,
        operation=TAKEN_OVER,
        append_id=uuid.uuid4().hex,
        txns={APPLICATION: after.epoch},
        note=note,
    )
    return MetadataVersion(wanted.content())


# --- names -------------------------------------------------------------------------------------------


def folder_of(voter: Voter) -> str:
    """Folder of a voter's registers."""
    return f"{QUORUM}/{voter.id}"


def register_name(voter: Voter, slot: int, place: int) -> str:
    """File of one request of a row.

    Args:
        voter: whose register it is.
        slot: the version that is decided; below 0: who votes next.
        place: the number of the request in its row, from 0.
    """
    row = "next" if slot < 0 else f"{slot:020d}"
    return f"{folder_of(voter)}/{row}.{place:06d}"


def slot_of(name: str) -> int | None:
    """The version whose row a file of that folder is in; None for any other."""
    stem, _, place = name.partition(".")
    return int(stem) if place.isdigit() and stem.isdigit() else None


def identity_name(voter: Voter) -> str:
    """The file that says that a root is this voter."""
    return f"{folder_of(voter)}/voter"


CLOSED: Final = b"closed"
"""What is in the file of a voter that votes no more. One that votes has an empty one."""


def open_name(voter: Voter) -> str:
    """The file that says whether it votes."""
    return f"{folder_of(voter)}/open"


def mark_name(epoch: int) -> str:
    """The file that names a set."""
    return f"_delta_log/_voters.{epoch:010d}.json"


def epoch_of(name: str) -> int | None:
    """The epoch of a set whose file in `_delta_log` has this name; None for any other."""
    match = _MARK.fullmatch(name)
    return int(match[1]) if match else None


# --- contents ----------------------------------------------------------------------------------------


def set_content(voters: VoterSet) -> bytes:
    """The file of a set."""
    said = {
        "v": 1,
        "epoch": voters.epoch,
        "voters": [voter._asdict() for voter in voters.voters],
        "observers": [voter._asdict() for voter in voters.observers],
    }
    return json.dumps(said).encode()


def set_in(content: bytes) -> VoterSet:
    """The same backwards.

    Raises:
        OSError: it is damaged.
    """
    try:
        said = json.loads(content)
        voters, observers = (
            tuple(Voter(int(v["broker"]), str(v["id"]), str(v["uri"])) for v in said[kind])
            for kind in ("voters", "observers")
        )
        return VoterSet(int(said["epoch"]), voters, observers)
    except (ValueError, KeyError, TypeError) as cause:
        raise OSError(f"the file of a set of voters is damaged: {cause!r}") from cause


def request_content(request: Request) -> bytes:
    """The file of a request: a line that says what it is, and the value."""
    head: dict[str, Any] = {"ballot": list(request.ballot)}
    value = b""
    if isinstance(request, Accept):
        if isinstance(request.value, MetadataVersion):
            head["accept"], value = "version", request.value.data
        elif isinstance(request.value, VoterSet):
            head["accept"], value = "voters", set_content(request.value)
        else:
            head["accept"], value = "nothing", str(request.value).encode()
    head["crc"] = zlib.crc32(value)
    return json.dumps(head).encode() + b"\n" + value


def request_in(content: bytes) -> Request:
    """The same backwards.

    Raises:
        OSError: it is damaged.
    """
    line, _, value = content.partition(b"\n")
    try:
        head = json.loads(line)
        ballot = Ballot(int(head["ballot"][0]), str(head["ballot"][1]))
        sound = head["crc"] == zlib.crc32(value)
        kind = head.get("accept")
    except (ValueError, KeyError, TypeError, IndexError) as cause:
        raise OSError(f"a register is damaged: {cause!r}") from cause
    if not sound:
        raise OSError("a register is damaged: it does not match its checksum")
    if kind is None:
        return Prepare(ballot)
    if kind == "version":
        return Accept(ballot, MetadataVersion(value))
    return Accept(ballot, set_in(value) if kind == "voters" else value.decode())
