"""Letters that wait for a commit: whatever is read, read again, committed and interrupted, each is written once."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from kafkalike.model.dead_letters.held import Held
from kafkalike.model.dead_letters.letters import (
    MOST_MESSAGE,
    Failure,
    Letter,
    Reader,
    context_headers,
    original_headers,
    read_context,
)
from kafkalike.model.structs import TopicPartition

TP = TopicPartition("orders", 0)
END = 12


def letter(offset: int) -> Letter:
    return Letter(topic="orders.dlq", origin=TP, offset=offset, key=None, value=b"v", headers=[], timestamp_ms=0)


@dataclass
class Group:
    """A partition whose odd offsets are bad, what its group has committed, and the letters that were written."""

    committed: int = 0
    written: list[int] = field(default_factory=list)

    def commit(self, held: Held, upto: int, *, answered: bool) -> Held:
        """A transaction; without an answer its consumer goes on as if nothing was known."""
        due = held.due({TP: upto}, {TP: self.committed} if self.committed else {})
        self.written += [one.offset for one in due]
        self.committed = upto
        return held.settled({TP: upto}) if answered else held


steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(1, 4), st.booleans()),
        st.tuples(st.just("seek"), st.integers(0, END), st.booleans()),
        st.tuples(st.just("commit"), st.just(0), st.booleans()),
        st.tuples(st.just("another consumer"), st.just(0), st.booleans()),
    ),
    max_size=25,
)


@given(steps)
def test_each_bad_record_that_the_group_has_passed_is_written_once(course: list[tuple[str, int, bool]]) -> None:
    """Commits go forward here: whoever sets a group back has its letters again."""
    group, held, position = Group(), Held(), 0
    for what, number, flag in course:
        if what == "read":
            span = range(position, min(END, position + number))
            held = held.read(TP, "id", span, [letter(offset) for offset in span if offset % 2])
            position = span.stop
        elif what == "seek":
            position = min(number, max(position, group.committed))
        elif what == "commit" and position >= group.committed:
            held = group.commit(held, position, answered=flag)
        elif what == "another consumer":
            held, position = Held() if flag else held.of({}), group.committed

        assert group.written == [offset for offset in range(group.committed) if offset % 2]
        assert held.count == sum(len(part.letters) for part in held.parts.values())
        assert held.size == sum(one.size for part in held.parts.values() for one in part.letters)


def test_letters_of_another_life_of_a_topic_are_forgotten() -> None:
    held = Held().read(TP, "old", range(4), [letter(1), letter(3)])

    assert held.of({TP: "new"}).count == 0
    assert held.read(TP, "new", range(2), [letter(0)]).due({TP: 9}, {}) == [letter(0)]
    assert held.of({TP: "old"}) is held


texts = st.text(max_size=40)


@given(st.lists(st.tuples(texts, st.one_of(st.none(), st.binary(max_size=5))), max_size=3), texts, texts)
def test_headers_say_the_cause_and_leave_the_records_own(
    own: list[tuple[str, bytes | None]], message: str, name: str
) -> None:
    failure = Failure(stage="VALUE_CONVERTER", class_name="c", exception=name, message=message, stacktrace="s")
    about = context_headers(TP, 7, failure, Reader(name="g", task="t"))

    found = read_context([*own, *about])

    assert found is not None
    assert (found.origin, found.offset, found.connector, found.task) == (TP, 7, "g", "t")
    assert original_headers([*own, *about]) == own
    assert found.message == message.encode(errors="replace").decode()


@given(st.integers(0, 3 * MOST_MESSAGE))
def test_a_long_message_keeps_its_beginning_and_its_end(length: int) -> None:
    text = ("é" * length + "end")[: length + 3]
    failure = Failure(stage="", class_name="", exception="", message=text, stacktrace="")

    found = read_context(context_headers(TP, 0, failure, Reader(name="", task="")))

    assert found is not None
    assert len(found.message.encode()) <= MOST_MESSAGE
    assert found.message.endswith("end")
