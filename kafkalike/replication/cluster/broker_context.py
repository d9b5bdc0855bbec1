"""BrokerContext: the parts of a cluster that its brokers, replicas and recoveries work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kafkalike.log.cluster.server_defaults import ServerDefaults
from kafkalike.model.clock import Clock
from kafkalike.model.cluster_state import ClusterState
from kafkalike.model.config.server_config import ServerProperties
from kafkalike.model.metadata_rows import MetadataRow
from kafkalike.replication.cluster.cluster_storage import ClusterStorage
from kafkalike.replication.cluster.controller import MetadataController, StaleReadControlLog
from kafkalike.replication.cluster.root_resolver import RootResolver


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerContext:
    """A cluster of several roots."""

    root: str
    """What it is called."""
    store: ClusterStorage
    places: RootResolver
    """Opens roots."""
    metadata: StaleReadControlLog[ClusterState, MetadataRow]
    defaults: ServerDefaults
    clock: Clock
    usable: Callable[[ClusterState], dict[int, str | None]]
    """Racks of the brokers that answer and may get new replicas, by id."""
    controller_of: Callable[[str], MetadataController]
    """What is registered of the table in a folder."""

    @property
    def server(self) -> ServerProperties:
        """Cluster-wide defaults, as of the last look at the metadata."""
        return self.defaults.in_force()

    def settings(self, state: ClusterState, location: str) -> Mapping[str, str] | None:
        """The settings in effect of the topic whose table lies in a folder; None for a control table."""
        info = next((info for info in state.topics.values() if info.location == location), None)
        return None if info is None else self.server.effective(info.configs)
