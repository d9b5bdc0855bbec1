"""Public names: names and module paths that users import, mapped to the modules that hold the code.

A name is loaded on first use (PEP 562), so a program that only reads a log does not start Spark. Public paths such as
`kafkalike.retention` stay when the code moves. Type checkers read the `.pyi` file of the same name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib.abc import InspectLoader, Loader


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package.

    Args:
        package: its `__name__`.
        homes: by public name, the module that defines it.

    Returns:
        The two functions. The first raises AttributeError for unknown names, and ImportError with the command that
        installs an extra if its packages are missing.
    """

    def load(name: str) -> Any:  # noqa: ANN401 - any public name
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(home), name)
        except ImportError as cause:
            from kafkalike.errors.optional_imports import advice

            text = advice(cause, f"{package}.{name} needs")
            if text is None:
                raise
            raise type(cause)(text, name=cause.name, path=cause.path) from cause
        vars(sys.modules[package])[name] = value
        return value

    def listed() -> list[str]:
        own = vars(sys.modules[package])
        return sorted({*homes, *(name for name in own if name in own.get("__all__", ()) or name.startswith("__"))})

    return load, listed


class PublicPaths:
    """Finds a module by its public name and gives it the names of the module that holds the code.

    A `MetaPathFinder` and `Loader` by its methods: to load these classes takes 9 ms of each program.

    Args:
        homes: module that holds the code, by public name. Submodules of a name are found in that module's package.
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = dict(homes)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a public name; None for any other module."""
        del path, target
        home = self._home(fullname)
        if home is None:
            return None
        # A submodule may be a program, which `python -m` runs only if it is not a package.
        found = None if fullname in self._homes else find_spec(home)
        if found is None and fullname not in self._homes:
            return None
        package = found is None or found.submodule_search_locations is not None
        origin = home if found is None else found.origin
        return ModuleSpec(fullname, cast("Loader", self), origin=origin, loader_state=home, is_package=package)

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of the module that holds it, for `python -m`."""
        found = find_spec(self._home(fullname) or fullname)
        assert found is not None
        return cast("InspectLoader", found.loader).get_code(found.name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return None, which makes the import system create a plain module."""

    def exec_module(self, module: ModuleType) -> None:
        """Copy the names of the module that holds the code, including those loaded on first use."""
        spec = module.__spec__
        assert spec is not None
        home = import_module(spec.loader_state)
        names = {name: value for name, value in vars(home).items() if not name.startswith("__")}
        vars(module).update(names, __doc__=home.__doc__, __all__=[*getattr(home, "__all__", names)])
        vars(module).update(__getattr__=lambda name: getattr(home, name), __dir__=lambda: dir(home))

    def _home(self, fullname: str) -> str | None:
        for name, home in self._homes.items():
            if fullname == name or fullname.startswith(f"{name}."):
                return home + fullname.removeprefix(name)
        return None


def serve_public_paths(homes: Mapping[str, str]) -> None:
    """Serve these names for the life of the process.

    Args:
        homes: module that holds the code, by public name.
    """
    sys.meta_path.append(PublicPaths(homes))
