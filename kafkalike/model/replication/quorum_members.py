"""MetadataQuorum: who decides about topics, leaders and brokers, and what a recovery finds, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumMember:
    """A root that votes, or has a copy of what was decided."""

    broker: int
    uri: str
    """Where the root was when it was named."""
    id: str
    """Its name among these voters."""
    votes: bool
    version: int | None
    """The last version of the metadata that it has; None: it gives no answer."""
    time_ms: int | None
    """When that was written there, ms since the epoch, by the root's own clock."""

    @property
    def log_end(self) -> int:
        """Kafka's `LogEndOffset`: the version after the last one; -1: it gives no answer."""
        return -1 if self.version is None else self.version + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataQuorum:
    """Who decides."""

    cluster_id: str
    epoch: int
    """How many times others have taken over."""
    members: Sequence[QuorumMember]

    @property
    def version(self) -> int:
        """The newest version that anybody in reach has; -1 when there is none."""
        return max((m.version for m in self.members if m.version is not None), default=-1)

    def caught_up_ms(self, member: QuorumMember) -> int | None:
        """When a member got the newest version, ms since the epoch; None: it has not, or nobody knows."""
        return member.time_ms if member.version == self.version else None

    @property
    def majority(self) -> bool:
        """Whether so many voters answer that something can be decided."""
        voters = [member for member in self.members if member.votes]
        return sum(member.version is not None for member in voters) > len(voters) // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What a recovery would do, or has done."""

    lost: Sequence[int]
    """Brokers that voted, and give no answer."""
    voters: Sequence[int]
    """Brokers that vote from then on."""
    version: int
    """The newest version of the metadata that is left."""
    sure: bool
    """Whether nothing that was decided can be missing: a majority of the voters answers."""
    adopted: Sequence[int] = ()
    """Versions that were decided, or about to be, and that no voter had published."""
    findings: Sequence[str] = ()
    """What is, or may be, lost; a sentence each."""
    done: bool = False
