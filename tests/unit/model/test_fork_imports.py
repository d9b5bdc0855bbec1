"""A fork waits for the imports of other threads that kafkalike's code has begun."""

import importlib
import importlib.abc
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from kafkalike.model import concurrency
from kafkalike.model.concurrency import await_imports, is_importing

SLOW = "a_module_that_is_not_there"
OWN = "kafkalike.a_module_that_is_not_there"


class Blocked(importlib.abc.MetaPathFinder):
    """Blocks the import of one module until it is released."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.released = threading.Event()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find nothing."""
        del path, target
        if name in {SLOW, OWN}:
            self.begun.set()
            self.released.wait(30)
        return None


@pytest.fixture
def disk() -> Iterator[Blocked]:
    """A slow one."""
    made = Blocked()
    sys.meta_path.insert(0, made)
    yield made
    made.released.set()
    sys.meta_path.remove(made)


def importing(disk: Blocked, module: str, slow: str = SLOW) -> threading.Thread:
    """A thread in which code of a module imports another one, and waits for the disk."""

    def work() -> None:
        with pytest.raises(ImportError):
            exec(f"import {slow}", {"__name__": module})  # noqa: S102 - our own text

    thread = threading.Thread(target=work)
    thread.start()
    assert disk.begun.wait(30)
    return thread


def is_seen(thread: threading.Thread) -> bool:
    return is_importing(sys._current_frames()[thread.ident or 0])


def test_an_import_of_kafkalikes_code_is_waited_for(disk: Blocked) -> None:
    """A fork in the middle of it would leave the child without the module."""
    thread = importing(disk, "kafkalike.log.cluster")
    assert is_seen(thread)
    found: list[bool] = []

    def wait() -> None:
        await_imports(30)
        found.append(disk.released.is_set())

    waiter = threading.Thread(target=wait)
    waiter.start()

    disk.released.set()

    waiter.join(30)
    thread.join(30)
    assert found == [True]


def test_an_import_of_a_module_of_kafkalike_by_another_program_is_waited_for(disk: Blocked) -> None:
    """Its child imports the same module."""
    assert is_seen(importing(disk, "app.main", OWN))


def test_a_wait_for_an_import_ends_at_its_limit_with_one_warning(
    disk: Blocked, caplog: pytest.LogCaptureFixture
) -> None:
    """A module that cannot be read must not hold up a fork for ever."""
    concurrency._warn_once.cache_clear()
    thread = importing(disk, "kafkalike.log.cluster")

    await_imports(0.01)
    await_imports(0.01)

    assert is_seen(thread)
    assert [record.name for record in caplog.records] == ["kafkalike.model.concurrency"]


def test_a_thread_that_imports_a_module_does_not_wait_for_imports_of_others(
    disk: Blocked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others may wait for its module."""
    seen: list[bool] = []

    def body() -> None:
        thread = importing(disk, "kafkalike.log.cluster")
        await_imports(3600)
        seen.append(is_seen(thread))
        disk.released.set()

    monkeypatch.setitem(sys.modules, "body", body)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "forks.py").write_text("import body\nbody()\n")

    importlib.import_module("forks")

    assert seen == [True]


def test_threads_that_import_nothing_are_not_waited_for() -> None:
    """Such as a thread of kafkalike that waits for work."""
    here, over = threading.Event(), threading.Event()
    code = {"__name__": "kafkalike.producer.sender", "here": here, "over": over}
    thread = threading.Thread(target=exec, args=("here.set(); over.wait(30)", code))
    thread.start()
    assert here.wait(30)

    assert not is_seen(thread)

    over.set()
    thread.join(30)


def test_imports_of_other_programs_are_not_waited_for(disk: Blocked) -> None:
    """A program may run for ever inside an import, such as that of its main module."""
    thread = importing(disk, "app.main")

    await_imports(30)

    assert not is_seen(thread)
    assert not disk.released.is_set()
