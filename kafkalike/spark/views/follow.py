"""SQL follows topics: a statement that fails for want of a view in, the same with the views of the moment out.

A session that has registered all topics of a cluster finds those that were created since, or created again: where a
table or view is missing and the topics have changed, `SparkSession.sql` and `table` register anew and try once more.
Nothing has run by then, as Spark looks for all tables first.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException, PySparkException

from kafkalike.errors import KafkaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SESSIONS: Final = ("pyspark.sql.session", "pyspark.sql.classic.session", "pyspark.sql.connect.session")
_METHODS: Final = ("sql", "table")
_REGISTERED: Final = "_kafkalike_registered"
"""Attribute of a session: what registers a cluster's topics anew, by where its views are."""

_MISSING: Final = ("TABLE_OR_VIEW_NOT_FOUND", "DELTA_")
"""How the conditions of errors begin that a missing or an old view leads to."""

_here = threading.local()

Register = Callable[[], bool]
"""Registers topics anew if they have changed; returns whether it has."""


@contextmanager
def not_following() -> Iterator[None]:
    """Let statements of this thread fail for want of a view: it is making views."""
    _here.registers = True
    try:
        yield
    finally:
        _here.registers = False


def follow_topics(spark: SparkSession, place: str | None, register: Register | None) -> None:
    """Let a session follow a cluster's topics.

    Args:
        spark: the session.
        place: the database of the views, None for temporary ones; a later registration there replaces it.
        register: see `Register`; None ends it.
    """
    registered = {where: again for where, again in getattr(spark, _REGISTERED, {}).items() if where != place}
    if register is not None:
        registered[place] = register
    setattr(spark, _REGISTERED, registered)
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
            return method(self, *args, **kwargs)
        except AnalysisException as error:
            if not _changed(self, error):
                raise
        return method(self, *args, **kwargs)

    following.follows_topics = True  # type: ignore[attr-defined]
    return following


def _changed(spark: Any, error: AnalysisException) -> bool:  # noqa: ANN401
    """Whether the session has other views now than when a statement failed."""
    registered: dict[str | None, Register] = getattr(spark, _REGISTERED, {})
    if getattr(_here, "registers", False) or not (error.getCondition() or "").startswith(_MISSING):
        return False
    try:
        changed = [register() for register in registered.values()]
    except (KafkaError, PySparkException):
        # The statement's own error says more.
        return False
    return any(changed)
