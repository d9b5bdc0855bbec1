"""Write `docs/reference/errors.md`: the classes of `kafkalike.errors`, and what to do about each."""

from __future__ import annotations

import inspect
from typing import Final

from kafkalike import errors
from kafkalike.errors import KafkaError

_CODE: Final = "correct the call"
_SETTING: Final = "correct the setting; the text names the nearest known one"
_VERIFY: Final = "run `kafkalike verify`, then see [after a finding](findings.md)"
_POLL: Final = "call `poll` again: the consumer joins its group again; records since the last commit come again"
_AGAIN: Final = "try again; clients do so by themselves until their time is up"
_RULE: Final = "give the user a rule with `kafkalike gateway users add --allow`"
_ABORT: Final = "call `abort_transaction`, then start over"

ADVICE: Final = {
    "BrokerResponseError": "see the error that it is",
    "CheckpointMismatchError": "give the query its own checkpoint and a new `txn_id`, or go on with the old checkpoint",
    "ClusterAuthorizationFailedError": _RULE,
    "CommitFailedError": _POLL,
    "ConcurrentTransactionsError": _AGAIN,
    "CoordinatorLoadInProgressError": _AGAIN,
    "CorruptRecordError": _VERIFY,
    "DataLossError": f"{_VERIFY}; to read on, seek past the offsets that it names",
    "FencedInstanceIdError": "give each running process its own `group_instance_id`",
    "FencedMemberEpochError": "the client joins again by itself",
    "GroupAuthorizationFailedError": f"grant write access to the root; at a gateway, {_RULE}",
    "GroupIdNotFoundError": "check the name with `kafkalike consumer-groups --list`",
    "GroupMaxSizeReachedError": "run another gateway",
    "GroupSubscribedToTopicError": "stop the members first",
    "IllegalArgumentError": _CODE,
    "IllegalGenerationError": _POLL,
    "IllegalSaslStateError": "authenticate once, with SaslHandshake before SaslAuthenticate",
    "IllegalStateError": f"{_CODE}: make clients after a fork, use a consumer from one thread",
    "InconsistentGroupProtocolError": "give all members an assignor in common",
    "InvalidConfigurationError": _SETTING,
    "InvalidGroupIdError": _CODE,
    "InvalidMetadataError": _AGAIN,
    "InvalidPartitionsError": _CODE,
    "InvalidProducerEpochError": _ABORT,
    "InvalidRecordError": "give records of a compacted topic a key; or see what the text says",
    "InvalidRecordStateError": "finish records before their lock ends, renew the lock, or raise "
    "`share_record_lock_duration_ms`; abort the transaction that acknowledges them",
    "InvalidReplicationAssignmentError": "name brokers that there are, the same for all partitions of a topic",
    "InvalidReplicationFactorError": "at most as many as there are roots that are not being drained",
    "InvalidRequestError": _CODE,
    "InvalidRequiredAcksError": "set `acks` to -1, 0 or 1",
    "InvalidSchemaError": "correct the schema at the place that the text names",
    "InvalidSessionTimeoutError": "set the client's `session.timeout.ms` to at most 30 minutes",
    "InvalidTimestampError": "correct the time, or the topic's `message.timestamp.before.max.ms` and `after.max.ms`",
    "InvalidTopicError": _CODE,
    "InvalidTopicTypeError": _CODE,
    "InvalidTransactionTimeoutError": "lower `transaction_timeout_ms`, or raise the server's limit",
    "InvalidTxnStateError": "look at the outcome with `kafkalike transactions describe`",
    "KafkaConfigurationError": _SETTING,
    "KafkaConnectionError": "mount the file system, check the address and the credentials; then try again",
    "KafkaError": "see the error that it is",
    "KafkaStorageError": "try again; if it stays, look at room, permissions and the disk's health",
    "KafkaTimeoutError": "try again, or give more time; its text says who was waited for",
    "LogCorruptError": _VERIFY,
    "MessageSizeTooLargeError": "send less, or raise `max_request_size` and the topic's `max.message.bytes`",
    "NoOffsetForPartitionError": "seek, commit an offset, or set `auto_offset_reset`",
    "NonEmptyGroupError": "stop the members first",
    "NotEnoughReplicasAfterAppendError": "nothing: the records are there; see `kafkalike replicate`",
    "MirrorError": "the text says what differs; promote the mirror, or delete it and mirror the topic again",
    "MirrorTopicError": "write to the source, or run `kafkalike mirror promote` ([mirrors](../replicas.md#mirrors))",
    "NotEnoughReplicasError": "bring replicas back with `kafkalike replicate`, or lower `min.insync.replicas`",
    "OffsetMetadataTooLargeError": "commit a shorter text, or raise `offset.metadata.max.bytes`",
    "OffsetOutOfRangeError": "seek to an offset that is there, or set `auto_offset_reset`",
    "OperationNotAttemptedError": "see the errors of the other parts",
    "OutOfOrderSequenceNumberError": "give a higher version, or a new `txn_id`",
    "PolicyViolationError": "see which property the text names",
    "ProducerFencedError": "end this process: a newer one has its transactional id",
    "RebalanceInProgressError": _POLL,
    "RecordDeserializationError": "`seek` past the record, or set `errors_tolerance='all'`",
    "RequestTimedOutError": _AGAIN,
    "ResourceNotFoundError": "see the users with `kafkalike gateway users list`",
    "RetriableError": _AGAIN,
    "SaslAuthenticationFailedError": "check user and password; `kafkalike gateway users list` shows the users",
    "SchemaRegistryError": "see its code and text",
    "SerializationError": "correct the value; its text and fields say where it is",
    "TopicAlreadyExistsError": "take it as it is, or another name",
    "TopicAuthorizationFailedError": f"grant access to the topic's folder; at a gateway, {_RULE}",
    "TopicDeletedError": "make a new client, if the new topic is meant",
    "TransactionAbortableError": _ABORT,
    "TransactionAbortedError": "send the record again, in the next transaction",
    "TransactionalIdAuthorizationFailedError": _RULE,
    "TransactionalIdNotFoundError": "check the name with `kafkalike transactions list`",
    "UnknownMemberCommitError": _POLL,
    "UnknownLeaderEpochError": "let the client refresh its metadata: it names an epoch that no leader has had",
    "UnknownMemberIdError": _POLL,
    "UnknownOutcomeError": "look for its `append_id` with `kafkalike dump-log`; write again only if it is not there",
    "UnknownPartitionerTopicError": "create the topic first",
    "UnknownProducerIdError": "check the id with `kafkalike transactions list`",
    "UnknownRegistryOutcomeError": "ask the registry whether the change was made",
    "UnknownTopicIdError": "check it with `kafkalike topics --describe`",
    "UnknownTopicOrPartitionError": "create the topic; check its name and number of partitions",
    "UnsafeStorageError": "take another storage: this one would lose records ([guarantees](../guarantees.md))",
    "UnsupportedAssignorError": "set `group.remote.assignor` to `uniform` or `range`",
    "UnsupportedCodecError": "take none, gzip, snappy, lz4 or zstd",
    "UnsupportedSaslMechanismError": "take SCRAM-SHA-256 or SCRAM-SHA-512; PLAIN needs TLS or the loopback",
    "UnsupportedVersionError": "upgrade this client, or restart it; or take off the property that the text names",
    "BrokerNotAvailableError": "see `kafkalike brokers list`",
    "ElectionNotNeededError": "nothing",
    "EligibleLeadersNotAvailableError": "bring a root back",
    "NoReassignmentInProgressError": "nothing",
    "NotLeaderForPartitionError": "nothing, a producer tries again; see `kafkalike topics --repartition`",
    "ReassignmentInProgressError": "run the command of the message, or stop the clients that it names",
    "PreferredLeaderNotAvailableError": "bring it back with `kafkalike replicate`",
}
"""What to do, by error. Errors that are not named here are never raised; they exist so that code that catches them
runs."""


def page() -> str:
    """The page of all errors."""
    known = {
        name: kind
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, KafkaError) and kind.__name__ == name
    }
    lines = [
        "# Errors",
        "",
        "<!-- Written by `make reference`; tests say when it is out of date. -->",
        "",
        "All are `kafkalike.errors.KafkaError`, with kafka-python's names, codes and parents.",
        "A change can end in three ways.",
        "It is done, it is refused and nothing was written, or nobody knows (`UnknownOutcomeError`).",
        "`error.retriable` says whether the same call may succeed later.",
        "",
        "| error | retriable | meaning | what to do |",
        "| --- | --- | --- | --- |",
    ]
    for name, advice in sorted(ADVICE.items()):
        meaning = " ".join((known[name].__doc__ or "").split("\n\n")[0].split()).replace("|", "\\|")
        lines.append(f"| `{name}` | {'yes' if known[name].retriable else 'no'} | {meaning} | {advice} |")
    never = ", ".join(f"`{name}`" for name in sorted(known.keys() - ADVICE.keys()))
    return "\n".join([*lines, "", f"Never raised, there for code that catches them: {never}.", ""])
