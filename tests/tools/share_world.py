"""Share partitions under a seeded scheduler: members acquire, acknowledge, die and return, and retention deletes.

Some acknowledgements are part of a transaction, which one refusal aborts. Some groups write dead letters: a record that
was delivered too often goes to a member, which writes the letter and rejects the record in one transaction. Some new
records are not due by the statistics of their files.

The oracle keeps each record by itself, in a dict, and shares no code with the rules that it judges.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from types import ModuleType
from typing import Any

from kafkalike.model.shares import share_partition
from kafkalike.model.shares.share_runs import dump_share, load_share, merged_offsets
from kafkalike.model.structs import TopicPartition

LOCK_MS = 30
MEMBERS = "abc"


@dataclass
class Fact:
    """One record, as the oracle knows it."""

    state: str = "available"
    deliveries: int = 0
    member: str = ""
    until: int = 0


@dataclass
class ShareOracle:
    """What must be true of a share partition, record by record."""

    limit: int
    locks: int
    archives: bool = True
    start: int = 0
    facts: dict[int, Fact] = field(default_factory=dict)
    accepted: Counter[int] = field(default_factory=Counter)
    letters: Counter[int] = field(default_factory=Counter)
    """Dead letters, by offset of their record."""

    @property
    def end(self) -> int:
        return max(self.facts, default=self.start - 1) + 1

    def settle(self) -> None:
        while self.start in self.facts and self.facts[self.start].state in {"acknowledged", "archived"}:
            del self.facts[self.start]
            self.start += 1

    def delete_below(self, log_start: int) -> None:
        if log_start > self.start:
            self.start = log_start
            self.facts = {offset: fact for offset, fact in self.facts.items() if offset >= log_start}
            self.settle()

    def acquire(
        self, member: str, most: int, now: int, log_end: int, later: Sequence[tuple[int, int, int]] = ()
    ) -> dict[int, int]:
        got: dict[int, int] = {}
        for offset in sorted(self.facts):
            fact = self.facts[offset]
            if fact.state not in {"available", "acquired"} or fact.until > now:
                continue
            if self.archives and fact.deliveries >= self.limit:
                self.facts[offset] = Fact("archived")
            elif len(got) < most:
                self.facts[offset] = Fact("acquired", fact.deliveries + 1, member, now + LOCK_MS)
                got[offset] = fact.deliveries + 1
        open_records = [
            fact
            for fact in self.facts.values()
            if fact.state == "acquired" or (fact.state == "available" and not fact.until)
        ]
        room = self.locks - len(open_records)
        offset = self.end
        while offset < log_end:
            due = next((until for first, last, until in later if first <= offset <= last), 0)
            if due > now:
                self.facts[offset] = Fact(until=due)
            elif room > 0 and len(got) < most:
                self.facts[offset] = Fact("acquired", 1, member, now + LOCK_MS)
                got[offset] = 1
                room -= 1
            else:
                break
            offset += 1
        self.settle()
        return got

    def acknowledge(self, member: str, offset: int, said: str, deliveries: int | None, now: int, due: int) -> bool:
        fact = self.facts.get(offset)
        if fact is None or (fact.state, fact.member) != ("acquired", member):
            return False
        if deliveries is not None and fact.deliveries != deliveries:
            return False
        if said == "accept":
            self.accepted[offset] += 1
            self.facts[offset] = Fact("acknowledged")
        elif said == "reject" or (said == "release" and self.archives and fact.deliveries >= self.limit):
            self.facts[offset] = Fact("archived")
        elif said == "renew":
            fact.until = now + LOCK_MS
        else:
            self.facts[offset] = Fact("available", fact.deliveries - (said == "return"), "", due)
        return True

    def view(self) -> list[tuple[int, str, int, str, int]]:
        return [(o, f.state, f.deliveries, f.member, f.until) for o, f in sorted(self.facts.items())]


def expanded(state: Any) -> list[tuple[int, str, int, str, int]]:
    """The records of a state, one by one."""
    return [
        (offset, run.state.name.lower(), run.deliveries, run.member_id, run.until_ms)
        for run in state.runs
        for offset in range(run.first, run.last + 1)
    ]


def simulate(seed: int, rules: ModuleType = share_partition) -> int:
    """Run one random history; return its number of records. Raises AssertionError if rules and oracle differ."""
    chance = Random(seed)
    limit, locks = chance.randint(1, 4), chance.choice([3, 12, 1000])
    archives = chance.random() < 0.7
    limits = rules.ShareLimits(lock_ms=LOCK_MS, deliveries=limit, locks=locks, archives=archives)
    oracle, state = ShareOracle(limit, locks, archives), rules.SharePartition("id")
    held: dict[str, dict[int, int]] = {member: {} for member in MEMBERS}
    now = log_start = log_end = 0
    for _ in range(chance.randint(4, 24)):
        now += chance.choice([0, 1, 7, LOCK_MS - 1, LOCK_MS])
        log_end += chance.choice([0, 0, 2, 9])
        member, act = chance.choice(MEMBERS), chance.random()
        if act < 0.45:
            if chance.random() < 0.1:
                log_start = max(log_start, chance.randint(0, log_end))
            most = chance.choice([1, 3, 20])
            oracle.delete_below(log_start)
            later = _later(chance, oracle.end, log_end, now) if chance.random() < 0.3 else []
            want = rules.has_ready(rules.advance(state, log_start), now_ms=now, log_end=log_end, limits=limits)
            before, expected = state, oracle.acquire(member, most, now, log_end, later)
            done = rules.acquire(
                state,
                member,
                most=most,
                now_ms=now,
                log_start=log_start,
                log_end=log_end,
                limits=limits,
                later=later,
            )
            state = done.after
            taken = {o: run.deliveries for run in done.taken for o in range(run.first, run.last + 1)}
            assert taken == expected, (taken, expected)
            scheduled = bool(later) and state.end > rules.advance(before, log_start).end
            assert want == bool(done.taken or done.archived) or scheduled
            assert want or scheduled or before is state or log_start > before.start
            assert not any(oracle.accepted[o] for o in taken), "delivered after it was accepted"
            assert not any(run.deliveries < limit for run in done.archived)
            exhausted = [] if archives else [run for run in done.taken if run.deliveries > limit]
            held[member].update({o: count for o, count in taken.items() if archives or count <= limit})
            if chance.random() < 0.8:  # or the letters cannot be written, and the locks end
                state = _bury(rules, state, oracle, member, exhausted, now, limits)
        elif act < 0.9:
            state = _acknowledge(chance, rules, state, oracle, member, held, now, limits)
        elif act < 0.95:
            held[member].clear()  # dies; its locks end by time
        else:
            state = rules.release_member(state, member, limits)
            for offset, fact in list(oracle.facts.items()):
                if (fact.state, fact.member) == ("acquired", member):
                    oracle.acknowledge(member, offset, "release", None, now, 0)
            oracle.settle()
            held[member].clear()
        _check(rules, state, oracle, now, log_end, stored=chance.random() < 0.25)
    _finish(rules, state, oracle, now, log_end, limits)
    return log_end


def _later(chance: Random, end: int, log_end: int, now: int) -> list[tuple[int, int, int]]:
    """Ranges of records that are not due by the statistics of their files; a file may end before `end`."""
    found, at = [], max(0, end - 2)
    while at < log_end:
        last = at + chance.randint(0, 4)
        if chance.random() < 0.5:
            found.append((at, last, now + chance.choice([0, 20, 60])))
        at = last + 1
    return found


def _bury(
    rules: ModuleType, state: Any, oracle: ShareOracle, member: str, runs: Sequence[Any], now: int, limits: Any
) -> Any:
    """Write the dead letters of runs, and reject their records."""
    reject = rules.RecordVerdict.REJECT
    acks = [rules.Acknowledgement(run.first, run.last, reject, run.deliveries) for run in runs]
    state, refused = rules.acknowledge(state, member, acks, now_ms=now, limits=limits)
    assert not refused
    for run in runs:
        for offset in range(run.first, run.last + 1):
            assert oracle.acknowledge(member, offset, "reject", run.deliveries, now, 0)
            oracle.letters[offset] += 1
    oracle.settle()
    return state


def _acknowledge(
    chance: Random,
    rules: ModuleType,
    state: Any,
    oracle: ShareOracle,
    member: str,
    held: dict[str, dict[int, int]],
    now: int,
    limits: Any,
) -> Any:
    whose = chance.choice(MEMBERS) if chance.random() < 0.1 else member  # records of another member are refused
    offsets = sorted(held[whose])
    some = chance.sample(offsets, chance.randint(0, len(offsets))) if chance.random() < 0.5 else offsets
    acks, expected = [], []
    transaction = chance.random() < 0.3
    facts, accepted, mine = deepcopy(oracle.facts), oracle.accepted.copy(), dict(held[whose])
    for offset in sorted(some):
        said = chance.choice(["accept", "accept", "release", "reject", "renew", "return"])
        deliveries = chance.choice([None, held[whose][offset]])
        due = now + chance.choice([0, 40]) if said in {"release", "return"} else 0
        acks.append(rules.Acknowledgement(offset, offset, rules.RecordVerdict(said), deliveries, due))
        if not oracle.acknowledge(member, offset, said, deliveries, now, due):
            expected.append(offset)
        if said != "renew":
            del held[whose][offset]
    oracle.settle()
    packed = _packed(rules, acks) if chance.random() < 0.5 else acks
    chance.shuffle(packed)
    place = TopicPartition("t", 0)
    changed, refused = rules.acknowledge_all({place: state}, member, {place: packed}, now_ms=now, limits=limits)
    assert [o for ack in refused.get(place, ()) for o in range(ack.first, ack.last + 1)] == expected
    if transaction and refused:
        # It aborts, and nothing has happened; the locks end by time, or the member acknowledges again.
        oracle.facts, oracle.accepted, oracle.start, held[whose] = facts, accepted, state.start, mine
        return state
    return changed.get(place, state)


def _packed(rules: ModuleType, acks: list[Any]) -> list[Any]:
    """The same acknowledgements as ranges."""
    found = merged_offsets((ack.first, tuple(ack[2:])) for ack in acks)
    return [rules.Acknowledgement(first, last, *facts) for first, last, facts in found]


def _check(rules: ModuleType, state: Any, oracle: ShareOracle, now: int, log_end: int, *, stored: bool) -> None:
    assert state.start == oracle.start, (state, oracle.start)
    assert expanded(state) == oracle.view(), (state, oracle.view())
    assert state.end == oracle.end
    unfinished = [f for f in oracle.facts.values() if f.state in {"available", "acquired"}]
    assert state.lag(log_end) == max(0, log_end - oracle.end) + len(unfinished)
    later = [f.until for f in unfinished if f.until > now]
    assert rules.next_change_ms(state, now) == min(later, default=None)
    assert all(one[2:] != other[2:] for one, other in zip(state.runs, state.runs[1:], strict=False))
    if stored:
        assert load_share(json.loads(dump_share(state)), "id") == state


def _finish(rules: ModuleType, state: Any, oracle: ShareOracle, now: int, log_end: int, limits: Any) -> None:
    """With one diligent member left, each record is accepted once or archived, and none is forgotten."""
    for _ in range(200):
        now += 100
        done = rules.acquire(state, "z", most=500, now_ms=now, log_start=0, log_end=log_end, limits=limits)
        oracle.acquire("z", 500, now, log_end)
        acks = [rules.Acknowledgement(r.first, r.last, rules.RecordVerdict.ACCEPT, r.deliveries) for r in done.taken]
        state, refused = rules.acknowledge(done.after, "z", acks, now_ms=now, limits=limits)
        for ack in acks:
            for offset in range(ack.first, ack.last + 1):
                oracle.acknowledge("z", offset, "accept", None, now, 0)
        oracle.settle()
        assert not refused
        if state.start >= log_end:
            break
    assert (state.start, state.runs) == (max(log_end, state.start), ()), state
    assert max((oracle.accepted + oracle.letters).values(), default=0) <= 1
