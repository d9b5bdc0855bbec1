"""`kafkalike dump-log`: print table commits, segments, records and rows of groups, in the form of kafka-dump-log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import click

from kafkalike.cli.environment import Environment, pass_options
from kafkalike.cli.options import cluster_options, refused, topic_filter, version_option, without_effect
from kafkalike.errors import IllegalArgumentError, UnknownTopicOrPartitionError
from kafkalike.model.clock import utc_text
from kafkalike.model.group_rows import MEMBER, TRANSACTION, GroupRow, standing_of
from kafkalike.model.segments import Segment
from kafkalike.model.transactions.transaction_views import TransactionState
from kafkalike.model.transactions.transactional_id import TransactionalIdState, Why
from kafkalike.schemas.serialization import deserializer_for

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.chunk import ChunkColumns
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.maintenance.verify.topic_history import CommitInfo


READ_BYTES: Final = 1_048_576
TIMESTAMP_NAMES: Final = {0: "CreateTime", 1: "LogAppendTime"}

DECODERS: Final = {
    "DefaultDecoder": "bytes",
    "StringDecoder": "string",
    "IntegerDecoder": "integer",
    "LongDecoder": "long",
}
"""Format by Kafka's decoder class."""

ToText = Callable[[bytes], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpLogOptions:
    """The command line, as click has read it."""

    bootstrap_server: str | None
    command_config: str | None
    topic: str | None
    files: str | None
    print_data_log: bool
    deep_iteration: bool
    skip_record_metadata: bool
    max_bytes: int | None
    key_decoder_class: str
    value_decoder_class: str
    offsets_decoder: bool
    transaction_log_decoder: bool


@click.command(epilog="Example: kafkalike dump-log --topic orders --print-data-log")
@cluster_options
@click.option("--topic", metavar="REGEX", help="Topics to dump.")
@click.option("--files", metavar="FILE,FILE", help="Data files to dump: paths, or their ends such as part-….parquet.")
@click.option("--print-data-log", is_flag=True, help="Print the records with key and payload.")
@click.option("--deep-iteration", is_flag=True, help="Print the records, without key and payload.")
@click.option("--skip-record-metadata", is_flag=True, help="With --print-data-log: key and payload only.")
@click.option("--max-bytes", type=click.IntRange(min=1), help="Stop printing a file's records after this many bytes.")
@click.option("--key-decoder-class", default="StringDecoder", show_default=True, help="As --value-decoder-class.")
@click.option("--value-decoder-class", default="StringDecoder", show_default=True, help=f"{', '.join(DECODERS)}.")
@refused("--verify-index-only", "there are no index files; see 'kafkalike verify'", is_flag=True)
@refused("--index-sanity-check", "there are no index files; see 'kafkalike verify'", is_flag=True)
@click.option(
    "--offsets-decoder", is_flag=True, help="Print the rows of __consumer_offsets: offsets, members, transactions."
)
@click.option("--transaction-log-decoder", is_flag=True, help="Print the rows of transactions only.")
@refused("--cluster-metadata-decoder", "metadata are a table, __cluster_metadata", is_flag=True)
@refused("--remote-log-metadata-decoder", "nothing is tiered", is_flag=True)
@refused("--share-group-state-decoder", "there are no share groups", is_flag=True)
@without_effect("--max-message-size", "records are found without scanning")
@version_option
@pass_options(DumpLogOptions)
def dump_log(environment: Environment, options: DumpLogOptions) -> None:
    """Print the table commits of topics with the segments each added, and the records if asked.

    Only live segments have records to print. Segments that maintenance merged or deleted are marked "removed".

    The two decoders print the rows that the table still has; their "offset" is the number of the row.
    """
    if options.offsets_decoder or options.transaction_log_decoder:
        _dump_rows(environment, options)
        return
    if options.topic is None and options.files is None:
        raise click.UsageError("--topic or --files is needed")
    cluster = environment.existing(options.bootstrap_server, options.command_config)
    allowed = topic_filter(options.topic)
    names = sorted(name for name in cluster.topics() if allowed(name))
    if not names:
        raise UnknownTopicOrPartitionError(f"Topic '{options.topic or ''}' does not exist as expected")
    dump = Dump(cluster, options)
    for name in names:
        for line in dump.topic(name):
            click.echo(line)
    if options.files is not None and dump.missing:
        raise IllegalArgumentError(f"no segment has the name {', '.join(sorted(dump.missing))}")


def _dump_rows(environment: Environment, options: DumpLogOptions) -> None:

    only_transactions = options.transaction_log_decoder
    named = {OFFSETS_TOPIC, TRANSACTIONS_TOPIC} if only_transactions else {OFFSETS_TOPIC}
    if options.files is not None or options.topic not in {None, *named}:
        raise click.UsageError("the decoders print __consumer_offsets as a whole: leave --files and other topics out")
    rows = environment.existing(options.bootstrap_server, options.command_config).groups.rows
    click.echo(f"Dumping {options.topic or (TRANSACTIONS_TOPIC if only_transactions else OFFSETS_TOPIC)}")
    for line in transaction_lines(rows) if only_transactions else offset_lines(rows):
        click.echo(line)


class Dump:
    """Formats topics as lines, with the options of the command."""

    def __init__(self, cluster: Cluster, options: DumpLogOptions) -> None:
        self._cluster = cluster
        self._files = _file_names(options.files)
        self.missing = set(self._files or ())
        """Requested files that are not found yet."""
        self._payload: bool = options.print_data_log
        self._records: bool = options.print_data_log or options.deep_iteration
        self._metadata: bool = not options.skip_record_metadata
        self._max_bytes: int | None = options.max_bytes
        self._key = _decoder(options.key_decoder_class)
        self._value = _decoder(options.value_decoder_class)

    def topic(self, name: str) -> Iterator[str]:
        """Yield the lines of a topic: its commits, then live segments of commits that the log no longer has."""
        from kafkalike.maintenance.verify.topic_history import list_commits

        log = self._cluster.log(name)
        log.refresh()
        live = {segment.path: segment for p in log.info.partitions for segment in log.segments(p)}
        header: list[str] = [f"Dumping {name}"]
        seen: set[str] = set()
        for commit in list_commits(self._cluster, name):
            seen.update(segment.path for segment in commit.added)
            segments = [segment for segment in commit.added if self._wanted(segment)]
            if segments or self._files is None:
                yield from header
                header = []
                yield _commit_line(commit)
                for segment in segments:
                    yield from self._segment(log, segment, live=segment.path in live)
        older = [segment for path, segment in live.items() if path not in seen and self._wanted(segment)]
        if older or (header and self._files is None):
            yield from header
            for segment in older:
                yield from self._segment(log, segment, live=True)

    def _wanted(self, segment: Segment) -> bool:
        if self._files is None:
            return True
        path = PurePath(segment.path)
        hits = {name for name in self._files if name == str(path) or name.endswith(f"/{path}") or name == path.name}
        self.missing -= hits
        return bool(hits)

    def _segment(self, log: TopicLog, segment: Segment, *, live: bool) -> Iterator[str]:
        yield (
            f"  partition: {segment.partition} baseOffset: {segment.start} lastOffset: {segment.stop - 1} "
            f"count: {segment.num_records} minTimestamp: {segment.min_timestamp} "
            f"maxTimestamp: {segment.max_timestamp} size: {segment.size_bytes} file: {segment.path}"
            + ("" if live else " removed")
        )
        if self._records and live:
            yield from self._lines(log, segment)

    def _lines(self, log: TopicLog, segment: Segment) -> Iterator[str]:
        reader = log.reader(segment.partition, max(segment.start, log.log_start(segment.partition)))
        printed = 0
        while reader.position < segment.stop:
            chunk = reader.read(READ_BYTES)
            if chunk is None:
                return
            columns = chunk.columns()
            for row, offset in enumerate(columns.offsets):
                if offset >= segment.stop or (self._max_bytes is not None and printed >= self._max_bytes):
                    return
                printed += len(columns.keys[row] or b"") + len(columns.values[row] or b"")
                yield self._line(columns, row)

    def _line(self, columns: ChunkColumns, row: int) -> str:
        key, value = columns.keys[row], columns.values[row]
        parts = ["|"]
        if self._metadata:
            headers = columns.headers[row] if columns.headers else ()
            parts += [
                f"offset: {columns.offsets[row]}",
                f"{TIMESTAMP_NAMES[columns.timestamp_types[row]]}: {columns.timestamps[row]}",
                f"keySize: {-1 if key is None else len(key)}",
                f"valueSize: {-1 if value is None else len(value)}",
                f"sequence: -1 headerKeys: [{','.join(name for name, _ in headers)}]",
            ]
        if self._payload and key is not None:
            parts.append(f"key: {self._key(key)}")
        if self._payload and value is not None:
            parts.append(f"payload: {self._value(value)}")
        return " ".join(parts)


def _commit_line(commit: CommitInfo) -> str:
    at = utc_text(commit.timestamp_ms)
    line = f"version: {commit.version} time: {at} operation: {commit.operation} engine: {commit.engine}"
    if commit.append_id is not None:
        line += f" appendId: {commit.append_id}"
    if commit.parts:
        line += f" parts: {','.join(commit.parts)}"
    if commit.transaction is not None:
        line += f" transaction: {commit.transaction}"
    if commit.fences is not None:
        line += f" notWritten: {commit.fences}"
    return line + (f" removedFiles: {len(commit.removed)}" if commit.removed else "")


def _file_names(given: str | None) -> Sequence[str] | None:
    return None if given is None else [name.strip() for name in given.split(",") if name.strip()]


def _decoder(name: str) -> ToText:
    short = name.rpartition(".")[2]
    if short not in DECODERS:
        raise click.UsageError(f"unknown decoder {name!r}; use one of {', '.join(DECODERS)}")
    if short == "StringDecoder":
        return lambda content: content.decode(errors="replace")
    found = deserializer_for(DECODERS[short])
    return lambda content: str(found.deserialize("", [], content))


OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
"""Kafka's topic of transactions; here the table of the groups has their rows."""

DELETED: Final = "<DELETE>"

STATES: Final = {
    Why.INIT: TransactionState.EMPTY,
    # The row is the decision. The completion in all topics has no row.
    Why.COMMIT: TransactionState.PREPARE_COMMIT,
    Why.ABORT: TransactionState.COMPLETE_ABORT,
    Why.TIMEOUT: TransactionState.COMPLETE_ABORT,
    Why.ADMIN: TransactionState.COMPLETE_ABORT,
}
"""State of a row's transaction, by the reason of the row."""


def transaction_lines(rows: Iterable[GroupRow]) -> Iterator[str]:
    """Yield the rows of transactions for `--transaction-log-decoder`.

    Raises:
        LogCorruptError, UnsupportedVersionError: a row cannot be read.
    """
    return (_line(row, *_transaction(row)) for row in rows if row.kind == TRANSACTION)


def offset_lines(rows: Iterable[GroupRow]) -> Iterator[str]:
    """Yield all rows for `--offsets-decoder`.

    Raises:
        LogCorruptError, UnsupportedVersionError: a row cannot be read.
    """
    for row in rows:
        if row.kind == TRANSACTION:
            yield _line(row, *_transaction(row))
        elif row.kind == MEMBER:
            yield _line(row, f"group_metadata::group={row.group_id}", row.value)
        else:
            yield _line(row, f"offset_commit::group={row.group_id},partition={row.topic}-{row.partition}", _offset(row))


def _line(row: GroupRow, key: str, payload: str) -> str:
    return f"| offset: {row.seq} CreateTime: {row.time_ms} key: {key} payload: {payload}"


def _offset(row: GroupRow) -> str:
    if row.offset is None:
        return DELETED
    metadata = json.dumps(row.metadata, ensure_ascii=False)
    return f"offset={row.offset},generation={row.generation},memberId={row.member_id},metadata={metadata}"


def _transaction(row: GroupRow) -> tuple[str, str]:
    standing = standing_of(row)
    key = f"transaction_metadata::transactionalId={row.group_id}"
    return key, DELETED if standing is None else _standing(standing)


def _standing(standing: TransactionalIdState) -> str:
    unsettled = standing.unsettled
    parts = () if unsettled is None else unsettled.parts
    partitions = ",".join(f"{part.topic.name}-{p}" for part in parts for p in sorted(part.counts))
    groups = "" if unsettled is None else ",".join(unsettled.groups)
    return (
        f"producerId:{standing.producer_id},producerEpoch:{standing.epoch},state={STATES[standing.why]},"
        f"partitions=[{partitions}],txnLastUpdateTimestamp={standing.changed_ms},txnTimeoutMs={standing.timeout_ms},"
        f"transaction={standing.number},reason={standing.why},groups=[{groups}]"
    )
