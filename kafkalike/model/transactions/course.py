"""Courses: what a transaction's caller wants in, the acts in their order out.

The order of the acts is what the guarantees rest on, so it stands here, without any input or output: a course yields
what is to be done next, and is sent what came of it, or gets the error thrown in. A simulation and the log carry the
acts out. Any process may stop between any two acts for ever, or go on years later.

Three orders matter most. Files of a transaction are removed only after its outcome is a row, and after all topics have
it if that is "committed". A row of an id follows its decision only when that is in all topics. And a topic gets
decisions in the order of their rows: so the number of the last one says that it has all before it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kafkalike.errors import (
    InvalidProducerEpochError,
    KafkaError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
)
from kafkalike.model.appends import Appended
from kafkalike.model.transactions.groups import Groups
from kafkalike.model.transactions.rules import (
    UnsettledError,
    Wanted,
    check_not_behind,
    committed_as,
    expired,
    is_open,
    pending,
    plan_abort,
    plan_commit,
    plan_drop,
    plan_fence,
    plan_forget,
    plan_init,
)
from kafkalike.model.transactions.unsettled import Due
from kafkalike.model.transactions.values import Attempt, Committed, Entries, Folder, Part, Standing, Topic, Why
from kafkalike.model.transactions.views import LostPart, TopicCut


@dataclass(frozen=True, slots=True)
class LookAtGroups:
    """Look at the groups' table. Comes to `Groups`."""


@dataclass(frozen=True, slots=True)
class LookAtTopics:
    """Look at the cluster's topics. Comes to their ids by name."""


Plan = Callable[[Groups, int], "Entries | None"]
"""Rows of the groups' table and a time, ms; None when nothing is to be written. It may be called several times."""


@dataclass(frozen=True, slots=True)
class Write:
    """Change the groups' table by a plan of what it is then. Comes to `Groups`, after it.

    What the plan raises comes out, and nothing is written then.
    """

    plan: Plan
    step: str
    """What for: `begin`, `commit`, `abort`, `fence`, `forget` or `leave_out`."""


@dataclass(frozen=True, slots=True)
class LookAtTopic:
    """Look at a topic's table. Comes to the number of the last decision that it has, or None when the topic is gone."""

    topic: Topic
    fresh: bool = True
    """False: what was seen before will do, which is the same number or a lower one."""


@dataclass(frozen=True, slots=True)
class Apply:
    """Append the records of a decision, unless the topic has it or a later one. Comes to `Appended`; None: it is gone.

    The table's version says which decision it brings: no two of them bring one.
    """

    committed: Committed
    part: Part


@dataclass(frozen=True, slots=True)
class Find:
    """Where the records of a decision are that the topic has. Comes to `Appended`."""

    committed: Committed
    part: Part


@dataclass(frozen=True, slots=True)
class CutAt:
    """The newest version of a topic that has no decision after one. Comes to `TopicCut`, or None: the topic is gone."""

    topic: Topic
    seq: int


@dataclass(frozen=True, slots=True)
class Beside:
    """Carry out courses, side by side. Comes to what each has returned, or the `KafkaError` that it has raised."""

    courses: Sequence[Course]


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the staged files of transactions. Failing is harmless. Comes to nothing.

    Without a number, those of all transactions of the epoch.
    """

    producer_id: int
    epoch: int
    number: int | None = None


@dataclass(frozen=True, slots=True)
class ListFolders:
    """Look which transactions have staged files. Comes to a list of `Folder`."""


Act = LookAtGroups | LookAtTopics | Write | LookAtTopic | Apply | Find | CutAt | Beside | Remove | ListFolders
Course = Generator[Act, Any, Any]


def rolling(topic: Topic, known: Groups, upto: int, wanted: int = 0) -> Generator[Act, Any, Appended | None]:
    """Bring decisions into a topic, all up to one, in their order.

    Args:
        topic: which one.
        known: the groups' table at row `upto` or later.
        upto: number of the last decision that is wanted.
        wanted: number of the decision whose place is asked for; 0 for none.

    Returns:
        That place; None when the topic is gone, or nothing is asked for.
    """
    applied = yield LookAtTopic(topic, fresh=False)
    todo = _missing(known, topic, applied, upto)
    if any(due.seq != wanted for due in todo):
        # Others' decisions are most probably there, and reading their files would be in vain.
        applied = yield LookAtTopic(topic)
        todo = _missing(known, topic, applied, upto)
    if applied is None:
        return None
    if applied > known.seq:
        check_not_behind((yield LookAtGroups()), topic, applied)
    place: Appended | None = None
    for due in todo:
        done = yield Apply(due.committed, due.part)
        if done is None:
            return None
        if due.seq == wanted:
            place = done
    return place


def _missing(known: Groups, topic: Topic, applied: int | None, upto: int) -> Sequence[Due]:
    return () if applied is None else pending(known, topic.topic_id, applied, upto)


def looking(topic: Topic) -> Generator[Act, Any, int | None]:
    """Look which decision a topic has last; None when it is gone."""
    last: int | None = yield LookAtTopic(topic)
    return last


def settling(known: Groups, committed: Committed) -> Generator[Act, Any, dict[str, Appended]]:
    """Bring a decision into all of its topics.

    Returns:
        Its place by topic; those that are gone are missing.

    Raises:
        KafkaError: what went wrong at the first topic that failed; all have been tried.
    """
    results = yield Beside([_settling(known, committed, part) for part in committed.parts])
    for result in results:
        if isinstance(result, KafkaError):
            raise result
    return {part.topic.name: place for part, place in zip(committed.parts, results, strict=True) if place is not None}


def _settling(known: Groups, committed: Committed, part: Part) -> Generator[Act, Any, Appended | None]:
    place = yield from rolling(part.topic, known, committed.seq, committed.seq)
    if place is None:
        # The topic is gone or was left out of it, or somebody else was there first.
        applied = yield LookAtTopic(part.topic)
        if applied is not None and applied >= committed.seq:
            place = yield Find(committed, part)
    return place


def beginning(transactional_id: str, *, timeout_ms: int, client_id: str) -> Generator[Act, Any, Standing]:
    """What `init_transactions` does. Returns how the id stands, with the new epoch."""

    def plan(settled: int) -> Plan:
        def rows(groups: Groups, now_ms: int) -> Entries:
            return plan_init(
                groups, transactional_id, settled=settled, timeout_ms=timeout_ms, client_id=client_id, now_ms=now_ms
            )

        return rows

    before, made = yield from _taking_over(transactional_id, plan, "begin")
    assert made is not None
    if before is not None:
        yield Remove(before.producer_id, before.epoch)
    return made


def committing(wanted: Wanted) -> Generator[Act, Any, tuple[Committed, dict[str, Appended]]]:
    """What `commit_transaction` does. Returns the decision, and its place by topic.

    Raises: see `TransactionSession.commit`.
    """
    known, committed = yield from deciding(wanted)
    places = yield from finishing(known, committed)
    return committed, places


def finishing(known: Groups, committed: Committed) -> Generator[Act, Any, dict[str, Appended]]:
    """Bring a decision into all of its topics, then remove its files. Returns its place by topic."""
    places = yield from settling(known, committed)
    yield Remove(*committed.attempt)
    return places


def deciding(wanted: Wanted) -> Generator[Act, Any, tuple[Groups, Committed]]:
    """Write the decision, unless it is there. Returns the groups' table after it, and the decision with its parts."""
    topics: Mapping[str, str] = {}
    if wanted.parts or any(wanted.offsets.values()):
        topics = yield LookAtTopics()
    applied: dict[Topic, int | None] = {}
    for part in wanted.parts:
        applied[part.topic] = yield LookAtTopic(part.topic, fresh=False)
    decided: list[Committed] = []

    def plan(groups: Groups, now_ms: int) -> Entries | None:
        for topic, number in applied.items():
            check_not_behind(groups, topic, number or 0)
        made = plan_commit(groups, wanted, topics, now_ms)
        if made is None:
            found = committed_as(groups, wanted.transactional_id, wanted.attempt)
        else:
            assert made.standing is not None
            found = made.standing.committed
        assert found is not None
        decided[:] = [found]
        return made

    groups = yield Write(plan, "commit")
    return groups, replace(decided[0], parts=wanted.parts)


def aborting(transactional_id: str, attempt: Attempt, *, settled: int, in_doubt: bool) -> Generator[Act, Any, None]:
    """What `abort_transaction` does.

    Raises: see `TransactionSession.abort`.
    """
    try:
        yield Write(
            lambda groups, now_ms: plan_abort(
                groups, transactional_id, attempt, settled=settled, in_doubt=in_doubt, now_ms=now_ms
            ),
            "abort",
        )
    except (ProducerFencedError, InvalidProducerEpochError):
        # It is over, one way or the other: if it was committed, all topics have it, as the epoch rose after that.
        yield Remove(*attempt)
        raise
    yield Remove(*attempt)


def fencing(transactional_id: str, why: Why, only: Attempt | None = None) -> Generator[Act, Any, Standing | None]:
    """Shut a producer out, and abort what is open; see `plan_fence`. Returns how the id stands then.

    With `only`, None when the transaction that is meant was not open any more.
    """

    def plan(settled: int) -> Plan:
        def rows(groups: Groups, now_ms: int) -> Entries | None:
            return plan_fence(groups, transactional_id, why=why, settled=settled, now_ms=now_ms, only=only)

        return rows

    before, made = yield from _taking_over(transactional_id, plan, "fence")
    if made is not None and before is not None:
        yield Remove(before.producer_id, before.epoch)
    return made


def _taking_over(
    transactional_id: str, plan: Callable[[int], Plan], step: str
) -> Generator[Act, Any, tuple[Standing | None, Standing | None]]:
    """Settle what an id has decided, and write the next row of it; again when it has decided more meanwhile.

    Returns:
        How it stood before, and how it does now; None where nothing was written.
    """
    while True:
        known = yield LookAtGroups()
        settled = yield from _settled(known, transactional_id)
        seen: list[tuple[Standing | None, Entries | None]] = []
        rows = plan(settled)

        def noted(groups: Groups, now_ms: int, rows: Plan = rows, seen: list[Any] = seen) -> Entries | None:
            made = rows(groups, now_ms)
            seen[:] = [(groups.transactions.get(transactional_id), made)]
            return made

        try:
            yield Write(noted, step)
        except UnsettledError:
            continue
        ((before, made),) = seen
        return before, None if made is None else made.standing


def _settled(known: Groups, transactional_id: str) -> Generator[Act, Any, int]:
    """Bring what an id has decided into all topics, and returns its number; 0 where there is nothing to bring."""
    standing = known.transactions.get(transactional_id)
    unsettled = None if standing is None else standing.unsettled
    if unsettled is None:
        return 0
    yield from finishing(known, unsettled)
    return unsettled.seq


def maintaining(expiration_ms: int, now_ms: int) -> Generator[Act, Any, list[KafkaError]]:
    """What maintenance does: settle, abort what hangs, forget ids, remove files.

    Args:
        expiration_ms: `transactional.id.expiration.ms`.
        now_ms: the time.

    Returns:
        What could not be done.
    """
    # The files first: what was begun after this look at them is none of theirs.
    folders: Sequence[Folder] = yield ListFolders()
    known: Groups = yield LookAtGroups()
    problems: list[KafkaError] = []
    settled = yield from _settling_all(known, problems)
    names = {standing.producer_id: name for name, standing in known.transactions.items()}
    courses: list[Course] = []
    for folder in folders:
        name = names.get(folder.attempt.producer_id)
        standing = None if name is None else known.transactions[name]
        if name is not None and standing is not None and is_open(standing, folder.attempt):
            if folder.age_ms > standing.timeout_ms:
                courses.append(fencing(name, Why.TIMEOUT, folder.attempt))
        elif standing is None or is_over(standing, folder.attempt, settled):
            yield Remove(*folder.attempt)
    opened = {folder.attempt.producer_id for folder in folders}
    for name, standing in known.transactions.items():
        # One whose files are there is used, or will be aborted first.
        if expired(standing, expiration_ms, now_ms) and standing.producer_id not in opened:
            courses.append(_forgetting(name, standing, settled, expiration_ms))
    results = yield Beside(courses)
    return [*problems, *(result for result in results if isinstance(result, KafkaError))]


def is_over(standing: Standing, attempt: Attempt, settled: Mapping[int, bool]) -> bool:
    """Whether nobody needs the files of a transaction any more.

    Args:
        standing: how its id stands.
        attempt: the transaction; not open.
        settled: numbers of decisions that were seen to be in all topics.
    """
    unsettled = standing.unsettled
    if unsettled is not None and unsettled.attempt == attempt:
        return settled.get(unsettled.seq, False)
    # A later epoch than what is known: begun after the look.
    return (attempt.producer_id, attempt.epoch) <= (standing.producer_id, standing.epoch)


def _settling_all(known: Groups, problems: list[KafkaError]) -> Generator[Act, Any, dict[int, bool]]:
    """Bring all decisions into their topics. Returns which of them are settled, by number."""
    decisions = [d for standing in known.transactions.values() if (d := standing.unsettled) is not None]
    topics = sorted({part.topic for decision in decisions for part in decision.parts})
    results = yield Beside([rolling(topic, known, known.seq) for topic in topics])
    failed: set[Topic] = set()
    for topic, result in zip(topics, results, strict=True):
        if isinstance(result, KafkaError):
            failed.add(topic)
            problems.append(result)
    return {d.seq: failed.isdisjoint(part.topic for part in d.parts) for d in decisions}


def forgetting(transactional_id: str, settled: int) -> Generator[Act, Any, None]:
    """Forget an id that is not used again; nothing where it was used by somebody else meanwhile.

    Args:
        transactional_id: which one.
        settled: number of its last decision, which is in all topics; 0 for none.
    """

    def rows(groups: Groups, now_ms: int) -> Entries | None:
        return plan_forget(groups, transactional_id, settled=settled, expiration_ms=0, now_ms=now_ms)

    try:
        yield Write(rows, "forget")
    except UnsettledError:
        return


def _forgetting(
    name: str, standing: Standing, settled: Mapping[int, bool], expiration_ms: int
) -> Generator[Act, Any, None]:
    unsettled = standing.unsettled
    if unsettled is not None and not settled[unsettled.seq]:
        return
    number = 0 if unsettled is None else unsettled.seq
    try:
        yield Write(
            lambda groups, now_ms: plan_forget(
                groups, name, settled=number, expiration_ms=expiration_ms, now_ms=now_ms
            ),
            "forget",
        )
    except UnsettledError:
        # It was used just now.
        return


def cutting(topics: Sequence[Topic]) -> Generator[Act, Any, tuple[Groups, list[TopicCut]]]:
    """One moment of several topics. Returns the groups' table then, and the topics, in order.

    What was decided by then comes into all of them first. What was decided later may be there already; the version
    before it is the one.

    Raises:
        UnknownTopicOrPartitionError: one of the topics is gone.
        KafkaError: what went wrong at the first topic that failed.
    """
    known: Groups = yield LookAtGroups()
    found = yield Beside([_cutting(topic, known) for topic in topics])
    for topic, cut in zip(topics, found, strict=True):
        if isinstance(cut, KafkaError):
            raise cut
        if cut is None:
            message = f"topic {topic.name!r} was deleted meanwhile"
            raise UnknownTopicOrPartitionError(message)
    return known, found


def _cutting(topic: Topic, known: Groups) -> Generator[Act, Any, TopicCut | None]:
    yield from rolling(topic, known, known.seq)
    cut = yield CutAt(topic, known.seq)
    return cut  # type: ignore[no-any-return]


def helping(late: Mapping[Topic, int], known: Groups) -> Generator[Act, Any, list[KafkaError]]:
    """Bring decisions into some topics.

    Args:
        late: by topic, the number of the last one that is wanted.
        known: the groups' table, at the highest of them or later.

    Returns:
        What went wrong.
    """
    results = yield Beside([rolling(topic, known, upto) for topic, upto in late.items()])
    return [result for result in results if isinstance(result, KafkaError)]


def leaving_out(lost: LostPart) -> Generator[Act, Any, bool]:
    """Take a topic out of a decision whose records for it are lost. Returns whether it was still in it."""
    done: list[bool] = []

    def plan(groups: Groups, now_ms: int) -> Entries | None:
        made = plan_drop(groups, lost.transactional_id, lost.seq, lost.topic_id, now_ms)
        done[:] = [made is not None]
        return made

    yield Write(plan, "leave_out")
    return done[0]
