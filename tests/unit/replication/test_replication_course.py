"""Single turns of replication's courses that take damage, or a very late process, to come about."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import pytest

from kafkalike.model.replication import isr_changes
from kafkalike.model.replication import replica_effects as effects
from kafkalike.model.replication import replica_protocol as protocol
from kafkalike.model.replication.registration import (
    Configuration,
    FellBehindError,
    OtherBytesError,
    Registration,
    Replica,
    UncleanElection,
    UnreachableError,
    View,
)

ONE, TWO = Replica(1), Replica(2)


class Content(NamedTuple):
    append_id: str
    configuration: Configuration | None = None


def answered(steps: Generator[effects.ReplicaEffect, Any, Any], *answers: Any) -> Any:
    """Carry a course out with these answers, in order; what it returns."""
    steps.send(None)
    try:
        for answer in answers:
            steps.send(answer)
    except StopIteration as end:
        return end.value
    pytest.fail("it wants more answers")


def test_a_version_that_refused_a_put_and_is_gone_means_that_this_process_is_late() -> None:
    created = False

    with pytest.raises(FellBehindError):
        answered(protocol.deciding(ONE, 5, Content("a")), created, None, -1)


def test_a_version_that_the_source_lacks_means_that_this_process_is_late() -> None:
    fourth = Content("a")
    last_is_right = (-1, fourth, fourth, -1)

    with pytest.raises(FellBehindError):
        answered(protocol.bringing(TWO, ONE, 5), 4, -1, -1, *last_is_right, None, -1)


def test_the_log_of_a_replica_that_lacks_the_last_version_is_not_cleaned_up() -> None:
    """Its root was exchanged, or the log knows more than this process does."""
    view = View(Configuration(0, (ONE, TWO)), 5)

    assert answered(isr_changes.cleaning(ONE, view, 2), None, -1, None) is None


def test_nobody_joins_while_a_newer_seal_is_met() -> None:
    """Nor is one that is joining counted."""
    view = View(Configuration(0, (ONE, TWO)), 5)
    newer = Content("s", Configuration(3, (ONE,)))
    nobody = Registration(1, (ONE, TWO))
    two = Registration(1, (ONE, TWO), TWO)

    # At the leader the log ends; the decider has the seal.
    assert answered(isr_changes.joining(3, nobody, view, {}), None, -1, newer, -1) is None
    assert answered(isr_changes.joining(2, two, view, {}), None, -1, newer, -1) is None


def test_who_was_let_in_by_somebody_else_meanwhile_is_not_let_in_twice() -> None:
    """The helper that asks for it has looked before, and found it out of sync."""
    view = View(Configuration(1, (ONE, TWO)), 5)

    assert list(isr_changes.joining(2, Registration(1, (ONE, TWO)), view, {})) == []


def test_a_controller_that_says_something_else_by_now_is_asked_again() -> None:
    """Nobody leaves, nor is chosen, on what it said before."""
    registered = Registration(1, (ONE, TWO))
    changed = False

    assert answered(isr_changes.leaving(TWO, registered, View(registered.configuration, 5), {}), changed) is None
    assert answered(isr_changes.choosing_unclean(ONE), registered) is None
    assert answered(isr_changes.choosing_unclean(Replica(3, 5)), registered) is None
    assert answered(isr_changes.giving_up(3), registered, 7, changed) is None


def test_the_log_of_a_replica_that_left_is_not_cleaned_up() -> None:
    view = View(Configuration(0, (TWO,)), 5)

    # At the leader the log ends there.
    assert answered(isr_changes.cleaning(ONE, view, 2), None, -1) is None


def test_a_newer_seal_that_is_met_does_not_count_before_it_is_published() -> None:
    """The view stays what it was: the controller is asked again."""
    view = View(Configuration(0, (ONE, TWO)), 5)
    newer = Content("s", Configuration(2, (ONE,)))
    registered = Registration(1, (ONE, TWO))

    # At the leader the log ends; the decider has the seal.
    assert answered(protocol.sealing(view, registered, {}), None, -1, newer, -1) == view


# --- versions that are looked up ------------------------------------------------------------------

TWO_IN_SYNC = Registration(3, (ONE, TWO))
VIEW = View(TWO_IN_SYNC.configuration, 5)
ANOTHER = Content("a")
COUNTS, NOT = True, False


def asked(steps: Generator[effects.ReplicaEffect, Any, Any], *answers: Any) -> tuple[list[effects.ReplicaEffect], Any]:
    """What a course asks for with these answers, of which errors are raised, and what it returns."""
    found: list[effects.ReplicaEffect] = [steps.send(None)]
    try:
        for answer in answers:
            act = steps.throw(answer) if isinstance(answer, Exception) else steps.send(answer)
            found += [act]
    except StopIteration as end:
        return found, end.value
    pytest.fail("it wants more answers")


def test_a_version_is_read_at_the_leader_and_then_asked_whether_it_counts() -> None:
    found, content = asked(protocol.looking_up(4, VIEW, TWO_IN_SYNC), ANOTHER, COUNTS)

    assert found == [effects.Read(TWO, 4), effects.Counts(TWO, 4)]
    assert content == ANOTHER


def test_where_it_does_not_count_the_next_one_is_asked() -> None:
    found, content = asked(protocol.looking_up(4, VIEW, TWO_IN_SYNC), Content("own"), NOT, ANOTHER, COUNTS)

    assert found[2:] == [effects.Read(ONE, 4), effects.Counts(ONE, 4)]
    assert content == ANOTHER


def test_nobody_has_it_any_more() -> None:
    """Also where one gives no answer: the other one has a checkpoint above."""
    lost = UnreachableError(ONE)

    assert asked(protocol.looking_up(4, VIEW, TWO_IN_SYNC), Content("own"), NOT, None, NOT)[1] is None
    assert asked(protocol.looking_up(4, VIEW, TWO_IN_SYNC), Content("own"), NOT, lost)[1] is None
    with pytest.raises(UnreachableError):
        asked(protocol.looking_up(4, VIEW, TWO_IN_SYNC), UnreachableError(TWO), lost)


def test_where_the_log_knows_a_later_configuration_its_leader_is_asked() -> None:
    """What the controller says may be of long ago: who was in sync then may have versions of its own by now."""
    three = Replica(3)
    later = View(Configuration(4, (TWO, three)), 9)

    found, content = asked(protocol.looking_up(4, later, TWO_IN_SYNC), ANOTHER, COUNTS)

    assert found == [effects.Read(three, 4), effects.Counts(three, 4)]
    assert content == ANOTHER


def test_a_log_that_was_given_up_is_not_read_on() -> None:
    given_up = TWO_IN_SYNC._replace(epoch=6, losses=(UncleanElection(6, TWO, 3, (ONE,)),))

    with pytest.raises(FellBehindError):
        asked(protocol.looking_up(4, VIEW, given_up))


# --- versions of other engines --------------------------------------------------------------------

FOREIGN = Content("")
CHAIN = Configuration(0, (ONE, TWO))


def acts_of(steps: Generator[effects.ReplicaEffect, Any, Any], *answers: Any) -> list[effects.ReplicaEffect]:
    """What a course asks until it has had these answers, and one act more if there is one."""
    asked = [steps.send(None)]
    for answer in answers:
        try:
            asked.append(steps.send(answer))
        except StopIteration:
            break
    return asked


def test_files_of_another_engines_version_go_down_the_chain_before_it() -> None:
    view, created = View(CHAIN, 5), True

    asked = acts_of(protocol.publishing(view, Content("a"), {}), FOREIGN, -1, None, created, -1)

    assert asked[2:4] == [effects.Supply(TWO, FOREIGN, ONE, partly=True), effects.Put(TWO, 6, FOREIGN)]


def test_files_of_our_own_version_are_everywhere_already() -> None:
    created = True

    asked = acts_of(protocol.publishing(View(CHAIN, 5), Content("a"), {}), Content("b"), -1, created, -1)

    assert effects.Put(TWO, 6, Content("b")) in asked
    assert not any(isinstance(act, effects.Supply) for act in asked)


@pytest.mark.parametrize(("source_answers", "blamed"), [(True, TWO), (False, ONE)], ids=["target", "source"])
def test_replica_that_gives_no_answer_is_blamed_when_files_are_passed_on(
    source_answers: bool,  # noqa: FBT001
    blamed: Replica,
) -> None:
    steps = protocol.passing_on(TWO, 6, FOREIGN, ONE)
    steps.send(None)
    assert steps.throw(UnreachableError(TWO)) == effects.Checkpoint(ONE)

    with pytest.raises(UnreachableError) as failed:
        _ = steps.send(-1) if source_answers else steps.throw(UnreachableError(ONE))

    assert failed.value.replica == blamed


@pytest.mark.parametrize(
    ("registered", "known"),
    [(None, CHAIN), (Registration(0, (ONE, TWO)), CHAIN), (Registration(2, (ONE, TWO)), Configuration(1, (TWO,)))],
    ids=["nothing registered", "in force", "behind"],
)
@pytest.mark.parametrize("there", [None, Content("x")], ids=["nothing", "another one"])
def test_leader_with_another_engines_version_that_the_head_lacks_is_taken_out(
    registered: Registration | None, known: Configuration, there: Content | None
) -> None:
    with pytest.raises(OtherBytesError) as failed:
        answered(protocol.check_passed_on(TWO, 6, FOREIGN, known, registered), there, 5)

    assert failed.value.replica == TWO


@pytest.mark.parametrize("answers", [(FOREIGN,), (None, 6)], ids=["it has it", "it was cleaned up"])
def test_another_engines_version_that_the_head_had_is_published(answers: tuple[Any, ...]) -> None:
    assert answered(protocol.check_passed_on(TWO, 6, FOREIGN, CHAIN, None), *answers) is None


@pytest.mark.parametrize(
    "known", [Configuration(-1, ()), Configuration(0, (TWO,))], ids=["before the first seal", "one replica"]
)
def test_nobody_else_is_asked_about_another_engines_version_of_one_replica(known: Configuration) -> None:
    assert list(protocol.check_passed_on(TWO, 6, FOREIGN, known, None)) == []


def test_reader_asks_the_head_about_versions_of_other_engines_alone() -> None:
    ours = acts_of(protocol.following(View(CHAIN, 5), {}), Content("a"), -1, None, -1)
    foreign = acts_of(protocol.following(View(CHAIN, 5), {}), FOREIGN, -1, FOREIGN, None, -1)

    assert [act.replica for act in ours if isinstance(act, effects.Read)] == [TWO, TWO]
    assert [act.replica for act in foreign if isinstance(act, effects.Read)] == [TWO, ONE, TWO]


def played(
    steps: Generator[effects.ReplicaEffect, Any, View], answer: Callable[[effects.ReplicaEffect], object]
) -> View:
    """Carry a course out with the answer to each act; what it returns."""
    act = steps.send(None)
    while True:
        try:
            act = steps.send(answer(act))
        except StopIteration as end:
            found: View = end.value
            return found


def test_reader_has_the_leader_listed_again_after_each_batch_of_versions() -> None:
    last = 5 + effects.AHEAD + 1
    batches = list[effects.ReplicaEffect]()

    def answer(act: effects.ReplicaEffect) -> Content | int | None:
        if isinstance(act, effects.Read):
            return Content("a") if act.version <= last else None
        if isinstance(act, effects.Checkpoint):
            return -1
        batches.append(act)
        return None

    end = played(protocol.following(View(CHAIN, 5), {}), answer)

    assert batches == [effects.Ahead(TWO, 5 + effects.AHEAD, effects.AHEAD)]
    assert end == View(CHAIN, last)


def test_replica_that_another_helper_gave_a_checkpoint_meanwhile_is_brought_nothing_below_it() -> None:
    ends_at_4, source, copied_5, ends_at_5 = 4, -1, 5, 5

    asked = acts_of(protocol.bringing(TWO, ONE, 5), ends_at_4, source, copied_5, ends_at_5, copied_5, ends_at_5)

    assert [type(act) for act in asked] == [
        effects.End,
        effects.Checkpoint,
        effects.Checkpoint,
        effects.End,
        effects.Checkpoint,
        effects.End,
    ]
