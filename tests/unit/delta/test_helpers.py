"""Helpers: threads that keep logs short; whoever waits for them, or forks, meets none that is left over."""

import os
import threading

from kafkalike.delta.log_cleaner import Helpers


def test_wait_ends_when_threads_that_helpers_started_have_ended() -> None:
    helpers, go_on, ended = Helpers(), threading.Event(), threading.Event()

    def second() -> None:
        go_on.wait(30)
        ended.set()

    def first() -> None:
        helpers.start(second)

    helpers.start(first)
    threading.Timer(0.1, go_on.set).start()
    helpers.wait()

    assert ended.is_set()


def test_forked_child_does_not_wait_for_threads_that_it_does_not_have() -> None:
    helpers, go_on = Helpers(), threading.Event()
    helpers.start(lambda: go_on.wait(60))

    child = os.fork()
    if child == 0:
        helpers.wait(60)
        os._exit(0 if not helpers._threads else 1)
    status = os.waitpid(child, 0)[1]
    go_on.set()
    helpers.wait()

    assert os.waitstatus_to_exitcode(status) == 0
