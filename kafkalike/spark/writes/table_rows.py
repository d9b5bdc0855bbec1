"""Table rows: rows of Spark's transactions for Delta tables of other programs, staged until they are in their tables.

A transaction and a table have no common commit. So the rows are first computed once and stored as Parquet files, in a
folder of their transaction. The decision then commits them with everything else, and afterwards they are appended to
their tables. After a crash, the next transaction of the id appends the rows of a decided transaction, and drops all
others. The Delta option `txnVersion` makes each append happen once.

`__tables/<hash of the id>/<producer id>-<epoch>-<number>/<n>.json` names the table and the rows in `<n>/`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from kafkalike.delta.layout import TABLES
from kafkalike.errors import IllegalArgumentError, IllegalStateError, UnknownOutcomeError, UnsupportedVersionError
from kafkalike.log.cluster.cluster import spark_uri
from kafkalike.log.transactions.transaction_files import folder_of
from kafkalike.maintenance.staging_lease import remove_folder
from kafkalike.model import faults
from kafkalike.model.transactions.transactional_id import CommittedTransaction, TransactionAttempt
from kafkalike.spark.jvm.spark_connect import check_same_root
from kafkalike.spark.jvm.spark_errors import SPARK_FAILURES
from kafkalike.spark.jvm.spark_session import tell_hadoop

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster

_log = logging.getLogger(__name__)

MANIFEST: Final = ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """Staged rows of one table."""

    table: str
    """Its name, or its path or URI."""
    schema: str
    """Schema of the rows, as Spark's JSON."""
    app_id: str
    version: int
    """Delta's `txnAppId` and `txnVersion` of the append. Delta skips versions up to the last one."""


class StagedTables:
    """Rows for tables of the successive transactions of one transactional id. Belongs to the thread of its transaction.

    Args:
        cluster: the cluster of the transactions.
        transactional_id: the id.
    """

    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._place = f"{TABLES}/{hashlib.sha256(transactional_id.encode()).hexdigest()[:32]}"
        self._app_id = f"kafkalike {transactional_id} {uuid.uuid4().hex}"
        """Each program has its own, so that versions need no memory of earlier programs."""
        self._version = 0
        self._spark: SparkSession | None = None
        """The session of the staged rows. Other threads than the session's own have no active one."""
        self._staged = 0
        """Number of tables of the open transaction."""
        self._clean = False
        """True if no rows of earlier transactions wait."""

    def __len__(self) -> int:
        """Return the number of writes to tables in the open transaction."""
        return self._staged

    def begin(self, attempt: TransactionAttempt, last: CommittedTransaction | None) -> None:
        """Append the waiting rows of the last decided transaction; drop the rows of undecided transactions.

        Args:
            attempt: the transaction that begins; the id belongs to it.
            last: the last decision of the id.

        Raises:
            UnknownOutcomeError: rows wait, and the id was forgotten since.
            IllegalStateError: rows wait, and there is no Spark session.
            AnalysisException, Exception of Spark: the rows cannot be appended.
        """
        self._staged = 0
        if self._clean or self._cluster.several:
            return
        waiting: dict[str, list[str]] = {}
        for entry in self._cluster.store.at(self._place).list(deep=True):
            folder, _, name = entry.name.partition("/")
            waiting.setdefault(folder, []).append(name)
        for folder, names in sorted(waiting.items()):
            if last is not None and folder == folder_of(last.attempt):
                self.append(last.attempt)
                continue
            known = {attempt.producer_id} | ({last.attempt.producer_id} if last is not None else set())
            if int(folder.partition("-")[0]) not in known and any(name.endswith(MANIFEST) for name in names):
                raise UnknownOutcomeError(
                    f"rows of the transactional id {self._id!r} wait in {self._cluster.root}/{self._place}/{folder}, "
                    "and the id was forgotten since (transactional.id.expiration.ms), so whether they were committed "
                    "is not known any more: append them to their tables, or not, and remove the folder",
                    append_id=folder,
                )
            self._remove(folder)
        self._clean = True

    def store(self, attempt: TransactionAttempt, frame: DataFrame, table: str) -> TableRows:
        """Compute rows and store them for a table; `add` makes them part of the transaction.

        Raises:
            UnsupportedVersionError: the cluster has several roots.
            IllegalArgumentError: the columns do not fit the table.
            KafkaStorageError, Exception of Spark: the rows cannot be computed or stored.
        """
        if self._cluster.several:
            raise UnsupportedVersionError(
                "a transaction cannot write to a table in a cluster of several roots: write the rows to a topic, and "
                "copy it to the table with a stream"
            )
        spark = self._spark = frame.sparkSession
        check_same_root(spark, self._cluster)
        tell_hadoop(spark, self._cluster)
        _check_fits(spark, frame, table)
        self._clean = False
        # Of each write, because a transaction may write to a table several times.
        self._version += 1
        folder, number = folder_of(attempt), self._staged
        # A write that failed may have left files.
        frame.write.mode("overwrite").parquet(f"{self._uri(folder)}/{number}")
        faults.point("tables.stored")
        return TableRows(table=table, schema=frame.schema.json(), app_id=self._app_id, version=self._version)

    def add(self, attempt: TransactionAttempt, rows: TableRows) -> None:
        """Add stored rows to the transaction. After an error it must not be committed.

        Raises:
            OSError: the storage refused, or did not answer.
        """
        files = self._cluster.store.at(f"{self._place}/{folder_of(attempt)}")
        for entry in files.list(str(self._staged)):
            files.sync(f"{self._staged}/{entry.name}")
        files.put_if_absent(f"{self._staged}{MANIFEST}", json.dumps(asdict(rows)).encode(), durable=True)
        self._staged += 1
        faults.point("tables.staged")

    def append(self, attempt: TransactionAttempt) -> None:
        """Append the rows of a decided transaction to their tables, and remove the staged files.

        Raises:
            Exception of Spark: a table does not take its rows. They stay staged, and the next transaction of the id
                tries again.
        """
        folder = folder_of(attempt)
        files = self._cluster.store.at(f"{self._place}/{folder}")
        spark = self._spark or _session(self._id)
        tell_hadoop(spark, self._cluster)
        names = [entry.name for entry in files.list() if entry.name.endswith(MANIFEST)]
        for name in sorted(names, key=lambda name: int(name.removesuffix(MANIFEST))):
            try:
                rows = TableRows(**json.loads(files.read(name)))
            except FileNotFoundError:
                continue  # another process has appended them
            faults.point("tables.before_append")
            try:
                self._append(spark, f"{self._uri(folder)}/{name.removesuffix(MANIFEST)}", rows)
            except SPARK_FAILURES as cause:
                if all(entry.name != name for entry in files.list()):
                    continue
                cause.add_note(
                    f"transaction {self._id!r} is committed, and {rows.table} does not have its rows yet, which wait "
                    f"in {files.uri}: the next transaction of the id appends them first"
                )
                raise
            faults.point("tables.appended")
            files.remove(name)
        self._remove(folder)
        self._clean = True

    @staticmethod
    def _append(spark: SparkSession, staged: str, rows: TableRows) -> None:
        frame = spark.read.schema(StructType.fromJson(json.loads(rows.schema))).parquet(staged)
        writer = frame.write.format("delta").mode("append")
        writer = writer.option("txnAppId", rows.app_id).option("txnVersion", rows.version)
        (writer.save if _is_path(rows.table) else writer.saveAsTable)(rows.table)

    def drop(self, attempt: TransactionAttempt) -> None:
        """Remove the rows of an aborted transaction."""
        if self._staged:
            self._remove(folder_of(attempt))

    def _uri(self, folder: str) -> str:
        return spark_uri(f"{self._cluster.root}/{self._place}/{folder}")

    def _remove(self, folder: str) -> None:
        """Remove a folder, manifests first, because rows without one are never appended."""
        place = self._cluster.store.at(f"{self._place}/{folder}")
        with contextlib.suppress(OSError):
            names = [entry.name for entry in place.list(deep=True)]
            for name in sorted(names, key=lambda name: not name.endswith(MANIFEST)):
                place.remove(name)
            if place.coordination.reach == "machine":
                remove_folder(Path(place.uri))


def _session(transactional_id: str) -> SparkSession:
    try:
        return SparkSession.active()
    except PySparkException as cause:
        raise IllegalStateError(
            f"rows of an earlier transaction of {transactional_id!r} wait for their table: start a Spark session first"
        ) from cause


def _is_path(table: str) -> bool:
    return "/" in table


def _check_fits(spark: SparkSession, frame: DataFrame, table: str) -> None:
    """Create a missing table; refuse columns that the table lacks, or has with another type.

    A table that refuses its rows after the decision would stop the job.
    """
    empty = frame.limit(0).write.format("delta").mode("ignore")
    if _is_path(table):
        empty.save(table)
        columns = spark.read.format("delta").load(table).schema
    else:
        empty.saveAsTable(table)
        columns = spark.table(table).schema
    types = {field.name.lower(): field.dataType for field in columns.fields}
    for field in frame.schema.fields:
        wanted = types.get(field.name.lower())
        if wanted is None or wanted.simpleString() != field.dataType.simpleString():
            told = "no such column" if wanted is None else wanted.simpleString()
            raise IllegalArgumentError(
                f"{table}: the DataFrame has the column {field.name} {field.dataType.simpleString()}, and the table "
                f"{told}; nothing was written"
            )
