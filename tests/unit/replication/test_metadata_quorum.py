"""Who decides about the metadata, as a value."""

import pytest

from kafkalike.model.replication.quorum_protocol import MetadataQuorum, QuorumMember


def member(broker: int, version: int | None, *, votes: bool = True, time_ms: int | None = None) -> QuorumMember:
    return QuorumMember(broker=broker, uri=f"/r{broker}", id="x", votes=votes, version=version, time_ms=time_ms)


def quorum(*members: QuorumMember) -> MetadataQuorum:
    return MetadataQuorum(cluster_id="c", epoch=1, members=members)


def test_the_log_end_is_kafkas() -> None:
    assert (member(1, 7).log_end, member(1, 0).log_end, member(1, None).log_end) == (8, 1, -1)


def test_the_newest_version_is_that_of_anybody_in_reach() -> None:
    """Of one that only has a copy, too."""
    assert quorum(member(1, 4), member(2, None), member(3, 6, votes=False)).version == 6
    assert quorum(member(1, None)).version == -1
    assert quorum().version == -1


def test_who_has_the_newest_version_says_since_when() -> None:
    late, newest, silent = member(1, 4, time_ms=10), member(2, 5, time_ms=20), member(3, None)
    found = quorum(late, newest, silent)

    assert [found.caught_up_ms(one) for one in (late, newest, silent)] == [None, 20, None]


@pytest.mark.parametrize(
    ("versions", "majority"),
    [
        ([1, 1, 1], True),
        ([1, 1, None], True),
        ([1, None, None], False),
        ([1, 1, None, None], False),
        ([1], True),
        ([None], False),
        ([], False),
    ],
)
def test_a_majority_of_the_voters_decides(versions: list[int | None], majority: bool) -> None:  # noqa: FBT001
    """A copy has no vote."""
    voters = [member(nth, version) for nth, version in enumerate(versions)]

    assert quorum(*voters, member(98, 1, votes=False), member(99, None, votes=False)).majority is majority
