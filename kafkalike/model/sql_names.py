"""SQL names: a topic in, the name of its view out, and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

SQL_RESERVED: Final = (
    "topics",
    "partitions",
    "consumer_offsets",
    "lag",
    "lag_history",
    "transactions",
    "brokers",
    "replicas",
)
"""Views of the cluster itself; a topic of such a name gets another view name."""


def sql_name(topic: str) -> str:
    """Name of the view of a topic in SQL: lower-case letters, digits and underscores only.

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

    >>> sorted(own_names(["a.b", "A.B", "orders", "c-d", "Lag", "X"]))
    ['X', 'c-d']
    """
    named = list(topics)
    taken = Counter([sql_name(topic) for topic in named])
    taken.update(topic.lower() for topic in named if topic != sql_name(topic))
    return {
        topic
        for topic in named
        if topic != sql_name(topic) and taken[topic.lower()] == 1 and topic.lower() not in SQL_RESERVED
    }


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
