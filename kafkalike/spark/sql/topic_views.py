"""`register_sql`: a view for each topic and for the cluster itself, and functions over parts of a topic.

Views of topics stay in a database that the user names, or are temporary views of the session. The views of the cluster
itself, such as `kafkalike_topics` and `kafkalike_lag`, are live and temporary, because catalogs do not keep views over
a source in Python. Views are named by `kafkalike.model.topic_sql.view_names`. Tables and views that kafkalike has not
made are never replaced, hidden or dropped.

A session that has registered all topics of a cluster finds topics that were created, or recreated, later: if a table or
view is missing and the topics have changed, `SparkSession.sql` and `table` register the topics and retry. The statement
has not run before, because Spark resolves all tables first.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from kafkalike.connect import check_founded, connect
from kafkalike.errors import IllegalArgumentError, KafkaError, UnknownTopicOrPartitionError
from kafkalike.log.snapshots import Snapshot
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.names import check_topic_name
from kafkalike.model.topic import TopicInfo
from kafkalike.model.topic_sql import TEXT, own_names, table_view, view_names
from kafkalike.spark.jvm.spark_errors import HINT, SPARK_FAILURES, show_named_errors
from kafkalike.spark.jvm.spark_session import check_delta, tell_hadoop
from kafkalike.spark.reads.frames import check_root, options_of, refuse_reserved
from kafkalike.spark.sql import catalog_views
from kafkalike.spark.sql.catalog_tables import DatabaseTables
from kafkalike.spark.sql.cluster_tables import FORMAT, SCHEMAS
from kafkalike.spark.sql_text import literal, quoted, range_functions

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


_registering = threading.Lock()
"""Threads that share a session take turns, because a registration has several statements."""


class Views(dict[str, str]):
    """The SQL name of each topic's view, by the topic's name.

    Attributes:
        tables: the views of the cluster itself, by table: `lag` is `kafkalike_lag`. Empty without temporary views.
        dropped: the views that were dropped because their topics were deleted.
    """

    tables: Mapping[str, str]
    dropped: tuple[str, ...]


def register_sql(
    spark: SparkSession,
    bootstrap_servers: Address | None = None,
    *,
    database: str | None = None,
    tables: bool = False,
    temporary: bool = False,
    topics: Iterable[str] | None = None,
    as_of: Snapshot | None = None,
    storage_options: StorageOptionsLike | None = None,
) -> Views:
    """Create views of topics, in a database or in this session.

    A view has the name of its topic in lower case, with `_` for dots and hyphens: `web.clicks` is `web_clicks`. If two
    topics would share a name, one name is spelled out; a view never changes to another topic. A second view has key and
    value as text: `web_clicks__text`.

    If a later statement of this session does not find a view, and topics have been created since, they are registered
    and the statement is retried. Other sessions see new topics in the database after the next call. A further call
    creates views for new topics, updates the log starts, and drops the views of deleted topics. Threads that share a
    session may call this function, and query views and functions, at the same time.

    A query over a topic that is open to foreign writers (`kafkalike.foreign.writes=allow`) fails with the error of
    `kafkalike.spark.read` once a foreign writer has broken its log; views of a `database` do not check.

    Args:
        spark: a session with Delta.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        database: a database of Spark's catalog for one cluster, created if it is missing. Each topic becomes a view
            there, and so do the functions `kafkalike_range`, `kafkalike_offsets` and `kafkalike_key` (see
            `kafkalike.spark.sql_text`). They outlive the session, other sessions with Delta see them, and they are
            read-only. Temporary views are then only made with `temporary`.
        tables: with `database`: make external tables instead of views, in Hive's metastore or Spark's own, so that
            other engines find the topics. They have the columns of the Delta tables: without `topic`, and with records
            below the log start until maintenance removes them. Topics that are open to foreign writers are refused.
        temporary: creates temporary views and functions of this session: the topics, unless a database has them, and
            the tables of `kafkalike.spark.sql.cluster_tables`, which are live: `kafkalike_topics`, `kafkalike_lag` and
            so on. A session has the views of one cluster, the last one.
        topics: names of topics; None for all. A view costs a fraction of a second.
        as_of: a snapshot (`kafkalike.snapshot`): its topics become temporary views as of it, and
            `kafkalike_consumer_offsets` shows its groups, so that a join shows all or nothing of every transaction. The
            other views stay live. `topics` may then name only topics of the snapshot, and `database` is not allowed.
        storage_options: credentials and endpoint of an object store; see `kafkalike.spark.read`.

    Returns:
        The SQL name of each topic's view: `log.orders`.

    Raises:
        KafkaConnectionError: the root has no cluster.
        UnknownTopicOrPartitionError: a topic of `topics` does not exist.
        IllegalArgumentError: neither `database` nor `temporary`; a name is taken by a table or view that kafkalike has
            not made; the database has views of another cluster; a snapshot of another cluster, without a
            given topic, or with a topic that was deleted later; or a snapshot and a database. Nothing was created.
        KafkaConfigurationError: see `kafkalike.spark.read`.
    """
    if database is None and not temporary:
        raise IllegalArgumentError(
            "register_sql needs to know where: database='log' for views that stay in a database of that name, or "
            "temporary=True for views of this session alone"
        )
    if tables and database is None:
        raise IllegalArgumentError("tables=True goes with database='…': a session has no temporary tables")
    check_delta(spark)
    refuse_reserved(spark)
    cluster = connect(bootstrap_servers, storage_options, access="spark")
    check_founded(cluster)
    tell_hadoop(spark, cluster)
    if as_of is not None:
        check_root(as_of, cluster.root)
        if database is not None:
            raise IllegalArgumentError("views of a database outlive a snapshot, whose versions the tables forget")
    names = None if topics is None else [topics] if isinstance(topics, str) else list(topics)
    made = _register(spark, cluster, database, names, as_of, tables=tables, temporary=temporary)
    if temporary:
        # The earlier temporary views of the session are replaced.
        follow_topics(spark, None, None)
    if names is None and as_of is None:
        _follow(spark, cluster, database, tables=tables)
    # Errors of statements are explained in any case.
    patch_sessions()
    return made


def _register(
    spark: SparkSession,
    cluster: Cluster,
    database: str | None,
    topics: Iterable[str] | None,
    at: Snapshot | None,
    *,
    tables: bool,
    temporary: bool,
) -> Views:
    with _registering, not_following():
        found = dict(cluster.topics())
        chosen = _chosen(cluster, found, at.topics if at is not None and topics is None else topics)
        travels = {name: {} if at is None else options_of(at, cluster.root, info) for name, info in chosen.items()}
        views, dropped = Views(), list[str]()
        everything = topics is None and at is None
        kind = DatabaseTables if tables else catalog_views.DatabaseViews
        permanent = None if database is None else kind(spark, cluster, database)
        if permanent is not None:
            views.update(permanent.plan(found, chosen))
        session = catalog_views.SessionViews(spark, cluster) if temporary else None
        if session is not None:
            views.update(session.plan(found, chosen if permanent is None else ()))
        # All names are free.
        if permanent is not None:
            dropped += permanent.make(chosen, found, drop=everything)
        if session is not None:
            dropped += session.make(chosen, travels, at, drop=everything, functions=permanent is None)
        views.tables = {} if session is None else {table: table_view(table) for table in SCHEMAS}
        views.dropped = tuple(dropped)
        return views


def _follow(spark: SparkSession, cluster: Cluster, database: str | None, *, tables: bool) -> None:
    """Let the session register new topics when it misses them; see `follow_topics`."""
    known = _ids(cluster)

    def register() -> bool:
        nonlocal known
        now = _ids(cluster)
        if now == known:
            return False
        _register(spark, cluster, database, None, None, tables=tables, temporary=database is None)
        known = now
        return True

    follow_topics(spark, database, register)


def _ids(cluster: Cluster) -> set[str]:
    return {info.topic_id for info in cluster.topics().values()}


def view_statements(bootstrap_servers: Address | None = None) -> list[str]:
    """Return the temporary views and functions as SQL statements, for `spark-sql -i`. They do not replace views.

    `spark-sql` finds the format of the live views through the module `pyspark_kafkalike_tables`, which Spark imports
    automatically if its Python has this package.

    Raises:
        KafkaConnectionError: the root has no cluster.
    """
    cluster = connect(bootstrap_servers, access="spark")
    check_founded(cluster)
    root = literal(cluster.root)
    statements = [
        f"CREATE TEMPORARY VIEW {table_view(table)} USING {FORMAT} OPTIONS (table {literal(table)}, root {root})"
        for table in SCHEMAS
    ]
    found = cluster.topics()
    names, real = view_names(found), own_names(found)
    for name, info in sorted(found.items()):
        statements += [
            f"CREATE TEMPORARY VIEW {quoted(view)} AS {catalog_views.select_of(cluster, info)}"
            for view in (names[name], *([name] if name in real else []))
        ]
        text = catalog_views.text_select(catalog_views.select_of(cluster, info))
        statements.append(f"CREATE TEMPORARY VIEW {quoted(names[name] + TEXT)} AS {text}")
    return statements + range_functions({name: quoted(view) for name, view in names.items()})


def _chosen(cluster: Cluster, found: Mapping[str, TopicInfo], topics: Iterable[str] | None) -> dict[str, TopicInfo]:
    if topics is None:
        return dict(found)
    names = [check_topic_name(topic) for topic in topics]
    missing = sorted(set(names) - set(found))
    if missing:
        raise UnknownTopicOrPartitionError(f"no topic {', '.join(missing)} in {cluster.root}")
    return {name: found[name] for name in names}


_SESSIONS: Final = ("pyspark.sql.session", "pyspark.sql.classic.session", "pyspark.sql.connect.session")
_METHODS: Final = ("sql", "table")
_REGISTERED: Final = "_kafkalike_registered"
"""Attribute of a session: functions that register a cluster's topics, by the place of the views."""

_MISSING: Final = ("TABLE_OR_VIEW_NOT_FOUND", "DELTA_")
"""Prefixes of the error conditions that a missing or outdated view leads to."""

_here = threading.local()

Register = Callable[[], bool]
"""Registers topics if they have changed, and returns whether they had."""


@contextmanager
def not_following() -> Iterator[None]:
    """Disable retries for this thread while it creates views."""
    _here.registers = True
    try:
        yield
    finally:
        _here.registers = False


def follow_topics(spark: SparkSession, place: str | None, register: Register | None) -> None:
    """Let a session follow a cluster's topics.

    Args:
        spark: the session.
        place: the database of the views, None for temporary ones; a later registration there replaces this one.
        register: see `Register`; None stops it.
    """
    registered = {where: again for where, again in getattr(spark, _REGISTERED, {}).items() if where != place}
    if register is not None:
        registered[place] = register
    setattr(spark, _REGISTERED, registered)
    patch_sessions()


def patch_sessions() -> None:
    """Patch `sql` and `table` of PySpark's sessions to retry after a registration, and to explain errors."""
    show_named_errors()
    for module in _SESSIONS:
        session = getattr(sys.modules.get(module), "SparkSession", None)
        for method in _METHODS:
            own = None if session is None else vars(session).get(method)
            if own is not None and not hasattr(own, "follows_topics"):
                setattr(session, method, _following(own))


def _following(method: Any) -> Any:  # noqa: ANN401 - PySpark's method
    @wraps(method)
    def following(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        try:
            try:
                return method(self, *args, **kwargs)
            except AnalysisException as error:
                if not _changed(self, error):
                    raise
            return method(self, *args, **kwargs)
        except SPARK_FAILURES as error:
            explain(self, error, str(args[0]) if args else "")
            raise

    following.follows_topics = True  # type: ignore[attr-defined]
    return following


MOST_NAMES: Final = 5

_NAME: Final = re.compile(r"(?:`[^`]+`|\w+)(?:\.(?:`[^`]+`|\w+))*")
"""A name in a statement or a message, such as `log.orders` or `` `web`.`clicks` ``."""


def explain(spark: Any, error: Exception, statement: str) -> None:  # noqa: ANN401
    """Add a sentence about what to do to an error of a statement over topics' views.

    Raises:
        AnalysisException: with that sentence, instead of an internal error of Spark's about paths such as
            `value:amount`.
    """
    is_path = _PATH in str(error)
    condition = (error.getCondition() or "") if isinstance(error, PySparkException) else _PATH if is_path else ""
    if not condition.startswith(_EXPLAINED) or getattr(_here, "registers", False):
        return
    said = str(error).strip().split("\n")[0]
    if condition.startswith(_ABOUT_BYTES) and '"BINARY"' not in said:
        return
    found = _NAME.findall(said if condition.startswith(_NAMES_VIEW) else statement)
    names = [name.replace("`", "").removeprefix("spark_catalog.") for name in dict.fromkeys(found)]
    # Each name with a dot is a question to the catalog.
    names = [name for name in names if "." not in name] + [name for name in names if "." in name][:MOST_NAMES]
    try:
        with not_following():
            made = next(filter(None, (_made_view(spark, name) for name in names)), None)
        hint = "" if made is None else hint_of(condition, statement, **made)
    except (PySparkException, Py4JError):
        return
    if hint and is_path:
        raise AnalysisException(hint) from error
    if hint:
        setattr(error, HINT, hint)


def _made_view(spark: Any, name: str) -> dict[str, str] | None:  # noqa: ANN401
    """Return view, topic, root and table of a view of a topic, or of a topic with that name; None for other names."""
    temporary = catalog_views.recorded_views(spark)
    found = temporary.get(name.lower()) or temporary.get(name)
    if found is None and "." in name:
        with suppress(AnalysisException):
            statement = f"SHOW TBLPROPERTIES {'.'.join(map(quoted, name.split('.')))}"
            rows = spark.sql(statement).collect()
            properties = {row["key"]: row["value"] for row in rows}
            found = {
                "topic": properties.get(catalog_views.TOPIC),
                "root": properties.get(catalog_views.CLUSTER),
                "table": properties.get(catalog_views.TABLE),
            }
    if found is None or not found.get("topic") or not found.get("table"):
        return None
    own = [view for view, made in temporary.items() if made["topic"] == found["topic"] == name and view != name]
    view = min(own, key=len, default=name)
    return {"view": view.removesuffix(TEXT), **{key: str(found[key]) for key in ("topic", "root", "table")}}


_PATH: Final = "COLUMN_IS_NOT_VARIANT_TYPE"
_TRAVEL: Final = "UNSUPPORTED_FEATURE.TIME_TRAVEL"
_NOT_FOUND: Final = "TABLE_OR_VIEW_NOT_FOUND"
_NAMES_VIEW: Final = (_TRAVEL, _NOT_FOUND, "EXPECT_TABLE_NOT_VIEW")
"""Conditions whose message names the view; for the others, the statement does."""
_ABOUT_BYTES: Final = ("DATATYPE_MISMATCH", "INVALID_EXTRACT_BASE_FIELD_TYPE")
_EXPLAINED: Final = (_PATH, "DELTA_ONLY_OPERATION", *_NAMES_VIEW, *_ABOUT_BYTES)


def hint_of(condition: str, statement: str, *, view: str, topic: str, root: str, table: str) -> str:
    """Return the sentence that says what to do about an error.

    Args:
        condition: Spark's error condition.
        statement: the statement.
        view: the topic's view.
        topic: the topic.
        root: its cluster.
        table: URI of its Delta table.
    """
    columns = f"ks.create_view(spark, '{topic}', '{root}', schema='infer') makes columns of JSON fields"
    delta = f"delta.{quoted(table)}"
    if condition == _PATH:
        return f"key and value are not VARIANT: write parse_json(value):field over the view {view}{TEXT}; or {columns}"
    if condition == _TRAVEL:
        return (
            f"{view} is a view, and Spark allows time travel on tables only: name the table {delta} VERSION AS OF 12, "
            f"or call ks.read(spark, '{topic}', '{root}', as_of=12)"
        )
    if condition == _NOT_FOUND:
        return f"the view of topic {topic} is {view}"
    if condition.startswith(("EXPECT_TABLE_NOT_VIEW", "DELTA_ONLY_OPERATION")):
        if re.match(r"\s*DESC(RIBE)?\b", statement, re.IGNORECASE):
            return f"{view} is a view: write DESCRIBE HISTORY {delta}, or run kafkalike history {topic}"
        return f"{view} is a view, and only kafkalike changes the table of a topic: see kafkalike maintain --help"
    return f"key and value are BINARY in {view}: {view}{TEXT} has them as text, and {columns}"


def _changed(spark: Any, error: AnalysisException) -> bool:  # noqa: ANN401
    """Register the topics if a view is missing, and return whether the session's views have changed."""
    registered: dict[str | None, Register] = getattr(spark, _REGISTERED, {})
    if getattr(_here, "registers", False) or not (error.getCondition() or "").startswith(_MISSING):
        return False
    changed = False
    for register in registered.values():
        # A cluster that fails hides no other's topics, and the statement's own error is more helpful.
        with suppress(KafkaError, PySparkException):
            changed = register() or changed
    return changed
