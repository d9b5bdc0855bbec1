"""Folders of tables and of their replicas."""

import pytest

from kafkalike.delta.layout import is_folder_of, location_in
from kafkalike.model.replication.registration import Replica
from kafkalike.replication.cluster.cluster_storage import folder_of, replica_in


@pytest.mark.parametrize("location", ["t", "t~0123456789abcdef0123456789abcdef", "t~01234567890123456789012345678901"])
@pytest.mark.parametrize("life", [0, 7, 2**62])
def test_a_replicas_folder_is_told_from_others(location: str, life: int) -> None:
    folder = folder_of(location, Replica(3, life))

    assert is_folder_of(folder, location)
    assert replica_in(folder, location, 3) == Replica(3, life)
    assert location_in(folder) == location
    others = ["", "t~", f"{location}x", f"x{location}", f"{location}~", f"{location}~x", f"{location}~7x"]
    assert not any(is_folder_of(other, location) for other in others)


def test_a_later_topic_of_the_name_is_another_table() -> None:
    """Its folder has an id of 32 characters, which may all be digits; a life has 19 at most."""
    assert not is_folder_of("t~01234567890123456789012345678901", "t")
