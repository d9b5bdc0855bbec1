"""The pure rules of what goes: runs of offsets, fingerprints, certificates, tombstones, undone appends."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.maintenance.record_removal import (
    Certificate,
    FileHash,
    GroupPast,
    KeyFound,
    Taking,
    TopicForgotten,
    VersionMade,
    count,
    digest,
    fingerprint,
    groups_past,
    joined,
    parse_certificate,
    plan_undo,
    runs_of,
    tombstones_wanted,
    within,
)

OFFSETS = st.integers(0, 40)
RANGES = st.builds(lambda start, length: range(start, start + length), OFFSETS, st.integers(0, 9))


def among(runs: tuple[range, ...]) -> set[int]:
    return {offset for run in runs for offset in run}


@given(st.sets(OFFSETS))
def test_runs_hold_exactly_the_offsets_and_never_touch(offsets: set[int]) -> None:
    runs = runs_of(offsets)

    assert among(runs) == offsets
    assert count(runs) == len(offsets)
    assert all(before.stop < after.start for before, after in pairwise(runs))


@given(st.lists(RANGES), st.lists(RANGES))
def test_joined_runs_are_those_of_both(some: list[range], others: list[range]) -> None:
    assert joined(some, others) == runs_of(among(tuple(some)) | among(tuple(others)))


@given(st.lists(RANGES), RANGES)
def test_the_part_within_a_range_has_all_that_is_in_both(runs: list[range], bounds: range) -> None:
    assert among(within(runs, bounds)) == among(tuple(runs)) & set(bounds)


def test_what_was_appended_later_stays_and_so_does_what_is_spared() -> None:
    taking = Taking(below=10, keys=frozenset({b"k", b""}), offsets=(range(3, 5),), spared=frozenset({7}))

    assert [offset for offset in range(12) if taking.takes(offset, b"k")] == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert [offset for offset in range(12) if taking.takes(offset, b"other")] == [3, 4]
    assert [offset for offset in range(12) if taking.takes(offset, None)] == [3, 4]
    assert taking.takes(0, b"")


def test_a_fingerprint_is_of_salt_and_key_and_the_digest_of_all_in_any_order() -> None:
    """HMAC-SHA256, as RFC 4231's second case has it."""
    known = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"

    assert fingerprint(b"Jefe", b"what do ya want for nothing?") == known
    assert digest(["b", "a"]) == digest(["a", "b"]) != digest(["ab"])


def test_a_key_whose_only_record_is_a_tombstone_gets_no_other() -> None:
    found = {
        b"live": KeyFound(records=2, last=5, is_tombstone=False),
        b"dead": KeyFound(records=2, last=6, is_tombstone=True),
        b"told": KeyFound(records=1, last=7, is_tombstone=True),
    }

    assert tombstones_wanted(found) == {b"live": True, b"dead": True, b"told": False}


def test_an_undone_append_leaves_out_what_is_below_the_log_start() -> None:
    plan = plan_undo({0: range(5, 10), 1: range(4), 2: range(7, 9), 3: range(2)}, {0: 7, 1: 4})

    assert plan.takes == {0: (range(7, 10),), 2: (range(7, 9),), 3: (range(2),)}
    assert plan.below_start == 6


def test_groups_that_have_read_what_is_undone_are_named() -> None:
    committed = {"ahead": {0: 9}, "within": {0: 6, 1: 0}, "behind": {0: 5}, "elsewhere": {2: 4}, "other": {1: 1}}

    past = groups_past("t", {0: (range(5, 8),), 1: (range(1),)}, committed)

    assert past == [
        GroupPast(group_id="ahead", topic="t", partition=0, committed=9, read=3),
        GroupPast(group_id="other", topic="t", partition=1, committed=1, read=1),
        GroupPast(group_id="within", topic="t", partition=0, committed=6, read=1),
    ]


# --- certificates ----------------------------------------------------------------------------------

HASH = FileHash(path="partition=0/a.parquet", size=3, sha256="00")
SALT = b"salt"
CERTIFICATE = Certificate(
    run="r",
    root="/root",
    began_ms=1,
    who="ann@db1",
    reason="asked",
    salt=SALT,
    fingerprints=(fingerprint(SALT, b"a"), fingerprint(SALT, b"b")),
    finished=True,
    ended_ms=2,
    gone_after_ms=3,
    open_transactions=("x",),
    copies=("y",),
    topics=(
        TopicForgotten(
            topic="t",
            topic_id="id",
            location="t~1",
            looked_at={0: 9},
            versions=(VersionMade(version=4, partition=0, removed=(HASH,), added=(), offsets=(range(1, 3),)),),
            tombstones={0: (range(9, 10),)},
            source="s",
        ),
    ),
)


def test_a_certificate_comes_back_from_its_file_and_has_no_key_in_it() -> None:
    text = CERTIFICATE.to_json()

    assert parse_certificate(text) == CERTIFICATE
    assert CERTIFICATE.topics[0].records == 2


def test_a_certificate_comes_back_with_all_that_a_run_may_say() -> None:
    """Where all of a topic was looked at, what was made of it and from it, and what nobody could read there."""
    added = FileHash(path="partition=0/b.parquet", size=2, sha256="11")
    made = replace(CERTIFICATE.topics[0].versions[0], added=(added,))
    whole = replace(
        CERTIFICATE,
        topics=(replace(CERTIFICATE.topics[0], source=None, versions=(made,)),),
        origins=("o", "p"),
        held={"o": 0, "p": None, "y": 7},
    )
    text = whole.to_json()

    assert parse_certificate(text) == whole
    said = json.loads(text)
    assert (said["origins"], said["held"]) == (["o", "p"], {"o": 0, "p": None, "y": 7})
    assert said["topics"][0]["records"] == 2
    assert len(text.splitlines()) > 40, "people read it"


def test_a_certificate_of_an_older_release_says_nothing_of_origins() -> None:
    said = json.loads(CERTIFICATE.to_json())
    del said["origins"], said["held"]

    assert parse_certificate(json.dumps(said)) == CERTIFICATE


def test_what_is_done_to_a_topic_takes_the_place_of_what_was_known_of_it() -> None:
    """A run puts its certificate after each version that it makes."""
    first = CERTIFICATE.topics[0]
    other = replace(first, topic_id="other", topic="u")
    further = replace(first, versions=(*first.versions, *first.versions))

    both = CERTIFICATE.with_topic(other)
    again = both.with_topic(further)

    assert both.topics == (first, other)
    assert again.topics == (other, further)
    assert (again.topic("id"), again.topic("other"), again.topic("nobody")) == (further, other, None)


def test_a_certificate_knows_its_keys_and_no_others() -> None:
    assert CERTIFICATE.about([b"b", b"a", b"a"])
    assert not CERTIFICATE.about([b"a"])
    assert not CERTIFICATE.about([b"a", b"b", b"c"])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"kind": "kafkalike', '"kind": "other', "^the file is not a certificate of kafkalike$"),
        ('"format": 1', '"format": 2', "format 2"),
        ('"salt": "73616c74"', '"salt": "zz"', "damaged"),
        (
            '"digest": "',
            '"digest": "0',
            "^the certificate was changed: its fingerprints do not match its digest$",
        ),
        ("partition=0/a.parquet", "/etc/passwd", "not a file of a topic"),
        ("partition=0/a.parquet", "partition=0/../../x", "not a file of a topic"),
        ("partition=0/a.parquet", "partition=0\\\\..\\\\x", "not a file of a topic"),
        ("partition=0/a.parquet", "a\\u0000b", "not a file of a topic"),
        ('"t~1"', '"../t"', "not a file of a topic"),
        ('"versions": [', '"versions": 3, "x": [', "damaged"),
    ],
)
def test_a_certificate_that_somebody_has_changed_is_refused_by_name(old: str, new: str, said: str) -> None:
    text = CERTIFICATE.to_json()
    assert old in text

    with pytest.raises(IllegalArgumentError, match=said):
        parse_certificate(text.replace(old, new))


@pytest.mark.parametrize("text", ["", "[]", "{}", "nothing", "[" * 100_000])
def test_what_is_no_certificate_is_refused_by_name(text: str) -> None:
    with pytest.raises(IllegalArgumentError, match="certificate"):
        parse_certificate(text)
