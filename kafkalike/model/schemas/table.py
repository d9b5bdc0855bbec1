"""The name of the registry's control table; a module of its own, as most programs need no more of the registry."""

from __future__ import annotations

from typing import Final

TABLE: Final = "__schemas"
