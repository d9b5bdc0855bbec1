"""Transaction effects: what the protocols of transactions ask their runner to do, with the answer's type."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafkalike.model.effects import Effect
from kafkalike.model.record_batch import Appended
from kafkalike.model.transactions.group_claims import Groups
from kafkalike.model.transactions.transaction_views import TopicCut
from kafkalike.model.transactions.transactional_id import (
    CommittedTransaction,
    Entries,
    StagedFolder,
    TopicLife,
    TransactionPart,
)


@dataclass(frozen=True, slots=True)
class LookAtGroups(Effect[Groups]):
    """Look at the groups' table. Comes to `Groups`."""


@dataclass(frozen=True, slots=True)
class LookAtTopics(Effect[Mapping[str, str]]):
    """Look at the cluster's topics. Comes to their ids by name."""


Plan = Callable[[Groups, int], "Entries | None"]
"""Rows of the groups' table and a time, ms; None when nothing is to be written. It may be called several times."""


@dataclass(frozen=True, slots=True)
class Write(Effect[Groups]):
    """Change the groups' table by a plan of what it is then. Comes to `Groups`, after it.

    What the plan raises comes out, and nothing is written then.
    """

    plan: Plan
    step: str
    """What for: `begin`, `commit`, `abort`, `fence`, `forget` or `leave_out`."""


@dataclass(frozen=True, slots=True)
class LookAtTopic(Effect[int | None]):
    """Look at a topic's table. Comes to the number of the last decision that it has, or None when the topic is gone."""

    topic: TopicLife
    fresh: bool = True
    """False: what was seen before will do, which is the same number or a lower one."""


@dataclass(frozen=True, slots=True)
class Apply(Effect[Appended | None]):
    """Append the records of a decision, unless the topic has it or a later one. Comes to `Appended`; None: it is gone.

    The table's version says which decision it brings: no two of them bring one.
    """

    committed: CommittedTransaction
    part: TransactionPart


@dataclass(frozen=True, slots=True)
class Find(Effect[Appended | None]):
    """Where the records of a decision are that the topic has. Comes to `Appended`."""

    committed: CommittedTransaction
    part: TransactionPart


@dataclass(frozen=True, slots=True)
class CutAt(Effect[TopicCut | None]):
    """The newest version of a topic that has no decision after one. Comes to `TopicCut`, or None: the topic is gone."""

    topic: TopicLife
    seq: int


@dataclass(frozen=True, slots=True)
class Beside(Effect[list[Any]]):
    """Carry out protocols, side by side. Comes to what each has returned, or the `KafkaError` that it has raised."""

    protocols: Sequence[TransactionProtocol]


@dataclass(frozen=True, slots=True)
class Remove(Effect[None]):
    """Remove the staged files of transactions. Failing is harmless. Comes to nothing.

    Without a number, those of all transactions of the epoch.
    """

    producer_id: int
    epoch: int
    number: int | None = None


@dataclass(frozen=True, slots=True)
class ListFolders(Effect[Sequence[StagedFolder]]):
    """Look which transactions have staged files. Comes to a list of `Folder`."""


TransactionEffect = (
    LookAtGroups | LookAtTopics | Write | LookAtTopic | Apply | Find | CutAt | Beside | Remove | ListFolders
)
TransactionProtocol = Generator[TransactionEffect, Any, Any]
