"""Notebook: show a topic, a group or the lag of all groups as a table.

from kafkalike.ui.notebook import topic, group, lag

topic("orders")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkalike.admin.group_lag import Lags
from kafkalike.connect import connect
from kafkalike.errors import GroupIdNotFoundError
from kafkalike.errors.optional_imports import require_module
from kafkalike.model.lag import Lag, total

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalike.model.config.storage_options import Address, StorageOptionsLike
    from kafkalike.ui.console_server import ConsoleServer

__all__ = ["NotebookTable", "console", "group", "lag", "topic"]


class NotebookTable:
    """Table that notebooks show as HTML, and consoles as text.

    Args:
        title: title of the table.
        heads: names of the columns.
        rows: texts and numbers; texts are escaped.
    """

    def __init__(self, title: str, heads: Sequence[str], rows: Sequence[Sequence[str | int | float]]) -> None:
        self.title = title
        self.heads = tuple(heads)
        self.rows = [tuple(row) for row in rows]

    def _repr_html_(self) -> str:
        request = require_module("kafkalike.ui.page_request", "tables for notebooks", "ui")
        made: str = request.templates().get_template("notebook.html").render(table=self)
        return made

    def __repr__(self) -> str:
        """Return the table as aligned text."""
        texts = [self.heads, *(tuple(str(cell) for cell in row) for row in self.rows)]
        widths = [max(len(row[at]) for row in texts) for at in range(len(self.heads))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in texts
        ]
        return "\n".join([self.title, *lines])


def topic(
    name: str,
    bootstrap_servers: Address | None = None,
    *,
    storage_options: StorageOptionsLike | None = None,
) -> NotebookTable:
    """Return the current partitions of a topic.

    Args:
        name: the topic.
        bootstrap_servers: the cluster; see `kafkalike.connect.connect`.
        storage_options: options of an object store.

    Returns:
        Columns: partition, log start, log end, records, bytes, segments.

    Raises:
        UnknownTopicOrPartitionError: the topic does not exist.
    """
    lags = _lags(bootstrap_servers, storage_options)
    lags.cluster.topic(name)
    rows = [
        (
            p,
            index.log_start,
            index.log_end,
            index.records_from(index.log_start),
            sum(segment.size_bytes for segment in index.segments),
            len(index.segments),
        )
        for p, index in sorted(lags.partitions(name).items())
    ]
    return NotebookTable(f"Topic {name}", ("partition", "log start", "log end", "records", "bytes", "segments"), rows)


def group(
    group_id: str,
    bootstrap_servers: Address | None = None,
    *,
    storage_options: StorageOptionsLike | None = None,
) -> NotebookTable:
    """Return the current lag of a group by partition.

    Args:
        group_id: the group.
        bootstrap_servers: the cluster; see `kafkalike.connect.connect`.
        storage_options: options of an object store.

    Returns:
        Columns: topic, partition, committed, log end, lag in offsets, in records, in seconds.

    Raises:
        GroupIdNotFoundError: the group does not exist.
    """
    lags = _lags(bootstrap_servers, storage_options)
    if group_id not in lags.groups:
        raise GroupIdNotFoundError(f"group {group_id!r} does not exist")
    rows = [
        (
            one.partition.topic,
            one.partition.partition,
            one.committed.position.offset,
            one.index.log_end,
            *_figures(one.lag),
        )
        for one in lags.of(group_id)
    ]
    return NotebookTable(f"Group {group_id}", ("topic", "partition", "committed", "log end", *_LAG), rows)


def lag(
    bootstrap_servers: Address | None = None,
    *,
    storage_options: StorageOptionsLike | None = None,
) -> NotebookTable:
    """Return the current lag of all groups.

    Args:
        bootstrap_servers: the cluster; see `kafkalike.connect.connect`.
        storage_options: options of an object store.

    Returns:
        Columns: group, topics, lag in offsets, in records, in seconds.
    """
    lags = _lags(bootstrap_servers, storage_options)
    rows = []
    for group_id in sorted(lags.groups):
        own = list(lags.of(group_id))
        topics = ", ".join(sorted({one.partition.topic for one in own}))
        rows.append((group_id, topics, *_figures(total(one.lag for one in own))))
    return NotebookTable("Lag", ("group", "topics", *_LAG), rows)


_LAG = ("lag, offsets", "records", "seconds")


def _figures(found: Lag) -> tuple[int, int, float]:
    return found.offsets, found.records, round(found.behind_ms / 1000, 1)


def _lags(bootstrap_servers: Address | None, storage_options: StorageOptionsLike | None) -> Lags:
    return Lags(connect(bootstrap_servers, storage_options))


def console(
    bootstrap_servers: Address | None = None,
    *,
    spark: SparkSession | None = None,
    port: int = 0,
    read_only: bool = False,
    storage_options: StorageOptionsLike | None = None,
) -> ConsoleServer:
    """Start the web console in this process, on the loopback address; `stop()` ends it.

    Args:
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        spark: a session with Delta, for the page that runs SELECT statements.
        port: 0 finds a free one.
        read_only: refuse changes and statements.
        storage_options: options of an object store; see `kafkalike.connect.connect`.

    Returns:
        The console; open its `address_with_token` in a browser.

    Raises:
        KafkaConfigurationError: packages are missing; the address cannot be used; the session is of Spark Connect.
    """
    from kafkalike.ui.console_server import ConsoleServer

    cluster = connect(bootstrap_servers, storage_options)
    queries = None
    if spark is not None:
        queries = require_module("kafkalike.spark.sql.queries", "SELECT statements").Queries(spark, cluster)
    made = ConsoleServer(cluster, port=port, read_only=read_only, queries=queries)
    made.start()
    return made
