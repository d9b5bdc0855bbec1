"""Voter files: the files that voters of the metadata keep beside the table: names, contents and values.

In the table's folder of each voter, with `<id>` for its name in a set of voters:

* `_quorum/<id>/<version>.<place>`: its registers, a row of files for each version.
* `_quorum/<id>/voter`: identifies the root as that voter; a root without it is another one, or an empty one.
* `_quorum/<id>/open`: empty while the voter votes; `closed` for good once other voters have taken over.
* `_delta_log/_voters.<epoch>.json`: a set of voters; a set of a later epoch supersedes it.
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
"""The folder of the voters' own files, which are not part of the table."""

TAKEN_OVER: Final = "VOTERS"
"""The operation of the first version of new voters."""

APPLICATION: Final = "kafkalike.voters"
"""The application id of the Delta transaction in such a version; its version is the epoch of the set."""

_MARK: Final = re.compile(r"_voters\.(\d{10})\.json")


class Voter(NamedTuple):
    """A root as a voter of one set."""

    broker: int
    id: str
    """Its name in this set; unique among all sets."""
    uri: str
    """The location of the root when the set was made."""


class MetadataVersion(NamedTuple):
    """The content of a version, byte by byte; a value of registers."""

    data: bytes

    @property
    def commit(self) -> TableCommit:
        """The parsed commit, except for its number.

        Raises:
            LogCorruptError: it is damaged.
        """
        return parse_commit(0, self.data, "a voter")

    @property
    def opens(self) -> int | None:
        """The epoch of the voters that start with this version; None for other versions."""
        return self.commit.txns.get(APPLICATION)


def record(after: VoterSet, reached: tuple[Any, ...], time_ms: int, said: str) -> MetadataVersion:
    """Return the version that records a takeover.

    Args:
        after: the new voters.
        reached: the previous voters that answered.
        time_ms: ms since the epoch.
        said: the reason, for people.
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
    """Return the folder of a voter's registers."""
    return f"{QUORUM}/{voter.id}"


def register_name(voter: Voter, slot: int, place: int) -> str:
    """Return the file of one request in a row.

    Args:
        voter: the voter with the register.
        slot: the version to decide; below 0: the next set of voters.
        place: the number of the request in its row, from 0.
    """
    row = "next" if slot < 0 else f"{slot:020d}"
    return f"{folder_of(voter)}/{row}.{place:06d}"


def slot_of(name: str) -> int | None:
    """Return the version to which a file of that folder belongs; None for other files."""
    stem, _, place = name.partition(".")
    return int(stem) if place.isdigit() and stem.isdigit() else None


def identity_name(voter: Voter) -> str:
    """Return the file that identifies a root as this voter."""
    return f"{folder_of(voter)}/voter"


CLOSED: Final = b"closed"
"""The content of the `open` file of a voter that has stopped voting; it is empty while the voter votes."""


def open_name(voter: Voter) -> str:
    """Return the file that tells whether the voter votes."""
    return f"{folder_of(voter)}/open"


def mark_name(epoch: int) -> str:
    """Return the file that names a set of voters."""
    return f"_delta_log/_voters.{epoch:010d}.json"


def epoch_of(name: str) -> int | None:
    """Return the epoch of a file in `_delta_log` that names a set of voters; None for other files."""
    match = _MARK.fullmatch(name)
    return int(match[1]) if match else None


# --- contents ----------------------------------------------------------------------------------------


def set_content(voters: VoterSet) -> bytes:
    """Return the content of the file that names a set of voters."""
    said = {
        "v": 1,
        "epoch": voters.epoch,
        "voters": [voter._asdict() for voter in voters.voters],
        "observers": [voter._asdict() for voter in voters.observers],
    }
    return json.dumps(said).encode()


def set_in(content: bytes) -> VoterSet:
    """Parse the file that names a set of voters.

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
    """Return the content of the file of a request: a line that describes it, and the value."""
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
    """Parse the file of a request.

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
