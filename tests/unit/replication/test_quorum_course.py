"""Courses of voters, act by act: who is asked, what is brought to whom, and when nothing can be said."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import pytest

from kafkalike.model.replication import quorum_protocol, registers, takeover
from kafkalike.model.replication.quorum_protocol import (
    CopyVoterCheckpoint,
    LastVersion,
    NewProposer,
    PutVersion,
    ReadVersion,
    SupplyVersion,
    VoterFellBehindError,
)
from kafkalike.model.replication.registers import (
    Accept,
    Ballot,
    NoMajorityError,
    Prepare,
    ProposalBackoff,
    PutRequest,
    ReadRow,
    SlotState,
    Stand,
    UnreachableVoterError,
    VotersReplacedError,
)
from kafkalike.model.replication.takeover import NewRecord, OpenVoter, OtherTakeoverError, PutMark, VoterSet

VOTERS = ("a", "b", "c")


class Content(NamedTuple):
    """A version."""

    name: str
    opens: int | None = None


X, Y, Z = Content("x"), Content("y"), Content("z")


class Roots:
    """Voters that do what they are asked, each with the versions and checkpoint that it is given."""

    def __init__(self, **versions: dict[int, Content]) -> None:
        self.versions: dict[str, dict[int, Any]] = {n: dict(versions.get(n, {})) for n in (*VOTERS, *versions)}
        self.checkpoints: dict[str, int] = {}
        self.rows: dict[tuple[str, int], list[Any]] = {}
        self.lost: set[str] = set()
        self.marks: dict[str, VoterSet] = {}
        self.standing = SlotState()
        self.acts: list[Any] = []
        self.before: Callable[[Any], None] = lambda _: None

    def last(self, voter: str) -> int:
        return max((-1, self.checkpoints.get(voter, -1), *self.versions[voter]))

    def play(self, steps: Generator[Any, Any, Any]) -> Any:
        """Carry a course out; what it returns."""
        answer: Any = None
        lost = False
        try:
            while True:
                act = steps.throw(UnreachableVoterError()) if lost else steps.send(answer)
                assert len(self.acts) < 500, "it does not end"
                self.before(act)
                self.acts.append(act)
                asked = {getattr(act, "voter", None), getattr(act, "source", None)}
                lost = bool(asked & self.lost)
                answer = None if lost else self.answer(act)
        except StopIteration as end:
            return end.value

    def answer(self, act: Any) -> Any:  # noqa: C901, PLR0911 - one for each kind
        match act:
            case ReadVersion(voter, version):
                return self.versions[voter].get(version)
            case PutVersion(voter, version, content):
                assert self.last(voter) == version - 1
                self.versions[voter].setdefault(version, content)
                return None
            case LastVersion(voter):
                return self.last(voter)
            case CopyVoterCheckpoint(voter, source):
                found = self.checkpoints.get(source, -1)
                self.checkpoints[voter] = max(found, self.checkpoints.get(voter, -1))
                return found
            case ReadRow(voter, slot, since):
                return self.rows.get((voter, slot), [])[since:]
            case PutRequest(voter, slot, place, request):
                row = self.rows.setdefault((voter, slot), [])
                if len(row) != place:
                    return False
                row.append(request)
                return True
            case Stand():
                return self.standing
            case PutMark(voter, after):
                return self.marks.setdefault(voter, after)
            case NewProposer():
                return "me"
            case NewRecord(after):
                return Content("record", after.epoch)
        return None

    def asked(self, kind: type) -> list[Any]:
        """What was asked for of a kind."""
        return [act for act in self.acts if isinstance(act, kind)]


def holding(roots: Roots, version: int) -> dict[str, Content | None]:
    return {voter: roots.versions[voter].get(version) for voter in VOTERS}


# --- looking -------------------------------------------------------------------------------------


def test_a_version_that_a_majority_lacks_is_not_there() -> None:
    """No more voters are asked than that takes."""
    roots = Roots()

    assert roots.play(quorum_protocol.looking(0, VOTERS)) is None
    assert roots.acts == [ReadVersion("a", 0), ReadVersion("b", 0)]


def test_a_version_that_a_majority_has_is_shown_as_it_is() -> None:
    """Nobody is brought anything."""
    roots = Roots(b={0: X}, c={0: X})

    assert roots.play(quorum_protocol.looking(0, VOTERS)) == X
    assert roots.acts == [ReadVersion(voter, 0) for voter in VOTERS]


def test_a_version_is_at_a_majority_before_it_is_shown() -> None:
    roots = Roots(a={0: X})

    assert roots.play(quorum_protocol.looking(0, VOTERS)) == X
    assert holding(roots, 0) == {"a": X, "b": X, "c": X}


def test_what_was_read_is_in_hand_when_its_voter_goes() -> None:
    roots = Roots(a={0: X})
    roots.before = lambda act: roots.lost.add("a") if not isinstance(act, ReadVersion) else None

    assert roots.play(quorum_protocol.looking(0, VOTERS)) == X
    assert holding(roots, 0) == {"a": X, "b": X, "c": X}


@pytest.mark.parametrize("there", [{}, {0: X}])
def test_one_voter_of_three_says_neither_that_a_version_is_there_nor_that_it_is_not(there: dict[int, Content]) -> None:
    roots = Roots(a=there)
    roots.lost = {"b", "c"}

    with pytest.raises(NoMajorityError):
        roots.play(quorum_protocol.looking(0, VOTERS))


@pytest.mark.parametrize("lost", VOTERS)
def test_two_voters_of_three_are_enough(lost: str) -> None:
    roots = Roots(a={0: X}, b={0: X}, c={0: X})
    roots.lost = {lost}

    assert roots.play(quorum_protocol.looking(0, VOTERS)) == X
    assert roots.play(quorum_protocol.looking(1, VOTERS)) is None


# --- confirming ----------------------------------------------------------------------------------


@pytest.mark.parametrize("lacks", VOTERS)
def test_what_a_majority_has_is_confirmed_by_asking(lacks: str) -> None:
    """Once each, for no more than the last version."""
    roots = Roots(**{voter: {0: X} for voter in VOTERS if voter != lacks})

    roots.play(quorum_protocol.confirming(0, VOTERS))

    assert roots.acts == [LastVersion(voter) for voter in VOTERS]


def test_what_a_minority_has_is_brought_to_the_others() -> None:
    roots = Roots(c={0: X})
    roots.lost = {"a"}

    roots.play(quorum_protocol.confirming(0, VOTERS))

    assert holding(roots, 0) == {"a": None, "b": X, "c": X}


# --- putting -------------------------------------------------------------------------------------


def test_a_content_is_decided_and_then_put_everywhere() -> None:
    """Of who does not take over, nobody asks voters that are not open yet."""
    roots = Roots()

    assert roots.play(quorum_protocol.putting(0, X, VOTERS)) == X
    assert holding(roots, 0) == {"a": X, "b": X, "c": X}
    assert {stand.opening for stand in roots.asked(Stand)} == {False}
    assert {request.request.ballot for request in roots.asked(PutRequest)} == {Ballot(1, "me")}


def test_what_is_there_already_is_what_the_version_is() -> None:
    """Nothing is proposed any more."""
    roots = Roots(c={0: Y})

    assert roots.play(quorum_protocol.putting(0, X, VOTERS)) == Y
    assert holding(roots, 0) == {"a": Y, "b": Y, "c": Y}
    assert roots.asked(NewProposer) == []


def test_a_slot_that_was_closed_meanwhile_has_what_is_published() -> None:
    """Somebody was faster, and has cleaned up."""
    roots = Roots()

    def faster(act: Any) -> None:
        if isinstance(act, PutRequest):
            roots.standing = SlotState(closed=True)
            roots.versions["b"] = {0: Y}

    roots.before = faster

    assert roots.play(quorum_protocol.putting(0, X, VOTERS)) == Y


def test_a_slot_that_is_closed_and_of_which_nothing_is_left_is_one_of_long_ago() -> None:
    roots = Roots()
    roots.standing = SlotState(closed=True)

    with pytest.raises(VoterFellBehindError):
        roots.play(quorum_protocol.putting(0, X, VOTERS))


# --- publishing, bringing ------------------------------------------------------------------------


@pytest.mark.parametrize("lost", VOTERS)
def test_a_voter_that_does_not_answer_is_left_out(lost: str) -> None:
    roots = Roots()
    roots.lost = {lost}

    roots.play(quorum_protocol.publishing(0, X, VOTERS))

    assert holding(roots, 0) == {voter: None if voter == lost else X for voter in VOTERS}


def test_what_a_minority_gets_is_not_published() -> None:
    roots = Roots()
    roots.lost = {"a", "b"}

    with pytest.raises(NoMajorityError):
        roots.play(quorum_protocol.publishing(0, X, VOTERS))


def test_data_files_come_before_the_version_that_names_them() -> None:
    roots = Roots(b={0: X})

    assert roots.play(quorum_protocol.bringing("a", 1, Y, VOTERS, VOTERS)) is True
    assert [act for act in roots.acts if not isinstance(act, LastVersion)] == [
        ReadVersion("b", 0),
        SupplyVersion("a", X, ("b", "c")),
        PutVersion("a", 0, X),
        SupplyVersion("a", Y, ("b", "c")),
        PutVersion("a", 1, Y),
    ]


def chosen(roots: Roots, slot: int, content: Content, *voters: str) -> None:
    """Voters that have accepted a content, without anybody who has published it."""
    for voter in voters:
        roots.rows[voter, slot] = [Prepare(Ballot(1, "you")), Accept(Ballot(1, "you"), content)]


def test_a_version_that_was_decided_and_published_nowhere_is_learned_from_the_registers() -> None:
    """It must be there before the one after it."""
    roots = Roots()
    chosen(roots, 0, X, "a", "b")

    roots.play(quorum_protocol.publishing(1, Y, VOTERS))

    assert (holding(roots, 0), holding(roots, 1)) == (dict.fromkeys(VOTERS, X), dict.fromkeys(VOTERS, Y))


@pytest.mark.parametrize("standing", [SlotState(closed=True), SlotState(replaced=True)])
def test_a_voter_stays_behind_while_nobody_can_say_what_it_lacks(standing: SlotState) -> None:
    roots = Roots()
    roots.standing = standing

    assert roots.play(quorum_protocol.bringing("a", 1, Y, VOTERS, VOTERS)) is False
    assert holding(roots, 1)["a"] is None


def test_a_checkpoint_spares_the_versions_below_it() -> None:
    roots = Roots()
    roots.checkpoints = {"c": 4}
    roots.standing = SlotState(closed=True)

    assert roots.play(quorum_protocol.bringing("a", 5, Y, VOTERS, VOTERS)) is True
    assert (roots.last("a"), roots.versions["a"]) == (5, {5: Y})


def test_a_checkpoint_that_is_not_newer_brings_a_voter_nowhere() -> None:
    """What comes after it is learned."""
    roots = Roots()
    roots.checkpoints = dict.fromkeys(VOTERS, 4)
    chosen(roots, 5, X, "b", "c")

    assert roots.play(quorum_protocol.bringing("a", 6, Y, VOTERS, VOTERS)) is True
    assert roots.versions["a"] == {5: X, 6: Y}


def test_a_source_that_does_not_answer_is_passed_over() -> None:
    roots = Roots(c={0: X})
    roots.checkpoints = {"c": -1}
    roots.lost = {"b"}

    assert roots.play(quorum_protocol.bringing("a", 1, Y, VOTERS, VOTERS)) is True
    assert roots.versions["a"] == {0: X, 1: Y}


# --- registers -----------------------------------------------------------------------------------


def test_a_request_that_came_too_late_decides_nothing() -> None:
    late: list[registers.Request] = [Prepare(Ballot(2, "b")), Accept(Ballot(1, "a"), X)]

    assert registers.decided([late, late, late], 3) is None


def test_a_vote_that_a_voter_did_not_confirm_decides_nothing() -> None:
    """It takes the request and gives no answer then, as it may have been replaced in between."""
    roots, mine = Roots(), Accept(Ballot(1, "me"), X)
    roots.rows["c", 0] = [Prepare(Ballot(1, "somebody else"))]

    def b_does_not_say_how_it_stands(act: Any) -> None:
        if isinstance(act, ProposalBackoff):
            raise StoppedError
        said = mine in roots.rows.get(("b", 0), [])
        roots.lost = {"b"} if said and isinstance(act, Stand) and act.voter == "b" else set()

    roots.before = b_does_not_say_how_it_stands

    with pytest.raises(StoppedError):
        roots.play(registers.proposing(0, VOTERS, "me", X))
    assert mine in roots.rows["a", 0]
    assert mine in roots.rows["b", 0]


class StoppedError(Exception):
    """This process stops before it tries again."""


@pytest.mark.parametrize("lost", [{"a", "b"}, {"a", "c"}, {"b", "c"}])
def test_one_voter_of_three_decides_nothing(lost: set[str]) -> None:
    """This process stops at once: it would ask for ever."""
    roots = Roots()
    roots.lost = lost

    with pytest.raises(NoMajorityError):
        roots.play(registers.proposing(0, VOTERS, "me", X))
    assert roots.asked(ProposalBackoff) == []


def test_a_value_that_may_be_decided_is_the_one_that_is_proposed() -> None:
    """That of the latest ballot among those that were accepted."""
    roots = Roots()
    roots.rows["a", 0] = [Accept(Ballot(1, "p"), X)]
    roots.rows["b", 0] = [Accept(Ballot(3, "q"), Y)]
    roots.rows["c", 0] = [Accept(Ballot(2, "r"), Z)]

    assert roots.play(registers.proposing(0, VOTERS, "me", Content("mine"))) == Y


def test_who_is_overtaken_waits_longer_each_time() -> None:
    roots = Roots()
    turn = 0

    def overtake(act: Any) -> None:
        nonlocal turn
        if isinstance(act, PutRequest) and isinstance(act.request, Accept) and turn < 3:
            for voter in VOTERS:
                row = roots.rows.setdefault((voter, 0), [])
                row.append(Prepare(Ballot(act.request.ballot.number + 1, "other")))
            turn += act.voter == "c" or 0
        if isinstance(act, ProposalBackoff):
            turn += 1

    roots.before = overtake

    assert roots.play(registers.proposing(0, VOTERS, "me", X)) == X
    assert [pause.attempt for pause in roots.asked(ProposalBackoff)] == list(
        range(1, len(roots.asked(ProposalBackoff)) + 1)
    )
    assert roots.asked(ProposalBackoff)


def test_a_put_whose_answer_was_lost_is_not_made_again() -> None:
    """It landed: the row has it."""
    request = Prepare(Ballot(1, "me"))
    row: list[Any] = []
    steps = registers._put(0, "a", row, request)
    assert next(steps) == ReadRow("a", 0, 0)
    assert steps.send([]) == PutRequest("a", 0, 0, request)
    assert steps.send(False) == ReadRow("a", 0, 0)  # noqa: FBT003

    with pytest.raises(StopIteration) as end:
        steps.send([request])

    assert end.value.value.promised == request.ballot


def test_voters_that_were_replaced_decide_nothing() -> None:
    roots = Roots()
    roots.standing = SlotState(replaced=True)

    with pytest.raises(VotersReplacedError):
        roots.play(registers.proposing(0, VOTERS, "me", X))


# --- takeover ------------------------------------------------------------------------------------

OLD = VoterSet(0, VOTERS, ("o",))
NEW = VoterSet(1, ("d", "e", "f"))


def old_roots(**versions: dict[int, Content]) -> Roots:
    return Roots(**{"o": {}, "d": {}, "e": {}, "f": {}, **versions})


def test_new_voters_go_on_where_the_old_ones_ended() -> None:
    """They begin with what these have, and a version that says who they are; then they are open."""
    roots = old_roots(a={0: X, 1: Y}, b={0: X}, c={0: X})

    taken = roots.play(takeover.taking_over(OLD, NEW))

    assert taken == takeover.TakeoverResult(VOTERS, {"a": 1, "b": 0, "c": 0}, (), 2, sure=True)
    assert roots.asked(NewRecord) == [NewRecord(NEW, VOTERS, 2)]
    for voter in NEW.voters:
        assert roots.versions[voter] == {0: X, 1: Y, 2: Content("record", 1)}
    assert roots.acts[-3:] == [OpenVoter(voter, 1) for voter in NEW.voters]
    # Only who opens them may ask them; and only of who comes next are those asked that end.
    assert {stand.opening for stand in roots.asked(Stand)} == {True}
    assert {stand.slot for stand in roots.asked(Stand) if stand.voter in VOTERS} == {takeover.NEXT}


def test_what_the_old_voters_may_have_decided_is_adopted() -> None:
    """Of several ballots the latest."""
    roots = old_roots(a={0: X}, b={0: X}, c={0: X})
    roots.rows["a", 1] = [Accept(Ballot(9, "p"), Y)]
    roots.rows["b", 1] = [Accept(Ballot(10, "a"), Z)]
    roots.rows["c", 1] = [Accept(Ballot(8, "z"), Y)]

    taken = roots.play(takeover.taking_over(OLD, NEW))

    assert (taken.adopted, taken.version) == ((1,), 2)
    assert [roots.versions["d"][version] for version in range(3)] == [X, Z, Content("record", 1)]
    assert ReadRow("a", 1, 0) in roots.acts


def test_what_was_published_while_it_was_asked_for_is_adopted_too() -> None:
    """Its registers may be gone by then."""
    roots = old_roots(a={0: X}, b={0: X}, c={0: X})

    def publish(act: Any) -> None:
        if isinstance(act, ReadRow) and act.slot == 1 and act.voter == "b":
            roots.versions["b"][1] = Y

    roots.before = publish

    taken = roots.play(takeover.taking_over(OLD, NEW))

    assert (taken.adopted, roots.versions["d"][1]) == ((1,), Y)


@pytest.mark.parametrize("lost", VOTERS)
def test_two_old_voters_of_three_are_enough(lost: str) -> None:
    roots = old_roots(a={0: X}, b={0: X}, c={0: X})
    roots.lost = {lost}

    taken = roots.play(takeover.taking_over(OLD, NEW))

    assert taken.sure is True
    assert taken.reached == tuple(voter for voter in VOTERS if voter != lost)


def test_with_one_old_voter_it_is_done_only_by_who_may_lose_something() -> None:
    """Then who only has copies is asked, too."""
    roots = old_roots(c={0: X}, o={0: X, 1: Y})
    roots.lost = {"a", "b"}

    with pytest.raises(NoMajorityError):
        roots.play(takeover.taking_over(OLD, NEW))
    taken = roots.play(takeover.taking_over(OLD, NEW, lossy=True))

    assert taken == takeover.TakeoverResult(("c", "o"), {"c": 0, "o": 1}, (), 2, sure=False)
    assert roots.versions["d"] == {0: X, 1: Y, 2: Content("record", 1)}


def test_too_few_new_voters_begin_nothing() -> None:
    roots = old_roots(a={0: X}, b={0: X}, c={0: X})
    roots.lost = {"d", "e"}

    with pytest.raises(NoMajorityError):
        roots.play(takeover.taking_over(OLD, NEW))
    assert roots.asked(OpenVoter) == []


def test_two_new_voters_of_three_are_enough() -> None:
    roots = old_roots(a={0: X}, b={0: X}, c={0: X})
    roots.lost = {"d"}

    roots.play(takeover.taking_over(OLD, NEW))

    assert roots.asked(OpenVoter) == [OpenVoter("e", 1), OpenVoter("f", 1)]


@pytest.mark.parametrize("where", ["registers", "mark", "new mark"])
def test_a_takeover_by_others_is_named(where: str) -> None:
    """It is to be ended first."""
    roots = old_roots()
    others = VoterSet(1, ("x", "y", "z"))
    if where == "registers":
        for voter in VOTERS:
            roots.rows[voter, takeover.NEXT] = [Accept(Ballot(1, "p"), others)]
    else:
        roots.marks["b" if where == "mark" else "e"] = others

    with pytest.raises(OtherTakeoverError) as caught:
        roots.play(takeover.taking_over(OLD, NEW))

    assert caught.value.after == others
    assert str(caught.value) == f"voters {others} are taking over"


def test_a_takeover_can_be_begun_again() -> None:
    """By anybody: the new voters may be further than the old ones."""
    roots = old_roots(a={0: X}, b={0: X}, c={0: X})
    first = roots.play(takeover.taking_over(OLD, NEW))
    roots.acts = []

    again = roots.play(takeover.taking_over(OLD, NEW))

    assert again.reached == first.reached
    assert roots.versions["d"][1] == Content("record", 1)
