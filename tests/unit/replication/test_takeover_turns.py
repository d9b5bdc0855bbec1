"""Single turns of takeovers, and of voters that are brought up, which a simulation seldom comes to.

Where voters are away it is the first ones: Python 3.11 tells a measurement of coverage nothing of what a generator does
after one that it waits for has ended with an exception that was thrown into it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import pytest

from kafkalike.model.replication import quorum_protocol, registers, takeover
from kafkalike.model.replication.registers import NoMajorityError, SlotState, UnreachableVoterError, proposing
from kafkalike.model.replication.takeover import NEXT, OtherTakeoverError, VoterSet, taking_over

OLD, NEW = VoterSet(0, ("a", "b", "c")), VoterSet(1, ("d", "e", "f"))


class Content(NamedTuple):
    name: str
    opens: int | None = None


class Folders:
    """What voters hold; nothing happens to them but what a course does."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], list[Any]] = {}
        self.log: dict[str, dict[int, Any]] = {}
        self.checkpoints: dict[str, int] = {}
        self.marks: dict[str, VoterSet] = {}
        self.opened: set[str] = set()
        self.away: set[str] = set()
        self.numbers = itertools.count()
        self.before: Callable[[Any], object] = lambda _: None
        """Sees each act first."""

    def last(self, voter: str) -> int:
        return max((self.checkpoints.get(voter, -1), *self.log.get(voter, {})))

    def do(self, act: Any) -> Any:  # noqa: C901, PLR0911 - one act after the other
        self.before(act)
        if getattr(act, "voter", "") in self.away or getattr(act, "source", "") in self.away:
            raise UnreachableVoterError
        match act:
            case registers.ReadRow():
                return self.rows.get((act.voter, act.slot), [])[act.since :]
            case registers.PutRequest():
                row = self.rows.setdefault((act.voter, act.slot), [])
                row += [act.request] if len(row) == act.place else []
                return row[act.place] == act.request
            case registers.Stand():
                mark = self.marks.get(act.voter)
                replaced = mark is not None and act.voter not in mark.voters
                return SlotState() if act.slot == NEXT else SlotState(self.last(act.voter) >= act.slot, replaced)
            case quorum_protocol.ReadVersion():
                return self.log.get(act.voter, {}).get(act.version)
            case quorum_protocol.LastVersion():
                return self.last(act.voter)
            case quorum_protocol.PutVersion():
                self.log.setdefault(act.voter, {}).setdefault(act.version, act.content)
            case quorum_protocol.CopyVoterCheckpoint():
                found = self.checkpoints.get(act.source, -1)
                self.checkpoints[act.voter] = max(found, self.checkpoints.get(act.voter, -1))
                return found
            case quorum_protocol.NewProposer():
                return str(next(self.numbers))
            case takeover.PutMark():
                return self.marks.setdefault(act.voter, act.after)
            case takeover.OpenVoter():
                self.opened.add(act.voter)
            case takeover.NewRecord():
                return Content("record", act.after.epoch)
        return None

    def run(self, steps: Generator[Any, Any, Any]) -> Any:
        try:
            act = next(steps)
            while True:
                away, found = None, None
                try:
                    found = self.do(act)
                except UnreachableVoterError as cause:
                    away = cause
                act = steps.send(found) if away is None else steps.throw(away)
        except StopIteration as end:
            return end.value

    def publish(self, *names: str, at: tuple[str, ...] = OLD.voters) -> None:
        for voter in at:
            self.log[voter] = {version: Content(name) for version, name in enumerate(names)}


def names(log: dict[int, Any]) -> dict[int, str]:
    return {version: content.name for version, content in log.items()}


# --- voters that are brought up ----------------------------------------------------------------------


def test_a_version_that_only_registers_say_is_brought() -> None:
    """Whoever had it decided stopped before it was anywhere."""
    folders = Folders()
    folders.run(proposing(0, OLD.voters, "p", Content("x")))

    assert folders.run(quorum_protocol.bringing("a", 0, None, ("b", "c"), OLD.voters))
    assert names(folders.log["a"]) == {0: "x"}


def test_a_version_that_nobody_in_reach_says_is_not_brought() -> None:
    """Not even something else in its place."""
    folders = Folders()
    folders.run(proposing(0, OLD.voters, "p", Content("x")))
    folders.away = {"a", "b"}

    assert not folders.run(quorum_protocol.bringing("c", 0, None, ("a", "b"), OLD.voters))
    assert folders.log == {}


# --- takeovers ---------------------------------------------------------------------------------------


def test_new_voters_go_on_where_the_old_ones_ended() -> None:
    """What the old ones had decided and not published comes with it, and then the version that says so."""
    folders = Folders()
    folders.publish("v0", "v1")
    folders.run(proposing(2, OLD.voters, "p", Content("v2")))

    taken = folders.run(taking_over(OLD, NEW))

    assert (taken.reached, taken.adopted, taken.version, taken.sure) == (OLD.voters, (2,), 3, True)
    assert taken.lasts == dict.fromkeys(OLD.voters, 1)
    for voter in NEW.voters:
        assert names(folders.log[voter]) == {0: "v0", 1: "v1", 2: "v2", 3: "record"}
    assert folders.opened == set(NEW.voters)


def test_it_may_be_begun_again_by_others() -> None:
    folders = Folders()
    folders.publish("v0")
    first = folders.run(taking_over(OLD, NEW))

    again = folders.run(taking_over(OLD, NEW))

    # The record of the first one is a version like any other by now, and opens the same voters.
    assert (first.version, again.adopted) == (1, ())
    assert all(content.opens in {None, 1} for content in folders.log["d"].values())


def test_a_voter_that_has_the_mark_of_other_voters_says_so() -> None:
    """Only one of them was reached by whoever named those."""
    folders, others = Folders(), VoterSet(1, ("x", "y", "z"))
    folders.publish("v0")
    folders.marks["b"] = others

    with pytest.raises(OtherTakeoverError) as raised:
        folders.run(taking_over(OLD, NEW))

    assert raised.value.after == others
    assert folders.opened == set()


def test_a_new_root_that_has_the_mark_of_other_voters_says_so() -> None:
    """It is to vote for those, perhaps under the same name."""
    folders, others = Folders(), VoterSet(1, ("d", "y", "z"))
    folders.publish("v0")
    folders.marks["d"] = others

    with pytest.raises(OtherTakeoverError) as raised:
        folders.run(taking_over(OLD, NEW))

    assert raised.value.after == others


def test_without_a_majority_of_the_old_voters_a_takeover_has_to_be_asked_for() -> None:
    folders = Folders()
    folders.publish("v0")
    folders.away = {"a", "b"}

    with pytest.raises(NoMajorityError):
        folders.run(taking_over(OLD, NEW))
    taken = folders.run(taking_over(OLD, NEW, lossy=True))

    assert (taken.reached, taken.version, taken.sure) == (("c",), 1, False)
    assert names(folders.log["e"]) == {0: "v0", 1: "record"}


def test_a_majority_that_goes_before_it_has_the_mark_is_none() -> None:
    """The old voters have decided who comes next; until a majority is told, they may have decided more since."""
    folders = Folders()
    folders.publish("v0")

    def two_go(act: Any) -> None:
        if isinstance(act, takeover.PutMark):
            folders.away = {"a", "b"}

    folders.before = two_go
    with pytest.raises(NoMajorityError):
        folders.run(taking_over(OLD, NEW))


def test_others_that_were_decided_to_come_next_are_named() -> None:
    folders, others = Folders(), VoterSet(1, ("x", "y", "z"))
    folders.publish("v0")
    folders.run(proposing(NEXT, OLD.voters, "p", others))

    with pytest.raises(OtherTakeoverError) as raised:
        folders.run(taking_over(OLD, NEW))

    assert raised.value.after == others
    assert folders.marks == {}


def test_a_new_root_that_does_not_answer_has_no_vote() -> None:
    folders = Folders()
    folders.publish("v0")
    folders.away = {"d"}

    folders.run(taking_over(OLD, NEW))

    assert folders.opened == {"e", "f"}
    assert names(folders.log["e"]) == names(folders.log["f"]) == {0: "v0", 1: "record"}


def test_who_had_a_copy_is_asked_where_all_voters_are_lost() -> None:
    """A root that does not vote may be all that is left."""
    folders, before = Folders(), OLD._replace(observers=("o",))
    folders.publish("v0", at=("o",))
    folders.away = set(OLD.voters)

    taken = folders.run(taking_over(before, NEW, lossy=True))

    assert (taken.reached, taken.sure) == (("o",), False)
    assert names(folders.log["f"]) == {0: "v0", 1: "record"}


def test_nobody_takes_over_from_voters_of_which_none_is_left() -> None:
    folders = Folders()
    folders.away = set(OLD.voters)

    with pytest.raises(NoMajorityError):
        folders.run(taking_over(OLD, NEW, lossy=True))


def test_a_version_that_is_published_and_cleaned_up_meanwhile_is_not_overlooked() -> None:
    """Begun again, the new voters get it with the checkpoint."""
    folders = Folders()
    folders.publish("v0")

    def published_late(act: Any) -> None:
        if isinstance(act, quorum_protocol.LastVersion) and ("a", 1) in read:
            folders.checkpoints["a"] = 1
        if isinstance(act, registers.ReadRow) and act.slot == 1:
            read.add((act.voter, act.slot))

    read: set[tuple[str, int]] = set()
    folders.before = published_late
    with pytest.raises(UnreachableVoterError):
        folders.run(taking_over(OLD, NEW))
    folders.before = lambda _: None

    taken = folders.run(taking_over(OLD, NEW))

    assert taken.version == 2
    assert [folders.checkpoints[voter] for voter in NEW.voters] == [1, 1, 1]
    assert names(folders.log["d"])[2] == "record"


@pytest.mark.parametrize(("emptied", "left"), [("d", ["e", "f"]), ("f", ["d", "e"]), ("df", None)])
def test_a_new_voter_that_lost_its_log_meanwhile_is_not_counted(emptied: str, left: list[str] | None) -> None:
    """Two of three are left: they are a majority. One of them would not be."""
    folders = Folders()
    folders.publish("v0", at=("a", *NEW.voters))

    def lose(act: Any) -> None:
        if isinstance(act, quorum_protocol.LastVersion):
            folders.away = set()
            if act.voter in emptied:
                # Exchanged for an empty root, at a moment at which nobody has what it lacks.
                folders.log.pop(act.voter, None)
                folders.away = {*OLD.voters, *NEW.voters} - {act.voter}

    folders.before = lose
    steps = takeover._decided(1, Content("v1"), NEW, ("a", *NEW.voters), NEW.voters)

    if left is None:
        with pytest.raises(NoMajorityError):
            folders.run(steps)
    else:
        assert folders.run(steps)[1] == left


def test_a_helper_that_is_ahead_has_published_the_record() -> None:
    """Its slot is closed at the new voters: what is published counts."""
    folders = Folders()
    folders.publish("v0", "record of another", at=NEW.voters)

    found, left = folders.run(takeover._decided(1, Content("mine"), NEW, NEW.voters, NEW.voters))

    assert (found.name, left) == ("record of another", list(NEW.voters))


def test_a_closed_slot_whose_version_is_gone_decides_nothing() -> None:
    folders = Folders()
    folders.checkpoints = dict.fromkeys(NEW.voters, 5)

    with pytest.raises(NoMajorityError):
        folders.run(takeover._decided(1, Content("mine"), NEW, NEW.voters, NEW.voters))
