"""Admin client: kafka-python's `KafkaAdminClient` over a storage root, and its operations on topics.

Unsupported methods raise an error that gives the reason.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import TracebackType
from typing import Any, ClassVar, Final, Never, NoReturn, Self, Unpack

from kafkalike import errors
from kafkalike.admin.admin_base import as_names, outcome, raise_first
from kafkalike.admin.config_operations import ConfigOperations
from kafkalike.admin.group_change_operations import GroupChangeOperations
from kafkalike.admin.group_operations import GroupOperations
from kafkalike.admin.offset_operations import OffsetOperations
from kafkalike.admin.replica_operations import QuorumOperations, ReplicaOperations, partition_entry
from kafkalike.admin.share_group_operations import ShareGroupOperations
from kafkalike.admin.transaction_operations import TransactionOperations
from kafkalike.connect import connect
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.model.config.admin_config import NO_EFFECT, AdminConfig
from kafkalike.model.config.client_config import refuse_positional, refuse_to_pickle
from kafkalike.model.config.properties import nearest
from kafkalike.model.config.setting_types import AdminSettings, documented
from kafkalike.model.names import check_topic_name
from kafkalike.model.replication.replicas import Replicas
from kafkalike.model.structs import NewTopic
from kafkalike.model.topic import TopicInfo

POLL_SECONDS: Final = 0.1
"""Seconds between two checks of `wait_for_topics`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """Specification of a topic to create."""

    name: Any
    num_partitions: Any = -1
    replication_factor: Any = -1
    assignments: Any = None
    configs: Mapping[str, Any] = field(default_factory=dict)


_SPEC_KEYS: Final = ("num_partitions", "replication_factor", "assignments", "configs")


class TopicOperations(ReplicaOperations):
    """Operations on topics: create, list, describe, delete."""

    def create_topics(
        self,
        new_topics: Mapping[str, Mapping[str, Any]] | Sequence[str] | Sequence[NewTopic],
        timeout_ms: float | None = None,
        validate_only: bool = False,  # noqa: FBT001, FBT002 - kafka-python's signature
        raise_errors: bool = True,  # noqa: FBT001, FBT002
        wait_for_metadata: bool = False,  # noqa: FBT001, FBT002
    ) -> dict[str, Any]:
        """Create topics, each independently of the others.

        Args:
            new_topics: names, or `{name: {num_partitions, replication_factor, assignments, configs}}`, or `NewTopic`s.
                A partition count or replication factor of -1 takes the server's default.
            timeout_ms: no effect: a topic exists when the call returns.
            validate_only: check without creating anything.
            raise_errors: raise the error of the first rejected topic after all topics were tried; otherwise errors are
                only in the result.
            wait_for_metadata: no effect, for the same reason; cannot be combined with `validate_only`.

        Returns:
            `{"topics": [{name, topic_id, error_code, error_message, num_partitions, replication_factor, configs}]}`.

        Raises:
            TopicAlreadyExistsError: the topic exists.
            InvalidTopicError, InvalidPartitionsError, InvalidConfigurationError: a name, number or setting is invalid.
            InvalidReplicationFactorError: the factor is above the number of brokers.
            InvalidReplicationAssignmentError: a broker does not exist, or partitions have different brokers, although
                all partitions of a topic are stored in one table.
            IllegalArgumentError: no topic was given, or a specification is invalid.
        """
        del timeout_ms
        if validate_only and wait_for_metadata:
            raise errors.IllegalArgumentError("validate_only and wait_for_metadata exclude each other")
        specs = as_specs(new_topics)
        tried = [self._create(spec, validate_only=validate_only) for spec in specs]
        if raise_errors:
            raise_first(error for _, error in tried)
        return {"topics": [self._created(spec, *done) for spec, done in zip(specs, tried, strict=True)]}

    def _create(
        self, spec: TopicSpec, *, validate_only: bool
    ) -> tuple[TopicInfo, None] | tuple[None, errors.BrokerResponseError]:
        try:
            check_topic_name(spec.name)
            factor, assignments = check_replication(spec.replication_factor), _assignments(spec)
            info = self._cluster.create_topic(
                spec.name,
                len(assignments) if assignments else spec.num_partitions,
                dict(spec.configs),
                validate_only=validate_only,
                replication_factor=factor,
                assignments=assignments or None,
            )
        except errors.BrokerResponseError as error:
            return None, error
        return info, None

    def _created(
        self, spec: TopicSpec, info: TopicInfo | None, error: errors.BrokerResponseError | None
    ) -> dict[str, Any]:
        result = outcome(str(spec.name), error)
        if info is None:
            return {**result, "topic_id": None, "num_partitions": -1, "replication_factor": -1, "configs": {}}
        if info.topic_id:
            factor = len(self.replicas_of(info.name).replicas)
        elif spec.assignments:
            factor = len(next(iter(_assignments(spec).values())))
        else:
            default = int(self._cluster.server.get("default.replication.factor"))
            factor = default if spec.replication_factor == -1 else spec.replication_factor
        return {
            **result,
            "topic_id": info.topic_id,
            "num_partitions": info.num_partitions,
            "replication_factor": factor,
            "configs": {name: {"value": value} for name, value in info.configs.items()},
        }

    def delete_topics(
        self,
        topics: Sequence[str | uuid.UUID],
        timeout_ms: float | None = None,
        raise_errors: bool = True,  # noqa: FBT001, FBT002
    ) -> dict[str, Any]:
        """Delete topics and their data, by name or by id.

        Args:
            topics: names, or ids as `uuid.UUID`.
            timeout_ms: no effect: the topic is deleted when the call returns.
            raise_errors: raise the first error after all topics were tried.

        Returns:
            `{"topics": [{name, topic_id, error_code, error_message}]}`.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
            PolicyViolationError: `delete.topic.enable=false`.
        """
        del timeout_ms
        results: list[dict[str, Any]] = []
        outcomes: list[errors.BrokerResponseError | None] = []
        for topic in as_names(topics, "topics"):
            name, topic_id, error = str(topic), None, None
            try:
                info = self._find(topic)
                name, topic_id = info.name, info.topic_id
                self._cluster.delete_topic(name)
            except errors.BrokerResponseError as refused:
                error = refused
            results.append({**outcome(name, error), "topic_id": topic_id})
            outcomes.append(error)
        if raise_errors:
            raise_first(outcomes)
        return {"topics": results}

    def _find(self, topic: str | uuid.UUID) -> TopicInfo:
        if not isinstance(topic, uuid.UUID):
            return self._cluster.topic(topic)
        for info in self._cluster.topics().values():
            if info.topic_id == str(topic):
                return info
        raise errors.UnknownTopicOrPartitionError(f"topic id {topic} does not exist")

    def list_topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return sorted(self._cluster.topics())

    def describe_topics(self, topics: Sequence[str | uuid.UUID] | None = None) -> list[dict[str, Any]]:
        """Describe topics; all of them if `topics` is None.

        Returns:
            A dict per topic: `{error_code, name, topic_id, is_internal, partitions: [{error_code, partition_index,
            leader_id, leader_epoch, replica_nodes, isr_nodes, offline_replicas}]}`. A topic that does not exist has
            `error_code` 3 and no partitions.
        """
        wanted = self.list_topics() if topics is None else as_names(topics, "topics")
        described = []
        for topic in wanted:
            try:
                info = self._find(topic)
                described.append(_describe(info, self.replicas_of(info.name)))
            except errors.BrokerResponseError as error:
                described.append(
                    {**outcome(str(topic), error), "topic_id": None, "is_internal": False, "partitions": []}
                )
        return described

    def wait_for_topics(self, topic_names: Sequence[str], timeout_ms: float = 10_000) -> None:
        """Wait until all topics exist, checking every 0.1 s.

        Raises:
            KafkaTimeoutError: a topic is missing after `timeout_ms`.
        """
        wanted = set(as_names(topic_names, "topic_names"))
        deadline = Deadline(self._clock, timeout_ms)
        while missing := wanted - set(self._cluster.topics()):
            if deadline.expired():
                raise errors.KafkaTimeoutError(f"topics not ready after {timeout_ms} ms: {', '.join(sorted(missing))}")
            self._clock.sleep(min(POLL_SECONDS, deadline.remaining()))


def as_specs(new_topics: object) -> list[TopicSpec]:
    """Convert the argument of `create_topics` to specifications.

    Raises:
        IllegalArgumentError: nothing to create, or an element is not a topic.
        InvalidRequestError: a name is duplicated.
    """
    if isinstance(new_topics, Mapping):
        specs = [_spec_of(name, data) for name, data in new_topics.items()]
    else:
        specs = [_spec(topic) for topic in as_names(new_topics, "new_topics")]
    if not specs:
        raise errors.IllegalArgumentError("new_topics is empty: there is nothing to create")
    names = [spec.name for spec in specs]
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise errors.InvalidRequestError(f"topic {doubled!r} is given twice")
    return specs


def _spec(topic: object) -> TopicSpec:
    if isinstance(topic, NewTopic):
        return TopicSpec(
            name=topic.name,
            num_partitions=topic.num_partitions,
            replication_factor=topic.replication_factor,
            assignments=topic.replica_assignments,
            configs=topic.topic_configs,
        )
    # Invalid names, even of another type than str, are reported per topic.
    return TopicSpec(name=topic)


def _spec_of(name: str, data: object) -> TopicSpec:
    if not isinstance(data, Mapping):
        raise errors.IllegalArgumentError(f"topic {name!r}: a dict of {', '.join(_SPEC_KEYS)} is needed, not {data!r}")
    unknown = next((key for key in data if key not in _SPEC_KEYS), None)
    if unknown is not None:
        raise errors.IllegalArgumentError(f"topic {name!r}: unknown key {unknown!r}{nearest(str(unknown), _SPEC_KEYS)}")
    return TopicSpec(
        name=name,
        num_partitions=data.get("num_partitions", -1),
        replication_factor=data.get("replication_factor", -1),
        assignments=data.get("assignments"),
        configs=data.get("configs") or {},
    )


def check_replication(factor: object) -> int:
    """Return a replication factor; -1 takes the server's default.

    Raises:
        InvalidReplicationFactorError: the factor is not an int, is 0, or is below -1.
    """
    if isinstance(factor, bool) or not isinstance(factor, int):
        raise errors.InvalidReplicationFactorError(f"Replication factor must be an int, not {factor!r}.")
    if factor == 0 or factor < -1:
        raise errors.InvalidReplicationFactorError(
            "Replication factor must be larger than 0, or -1 to use the default value."
        )
    return factor


def _assignments(spec: TopicSpec) -> dict[int, Sequence[int]]:
    """Return the given broker ids by partition; empty without assignments.

    Raises:
        InvalidReplicationAssignmentError: the assignments have another form.
        InvalidRequestError: a partition count or a replication factor was also given.
    """
    given = spec.assignments
    if not given:
        return {}
    try:
        pairs = given.items() if isinstance(given, Mapping) else enumerate(given)
        found: dict[int, Sequence[int]] = {int(p): [int(broker) for broker in brokers] for p, brokers in pairs}
    except (TypeError, ValueError) as cause:
        raise errors.InvalidReplicationAssignmentError(
            f"topic {spec.name!r}: assignments must be {{partition: [broker ids]}}, not {given!r}"
        ) from cause
    if spec.replication_factor != -1:
        raise errors.InvalidRequestError(f"topic {spec.name!r}: with assignments, the replication factor must be -1")
    if spec.num_partitions not in {-1, len(found)}:
        raise errors.InvalidRequestError(
            f"topic {spec.name!r}: with assignments, the number of partitions must be -1 or match them"
        )
    return found


def _describe(info: TopicInfo, replicas: Replicas) -> dict[str, Any]:
    return {
        "error_code": 0,
        "name": info.name,
        "topic_id": info.topic_id,
        "is_internal": False,
        "partitions": [partition_entry(p, replicas) for p in info.partitions],
    }


_ACLS: Final = (
    "no broker runs that could enforce an ACL; grant access on the storage root or in the catalog "
    "(read a topic: its table; write: its table, __cluster_metadata and __consumer_offsets)"
)
_ONE_ROOT: Final = "each broker is a storage root with one log directory; alter_partition_reassignments moves replicas"
_NO_USERS: Final = "users and passwords are managed by the storage"
_NO_PROTOCOL: Final = "clients access the storage without a wire protocol, and a cluster has no feature levels"


def _refuse(method: str, reason: str) -> NoReturn:
    raise errors.UnsupportedVersionError(f"{method} is not supported: {reason}")


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
    ShareGroupOperations,
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
