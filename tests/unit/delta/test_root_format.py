"""The number that a root says: known, unknown, or none."""

import pytest

from kafkalike.delta.layout import ROOT_FORMAT, check_root_format
from kafkalike.errors import LogCorruptError, UnsupportedVersionError


@pytest.mark.parametrize("properties", [{}, {"delta.appendOnly": "true"}, {ROOT_FORMAT: "1"}])
def test_a_root_of_format_1_is_known(properties: dict[str, str]) -> None:
    """One that says nothing is of that format."""
    check_root_format("root", properties)


@pytest.mark.parametrize("said", ["3", "10", "99999999999999999999"])
def test_a_newer_format_is_refused_by_name(said: str) -> None:
    with pytest.raises(UnsupportedVersionError) as refused:
        check_root_format("s3://bucket/log", {ROOT_FORMAT: said})

    assert str(refused.value) == (
        f"the root s3://bucket/log has format {said} (kafkalike.root.format in __cluster_metadata), and this release "
        "knows formats up to 2: a newer kafkalike has written it; upgrade this client"
    )


@pytest.mark.parametrize("said", ["0", "-1", "1.0", "", "one", "03", " 1", "1\n", "+1", "1_0", "\u0661", "\u00b2"])
def test_what_is_no_format_is_damage_and_no_newer_release(said: str) -> None:
    """Upgrading the client would not help."""
    with pytest.raises(LogCorruptError, match="the root s3://bucket/log is damaged") as refused:
        check_root_format("s3://bucket/log", {ROOT_FORMAT: said})

    assert f"is {said!r}, and formats are whole numbers from 1" in str(refused.value)
    assert "newer" not in str(refused.value)


def test_a_root_that_is_one_of_several_by_now_is_for_those_who_know_it() -> None:
    check_root_format("root", {ROOT_FORMAT: "2"}, several=True)
    with pytest.raises(UnsupportedVersionError, match=r"root has several roots \(`kafkalike brokers add`\)"):
        check_root_format("root", {ROOT_FORMAT: "2"})
