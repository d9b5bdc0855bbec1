"""Concurrency: primitives that stay correct when an interrupt comes at any line, and cleanup in forked children.

CPython runs a signal's handler, which may raise, between any two bytecodes of the main thread. The rules that follow:

* Several values are replaced by one assignment, which is not interrupted between its parts if those are attributes and
  sums.
* A step that must happen is in `finally`. If the interrupt may hit that step itself, it is in two nested `finally`
  blocks with the same body, which must be harmless the second time. A `with` block is not enough, because an interrupt
  may come before the first line of `__exit__`.
* `Latch` replaces `threading.Event`, `OnError` undoes a step, and `ActiveBlock` replaces a flag.

A child inherits descriptors and the locks that they hold: a lock stays held until the child has closed it, too. A fork
waits for imports of other threads, because the child could never import a module that a thread of its parent imported.
"""

from __future__ import annotations

import inspect
import logging
import math
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import _bootstrap
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Final, Generic, Protocol, Self, TypeVar

from kafkalike.model.clock import SYSTEM_CLOCK

T = TypeVar("T")
_log = logging.getLogger(__name__)


class OnError:
    """Call a function if the block ends with an error or an interrupt; the error propagates.

    The function undoes the block. It must be correct at any point of the block, because an interrupt may come at any.
    It is not called for a block that has reached its end, even if an interrupt comes just then; to catch that too, put
    `except BaseException` around the block's `return`.

    Args:
        undo: the function.
    """

    __slots__ = ("_undo",)

    def __init__(self, undo: Callable[[], object]) -> None:
        self._undo = undo

    def __enter__(self) -> None:
        """Enter the block; nothing to prepare."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Undo the block, unless it has reached its end."""
        if kind is not None:
            self._undo()


def report(log: logging.Logger, level: int, message: str, *args: object, error: Exception | None = None) -> None:
    """Log a message; a handler or a filter of the program that fails does not stop the caller.

    Args:
        log: logger that gets it.
        level: its level.
        message: its format.
        args: values of the format.
        error: logged with its traceback.
    """
    with suppress(Exception):
        log.log(level, message, *args, exc_info=error)


class ReportErrors:
    """Log an error of the user's code that the caller must survive; interrupts propagate.

    Args:
        log: logger that gets the error with its traceback.
        message: format of the message; `args` are its values, as in `Logger.exception`.
    """

    def __init__(self, log: logging.Logger, message: str, *args: object) -> None:
        self._log = log
        self._message = message
        self._args = args
        self.error: Exception | None = None
        """The error of the block."""

    def __enter__(self) -> Self:
        """Enter the block; nothing to prepare."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Log the error; return True if there was one."""
        if not isinstance(error, Exception):
            return False
        self.error = error
        report(self._log, logging.ERROR, self._message, *self._args, error=error)
        return True


class Latch:
    """Closed until `open` is called, then open permanently.

    `threading.Event` and `Thread.join` are not safe under interrupts. An exception (Ctrl-C) in the middle of
    `Event.wait` can release a lock that the thread in `set` holds; before Python 3.13, one in `Thread.join` marks a
    running thread as ended. Here each waiting thread has its own queue, whose operations are atomic.
    """

    __slots__ = ("_waiting", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._waiting: list[SimpleQueue[None]] = []

    def open(self) -> None:
        """Open the latch and wake the waiting threads."""
        self.is_open = True
        # A thread that enters the list after this copy checks `is_open` afterwards.
        for waiter in list(self._waiting):
            waiter.put(None)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the latch is open.

        Args:
            seconds: longest wait; None for no limit.

        Returns:
            True if it is open.
        """
        monotonic = SYSTEM_CLOCK.monotonic
        end = math.inf if seconds is None else monotonic() + seconds
        told: SimpleQueue[None] = SimpleQueue()
        self._waiting.append(told)
        try:
            while not self.is_open and (left := end - monotonic()) > 0:
                with suppress(Empty):
                    told.get(timeout=min(left, threading.TIMEOUT_MAX))
        finally:
            self._waiting.remove(told)
        return self.is_open


class AbandonableCall(Generic[T]):
    """A call in a daemon thread, which its caller may stop waiting for.

    Args:
        call: returns the result.
        name: name of the thread.
    """

    def __init__(self, call: Callable[[], T], name: str) -> None:
        self._call = call
        self._found: tuple[T] | BaseException | None = None
        self._ended = Latch()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            self._found = (self._call(),)
        except BaseException as error:  # noqa: BLE001 - raised again by `result`
            self._found = error
        self._ended.open()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end of the call, and return whether it has ended; None for no limit."""
        return self._ended.wait(seconds)

    @property
    def has_ended(self) -> bool:
        """True if the call has returned or raised an error."""
        return self._ended.is_open

    def result(self) -> T:
        """Return the result of the ended call, or raise its error."""
        assert self._found is not None, "the call has not ended"
        if isinstance(self._found, BaseException):
            raise self._found
        return self._found[0]


class ActiveBlock:
    """Tells whether this thread is inside a `with` block, by looking at the stack.

    A flag would stay set if an interrupt hit the line that resets it: Python runs signal handlers between any two
    bytecodes of the main thread, also between the end of a block and the first line of `__exit__`.
    """

    __slots__ = ("_frame",)

    def __init__(self) -> None:
        self._frame: FrameType | None = None

    def __enter__(self) -> None:
        here = inspect.currentframe()
        self._frame = None if here is None else here.f_back

    def __exit__(self, *exc_info: object) -> None:
        self._frame = None

    @property
    def now(self) -> bool:
        """True if the block is on the current stack."""
        frame = None if self._frame is None else inspect.currentframe()
        while frame is not None and frame is not self._frame:
            frame = frame.f_back
        return frame is not None


class Inherited(Protocol):
    """An object that a forked child must not use."""

    def in_child(self) -> None:
        """Close the object's descriptors without releasing the parent's locks. Called in the child; must not raise."""
        ...


inherited: Final[weakref.WeakSet[Inherited]] = weakref.WeakSet()
"""All objects with open descriptors. Each adds itself before it opens anything, so that a fork meanwhile finds it."""


def _in_child() -> None:
    for each in tuple(inherited):
        each.in_child()
    inherited.clear()
    # An import that began after the look of `await_imports`: its lock has no owner here, and the module has only parts.
    locks = _bootstrap._module_locks  # type: ignore[attr-defined] # noqa: SLF001 - the fork held the lock of this dict
    for name, lock in [(name, found()) for name, found in locks.items() if f"{name}.".startswith("kafkalike.")]:
        if lock is not None and lock.owner != threading.get_ident():
            del locks[name]
            if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
                del sys.modules[name]


MAX_IMPORT_SECONDS: Final = 10.0
"""Longest wait of a fork for imports of other threads, which usually take some milliseconds."""


def is_importing(frame: FrameType | None, package: str = "kafkalike") -> bool:
    """Return True if a thread imports a module of a package, or any module for its code.

    Args:
        frame: innermost frame of the thread.
        package: beginning of the names of its modules; empty for any import.
    """
    imports = False
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            imports, name = True, frame.f_locals.get("name")
        if imports and str(name).startswith(package):
            return True
        frame = frame.f_back
    return False


@cache
def _warn_once() -> None:
    report(_log, logging.WARNING, "A fork did not wait longer for an import of another thread; its child may hang")


def await_imports(seconds: float = MAX_IMPORT_SECONDS) -> None:
    """Wait until no other thread imports a module of kafkalike or for it, unless this thread imports one, too.

    Modules are imported where they are first used, often in a thread, and Python keeps a lock for each module that is
    being imported. A child that is forked meanwhile has the lock without its owner. Python's lock of all imports cannot
    be kept until the fork: the hooks of other libraries, such as logging's, wait for threads that may import modules.

    Args:
        seconds: longest wait.
    """
    here, end = threading.get_ident(), SYSTEM_CLOCK.monotonic() + seconds
    stacks = sys._current_frames  # noqa: SLF001 - the only way to see other threads
    try:
        while any(is_importing(frame) for thread, frame in stacks().items() if thread != here):
            if is_importing(inspect.currentframe(), ""):
                return
            if SYSTEM_CLOCK.monotonic() >= end:
                _warn_once()
                return
            SYSTEM_CLOCK.sleep(0.001)
    except KeyboardInterrupt:
        # Python drops the errors of hooks, so the interrupt comes again when the fork is over.
        hook = inspect.currentframe()
        caller = hook and hook.f_back
        asked = here, caller, caller and caller.f_lasti
        threading.Thread(target=_interrupt_after, args=asked, daemon=True).start()
        await_imports(end - SYSTEM_CLOCK.monotonic())


def _interrupt_after(thread: int, caller: FrameType | None, at: int | None) -> None:
    """Interrupt a thread as soon as its frame has left an instruction, here the call of a fork, or in 10 s."""
    end = SYSTEM_CLOCK.monotonic() + MAX_IMPORT_SECONDS
    while caller is not None and caller.f_lasti == at and SYSTEM_CLOCK.monotonic() < end:
        SYSTEM_CLOCK.sleep(0.001)
    signal.pthread_kill(thread, signal.SIGINT)


os.register_at_fork(before=await_imports, after_in_child=_in_child)
