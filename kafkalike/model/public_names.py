"""Public names: names and module paths that users import, served from the modules that hold the code.

A name is loaded when it is first used (PEP 562), so a program that only reads a log starts no Spark. A user writes
`kafkalike.retention`, as the documentation has it; the code may move and the name stays. Type checkers read the `.pyi`
file of the same name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str], extra: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` of a package.

    Args:
        package: its `__name__`.
        homes: module that defines each public name.
        extra: the extra that brings what these modules import beyond kafkalike's own packages.

    Returns:
        The two functions; the first raises AttributeError for other names, and ModuleNotFoundError, which says what
        to install, where the extra is missing.
    """

    def load(name: str) -> Any:  # noqa: ANN401 - any public name
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(home), name)
        except ModuleNotFoundError as cause:
            if extra is None:
                raise
            raise ModuleNotFoundError(
                f"{name} needs {cause.name}: pip install 'kafkalike[{extra}]'", name=cause.name, path=cause.path
            ) from cause
        vars(sys.modules[package])[name] = value
        return value

    def listed() -> list[str]:
        own = vars(sys.modules[package])
        return sorted({*homes, *(name for name in own if name in own.get("__all__", ()) or name.startswith("__"))})

    return load, listed


class PublicPaths(MetaPathFinder, Loader):
    """Finds a module by its public name and gives it the names of its home.

    Args:
        homes: module that holds the code, by public name. Modules below a name are found below its home.
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = dict(homes)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `MetaPathFinder`; None for names that are not served here."""
        del path, target
        home = self._home(fullname)
        return None if home is None else ModuleSpec(fullname, self, origin=home, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """See `Loader`: a plain module."""

    def exec_module(self, module: ModuleType) -> None:
        """Give the module the names of its home, those that are loaded at first use among them."""
        spec = module.__spec__
        assert spec is not None
        assert spec.origin is not None
        home = import_module(spec.origin)
        names = {name: value for name, value in vars(home).items() if not name.startswith("__")}
        vars(module).update(names, __doc__=home.__doc__, __all__=[*getattr(home, "__all__", names)])
        vars(module).update(__getattr__=lambda name: getattr(home, name), __dir__=lambda: dir(home))

    def _home(self, fullname: str) -> str | None:
        for name, home in self._homes.items():
            if fullname == name or fullname.startswith(f"{name}."):
                return home + fullname.removeprefix(name)
        return None


def serve_public_paths(homes: Mapping[str, str]) -> None:
    """Serve these names for as long as the process runs.

    Args:
        homes: see `PublicPaths`.
    """
    sys.meta_path.append(PublicPaths(homes))
