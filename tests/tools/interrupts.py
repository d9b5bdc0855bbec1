"""Interrupts: an operation on a prepared client in, what an exception at each of its lines leaves behind out.

`sweep` judges cases that know their operation and their judge; `interrupted` hands each client to a test that asserts.
`interrupted_at` interrupts before an instruction of a few functions, for code whose lines are too coarse.

`sys.settrace` raises in the thread that works, at one place per run: before a line, and where CPython lets a signal in
(as a function begins, after a call, and as a loop goes round), which is also between a call and the assignment of what
it returned. Frames of `kafkalike` only; other threads go on undisturbed.
"""

from __future__ import annotations

import dis
import inspect
import linecache
import random
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, Protocol, TypeVar

import kafkalike
from tests.tools.effort import LEVEL, examples

PACKAGE: Final = str(Path(kafkalike.__file__).parent)

CALLS: Final = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW"})
ENOUGH_WRONG: Final = 5
"""After so many a sweep stops as a rule: they are most likely one and the same defect."""


Spot = tuple[CodeType, int, str]
"""Code, instruction and kind of event."""

Visit = tuple[Spot, int]
"""A spot, and which of its visits in a run, from 1: one place of the run."""


class Stop(BaseException):
    """An exception that nobody has ever heard of."""


ERRORS: Final[tuple[type[BaseException], ...]] = (KeyboardInterrupt, Stop, MemoryError)
"""Ctrl-C; what a signal's handler may raise; and one that `except Exception` catches."""


class Case(Protocol):
    """A client on data of its own."""

    def operate(self) -> None:
        """The operation that is interrupted."""
        ...

    def judge(self) -> Iterable[str]:
        """Use the same client again; says what is wrong, nothing when all is well."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


@dataclass(frozen=True, slots=True)
class Wrong:
    """What one interrupt broke."""

    place: int
    """Which visit of the spot."""
    where: str
    """File, line and function."""
    error: str
    what: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.error} at visit {self.place} of {self.where}:\n  " + "\n  ".join(self.what)


@dataclass(slots=True)
class Sweep:
    """What was tried, and what was wrong."""

    places: int
    """How many there are in an undisturbed run."""
    spots: int
    """How many of them are different ones of the code."""
    chosen: int
    """How many of them are to be tried."""
    tried: int = 0
    raised: int = 0
    """How often the exception came out of the operation; else it was over before, or the code answered it."""
    missed: int = 0
    """How often the operation did not come to the place this time."""
    wrong: list[Wrong] = field(default_factory=list)

    def __str__(self) -> str:
        head = (
            f"{self.tried} interrupts at {self.chosen} of {self.places} places ({self.spots} spots of the code), "
            f"{self.raised} came out, {self.missed} were not reached, {len(self.wrong)} wrong"
        )
        return "\n".join([head, *map(str, self.wrong)])


class Interrupt:
    """Counts the places of a run, or raises at one of them.

    Only the code of the one place is followed line by line: a run costs little more than one without.

    Args:
        at: the place; None only counts.
        error: what is raised.
    """

    def __init__(self, at: Visit | None, error: type[BaseException]) -> None:
        self.places: list[Spot] = []
        """As they were passed; only when they are counted."""
        self.where = ""
        """Where it was raised; empty when it was not."""
        self._at = at
        self._code = None if at is None else at[0][0]
        self._began: set[int] = set()
        """Frames, by their addresses, that have begun another one by their last call."""
        self._visits = 0
        self._error = error

    def run(self, operate: Callable[[], object]) -> None:
        """Run the operation; lets through what comes out of it."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            operate()
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        self._began.add(id(frame.f_back))
        if self._code is None:
            if not code.co_filename.startswith(PACKAGE):
                return None
        elif code is not self._code or self.where:
            return None
        frame.f_trace_opcodes = True
        # Python hands nothing on that is raised in a generator which is being thrown away: such a call is no place.
        if not frame.f_code.co_flags & inspect.CO_GENERATOR:
            self._place(frame, event)
        return self._inside

    def _inside(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        if event == "opcode":
            if frame.f_lasti in _calls(frame.f_code):
                self._began.discard(id(frame))
            elif frame.f_lasti in _after_calls(frame.f_code) and not self._only_returns(frame):
                self._place(frame, event)
        elif event == "line" and not _lets_go(frame):
            self._place(frame, event)
        return self._inside

    def _only_returns(self, frame: FrameType) -> bool:
        """Whether a frame returns what a function in Python has just returned to it.

        CPython goes from the one `return` to the next without a look for signals. It looks after a function in C.
        """
        return frame.f_lasti in _returns(frame.f_code) and id(frame) in self._began

    def _place(self, frame: FrameType, event: str) -> None:
        spot = (frame.f_code, frame.f_lasti, event)
        if self._at is None:
            self.places.append(spot)
            return
        self._visits += spot == self._at[0]
        if not self.where and self._visits == self._at[1]:
            name = Path(frame.f_code.co_filename).relative_to(Path(PACKAGE).parent).as_posix()
            self.where = f"{name}:{frame.f_lineno} in {frame.f_code.co_qualname} ({event})"
            raise self._error


@cache
def _after_calls(code: CodeType) -> frozenset[int]:
    """Offsets of instructions before which CPython looks for signals, but for the first one.

    A signal after the last call of a `with` block still counts as one within the block. What is raised before the next
    instruction, which lets go already, would not: those are no places.
    """
    found: set[int] = set()
    called = False
    for at in dis.get_instructions(code):
        if called:
            found.add(at.offset)
        called = at.opname in CALLS
        if at.opname == "JUMP_BACKWARD":
            found.add(at.argval)
    return frozenset(found) - _ends_of_with(code)


@cache
def _calls(code: CodeType) -> frozenset[int]:
    """Offsets of calls."""
    return frozenset(at.offset for at in dis.get_instructions(code) if at.opname in CALLS)


@cache
def _returns(code: CodeType) -> frozenset[int]:
    """Offsets where a function returns a value."""
    return frozenset(at.offset for at in dis.get_instructions(code) if at.opname == "RETURN_VALUE")


@cache
def _ends_of_with(code: CodeType) -> frozenset[int]:
    """Offsets where a `with` block that went well lets go: `__exit__(None, None, None)`."""
    steps = list(dis.get_instructions(code))
    found = set()
    for at in range(len(steps) - 2):
        if all(step.opname == "LOAD_CONST" and step.argval is None for step in steps[at : at + 3]):
            found.add(steps[at].offset)
            if at and steps[at - 1].opname == "SWAP":  # what the block returns is kept below
                found.add(steps[at - 1].offset)
    return frozenset(found)


@cache
def _nothing(code: CodeType) -> frozenset[int]:
    """Offsets of instructions that do nothing, such as a `try:`: no block around them answers for them."""
    return frozenset(at.offset for at in dis.get_instructions(code) if at.opname == "NOP")


def _lets_go(frame: FrameType) -> bool:
    """Whether the line only lets go of a lock, or does nothing.

    No signal gets in before that, and no code could answer it there.
    """
    if frame.f_lasti in _ends_of_with(frame.f_code) | _nothing(frame.f_code):
        return True
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip().endswith(".release()")


def sweep(
    new: Callable[[], Case],
    *,
    most: int | None = None,
    each: int = 1,
    errors: Sequence[type[BaseException]] = ERRORS,
    seed: int = 1,
    within: str = "",
) -> Sweep:
    """Interrupt an operation at each of its lines, on a new client each time, and judge what is left.

    Args:
        new: makes a case.
        most: how many places are tried, in equal distances of the run; None for all of `each`.
        each: how often a spot of the code is interrupted that is passed again and again; 0 is each time.
        errors: what is raised, in turn.
        seed: chooses places and the first error.
        within: only places in files whose path has this in it.
    """
    places = _places(new)
    chance = random.Random(seed)
    chosen = _chosen(places, each, chance, (within,))
    if most is not None and most < len(chosen):
        chosen = _spread(chosen, most, chance)
    found = Sweep(len(places), len(set(places)), len(chosen))
    first = chance.randrange(len(errors))
    for nth, place in enumerate(chosen):
        error = errors[(first + nth) % len(errors)]
        _try(found, new, place, error)
        if len(found.wrong) >= ENOUGH_WRONG:
            break
    return found


PRODUCER: Final = ("kafkalike/producer/", "kafkalike/model/concurrency.py")
"""Where a producer's calls are interrupted."""

EACH: Final = 0 if LEVEL == "all" else 1
"""How often a spot of the code is interrupted that is passed again and again; 0 is each time."""

STEP: Final = examples(1, 3)
"""`make test` tries one of so many places of long operations, and `make test-all` each."""

W = TypeVar("W")


def interrupted(
    new: Callable[[], W],
    operate: Callable[[W], object],
    within: Sequence[str],
    *,
    least: int,
    each: int = EACH,
    step: int = 1,
) -> Iterator[tuple[W, bool]]:
    """Interrupt an operation at each of its places, on a new client each time; the caller asserts what is left.

    Args:
        new: makes a client on data of its own.
        operate: the operation.
        within: only places in files whose path has one of these in it.
        least: there must be more places than this.
        each: as `EACH`.
        step: one of so many places is tried.

    Yields:
        The client, and whether the exception came out: False first, for a run that nothing disturbed.
    """
    counting, client = Interrupt(None, Stop), new()
    counting.run(partial(operate, client))
    chosen = _chosen(counting.places, each, random.Random(1), within)
    assert len(chosen) > least, f"only {len(chosen)} places: is the code still in {within}?"
    yield client, False
    for nth, place in enumerate(chosen[step - 1 :: step]):
        error, client = (KeyboardInterrupt, Stop)[nth % 2], new()
        interrupt, came = Interrupt(place, error), False
        try:
            interrupt.run(partial(operate, client))
        except error:
            came = True
        yield client, came


def _interrupt() -> None:
    raise KeyboardInterrupt


def interrupted_at(
    codes: Collection[CodeType],
    instruction: int,
    work: Callable[[], object],
    handler: Callable[[], object] = _interrupt,
) -> BaseException | None:
    """Call a function, with a KeyboardInterrupt before one of the instructions of some functions.

    Args:
        codes: of those functions.
        instruction: which one, counted over all of them as they are carried out.
        work: the function.
        handler: called instead of an interrupt, as that of a signal is.

    Returns:
        The interrupt; None where it did not come to that.
    """
    left = instruction

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        del argument
        if frame.f_code not in codes:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == -1:
                handler()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt as interrupt:
        return interrupt
    finally:
        sys.settrace(before)
    return None


def visits(places: Iterable[Spot]) -> list[Visit]:
    """The places of a run, each with the number of its visit."""
    passed: Counter[Spot] = Counter()
    found = []
    for spot in places:
        passed[spot] += 1
        found.append((spot, passed[spot]))
    return found


def _chosen(places: Sequence[Spot], each: int, chance: random.Random, within: Sequence[str]) -> list[Visit]:
    """The places to try, in the order of the run."""
    by_spot: dict[Spot, list[int]] = {}
    run = visits(places)
    for number, (spot, _) in enumerate(run):
        if any(part in spot[0].co_filename for part in within):
            by_spot.setdefault(spot, []).append(number)
    numbers = sorted(
        number
        for numbers in by_spot.values()
        for number in (chance.sample(numbers, each) if 0 < each < len(numbers) else numbers)
    )
    return [run[number] for number in numbers]


def _spread(places: Sequence[Visit], most: int, chance: random.Random) -> list[Visit]:
    """One place out of each of so many equal parts."""
    bounds = [len(places) * part // most for part in range(most + 1)]
    return [places[chance.randrange(low, high)] for low, high in pairwise(bounds)]


def _places(new: Callable[[], Case]) -> list[Spot]:
    """The places of a run that nothing disturbs; it must be right, or else the judge is wrong."""
    counting = Interrupt(None, Stop)
    case = new()
    try:
        counting.run(case.operate)
        wrong = list(case.judge())
    finally:
        case.close()
    assert not wrong, f"without any interrupt: {wrong}"
    assert counting.places, "the operation runs no line of kafkalike"
    return counting.places


def _try(found: Sweep, new: Callable[[], Case], place: Visit, error: type[BaseException]) -> None:
    interrupt, case = Interrupt(place, error), new()
    what: tuple[str, ...] = ()
    try:
        try:
            interrupt.run(case.operate)
        except error:
            found.raised += 1
        except Exception as other:  # noqa: BLE001 - judged
            # An answer to the exception, such as a KafkaError that it is the cause of.
            if not comes_of(other, error):
                what = (f"the operation raised {other!r}",)
        what += _judged(case)
    finally:
        case.close()
    found.tried += 1
    found.missed += not interrupt.where
    if what:
        found.wrong.append(Wrong(place[1], interrupt.where or "(not reached)", error.__name__, what))


def _judged(case: Case) -> tuple[str, ...]:
    try:
        return tuple(case.judge())
    except Exception as error:  # noqa: BLE001 - whatever it is, the client must not raise it
        return (f"used again, it raised {error!r} {_place_of(error)}",)


def comes_of(error: BaseException | None, cause: type[BaseException]) -> bool:
    """Whether an exception came up while another one was on its way."""
    while error is not None:
        if isinstance(error, cause):
            return True
        error = error.__cause__ or error.__context__
    return False


def _place_of(error: BaseException) -> str:
    """The last line of kafkalike that an error came through."""
    trace, found = error.__traceback__, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name.startswith(PACKAGE):
            found = f"at {Path(name).relative_to(Path(PACKAGE).parent).as_posix()}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
