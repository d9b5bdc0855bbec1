"""What may be done about a folder that no topic has, by the metadata and by what lies in it."""

import pytest

from kafkalike.log.cluster.topic_folders import UNDER_WAY_MS, Fate, Found, fate_of, location_of, suspects
from kafkalike.model.cluster_state import ClusterState, topic_row
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.topic import TopicInfo

RANDOM = "0123456789abcdef0123456789abcdef"
LATER = f"t~{RANDOM}"
OTHER = f"t~{RANDOM[::-1]}"


def lives(*topics: tuple[str, str, str, bool]) -> ClusterState:
    """A state of rows: name, id, location, deleted."""
    rows = [
        topic_row(
            seq,
            seq,
            TopicInfo(
                name=TopicName(name),
                topic_id=TopicId(topic_id),
                location=location,
                num_partitions=1,
                configs={},
                created_ms=1,
            ),
            "",
            deleted=deleted,
        )
        for seq, (name, topic_id, location, deleted) in enumerate(topics, start=1)
    ]
    return ClusterState().applied(rows)


LIVE = lives(("t", "1", "t", False))
GONE = lives(("t", "1", "t", True))
AGAIN = lives(("t", "1", "t", True), ("t", "2", LATER, False))
AGAIN_GONE = lives(("t", "1", "t", True), ("t", "2", LATER, True))


LONG, ALIKE = "x" * 249, "x" * 248 + "y"
CUT = f"{'x' * 200}~{RANDOM}"
"""Where a later topic lies whose name is too long for a folder with a random part: both names above may have it."""
LONG_GONE = lives((ALIKE, "1", ALIKE, False), (LONG, "2", CUT, True))


def found(folder: str, table_id: str | None, *, is_new: bool = False, age_ms: int = 0) -> Found:
    return Found(folder=folder, table_id=table_id, is_new=is_new, age_ms=age_ms)


@pytest.mark.parametrize(
    ("state", "there", "fate"),
    [
        pytest.param(LIVE, found("t", "1"), Fate.STAYS, id="a living topic's"),
        pytest.param(LIVE, found("data", "9", is_new=True, age_ms=UNDER_WAY_MS), Fate.STAYS, id="of a name never used"),
        pytest.param(GONE, found("t", "1"), Fate.GOES, id="a dead topic's"),
        pytest.param(GONE, found("t", "9", age_ms=UNDER_WAY_MS), Fate.STAYS, id="somebody else's table there"),
        pytest.param(GONE, found("t", "9", is_new=True), Fate.GOES, id="a first creation that came too late"),
        pytest.param(AGAIN, found(LATER, "2"), Fate.STAYS, id="the later life's"),
        pytest.param(AGAIN, found("t", "2"), Fate.STAYS, id="a copy of a living table"),
        pytest.param(AGAIN, found("t", "1"), Fate.STAYS, id="the first life's, whose id nobody knows any more"),
        pytest.param(AGAIN, found(OTHER, "3", is_new=True), Fate.STAYS, id="a creation under way"),
        pytest.param(
            AGAIN, found(OTHER, "3", is_new=True, age_ms=UNDER_WAY_MS), Fate.GOES_AFTER_FENCE, id="a killed creation"
        ),
        pytest.param(AGAIN, found(OTHER, "3", age_ms=UNDER_WAY_MS), Fate.STAYS, id="records of an unknown topic"),
        pytest.param(AGAIN_GONE, found(LATER, "2"), Fate.GOES, id="the dead later life's"),
        pytest.param(GONE, found("t", ""), Fate.STAYS, id="files of a late writer"),
        pytest.param(GONE, found("t", "", age_ms=UNDER_WAY_MS), Fate.GOES, id="old files of a late writer"),
        pytest.param(AGAIN, found("t", "", age_ms=UNDER_WAY_MS), Fate.GOES, id="those of an earlier life"),
        pytest.param(GONE, found("t", None, age_ms=UNDER_WAY_MS), Fate.GOES, id="an old commit of a late writer"),
        pytest.param(AGAIN, found("t", None, age_ms=UNDER_WAY_MS), Fate.STAYS, id="a log that nobody knows"),
        pytest.param(GONE, found("t", None), Fate.STAYS, id="a commit of a late writer"),
        pytest.param(LONG_GONE, found(CUT, "2"), Fate.GOES, id="a dead topic's with a long name"),
        pytest.param(LONG_GONE, found(CUT, "3"), Fate.STAYS, id="records of an unknown topic with a long name"),
        pytest.param(
            LONG_GONE, found(CUT, "3", is_new=True, age_ms=UNDER_WAY_MS), Fate.GOES_AFTER_FENCE, id="a killed long one"
        ),
        pytest.param(
            lives((LONG, "2", CUT, False)), found(CUT, "2"), Fate.STAYS, id="a living topic's with a long name"
        ),
    ],
)
def test_the_fate_of_a_folder(state: ClusterState, there: Found, fate: Fate) -> None:
    assert fate_of(state, there, {}) is fate


def test_a_mark_tells_of_lives_whose_rows_are_gone() -> None:
    assert fate_of(AGAIN, found("t", "1"), {"1": "t"}) is Fate.GOES
    assert fate_of(AGAIN, found("t", None, age_ms=UNDER_WAY_MS), {"1": "t"}) is Fate.GOES


def test_a_mark_of_a_deletion_that_never_happened_tells_nothing() -> None:
    assert fate_of(AGAIN, found(OTHER, "2", age_ms=UNDER_WAY_MS), {"2": LATER}) is Fate.STAYS


@pytest.mark.parametrize(
    ("folder", "worth"), [("t", True), (LATER, False), (OTHER, True), ("u", False), ("__cluster_metadata", False)]
)
def test_only_folders_with_the_name_of_a_used_one_are_looked_into(folder: str, worth: bool) -> None:  # noqa: FBT001
    assert bool(suspects(AGAIN, [folder])) is worth


@pytest.mark.parametrize("used_before", [False, True], ids=["first", "later"])
def test_folder_of_a_replica_of_the_longest_name_fits_into_a_file_name(used_before: bool) -> None:  # noqa: FBT001
    """File systems allow 255 bytes; a replica with a life of its own adds up to 20."""
    location = location_of(TopicName(LONG), used_before=used_before)

    assert len(location) + len(f"~{2**62}") <= 255
    assert suspects(lives((LONG, "1", "elsewhere", True)), [location]) == [location]


def test_first_topic_of_a_short_name_lies_in_the_folder_of_that_name() -> None:
    assert location_of(TopicName("orders"), used_before=False) == "orders"
    assert location_of(TopicName("x" * 200), used_before=False) == "x" * 200
