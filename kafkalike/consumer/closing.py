"""Closing: a consumer's parts in; its last commit made, its group left, its resources given back."""

from __future__ import annotations

from kafkalike.consumer.consumer_context import Context
from kafkalike.consumer.poll_loop import Polling
from kafkalike.consumer.thread_guard import Guard
from kafkalike.errors import KafkaError


def end(context: Context, polling: Polling, guard: Guard, timeout_ms: float, *, autocommit: bool) -> None:
    """Commit if that is automatic, leave the group, then be closed.

    An interrupt that comes before it has left leaves the rest to the next call.

    Args:
        context: the consumer's parts.
        polling: the same.
        guard: the consumer's, entered; it is closed when the group is left.
        timeout_ms: ms that commit and leaving may take each.
        autocommit: False skips the commit.

    Raises:
        KafkaError: the listener failed, or the group could not be left; the consumer is closed all the same.
    """
    try:
        if autocommit:
            polling.commits.commit_automatically(timeout_ms)
        polling.commits.run_callbacks()
    finally:
        try:
            polling.assigner.release(timeout_ms)
        except KafkaError:
            _give_back(context, polling, guard, timeout_ms)
            raise
        _give_back(context, polling, guard, timeout_ms)


def _give_back(context: Context, polling: Polling, guard: Guard, timeout_ms: float) -> None:
    guard.closed = True
    polling.fetcher.clear()
    polling.watch.close()
    if context.letter_commits is not None:
        context.letter_commits.close()
    context.logs.forget()
    context.cluster.settle(timeout_ms / 1000)
    for deserializer in (context.config.key_deserializer, context.config.value_deserializer):
        close = getattr(deserializer, "close", None)
        if callable(close):
            close()
