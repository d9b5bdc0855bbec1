"""Transaction requests: producer ids, and the transactions of producers. All state is in the storage."""

from __future__ import annotations

import secrets
import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkalike import errors
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.api_versions import Answer
from kafkalike.gateway.error_codes import NONE, Outcome, attempt, code_of
from kafkalike.gateway.gateway_cluster import UNUSED_SECONDS, Call, GatewayCluster, Handler
from kafkalike.model.appends.producer_sequences import EXPIRATION_MS, BatchPlace, SequencedBatch, TakenBatches
from kafkalike.model.clock import Deadline
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.model.transactions.group_claims import GroupClaim
from kafkalike.model.transactions.rules import MAX_EPOCH
from kafkalike.model.transactions.transaction_views import TransactionState
from kafkalike.model.transactions.transactional_id import TransactionAttempt

if TYPE_CHECKING:
    from kafkalike.log.topic.producer_append import SentBatch

PRODUCER_ID_BITS: Final = 63

TIMEOUT_MS: Final = 30_000.0
"""Most time of a request; Kafka's default of the producer's `request.timeout.ms`."""

FENCED_SINCE: Final = {
    keys.INIT_PRODUCER_ID: 4,
    keys.ADD_PARTITIONS_TO_TXN: 2,
    keys.ADD_OFFSETS_TO_TXN: 2,
    keys.TXN_OFFSET_COMMIT: 4,
    keys.END_TXN: 2,
}
"""First versions whose clients know the error PRODUCER_FENCED; older ones get INVALID_PRODUCER_EPOCH."""

ABORTABLE_SINCE: Final = {keys.ADD_OFFSETS_TO_TXN: 4, keys.TXN_OFFSET_COMMIT: 4, keys.END_TXN: 4}
"""First versions whose clients know the error TRANSACTION_ABORTABLE; older ones get INVALID_TXN_STATE."""

BUMPS_EPOCH_SINCE: Final = 5
"""Version of EndTxn from which each transaction has an epoch of its own (KIP-890)."""

_RETRIED: Final = (errors.KafkaTimeoutError, errors.KafkaStorageError, errors.UnknownOutcomeError, OSError)
"""Errors after which a client shall repeat the request; producers know the codes of coordinators only."""


class TransactionRequests:
    """Answers requests about producer ids and transactions.

    Args:
        home: the cluster.
    """

    def __init__(self, home: GatewayCluster) -> None:
        self._home = home
        self._transactions = home.cluster.transactions.behind_gateway()
        self._locks: dict[str, threading.Lock] = {}
        """Held while a batch is staged, by topic."""
        self._taken = TakenBatches()

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by API key."""
        home = self._home
        return {
            keys.INIT_PRODUCER_ID: home.in_thread(self._init),
            keys.ADD_PARTITIONS_TO_TXN: home.in_thread(self._add_partitions),
            keys.ADD_OFFSETS_TO_TXN: home.in_thread(self._add_offsets),
            keys.TXN_OFFSET_COMMIT: home.in_thread(self._commit_offsets),
            keys.END_TXN: home.in_thread(self._end),
            keys.DESCRIBE_PRODUCERS: home.in_thread(self._describe_producers),
            keys.DESCRIBE_TRANSACTIONS: home.in_thread(self._describe),
            keys.LIST_TRANSACTIONS: home.in_thread(self._list),
        }

    @property
    def open_logs(self) -> int:
        """Number of topics whose logs are open."""
        return self._transactions.open_logs

    def close_unused(self, ids: Mapping[str, uuid.UUID]) -> None:
        """Close the logs of topics that were deleted, or that have no commits for a while.

        Args:
            ids: the topics of the cluster.
        """
        since_ms = self._home.clock.now_ms() - int(UNUSED_SECONDS * 1000)
        self._transactions.close_logs(
            lambda log: log.last_append_ms() < since_ms or ids.get(log.info.name) != uuid.UUID(log.info.topic_id)
        )

    def _deadline(self) -> Deadline:
        return Deadline(self._home.clock, TIMEOUT_MS)

    # --- producer ids --------------------------------------------------------------------------

    def _init(self, call: Call) -> Answer:
        body = call.body
        producer_id, epoch = int(call.field("producer_id", -1)), int(call.field("producer_epoch", -1))
        try:
            if (producer_id == -1) is not (epoch == -1) or body.transactional_id == "":
                raise errors.InvalidRequestError("a producer id without epoch, or an empty transactional id")
            if body.transactional_id is None:
                return {"error_code": NONE, **_next_producer(producer_id, epoch)}
            # It has perhaps begun through another gateway, and the next epoch would fence it.
            call.check_connected()
            session = self._home.cluster.transactions.begin_session(
                body.transactional_id,
                int(body.transaction_timeout.total_seconds() * 1000),
                call.client_id,
                self._deadline(),
                held=self._transactions.held,
                after=(producer_id, epoch) if producer_id >= 0 else None,
            )
        except (errors.KafkaError, OSError) as error:
            return {"error_code": _code(keys.INIT_PRODUCER_ID, call, error), "producer_id": -1, "producer_epoch": -1}
        return {"error_code": NONE, "producer_id": session.producer_id, "producer_epoch": session.epoch}

    # --- records of transactions -----------------------------------------------------------------

    def place(self, name: str, batch: SequencedBatch | None) -> BatchPlace | None:
        """Return the place of the next batch for a topic; call it in the order of the requests. Does not wait."""
        return None if batch is None else self._taken.place(name, batch)

    def stage(
        self,
        call: Call,
        name: str,
        batches: Sequence[SentBatch],
        codecs: Sequence[str],
        places: Sequence[BatchPlace | None],
    ) -> list[Outcome]:
        """Store batches of a transaction, and return the outcome of each.

        Args:
            call: the request.
            name: the topic.
            batches: each with its sequence.
            codecs: the codec of each.
            places: from `place`.
        """
        outcomes = []
        for batch, codec, place in zip(batches, codecs, places, strict=True):
            outcome, _ = attempt(self._stage, call, name, batch, codec, place)
            if outcome.code and batch.sequence is not None:
                self._taken.forget(name, batch.sequence)
            if outcome.code in {errors.ProducerFencedError.errno, errors.InvalidProducerIdMappingError.errno}:
                # The code that producers expect here.
                outcome = Outcome(errors.InvalidProducerEpochError.errno, outcome.message)
            outcomes.append(outcome)
        return outcomes

    def _stage(self, call: Call, name: str, batch: SentBatch, codec: str, place: BatchPlace | None) -> None:
        sequence, transactional_id = batch.sequence, call.field("transactional_id")
        if transactional_id is None or sequence is None or place is None:
            raise errors.InvalidTxnStateError("the request has records of a transaction, and no transactional id")
        current = self._attempt(call, transactional_id, sequence.producer_id, sequence.epoch)
        if place.retried and place.link.number not in {None, current.number}:
            # An earlier transaction has committed or aborted it.
            return
        # First, because clients may name topics that do not exist.
        log = self._transactions.log(name)
        with self._locks.setdefault(name, threading.Lock()):
            log.refresh_info()
            before = place.after
            if (
                before is not None
                and before.number == current.number
                and not self._transactions.has_before(current, log.info.topic_id, sequence)
            ):
                raise errors.OutOfOrderSequenceNumberError(
                    f"sequence {sequence.first} of producer {sequence.producer_id} in {name}-{sequence.partition} does "
                    f"not follow its latest one, {before.batch.last}"
                )
            self._transactions.stage(transactional_id, current, log, batch, codec=codec, deadline=self._deadline())
        place.link.number = current.number

    def _add_partitions(self, call: Call) -> Answer:
        body = call.body
        error = self._refusal(
            keys.ADD_PARTITIONS_TO_TXN,
            call,
            body.v3_and_below_transactional_id,
            body.v3_and_below_producer_id,
            body.v3_and_below_producer_epoch,
        )
        topics = self._home.cluster.topics()
        asked = [(topic.name, int(p)) for topic in body.v3_and_below_topics for p in topic.partitions]
        unknown = {tp for tp in asked if tp[0] not in topics or tp[1] not in topics[tp[0]].partitions}
        rest = errors.OperationNotAttemptedError.errno if unknown else error
        missing = error or errors.UnknownTopicOrPartitionError.errno
        return {
            "results_by_topic_v3_and_below": [
                {
                    "name": topic.name,
                    "results_by_partition": [
                        {
                            "partition_index": p,
                            "partition_error_code": missing if (topic.name, int(p)) in unknown else error or rest,
                        }
                        for p in topic.partitions
                    ],
                }
                for topic in body.v3_and_below_topics
            ]
        }

    def _attempt(self, call: Call, transactional_id: str, producer_id: int, epoch: int) -> TransactionAttempt:
        """Return the transaction that a request belongs to.

        Raises:
            ConnectionAbortedError: the client has disconnected. It may have ended that transaction through another
                gateway, and begun a later one.
        """
        current = self._transactions.attempt(transactional_id, producer_id, epoch)
        # Asked last: a client that was connected after the read had not given the request up before it.
        call.check_connected()
        return current

    def _refusal(self, key: int, call: Call, transactional_id: str, producer_id: int, epoch: int) -> int:
        """Return the code with which a producer is refused; 0 if it may continue."""
        try:
            self._transactions.attempt(transactional_id, int(producer_id), int(epoch))
        except (errors.KafkaError, OSError) as error:
            return _code(key, call, error)
        return NONE

    # --- offsets of groups -----------------------------------------------------------------------

    def _add_offsets(self, call: Call) -> Answer:
        """Check the producer; the offsets themselves come with TxnOffsetCommit."""
        body = call.body
        return {
            "error_code": self._refusal(
                keys.ADD_OFFSETS_TO_TXN, call, body.transactional_id, body.producer_id, body.producer_epoch
            )
        }

    def _commit_offsets(self, call: Call) -> Answer:
        body = call.body
        topics = self._home.cluster.topics()
        offsets = {
            TopicPartition(topic.name, int(p.partition_index)): OffsetAndMetadata(
                int(p.committed_offset), p.committed_metadata or "", int(getattr(p, "committed_leader_epoch", -1))
            )
            for topic in body.topics
            for p in topic.partitions
        }
        known = {
            tp: at for tp, at in offsets.items() if tp.topic in topics and tp.partition in topics[tp.topic].partitions
        }
        claim = GroupClaim(
            group_id=body.group_id,
            generation=int(call.field("generation_id", -1)),
            member_id=call.field("member_id", ""),
            group_instance_id=call.field("group_instance_id"),
            client_id=call.client_id,
            lives=tuple(sorted({tp.topic: str(topics[tp.topic].topic_id) for tp in known}.items())),
        )
        code = NONE
        try:
            current = self._attempt(call, body.transactional_id, int(body.producer_id), int(body.producer_epoch))
            if known:
                self._transactions.add_offsets(current, claim, known, self._deadline())
        except (errors.KafkaError, OSError) as error:
            code = _code(keys.TXN_OFFSET_COMMIT, call, error)
            if code == errors.RebalanceInProgressError.errno:
                # Producers know no other code for a group that has changed.
                code = errors.IllegalGenerationError.errno
        missing = code or errors.UnknownTopicOrPartitionError.errno
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": p.partition_index,
                            "error_code": code
                            if TopicPartition(topic.name, int(p.partition_index)) in known
                            else missing,
                        }
                        for p in topic.partitions
                    ],
                }
                for topic in body.topics
            ]
        }

    # --- ends ------------------------------------------------------------------------------------

    def _end(self, call: Call) -> Answer:
        name, commit = call.body.transactional_id, bool(call.body.committed)
        ended = int(call.body.producer_id), int(call.body.producer_epoch)
        try:
            if call.version < BUMPS_EPOCH_SINCE:
                self._transactions.end(name, self._attempt(call, name, *ended), self._deadline(), commit=commit)
            else:
                ended = self._transactions.end_epoch(name, *ended, self._deadline(), commit=commit)
        except (errors.KafkaError, OSError) as error:
            return {"error_code": _code(keys.END_TXN, call, error), "producer_id": -1, "producer_epoch": -1}
        return {"error_code": NONE, "producer_id": ended[0], "producer_epoch": ended[1]}

    # --- descriptions ------------------------------------------------------------------------------

    def _list(self, call: Call) -> Answer:
        body = call.body
        known = {state.value: state for state in TransactionState}
        unknown = [name for name in body.state_filters if name not in known]
        duration = int(call.field("duration_filter", -1))
        outcome, found = attempt(
            self._home.admin().list_transactions,
            state_filters=[known[name] for name in body.state_filters if name in known] or None,
            producer_id_filters=[int(one) for one in body.producer_id_filters] or None,
            duration_filter_ms=duration if duration >= 0 else None,
            transactional_id_pattern=call.field("transactional_id_pattern"),
        )
        # If only unknown states are asked for, no transaction has one.
        nothing = found is None or (unknown and len(unknown) == len(body.state_filters))
        listings = {} if found is None or nothing else found
        return {
            "error_code": outcome.code,
            "unknown_state_filters": unknown,
            "transaction_states": [
                {
                    "transactional_id": one.transactional_id,
                    "producer_id": one.producer_id,
                    "transaction_state": one.state.value,
                }
                for group in listings.values()
                for one in group
            ],
        }

    def _describe(self, call: Call) -> Answer:
        states = []
        for name in call.body.transactional_ids:
            outcome, found = attempt(self._home.admin().describe_transactions, [name])
            if found is None:
                states.append({"error_code": outcome.code, "transactional_id": name, "transaction_state": ""})
                continue
            one = found[name]
            partitions: dict[str, list[int]] = {}
            for tp in sorted(one.topic_partitions):
                partitions.setdefault(tp.topic, []).append(tp.partition)
            states.append(
                {
                    "error_code": NONE,
                    "transactional_id": name,
                    "transaction_state": one.state.value,
                    "transaction_timeout": one.transaction_timeout_ms,
                    "transaction_start_time": one.transaction_start_time_ms,
                    "producer_id": one.producer_id,
                    "producer_epoch": one.producer_epoch,
                    "topics": [{"topic": topic, "partitions": numbers} for topic, numbers in partitions.items()],
                }
            )
        return {"transaction_states": states}

    def _describe_producers(self, call: Call) -> Answer:
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [self._producers(topic.name, int(p)) for p in topic.partition_indexes],
                }
                for topic in call.body.topics
            ]
        }

    def _producers(self, name: str, partition: int) -> dict[str, Any]:
        """Describe the idempotent producers that wrote lately, and those with an open transaction."""
        tp = TopicPartition(name, partition)
        outcome, found = attempt(self._home.admin().describe_producers, [tp])
        if found is None:
            return {"partition_index": partition, "error_code": outcome.code, "error_message": outcome.message}
        producers = [
            {
                "producer_id": one.producer_id,
                "producer_epoch": one.producer_epoch,
                "last_sequence": one.last_sequence,
                "last_timestamp": one.last_timestamp,
                "coordinator_epoch": one.coordinator_epoch,
                # Records of an open transaction have no offsets yet.
                "current_txn_start_offset": one.current_transaction_start_offset,
            }
            for one in found[tp].active_producers
        ]
        log = self._transactions.log(name)
        log.refresh()
        now = self._home.clock.now_ms()
        entries = log.producer_sequences(now).entries
        producers += [
            {
                "producer_id": producer_id,
                "producer_epoch": entry.epoch,
                "last_sequence": entry.batches[-1][1],
                "last_timestamp": entry.time_ms,
                "coordinator_epoch": -1,
                "current_txn_start_offset": -1,
            }
            for (producer_id, where), entry in entries.items()
            if where == partition and entry.time_ms >= now - EXPIRATION_MS
        ]
        return {"partition_index": partition, "error_code": NONE, "active_producers": producers}


def _next_producer(producer_id: int, epoch: int) -> dict[str, int]:
    """Return the next epoch of an idempotent producer, or a new producer."""
    if producer_id >= 0 and 0 <= epoch < MAX_EPOCH:
        return {"producer_id": producer_id, "producer_epoch": epoch + 1}
    # Random, because no coordinator counts them: of a billion producers, two have the same id once in 18 clusters.
    return {"producer_id": secrets.randbits(PRODUCER_ID_BITS), "producer_epoch": 0}


def _code(key: int, call: Call, error: BaseException) -> int:
    """Return the code of an error that the clients of a version know."""
    if isinstance(error, _RETRIED):
        return errors.CoordinatorLoadInProgressError.errno
    code = code_of(error)
    if code == errors.ProducerFencedError.errno and call.version < FENCED_SINCE[key]:
        return errors.InvalidProducerEpochError.errno
    if code == errors.TransactionAbortableError.errno and call.version < ABORTABLE_SINCE.get(key, call.version + 1):
        return errors.InvalidTxnStateError.errno
    return code
