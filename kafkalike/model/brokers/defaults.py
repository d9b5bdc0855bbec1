"""Defaults: the cluster-wide server settings, as a row of `__cluster_metadata` has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafkalike.model.row_value import VERSION, as_text

DEFAULTS: Final = "defaults"
"""Kind of the rows that hold the defaults of the whole cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Server settings of a cluster."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """Those in force, by Kafka's dotted names; all others have Kafka's own defaults."""
    seed: Mapping[str, str] = field(default_factory=dict)
    """The settings of the `server.properties` that they were first taken from."""

    @property
    def are_set(self) -> bool:
        """Whether a file or an operator has ever set one; if not, a `server.properties` may still seed them."""
        return bool(self.settings or self.seed)


def defaults_value(defaults: Defaults) -> str:
    """Return the value of a row."""
    value = {VERSION: 1, "settings": dict(defaults.settings), "seed": dict(defaults.seed)}
    return json.dumps(value, sort_keys=True)


def defaults_of(value: Mapping[str, Any]) -> Defaults:
    """Return the defaults that the value of a row holds."""
    settings, seed = (
        {str(name): as_text(setting, name) for name, setting in value[part].items()} for part in ("settings", "seed")
    )
    return Defaults(settings=settings, seed=seed)
