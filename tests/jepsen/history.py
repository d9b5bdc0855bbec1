"""History: what one process did in, JSON lines out; and all lines in, the checker's verdict out."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from kafkalike.errors import KafkaError, KafkaStorageError, KafkaTimeoutError
from tests.jepsen.checker import check, load

REFUSED = (KafkaTimeoutError, KafkaStorageError)
"""Errors whose documentation says that nothing was written; after any other one the outcome counts as unknown."""

Send = tuple[int, str]
"""Partition and value."""


class Recorder:
    """Writes the history of one process, one line per event, so that a kill costs at most the last line.

    Args:
        path: the file.
        process: name in the history.
        topic: of all sends and polls.
    """

    def __init__(self, path: str, process: str, topic: str) -> None:
        self.process = process
        self.topic = topic
        self._stream = Path(path).open("a", buffering=1, encoding="utf-8")  # noqa: SIM115 - see __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()

    def event(self, kind: str, f: str, value: object, **extra: object) -> None:
        """Write one event. The clock is the machine's monotonic one, which all its processes share."""
        self.event_at(time.monotonic_ns(), kind, f, value, **extra)

    def event_at(self, at_ns: int, kind: str, f: str, value: object, **extra: object) -> None:
        """Write one event of another process, which has told when it was."""
        line = {"process": self.process, "type": kind, "f": f, "time": at_ns, "value": value, **extra}
        self._stream.write(json.dumps(line) + "\n")

    def send(self, records: Sequence[Send], do: Callable[[], Sequence[int]], *, atomic: bool = True) -> bool:
        """Record one send of several records.

        Args:
            records: what is sent.
            do: sends them and returns their offsets.
            atomic: whether all of them or none must appear.

        Returns:
            Whether it was acknowledged.
        """
        asked = [["send", f"{self.topic}-{p}", value] for p, value in records]
        self.event("invoke", "send", asked, atomic=atomic)
        try:
            offsets = do()
        except KafkaError as error:
            # Of several that may come alone, others may have been written.
            kind = "fail" if isinstance(error, REFUSED) and (atomic or len(records) == 1) else "info"
            self.event(kind, "send", asked, atomic=atomic, error=repr(error))
            return False
        done = [["send", f"{self.topic}-{p}", [o, value]] for (p, value), o in zip(records, offsets, strict=True)]
        self.event("ok", "send", done, atomic=atomic)
        return True

    def assign(self, partitions: Iterable[int]) -> None:
        """Record that reading begins at the log start of these partitions."""
        names = [f"{self.topic}-{p}" for p in partitions]
        self.event("invoke", "assign", names, seek="beginning")
        self.event("ok", "assign", names, seek="beginning")

    def poll(self, do: Callable[[], Mapping[int, Sequence[tuple[int, str]]]]) -> int:
        """Record one poll; returns how many records it gave."""
        self.event("invoke", "poll", [["poll"]])
        got = do()
        read = {f"{self.topic}-{p}": [[o, v] for o, v in records] for p, records in got.items()}
        self.event("ok", "poll", [["poll", read]])
        return sum(len(records) for records in read.values())


def judge(folder: Path, *, dense: bool = True, drained: bool = True) -> dict[str, Any]:
    """Merge the histories of a folder by time and check them.

    Args:
        folder: holds `*.jsonl`.
        dense: offsets must have no holes.
        drained: every acknowledged record must have been polled.

    Returns:
        The checker's report.
    """
    events = [event for path in sorted(folder.glob("*.jsonl")) for event in load(path)]
    events.sort(key=lambda event: event["time"])
    report: dict[str, Any] = check(events, dense=dense, drained=drained)
    return report
