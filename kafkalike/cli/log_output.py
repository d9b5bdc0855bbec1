"""Logs: a level and a form in, the log of a process on standard error out."""

from __future__ import annotations

import json
import logging
import sys
from typing import Final

from kafkalike.model.clock import utc_text

LEVELS: Final = ("debug", "info", "warning", "error")
FORMS: Final = ("text", "json")


class JsonLogFormatter(logging.Formatter):
    """A line of JSON for each message, for programs that gather logs."""

    def format(self, record: logging.LogRecord) -> str:
        """`{"time", "level", "logger", "message", "process", "thread"}`, and `"error"` where an exception is told."""
        told = {
            "time": utc_text(int(record.created * 1000)),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
            "thread": record.threadName,
        }
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told)


def configure(level: str, form: str) -> None:
    """Write the log of this process to standard error, unless somebody has set it up before.

    Args:
        level: the least one that is written; of `LEVELS`.
        form: of `FORMS`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLogFormatter() if form == "json" else logging.Formatter("%(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=level.upper())
