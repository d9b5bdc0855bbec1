"""SQL names: topics in, the names of their views out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

_PLAIN: Final = re.compile(r"\w+")

TABLES: Final = (
    "topics",
    "partitions",
    "consumer_offsets",
    "lag",
    "lag_history",
    "transactions",
    "brokers",
    "replicas",
)
"""Tables about the cluster itself."""


def table_view(table: str) -> str:
    """Name of the view of one of `TABLES`: it says whose it is, as a session has tables of its own."""
    return f"kafkalike_{table}"


SQL_RESERVED: Final = tuple(map(table_view, TABLES))
"""Views of the cluster itself; a topic of such a name gets another view name."""


def view_names(topics: Iterable[str], held: Mapping[str, str] | None = None) -> dict[str, str]:
    """Name the view of each topic: the topic in lower case, with `_` for dots and hyphens.

    Where several topics would share that name, as `a.b` and `a_b`, one has it: the one that has it already, else the
    one that is called so, else the first by name. The others are spelled out, see `sql_name`.

    Args:
        topics: all topics of the cluster.
        held: topics by the names of views that exist. A view keeps its topic, so a new topic never takes over a name.

    Returns:
        The name of each topic's view. No two are the same, and none is one of `SQL_RESERVED`.

    >>> view_names(["web.clicks", "a_b", "a.b", "Orders"])
    {'a_b': 'a_b', 'Orders': 'orders', 'a.b': 'a__db', 'web.clicks': 'web_clicks'}
    """
    wanted = set(topics)
    names = {topic: view for view, topic in (held or {}).items() if topic in wanted}
    taken = {*SQL_RESERVED, *names.values()}
    for topic in sorted(wanted - names.keys(), key=lambda topic: (plain_name(topic) != topic, topic)):
        names[topic] = next(name for name in _candidates(topic) if name not in taken)
        taken.add(names[topic])
    return names


def plain_name(topic: str) -> str:
    """The name that people guess; two topics may share it."""
    return topic.replace(".", "_").replace("-", "_").lower()


def _candidates(topic: str) -> Iterator[str]:
    yield plain_name(topic)
    name = sql_name(topic)
    while True:
        yield name
        name = "__v" + name


def sql_name(topic: str) -> str:
    """Spell a topic's name out in lower-case letters, digits and underscores, so that no two topics share one.

    SQL catalogs fold case and refuse dots, so `a.b`, `a_b` and `A_b` need three names. Lower-case letters, digits,
    and single underscores before one of them stand for themselves; all else is escaped with two underscores and a
    letter: `.` is `__d`, `-` is `__h`, another underscore `__s`, an upper-case letter `__u` and its lower-case form.
    A name of `SQL_RESERVED` gets `__v` before it. `topic_of_sql_name` turns it back, so no two topics share a name.
    """
    out: list[str] = []
    for at, char in enumerate(topic):
        following = topic[at + 1] if at + 1 < len(topic) else ""
        if char == ".":
            out.append("__d")
        elif char == "-":
            out.append("__h")
        elif char == "_":
            out.append("_" if _plain(following) else "__s")
        elif char.isupper():
            out.append("__u" + char.lower())
        else:
            out.append(char)
    name = "".join(out)
    return "__v" + name if name in SQL_RESERVED else name


def own_names(topics: Iterable[str]) -> set[str]:
    """The topics that can have a second view under their own name, in backquotes: SQL takes no two names for another.

    >>> sorted(own_names(["a.b", "A.B", "orders", "c-d", "Lag"]))
    ['c-d']
    """
    named = [topic for topic in topics if not _PLAIN.fullmatch(topic)]
    taken = Counter(map(str.lower, named))
    return {topic for topic in named if taken[topic.lower()] == 1}


def topic_of_sql_name(name: str) -> str:
    """The topic whose view has this name; the inverse of `sql_name`."""
    out: list[str] = []
    at = 0
    while at < len(name):
        if name.startswith("__", at):
            code = name[at + 2]
            if code == "u":
                out.append(name[at + 3].upper())
                at += 4
                continue
            out.append({"d": ".", "h": "-", "s": "_", "v": ""}[code])
            at += 3
        else:
            out.append(name[at])
            at += 1
    return "".join(out)


def _plain(char: str) -> bool:
    return char.isdigit() or (char.isalpha() and char.islower())
