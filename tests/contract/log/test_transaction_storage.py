"""Transactions over a store that lies: three clients share two transactional ids; no outcome is split, lost or doubled.

Real sessions, tables and staged files, in memory. Answers get lost, puts land late, requests are refused, and others
act between any two requests. A seed plays the same again.
"""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from kafkalike.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    KafkaStorageError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    UnknownOutcomeError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.transactions.session import TransactionSession
from kafkalike.model.clock import Deadline
from kafkalike.model.record_batch import Appended
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.model.transactions import roll_forward, rules
from kafkalike.model.transactions.group_claims import GroupClaim
from tests.tools.effort import seeds
from tests.tools.everywhere import EverywhereStore, Mood, SimulatedClock
from tests.tools.records import batch, everything

TOPICS = ("a", "b")
IDS = ("x", "y")
TROUBLE = (0.0, 0.03, 0.15)
SILENCE = 0.06
"""How probable it is that the storage falls silent at a commit of a table."""
SEEDS = seeds(36, 12)
SOAK_SECONDS = 240
TIMEOUT_MS = 60_000
FENCED = (ProducerFencedError, InvalidProducerEpochError)
UNANSWERED = (KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError)


@dataclass
class Sent:
    """A transaction as its client knows it."""

    label: str
    values: dict[str, list[str]] = field(default_factory=dict)
    """By topic, what was staged."""
    number: int = 0
    doubt: bool = False
    """Whether a commit went without an answer."""
    outcome: str = "unknown"
    places: Mapping[str, Appended] = field(default_factory=dict)


class Storage(Mood):
    """What befalls requests; now and then it gives no answer for a while, so that an outcome stays unknown."""

    silent = 0
    """So many requests more."""

    def broken(self) -> bool:
        if self.silent:
            self.silent -= 1
            return True
        return super().broken()

    def between(self, call: str) -> None:
        super().between(call)
        if self.trouble and not self.silent and call.startswith("put _delta_log") and self.rng.random() < SILENCE:
            self.silent = self.rng.randint(5, 30)

    def settle(self) -> None:
        self.silent = 0
        super().settle()


class Place:
    """A root with two topics."""

    def __init__(self, seed: int) -> None:
        self.clock = SimulatedClock()
        self.mood = Storage(random.Random(seed))
        # Threads would come in any order.
        self.mood.far = False
        self.store = EverywhereStore(self.clock, self.mood)
        self.counts: Counter[str] = Counter()
        self.cuts: list[dict[str, int]] = []
        for topic in TOPICS:
            self.cluster().create_topic(topic, 1, {"message.timestamp.before.max.ms": str(2**62)})
        self.mood.meant = lambda table: table in {*TOPICS, "__consumer_offsets", "__transactions"}

    def cluster(self) -> Cluster:
        return Cluster(self.store, clock=self.clock)


class Client:
    """One process: a producer, or what is left of one that was killed."""

    def __init__(self, place: Place, name: str) -> None:
        self.place = place
        self.name = name
        self.sent: list[Sent] = []
        self.busy = False
        self._born()

    def _born(self) -> None:
        self.cluster = self.place.cluster()
        self.session: TransactionSession | None = None
        self.open: Sent | None = None
        self.number = 0

    @property
    def _deadline(self) -> Deadline:
        return Deadline(self.place.clock, self.place.mood.rng.choice([200.0, 60_000.0]))

    def act(self) -> None:
        """Do the next thing, unless this is in the middle of one."""
        if self.busy:
            return
        self.busy = True
        rng = self.place.mood.rng
        try:
            if rng.random() < 0.04:
                self._born()
            elif rng.random() < 0.2:
                rng.choice([self._maintain, self._help, self._cut, self._wait, self._append])()
            elif self.session is None:
                self._begin()
            elif self.open is not None and rng.random() < 0.5:
                self._abort(self.open) if rng.random() < 0.25 else self._commit(self.open)
            else:
                self._stage()
        except UNANSWERED as error:
            self.place.counts[type(error).__name__] += 1
        finally:
            self.busy = False

    # --- a producer ----------------------------------------------------------------------------

    def _begin(self) -> None:
        transactional_id = self.place.mood.rng.choice(IDS)
        self.session = self.cluster.transactions.begin_session(transactional_id, TIMEOUT_MS, self.name, self._deadline)
        self.number = 0

    def _stage(self) -> None:
        assert self.session is not None
        if self.open is None:
            self.number += 1
            self.open = Sent(f"{self.name}.{len(self.sent)}", number=self.number)
            self.sent.append(self.open)
        sent, rng = self.open, self.place.mood.rng
        if sent.doubt:
            self._commit(sent)
            return
        topic = rng.choice(TOPICS)
        known = sent.values.setdefault(topic, [])
        values = [f"{sent.label}.{len(known) + n}" for n in range(rng.randint(1, 3))]
        self.session.stage(sent.number, self.cluster.log(topic), batch(*values), deadline=self._deadline)
        known += values

    def _commit(self, sent: Sent) -> None:
        assert self.session is not None
        claim = GroupClaim(group_id=f"group of {self.session.transactional_id}")
        offsets = {claim: {TopicPartition("a", 0): OffsetAndMetadata(len(self.sent), sent.label)}}
        try:
            sent.places = self.session.commit(sent.number, offsets, self._deadline)
        except (TransactionAbortableError, InvalidTxnStateError):
            # It was open for too long, or an abort without an answer was made.
            self._abort(sent)
        except FENCED as error:
            # It says so where nobody knows any more what became of a call without an answer.
            self._over(sent, "unknown" if "is not known any more" in str(error) else "refused", gone=True)
        except UNANSWERED:
            sent.doubt = True
            raise
        else:
            self._over(sent, "committed")

    def _abort(self, sent: Sent) -> None:
        assert self.session is not None
        try:
            self.session.abort(sent.number, self._deadline)
        except InvalidTxnStateError:
            assert sent.doubt
            self._commit(sent)
        except FENCED as error:
            # It says so where nobody knows any more what became of a call without an answer.
            self._over(sent, "unknown" if "is not known any more" in str(error) else "refused", gone=True)
        except UNANSWERED:
            # From here on it takes no more records.
            sent.doubt = True
            raise
        else:
            self._over(sent, "refused")

    def _over(self, sent: Sent, outcome: str, *, gone: bool = False) -> None:
        sent.outcome, self.open = outcome, None
        self.place.counts[outcome] += 1
        if gone:
            self.place.counts["fenced"] += 1
            self.session = None

    # --- anybody -------------------------------------------------------------------------------

    def _maintain(self) -> None:
        self.cluster.transactions.maintain(self._deadline)

    def _help(self) -> None:
        self.cluster.transactions.help([self.cluster.log(topic) for topic in TOPICS], self._deadline)

    def _cut(self) -> None:
        cut = self.cluster.transactions.cut(TOPICS, self._deadline)
        self.place.cuts.append({topic: at.ends[0] for topic, at in cut.topics.items()})

    def _wait(self) -> None:
        self.place.clock.sleep(self.place.mood.rng.choice([0.5, 5, TIMEOUT_MS / 1000]))

    def _append(self) -> None:
        self.cluster.log(self.place.mood.rng.choice(TOPICS)).append(batch("plain"), timeout_ms=60_000)


def play(seed: int) -> Place:
    """One history, judged."""
    # How long clients wait after a failed request, and ids.
    random.seed(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=random.getrandbits(128), version=4))
        return _play(seed)


def _play(seed: int) -> Place:
    place = Place(seed)
    rng = place.mood.rng
    clients = [Client(place, name) for name in "pqr"]
    place.mood.trouble = TROUBLE[seed % len(TROUBLE)]
    for _ in range(rng.randint(30, 60)):
        place.mood.others = [rng.choice(clients).act for _ in range(rng.randint(0, 4))]
        rng.choice(clients).act()
    place.mood.settle()
    place.clock.sleep(2 * TIMEOUT_MS / 1000)
    try:
        judge(place, [sent for client in clients for sent in client.sent])
    except (AssertionError, KafkaError) as wrong:
        message = f"seed {seed}: {wrong}"
        raise AssertionError(message) from wrong
    return place


def judge(place: Place, sent: list[Sent]) -> None:
    """Every transaction is in all of its topics once, in order, or in none; and so are its offsets."""
    cluster = place.cluster()
    assert cluster.transactions.maintain(Deadline(place.clock, 60_000)) == []
    found = {topic: [value for _, value in everything(cluster.log(topic))[0]] for topic in TOPICS}
    seen = {label for values in found.values() for value in values if (label := value.rpartition(".")[0])}
    decided = {row.metadata for row in cluster.groups.rows if row.kind == "offset"}
    orders = {
        topic: {value: nth for nth, value in enumerate(values) if value != "plain"} for topic, values in found.items()
    }
    for topic, values in found.items():
        assert len(orders[topic]) + values.count("plain") == len(values), f"{topic} has records twice"
    for one in sent:
        committed = one.label in seen or one.label in decided
        assert one.outcome != "refused" or not committed, f"{one.label} was refused"
        assert one.outcome != "committed" or one.label in decided, f"{one.label} was committed"
        for topic, values in one.values.items():
            at = [orders[topic].get(value) for value in values]
            if not committed:
                assert at == [None] * len(at)
                continue
            if not values:
                # Its staging was refused.
                continue
            assert at == list(range(at[0] or 0, (at[0] or 0) + len(at))), f"{one.label} in {topic}: {at}"
            if one.outcome == "committed":
                assert list(one.places[topic].ranges[0]) == at
        for cut in place.cuts:
            shown = {
                orders[topic][value] < cut[topic]
                for topic, values in one.values.items()
                for value in values
                if committed
            }
            assert len(shown) < 2, f"a cut shows a part of {one.label}"
    assert cluster.transactions.open_for() == []
    assert cluster.transactions.damaged() == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_lie_of_the_storage_splits_loses_or_doubles_a_transaction() -> None:
    """And the trial is of what it says: all endings occur."""
    counts: Counter[str] = Counter()
    cuts = 0
    for seed in SEEDS:
        place = play(seed)
        counts.update(place.counts)
        cuts += len(place.cuts)

    assert counts["committed"] > 2 * len(SEEDS)
    assert counts["refused"] > len(SEEDS)
    assert counts["fenced"] > len(SEEDS) // 4
    assert counts["UnknownOutcomeError"] > 0
    assert cuts > len(SEEDS) // 4


@pytest.mark.slow
def test_a_seed_plays_the_same_again() -> None:
    """So a failure can be looked at."""
    first, second = (play(5) for _ in range(2))

    assert first.mood.calls == second.mood.calls
    assert first.counts == second.counts


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_no_lie_of_the_storage_splits_loses_or_doubles_a_transaction_for_minutes() -> None:
    """Other seeds. It prints what happened."""
    counts: Counter[str] = Counter()
    begun, seed = time.monotonic(), 10**6
    while time.monotonic() - begun < SOAK_SECONDS:
        counts.update(play(seed).counts)
        seed += 1
    print(f"{seed - 10**6} histories, {dict(counts)}")  # noqa: T201 - for who runs it by hand


Patch = Callable[[pytest.MonkeyPatch], None]


def _a_row_follows_a_decision_that_is_not_everywhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "_check_settled", lambda *_: None)


def _a_topic_gets_only_the_decision_that_is_wanted(patch: pytest.MonkeyPatch) -> None:
    real = roll_forward.pending
    patch.setattr(roll_forward, "pending", lambda *args: real(*args)[-1:])


def _a_commit_that_is_asked_for_again_is_a_new_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "committed_as", lambda *_: None)


def _no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "current_state", lambda groups, name, _attempt, **_: groups.transactions[name])


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "mutant",
    [
        _a_row_follows_a_decision_that_is_not_everywhere,
        _a_topic_gets_only_the_decision_that_is_wanted,
        _a_commit_that_is_asked_for_again_is_a_new_one,
        _no_fence,
    ],
    ids=lambda mutant: mutant.__name__,
)
def test_the_trial_finds_a_missing_safeguard(mutant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)

    assert any(_wrong(seed) for seed in range(600))


def _wrong(seed: int) -> bool:
    try:
        play(seed)
    except (AssertionError, KafkaError):
        return True
    return False
