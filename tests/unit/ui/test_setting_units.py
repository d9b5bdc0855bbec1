"""Settings: ms and bytes in units for people, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import IllegalArgumentError
from kafkalike.ui.pages.settings_pages import friendly, parsed_value


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("retention.ms", "604800000", "7 days"),
        ("retention.ms", "86400000", "1 day"),
        ("retention.ms", "90000000", "about 1.04 days"),
        ("retention.ms", "-1", "no limit"),
        ("retention.ms", "9223372036854775807", "no limit"),
        ("segment.ms", "60000", "1 minute"),
        ("segment.ms", "0", ""),
        ("segment.bytes", "1073741824", "1 GiB"),
        ("max.message.bytes", "1048588", "about 1 MiB"),
        ("cleanup.policy", "delete", ""),
        ("num.partitions", "3600000", ""),
    ],
)
def test_value_is_shown_in_a_unit(name: str, value: str, text: str) -> None:
    """By the last word of the setting's name; exact ones without \"about\"."""
    assert friendly(name, value) == text


@given(st.integers(1, 10_000), st.sampled_from(["second", "minute", "hour", "day"]))
def test_exact_unit_is_read_back(count: int, word: str) -> None:
    """Text that a page shows can be typed."""
    value = parsed_value("retention.ms", f"{count} {word}s")

    shown = friendly("retention.ms", value)

    assert shown.startswith("about") or parsed_value("retention.ms", shown) == value


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", "5", "5"),
        ("retention.ms", "-1", "-1"),
        ("segment.bytes", "64 MiB", "67108864"),
        ("segment.bytes", "64 MB", "64000000"),
        ("cleanup.policy", "compact", "compact"),
    ],
)
def test_unit_of_the_form_is_converted(name: str, text: str, value: str) -> None:
    """Other texts are left to the setting's own check."""
    assert parsed_value(name, text) == value


def test_unit_of_another_setting_is_refused() -> None:
    """Days of bytes."""
    with pytest.raises(IllegalArgumentError, match=r"'days' is not a unit; segment\.bytes takes b, kb"):
        parsed_value("segment.bytes", "7 days")
