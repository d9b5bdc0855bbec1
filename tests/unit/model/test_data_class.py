"""The package's `dataclass`: its classes behave as the standard library's."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, is_dataclass
from dataclasses import dataclass as standard
from typing import Any, ClassVar, Protocol, get_type_hints

import pytest

from kafkalike.model import data_class
from kafkalike.model.data_class import asdict, astuple, field, fields, replace
from tests.tools.blocks import PROJECT

OPTIONS = [
    {"slots": True, **({"frozen": True} if frozen else {}), **({"kw_only": True} if kw_only else {}), **more}
    for frozen in (False, True)
    for kw_only in (False, True)
    for more in ({}, {"eq": False}, {"repr": False})
]

Decorator = Callable[..., Any]


def plain(decorate: Decorator, options: dict[str, bool]) -> type[Any]:
    @decorate(**options)
    class Plain:
        """Fields of each kind."""

        LIMIT: ClassVar[int] = 3
        first: int
        second: str = "b"
        third: list[int] = field(default_factory=list)
        quiet: float = field(default=0.5, repr=False, compare=False)
        named: int = field(default=7, kw_only=True)
        made: int = field(init=False, default=1)
        held: dict[str, int] = field(init=False, default_factory=dict, compare=False)
        late: int = field(init=False, hash=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "late", self.first + 1)

    return Plain


def lone(decorate: Decorator, options: dict[str, bool]) -> type[Any]:
    @decorate(**options)
    class Lone:
        """One field: its values are no tuple by themselves."""

        first: float = 1.0

    return Lone


def empty(decorate: Decorator, options: dict[str, bool]) -> type[Any]:
    @decorate(**options)
    class Empty:
        """No fields."""

    return Empty


def derived(decorate: Decorator, options: dict[str, bool]) -> type[Any]:
    @decorate(**options)
    class Derived(plain(decorate, options)):  # type: ignore[misc] # made for each test
        """A subclass with another field and another default."""

        second: str = "c"
        last: int = 9

    return Derived


def own(decorate: Decorator, options: dict[str, bool]) -> type[Any]:
    @decorate(**options)
    class Own:
        """Has methods of its own, which are kept."""

        first: int = 1

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, int)

        def __hash__(self) -> int:
            return 5

    return Own


SHAPES = [plain, lone, empty, derived, own]


def facts(cls: type[Any]) -> dict[str, Any]:
    """Return what a program can see of a class and its instances."""
    takes_first = any(each.name == "first" for each in fields(cls))
    given = {"first": 1.5} if takes_first else {}
    a, b, other = cls(**given), cls(**given), cls(**({"first": 2} if takes_first else {}))
    nan = cls(**({"first": math.nan} if takes_first else {}))
    found: dict[str, Any] = {
        "signature": str(inspect.signature(cls)),
        "hints": get_type_hints(cls.__init__),
        "fields": [(each.name, each.type, each.init, each.kw_only) for each in fields(cls)],
        "match": cls.__match_args__,
        "repr": repr(a) if "__repr__" in vars(cls) else "inherited",
        "equal": (a == b, a == other, a == 3, a != b, nan == nan),  # noqa: PLR0124 - the same object is equal
        "values": (asdict(a), astuple(a)),
        "replaced": astuple(replace(a, **given)),
        "copied": [astuple(copy.copy(a)), astuple(copy.deepcopy(a))],
        "doc": cls.__doc__,
        "name": cls.__init__.__qualname__,
        "dict": hasattr(a, "__dict__"),
    }
    try:
        found["hash"] = hash(a) == hash(b)
    except TypeError as error:
        found["hash"] = str(error)
    changes: list[Callable[[], object]] = (
        [lambda: setattr(a, "first", 3), lambda: delattr(a, "first")] if takes_first else []
    )
    acts: list[Callable[[], object]] = [*changes, lambda: cls(1, 2, 3, 4, 5, 6, 7), lambda: cls(nothing=1)]
    for act in acts:
        try:
            act()
        except (AttributeError, TypeError) as error:
            found.setdefault("errors", []).append((type(error), str(error)))
        else:
            found.setdefault("errors", []).append(None)
    return found


@pytest.mark.parametrize("options", OPTIONS, ids="-".join)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_class_behaves_as_the_standard_librarys(shape: Decorator, options: dict[str, bool]) -> None:
    ours, theirs = facts(shape(data_class.dataclass, options)), facts(shape(standard, options))
    assert {k: (ours[k], theirs[k]) for k in ours if ours[k] != theirs[k]} == {}


@pytest.mark.parametrize(
    "options", [{}, {"frozen": True}, {"slots": True, "order": True}], ids=["none", "frozen", "order"]
)
def test_other_options_are_left_to_the_standard_library(options: dict[str, bool]) -> None:
    made = lone(data_class.dataclass, options)
    assert is_dataclass(made)
    assert facts(made) == facts(lone(standard, options))


ROOMS = ("consumer", "delta", "log", "model", "producer", "storage")
"""Rooms that clients load before their first record."""


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_of_clients_take_the_fast_one(room: str) -> None:
    slow = re.compile(r"^from dataclasses import .*\bdataclass\b", re.MULTILINE)
    found = [each.name for each in (PROJECT / "kafkalike" / room).rglob("*.py") if slow.search(each.read_text())]
    assert found == ([] if room != "model" else ["data_class.py"])


class Sized(Protocol):
    """A protocol that a class implements."""

    def size(self) -> int: ...


@data_class.dataclass(frozen=True, slots=True)
class Stored(Sized):
    """A class that a pickle can name."""

    path: str
    size_bytes: int = 0

    def size(self) -> int:
        return self.size_bytes


def test_frozen_instance_comes_back_from_a_pickle() -> None:
    stored = Stored("a", 3)
    found = pickle.loads(pickle.dumps(stored))  # noqa: S301 - our own bytes
    assert found == stored
    assert found.size() == 3
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'path'"):
        found.path = "b"


def test_frozen_instance_takes_no_other_attributes() -> None:
    """The standard library raises an unrelated TypeError: its check knows the class before it got slots."""
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'unknown'"):
        Stored("a").unknown = 3  # type: ignore[attr-defined]


def test_instance_that_holds_itself_is_shown_once() -> None:
    @data_class.dataclass(slots=True)
    class Node:
        """May hold itself."""

        next: Any = None

    node = Node()
    node.next = node
    assert repr(node).endswith("Node(next=...)")


def test_frozen_subclass_without_slots_keeps_the_fields_of_its_base() -> None:
    class Named(Stored):
        """An ordinary subclass, whose other attributes may change."""

    named = Named("a")
    named.label = "x"  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError):
        named.path = "b"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del named.path
    del named.label  # type: ignore[attr-defined]
