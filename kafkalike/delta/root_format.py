"""Root format: which format the tables of a root have together, as a property of `__cluster_metadata` says.

Each control row and each Delta table says its own format. What none of them can say is how they go together: which
tables there are, where they lie, what must be looked at before a commit. A release that changes that raises the number
here, in one commit of `__cluster_metadata`; whoever does not know the number writes nothing from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafkalike.errors import LogCorruptError, UnsupportedVersionError

ROOT_FORMAT: Final = "kafkalike.root.format"
"""The property. A table that lacks it is of a root of format 1: releases before this one did not write it."""

ONLY_ROOT: Final = "1"
"""The format of a root that is the only one of its cluster. Earlier releases gave it to the roots of clusters that were
made with several."""

SEVERAL_ROOTS: Final = "2"
"""The format of a root that is one of several: a client that takes it for the only one would write past the others."""


def check_root_format(root: str, properties: Mapping[str, str], *, several: bool = False) -> None:
    """Refuse a root of a format that this release does not know, or that this client may not write.

    Args:
        root: for the error.
        properties: of the table `__cluster_metadata`.
        several: whether the client knows the root as one of several.

    Raises:
        UnsupportedVersionError: a newer release has made it so, or it has become one of several.
        LogCorruptError: it is no number of a format at all.
    """
    said = properties.get(ROOT_FORMAT, ONLY_ROOT)
    if said == SEVERAL_ROOTS:
        if not several:
            raise grown_error(root)
        return
    if said == ONLY_ROOT:
        return
    if not said.isascii() or not said.isdecimal() or str(int(said)) != said or said == "0":
        raise LogCorruptError(
            f"the root {root} is damaged: its format ({ROOT_FORMAT} in __cluster_metadata) is {said!r}, and formats "
            "are whole numbers from 1. No kafkalike writes that: restore __cluster_metadata from a backup, or set the "
            f"property to the number that this root had ({ONLY_ROOT}, or {SEVERAL_ROOTS} in a cluster of several roots)"
        )
    raise UnsupportedVersionError(
        f"the root {root} has format {said} ({ROOT_FORMAT} in __cluster_metadata), and this release knows formats "
        f"up to {SEVERAL_ROOTS}: a newer kafkalike has written it; upgrade this client"
    )


def grown_error(root: str) -> UnsupportedVersionError:
    """What to say to a client of a cluster of one root that has, or gets, several."""
    return UnsupportedVersionError(
        f"the cluster at {root} has several roots by now (`kafkalike brokers add`): begin this client anew; if it says "
        "this again, call `kafkalike brokers add` again, which was cut off"
    )


def taken_error(root: str) -> UnsupportedVersionError:
    """What to say to a client of one root of which others have made one of several, or are about to."""
    return UnsupportedVersionError(
        f"the root {root} is one of a cluster of several roots, which was made since this client was opened, or is "
        "being made: restart this client. If the error persists, name all roots of that cluster, as the file "
        "__brokers.claim in this root lists them: the client that was making it did not finish"
    )
