"""Quick JSON: the text of an object in, its value out; for texts of which there are as many as a log has files."""

from __future__ import annotations

import json
from typing import Any, Final

_decode: Final = json.JSONDecoder().raw_decode


def parsed(text: str) -> Any:  # noqa: ANN401
    """As `json.loads`, which first looks for white space around the value, though hardly anybody writes any.

    Raises:
        ValueError, RecursionError: it is not JSON.
    """
    if text[:1] == "{" and text[-1] == "}":
        found, end = _decode(text)
        if end == len(text):
            return found
    return json.loads(text)
