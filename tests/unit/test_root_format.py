"""The number that a root says: known, unknown, or none."""

import pytest

from kafkalike.errors import UnsupportedVersionError
from kafkalike.log.table.root_format import ROOT_FORMAT, check_root_format


@pytest.mark.parametrize("properties", [{}, {"delta.appendOnly": "true"}, {ROOT_FORMAT: "1"}])
def test_a_root_of_format_1_is_known(properties: dict[str, str]) -> None:
    """One that says nothing is of that format."""
    check_root_format("root", properties)


@pytest.mark.parametrize("said", ["3", "0", "10", "-1", "1.0", "", "one"])
def test_every_other_one_is_refused_by_name(said: str) -> None:
    with pytest.raises(UnsupportedVersionError) as refused:
        check_root_format("s3://bucket/log", {ROOT_FORMAT: said})

    assert str(refused.value) == (
        f"the root s3://bucket/log has format {said} (kafkalike.root.format in __cluster_metadata), and this release "
        "knows formats up to 2: a newer kafkalike has written it; upgrade this client"
    )


def test_a_root_that_is_one_of_several_by_now_is_for_those_who_know_it() -> None:
    check_root_format("root", {ROOT_FORMAT: "2"}, several=True)
    with pytest.raises(UnsupportedVersionError, match=r"root has several roots by now \(`kafkalike brokers add`\)"):
        check_root_format("root", {ROOT_FORMAT: "2"})
