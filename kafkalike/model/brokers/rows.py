"""Broker rows: what `__cluster_metadata` says of storage roots and of replicas, as JSON in, values out, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from kafkalike.model.brokers import Broker, ReplicatedTable
from kafkalike.model.replication.values import Loss, Registration, Replica
from kafkalike.model.row_value import VERSION, as_whole, flag, text, whole

BROKER: Final = "broker"
"""Kind of a row that says what a broker is."""

REPLICAS: Final = "replicas"
"""Kind of a row that says who has a table."""


def broker_value(broker: Broker, *, removed: bool = False) -> str:
    """The value of a broker's row."""
    value = {
        VERSION: 1,
        "broker": broker.id,
        "uri": broker.uri,
        "rack": broker.rack,
        "draining": broker.draining,
        "removed": removed,
    }
    return json.dumps(value, sort_keys=True)


def broker_of(value: Mapping[str, Any]) -> tuple[Broker, bool]:
    """What such a value says, and whether the broker was removed."""
    rack = value["rack"]
    found = Broker(
        id=whole(value, "broker", at_least=1),
        uri=text(value, "uri"),
        rack=None if rack is None else text(value, "rack"),
        draining=flag(value, "draining"),
    )
    return found, flag(value, "removed")


def replicas_value(table: ReplicatedTable) -> str:
    """The value of the row that says who has a table."""
    registered = table.registration
    value = {
        VERSION: 1,
        "location": table.location,
        "assigned": list(table.assigned),
        "epoch": registered.epoch,
        "chain": list(map(list, registered.chain)),
        "joining": None if registered.joining is None else list(registered.joining),
        "life": registered.life,
        **({"adding": list(table.adding)} if table.adding else {}),
        **({"renamed": list(map(list, registered.renamed))} if registered.renamed else {}),
        "losses": [
            [loss.epoch, loss.replica, loss.kept, loss.chain, *([loss.files] if loss.files else [])]
            for loss in registered.losses
        ],
    }
    return json.dumps(value, sort_keys=True)


def replicas_of(value: Mapping[str, Any]) -> ReplicatedTable:
    """What such a value says."""
    joining = value["joining"]
    registration = Registration(
        epoch=whole(value, "epoch"),
        chain=tuple(map(_replica, value["chain"])),
        joining=None if joining is None else _replica(joining),
        life=whole(value, "life"),
        losses=tuple(
            # Rows of the first release do not count files.
            Loss(
                as_whole(epoch, "epoch"),
                _replica(replica),
                as_whole(kept, "kept", at_least=-1),
                tuple(map(_replica, chain)),
                *(as_whole(count, "files") for count in files),
            )
            for epoch, replica, kept, chain, *files in value["losses"]
        ),
        renamed=tuple(map(_replica, value.get("renamed", ()))),
    )
    if not registration.in_sync:
        raise ValueError("nobody is in sync")
    return ReplicatedTable(
        location=text(value, "location"),
        assigned=tuple(as_whole(broker, "assigned", at_least=1) for broker in value["assigned"]),
        registration=registration,
        adding=tuple(as_whole(broker, "adding", at_least=1) for broker in value.get("adding", ())),
    )


def _replica(found: Any) -> Replica:  # noqa: ANN401 - of a JSON
    broker, life = found
    return Replica(as_whole(broker, "broker", at_least=1), as_whole(life, "life"))
