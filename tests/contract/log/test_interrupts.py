"""An exception at any line of what a client does leaves the client right: it goes on as a fresh one would."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalike.model.names import check_topic_name
from tests.tools.effort import examples
from tests.tools.interrupt_cases import CASES, CloseConsumer, Commit, Create, Refresh
from tests.tools.interrupt_copies import MIRROR_CASES, REPLICA_CASES, Mirroring, Replicated
from tests.tools.interrupt_corrections import CORRECTION_CASES
from tests.tools.interrupt_transactions import TRANSACTION_CASES
from tests.tools.interrupt_world import Copies, World, make_base
from tests.tools.interrupts import sweep

SHORT = examples(6, 2)
"""Interrupts per operation in the normal run; six of each take half a minute."""

FEW = examples(2, 1)
"""The same for operations of several tables, or of several roots."""

# Between opening a file or a folder and the `with` around it nothing but Python itself can close it, which says so.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

EVERY = pytest.mark.parametrize("case", [*CASES, *TRANSACTION_CASES, *CORRECTION_CASES], ids=lambda case: case.__name__)
MIRRORS = pytest.mark.parametrize("case", MIRROR_CASES, ids=lambda case: case.__name__)
REPLICAS = pytest.mark.parametrize("case", REPLICA_CASES, ids=lambda case: case.__name__)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_base(str(tmp_path_factory.mktemp("interrupts") / "base"))


@pytest.fixture
def copies(base: str, tmp_path: Path) -> Copies:
    return Copies(base, tmp_path)


class HalfDone(World):
    """An operation that leaves something undone when it is cut off."""

    open = 0

    def operate(self) -> None:
        self.open += 1
        check_topic_name("t")
        self.open -= 1

    def check(self) -> Iterator[str]:
        if self.open:
            yield "half done"


@pytest.mark.slow
def test_an_operation_that_is_done_by_half_is_found_at_each_of_its_lines(copies: Copies) -> None:
    """The judge judges: no sweep is right because it looks at nothing."""
    found = sweep(lambda: HalfDone(copies.new()))

    assert found.tried > 0
    assert [wrong.what for wrong in found.wrong] == [("half done",)] * found.tried


@pytest.mark.slow
@EVERY
def test_some_lines_of_an_operation_are_interrupted_and_the_client_goes_on(case: type[World], copies: Copies) -> None:
    """A few places, in equal distances over the whole of it."""
    found = sweep(lambda: case(copies.new()), most=SHORT)

    assert not found.wrong, str(found)
    assert found.raised > 0


@pytest.mark.slow
@MIRRORS
def test_a_mirror_that_is_interrupted_goes_on(case: type[Mirroring]) -> None:
    """Its next pass ends what was begun, and the copy is its source at one moment."""
    found = sweep(case, most=FEW)

    assert not found.wrong, str(found)
    assert found.raised > 0


@pytest.mark.slow
@REPLICAS
def test_replicas_whose_writer_is_interrupted_are_the_same_in_the_end(case: type[Replicated], tmp_path: Path) -> None:
    """The same client goes on, and all roots are in sync after one run of `replicate`."""
    found = sweep(lambda: case(tmp_path), most=FEW)

    assert not found.wrong, str(found)
    assert found.raised > 0


@pytest.mark.slow
@pytest.mark.parametrize("case", [Refresh, Create, Commit], ids=lambda case: case.__name__)
def test_rows_that_are_being_applied_are_applied_later(case: type[World], copies: Copies) -> None:
    """The states of topics and groups: where half an update would be believed for ever."""
    found = sweep(lambda: case(copies.new()), most=SHORT, within="/model/")

    assert not found.wrong, str(found)


@pytest.mark.slow
def test_a_consumer_whose_close_was_interrupted_leaves_when_it_is_closed_again(copies: Copies) -> None:
    """Else its heartbeats would keep its partitions for it, and nobody would read them."""
    found = sweep(lambda: CloseConsumer(copies.new()), most=SHORT, within="/consumer/")

    assert not found.wrong, str(found)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@EVERY
def test_each_line_of_an_operation_is_interrupted_and_the_client_goes_on(
    case: type[World], copies: Copies, record_property: Callable[[str, object], None]
) -> None:
    """Each line and each place where Python lets a signal in, once: at a visit of its own chance.

    The longest, `Maintain`, has some 6,000 of them, of half a second each on a quiet core.
    """
    found = sweep(lambda: case(copies.new()))
    record_property("sweep", str(found))

    assert not found.wrong, str(found)
    assert found.tried == found.chosen >= found.spots


@pytest.mark.soak
@pytest.mark.timeout(7200)
@MIRRORS
def test_a_mirror_is_interrupted_at_each_line(
    case: type[Mirroring], record_property: Callable[[str, object], None]
) -> None:
    found = sweep(case)
    record_property("sweep", str(found))

    assert not found.wrong, str(found)
    assert found.tried == found.chosen >= found.spots


@pytest.mark.soak
@pytest.mark.timeout(7200)
@REPLICAS
def test_a_writer_of_replicas_is_interrupted_at_each_line(
    case: type[Replicated], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    found = sweep(lambda: case(tmp_path))
    record_property("sweep", str(found))

    assert not found.wrong, str(found)
    assert found.tried == found.chosen >= found.spots
