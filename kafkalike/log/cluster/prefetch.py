"""Prefetch: look at several topics, or open their logs, in parallel, where each look waits for a network.

Nothing rests on it: an error or an interrupt here is met again by the caller who looks at one topic or opens it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Final

from kafkalike.errors import KafkaError
from kafkalike.log.topic.tailed_topic import LONGEST
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.topic import TopicInfo
from kafkalike.storage.port import Pace, Storage

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog


OPENED_BESIDE: Final = 8
"""Topics that are opened side by side; each reads commits side by side, too."""


def look_ahead(store: Storage, logs: Iterable[TopicLog], *, waiting: bool) -> float:
    """Ask what a look at each log asks.

    Args:
        store: the cluster's, where a look takes a request.
        logs: of several topics.
        waiting: see `TopicLog.refresh`.

    Returns:
        The time before, seconds of the machine's monotonic clock: the `since` of `TopicLog.refresh`.
    """
    begun = SYSTEM_CLOCK.monotonic()
    names = [log.next_file for log in logs]
    asked = [name for name in names if name is not None]
    if len(asked) > 1:
        store.scheduler.look_ahead(asked, Pace(longest=LONGEST if waiting else 0.0))
    return begun


def open_ahead(infos: Iterable[TopicInfo], opened: Callable[[TopicInfo], TopicLog]) -> dict[str, TopicLog]:
    """Open the logs of several topics; one that cannot be opened is left out.

    Args:
        infos: the topics.
        opened: opens one; called in other threads, with the caller's deadline.
    """

    def attempt(info: TopicInfo) -> TopicLog | None:
        with contextlib.suppress(OSError, KafkaError):
            return opened(info)
        return None

    # Not the store's own threads: opening asks for things side by side, and would wait for them in their places.
    threads = ThreadPoolExecutor(OPENED_BESIDE, thread_name_prefix="kafkalike-open")
    try:
        futures = {info.name: threads.submit(copy_context().run, attempt, info) for info in infos}
        found = {name: future.result() for name, future in futures.items()}
    except RuntimeError:
        # There can be no threads, as at the interpreter's end.
        return {}
    finally:
        # Not waited for: after an interrupt they read a little more, and nobody hears of it.
        threads.shutdown(wait=False, cancel_futures=True)
    return {name: log for name, log in found.items() if log is not None}
