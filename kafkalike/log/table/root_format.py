"""Root format: which format the tables of a root have together, as a property of `__cluster_metadata` says.

Each control row and each Delta table says its own format. What none of them can say is how they go together: which
tables there are, where they lie, what must be looked at before a commit. A release that changes that raises the number
here, in one commit of `__cluster_metadata`; whoever does not know the number writes nothing from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafkalike.errors import UnsupportedVersionError

ROOT_FORMAT: Final = "kafkalike.root.format"
"""The property. A table that lacks it is of a root of format 1: releases before this one did not write it."""

NEWEST: Final = 1
"""The newest format that this release reads and writes."""


def check_root_format(root: str, properties: Mapping[str, str]) -> None:
    """Refuse a root of a format that this release does not know.

    Args:
        root: for the error.
        properties: of the table `__cluster_metadata`.

    Raises:
        UnsupportedVersionError: a newer release has made it so.
    """
    said = properties.get(ROOT_FORMAT, "1")
    if said not in {str(known) for known in range(1, NEWEST + 1)}:
        raise UnsupportedVersionError(
            f"the root {root} has format {said} ({ROOT_FORMAT} in __cluster_metadata), and this release knows formats "
            f"up to {NEWEST}: a newer kafkalike has written it; upgrade this client"
        )
