"""Settings of the clients, as type checkers and `help()` see them; `make reference` writes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict, TypeVar

from kafkalike.model.config.storage_options import Address, StorageOptionsLike

C = TypeVar("C")


def documented(settings: type[Any]) -> Callable[[type[C]], type[C]]:
    """Put what a TypedDict says of settings below the docstring of the client that takes them."""

    def add(client: type[C]) -> type[C]:
        client.__doc__ = f"{client.__doc__}\n    Settings:\n{settings.__doc__}"
        return client

    return add


class ProducerSettings(TypedDict, total=False):
    """Settings of a `KafkaProducer`.

    acks (int | str, default -1): When a record counts as sent. -1, `all` and 1: after its table commit, with
        several roots at all replicas in sync, because 1 is treated as `all`. 0: at once; its future has offset -1,
        and errors are only logged. `of` converts `all` to -1. Kafka: 1 waits for one broker, `all` for the replicas
        in sync.
    allow_auto_create_topics (bool, default True): True if `send` and `partitions_for` create a missing topic,
        provided that the server's `auto.create.topics.enable` allows it. Otherwise they raise
        `UnknownTopicOrPartitionError`.
    batch_size (int, default 16384, bytes): Bytes per partition, averaged over a topic's partitions, at which a
        batch is sent without waiting for `linger_ms`. An append may be larger: one append takes all queued records
        of its topic. Kafka: the most bytes of a batch.
    bootstrap_servers (Address | None, default None): The cluster: a path or URI, a list of roots, or an opened
        `Cluster`. None for the environment variable `KAFKALIKE_BOOTSTRAP_SERVERS`, or `./kafkalike-data` without
        it. Kafka: host and port of brokers.
    buffer_memory (int, default 33554432, bytes): Bytes of records (keys, values, headers, and 70 bytes for each
        record) that may be queued or in flight. At this limit `send` blocks.
    client_id (str | None, default None): Name of this client in log lines. None for `kafkalike-producer-N`.
    compression_type (str | None, default None): Codec of the data files in a topic whose own `compression.type` is
        `producer`: gzip, snappy, lz4, zstd, or None (`none`) for no compression. Kafka: codec of batches on the
        wire and in the log.
    delivery_timeout_ms (float, default 120000, ms): ms from `send` after which an unwritten record fails with
        `KafkaTimeoutError`; for the records of a batch it counts from the first one. At least `linger_ms` +
        `request_timeout_ms`, as in Kafka: a lower value is rejected, and the default is raised to it.
    enable_idempotence (bool, default True): Retries never duplicate a record, with either value: each write has an
        id by which its outcome is found, and only writes that certainly did not happen are repeated. The setting
        follows Kafka's rule: acks 0 or 1, retries=0 or more than 5 requests in flight disable it with a warning, or
        are rejected if it was set explicitly or required by `transactional_id`.
    key_serializer (Any, default None): `Serializer`, or a callable of the key; None accepts bytes only.
    linger_ms (float, default 0, ms): ms that a topic's first queued record waits for more. 0: sent at once; records
        that arrive during an append go with the next one, so batches grow with the load. Kafka: 5 by default in the
        Java client since 4.0.
    max_block_ms (float, default 60000, ms): ms that `send` may block while the buffer is full; then it raises
        `KafkaTimeoutError`.
    max_request_size (int, default 1048576, bytes): Largest record in bytes, counted as for `buffer_memory`; `send`
        rejects a larger one.
    metadata_max_age_ms (float, default 300000, ms): ms after which a user's partitioner must see new partitions.
        Every append refreshes them; this setting limits the age for an idle producer.
    metric_reporters (Any, default ()): Must be empty: read `metrics()`. Kafka: classes that are told of metrics.
    metrics_enabled (bool, default True): True if `metrics()` returns values.
    partitioner (Any, default None): Chooses partitions: a `Partitioner`, or a 2.x callable `(key, all, available)`.
        None: `DefaultPartitioner()`, which uses murmur2 of the serialized key, or a random partition without a key.
        Kafka: without a key, Java's keeps to one partition for a batch.
    request_timeout_ms (float, default 30000, ms): ms that one append may wait for other writers of the topic before
        other topics are served and it is retried, which counts toward `retries`. Kafka: how long a broker may take
        to answer.
    retries (float, default inf): Number of retries of a batch after transient errors, within `delivery_timeout_ms`.
        0: never.
    retry_backoff_ms (float, default 100, ms): ms until a batch is retried. Other topics are served meanwhile.
    storage_options (StorageOptionsLike | None, default None): Options of a root in an object store: a dict by
        obstore's names, such as `access_key_id` or `AWS_ACCESS_KEY_ID`. Environment variables are used for missing
        options. Values are never shown. Kafka: not there.
    transaction_timeout_ms (float, default 60000, ms): ms after the first record of a transaction from which it
        cannot be committed and maintenance may abort it; at most the server's `transaction.max.timeout.ms`.
        Consumers do not wait for an open transaction meanwhile. Kafka: readers of committed records wait for an
        open transaction.
    transactional_id (str | None, default None): Name of the producer's transactions over restarts: a newer producer
        with the name fences the older one. It enables idempotence and rejects settings that exclude it. None: no
        transactions.
    value_serializer (Any, default None): `Serializer`, or a callable of the value; None accepts bytes only.
    Without effect, for ported code: api_version, api_version_auto_timeout_ms, bootstrap_timeout_ms,
        client_dns_lookup, connections_max_idle_ms, default_api_timeout_ms, max_in_flight_requests_per_connection,
        metric_group_prefix, metrics_num_samples, metrics_sample_window_ms, net, receive_buffer_bytes,
        receive_message_max_bytes, reconnect_backoff_max_ms, reconnect_backoff_ms, send_buffer_bytes,
        socket_connection_setup_timeout_max_ms, socket_connection_setup_timeout_ms.
    """

    acks: int | str
    allow_auto_create_topics: bool
    batch_size: int
    bootstrap_servers: Address | None
    buffer_memory: int
    client_id: str | None
    compression_type: str | None
    delivery_timeout_ms: float
    enable_idempotence: bool
    key_serializer: Any
    linger_ms: float
    max_block_ms: float
    max_request_size: int
    metadata_max_age_ms: float
    metric_reporters: Any
    metrics_enabled: bool
    partitioner: Any
    request_timeout_ms: float
    retries: float
    retry_backoff_ms: float
    storage_options: StorageOptionsLike | None
    transaction_timeout_ms: float
    transactional_id: str | None
    value_serializer: Any
    api_version: Any
    api_version_auto_timeout_ms: float
    bootstrap_timeout_ms: float
    client_dns_lookup: str
    connections_max_idle_ms: float
    default_api_timeout_ms: float
    max_in_flight_requests_per_connection: int
    metric_group_prefix: str
    metrics_num_samples: int
    metrics_sample_window_ms: float
    net: Any
    receive_buffer_bytes: int | None
    receive_message_max_bytes: int
    reconnect_backoff_max_ms: float
    reconnect_backoff_ms: float
    send_buffer_bytes: int | None
    socket_connection_setup_timeout_max_ms: float
    socket_connection_setup_timeout_ms: float


class ConsumerSettings(TypedDict, total=False):
    """Settings of a `KafkaConsumer`.

    allow_auto_create_topics (bool, default True): A consumer never creates a topic. True: a topic that is missing
        when it is subscribed or assigned by name is read from its beginning once it exists, regardless of
        `auto_offset_reset`, as if it had been created at that time by Kafka's automatic creation. False:
        `auto_offset_reset` applies. Kafka: asking for a topic may create it.
    auto_commit_interval_ms (float, default 5000, ms): ms between two automatic commits.
    auto_offset_reset (str, default 'latest'): Start position without a committed offset, or if the position is out
        of range: `earliest`, `latest`, or `none`, which raises `NoOffsetForPartitionError` or
        `OffsetOutOfRangeError`.
    bootstrap_servers (Address | None, default None): The cluster: a path or URI, a list of roots, or an opened
        `Cluster`. None for the environment variable `KAFKALIKE_BOOTSTRAP_SERVERS`, or `./kafkalike-data` without
        it. Kafka: host and port of brokers.
    client_id (str, default 'kafkalike'): Name of this client, stored with the offsets that it commits.
    client_rack (str, default ''): Rack of this client, as in `broker.rack`: in a cluster of several roots, data
        files are read from a replica in sync in this rack, otherwise from the leader. Without effect in a cluster
        of one root.
    consumer_timeout_ms (float, default inf, ms): ms without a record after which iteration ends. Infinity or -1:
        never. Kafka: kafka-python's; not in the Java client.
    default_api_timeout_ms (float, default 60000, ms): ms that `commit` may take without an explicit timeout; also
        how long polls return nothing, instead of raising, while an object store does not answer.
    default_offset_commit_callback (Callable[[Any, Any], Any] | None, default None): Called as `callback(offsets,
        error_or_None)` after automatic commits, and after `commit_async` without a callback. With None, failed
        commits are logged as warnings.
    enable_auto_commit (bool, default True): True to commit positions in `poll` and `close`. Has no effect without
        `group_id`.
    errors_deadletterqueue_context_headers_enable (bool, default True): True to add headers `__connect.errors.…`
        with the record's origin and error to a letter. Connect's default is False; `kafkalike dlq` needs them.
        Kafka: Kafka Connect's; False by default.
    errors_deadletterqueue_topic_name (str | None, default None): With `errors_tolerance='all'`: the topic of the
        dead letters; None for the record's topic with the suffix `.dlq`. The empty text writes no letters: such
        records are skipped, as in Connect without the setting. Kafka: Kafka Connect's; empty by default, which
        writes no letters.
    errors_log_enable (bool, default False): True to log each such record as well. Kafka: Kafka Connect's.
    errors_log_include_messages (bool, default False): True to include the record's topic, partition, offset and
        time in the log; its content is never logged, as in Connect. Kafka: Kafka Connect's.
    errors_tolerance (str, default 'none'): `none`: `poll` raises `RecordDeserializationError`. `all`: the record
        becomes a dead letter, and `poll` continues with the next one. The commit that moves the group's offset past
        the record writes the letter, with the same outcome. Kafka: a setting of Kafka Connect, not of consumers.
    exclude_internal_topics (bool, default True): True if a pattern does not match names with the prefix `__`.
        kafkalike's own tables never match.
    fetch_max_bytes (int, default 52428800, bytes): Bytes after which one `poll` stops reading; the first read is
        made regardless of its size.
    fetch_max_wait_ms (float, default 500, ms): ms that `poll` waits at most for `fetch_min_bytes`; must be below
        `request_timeout_ms`.
    fetch_min_bytes (int, default 1, bytes): Bytes for which `poll` waits before it returns records, at most for
        `fetch_max_wait_ms`. Kafka: a broker holds the answer back.
    group_id (str | None, default None): Consumer group whose offsets are committed. None: no commits, and
        `subscribe` assigns all partitions.
    group_instance_id (str | None, default None): Name of a static member, which it keeps over restarts. A static
        member does not leave its group when it is closed; if it comes back under the same name within
        `session_timeout_ms`, it keeps its partitions without a rebalance. If another process takes the name
        meanwhile, this member is fenced (`FencedInstanceIdError`). Needs `group_id`.
    heartbeat_interval_ms (float, default 3000, ms): ms between two heartbeats, sent by a separate thread; below
        `session_timeout_ms`, usually at most a third of it. Other members are checked at the same interval, and
        each `poll` sees their changes. In an object store, where each heartbeat is a paid request, the default is
        10,000, or a third of a shorter session, but at least this default.
    isolation_level (str, default 'read_uncommitted'): `read_uncommitted` or `read_committed`. Both return the same
        records: records of an open or aborted transaction are not in any topic, and a topic gets all records of a
        committed one at once. Consumers never wait for an open transaction. Kafka: `read_uncommitted` reads records
        of open and aborted transactions.
    key_deserializer (Any, default None): `Deserializer`, or a callable of the bytes; None returns bytes.
    max_partition_fetch_bytes (int, default 1048576, bytes): Bytes near which one read of one partition stops; a
        larger record is read alone.
    max_poll_interval_ms (float, default 300000, ms): ms between two calls of `poll` after which the consumer leaves
        its group, because its application hangs.
    max_poll_records (int, default 500, records): Most records that one `poll` returns.
    metadata_max_age_ms (float, default 300000, ms): ms after which topics are looked up again. Every look at the
        log also refreshes them; this setting limits the age for a consumer that returns buffered records only.
    metric_reporters (Any, default ()): Must be empty: read `metrics()`. Kafka: classes that are told of metrics.
    metrics_enabled (bool, default True): True if `metrics()` returns values.
    partition_assignment_strategy (Any, default None): Assignors of the group's partitions: a list of `range`,
        `roundrobin`, `sticky`, `cooperative-sticky`, or of `PartitionAssignor` classes, the preferred one first.
        None: `range`, `roundrobin`. The group uses an assignor that all members have. Kafka: `range`, `cooperative-
        sticky` by default in the Java client.
    request_timeout_ms (float, default 30000, ms): ms for the commit in `close`. As in kafka-python it must be above
        `fetch_max_wait_ms` and below `connections_max_idle_ms`.
    retry_backoff_ms (float, default 100, ms): ms until a failed automatic commit is retried after a transient
        error.
    session_timeout_ms (float, default 45000, ms): ms without a heartbeat after which the group expires a member and
        reassigns its partitions. Any value is allowed; use several seconds in an object store, where each heartbeat
        is a request. Kafka: the broker has bounds for it.
    storage_options (StorageOptionsLike | None, default None): Options of a root in an object store: a dict by
        obstore's names, such as `access_key_id` or `AWS_ACCESS_KEY_ID`. Environment variables are used for missing
        options. Values are never shown. Kafka: not there.
    stripe_reads (bool, default False): True to spread reads of data files over the replicas in sync of a cluster of
        several roots: over the replicas in `client_rack` if there are any, otherwise over all. Many consumers then
        read at the speed of all roots together. A setting of kafkalike only. Without effect in a cluster of one
        root.
    value_deserializer (Any, default None): `Deserializer`, or a callable of the bytes; None returns bytes.
    Without effect, for ported code: api_version, api_version_auto_timeout_ms, bootstrap_timeout_ms, check_crcs,
        client_dns_lookup, connections_max_idle_ms, enable_incremental_fetch_sessions,
        max_in_flight_requests_per_connection, metric_group_prefix, metrics_num_samples, metrics_sample_window_ms,
        net, receive_buffer_bytes, receive_message_max_bytes, reconnect_backoff_max_ms, reconnect_backoff_ms,
        send_buffer_bytes, socket_connection_setup_timeout_max_ms, socket_connection_setup_timeout_ms.
    """

    allow_auto_create_topics: bool
    auto_commit_interval_ms: float
    auto_offset_reset: str
    bootstrap_servers: Address | None
    client_id: str
    client_rack: str
    consumer_timeout_ms: float
    default_api_timeout_ms: float
    default_offset_commit_callback: Callable[[Any, Any], Any] | None
    enable_auto_commit: bool
    errors_deadletterqueue_context_headers_enable: bool
    errors_deadletterqueue_topic_name: str | None
    errors_log_enable: bool
    errors_log_include_messages: bool
    errors_tolerance: str
    exclude_internal_topics: bool
    fetch_max_bytes: int
    fetch_max_wait_ms: float
    fetch_min_bytes: int
    group_id: str | None
    group_instance_id: str | None
    heartbeat_interval_ms: float
    isolation_level: str
    key_deserializer: Any
    max_partition_fetch_bytes: int
    max_poll_interval_ms: float
    max_poll_records: int
    metadata_max_age_ms: float
    metric_reporters: Any
    metrics_enabled: bool
    partition_assignment_strategy: Any
    request_timeout_ms: float
    retry_backoff_ms: float
    session_timeout_ms: float
    storage_options: StorageOptionsLike | None
    stripe_reads: bool
    value_deserializer: Any
    api_version: Any
    api_version_auto_timeout_ms: float
    bootstrap_timeout_ms: float
    check_crcs: bool
    client_dns_lookup: str
    connections_max_idle_ms: float
    enable_incremental_fetch_sessions: bool
    max_in_flight_requests_per_connection: int
    metric_group_prefix: str
    metrics_num_samples: int
    metrics_sample_window_ms: float
    net: Any
    receive_buffer_bytes: int | None
    receive_message_max_bytes: int
    reconnect_backoff_max_ms: float
    reconnect_backoff_ms: float
    send_buffer_bytes: int | None
    socket_connection_setup_timeout_max_ms: float
    socket_connection_setup_timeout_ms: float


class AdminSettings(TypedDict, total=False):
    """Settings of a `KafkaAdminClient`.

    bootstrap_servers (Address | None, default None): Storage root; see `kafkalike.connect.connect`. Kafka: host and
        port of brokers.
    client_id (str, default 'kafkalike-admin'): Name of this client in messages.
    metric_reporters (Sequence[Any], default ()): Must be empty: an admin client has no metrics.
    storage_options (StorageOptionsLike | None, default None): Options of a root in an object store: a dict by
        obstore's names, such as `access_key_id` or `AWS_ACCESS_KEY_ID`. Environment variables are used for missing
        options. Values are never shown. Kafka: not there.
    Without effect, for ported code: api_version, api_version_auto_timeout_ms, bootstrap_timeout_ms,
        client_dns_lookup, connections_max_idle_ms, default_api_timeout_ms, max_in_flight_requests_per_connection,
        metadata_max_age_ms, metrics_num_samples, metrics_sample_window_ms, receive_buffer_bytes,
        receive_message_max_bytes, reconnect_backoff_max_ms, reconnect_backoff_ms, request_timeout_ms,
        retry_backoff_ms, send_buffer_bytes.
    """

    bootstrap_servers: Address | None
    client_id: str
    metric_reporters: Sequence[Any]
    storage_options: StorageOptionsLike | None
    api_version: Any
    api_version_auto_timeout_ms: float
    bootstrap_timeout_ms: float | None
    client_dns_lookup: str
    connections_max_idle_ms: float
    default_api_timeout_ms: float
    max_in_flight_requests_per_connection: int
    metadata_max_age_ms: float
    metrics_num_samples: int
    metrics_sample_window_ms: float
    receive_buffer_bytes: int | None
    receive_message_max_bytes: int
    reconnect_backoff_max_ms: float
    reconnect_backoff_ms: float
    request_timeout_ms: float
    retry_backoff_ms: float
    send_buffer_bytes: int | None
