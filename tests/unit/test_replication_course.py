"""Single turns of replication's courses that take damage, or a very late process, to come about."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

import pytest

from kafkalike.model.replication import acts, course, joining
from kafkalike.model.replication.values import (
    Configuration,
    FellBehindError,
    Loss,
    Registration,
    Replica,
    UnreachableError,
    View,
)

ONE, TWO = Replica(1), Replica(2)


class Content(NamedTuple):
    append_id: str
    configuration: Configuration | None = None


def answered(steps: Generator[acts.Act, Any, Any], *answers: Any) -> Any:
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
        answered(course.deciding(ONE, 5, Content("a")), created, None, -1)


def test_a_version_that_the_source_lacks_means_that_this_process_is_late() -> None:
    fourth = Content("a")
    last_is_right = (-1, fourth, fourth, -1)

    with pytest.raises(FellBehindError):
        answered(course.bringing(TWO, ONE, 5), 4, -1, -1, *last_is_right, None, -1)


def test_the_log_of_a_replica_that_lacks_the_last_version_is_not_cleaned_up() -> None:
    """Its root was exchanged, or the log knows more than this process does."""
    view = View(Configuration(0, (ONE, TWO)), 5)

    assert answered(joining.cleaning(ONE, view, 2), None, -1, None) is None


def test_nobody_joins_while_a_newer_seal_is_met() -> None:
    """Nor is one that is joining counted."""
    view = View(Configuration(0, (ONE, TWO)), 5)
    newer = Content("s", Configuration(3, (ONE,)))
    nobody = Registration(1, (ONE, TWO))
    two = Registration(1, (ONE, TWO), TWO)

    # At the leader the log ends; the decider has the seal.
    assert answered(joining.joining(3, nobody, view, {}), None, -1, newer, -1) is None
    assert answered(joining.joining(2, two, view, {}), None, -1, newer, -1) is None


def test_who_was_let_in_by_somebody_else_meanwhile_is_not_let_in_twice() -> None:
    """The helper that asks for it has looked before, and found it out of sync."""
    view = View(Configuration(1, (ONE, TWO)), 5)

    assert list(joining.joining(2, Registration(1, (ONE, TWO)), view, {})) == []


def test_a_controller_that_says_something_else_by_now_is_asked_again() -> None:
    """Nobody leaves, nor is chosen, on what it said before."""
    registered = Registration(1, (ONE, TWO))
    changed = False

    assert answered(joining.leaving(TWO, registered, View(registered.configuration, 5), {}), changed) is None
    assert answered(joining.choosing_unclean(ONE), registered) is None
    assert answered(joining.choosing_unclean(Replica(3, 5)), registered) is None
    assert answered(joining.giving_up(3), registered, 7, changed) is None


def test_the_log_of_a_replica_that_left_is_not_cleaned_up() -> None:
    view = View(Configuration(0, (TWO,)), 5)

    # At the leader the log ends there.
    assert answered(joining.cleaning(ONE, view, 2), None, -1) is None


def test_a_newer_seal_that_is_met_does_not_count_before_it_is_published() -> None:
    """The view stays what it was: the controller is asked again."""
    view = View(Configuration(0, (ONE, TWO)), 5)
    newer = Content("s", Configuration(2, (ONE,)))
    registered = Registration(1, (ONE, TWO))

    # At the leader the log ends; the decider has the seal.
    assert answered(course.sealing(view, registered, {}), None, -1, newer, -1) == view


# --- versions that are looked up ------------------------------------------------------------------

TWO_IN_SYNC = Registration(3, (ONE, TWO))
VIEW = View(TWO_IN_SYNC.configuration, 5)
ANOTHER = Content("a")
COUNTS, NOT = True, False


def asked(steps: Generator[acts.Act, Any, Any], *answers: Any) -> tuple[list[acts.Act], Any]:
    """What a course asks for with these answers, of which errors are raised, and what it returns."""
    found: list[acts.Act] = [steps.send(None)]
    try:
        for answer in answers:
            act = steps.throw(answer) if isinstance(answer, Exception) else steps.send(answer)
            found += [act]
    except StopIteration as end:
        return found, end.value
    pytest.fail("it wants more answers")


def test_a_version_is_read_at_the_leader_and_then_asked_whether_it_counts() -> None:
    found, content = asked(course.looking_up(4, VIEW, TWO_IN_SYNC), ANOTHER, COUNTS)

    assert found == [acts.Read(TWO, 4), acts.Counts(TWO, 4)]
    assert content == ANOTHER


def test_where_it_does_not_count_the_next_one_is_asked() -> None:
    found, content = asked(course.looking_up(4, VIEW, TWO_IN_SYNC), Content("own"), NOT, ANOTHER, COUNTS)

    assert found[2:] == [acts.Read(ONE, 4), acts.Counts(ONE, 4)]
    assert content == ANOTHER


def test_nobody_has_it_any_more() -> None:
    """Also where one gives no answer: the other one has a checkpoint above."""
    lost = UnreachableError(ONE)

    assert asked(course.looking_up(4, VIEW, TWO_IN_SYNC), Content("own"), NOT, None, NOT)[1] is None
    assert asked(course.looking_up(4, VIEW, TWO_IN_SYNC), Content("own"), NOT, lost)[1] is None
    with pytest.raises(UnreachableError):
        asked(course.looking_up(4, VIEW, TWO_IN_SYNC), UnreachableError(TWO), lost)


def test_where_the_log_knows_a_later_configuration_its_leader_is_asked() -> None:
    """What the controller says may be of long ago: who was in sync then may have versions of its own by now."""
    three = Replica(3)
    later = View(Configuration(4, (TWO, three)), 9)

    found, content = asked(course.looking_up(4, later, TWO_IN_SYNC), ANOTHER, COUNTS)

    assert found == [acts.Read(three, 4), acts.Counts(three, 4)]
    assert content == ANOTHER


def test_a_log_that_was_given_up_is_not_read_on() -> None:
    given_up = TWO_IN_SYNC._replace(epoch=6, losses=(Loss(6, TWO, 3, (ONE,)),))

    with pytest.raises(FellBehindError):
        asked(course.looking_up(4, VIEW, given_up))
