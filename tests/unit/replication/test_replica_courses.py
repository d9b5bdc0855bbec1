"""Courses of writers and helpers over sound roots, act by act: what goes where, and what the controller is told."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import pytest

from kafkalike.model.replication import isr_changes
from kafkalike.model.replication import replica_effects as effects
from kafkalike.model.replication import replica_protocol as protocol
from kafkalike.model.replication.registration import (
    UNSEEN,
    Configuration,
    FellBehindError,
    NoReplicaLeftError,
    OtherBytesError,
    Registration,
    Replica,
    UncleanElection,
    UnreachableError,
    View,
    chosen_unclean,
    confirmed,
    with_joining,
    without,
)

ONE, TWO, THREE, FOUR = Replica(1), Replica(2), Replica(3), Replica(4)


class Content(NamedTuple):
    append_id: str
    configuration: Configuration | None = None


class Roots:
    """Replicas that do what they are asked, and a controller."""

    def __init__(self, registered: Registration, **logs: str) -> None:
        self.registered = registered
        self.versions: dict[Replica, dict[int, Any]] = {}
        for name, log in logs.items():
            self.versions[Replica(int(name[1:]))] = {n: Content(letter) for n, letter in enumerate(log)}
        self.checkpoints: dict[Replica, int] = {}
        self.missing: tuple[str, ...] = ()
        self.lost: set[Replica] = set()
        self.acts: list[Any] = []
        self.before: Callable[[Any], None] = lambda _: None

    def last(self, replica: Replica) -> int:
        return max((-1, self.checkpoints.get(replica, -1), *self.versions.setdefault(replica, {})))

    def log(self, replica: Replica) -> str:
        """Its versions, a letter each."""
        return "".join(content.append_id for _, content in sorted(self.versions.get(replica, {}).items()))

    def play(self, steps: Generator[Any, Any, Any]) -> Any:
        """Carry a course out; what it returns."""
        answer: Any = None
        lost: list[Replica] = []
        try:
            while True:
                act = steps.throw(UnreachableError(lost[0])) if lost else steps.send(answer)
                assert len(self.acts) < 500, "it does not end"
                self.before(act)
                self.acts.append(act)
                roots = (getattr(act, "replica", None), getattr(act, "source", None))
                lost = [root for root in roots if root is not None and root in self.lost]
                answer = None if lost else self.answer(act)
        except StopIteration as end:
            return end.value

    def answer(self, act: Any) -> Any:  # noqa: C901, PLR0911, PLR0912 - one for each kind
        match act:
            case effects.Read(replica, version):
                return self.versions.setdefault(replica, {}).get(version)
            case effects.Put(replica, version, content):
                if version in self.versions.setdefault(replica, {}):
                    return False
                assert self.last(replica) == version - 1, "there would be a hole"
                self.versions[replica][version] = content
                return True
            case effects.Checkpoint(replica):
                return self.checkpoints.get(replica, -1)
            case effects.End(replica):
                return self.last(replica)
            case effects.Load(replica):
                at = self.checkpoints.get(replica)
                return None if at is None else View(Configuration(1, (ONE, TWO)), at)
            case effects.MakeCheckpoint(replica, version):
                self.checkpoints[replica] = version
            case effects.CopyCheckpoint(source, replica):
                found = self.checkpoints.get(source, -1)
                self.checkpoints[replica] = max(found, self.checkpoints.get(replica, -1))
                return found
            case effects.Missing():
                return self.missing
            case effects.LookAtController():
                return self.registered
            case effects.Register(before, after):
                if self.registered != before:
                    return False
                self.registered = after
                return True
            case effects.NewSeal(registration):
                return Content("S", registration.configuration)
            case effects.NewLife():
                return 77
        return None

    def asked(self, kind: type) -> list[Any]:
        """What was asked for of a kind."""
        return [act for act in self.acts if isinstance(act, kind)]


CHAIN = Registration(1, (ONE, TWO, THREE))


def view(end: int, *chain: Replica, epoch: int = 1) -> View:
    return View(Configuration(epoch, chain or CHAIN.chain), end)


# --- membership ----------------------------------------------------------------------------------


def test_who_joins_comes_before_the_leader_unless_it_is_to_lead() -> None:
    """Beside a single replica it comes last, as that one decides the seal."""
    assert with_joining(CHAIN, 4) == Registration(2, (ONE, TWO, FOUR, THREE), FOUR)
    assert with_joining(CHAIN, 4, leads=True) == Registration(2, (ONE, TWO, THREE, FOUR), FOUR)
    assert with_joining(Registration(1, (ONE, TWO)), 4) == Registration(2, (ONE, FOUR, TWO), FOUR)
    assert with_joining(Registration(1, (ONE,)), 4) == Registration(2, (ONE, FOUR), FOUR)
    assert with_joining(Registration(5, (Replica(1, 9),), None, 9), 4).joining == Replica(4, 9)


def test_the_first_of_a_chain_decides_and_the_last_one_publishes() -> None:
    assert (CHAIN.configuration.head, CHAIN.configuration.leader) == (ONE, THREE)


def test_who_has_joined_is_in_sync_in_the_same_epoch() -> None:
    joined = with_joining(CHAIN, 4)

    assert (joined.in_sync, joined.leader, joined.decider) == ((ONE, TWO, THREE), THREE, ONE)
    assert confirmed(joined) == Registration(2, (ONE, TWO, FOUR, THREE))


def test_who_leaves_takes_along_who_is_joining() -> None:
    assert without(CHAIN, TWO) == Registration(2, (ONE, THREE))
    assert without(with_joining(CHAIN, 4), THREE) == Registration(3, (ONE, TWO))
    with pytest.raises(NoReplicaLeftError):
        without(with_joining(Registration(1, (ONE,)), 4), ONE)


def test_an_unclean_choice_says_what_may_be_lost() -> None:
    """And each one before it."""
    earlier = UncleanElection(1, ONE, 3, (TWO,))
    before = Registration(4, (ONE, TWO), None, 2, (earlier,))
    chosen = Replica(3, 77)

    assert chosen_unclean(before, chosen, 9, 2) == Registration(
        5, (chosen,), None, 77, (earlier, UncleanElection(5, chosen, 9, (ONE, TWO), 2))
    )
    assert chosen_unclean(before, chosen, 9).losses[-1].files == 0


def test_only_a_newer_seal_changes_the_configuration() -> None:
    """One of an epoch that has passed is a version like any other."""
    known = view(4, epoch=3)
    other = Configuration(3, (TWO,))

    assert known.after(Content("a")) == view(5, epoch=3)
    assert known.after(Content("s", Configuration(2, (TWO,)))) == view(5, epoch=3)
    assert known.after(Content("s", other)) == view(5, epoch=3)
    assert known.after(Content("s", Configuration(4, (TWO,)))) == View(Configuration(4, (TWO,)), 5)


# --- an unclean choice ---------------------------------------------------------------------------


def test_a_replica_is_chosen_uncleanly_under_a_name_of_its_own() -> None:
    """Its log is copied as far as it is there, and ends with a seal that takes lost files out."""
    roots = Roots(Registration(6, (ONE, TWO), None, 0), r3="abc")
    roots.missing = ("f1", "f2")
    renamed = Replica(3, 77)

    chosen = roots.play(isr_changes.choosing_unclean(THREE))

    assert (
        chosen
        == roots.registered
        == Registration(7, (renamed,), None, 77, (UncleanElection(7, renamed, 2, (ONE, TWO), 2),))
    )
    assert roots.log(renamed) == "abcS"
    assert roots.versions[renamed][3] == Content("S", Configuration(7, (renamed,)))
    assert roots.log(THREE) == "abc"
    assert roots.asked(effects.Missing) == [effects.Missing(renamed)]
    assert roots.asked(effects.NewSeal) == [effects.NewSeal(chosen, ("f1", "f2"))]
    assert roots.asked(effects.Supply) == [effects.Supply(renamed, Content(x), THREE, partly=True) for x in "abc"]


def test_an_unclean_choice_copies_a_checkpoint_without_what_was_lost() -> None:
    roots = Roots(Registration(6, (ONE, TWO), None, 0))
    roots.versions[THREE] = {3: Content("d"), 4: Content("e")}
    roots.checkpoints[THREE] = 3
    renamed = Replica(3, 77)

    chosen = roots.play(isr_changes.choosing_unclean(THREE))

    assert chosen.losses[-1].kept == 4
    assert roots.asked(effects.CopyCheckpoint) == [effects.CopyCheckpoint(THREE, renamed, partly=True)]
    assert sorted(roots.versions[renamed]) == [4, 5]


def test_of_two_unclean_choices_the_first_counts() -> None:
    roots = Roots(Registration(6, (ONE, TWO), None, 0), r3="abc")
    other = Registration(7, (ONE,))

    def faster(act: Any) -> None:
        if isinstance(act, effects.NewSeal):
            roots.registered = other

    roots.before = faster

    assert roots.play(isr_changes.choosing_unclean(THREE)) is None
    assert roots.registered == other


# --- joining, leaving ----------------------------------------------------------------------------


@pytest.mark.parametrize("leads", [False, True])
def test_a_replica_joins_when_it_has_all_that_is_published(*, leads: bool) -> None:
    """The seal comes first, then the controller counts it."""
    roots = Roots(CHAIN, r1="abc", r2="abc", r3="abc", r4="a")

    joined = roots.play(isr_changes.joining(4, CHAIN, view(2), {}, leads=leads))

    chain = (ONE, TWO, THREE, FOUR) if leads else (ONE, TWO, FOUR, THREE)
    assert roots.registered == Registration(2, chain)
    assert joined == View(Configuration(2, chain), 3)
    assert {roots.log(replica) for replica in chain} == {"abcS"}
    assert roots.asked(effects.Supply)[:2] == [effects.Supply(FOUR, Content(x), THREE) for x in "bc"]


def test_a_replica_does_not_lead_unless_that_is_asked_for() -> None:
    roots = Roots(CHAIN, r1="a", r2="a", r3="a")

    roots.play(isr_changes.joining(4, CHAIN, view(0), {}))

    assert roots.registered.leader == THREE


def test_who_would_join_while_the_controller_says_something_else_does_not() -> None:
    roots = Roots(Registration(2, (ONE, TWO)), r1="a", r2="a", r3="a")

    assert roots.play(isr_changes.joining(4, CHAIN, view(0), {})) is None
    assert roots.registered == Registration(2, (ONE, TWO))
    assert roots.asked(effects.NewSeal) == []


def test_a_replica_that_joins_has_the_files_of_its_log_before_it_is_registered() -> None:
    roots = Roots(CHAIN, r1="a", r2="a", r3="a", r4="a")

    roots.play(isr_changes.joining(4, CHAIN, view(0), {}))

    kinds = [type(act) for act in roots.acts]
    assert roots.asked(effects.Fill) == [effects.Fill(FOUR, THREE)]
    assert kinds.index(effects.Fill) < kinds.index(effects.Register)


def test_a_replica_that_was_given_up_joins_under_another_name() -> None:
    """That of other brokers stays; and what was given up is never named again."""
    roots = Roots(Registration(1, (ONE, TWO, THREE), renamed=(Replica(5, 4),)), r1="a", r2="a", r3="a", r4="a")

    after = roots.play(isr_changes.giving_up(4))

    new = roots.registered.name(4)
    assert after == roots.registered == Registration(1, (ONE, TWO, THREE), renamed=(Replica(5, 4), new))
    assert new.life > 0
    assert (after.name(5), after.name(6)) == (Replica(5, 4), Replica(6))
    roots.play(isr_changes.joining(4, after, view(0), {}))
    assert roots.registered.in_sync == (ONE, TWO, new, THREE)
    assert roots.play(isr_changes.giving_up(4)) is None


def test_a_replica_leaves_with_a_seal_in_the_log_of_those_that_stay() -> None:
    roots = Roots(CHAIN, r1="ab", r2="ab", r3="ab")

    left = roots.play(isr_changes.leaving(THREE, CHAIN, view(1), {}))

    assert left == View(Configuration(2, (ONE, TWO)), 2)
    assert roots.registered == Registration(2, (ONE, TWO))
    assert [roots.log(replica) for replica in CHAIN.chain] == ["abS", "abS", "ab"]


# --- catching up ---------------------------------------------------------------------------------


def test_a_replica_catches_up_version_by_version() -> None:
    """Data files come before the version that names them."""
    roots = Roots(CHAIN, r3="abc", r4="a")

    assert roots.play(isr_changes.catching_up(FOUR, THREE, view(2))) is True
    assert roots.log(FOUR) == "abc"
    puts = [act for act in roots.acts if isinstance(act, effects.Put | effects.Supply)]
    assert puts == [
        effects.Supply(FOUR, Content("b"), THREE),
        effects.Put(FOUR, 1, Content("b")),
        effects.Supply(FOUR, Content("c"), THREE),
        effects.Put(FOUR, 2, Content("c")),
    ]


@pytest.mark.parametrize("published", ["abc", "abcdefghijklmnop"])
def test_a_replica_that_catches_up_has_logs_listed_twice(published: str) -> None:
    """For its own first version and its last one; of others it is known that they were not cleaned up."""
    roots = Roots(CHAIN, r3=published, r4="a")

    assert roots.play(isr_changes.catching_up(FOUR, THREE, view(len(published) - 1))) is True

    assert [act for act in roots.asked(effects.Checkpoint) if act.about is None] == [effects.Checkpoint(FOUR)] * 2
    assert roots.asked(effects.Ahead) == [effects.Ahead(THREE, 0, effects.AHEAD)]


@pytest.mark.parametrize("log", ["", "x", "abx", "ax"])
def test_what_a_replica_has_in_the_place_of_a_version_is_put_below_a_checkpoint(log: str) -> None:
    """Which the leader makes of all that is published."""
    roots = Roots(CHAIN, r3="abcd", r4=log)

    assert roots.play(isr_changes.catching_up(FOUR, THREE, view(3))) is True
    assert roots.last(FOUR) == 3
    made = roots.asked(effects.MakeCheckpoint)
    assert made == ([effects.MakeCheckpoint(THREE, 3)] if log else [])


def test_what_a_late_helper_puts_meanwhile_is_looked_at() -> None:
    """The same content is as good as one's own; another one is put below a checkpoint."""
    for found, checkpoints in (("b", []), ("x", [effects.MakeCheckpoint(THREE, 2)])):
        roots = Roots(CHAIN, r3="abc", r4="a")

        def late(act: Any, roots: Roots = roots, found: str = found) -> None:
            if isinstance(act, effects.Supply):
                roots.versions[FOUR].setdefault(1, Content(found))

        roots.before = late

        assert roots.play(isr_changes.catching_up(FOUR, THREE, view(2))) is True
        assert roots.asked(effects.MakeCheckpoint) == checkpoints
        assert roots.last(FOUR) == 2


def test_a_version_that_was_cleaned_up_while_it_was_read_is_not_believed() -> None:
    roots = Roots(CHAIN, r3="abc", r4="a")

    def clean(act: Any) -> None:
        if isinstance(act, effects.Read) and act == effects.Read(THREE, 1):
            roots.versions[THREE][1] = Content("?")
            roots.checkpoints[THREE] = 2

    roots.before = clean

    assert roots.play(isr_changes.catching_up(FOUR, THREE, view(2))) is True
    assert (roots.log(FOUR), roots.last(FOUR)) == ("a", 2)


def test_a_replica_that_has_more_than_the_leader_has_not_caught_up() -> None:
    roots = Roots(CHAIN, r3="ab", r4="abc")

    assert roots.play(isr_changes.catching_up(FOUR, THREE, view(1))) is False


# --- writing -------------------------------------------------------------------------------------


def test_a_version_is_decided_at_the_head_and_published_at_the_leader() -> None:
    roots = Roots(CHAIN, r1="a", r2="a", r3="a")
    seen: protocol.Seen = {}

    found, mine = roots.play(protocol.appending(view(0), Content("b"), seen))

    assert (found, mine, seen) == (view(1), True, {1: Content("b")})
    assert [act.replica for act in roots.asked(effects.Put)] == [ONE, TWO, THREE]
    assert [act.replica for act in roots.asked(effects.Supply)] == [ONE, TWO, THREE]


def test_what_the_head_has_is_published_first() -> None:
    """Whoever made it is not acknowledged with another content."""
    roots = Roots(CHAIN, r1="ax", r2="a", r3="a")

    found, mine = roots.play(protocol.appending(view(0), Content("b"), {}))

    assert (found, mine) == (view(1), False)
    assert {roots.log(replica) for replica in CHAIN.chain} == {"ax"}
    assert roots.asked(effects.Supply) == []


def test_who_is_faster_at_the_head_decides() -> None:
    roots = Roots(CHAIN, r1="a", r2="a", r3="a")

    def faster(act: Any) -> None:
        if isinstance(act, effects.Put) and act.replica == ONE:
            roots.versions[ONE].setdefault(1, Content("x"))

    roots.before = faster

    assert roots.play(protocol.appending(view(0), Content("b"), {})) == (view(1), False)
    assert {roots.log(replica) for replica in CHAIN.chain} == {"ax"}


@pytest.mark.parametrize("lost", [ONE, TWO, THREE])
def test_a_replica_that_fails_is_taken_out_and_the_version_comes_after_the_seal(lost: Replica) -> None:
    roots = Roots(CHAIN, r1="a", r2="a", r3="a")
    roots.lost = {lost}
    left = tuple(replica for replica in CHAIN.chain if replica != lost)

    roots.play(protocol.appending(view(0), Content("b"), {}))

    assert roots.registered == Registration(2, left)
    assert len({roots.log(replica) for replica in left}) == 1
    assert "S" in roots.log(left[0])


def test_two_that_fail_one_after_the_other_are_both_taken_out() -> None:
    """The second one fails while the seal is made."""
    roots = Roots(CHAIN, r1="a", r2="a", r3="a")
    roots.lost = {TWO}

    def second(act: Any) -> None:
        if isinstance(act, effects.NewSeal):
            roots.lost = {TWO, ONE}

    roots.before = second

    roots.play(protocol.appending(view(0), Content("b"), {}))

    assert roots.registered == Registration(3, (THREE,))


def test_a_controller_that_was_changed_meanwhile_is_asked_again() -> None:
    """Nobody is taken out on what it said before."""
    roots = Roots(CHAIN, r1="a", r2="a", r3="a")
    roots.lost = {TWO}

    def other(act: Any) -> None:
        if isinstance(act, effects.Register) and roots.registered == CHAIN:
            roots.registered = Registration(2, (ONE, THREE))

    roots.before = other

    roots.play(protocol.appending(view(0), Content("b"), {}))

    assert roots.registered == Registration(2, (ONE, THREE))
    assert roots.log(ONE) == roots.log(THREE)


def test_a_log_that_knows_a_newer_seal_than_the_controller_did_has_it_asked_again() -> None:
    """Nobody is to blame for that."""
    roots = Roots(Registration(2, (ONE, TWO)), r1="a", r2="a")
    for replica in (ONE, TWO):
        roots.versions[replica] |= {1: seal("S", 2, ONE, TWO), 2: seal("T", 3, ONE, TWO)}

    def later(act: Any) -> None:
        if isinstance(act, effects.LookAtController) and roots.asked(effects.LookAtController):
            roots.registered = Registration(3, (ONE, TWO))

    roots.before = later

    found = roots.play(protocol.mending(view(0, ONE, TWO), protocol.StaleError(ONE), {}))

    assert found == View(Configuration(3, (ONE, TWO)), 2)
    assert roots.asked(effects.Register) == []


def test_a_seal_that_somebody_else_has_put_is_taken_to_the_others() -> None:
    """None is made beside it."""
    registered = Registration(2, (ONE, TWO))
    roots = Roots(registered, r1="a", r2="a", r3="a")
    roots.versions[ONE][1] = seal("S", 2, ONE, TWO)

    found = roots.play(protocol.sealing(view(0), registered, {}))

    assert (found, roots.log(TWO)) == (View(registered.configuration, 1), "aS")
    assert roots.asked(effects.NewSeal) == []


def test_a_writer_that_meets_a_newer_seal_goes_on_in_that_configuration() -> None:
    registered = Registration(2, (ONE, TWO))
    roots = Roots(registered, r1="a", r2="a", r3="a")
    roots.versions[ONE][1] = seal("S", 2, ONE, TWO)

    found, mine = roots.play(protocol.appending(view(0), Content("b"), {}))

    assert (found, mine) == (View(registered.configuration, 1), False)
    assert (roots.log(TWO), roots.log(THREE)) == ("aS", "a")


def test_a_process_whose_log_was_given_up_is_late() -> None:
    losses = (UncleanElection(2, ONE, 0, (TWO,)), UncleanElection(5, THREE, 0, (ONE,)))
    registered = Registration(6, (THREE,), None, 0, losses)
    roots = Roots(registered, r3="a")

    with pytest.raises(FellBehindError):
        roots.play(protocol.sealing(view(0, ONE, epoch=4), registered, {}))
    one = registered._replace(losses=losses[1:])
    with pytest.raises(FellBehindError):
        roots.play(protocol.sealing(view(0, ONE, epoch=4), one, {}))


def test_clean_up_that_passed_a_place_makes_what_is_found_there_worth_nothing() -> None:
    """It is asked about that place, and the checkpoint may end with it."""
    roots = Roots(CHAIN, r1="abc")
    assert roots.play(protocol.reading(ONE, 2)) == Content("c")
    assert roots.acts == [effects.Read(ONE, 2), effects.Checkpoint(ONE, 2)]

    for at in (2, 3):
        roots.checkpoints[ONE] = at
        with pytest.raises(FellBehindError):
            roots.play(protocol.reading(ONE, 2))
    roots.checkpoints[ONE] = 1
    assert roots.play(protocol.reading(ONE, 2)) == Content("c")


# --- reading -------------------------------------------------------------------------------------


def seal(letter: str, epoch: int, *chain: Replica) -> Content:
    return Content(letter, Configuration(epoch, chain))


def test_a_seal_is_published_when_its_leader_has_it() -> None:
    """Or has a checkpoint above it; what is read is what the leader of that time shows."""
    known = view(0, ONE, TWO)
    mark = seal("S", 2, TWO, ONE)
    roots = Roots(Registration(2, (TWO, ONE)), r1="a", r2="a")
    roots.versions[TWO][1] = mark
    assert roots.play(protocol.following(known, {})) == known

    roots.versions[ONE][1] = Content("x")
    assert roots.play(protocol.following(known, {})) == known
    roots.versions[ONE][1] = mark
    assert roots.play(protocol.following(known, {})) == View(Configuration(2, (TWO, ONE)), 1)
    del roots.versions[ONE][1]
    roots.checkpoints[ONE] = 0
    assert roots.play(protocol.following(known, {})) == known
    roots.checkpoints[ONE] = 1
    assert roots.play(protocol.following(known, {})) == View(Configuration(2, (TWO, ONE)), 1)


def test_what_is_read_in_a_configuration_is_what_its_last_member_has() -> None:
    """Also while that one is joining: without it nothing is published."""
    registered = Registration(1, (ONE, TWO), TWO)
    roots = Roots(registered, r1="ab", r2="a")

    assert roots.play(protocol.following(view(-1, ONE, TWO), {}, registered)) == view(0, ONE, TWO)


def test_versions_before_the_newest_seal_are_read_from_who_leads_now() -> None:
    """Older leaders may be gone."""
    registered = Registration(3, (TWO, THREE))
    roots = Roots(registered)
    roots.lost = {ONE}
    roots.versions[THREE] = {0: Content("a"), 1: seal("S", 2, TWO, ONE), 2: seal("T", 3, TWO, THREE), 3: Content("b")}
    seen: protocol.Seen = {}

    found = roots.play(protocol.following(view(-1, ONE), seen, registered))

    assert found == View(registered.configuration, 3)
    assert "".join(seen[version].append_id for version in sorted(seen)) == "aSTb"


def test_a_log_is_opened_from_its_leaders_checkpoint() -> None:
    registered = Registration(1, (ONE, TWO))
    roots = Roots(registered, r1="abc", r2="abc")
    roots.checkpoints[TWO] = 1
    seen: protocol.Seen = {}

    found = roots.play(protocol.opening(seen, repair=False))

    assert found == (view(2, ONE, TWO), view(1, ONE, TWO), TWO)
    assert seen == {2: Content("c")}
    assert roots.asked(effects.Register) == []


@pytest.mark.parametrize("when", [effects.Load, effects.Read])
def test_a_leader_that_does_not_answer_is_replaced_by_those_who_write(when: type[effects.Load | effects.Read]) -> None:
    """Who only reads says so."""
    registered = Registration(1, (ONE, TWO))
    for repair in (False, True):
        roots = Roots(registered, r1="abc", r2="abc")
        roots.checkpoints = {ONE: 1, TWO: 1}

        def fail(act: Any, roots: Roots = roots) -> None:
            if isinstance(act, when) and act.replica == TWO:
                roots.lost = {TWO}

        roots.before = fail
        if not repair:
            with pytest.raises(UnreachableError):
                roots.play(protocol.opening({}, repair=False))
            assert roots.registered == registered
        else:
            found, _, source = roots.play(protocol.opening({}, repair=True))
            assert (found.configuration, source) == (Configuration(2, (ONE,)), ONE)
            assert roots.registered == Registration(2, (ONE,))
            assert {act.before for act in roots.asked(effects.Register)} == {registered}


def test_a_log_without_versions_is_opened() -> None:
    roots = Roots(Registration(1, (ONE, TWO)))
    roots.versions = {replica: {0: seal("S", 1, ONE, TWO)} for replica in (ONE, TWO)}

    found, loaded, source = roots.play(protocol.opening({}, repair=False))

    assert (found, loaded, source) == (view(0, ONE, TWO), None, TWO)
    empty = Roots(Registration(1, (ONE, TWO)))
    assert empty.play(protocol.opening({}, repair=False))[0] == UNSEEN


def test_the_newest_checkpoint_is_that_of_who_is_joining_last_once_writers_go_by_it() -> None:
    """Before that it may lack something."""
    registered = Registration(1, (ONE, TWO), TWO)
    for checkpoint, source in ((0, TWO), (None, ONE)):
        roots = Roots(registered, r1="a", r2="a")
        if checkpoint is not None:
            roots.checkpoints[TWO] = checkpoint

        assert roots.play(protocol.finding(repair=False))[2] == source
    older = Registration(2, (ONE, TWO), TWO)
    roots = Roots(older, r1="a", r2="a")
    roots.checkpoints[TWO] = 0
    assert roots.play(protocol.finding(repair=False))[2] == ONE


# --- bringing ------------------------------------------------------------------------------------


def test_who_is_joining_is_brought_what_it_lacks_from_who_has_it() -> None:
    roots = Roots(CHAIN, r1="abcd", r4="ab")

    roots.play(protocol.bringing(FOUR, ONE, 3))

    assert roots.log(FOUR) == "abcd"
    assert roots.asked(effects.Supply) == [effects.Supply(FOUR, Content(x), ONE) for x in "cd"]


@pytest.mark.parametrize("end", [0, 1, 2])
def test_who_is_joining_gets_a_checkpoint_where_versions_are_gone(end: int) -> None:
    """At the checkpoint, too, its own version cannot be compared any more."""
    roots = Roots(CHAIN, r4="xxx"[: end + 1])
    roots.versions[ONE] = {2: Content("c"), 3: Content("d")}
    roots.checkpoints[ONE] = 2

    roots.play(protocol.bringing(FOUR, ONE, 3))

    assert (roots.checkpoints[FOUR], roots.last(FOUR)) == (2, 3)


def test_who_has_something_else_is_not_brought_anything() -> None:
    roots = Roots(CHAIN, r1="abcd", r4="ax")

    with pytest.raises(OtherBytesError):
        roots.play(protocol.bringing(FOUR, ONE, 3))
