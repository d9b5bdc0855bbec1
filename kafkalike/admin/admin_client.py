"""Admin client: kafka-python's `KafkaAdminClient` over a storage root.

Unsupported methods raise an error that gives the reason.
"""

from __future__ import annotations

import logging
from dataclasses import fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Never, NoReturn, Self, Unpack

from kafkalike.admin.admin_base import AdminBase
from kafkalike.admin.config_operations import ConfigOperations
from kafkalike.admin.group_change_operations import GroupChangeOperations
from kafkalike.admin.group_operations import GroupOperations
from kafkalike.admin.offset_operations import OffsetOperations
from kafkalike.admin.topic_operations import TopicOperations
from kafkalike.admin.transaction_operations import TransactionOperations
from kafkalike.connect import connect
from kafkalike.errors import UnsupportedVersionError
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.config.client_config import NO_EFFECT, AdminConfig, refuse_positional, refuse_to_pickle
from kafkalike.model.config.setting_types import AdminSettings, documented

if TYPE_CHECKING:
    from kafkalike.model.replication.quorum_protocol import MetadataQuorum, QuorumMember


METADATA_TOPIC: Final = "__cluster_metadata"
"""Kafka's name of the metadata log, which is also the name of the table here."""

UNKNOWN: Final = -1


class QuorumOperations(AdminBase):
    """Operations on the metadata quorum."""

    def describe_metadata_quorum(self) -> dict[str, Any]:
        """Describe the quorum that decides on topics, leaders and brokers: its voters and its observers.

        Voters are storage roots without a process, so they have no leader, and a majority of them decides each change.
        Offsets are versions of the table `__cluster_metadata`; `leader_epoch` counts how often another client has taken
        over.

        Returns:
            `{topics: [{topic_name, partitions: [{partition_index, leader_id: -1, leader_epoch, high_watermark,
            current_voters, observers, error: None}]}], nodes: [{node_id, listeners: [{name, host, port}]}]}`. A voter
            or observer is `{replica_id, replica_directory_id, log_end_offset, last_fetch_timestamp,
            last_caught_up_timestamp}`: its directory id is a string, times are ms since the epoch, and all figures of
            an unreachable root are -1. The `host` of a node is its root, its `port` is -1.

        Raises:
            KafkaStorageError: no reachable root knows the voters.
        """
        quorum = self._cluster.replication.quorum()
        described = {
            "partition_index": 0,
            "leader_id": UNKNOWN,
            "leader_epoch": quorum.epoch,
            "high_watermark": quorum.version + 1,
            "current_voters": [_state(quorum, member) for member in quorum.members if member.votes],
            "observers": [_state(quorum, member) for member in quorum.members if not member.votes],
            "error": None,
        }
        return {
            "topics": [{"topic_name": METADATA_TOPIC, "partitions": [described]}],
            "nodes": [
                {"node_id": m.broker, "listeners": [{"name": "CONTROLLER", "host": m.uri, "port": UNKNOWN}]}
                for m in quorum.members
            ],
        }


def _state(quorum: MetadataQuorum, member: QuorumMember) -> dict[str, Any]:
    caught_up_ms = quorum.caught_up_ms(member)
    return {
        "replica_id": member.broker,
        "replica_directory_id": member.id,
        "log_end_offset": member.log_end,
        "last_fetch_timestamp": UNKNOWN if member.time_ms is None else member.time_ms,
        "last_caught_up_timestamp": UNKNOWN if caught_up_ms is None else caught_up_ms,
    }


_ACLS: Final = (
    "no broker runs that could enforce an ACL; grant access on the storage root or in the catalog "
    "(read a topic: its table; write: its table, __cluster_metadata and __consumer_offsets)"
)
_ONE_ROOT: Final = "each broker is a storage root with one log directory; alter_partition_reassignments moves replicas"
_NO_USERS: Final = "users and passwords are managed by the storage"
_NO_PROTOCOL: Final = "clients access the storage without a wire protocol, and a cluster has no feature levels"


def _refuse(method: str, reason: str) -> NoReturn:
    raise UnsupportedVersionError(f"{method} is not supported: {reason}")


def _refused(method: str, reason: str) -> Any:  # noqa: ANN401 - a method of any signature
    def refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
        del self, args, kwargs
        _refuse(method, reason)

    refuse.__name__ = method
    refuse.__doc__ = f"Not supported: {reason}.\n\nRaises:\n    UnsupportedVersionError: always.\n"
    return refuse


class UnsupportedOperations:
    """Methods of kafka-python that are not supported; they always raise `UnsupportedVersionError`."""

    describe_acls = _refused("describe_acls", _ACLS)
    create_acls = _refused("create_acls", _ACLS)
    delete_acls = _refused("delete_acls", _ACLS)

    alter_replica_log_dirs = _refused("alter_replica_log_dirs", _ONE_ROOT)

    alter_user_scram_credentials = _refused("alter_user_scram_credentials", _NO_USERS)
    describe_user_scram_credentials = _refused("describe_user_scram_credentials", _NO_USERS)

    describe_features = _refused("describe_features", _NO_PROTOCOL)
    update_features = _refused("update_features", _NO_PROTOCOL)
    api_versions = _refused("api_versions", _NO_PROTOCOL)
    get_broker_version_data = _refused("get_broker_version_data", _NO_PROTOCOL)


logger = logging.getLogger(__name__)


@documented(AdminSettings)
class KafkaAdminClient(
    TopicOperations,
    OffsetOperations,
    ConfigOperations,
    GroupOperations,
    GroupChangeOperations,
    TransactionOperations,
    QuorumOperations,
    UnsupportedOperations,
):
    """Admin client for topics, partitions, settings, groups and transactions. Starts no JVM. Not thread-safe.

    Args:
        clock: source of time for timeouts and waits.
        **configs: settings, see below and docs/reference/settings.md; `bootstrap_servers` names the storage root.

    Raises:
        KafkaConfigurationError: a setting is unknown, not applicable, or invalid.
        UnsafeStorageError: the storage cannot coordinate several writers.
    """

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = {f.name: f.default for f in fields(AdminConfig)}
    """Settings with their defaults, as in kafka-python. Read-only."""

    def __init__(self, *_: Never, clock: Clock = SYSTEM_CLOCK, **configs: Unpack[AdminSettings]) -> None:
        refuse_positional("KafkaAdminClient", _)
        self.config = AdminConfig.from_configs(configs)
        self._clock = clock
        self._client_id = self.config.client_id
        self._closed = False
        self._connected = connect(self.config.bootstrap_servers, self.config.storage_options)
        unused = sorted(NO_EFFECT & configs.keys())
        if unused:
            logger.info("%s: settings without effect here: %s", self.config.client_id, ", ".join(unused))

    def close(self) -> None:
        """Close the client; further calls raise an error. Closing again does nothing."""
        if not self._closed:
            self._cluster.settle()
        self._closed = True

    def __reduce__(self) -> NoReturn:
        """Raise `TypeError`, because a client cannot be pickled."""
        refuse_to_pickle(self)

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client; errors are not suppressed."""
        self.close()
