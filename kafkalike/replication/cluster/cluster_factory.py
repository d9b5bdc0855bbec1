"""Cluster factory: open the cluster of several roots, and grow a cluster of one root to several.

Clients of a cluster with one root write versions straight to it; clients of several roots ask the controller first. So
`grow` fences the former before anything else: the metadata announce another format, which clients check before each
write, and each table gets a seal, which every version planned earlier collides with. A client that finds the seal of a
table reads the metadata again.

Each step is idempotent and any client may run it: the next call finishes an interrupted one. The sign is written last,
so a root with a sign has everything else.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkalike.delta import layout
from kafkalike.delta.actions import APPEND_KEY, log_name
from kafkalike.delta.commit_file import creation, lines_of, writer_info
from kafkalike.delta.log_files import LogFiles
from kafkalike.delta.replica_files import mark_replica
from kafkalike.delta.snapshot import LogSnapshot, load_snapshot
from kafkalike.errors import KafkaConfigurationError, KafkaConnectionError, KafkaStorageError
from kafkalike.model import faults
from kafkalike.model.brokers import ONLY_BROKER, Broker, first_replicas
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.cluster_state import ClusterState, MetadataRow, broker_row, replicas_row
from kafkalike.replication.cluster.controller import found_voter
from kafkalike.replication.cluster.epoch_marker import TRIES, configuration_in, seal_table
from kafkalike.replication.cluster.format_storage import check_apart, check_unused, find_cluster
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from kafkalike.replication.cluster.root_resolver import RootResolver, is_folder, real_name
from kafkalike.replication.cluster.root_sign import Founding, Sign, sign_of
from kafkalike.version import engine_info

if TYPE_CHECKING:
    from kafkalike.model.config.server_config import ServerProperties
    from kafkalike.model.config.storage_options import StorageOptions
    from kafkalike.model.replication.registration import Registration
    from kafkalike.storage.port import Storage


def open_several(
    roots: Sequence[str],
    *,
    server: ServerProperties | None = None,
    storage_options: StorageOptions | None = None,
    environ: Mapping[str, str] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> ReplicatedCluster:
    """Open the cluster of several roots. The first write creates it if it does not exist.

    Args:
        roots: paths or URIs: some roots of an existing cluster, or all roots of a new one.
        server: server defaults; None: the settings in each root's own file.
        storage_options: options of roots in object stores.
        environ: environment variables with the options that are not given; None: this process's environment.
        clock: time and waiting.

    Raises:
        KafkaConfigurationError: the roots do not belong to one cluster, or cannot be brokers.
        LogCorruptError: the sign of a root cannot be read.
    """
    places = RootResolver(storage_options, environ)
    named = [places.named(root) for root in roots]
    real = [real_name(root) for root in named]
    doubled = next((root for root, path in zip(named, real, strict=True) if real.count(path) > 1), None)
    if doubled is not None:
        raise KafkaConfigurationError(f"the root {doubled} is named twice")
    found = find_cluster(places, named)
    uris = (*named, *(() if found is None else found.sign.roots.values()))
    if storage_options and all(map(is_folder, uris)):
        raise KafkaConfigurationError("storage_options are for object stores, and these are folders of this machine")
    if found is None:
        for root in named:
            check_apart(root, named)
            check_unused(places, root)
        return _cluster(places, Sign("", 1, dict(enumerate(named, start=1))), Founding(done=False), server, clock)
    sign = found.sign
    founding = Founding(done=True, voters=sign.voters, cluster=sign.cluster) if found.done else Founding(done=False)
    return _cluster(places, sign, founding, server, clock)


def _cluster(
    places: RootResolver, sign: Sign, founding: Founding, server: ServerProperties | None, clock: Clock
) -> ReplicatedCluster:
    roots = dict(sorted(sign.roots.items()))
    return ReplicatedCluster(roots, founding, places=places, reopen=reopened, server=server, clock=clock)


def reopened(roots: str, options: StorageOptions | None = None) -> Storage:
    """Open the roots of a cluster in another process, with the options that were sent or with its environment."""
    # Without the environment: a session token of this machine must not be combined with a key of another one.
    found = open_several(roots.split(","), storage_options=options, environ=None if options is None else {})
    return found.store if options is None else found.store.tasks.sendable(found.store)


def grow(
    root: str,
    uri: str,
    *,
    rack: str | None = None,
    id: int | None = None,  # noqa: A002
    options: StorageOptions | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Broker:
    """Add a second root to a cluster of one root. Topics stay where they are until they are reassigned.

    Args:
        root: the existing root, which becomes broker 1.
        uri: the new root.
        rack: the new root's rack; None: the one in its `server.properties`.
        id: broker id of the new root; None: the next one.
        options: storage options of both roots.
        clock: time.

    Raises:
        KafkaConfigurationError: the new root cannot be a broker's, or the cluster is still empty.
        KafkaConnectionError, KafkaStorageError: a root does not answer, or refuses; call this again.
        LogCorruptError: a table is damaged; repair it first.
    """
    places = RootResolver(options)
    only, new = places.named(root), places.named(uri)
    if only == new:
        raise KafkaConfigurationError(f"{uri} is the root that the cluster has")
    check_apart(new, [only])
    check_unused(places, new)
    store = places.open(only)
    try:
        places.open(new).coordination.check_writable()
        _begin(only, store, clock)
        _register(only, places, clock)
        _sign(only, store)
    except OSError as cause:
        raise KafkaStorageError(
            f"the cluster at {root} could not get another root, and rejects writes until a retry succeeds: {cause}"
        ) from cause
    made = open_several([only], storage_options=options).replication.add_broker(new, rack=rack, id=id)
    # The new root gets a copy of the metadata.
    open_several([only], storage_options=options).replication.recover(voters=[ONLY_BROKER])
    return made


def _begin(root: str, store: Storage, clock: Clock) -> None:
    """Fence clients of one root, and let this root vote on the metadata."""
    metadata = store.at(layout.CLUSTER_METADATA)
    if not LogFiles.listed(metadata).commits:
        raise KafkaConfigurationError(f"the cluster at {root} is empty: name all roots at once to create it with them")
    for _ in range(TRIES):
        snapshot = _sound(metadata)
        found = dict(snapshot.metadata())
        if (found.get("configuration") or {}).get(layout.ROOT_FORMAT) == layout.SEVERAL_ROOTS:
            break
        found["configuration"] = {**(found.get("configuration") or {}), layout.ROOT_FORMAT: layout.SEVERAL_ROOTS}
        info: dict[str, Any] = {
            "timestamp": clock.now_ms(),
            "operation": "SET TBLPROPERTIES",
            "operationParameters": {},
            "isBlindAppend": True,
            "engineInfo": engine_info(),
            **writer_info(),
            "userMetadata": json.dumps({APPEND_KEY: uuid.uuid4().hex}),
        }
        content = lines_of(info, [{"metaData": found}])
        if metadata.put_if_absent(log_name(snapshot.newest + 1), content, durable=True):
            break
    else:
        raise OSError(f"other clients committed to the metadata {TRIES} times in a row; stop them and retry")
    faults.point("growing.after_fence")
    found_voter(store, ONLY_BROKER, {ONLY_BROKER: root}, (ONLY_BROKER,))


def _sound(files: Storage) -> LogSnapshot:
    snapshot = load_snapshot(files)
    if snapshot.damage is not None:
        raise snapshot.damage.refuse()
    return snapshot


def _register(root: str, places: RootResolver, clock: Clock) -> None:
    """Seal the tables, and register broker 1 as their only replica."""
    founding = Founding(done=False, voters=(ONLY_BROKER,), growing=True)
    cluster = ReplicatedCluster({ONLY_BROKER: root}, founding, places=places, reopen=reopened, clock=clock)
    state = cluster.metadata.refresh()
    store = places.open(root)
    tables = [info.location for info in state.topics.values()]
    # Missing tables are created: a client that read the metadata earlier would create them without a seal.
    tables += [layout.CONSUMER_OFFSETS, layout.SCHEMAS]
    mirrors = {info.location for info in state.topics.values() if info.mirror is not None}
    sealed: dict[str, Registration] = {}
    for location in tables:
        if location in state.replicas:
            # An earlier, interrupted call has registered it.
            continue
        files, registration = store.at(location), first_replicas(location, (ONLY_BROKER,)).registration
        mark_replica(files, registration.leader)
        if location in layout.CONTROL_SCHEMAS and not LogFiles.listed(files).commits:
            _make_control(files, location, clock)
        # A mirror's log gets no version of its own; its promotion adds the seal.
        sealed[location] = registration if location in mirrors else _seal(files, location, registration, clock)

    def plan(known: ClusterState) -> Sequence[MetadataRow]:
        now = clock.now_ms()
        rows: list[MetadataRow] = []
        if not known.last_broker:
            first = Broker(id=ONLY_BROKER, uri=root, rack=places.rack_of(root))
            rows.append(broker_row(known.seq + 1, now, first, "added"))
        names = {info.location: (info.name, info.topic_id) for info in known.topics.values()}
        for location in tables:
            if location not in known.replicas:
                name, topic_id = names.get(location, (location, ""))
                table = first_replicas(location, (ONLY_BROKER,)).registered(sealed[location])
                seq = known.seq + 1 + len(rows)
                rows.append(replicas_row(seq, now, table, "has one replica", topic=name, topic_id=topic_id))
        return rows

    cluster.metadata.transact(plan)
    faults.point("growing.before_sign")


def _make_control(files: Storage, location: str, clock: Clock) -> None:
    """Create an empty control table, unless it exists."""
    schema = layout.delta_schema(layout.CONTROL_SCHEMAS[location])
    table_id, now = str(uuid.uuid4()), clock.now_ms()
    content = creation(table_id, schema, partition_by=[], properties=layout.CONTROL_TABLE_PROPERTIES, time_ms=now)
    files.make_folder("_delta_log")
    files.put_if_absent(log_name(0), content, durable=True)


def _seal(files: Storage, location: str, registration: Registration, clock: Clock) -> Registration:
    """Put a version that names the replicas into a table, and a checkpoint of it."""
    known = configuration_in(files, location)
    if known is not None:
        # From the source, if the table is a mirror of a replicated topic, or from an interrupted call.
        registration = registration._replace(epoch=known.epoch + 1)
    seal_table(files, location, registration.configuration, clock, point="growing.after_seal")
    return registration


def _sign(root: str, store: Storage) -> None:
    sign = Sign(uuid.uuid4().hex, ONLY_BROKER, {ONLY_BROKER: root}, (ONLY_BROKER,))
    store.put_if_absent(layout.BROKERS, sign.content(), durable=True)
    try:
        said = sign_of(store)
    except ValueError as cause:
        raise OSError(str(cause)) from cause
    if said is None or said.broker != ONLY_BROKER:
        raise KafkaConnectionError(f"{root} is another broker's root")
