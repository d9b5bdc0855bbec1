"""Letters that wait for a commit: whatever is read, read again, committed and interrupted, each is written once."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalike.model.dead_letter import (
    CONTEXT_BYTES,
    MOST_MESSAGE,
    MOST_STACKTRACE,
    Context,
    FailedReader,
    Failure,
    Held,
    Letter,
    context_headers,
    default_topic,
    names,
    original_headers,
    read_context,
    same_class,
)
from kafkalike.model.structs import TopicPartition
from tests.tools.effort import examples

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
    min_size=4,
    max_size=25,
)


@pytest.mark.slow
@settings(max_examples=examples(1500, 300))
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
    about = context_headers(TP, 7, failure, FailedReader(name="g", task="t"))

    found = read_context([*own, *about])

    assert found is not None
    assert (found.origin, found.offset, found.connector, found.task) == (TP, 7, "g", "t")
    assert original_headers([*own, *about]) == own
    assert found.message == message.encode(errors="replace").decode()


@given(st.integers(0, 3 * MOST_MESSAGE))
def test_a_long_message_keeps_its_beginning_and_its_end(length: int) -> None:
    text = ("é" * length + "end")[: length + 3]
    failure = Failure(stage="", class_name="", exception="", message=text, stacktrace="")

    found = read_context(context_headers(TP, 0, failure, FailedReader(name="", task="")))

    assert found is not None
    assert len(found.message.encode()) <= MOST_MESSAGE
    assert found.message.endswith("end")


FAILURE = Failure(stage="VALUE_CONVERTER", class_name="c", exception="a.B", message="m", stacktrace="s")
WHOLE = {
    "__connect.errors.topic": b"orders",
    "__connect.errors.partition": b"0",
    "__connect.errors.offset": b"7",
    "__connect.errors.connector.name": b"g",
    "__connect.errors.task.id": b"t",
    "__connect.errors.stage": b"VALUE_CONVERTER",
    "__connect.errors.class.name": b"c",
    "__connect.errors.exception.class.name": b"a.B",
    "__connect.errors.exception.message": b"m",
    "__connect.errors.exception.stacktrace": b"s",
}
"""The names and forms of Kafka Connect."""
SAID = Context(
    origin=TP,
    offset=7,
    connector="g",
    task="t",
    stage="VALUE_CONVERTER",
    class_name="c",
    exception="a.B",
    message="m",
    stacktrace="s",
)
SILENT = Context(
    origin=None,
    offset=None,
    connector="",
    task="",
    stage="",
    class_name="",
    exception="",
    message="",
    stacktrace="",
)


def test_headers_are_those_of_kafka_connect() -> None:
    headers = context_headers(TP, 7, FAILURE, FailedReader(name="g", task="t"))

    assert dict(headers) == WHOLE
    assert read_context(headers) == SAID
    assert names(headers) == set(WHOLE)


def test_a_record_without_such_headers_is_no_letter() -> None:
    assert read_context([]) is None
    assert read_context([("a", b"1"), ("connect.errors.topic", b"t")]) is None


def test_what_headers_do_not_say_is_empty() -> None:
    """Of several of one name the last one counts; null and bytes that are no text are no error."""
    assert read_context([("__connect.errors.other", b"x")]) == SILENT
    assert read_context([("__connect.errors.topic", b"orders")]) == SILENT
    assert read_context([("__connect.errors.partition", b"0")]) == SILENT
    twice = read_context([("__connect.errors.stage", b"a"), ("__connect.errors.stage", None)])
    bad = read_context([("__connect.errors.stage", b"a\xff")])
    assert (twice, bad and bad.stage) == (SILENT, "a\ufffd")


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        (b"0", 0),
        (b"9223372036854775807", 2**63 - 1),
        (b"92233720368547758070", None),
        (b"-1", None),
        (b"", None),
        (b"1.5", None),
        ("²".encode(), None),
        ("٣".encode(), None),
    ],
)
def test_an_offset_is_digits(text: bytes, offset: int | None) -> None:
    found = read_context([("__connect.errors.offset", text)])

    assert found is not None
    assert found.offset == offset


def test_a_dead_letter_topic_has_no_other_one() -> None:
    assert [default_topic(name) for name in ("orders", "orders.dlq", "dlq")] == ["orders.dlq", "orders.dlq", "dlq.dlq"]


@pytest.mark.parametrize(
    ("wanted", "same"), [("a.b.Error", True), ("Error", True), ("b.Error", False), ("error", False), ("a", False)]
)
def test_an_error_is_meant_by_its_full_name_or_the_last_part_of_it(wanted: str, *, same: bool) -> None:
    assert same_class(wanted, "a.b.Error") is same


@pytest.mark.parametrize("length", [MOST_STACKTRACE, MOST_STACKTRACE + 1, 3 * MOST_STACKTRACE])
def test_a_long_stack_says_how_much_is_missing(length: int) -> None:
    stack = "b" + "x" * (length - 2) + "e"
    failure = Failure(stage="", class_name="", exception="", message="", stacktrace=stack)
    found = read_context(context_headers(TP, 0, failure, FailedReader(name="", task="")))

    assert found is not None
    kept = found.stacktrace
    if length == MOST_STACKTRACE:
        assert kept == stack
    else:
        left, gap, right = kept.partition(f"\n... {length - MOST_STACKTRACE} bytes ...\n")
        assert MOST_STACKTRACE - 1 <= len(kept) <= MOST_STACKTRACE
        assert gap
        assert (left[0], right[-1], len(left)) == ("b", "e", len(right))


def test_a_letter_knows_about_how_large_it_is() -> None:
    whole = Letter(
        topic="t", origin=TP, offset=1, key=b"12", value=b"345", headers=[("ab", b"c"), ("d", None)], timestamp_ms=0
    )
    most = context_headers(
        TP,
        2**63 - 1,
        Failure(
            stage="s" * 20, class_name="c" * 500, exception="e" * 500, message="m" * 9_999, stacktrace="s" * 99_999
        ),
        FailedReader(name="g" * 255, task="t" * 255),
    )

    assert (whole.size, letter(1).size) == (2 + 3 + 3 + 1 + 100, 101)
    assert sum(len(name) + len(content or b"") for name, content in most) < CONTEXT_BYTES


U, V = TopicPartition("orders", 1), TopicPartition("bills", 0)


def test_a_commit_writes_the_letters_that_it_passes_in_order() -> None:
    held = Held()
    for tp in (U, TP, V):
        held = held.read(tp, "id", range(9), [letter(2), letter(5)])

    assert held.due({U: 3, TP: 9, TopicPartition("x", 0): 9}, {TP: 5}) == [letter(5), letter(2)]
    assert held.due({TP: 5}, {TP: 3}) == []
    assert held.due({TP: 6}, {}) == [letter(2), letter(5)]


def test_letters_below_what_is_committed_are_let_go_of() -> None:
    held = Held().read(TP, "id", range(9), [letter(2), letter(5)]).read(U, "id", range(9), [letter(1)])

    assert [held.below(offsets) for offsets in ({}, {TP: 2}, {TP: 3}, {V: 9}, {V: 9, U: 2})] == [
        False,
        False,
        True,
        False,
        True,
    ]
    assert held.settled({TP: 2, V: 9}) is held
    left = held.settled({TP: 5})
    assert (left.count, left.due({TP: 9, U: 9}, {})) == (2, [letter(5), letter(1)])
    assert left.of({TP: "id", U: "id"}) is left
    assert held.settled({TP: 6}).parts.keys() == {U}
    first = Held().read(TP, "id", range(9), [letter(0)]).read(U, "id", range(9), [letter(1)])
    assert first.settled({U: 2}).due({TP: 9}, {}) == [letter(0)]


def test_what_is_read_again_replaces_the_letters_of_its_span() -> None:
    held = Held().read(TP, "id", range(9), [letter(2), letter(5), letter(7)])

    again = held.read(TP, "id", range(5, 7), [letter(6)])

    assert again.due({TP: 9}, {}) == [letter(2), letter(6), letter(7)]
    assert Held().read(TP, "id", range(9), []) == Held()
    assert held.read(TP, "id", range(9), []) == Held()


def test_letters_of_partitions_that_are_not_held_any_more_are_forgotten() -> None:
    held = Held().read(TP, "id", range(9), [letter(2)]).read(U, None, range(9), [letter(1)])

    assert held.of({TP: "id"}).due({TP: 9, U: 9}, {}) == [letter(2)]
    assert held.of({TP: "id", U: None}) is held
    assert held.of({TP: "id", U: "id"}).count == 1
