"""Forked: a call in a forked child that is killed with SIGKILL at a fault point."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable


def killed(action: Callable[[], object], place: str, *, may_end: bool = False) -> None:
    """Make a call in a forked child, which is killed at a place.

    The child must make no call that needs the parent's other threads, as deltalake's do.

    Args:
        action: the call.
        place: name of a fault point, with `@2` for its second visit.
        may_end: the call may also come to its end, as it does not always get to that place.

    Raises:
        AssertionError: the child was not killed; if the call has failed, its traceback stands on stderr.
    """
    name, _, visit = place.partition("@")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.environ["KAFKALIKE_FAULT"] = f"{name}:kill@{visit or 1}"
        code = 7
        try:
            action()
            code = 0
        except BaseException:  # noqa: BLE001 - the child must not go on with the tests
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    ended = os.waitstatus_to_exitcode(status)
    assert ended == -signal.SIGKILL or (may_end and ended == 0), (
        f"{place} was not reached: the child ended with {ended}"
    )
