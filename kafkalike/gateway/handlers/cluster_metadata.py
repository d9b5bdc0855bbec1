"""Cluster metadata: topics, partitions and gateways, as clients ask for them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkalike import errors
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.api_versions import Answer
from kafkalike.gateway.error_codes import NONE, Outcome, attempt
from kafkalike.gateway.gateway_cluster import Call, GatewayCluster, Handler

if TYPE_CHECKING:
    from kafkalike.model.topic import TopicInfo

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""Tools ask for the partitions of this topic of Kafka."""

LEADER_EPOCH: Final = 0
"""Leaders never change, because any gateway may serve any partition."""

GROUP_KEY, TRANSACTION_KEY = 0, 1
"""Kafka's numbers of the types of coordinators."""

BROKERS, CONTROLLERS = 1, 2
"""Kafka's numbers of the types of endpoints."""

MAX_CLUSTER_ID: Final = 22
"""Characters of Kafka's cluster ids."""


def check_leader_epoch(item: Any) -> None:  # noqa: ANN401 - an item of several requests
    """Check the leader epoch that a client knows, if it names one.

    Raises:
        UnknownLeaderEpochError: it is later than that of all partitions.
    """
    epoch = int(getattr(item, "current_leader_epoch", -1))
    if epoch > LEADER_EPOCH:
        raise errors.UnknownLeaderEpochError(
            f"the leader epoch {epoch} is unknown; that of all partitions is {LEADER_EPOCH}"
        )


class ClusterMetadata:
    """Answers requests about topics, partitions and gateways.

    Args:
        home: the cluster.
    """

    def __init__(self, home: GatewayCluster) -> None:
        self._home = home
        # The same for all gateways of a root, and no path of the machine.
        self._cluster_id = uuid.uuid5(uuid.NAMESPACE_URL, home.cluster.root).hex[:MAX_CLUSTER_ID]

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by API key."""
        home = self._home
        return {
            keys.METADATA: home.in_thread(self._metadata),
            keys.FIND_COORDINATOR: self._coordinators,
            keys.DESCRIBE_CLUSTER: home.in_thread(self._describe_cluster),
            keys.DESCRIBE_TOPIC_PARTITIONS: home.in_thread(self._topic_partitions),
            keys.DESCRIBE_LOG_DIRS: home.in_thread(self._log_dirs),
        }

    def _brokers(self) -> list[dict[str, Any]]:
        return [
            {"node_id": node.node_id, "broker_id": node.node_id, "host": node.host, "port": node.port}
            for node in self._home.gateways.nodes
        ]

    def _metadata(self, call: Call) -> Answer:
        self._home.gateways.look()
        topics = self._home.cluster.topics()
        asked = call.body.topics
        if asked is None:
            described = [self._topic(name, info) for name, info in sorted(topics.items())]
        else:
            create = bool(call.field("allow_auto_topic_creation", True))  # noqa: FBT003 - Kafka's default
            # Each topic once, as in Kafka: otherwise a small request could ask for any number of partitions.
            once = {(getattr(item, "name", None), getattr(item, "topic_id", None)): item for item in asked}
            described = [self._asked(item, topics, create=create) for item in once.values()]
        return {
            "brokers": self._brokers(),
            "cluster_id": self._cluster_id,
            "controller_id": self._home.gateways.nodes[0].node_id,
            "topics": described,
        }

    def _asked(self, item: Any, topics: Mapping[str, TopicInfo], *, create: bool) -> dict[str, Any]:  # noqa: ANN401
        name = self._home.topic_name(item)
        if name is None:
            return {
                "error_code": errors.UnknownTopicIdError.errno,
                "name": None,
                "topic_id": item.topic_id,
                "partitions": (),
            }
        if name == OFFSETS_TOPIC:
            return self._internal(name)
        info = topics.get(name)
        if info is not None:
            return self._topic(name, info)
        if create and not name.startswith("__"):
            outcome, made = attempt(self._home.cluster.ensure_topic, name)
            if made is not None:
                return self._topic(name, made)
            code = outcome.code
        else:
            code = errors.UnknownTopicOrPartitionError.errno
        if code not in {errors.UnknownTopicOrPartitionError.errno, errors.InvalidTopicError.errno}:
            # Clients give up at other codes; with this one they ask again.
            code = errors.UnknownTopicOrPartitionError.errno
        return {"error_code": code, "name": name, "partitions": ()}

    def _internal(self, name: str) -> dict[str, Any]:
        return {"error_code": NONE, "name": name, "is_internal": True, "partitions": [self._partition(name, 0)]}

    def _topic(self, name: str, info: TopicInfo) -> dict[str, Any]:
        return {
            "error_code": NONE,
            "name": name,
            "topic_id": info.topic_id,
            "partitions": [self._partition(name, p) for p in info.partitions],
        }

    def _partition(self, name: str, partition: int) -> dict[str, Any]:
        node = self._home.gateways.node_of(f"{name}-{partition}").node_id
        return {
            "error_code": NONE,
            "partition_index": partition,
            "leader_id": node,
            "leader_epoch": LEADER_EPOCH,
            "replica_nodes": [node],
            "isr_nodes": [node],
            # Java's admin client takes no null here.
            "eligible_leader_replicas": (),
            "last_known_elr": (),
        }

    async def _coordinators(self, call: Call) -> Answer:
        names = [call.body.key] if hasattr(call.body, "key") else call.body.coordinator_keys
        kind = int(call.field("key_type", GROUP_KEY))
        if kind not in {GROUP_KEY, TRANSACTION_KEY}:
            refused = {
                "error_code": errors.InvalidRequestError.errno,
                "error_message": f"unknown type of coordinator: {kind}",
            }
            nobody = {"node_id": -1, "host": "", "port": -1}
            return {"coordinators": [{"key": name, **refused, **nobody} for name in names], **refused, **nobody}
        # Any gateway coordinates any group and transaction, and this one is surely alive.
        own = self._home.gateways.own._asdict()
        found = [{"key": name, "error_code": NONE, "error_message": None, **own} for name in names]
        # Old versions have the fields of one coordinator in the answer itself.
        return {"coordinators": found, **(found[0] if found else {})}

    def _describe_cluster(self, call: Call) -> Answer:
        kind = int(call.field("endpoint_type", BROKERS))
        if kind != BROKERS:
            known = errors.MismatchedEndpointTypeError if kind == CONTROLLERS else errors.UnsupportedEndpointTypeError
            outcome = Outcome.of(known("gateways are endpoints for clients, and no controllers"))
            return {
                "error_code": outcome.code,
                "error_message": outcome.message,
                "endpoint_type": BROKERS,
                "brokers": (),
            }
        self._home.gateways.look()
        return {
            "error_code": NONE,
            "error_message": None,
            "endpoint_type": BROKERS,
            "cluster_id": self._cluster_id,
            "controller_id": self._home.gateways.nodes[0].node_id,
            "brokers": self._brokers(),
        }

    def _topic_partitions(self, call: Call) -> Answer:
        names = sorted({item.name for item in call.body.topics}) or sorted(self._home.cluster.topics())
        given = call.body.cursor
        cursor = None if given is None else {"topic_name": given.topic_name, "partition_index": given.partition_index}
        page = self._home.admin().describe_topic_partitions(names, max(1, call.body.response_partition_limit), cursor)
        for topic in page["topics"]:
            topic["partitions"] = [self._partition(topic["name"], p["partition_index"]) for p in topic["partitions"]]
        return page

    def _log_dirs(self, call: Call) -> Answer:
        asked = None if call.body.topics is None else {t.topic: list(t.partitions) for t in call.body.topics}
        try:
            dirs = [entry for broker in self._home.admin().describe_log_dirs(asked) for entry in broker["log_dirs"]]
        except (errors.UnknownTopicOrPartitionError, errors.InvalidTopicError) as error:
            return {"error_code": Outcome.of(error).code, "results": ()}
        return {"error_code": NONE, "results": dirs}
