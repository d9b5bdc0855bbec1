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

    acks (int | str, default -1): When a record counts as sent. -1, `all` and 1: when its table commit is made, with
        several roots at all replicas in sync, as 1 is served as `all`. 0: at once; its future has offset -1, and an
        error is only logged. `of` turns `all` into -1. Kafka: 1 waits for one broker, `all` for the replicas in
        sync.
    allow_auto_create_topics (bool, default True): Whether `send` and `partitions_for` create a missing topic, where
        the server's `auto.create.topics.enable` allows it too. Otherwise they raise `UnknownTopicOrPartitionError`.
    batch_size (int, default 16384, bytes): Bytes per partition, on average over a topic's partitions, at which
        `linger_ms` is not waited for. No upper limit: one append takes everything that is queued for its topic.
        Kafka: the most bytes of a batch.
    bootstrap_servers (Address | None, default None): The cluster: a path or URI, a list with one of them, or an
        opened `Cluster`. None takes the environment variable `KAFKALIKE_BOOTSTRAP_SERVERS`, else `./kafkalike-
        data`. Kafka: host and port of brokers.
    buffer_memory (int, default 33554432, bytes): Bytes of records (keys, values, headers, and 70 bytes for each
        record) that may wait or be under way. When they are reached, `send` blocks.
    client_id (str | None, default None): Name of this client, in log lines. None becomes `kafkalike-producer-N`.
    compression_type (str | None, default None): Codec of the data files in a topic whose own `compression.type` is
        `producer`: gzip, snappy, lz4, zstd, or None (`none`) for no compression. Kafka: codec of batches on the
        wire and in the log.
    delivery_timeout_ms (float, default 120000, ms): ms from `send` after which a record that is not written fails
        with `KafkaTimeoutError`; the records of a batch count from its first one. At least `linger_ms` +
        `request_timeout_ms`, as in Kafka: less is refused, and the default is raised to it.
    enable_idempotence (bool, default True): Retries never double a record, on or off: a write has an id by which
        its outcome is found, and only what is known not to be written is written again. Kept for Kafka's rule: with
        acks 0 or 1, retries=0 or more than 5 requests in flight it is turned off with a warning, or refused when it
        was asked for by name or by `transactional_id`.
    key_serializer (Any, default None): `Serializer`, or a callable of the key; None takes bytes only.
    linger_ms (float, default 0, ms): ms that a topic's first queued record waits for more. 0: sent at once; what
        comes while an append runs goes with the next one, so batches grow with the load anyway. Kafka: 5 by default
        in the Java client since 4.0.
    max_block_ms (float, default 60000, ms): ms that `send` may block while the buffer is full; then
        `KafkaTimeoutError`.
    max_request_size (int, default 1048576, bytes): Largest record in bytes, counted as `buffer_memory` counts;
        `send` refuses a larger one.
    metadata_max_age_ms (float, default 300000, ms): ms after which a partitioner of the user's must hear of new
        partitions. Every append looks anyway; this bounds it for a producer that was idle.
    metric_reporters (Any, default ()): Must be empty: read `metrics()`. Kafka: classes that are told of metrics.
    metrics_enabled (bool, default True): Whether `metrics()` answers.
    partitioner (Any, default None): Chooses partitions: a `Partitioner`, or a 2.x callable `(key, all, available)`.
        None: `DefaultPartitioner()`, murmur2 of the serialised key, at random without key. Kafka: without a key,
        Java's keeps to one partition for a batch.
    request_timeout_ms (float, default 30000, ms): ms that one append may wait for other writers of the topic,
        before other topics get their turn and it is tried again; counts as one of `retries`. Kafka: how long a
        broker may take to answer.
    retries (float, default inf): How often a batch is tried again after an error that may pass, within
        `delivery_timeout_ms`. 0: never.
    retry_backoff_ms (float, default 100, ms): ms until a batch is tried again. Other topics are served meanwhile.
    storage_options (StorageOptionsLike | None, default None): Of a root in an object store: a dict by obstore's
        names, such as `access_key_id` or `AWS_ACCESS_KEY_ID`. Environment variables say what it does not. Never
        shown. Kafka: not there.
    transaction_timeout_ms (float, default 60000, ms): ms after the first record of a transaction from which it
        cannot be committed any more, and maintenance may abort it; at most the server's
        `transaction.max.timeout.ms`. Nobody waits for an open transaction meanwhile. Kafka: readers of committed
        records wait for an open transaction.
    transactional_id (str | None, default None): Name under which a producer has transactions, over restarts: a
        newer producer of the name fences the older one. Idempotence then is on, and what excludes it is refused.
        None: no transactions.
    value_serializer (Any, default None): `Serializer`, or a callable of the value; None takes bytes only.
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
        when it is subscribed or assigned by name is treated as if it were created then, so that it is read from its
        beginning once it appears, whatever `auto_offset_reset` says. That is what Kafka's automatic creation comes
        to. False: `auto_offset_reset` holds. Kafka: asking for a topic may create it.
    auto_commit_interval_ms (float, default 5000, ms): ms between two automatic commits.
    auto_offset_reset (str, default 'latest'): Where to begin without a committed offset, or when the position is
        out of range: `earliest`, `latest`, or `none`, which raises `NoOffsetForPartitionError` or
        `OffsetOutOfRangeError`.
    bootstrap_servers (Address | None, default None): The cluster: a path or URI, a list with one of them, or an
        opened `Cluster`. None takes the environment variable `KAFKALIKE_BOOTSTRAP_SERVERS`, else `./kafkalike-
        data`. Kafka: host and port of brokers.
    client_id (str, default 'kafkalike'): Name of this client; shown beside the offsets it commits.
    client_rack (str, default ''): Rack where this client is, as brokers have it in `broker.rack`: of a cluster of
        several roots, data files are read at a replica there that is in sync, else at the leader. Without effect on
        a cluster of one root.
    consumer_timeout_ms (float, default inf, ms): ms without a record after which iteration ends. Infinity or -1:
        never. Kafka: kafka-python's; not in the Java client.
    default_api_timeout_ms (float, default 60000, ms): ms that `commit` may take when no timeout is given; and for
        which polls return nothing, instead of raising, while an object store gives no answer.
    default_offset_commit_callback (Callable[[Any, Any], Any] | None, default None): Called as `callback(offsets,
        error_or_None)` after automatic commits and after `commit_async` without a callback. None logs a warning
        when the commit failed.
    enable_auto_commit (bool, default True): Whether positions are committed by `poll` and `close`. Has no effect
        without `group_id`.
    errors_deadletterqueue_context_headers_enable (bool, default True): Whether a letter says in headers
        `__connect.errors.…` where it comes from and why it is one. Connect's default is False; `kafkalike dlq`
        needs them. Kafka: Kafka Connect's; False by default.
    errors_deadletterqueue_topic_name (str | None, default None): With `errors_tolerance='all'`: the topic of the
        dead letters; None takes the record's topic with `.dlq` behind. The empty text writes none: such records are
        passed over, as by Connect without the setting. Kafka: Kafka Connect's; empty by default, which writes no
        letters.
    errors_log_enable (bool, default False): Whether each such record is logged as well. Kafka: Kafka Connect's.
    errors_log_include_messages (bool, default False): Whether the log says the record's topic, partition, offset
        and time, too; never its content, as in Connect. Kafka: Kafka Connect's.
    errors_tolerance (str, default 'none'): `none`: `poll` raises `RecordDeserializationError`. `all`: the record
        becomes a dead letter, and `poll` goes on with the next one. The letter is written by the commit that moves
        the group's offset past its record, in one outcome with it. Kafka: a setting of Kafka Connect, not of
        consumers.
    exclude_internal_topics (bool, default True): Whether a pattern passes over names that begin with `__`.
        kafkalike's own tables are no topics in any case.
    fetch_max_bytes (int, default 52428800, bytes): Bytes after which one `poll` stops reading; the first read is
        made whatever its size.
    fetch_max_wait_ms (float, default 500, ms): ms that `poll` may hold records back for the sake of
        `fetch_min_bytes`; below `request_timeout_ms`.
    fetch_min_bytes (int, default 1, bytes): `poll` holds records back until so many bytes are there, but no longer
        than `fetch_max_wait_ms`. Kafka: a broker holds the answer back.
    group_id (str | None, default None): Consumer group, under which offsets are committed. None: no commits, and
        `subscribe` takes all partitions.
    group_instance_id (str | None, default None): Name that a member keeps over restarts: a static member. It does
        not leave its group when it is closed, and one that comes back under the same name within
        `session_timeout_ms` goes on with its partitions, without a rebalance. Another process that takes the name
        while this one lives fences it (`FencedInstanceIdError`). Needs `group_id`.
    heartbeat_interval_ms (float, default 3000, ms): ms between two heartbeats, given by a thread of its own; below
        `session_timeout_ms`, a third of it at most as a rule. The others are looked after at the same interval, and
        their changes are seen by each `poll`. In an object store, where each is a request that costs money, the
        default is 10,000, or a third of a shorter session, but no less than here.
    isolation_level (str, default 'read_uncommitted'): `read_uncommitted` or `read_committed`. Both read the same:
        records of an open or aborted transaction are in no topic, and of a committed one a topic gets all records
        at once. So nobody waits for an open transaction. Kafka: `read_uncommitted` reads records of open and
        aborted transactions.
    key_deserializer (Any, default None): `Deserializer`, or a callable of the bytes; None leaves bytes.
    max_partition_fetch_bytes (int, default 1048576, bytes): Bytes near which one read of one partition stops; a
        larger record is still read, alone.
    max_poll_interval_ms (float, default 300000, ms): ms between two calls of `poll` after which the consumer leaves
        its group by itself: its application hangs.
    max_poll_records (int, default 500, records): Most records that one `poll` returns.
    metadata_max_age_ms (float, default 300000, ms): ms after which topics are looked up again. They also are
        whenever the log is looked at, since that is cheap; this bounds it for a consumer that lives on its buffer.
    metric_reporters (Any, default ()): Must be empty: read `metrics()`. Kafka: classes that are told of metrics.
    metrics_enabled (bool, default True): Whether `metrics()` answers.
    partition_assignment_strategy (Any, default None): How a group's partitions are shared out: a list of `range`,
        `roundrobin`, `sticky`, `cooperative-sticky`, or of `PartitionAssignor` classes, the one liked best first.
        None: `range`, `roundrobin`. The group takes one that all members have. Kafka: `range`, `cooperative-sticky`
        by default in the Java client.
    request_timeout_ms (float, default 30000, ms): ms for the commit that `close` makes. As in kafka-python it must
        be above `fetch_max_wait_ms` and below `connections_max_idle_ms`.
    retry_backoff_ms (float, default 100, ms): ms until an automatic commit that failed for a passing reason is
        tried again.
    session_timeout_ms (float, default 45000, ms): ms without a heartbeat after which the group takes a member for
        dead and shares out its partitions. It has no lower bound; in an object store, where a heartbeat is a
        request, some seconds are wise. Kafka: the broker has bounds for it.
    storage_options (StorageOptionsLike | None, default None): Of a root in an object store: a dict by obstore's
        names, such as `access_key_id` or `AWS_ACCESS_KEY_ID`. Environment variables say what it does not. Never
        shown. Kafka: not there.
    stripe_reads (bool, default False): Whether the replicas in sync of a cluster of several roots take turns to
        give data files, file by file: those of `client_rack` if it has any, else all. Many consumers then read as
        fast as all roots together give. kafkalike's own: Kafka has no such setting. Without effect on a cluster of
        one root.
    value_deserializer (Any, default None): `Deserializer`, or a callable of the bytes; None leaves bytes.
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
    storage_options (StorageOptionsLike | None, default None): Of a root in an object store: a dict by obstore's
        names, such as `access_key_id` or `AWS_ACCESS_KEY_ID`. Environment variables say what it does not. Never
        shown. Kafka: not there.
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
