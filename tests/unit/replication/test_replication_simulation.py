"""Replication under a seeded scheduler: whatever happens in whatever order, no obligation is broken.

A failure names its seed and its steps; `play(seed, steps)` plays it again. Each safeguard is taken away once: that must
show.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from kafkalike.model.replication import isr_changes, registration
from kafkalike.model.replication import replica_effects as effects
from kafkalike.model.replication import replica_protocol as protocol
from kafkalike.model.replication.registration import (
    Configuration,
    FellBehindError,
    OtherBytesError,
    Registration,
    Replica,
    View,
)
from tests.tools import replica_actors
from tests.tools.effort import examples, seeds
from tests.tools.replica_world import World, play

STEPS = 160
WORLDS = examples(1_000, 150)


@pytest.mark.slow
def test_no_history_breaks_an_obligation() -> None:
    """Who is in sync has what was acknowledged; nobody is shown two things; what was shown stays; one configuration of
    an epoch; data are where the log says; a loss is written down; and when all is well again, all goes on."""
    counts: Counter[str] = Counter()

    for seed in range(WORLDS):
        counts.update(play(seed, STEPS).counts)

    assert counts["ack"] > WORLDS
    assert counts["epoch"] > WORLDS // 4
    assert counts["join"] > WORLDS // 8
    assert counts["late"] > WORLDS // 50
    assert counts["clean"] > WORLDS // 4
    assert counts["ahead"] > WORLDS // 4
    assert counts["given up"] > WORLDS // 50
    assert counts["looked up"] > WORLDS // 50
    assert counts["compared"] > WORLDS // 8


def test_a_seed_plays_the_same_again() -> None:
    """So a failure can be looked at."""
    first, second = (play(7, STEPS) for _ in range(2))

    assert first.truth == second.truth
    assert first.registered == second.registered


def _many(seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        # Short histories are many, long ones go deep.
        counts.update(play(seed, 1_000 if seed % 50 == 0 else STEPS).counts)
    counts["worlds"] = len(seeds)
    return counts


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_no_history_of_a_million_breaks_an_obligation() -> None:
    """Other seeds, or those of KAFKALIKE_SEEDS, in KAFKALIKE_PROCESSES processes (2). It prints what happened."""
    began, counts = time.monotonic(), Counter[str]()
    wanted = seeds(1_000_000, 1_000_000)
    pieces = [wanted[start : start + 2_000] for start in range(0, len(wanted), 2_000)]
    with ProcessPoolExecutor(int(os.environ.get("KAFKALIKE_PROCESSES", "2"))) as pool:
        for found in pool.map(_many, pieces):
            counts.update(found)
            print(f"{time.monotonic() - began:.0f} s: {dict(counts)}", flush=True)  # noqa: T201

    assert counts["worlds"] == len(wanted)


# --- safeguards taken away ---------------------------------------------------------------------------


Patch = Callable[[pytest.MonkeyPatch], None]
Steps = Generator[Any, Any, Any]
MUTANTS: dict[str, Patch] = {}


def mutant(make: Patch) -> Patch:
    MUTANTS[make.__name__] = make
    return make


def patched(patch: pytest.MonkeyPatch, name: str, value: Any) -> None:
    """Replace a function wherever it was imported."""
    for module in (protocol, isr_changes, registration, replica_actors):
        if hasattr(module, name):
            patch.setattr(module, name, value)


@mutant
def nobody_seals(patch: pytest.MonkeyPatch) -> None:
    """Writers go by what the controller says; nothing in the log keeps those of the old configuration out."""

    def sealing(view: View, registered: Registration, seen: Any) -> Steps:
        decider = registered.decider
        ahead: dict[int, Any] = {}
        while True:
            content = yield from protocol.reading(decider, view.end + len(ahead) + 1)
            if content is None:
                break
            ahead[view.end + len(ahead) + 1] = content
        for replica in registered.chain:
            if replica == registered.joining:
                yield from protocol.bringing(replica, decider, view.end + len(ahead))
            elif replica != decider:
                for version, content in ahead.items():
                    yield from protocol.putting(replica, version, content)
        seen |= ahead
        return View(registered.configuration, view.end + len(ahead))

    patched(patch, "sealing", sealing)


@mutant
def any_successor_leads(patch: pytest.MonkeyPatch) -> None:
    real = registration.without

    def without(registered: Registration, replica: Replica) -> Registration:
        found = real(registered, replica)
        return found if replica != registered.leader else found._replace(chain=found.chain[::-1])

    patched(patch, "without", without)


@mutant
def a_writer_shrinks_the_chain_by_itself(patch: pytest.MonkeyPatch) -> None:
    def mending(view: View, failed: Any, seen: Any) -> Steps:
        known = view.configuration
        if isinstance(failed, protocol.StaleError) or failed.replica not in known.chain or len(known.chain) == 1:
            registered = yield effects.LookAtController()
        else:
            registered = registration.without(Registration(known.epoch, known.chain), failed.replica)
        return (yield from protocol.sealing(view, registered, seen))

    patched(patch, "mending", mending)


@mutant
def the_head_acknowledges(patch: pytest.MonkeyPatch) -> None:
    def publishing(view: View, content: Any, seen: Any) -> Steps:
        chain, version = view.configuration.chain, view.end + 1
        decided = yield from protocol.reading(chain[0], version)
        if decided is None:
            for replica in chain:
                yield effects.Supply(replica, content, None)
            decided = yield from protocol.deciding(chain[0], version, content)
            seen[version] = decided
            return view.after(decided)
        for replica in chain[1:]:
            yield from protocol.putting(replica, version, decided)
        seen[version] = decided
        return view.after(decided)

    patched(patch, "publishing", publishing)


@mutant
def the_leader_comes_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Configuration, "leader", property(lambda self: self.chain[0]))
    patch.setattr(Registration, "leader", property(lambda self: self.in_sync[0]))


@mutant
def data_are_copied_after_the_commit(patch: pytest.MonkeyPatch) -> None:
    real = protocol.publishing

    def publishing(view: View, content: Any, seen: Any) -> Steps:
        after: list[Any] = []
        steps = real(view, content, seen)
        sent: Any = None
        failed: BaseException | None = None
        while True:
            try:
                act = steps.send(sent) if failed is None else steps.throw(failed)
            except StopIteration as done:
                yield from after
                return done.value
            failed, sent = None, None
            if isinstance(act, effects.Supply) and act.replica != view.configuration.head:
                after.append(act)
                continue
            try:
                sent = yield act
            except Exception as raised:  # noqa: BLE001
                failed = raised

    patched(patch, "publishing", publishing)


@mutant
def clean_up_has_no_fence(patch: pytest.MonkeyPatch) -> None:
    def unchecked(_replica: Replica, _version: int) -> Steps:
        yield from ()

    patched(patch, "check_not_cleaned", unchecked)


@mutant
def the_fence_is_looked_at_only_before(patch: pytest.MonkeyPatch) -> None:
    def putting(replica: Replica, version: int, content: Any) -> Steps:
        yield from protocol.check_not_cleaned(replica, version)
        if not (yield effects.Put(replica, version, content)) and (yield effects.Read(replica, version)) != content:
            raise OtherBytesError(replica)

    def deciding(replica: Replica, version: int, content: Any) -> Steps:
        yield from protocol.check_not_cleaned(replica, version)
        if (yield effects.Put(replica, version, content)):
            return content
        found = yield effects.Read(replica, version)
        if found is None:
            raise FellBehindError
        return found

    patched(patch, "putting", putting)
    patched(patch, "deciding", deciding)


@mutant
def one_who_joins_counts_at_once(patch: pytest.MonkeyPatch) -> None:
    real = registration.with_joining
    patched(patch, "with_joining", lambda *args, **rest: real(*args, **rest)._replace(joining=None))


@mutant
def one_who_joins_counts_before_it_has_the_seal(patch: pytest.MonkeyPatch) -> None:
    real = protocol.sealing

    def sealing(view: View, registered: Registration, seen: Any) -> Steps:
        if registered.joining is not None:
            yield effects.Register(registered, registration.confirmed(registered))
        return (yield from real(view, registered, seen))

    patch.setattr(isr_changes, "sealing", sealing)


@mutant
def one_who_joins_has_not_caught_up(patch: pytest.MonkeyPatch) -> None:
    """Nor is it brought to the seal."""

    def caught_up(*_: Any) -> Steps:
        yield from ()
        return True

    def bringing(_replica: Replica, _source: Replica, _last: int) -> Steps:
        yield from ()

    patched(patch, "catching_up", caught_up)
    patched(patch, "bringing", bringing)


@mutant
def a_former_heads_suffix_is_believed(patch: pytest.MonkeyPatch) -> None:
    def right(*_: Any) -> Steps:
        yield from ()
        return True

    patch.setattr(isr_changes, "is_right", right)


@mutant
def a_newcomer_is_put_before_a_single_replica(patch: pytest.MonkeyPatch) -> None:
    def with_joining(registered: Registration, broker: int, *, leads: bool = False) -> Registration:
        newcomer = Replica(broker, registered.life)
        chain = (*registered.chain[:-1], newcomer, registered.chain[-1])
        return registered._replace(epoch=registered.epoch + 1, chain=chain, joining=newcomer)

    patched(patch, "with_joining", with_joining)


@mutant
def a_seal_counts_before_its_leader_has_it(patch: pytest.MonkeyPatch) -> None:
    def following(view: View, seen: Any, registered: Any = None) -> Steps:
        while True:
            known = view.configuration
            behind = registered is not None and known.epoch < registered.epoch
            content = yield from protocol.reading(registered.leader if behind else known.leader, view.end + 1)
            if content is None:
                return view
            view = view.after(content)
            seen[view.end] = content

    patched(patch, "following", following)


@mutant
def a_writer_begins_without_the_seal(patch: pytest.MonkeyPatch) -> None:
    """The first protocol did: it read the new leader, and wrote by the old chain."""
    real = protocol.mending

    def mending(view: View, failed: Any, seen: Any) -> Steps:
        if isinstance(failed, protocol.StaleError):
            yield effects.LookAtController()
            return view
        return (yield from real(view, failed, seen))

    patched(patch, "mending", mending)


@mutant
def an_unclean_leader_keeps_its_name(patch: pytest.MonkeyPatch) -> None:
    """The first protocol did: helpers of the log that is given up still reach it."""

    def choosing(replica: Replica) -> Steps:
        registered = yield effects.LookAtController()
        if any(replica.broker == member.broker for member in registered.chain):
            return None
        kept = yield effects.End(replica)
        chosen = registration.chosen_unclean(registered, replica, kept)
        yield effects.Put(replica, kept + 1, (yield effects.NewSeal(chosen)))
        return chosen if (yield effects.Register(registered, chosen)) else None

    patch.setattr(isr_changes, "choosing_unclean", choosing)


@mutant
def an_unclean_election_is_not_written_down(patch: pytest.MonkeyPatch) -> None:
    real = registration.chosen_unclean
    patched(patch, "chosen_unclean", lambda *args: real(*args)._replace(losses=()))


@mutant
def an_unclean_leader_names_files_that_nobody_has(patch: pytest.MonkeyPatch) -> None:
    """The first protocol did: they were removed where the log went on while the replica joined."""
    patch.setitem(replica_actors.CARRIED_OUT, effects.Missing, lambda _actor, _act: ())


@mutant
def vacuum_has_no_fence(patch: pytest.MonkeyPatch) -> None:
    def fenced(*_: Any) -> Steps:
        yield from ()

    patch.setattr(replica_actors, "fenced", fenced)


@mutant
def a_replica_that_was_emptied_comes_back(patch: pytest.MonkeyPatch) -> None:
    """Under its name: who removes its files may do so when it is in sync again."""

    def given_up(*_: Any) -> Steps:
        yield from ()

    def may_be_emptied(registered: Registration, replica: Replica) -> bool:
        return replica not in registered.chain

    patch.setattr(replica_actors, "given_up", given_up)
    patch.setattr(replica_actors, "may_be_emptied", may_be_emptied)


@mutant
def who_joins_does_not_ask_for_its_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Registration, "name", lambda self, broker: Replica(broker, self.life))
    patch.setattr(replica_actors, "may_be_emptied", lambda registered, replica: replica not in registered.chain)


@mutant
def what_a_former_head_has_counts(patch: pytest.MonkeyPatch) -> None:
    """The protocol did until a trial of roots that hang showed it: versions were read wherever they stand."""
    patch.setitem(replica_actors.CARRIED_OUT, effects.Counts, lambda _actor, _act: True)


RARE = {
    "an_unclean_leader_names_files_that_nobody_has": (40_113_583,),
    "what_a_former_head_has_counts": (2_653,),
    "who_joins_does_not_ask_for_its_name": (1_838,),
}
"""Histories that are known to show a fault that one of a thousand or fewer shows."""

SOUGHT = 40_000
"""In how many histories a fault must show at the latest; most show in the first hundred."""


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_safeguard_taken_away_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the simulation would not see that fault in the protocol either."""
    MUTANTS[name](monkeypatch)

    for seed in (*RARE.get(name, ()), *range(SOUGHT)):
        try:
            play(seed, STEPS if seed % 2 else 2 * STEPS)
        except AssertionError:
            return
    pytest.fail(f"{name} is not noticed in {SOUGHT} histories")


def test_a_world_says_what_it_tried() -> None:
    """Each kind of history is among the first ones."""
    kinds = Counter((len(world.brokers), world.factor, world.faults.unclean) for world in map(World, range(400)))

    assert len(kinds) > 12
