"""Brokers and replicas as values, and the rows of the metadata that say who they are."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.model.brokers import (
    Broker,
    ReplicatedTable,
    broker_of,
    broker_value,
    first_replicas,
    replicas_of,
    replicas_value,
)
from kafkalike.model.replication.registration import Registration, Replica, UncleanElection
from kafkalike.model.replication.replicas import ReplicaEnd, ReplicaLag, Replicas
from kafkalike.model.row_value import parse_json

TABLE = ReplicatedTable(
    location="topics/t",
    assigned=(2, 1, 3),
    registration=Registration(
        epoch=5,
        chain=(Replica(3, 1), Replica(1), Replica(2, 4)),
        joining=Replica(3, 1),
        life=4,
        losses=(UncleanElection(3, Replica(1, 2), 17, (Replica(1, 2), Replica(3))),),
    ),
)
SAID: dict[str, Any] = {
    "v": 1,
    "location": "topics/t",
    "assigned": [2, 1, 3],
    "epoch": 5,
    "chain": [[3, 1], [1, 0], [2, 4]],
    "joining": [3, 1],
    "life": 4,
    "losses": [[3, [1, 2], 17, [[1, 2], [3, 0]]]],
}
BROKER: dict[str, Any] = {"v": 1, "broker": 3, "uri": "/r3", "rack": "a", "draining": True, "removed": False}


# --- tables ------------------------------------------------------------------------------------------


def test_a_new_table_has_all_its_replicas_in_sync_and_is_led_by_the_first() -> None:
    table = first_replicas("topics/t", [2, 3, 1])

    assert table == ReplicatedTable(
        location="topics/t",
        assigned=(2, 3, 1),
        registration=Registration(0, (Replica(3), Replica(1), Replica(2))),
    )
    assert (table.leader, table.isr) == (2, (2, 1, 3))


def test_who_joins_neither_leads_nor_is_in_sync() -> None:
    assert (TABLE.leader, TABLE.isr) == (2, (2, 1))


@given(st.lists(st.integers(1, 9), min_size=1, unique=True))
def test_a_new_table_says_in_its_row_what_it_is(assigned: list[int]) -> None:
    table = first_replicas("__consumer_offsets", assigned)

    assert replicas_of(parse_json(replicas_value(table))) == table
    assert set(table.isr) == set(assigned)
    assert table.leader == assigned[0]


def test_what_is_registered_of_a_table_is_in_its_row() -> None:
    assert parse_json(replicas_value(TABLE)) == SAID
    assert replicas_of(SAID) == TABLE
    assert list(parse_json(replicas_value(TABLE))) == sorted(SAID)
    assert replicas_of(SAID | {"joining": None}).registration.joining is None


def test_who_is_being_added_and_what_was_lost_of_files_are_in_the_row_where_there_is_any() -> None:
    """Rows without them are those of the first release."""
    (loss,) = TABLE.registration.losses
    registered = TABLE.registration._replace(losses=(loss, loss._replace(files=3)))
    table = replace(TABLE, adding=(4, 6), registration=registered)
    said = SAID | {"adding": [4, 6], "losses": [SAID["losses"][0], [*SAID["losses"][0], 3]]}

    assert parse_json(replicas_value(table)) == said
    assert replicas_of(said) == table


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("location", None, "^'location' is None"),
        ("assigned", ["2"], "^'assigned' is '2', .* from 1$"),
        ("assigned", [2.5], "^'assigned'"),
        ("assigned", [0], "^'assigned'"),
        ("assigned", None, None),
        ("epoch", -1, "^'epoch'"),
        ("life", "4", "^'life'"),
        ("chain", [[3, 1, 1]], None),
        ("chain", [[3, -1]], "^'life' is -1"),
        ("chain", [["3", 1]], "^'broker' is '3', .* from 1$"),
        ("chain", [[0, 0]], "^'broker'"),
        ("joining", 3, None),
        ("joining", [3], None),
        ("losses", [[3, [1, 2], 17]], None),
        ("losses", [[-1, [1, 2], 17, []]], "^'epoch' is -1"),
        ("losses", [[3, [1, 2], -2, []]], "^'kept' is -2, .* from -1$"),
        ("losses", [[3, [1, 2], "17", []]], "^'kept'"),
        ("losses", [[3, [1, 2], 17, [], "2"]], "^'files' is '2', .* from 0$"),
        ("losses", [[3, [1, 2], 17, [], 2.5]], "^'files'"),
        ("losses", [[3, [1, 2], 17, [], 2, 2]], None),
        ("adding", ["4"], "^'adding' is '4', .* from 1$"),
        ("adding", [0], "^'adding'"),
    ],
)
def test_a_damaged_row_of_replicas_is_refused(name: str, value: object, said: str | None) -> None:
    """A broker's id that is read wrongly would make another root the leader."""
    with pytest.raises((TypeError, ValueError), match=said):
        replicas_of(SAID | {name: value})


def test_a_replica_that_had_nothing_may_have_been_chosen() -> None:
    """In the first epoch, too: then all is lost."""
    found = replicas_of(SAID | {"losses": [[0, [1, 0], -1, []]]})

    assert found.registration.losses == (UncleanElection(0, Replica(1), -1, ()),)


def test_a_table_that_nobody_has_in_sync_is_damage() -> None:
    """Not even where somebody is about to be."""
    for chain, joining in (([], None), ([[3, 1]], [3, 1])):
        with pytest.raises(ValueError, match=r"^no replica is in sync$"):
            replicas_of(SAID | {"chain": chain, "joining": joining})


@pytest.mark.parametrize("name", sorted(SAID.keys() - {"v"}))
def test_a_row_of_replicas_that_lacks_something_is_refused(name: str) -> None:
    with pytest.raises(KeyError, match=name):
        replicas_of({key: value for key, value in SAID.items() if key != name})


# --- brokers -----------------------------------------------------------------------------------------


def test_what_a_broker_is_is_in_its_row() -> None:
    broker = Broker(id=3, uri="/r3", rack="a", draining=True)

    assert parse_json(broker_value(broker)) == BROKER
    assert list(parse_json(broker_value(broker))) == sorted(BROKER)
    assert broker_of(BROKER) == (broker, False)


def test_a_broker_may_have_no_rack_and_may_be_gone() -> None:
    broker = Broker(id=1, uri="s3://b/r")

    assert broker_of(parse_json(broker_value(broker, removed=True))) == (broker, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [("broker", 0), ("broker", "3"), ("uri", None), ("rack", 5), ("draining", "no"), ("removed", 0)],
)
def test_a_damaged_row_of_a_broker_is_refused(name: str, value: object) -> None:
    """One that says "no" where true or false stands would be emptied, or gone."""
    with pytest.raises(TypeError, match=name):
        broker_of(BROKER | {name: value})


@pytest.mark.parametrize("name", sorted(BROKER.keys() - {"v"}))
def test_a_row_of_a_broker_that_lacks_something_is_refused(name: str) -> None:
    with pytest.raises(KeyError, match=name):
        broker_of({key: value for key, value in BROKER.items() if key != name})


# --- how far replicas are ----------------------------------------------------------------------------


def replicas(leader: int, *ends: ReplicaEnd) -> Replicas:
    return Replicas(topic="t", leader=leader, epoch=0, replicas=(1, 2, 3), isr=(1, 2), ends=ends)


def end(broker: int, version: int | None, size: int | None, time_ms: int | None = None) -> ReplicaEnd:
    return ReplicaEnd(broker=broker, in_sync=True, version=version, bytes=size, time_ms=time_ms)


def test_a_replica_is_behind_by_versions_bytes_and_seconds() -> None:
    found = replicas(1, end(1, 9, 900, 5_000), end(2, 7, 650, 3_500), end(3, 9, 900, 1_000)).lags()

    assert found == {
        1: ReplicaLag(versions=0, bytes=0, seconds=0),
        2: ReplicaLag(versions=2, bytes=250, seconds=1.5),
        # It has the leader's version: when its root's clock says it was made does not matter.
        3: ReplicaLag(versions=0, bytes=0, seconds=0),
    }


def test_a_replica_that_came_further_in_between_is_not_behind() -> None:
    """The leader was asked first."""
    assert replicas(1, end(1, 9, 900, 5_000), end(2, 10, 950, 6_000)).lags()[2] == ReplicaLag(
        versions=0, bytes=0, seconds=0
    )


def test_what_is_not_known_of_a_replica_is_left_open() -> None:
    found = replicas(1, end(1, 9, 900, 5_000), end(2, None, None), end(3, 7, 650)).lags()

    assert (found[2], found[3]) == (ReplicaLag(), ReplicaLag(versions=2, bytes=250))
    assert replicas(1, end(1, 9, 900), end(2, 7, 650, 3_500)).lags()[2] == ReplicaLag(versions=2, bytes=250)


def test_without_the_leader_nobody_knows_how_far_replicas_are_behind() -> None:
    assert replicas(-1, end(2, 7, 650, 3_500)).lags() == {2: ReplicaLag()}
    assert replicas(1, end(1, None, None), end(2, 7, 650)).lags()[2] == ReplicaLag()
    assert replicas(1).lags() == {}


def test_a_topic_is_under_replicated_while_somebody_who_shall_have_it_is_not_in_sync() -> None:
    assert Replicas(topic="t", leader=1, epoch=0, replicas=(1, 2), isr=(1,)).under_replicated
    assert not Replicas(topic="t", leader=1, epoch=0, replicas=(1, 2), isr=(3, 2, 1)).under_replicated


# --- reassignments --------------------------------------------------------------------------------


def table(*chain: int, assigned: tuple[int, ...], adding: tuple[int, ...] = ()) -> ReplicatedTable:
    registration = Registration(1, tuple(map(Replica, chain)))
    return ReplicatedTable(location="t", assigned=assigned, registration=registration, adding=adding)


def test_a_reassignment_is_under_way_while_somebody_is_to_come_or_to_go() -> None:
    """One that is assigned and only out of sync is no reassignment."""
    assert not table(1, 2, assigned=(1, 2)).reassigning
    assert not table(1, assigned=(1, 2)).reassigning
    assert table(1, 2, assigned=(1, 2, 3), adding=(3,)).reassigning
    assert table(1, 2, 3, assigned=(1, 2)).reassigning


def test_those_are_added_who_did_not_have_the_table() -> None:
    """Who is in sync has it, and who was assigned before was not named by this reassignment."""
    before = table(1, 2, assigned=(1, 4))

    after = before.reassigned([2, 3, 4])

    assert (after.assigned, after.adding) == ((2, 3, 4), (3,))
    assert after.registration == before.registration
    assert after.reassigned([3, 5]).adding == (3, 5)


def test_who_is_in_sync_is_added_no_longer() -> None:
    """Also when it falls out of sync later: it has been there."""
    adding = table(1, assigned=(2, 3), adding=(2, 3))

    joined = adding.registered(Registration(2, (Replica(1), Replica(2))))

    assert (joined.adding, joined.registration.epoch) == ((3,), 2)
    assert joined.registered(Registration(3, (Replica(1),))).adding == (3,)
    joining = Registration(2, (Replica(1), Replica(2)), Replica(2))
    assert adding.registered(joining).adding == (2, 3)
