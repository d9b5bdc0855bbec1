"""Run one statement that only reads and return some of its rows as text, for the web console and notebooks.

The rules of `kafkalike.model.topic_sql` say what only reads. Statements run in a session of their own, so that they
see the cluster's views and nothing that others have made, and change nothing for others.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, substring
from pyspark.sql.types import BinaryType

from kafkalike.errors import (
    IllegalArgumentError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
)
from kafkalike.errors.kafka_error import foreign_errors, innermost
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.model.topic_sql import SQL_RESERVED, own_tables, refusal, relations
from kafkalike.spark.jvm.spark_session import answers, end_jobs
from kafkalike.spark.sql.catalog_views import temporary_names
from kafkalike.spark.sql.topic_views import register_sql
from kafkalike.spark.sql_text import quoted

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


MOST_TEXT: Final = 20_000
"""Characters of a statement."""

MOST_ROWS: Final = 200
MOST_COLUMNS: Final = 100

MOST_CELL: Final = 2_000
"""Characters or bytes of a cell."""

MOST_TEXTS: Final = 4 * 1024 * 1024
"""Characters or bytes of all cells; of many columns, each has less."""

RESULT_SIZE: Final = "64m"
"""What all tasks of a job may hand to the driver, in a session of our own; `spark.driver.maxResultSize`."""

SECONDS: Final = 60.0

GRACE_SECONDS: Final = 5.0
"""How long after its end a statement is waited for: Spark ends jobs, but not what it does before them."""

_LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a statement has given."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    more: bool
    """Whether there are rows that are not here."""


class SqlQuery:
    """One statement, which may be cancelled while it runs.

    Args:
        text: the statement.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.group = f"kafkalike-{secrets.token_hex(8)}"
        self.cancelled = threading.Event()

    def cancel(self) -> None:
        """End it soon; the thread that runs it gets `KafkaTimeoutError`."""
        self.cancelled.set()


class Queries:
    """Statements over the views of a cluster.

    Args:
        spark: a session with Delta; only its settings and its JVM are used.
        cluster: whose topics are the views.
        seconds: how long a statement may take.
        clock: time.

    Raises:
        KafkaConfigurationError: the session is a client of Spark Connect.
    """

    def __init__(
        self, spark: SparkSession, cluster: Cluster, seconds: float = SECONDS, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        if not has_parser(spark):
            raise KafkaConfigurationError("a client of Spark Connect cannot say what a statement would do")
        self._spark = spark.newSession()
        # `${env:AWS_SECRET_ACCESS_KEY}` would be the secret, and `${…}` a word that is not in the text that is judged.
        self._spark.conf.set("spark.sql.variable.substitute", "false")
        # A second wall behind the rules: Spark would take `` text.`/etc/passwd` `` for a file.
        self._spark.conf.set("spark.sql.runSQLOnFiles", "false")
        self._cluster = cluster
        self.seconds = seconds
        self._clock = clock
        self.left: threading.Thread | None = None
        """At work on a statement that was given up."""

    def run(self, query: SqlQuery) -> Answer:
        """The first rows of a statement.

        Raises:
            IllegalArgumentError: it is no statement that only reads, or is not SQL.
            KafkaTimeoutError: its time was over, or it was cancelled, or Spark is still at one that was.
            KafkaConnectionError: Spark's process has ended.
        """
        self._wait_for_left(query)
        deadline = Deadline(self._clock, self.seconds * 1000)
        work = _Work(lambda: self._answer(query), lambda: self._named(query))
        work.start()
        if not self._awaited(work, query, deadline):
            self.left = work
            raise self._why(deadline, "; Spark cannot end it where it is, and others wait for it")
        with foreign_errors(lambda cause: self._failure(cause, query, deadline)):
            return work.result()

    def _failure(self, cause: Exception, query: SqlQuery, deadline: Deadline) -> KafkaError:
        """What a statement has failed of; what the JVM raises has no class of its own here."""
        if not answers(self._spark):
            return KafkaConnectionError("Spark's process has ended, most likely for want of memory: begin it anew")
        if query.cancelled.is_set():
            return self._why(deadline)
        if isinstance(cause, PySparkException):
            return IllegalArgumentError(_said(cause))
        return KafkaError(innermost(cause)[:2_000])

    def _wait_for_left(self, query: SqlQuery) -> None:
        """Wait for a statement that was given up, as long as one may take: two of them would take the memory of two."""
        left, deadline = self.left, Deadline(self._clock, self.seconds * 1000)
        while left is not None and left.is_alive():
            if query.cancelled.is_set() or deadline.expired():
                raise KafkaTimeoutError("Spark is still at work on a statement whose time was over")
            left.join(_LOOK_SECONDS)

    def _named(self, query: SqlQuery) -> None:
        """Give the jobs of this thread a name, by which they are ended."""
        self._spark.sparkContext.setJobGroup(query.group, query.text[:200], interruptOnCancel=True)

    def _awaited(self, work: _Work, query: SqlQuery, deadline: Deadline) -> bool:
        """Whether a statement has ended, by itself or soon after its time."""
        while work.is_alive() and not query.cancelled.is_set():
            work.join(_LOOK_SECONDS)
            if deadline.expired():
                query.cancel()
        if work.is_alive():
            # In a thread: a JVM without memory may not answer.
            threading.Thread(target=self._end_jobs, args=(work, query), name="kafkalike-end", daemon=True).start()
            work.join(GRACE_SECONDS)
        return not work.is_alive()

    def _end_jobs(self, work: _Work, query: SqlQuery) -> None:
        """End the jobs of a statement until it has ended, also when nobody waits for it any longer."""
        # Where there is no JVM any longer, the statement says so.
        with contextlib.suppress(Exception):
            while work.is_alive():
                end_jobs(self._spark, query.group)
                work.join(1.0)

    def _why(self, deadline: Deadline, more: str = "") -> KafkaTimeoutError:
        over = f"it took longer than {self.seconds:g} seconds"
        return KafkaTimeoutError((over if deadline.expired() else "it was cancelled") + more)

    def _answer(self, query: SqlQuery) -> Answer:
        frame = self._frame(query.text)
        names = frame.columns
        if len(names) > MOST_COLUMNS:
            raise IllegalArgumentError(f"{len(names)} columns: at most {MOST_COLUMNS} are shown")
        found = [[_cell(value) for value in row] for row in _texts(frame).limit(MOST_ROWS + 1).collect()]
        return Answer(columns=names, rows=found[:MOST_ROWS], more=len(found) > MOST_ROWS)

    def _frame(self, text: str) -> DataFrame:
        if len(text) > MOST_TEXT:
            raise IllegalArgumentError(f"a statement has at most {MOST_TEXT} characters")
        plan = parsed(self._spark, text)
        views = temporary_names(self._spark, self._cluster)
        why = refusal(text, plan, {*views, *SQL_RESERVED})
        known = {view.lower() for view in (*views, *SQL_RESERVED)}
        # Where WITH does not reach, its name would be that of the other table.
        clashing = [n for n in own_tables(plan) if n.lower() in known or self._spark.catalog.tableExists(quoted(n))]
        if clashing:
            why = why or f"there is a view or table {clashing[0][:80]!r} already"
        if why:
            raise IllegalArgumentError(why)
        named = {name.lower() for name in relations(plan)}
        wanted = {topic for view, topic in views.items() if {view.lower(), topic.lower()} & named}
        # Only these: a view costs a fraction of a second, and a cluster may have thousands of topics.
        register_sql(self._spark, self._cluster, temporary=True, topics=sorted(wanted))
        return self._spark.sql(text)


class _Work(threading.Thread):
    """Work in a thread of its own, which may be left to itself.

    Args:
        todo: gives the result.
        before: called in the thread first.
    """

    def __init__(self, todo: Callable[[], Answer], before: Callable[[], None]) -> None:
        super().__init__(name="kafkalike-query", daemon=True)
        self._todo = todo
        self._before = before
        self._found: Answer | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do it."""
        try:
            self._before()
            self._found = self._todo()
        except BaseException as error:  # noqa: BLE001 - raised again by `result`
            self._error = error

    def result(self) -> Answer:
        """What it has given, or raised; it has ended."""
        if self._error is not None:
            raise self._error
        assert self._found is not None
        return self._found


def _texts(frame: DataFrame) -> DataFrame:
    """The same rows, cells as text, cut before they come here; bytes stay bytes."""
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
    """The first lines of Spark's message, without the plan."""
    text = str(error.getMessage() if error.getCondition() else error).strip()
    return text.split("\n\nJVM stacktrace")[0][:2_000]


def parsed(spark: SparkSession, text: str) -> str:
    """The plan of one statement, before anything of it is resolved, as JSON.

    Raises:
        pyspark.errors.ParseException: it is no statement of SQL, or more than one.
    """
    plan: str = spark._jsparkSession.sessionState().sqlParser().parsePlan(text).toJSON()  # noqa: SLF001 - no other way
    return plan


def has_parser(spark: SparkSession) -> bool:
    """Whether the session is one of this process: a client of Spark Connect has no parser."""
    return hasattr(spark, "_jsparkSession")
