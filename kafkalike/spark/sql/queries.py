"""Run one read-only statement and return its first rows as text, for the web console and notebooks.

The rules of `kafkalike.model.topic_sql` decide which statements are read-only. Statements run in a session of their
own, so they see only the cluster's views, and do not affect other sessions.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, substring
from pyspark.sql.types import BinaryType

from kafkalike import errors
from kafkalike.errors.kafka_error import foreign_errors, innermost
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.model.concurrency import AbandonableCall
from kafkalike.model.topic_sql import DESCRIBING, LISTING, SQL_RESERVED, own_tables, refusal, relations
from kafkalike.spark.jvm.spark_errors import HINT
from kafkalike.spark.jvm.spark_session import answers, end_jobs
from kafkalike.spark.sql.catalog_views import temporary_names
from kafkalike.spark.sql.topic_views import register_sql
from kafkalike.spark.sql_text import quoted

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


MOST_TEXT: Final = 20_000
"""Most characters of a statement."""

MOST_ROWS: Final = 200
MOST_COLUMNS: Final = 100

MOST_CELL: Final = 2_000
"""Most characters or bytes of a cell."""

MOST_TEXTS: Final = 4 * 1024 * 1024
"""Most characters or bytes of all cells; each cell has less if there are many columns."""

RESULT_SIZE: Final = "64m"
"""Most bytes that all tasks of a job may return to the driver, as `spark.driver.maxResultSize` of our own session."""

SECONDS: Final = 60.0

GRACE_SECONDS: Final = 5.0
"""Longest wait for a statement after its end: Spark cancels jobs, but not its work before them."""

_LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a statement."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    more: bool
    """True if the statement has more rows than these."""


class SqlQuery:
    """One statement, which can be cancelled while it runs.

    Args:
        text: the statement.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.group = f"kafkalike-{secrets.token_hex(8)}"
        self.cancelled = threading.Event()

    def cancel(self) -> None:
        """Cancel the statement; the thread that runs it gets `KafkaTimeoutError`."""
        self.cancelled.set()


class Queries:
    """Statements over the views of a cluster.

    Args:
        spark: a session with Delta; only its settings and its JVM are used.
        cluster: the cluster of the topics.
        seconds: longest time of a statement; None for no limit.
        clock: time.

    Raises:
        KafkaConfigurationError: the session is a client of Spark Connect.
    """

    def __init__(
        self, spark: SparkSession, cluster: Cluster, seconds: float | None = SECONDS, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        if not has_parser(spark):
            raise errors.KafkaConfigurationError("a client of Spark Connect cannot say what a statement would do")
        self._spark = spark.newSession()
        # Substitution would reveal `${env:AWS_SECRET_ACCESS_KEY}`, and put words into a statement after its check.
        self._spark.conf.set("spark.sql.variable.substitute", "false")
        # A second guard besides the rules: Spark would read `` text.`/etc/passwd` `` as a file.
        self._spark.conf.set("spark.sql.runSQLOnFiles", "false")
        self._cluster = cluster
        self.seconds = seconds
        self._clock = clock
        self.left: AbandonableCall[Answer] | None = None
        """An abandoned statement that may still run."""

    def run(self, query: SqlQuery) -> Answer:
        """Return the first rows of a statement.

        Raises:
            IllegalArgumentError: the statement is not read-only, or not SQL.
            KafkaTimeoutError: its time was over, or it was cancelled, or Spark still runs an abandoned statement.
            KafkaConnectionError: Spark's process has ended.
        """
        self._wait_for_left(query)
        deadline = self._deadline()
        work = AbandonableCall(lambda: self._answer(query), "kafkalike-query")
        if not self._awaited(work, query, deadline):
            self.left = work
            raise self._why(deadline, "; Spark cannot end it where it is, and the next statement waits for it")
        with foreign_errors(lambda cause: self._failure(cause, query, deadline)):
            return work.result()

    def _failure(self, cause: Exception, query: SqlQuery, deadline: Deadline) -> errors.KafkaError:
        """Convert the error of a statement; errors of the JVM have no class of their own here."""
        if not answers(self._spark):
            return errors.KafkaConnectionError(
                "Spark's process has ended, most likely because it was out of memory; restart it"
            )
        if query.cancelled.is_set():
            return self._why(deadline)
        if isinstance(cause, PySparkException):
            return errors.IllegalArgumentError(_said(cause))
        return errors.KafkaError(innermost(cause)[:2_000])

    def _wait_for_left(self, query: SqlQuery) -> None:
        """Wait for an abandoned statement, as long as one may take, because two would need twice the memory."""
        left, deadline = self.left, self._deadline()
        while left is not None and not left.has_ended:
            if query.cancelled.is_set() or deadline.expired():
                raise errors.KafkaTimeoutError("Spark is still at work on a statement whose time was over")
            left.wait(_LOOK_SECONDS)

    def _awaited(self, work: AbandonableCall[Answer], query: SqlQuery, deadline: Deadline) -> bool:
        """Wait for a statement, and return whether it has ended, by itself or soon after it was cancelled."""
        while not work.has_ended and not query.cancelled.is_set():
            work.wait(_LOOK_SECONDS)
            if deadline.expired():
                query.cancel()
        if not work.has_ended:
            # In a thread, because a JVM without memory may not answer.
            threading.Thread(target=self._end_jobs, args=(work, query), name="kafkalike-end", daemon=True).start()
            work.wait(GRACE_SECONDS)
        return work.has_ended

    def _end_jobs(self, work: AbandonableCall[Answer], query: SqlQuery) -> None:
        """Cancel the jobs of a statement until it has ended, even if its caller no longer waits."""
        # If the JVM has ended, the statement reports it.
        with contextlib.suppress(Exception):
            while not work.has_ended:
                end_jobs(self._spark, query.group)
                work.wait(1.0)

    def _why(self, deadline: Deadline, more: str = "") -> errors.KafkaTimeoutError:
        over = f"it took longer than {self.seconds or 0:g} seconds"
        return errors.KafkaTimeoutError((over if deadline.expired() else "it was cancelled") + more)

    def _deadline(self) -> Deadline:
        return Deadline(self._clock, None if self.seconds is None else self.seconds * 1000)

    def _answer(self, query: SqlQuery) -> Answer:
        # Of this thread, so that they can be cancelled.
        self._spark.sparkContext.setJobGroup(query.group, query.text[:200], interruptOnCancel=True)
        frame = self._frame(query.text)
        names = frame.columns
        if len(names) > MOST_COLUMNS:
            raise errors.IllegalArgumentError(f"{len(names)} columns: at most {MOST_COLUMNS} are shown")
        found = [[_cell(value) for value in row] for row in _texts(frame).limit(MOST_ROWS + 1).collect()]
        return Answer(columns=names, rows=found[:MOST_ROWS], more=len(found) > MOST_ROWS)

    def _frame(self, text: str) -> DataFrame:
        if len(text) > MOST_TEXT:
            raise errors.IllegalArgumentError(f"a statement has at most {MOST_TEXT} characters")
        plan = parsed(self._spark, text)
        views = temporary_names(self._spark, self._cluster)
        if LISTING.fullmatch(text):
            rows = [(view, views.get(view)) for view in sorted({*views, *SQL_RESERVED})]
            return self._spark.createDataFrame(rows, "view STRING, topic STRING")
        if (described := DESCRIBING.fullmatch(text)) is not None:
            fields = self._frame(f"SELECT * FROM {described[1]}").schema.fields  # noqa: S608 - checked like any other
            columns = [(field.name, field.dataType.simpleString()) for field in fields]
            return self._spark.createDataFrame(columns, "column STRING, type STRING")
        why = refusal(text, plan, {*views, *SQL_RESERVED})
        known = {view.lower() for view in (*views, *SQL_RESERVED)}
        # Outside of its WITH, the name would mean the other table.
        clashing = [n for n in own_tables(plan) if n.lower() in known or self._spark.catalog.tableExists(quoted(n))]
        if clashing:
            why = why or f"there is a view or table {clashing[0][:80]!r} already"
        if why:
            raise errors.IllegalArgumentError(why)
        named = {name.lower() for name in relations(plan)}
        wanted = {topic for view, topic in views.items() if {view.lower(), topic.lower()} & named}
        # Only these topics, because a view costs a fraction of a second, and a cluster may have thousands of topics.
        register_sql(self._spark, self._cluster, temporary=True, topics=sorted(wanted))
        return self._spark.sql(text)


def _texts(frame: DataFrame) -> DataFrame:
    """Convert cells to text and cut them before they reach the driver; bytes stay bytes."""
    fields = frame.schema.fields
    most = min(MOST_CELL, MOST_TEXTS // ((MOST_ROWS + 1) * max(1, len(fields))))
    numbered = frame.toDF(*(f"c{at}" for at in range(len(fields))))
    cells = [
        substring(col(f"c{at}"), 1, most)
        if isinstance(field.dataType, BinaryType)
        else substring(col(f"c{at}").cast("string"), 1, most)
        for at, field in enumerate(fields)
    ]
    return numbered.select(*cells)


def _cell(value: str | bytes | bytearray | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        return "0x" + bytes(value[: MOST_CELL // 2]).hex()


def _said(error: PySparkException) -> str:
    """Return the first lines of Spark's message, without the plan, after our own sentence about it."""
    text = str(error.getMessage() if error.getCondition() else error).strip()
    told = text.split("\n\nJVM stacktrace")[0]
    return "\n".join(filter(None, [getattr(error, HINT, ""), told]))[:2_000]


def parsed(spark: SparkSession, text: str) -> str:
    """Return the unresolved plan of one statement, as JSON.

    Raises:
        pyspark.errors.ParseException: the text is not exactly one statement of SQL.
    """
    plan: str = spark._jsparkSession.sessionState().sqlParser().parsePlan(text).toJSON()  # noqa: SLF001 - no other way
    return plan


def has_parser(spark: SparkSession) -> bool:
    """Return whether the session has a parser in this process; a client of Spark Connect has none."""
    return hasattr(spark, "_jsparkSession")
