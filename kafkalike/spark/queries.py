"""Queries: one statement that only reads in, some of its rows as text out; for people who look, not for programs.

The rules of `kafkalike.model.sql_reading` say what only reads. Statements run in a session of their own, so that they
see the cluster's views and nothing that others have made, and change nothing for others.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, substring
from pyspark.sql.types import BinaryType

from kafkalike.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.errors import IllegalArgumentError, KafkaConfigurationError, KafkaError, KafkaTimeoutError
from kafkalike.log.jvm.java_errors import innermost
from kafkalike.log.jvm.parsed_sql import has_parser, parsed
from kafkalike.model.sql_names import own_names, sql_name
from kafkalike.model.sql_reading import own_tables, refusal, relations
from kafkalike.spark.sql import register_sql
from kafkalike.spark.sql_names import quoted
from kafkalike.spark.tables import SCHEMAS

if TYPE_CHECKING:
    from kafkalike.log.port import Cluster

MOST_TEXT: Final = 20_000
"""Characters of a statement."""

MOST_ROWS: Final = 200
MOST_COLUMNS: Final = 100

MOST_CELL: Final = 2_000
"""Characters or bytes of a cell."""

MOST_BYTES: Final = 4 * 1024 * 1024
"""Of all cells."""

SECONDS: Final = 60.0

_LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a statement has given."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    more: bool
    """Whether there are rows that are not here."""


class Query:
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
        self._cluster = cluster
        self.seconds = seconds
        self._clock = clock

    def run(self, query: Query) -> Answer:
        """The first rows of a statement.

        Raises:
            IllegalArgumentError: it is no statement that only reads, or is not SQL.
            KafkaTimeoutError: its time was over, or it was cancelled.
        """
        deadline = Deadline(self._clock, self.seconds * 1000)
        context = self._spark.sparkContext
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(query, deadline, over), name="kafkalike-query", daemon=True)
        watch.start()
        try:
            context.setJobGroup(query.group, query.text[:200], interruptOnCancel=True)
            return self._answer(query)
        except PySparkException as cause:
            raise self._ended(query, deadline) or IllegalArgumentError(_said(cause)) from cause
        except KafkaError:
            raise
        except Exception as cause:
            # What the JVM raised has no class of its own here.
            raise self._ended(query, deadline) or KafkaError(innermost(cause)[:2_000]) from cause
        finally:
            over.set()

    def _ended(self, query: Query, deadline: Deadline) -> KafkaTimeoutError | None:
        """Why a statement was ended; None where it was not."""
        if not query.cancelled.is_set():
            return None
        over = f"it took longer than {self.seconds:g} seconds"
        return KafkaTimeoutError(over if deadline.expired() else "it was cancelled")

    def _watch(self, query: Query, deadline: Deadline, over: threading.Event) -> None:
        """End the jobs of a query in time. Again and again: one may begin just after it was asked for."""
        while not over.wait(_LOOK_SECONDS):
            if deadline.expired():
                query.cancel()
            if query.cancelled.is_set():
                self._spark.sparkContext.cancelJobGroup(query.group)

    def _answer(self, query: Query) -> Answer:
        frame = self._frame(query.text)
        names = frame.columns
        if len(names) > MOST_COLUMNS:
            raise IllegalArgumentError(f"{len(names)} columns: at most {MOST_COLUMNS} are shown")
        rows: list[list[str | None]] = []
        size = 0
        for row in _texts(frame).limit(MOST_ROWS + 1).collect():
            cells = [_cell(value) for value in row]
            size += sum(len(cell) for cell in cells if cell is not None)
            if len(rows) == MOST_ROWS or (rows and size > MOST_BYTES):
                return Answer(columns=names, rows=rows, more=True)
            rows.append(cells)
        return Answer(columns=names, rows=rows, more=False)

    def _frame(self, text: str) -> DataFrame:
        if len(text) > MOST_TEXT:
            raise IllegalArgumentError(f"a statement has at most {MOST_TEXT} characters")
        plan = parsed(self._spark, text)
        topics = self._cluster.topics()
        real = own_names(topics)
        views = {sql_name(name): name for name in topics} | {name: name for name in real}
        why = refusal(text, plan, {*views, *SCHEMAS})
        known = {view.lower() for view in (*views, *SCHEMAS)}
        # Where WITH does not reach, its name would be that of the other table.
        clashing = [n for n in own_tables(plan) if n.lower() in known or self._spark.catalog.tableExists(quoted(n))]
        if clashing:
            why = why or f"there is a view or table {clashing[0][:80]!r} already"
        if why:
            raise IllegalArgumentError(why)
        named = {name.lower() for name in relations(plan)}
        wanted = {topic for view, topic in views.items() if {view.lower(), topic.lower()} & named}
        # Only these: a view costs a fraction of a second, and a cluster may have thousands of topics.
        register_sql(self._spark, self._cluster, topics=sorted(wanted))
        return self._spark.sql(text)


def _texts(frame: DataFrame) -> DataFrame:
    """The same rows, cells as text, cut before they come here; bytes stay bytes."""
    fields = frame.schema.fields
    numbered = frame.toDF(*(f"c{at}" for at in range(len(fields))))
    cells = [
        substring(col(f"c{at}"), 1, MOST_CELL)
        if isinstance(field.dataType, BinaryType)
        else substring(col(f"c{at}").cast("string"), 1, MOST_CELL)
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
