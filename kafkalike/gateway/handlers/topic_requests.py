"""Topic requests: create, delete and grow topics, and describe and alter settings, by the admin client."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kafkalike import errors
from kafkalike.admin.admin_client import KafkaAdminClient
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.api_versions import Answer
from kafkalike.gateway.error_codes import DONE, NONE, Outcome, attempt
from kafkalike.gateway.gateway_cluster import Call, GatewayCluster, Handler
from kafkalike.model.structs import AlterConfigOp, ConfigResource, ConfigResourceType, NewTopic, TopicPartition

CONFIG_SOURCES: Final = {
    "DYNAMIC_TOPIC_CONFIG": 1,
    "DYNAMIC_GROUP_CONFIG": 8,
    "DYNAMIC_BROKER_CONFIG": 2,
    "DYNAMIC_DEFAULT_BROKER_CONFIG": 3,
    "STATIC_BROKER_CONFIG": 4,
    "DEFAULT_CONFIG": 5,
}
"""Kafka's codes of the sources of a setting."""

CONFIG_TYPES: Final = {"BOOLEAN": 1, "STRING": 2, "LONG": 5, "DOUBLE": 6, "LIST": 7}
"""Kafka's codes of the types of a setting."""

RESOURCES: Final = frozenset({2, 4, 8, 16, 32})
"""Kafka's codes of the types of resources that have settings: topic, broker, its logger, client metrics, group."""

ONLY_BROKER: Final = "1"
"""The admin client's name of the only broker. All gateways have its settings."""


Changes = dict[str, tuple[AlterConfigOp, str | None]]
"""Changes of a resource by setting."""


class TopicRequests:
    """Answers requests that change topics and settings.

    Args:
        home: the cluster.
    """

    def __init__(self, home: GatewayCluster) -> None:
        self._home = home

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by API key."""
        home = self._home
        return {
            keys.CREATE_TOPICS: home.in_thread(self._create),
            keys.DELETE_TOPICS: home.in_thread(self._delete),
            keys.CREATE_PARTITIONS: home.in_thread(self._grow),
            keys.ELECT_LEADERS: home.in_thread(self._elect),
            keys.ALTER_PARTITION_REASSIGNMENTS: home.in_thread(self._reassign),
            keys.LIST_PARTITION_REASSIGNMENTS: home.in_thread(self._reassignments),
            keys.DESCRIBE_CONFIGS: home.in_thread(self._describe),
            keys.INCREMENTAL_ALTER_CONFIGS: home.in_thread(self._alter),
            keys.ALTER_CONFIGS: home.in_thread(self._replace),
            keys.LIST_CONFIG_RESOURCES: home.in_thread(self._resources),
        }

    def _create(self, call: Call) -> Answer:
        admin, once, repeated = self._home.admin(), *_once(call.body.topics, lambda topic: topic.name)
        return {
            "topics": [
                *(self._created(admin, topic, check=call.body.validate_only) for topic in once),
                *(_refused(topic.name) for topic in repeated),
            ]
        }

    def _created(self, admin: KafkaAdminClient, topic: Any, *, check: bool) -> dict[str, Any]:  # noqa: ANN401
        def create() -> dict[str, Any]:
            if topic.assignments:
                raise errors.InvalidReplicationAssignmentError(
                    f"topic {topic.name!r}: gateways are not replicas; name brokers with `kafkalike topics --create`"
                )
            configs = {config.name: config.value for config in topic.configs}
            if missing := [name for name, value in configs.items() if value is None]:
                raise errors.InvalidConfigurationError(f"topic {topic.name!r}: null value of {', '.join(missing)}")
            # Clients see gateways as brokers, so one replica is all that they can mean.
            factor = -1 if topic.replication_factor == 1 else topic.replication_factor
            wanted = NewTopic(topic.name, topic.num_partitions, factor, topic_configs=configs)
            made: dict[str, Any] = admin.create_topics([wanted], validate_only=check)["topics"][0]
            return made

        outcome, made = attempt(create)
        if made is None:
            return {"name": topic.name, "error_code": outcome.code, "error_message": outcome.message, "configs": ()}
        return {
            "name": topic.name,
            "topic_id": made["topic_id"] or None,
            "error_code": NONE,
            "error_message": None,
            "num_partitions": made["num_partitions"],
            "replication_factor": 1,
            "configs": [
                {"name": name, "config_source": CONFIG_SOURCES["DYNAMIC_TOPIC_CONFIG"], **value}
                for name, value in made["configs"].items()
            ],
        }

    def _delete(self, call: Call) -> Answer:
        topics = self._home.cluster.topics()
        asked = call.field("topics") or call.field("topic_names") or ()
        once, repeated = _once(
            asked, lambda item: item if isinstance(item, str) else self._home.topic_name(item) or item
        )
        results = [_refused(item if isinstance(item, str) else item.name) for item in repeated]
        for item in once:
            name = item if isinstance(item, str) else self._home.topic_name(item)
            topic_id: uuid.UUID | str | None = getattr(item, "topic_id", None)
            if not isinstance(item, str) and (getattr(item, "name", None) is None) is (topic_id is None):
                outcome = Outcome(errors.InvalidRequestError.errno, "name the topic either by its name or by its id")
            elif name is None:
                outcome = Outcome(errors.UnknownTopicIdError.errno, None)
            else:
                if name in topics:
                    topic_id = topics[name].topic_id
                outcome, _ = attempt(self._home.cluster.delete_topic, name)
            results.append(
                {"name": name, "topic_id": topic_id, "error_code": outcome.code, "error_message": outcome.message}
            )
        return {"responses": results}

    def _grow(self, call: Call) -> Answer:
        check = bool(call.body.validate_only)
        once, repeated = _once(call.body.topics, lambda topic: topic.name)
        results = [_refused(topic.name) for topic in repeated]
        for topic in once:
            outcome, _ = attempt(self._grown, topic, check=check)
            results.append({"name": topic.name, "error_code": outcome.code, "error_message": outcome.message})
        return {"results": results}

    def _grown(self, topic: Any, *, check: bool) -> None:  # noqa: ANN401
        if topic.assignments:
            raise errors.InvalidReplicationAssignmentError(f"topic {topic.name!r}: leave assignments out")
        self._home.cluster.add_partitions(topic.name, int(topic.count), validate_only=check)

    # --- replicas ------------------------------------------------------------------------------

    def _elect(self, call: Call) -> Answer:
        """Elect leaders among the roots of the cluster."""
        topics, asked = self._home.cluster.topics(), call.body.topic_partitions
        kind = int(call.field("election_type", 0))
        wanted = {name: list(info.partitions) for name, info in topics.items()}
        if asked is not None:
            wanted = {item.topic: [int(p) for p in item.partitions] for item in asked}
        results = []
        for name, partitions in wanted.items():
            elect = self._home.admin().elect_leaders
            outcome, done = attempt(elect, kind, {name: partitions}, raise_errors=False)
            entries = done["replica_election_results"][0]["partition_result"] if done is not None else ()
            known = topics[name].partitions if name in topics else ()
            found = {e["partition_id"]: Outcome(e["error_code"], e["error_message"]) for e in entries}
            unknown = Outcome(errors.UnknownTopicOrPartitionError.errno, None)
            codes = {p: found.get(p, outcome) if p in known else unknown for p in partitions}
            results.append(
                {
                    "topic": name,
                    "partition_result": [
                        {"partition_id": p, "error_code": one.code, "error_message": one.message}
                        for p, one in codes.items()
                    ],
                }
            )
        return {"error_code": NONE, "replica_election_results": results}

    def _reassign(self, call: Call) -> Answer:
        """Assign topics to roots of the cluster; `kafkalike replicate` moves them."""
        responses = []
        for topic in call.body.topics:
            wanted = {
                TopicPartition(topic.name, int(p.partition_index)): None
                if p.replicas is None
                else [*map(int, p.replicas)]
                for p in topic.partitions
            }
            outcome, done = attempt(self._reassigned, topic.name, wanted)
            found = {} if done is None else {tp: NONE if error is None else error.errno for tp, error in done.items()}
            responses.append(
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": tp.partition,
                            "error_code": found.get(tp, outcome.code),
                            "error_message": outcome.message,
                        }
                        for tp in wanted
                    ],
                }
            )
        return {"error_code": NONE, "responses": responses}

    def _reassigned(
        self, name: str, wanted: Mapping[TopicPartition, list[int] | None]
    ) -> Mapping[TopicPartition, type[errors.BrokerResponseError] | None]:
        info = self._home.cluster.topic(name)
        if unknown := [tp for tp in wanted if tp.partition not in info.partitions]:
            raise errors.UnknownTopicOrPartitionError(
                f"{name} has {info.num_partitions} partitions, no {unknown[0].partition}"
            )
        if any(replicas == [] for replicas in wanted.values()):
            raise errors.InvalidReplicationAssignmentError(f"topic {name!r}: the replicas of a partition are empty")
        return self._home.admin().alter_partition_reassignments(wanted)

    def _reassignments(self, call: Call) -> Answer:
        asked = call.body.topics
        wanted = None if asked is None else {t.name: [int(p) for p in t.partition_indexes] for t in asked}
        outcome, found = attempt(self._home.admin().list_partition_reassignments, wanted)
        by_topic: dict[str, list[dict[str, Any]]] = {}
        for tp, replicas in (found or {}).items():
            by_topic.setdefault(tp.topic, []).append({"partition_index": tp.partition, **replicas})
        return {
            "error_code": outcome.code,
            "error_message": outcome.message,
            "topics": [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()],
        }

    # --- settings ------------------------------------------------------------------------------

    def _resource(self, item: Any, configs: Any) -> ConfigResource:  # noqa: ANN401
        kind = ConfigResourceType(int(item.resource_type))
        name = item.resource_name
        if kind is ConfigResourceType.BROKER and name in {str(node.node_id) for node in self._home.gateways.nodes}:
            name = ONLY_BROKER
        return ConfigResource(kind, name, configs)

    def _describe(self, call: Call) -> Answer:
        synonyms = bool(call.field("include_synonyms"))
        texts = bool(call.field("include_documentation"))
        results = []
        for item in call.body.resources:
            outcome, entries = attempt(self._described, item, synonyms=synonyms)
            configs = [_config(name, entry, texts=texts) for name, entry in (entries or {}).items()]
            results.append({**_named(item, outcome), "configs": configs})
        return {"results": results}

    def _described(self, item: Any, *, synonyms: bool) -> Mapping[str, Mapping[str, Any]]:  # noqa: ANN401
        resource = self._resource(item, item.configuration_keys)
        described = self._home.admin().describe_configs([resource], include_synonyms=synonyms, config_filter="all")
        return next(iter(next(iter(described.values())).values()))

    def _alter(self, call: Call) -> Answer:
        def changes(item: Any) -> Changes:  # noqa: ANN401
            return {config.name: (AlterConfigOp(config.config_operation), config.value) for config in item.configs}

        return self._altered(call, changes)

    def _replace(self, call: Call) -> Answer:
        """Apply the older request, which resets the settings that it does not name."""

        def changes(item: Any) -> Changes:  # noqa: ANN401
            own: Mapping[str, str] = {}
            if item.resource_type == ConfigResourceType.TOPIC:
                info = self._home.cluster.topics().get(item.resource_name)
                own = {} if info is None else info.configs
            if item.resource_type == ConfigResourceType.GROUP:
                own = self._home.cluster.groups.refresh().configs.get(item.resource_name, {})
            reset = dict.fromkeys(own, (AlterConfigOp.DELETE, None))
            return reset | {config.name: (AlterConfigOp.SET, config.value) for config in item.configs}

        return self._altered(call, changes)

    def _altered(self, call: Call, changes: Callable[[Any], Changes]) -> Answer:
        check = bool(call.body.validate_only)
        once, _ = _once(call.body.resources, lambda item: (int(item.resource_type), item.resource_name))

        def alter(item: Any) -> None:  # noqa: ANN401
            if item not in once or len(_once(item.configs, lambda config: config.name)[0]) < len(item.configs):
                raise errors.InvalidRequestError(
                    f"{item.resource_name!r} or one of its settings is named several times"
                )
            resource = self._resource(item, changes(item))
            self._home.admin().alter_configs([resource], validate_only=check, raise_errors=True)

        return {"responses": [_named(item, attempt(alter, item)[0]) for item in call.body.resources]}

    def _resources(self, call: Call) -> Answer:
        if unknown := {int(kind) for kind in call.field("resource_types", ())} - RESOURCES:
            outcome = Outcome.of(errors.UnsupportedVersionError(f"unknown types of resources: {sorted(unknown)}"))
            return {"error_code": outcome.code, "config_resources": ()}
        wanted = set(call.field("resource_types", ())) or {
            ConfigResourceType.TOPIC,
            ConfigResourceType.BROKER,
            ConfigResourceType.GROUP,
        }
        found: list[dict[str, Any]] = []
        if ConfigResourceType.TOPIC in wanted:
            found += [
                {"resource_name": name, "resource_type": int(ConfigResourceType.TOPIC)}
                for name in sorted(self._home.cluster.topics())
            ]
        if ConfigResourceType.GROUP in wanted:
            found += [
                {"resource_name": name, "resource_type": int(ConfigResourceType.GROUP)}
                for name in sorted(self._home.cluster.groups.refresh().configs)
            ]
        if ConfigResourceType.BROKER in wanted:
            found += [
                {"resource_name": str(node.node_id), "resource_type": int(ConfigResourceType.BROKER)}
                for node in self._home.gateways.nodes
            ]
        return {"error_code": DONE.code, "config_resources": found}


def _once(items: Iterable[Any], name: Callable[[Any], Any]) -> tuple[list[Any], list[Any]]:
    """Return the items whose name occurs once, and one item of each other name. Kafka refuses those."""
    by_name: dict[Any, list[Any]] = {}
    for item in items:
        by_name.setdefault(name(item), []).append(item)
    once = [found[0] for found in by_name.values() if len(found) == 1]
    return once, [found[0] for found in by_name.values() if len(found) > 1]


def _refused(name: str | None) -> dict[str, Any]:
    """Return the result of an item that a request names several times."""
    return {
        "name": name,
        "error_code": errors.InvalidRequestError.errno,
        "error_message": "named several times in a request",
    }


def _named(item: Any, outcome: Outcome) -> dict[str, Any]:  # noqa: ANN401
    return {
        "error_code": outcome.code,
        "error_message": outcome.message,
        "resource_type": item.resource_type,
        "resource_name": item.resource_name,
    }


def _config(name: str, entry: Mapping[str, Any], *, texts: bool) -> dict[str, Any]:
    return {
        "name": name,
        "value": entry["value"],
        "read_only": entry["read_only"],
        "config_source": CONFIG_SOURCES[entry["config_source"]],
        "is_sensitive": entry["is_sensitive"],
        "config_type": CONFIG_TYPES[entry["config_type"]],
        "documentation": entry["documentation"] if texts else None,
        "synonyms": [
            {"name": s["name"], "value": s["value"], "source": CONFIG_SOURCES[s["source"]]} for s in entry["synonyms"]
        ],
    }
