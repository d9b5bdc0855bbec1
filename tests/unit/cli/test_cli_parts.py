"""The pure parts of the command line: lines, settings, patterns."""

import signal

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.cli.console_consumer import Formatter
from kafkalike.cli.console_producer import InputLine, LineError, LineReader
from kafkalike.cli.environment import Interrupt
from kafkalike.cli.options import client_settings, key_values, topic_filter
from kafkalike.cli.topics.config_commands import parse_added
from kafkalike.model.structs import ConsumerRecord

# --- lines -------------------------------------------------------------------------------------------

word = st.binary(min_size=1).filter(lambda b: not set(b) & set(b"\t,:\r\n"))


@given(key=word, value=st.binary().filter(lambda b: not b.endswith((b"\r", b"\n"))))
def test_key_and_value_of_any_bytes_are_read_back(key: bytes, value: bytes) -> None:
    """Only the first separator counts."""
    line = LineReader(parse_key=True).parse(key + b"\t" + value + b"\n")

    assert line == InputLine(key=key, value=value, headers=None)


@given(headers=st.lists(st.tuples(st.from_regex(r"[a-z]{1,5}", fullmatch=True), word), min_size=1), value=word)
def test_headers_keep_their_order_and_repeats(headers: list[tuple[str, bytes]], value: bytes) -> None:
    """As many as there are."""
    text = b",".join(name.encode() + b":" + content for name, content in headers)

    line = LineReader(parse_headers=True).parse(text + b"\t" + value)

    assert line.headers == headers
    assert line.value == value


def test_errors_are_ignored_when_asked() -> None:
    """A line without separator is a value."""
    reader = LineReader(parse_key=True, parse_headers=True, ignore_error=True)

    assert reader.parse(b"all\n") == InputLine(key=None, value=b"all", headers=None)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"x", "No headers delimiter found on line number 1: 'x'"),
        (b"h:1\tx", "No key separator found on line number 1: 'h:1\tx'"),
        (b"h\tk\tv", "No header key separator found in pair 'h' on line number 1"),
    ],
)
def test_what_is_missing_is_named(line: bytes, words: str) -> None:
    """The words are Kafka's."""
    with pytest.raises(LineError) as caught:
        LineReader(parse_key=True, parse_headers=True).parse(line)

    assert str(caught.value) == words


def test_a_header_key_must_not_be_the_null_marker() -> None:
    """A header without a key cannot be stored."""
    with pytest.raises(LineError):
        LineReader(parse_headers=True, null_marker=b"N").parse(b"N:1\tv")


# --- records as text ---------------------------------------------------------------------------------


def record(timestamp_type: int = 0, epoch: int = -1) -> ConsumerRecord:
    return ConsumerRecord("t", 1, epoch, 2, 3, timestamp_type, b"k", b"v", [], None, 1, 1, -1)


@pytest.mark.parametrize(
    ("kind", "shown"), [(0, b"CreateTime:3\n"), (1, b"LogAppendTime:3\n"), (-1, b"NO_TIMESTAMP\n")]
)
def test_each_kind_of_timestamp_has_its_name(kind: int, shown: bytes) -> None:
    """As Kafka names them."""
    formatter = Formatter.from_properties({"print.timestamp": "true", "print.value": "false"})

    assert formatter.line(record(kind)) == shown


def test_columns_that_do_not_exist_here_say_so() -> None:
    """Deliveries are counted for share groups only."""
    formatter = Formatter.from_properties({"print.delivery": "true", "print.epoch": "true"})

    assert formatter.line(record()) == b"Delivery:NOT_PRESENT\tEpoch:NOT_PRESENT\tv\n"
    assert b"Epoch:4" in formatter.line(record(epoch=4))


def test_nothing_to_print_prints_nothing() -> None:
    """Not even a line end."""
    assert Formatter.from_properties({"print.value": "false"}).line(record()) == b""


# --- settings and patterns -----------------------------------------------------------------------------


def test_settings_become_what_they_look_like() -> None:
    """Names that are text stay text."""
    given_ = {"linger.ms": "5", "enable.idempotence": "TRUE", "client.id": "7", "ratio": "-0.5", "acks": "all"}

    assert client_settings(given_) == {
        "linger_ms": 5,
        "enable_idempotence": True,
        "client_id": "7",
        "ratio": -0.5,
        "acks": "all",
    }


def test_options_of_an_object_store_become_one_dict_of_texts() -> None:
    """By the names behind the prefix, dots and case as they are."""
    given_ = {"storage.options.AWS_REGION": "r", "storage_options.timeout": "5", "client.id": "c"}

    assert client_settings(given_) == {"storage_options": {"AWS_REGION": "r", "timeout": "5"}, "client_id": "c"}


def test_a_value_may_hold_the_sign() -> None:
    """Only the first one separates."""
    assert key_values(["a=b=c", "d="], "--property") == {"a": "b=c", "d": ""}


@pytest.mark.parametrize("pair", ["a", "=b", ""])
def test_a_pair_without_name_or_sign_is_refused(pair: str) -> None:
    """The flag is named."""
    with pytest.raises(click.UsageError, match="--property"):
        key_values([pair], "--property")


@given(st.lists(st.from_regex(r"[a-z._-]{1,8}", fullmatch=True), min_size=1))
def test_names_between_commas_are_alternatives(names: list[str]) -> None:
    """Every one of them matches."""
    allowed = topic_filter(",".join(names))

    assert all(map(allowed, names))


def test_settings_in_brackets_keep_their_commas() -> None:
    """Spaces do not count."""
    assert parse_added("a=[x,y], b=2,c=") == {"a": "x,y", "b": "2", "c": ""}


# --- Ctrl-C ----------------------------------------------------------------------------------------------


def test_the_first_interrupt_is_seen_and_the_second_raised() -> None:
    """A loop ends in its own time; a user who insists is heard."""
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGINT)

        assert interrupt.is_requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_afterwards_an_interrupt_is_an_exception_again() -> None:
    """The handler from before is back."""
    before = signal.getsignal(signal.SIGINT)

    with Interrupt():
        pass

    assert signal.getsignal(signal.SIGINT) is before
