"""Sessions: who is taken for dead, and who must not be."""

from kafkalike.model.groups.roster import Member
from kafkalike.model.groups.sessions import Sessions, Silence

SECOND = 1_000_000_000
QUIET = Member(member_id="quiet", session_timeout_ms=10_000, heartbeat_interval_ms=1000)


def watch(stamps: list[int | None], own: list[int] | None = None, step: float = 1.0) -> list[float]:
    """Look at one member at steady intervals; returns when it was taken for dead, in seconds from the first look.

    Args:
        stamps: its last heartbeat at each look.
        own: the observer's own one; None for a storage whose clock stands still.
        step: seconds between two looks.
    """
    sessions = Sessions(interval_s=step)
    found = []
    for nth, stamp in enumerate(stamps):
        known = {} if stamp is None else {"quiet": stamp}
        if sessions.observe(100 + nth * step, [QUIET], known, None if own is None else own[nth]):
            found.append(nth * step)
    return found


def test_a_member_is_dead_when_it_was_quiet_for_its_session() -> None:
    """On the observer's own clock, from the first look on, whatever its heartbeat says."""
    assert watch([77] * 12) == [10, 11]


def test_a_member_that_gives_signs_of_life_lives_whatever_the_clocks_say() -> None:
    """Its storage's clock may be a day behind, and go back."""
    assert watch([5 - nth for nth in range(30)], [86_400 * SECOND] * 30) == []


def test_a_member_that_was_dead_before_anybody_looked_is_not_waited_for() -> None:
    """Older than the session by the storage's clock: two heartbeat intervals without another sign are enough."""
    assert watch([0] * 4, [3600 * SECOND] * 4) == [2, 3]


def test_a_clock_that_is_set_forward_kills_nobody_who_lives() -> None:
    """An hour passes at once by the storage's clock, and the member's next heartbeat comes in time."""
    hour = 3600 * SECOND

    assert watch([0, 0, hour + SECOND, hour + 2 * SECOND], [0, hour, hour + SECOND, hour + 2 * SECOND]) == []


def test_a_member_without_any_heartbeat_is_given_two_of_them() -> None:
    """Its lease was lost or never written."""
    assert watch([None] * 4, [0] * 4) == [2, 3]


def test_an_observer_that_was_stopped_itself_begins_anew() -> None:
    """It saw nothing while it was stopped, so it cannot say that others were quiet."""
    sessions = Sessions(interval_s=1)
    stamps = {"quiet": 7}
    sessions.observe(100, [QUIET], stamps, None)

    after_a_stop = sessions.observe(160, [QUIET], stamps, None)
    later = [sessions.observe(160 + nth, [QUIET], stamps, None) for nth in range(1, 11)]

    assert after_a_stop == []
    assert later == [[]] * 9 + [["quiet"]]


def test_an_observer_that_looks_late_three_intervals_after_is_not_taken_for_stopped() -> None:
    """A little more, and what it has not seen counts for nothing."""
    brief = Member(member_id="brief", session_timeout_ms=3000, heartbeat_interval_ms=1000)
    found = []
    for gap in (3.0, 3.5):
        sessions = Sessions(interval_s=1)
        sessions.observe(100, [brief], {"brief": 7}, None)
        found.append(sessions.observe(100 + gap, [brief], {"brief": 7}, None))

    assert found == [["brief"], []]


def test_a_session_is_over_to_the_millisecond() -> None:
    """And not a moment before."""
    sessions = Sessions(interval_s=5)
    sessions.observe(100, [QUIET], {"quiet": 7}, None)

    assert sessions.observe(109.995, [QUIET], {"quiet": 7}, None) == []
    assert sessions.observe(110, [QUIET], {"quiet": 7}, None) == ["quiet"]


def test_a_group_is_lively_when_somebody_gave_a_sign_while_he_was_watched() -> None:
    """What was there at the first look may be as old as the table."""
    sessions = Sessions(interval_s=1)
    seen = [sessions.lively]

    for nth, stamp in enumerate([7, 7, 8, 8]):
        sessions.observe(100 + nth, [QUIET], {"quiet": stamp}, None)
        seen.append(sessions.lively)

    assert seen == [False, False, False, True, True]


def test_a_short_session_is_over_though_its_observer_looks_seldom() -> None:
    """The observer's own interval is longer than the session of the one it looks at."""
    assert watch([7] * 2, step=30) == [30]


def test_an_observer_that_is_held_up_between_its_clock_and_the_files_kills_nobody_too_early() -> None:
    """What it reads may be as young as the end of its reading, and as old as the begin of the next one."""
    sessions = Sessions(interval_s=5)
    sessions.observe(100, [QUIET], {"quiet": 7}, None, read_by=103)

    in_time = sessions.observe(112.9, [QUIET], {"quiet": 7}, None, read_by=120)
    late = sessions.observe(121, [QUIET], {"quiet": 7}, None, read_by=121)

    assert (in_time, late) == ([], ["quiet"])


def test_a_storage_clock_that_goes_in_steps_kills_nobody_too_early() -> None:
    """A heartbeat looks older than it is by up to one step."""
    step = 4_000_000

    assert watch([0] * 4, [0, 0, 10 * SECOND + step, 11 * SECOND]) == [3]
    assert watch([0] * 3, [0, 0, 10 * SECOND + 5 * step]) == [2]


def test_who_was_heard_of_is_remembered_until_he_is_no_member() -> None:
    """The next check is due when the first session could be over; members that are gone are forgotten."""
    sessions = Sessions(interval_s=1)
    other = Member(member_id="other", session_timeout_ms=4000)
    sessions.observe(100, [QUIET], {"quiet": 7}, None)
    sessions.observe(101, [QUIET, other], {"quiet": 7}, None)

    both = sessions.next_check([QUIET, other])
    sessions.observe(102, [QUIET], {"quiet": 8}, None)

    assert both == 105
    assert sessions.next_check([QUIET, other]) == 112
    assert sessions.next_check([]) is None
    assert sessions.lively


def test_silence_is_told_after_two_heartbeat_intervals_and_until_the_session_expires() -> None:
    """How long ago the last heartbeat was is the storage's word, if it says more than the observer saw."""
    sessions = Sessions(interval_s=1)
    found = []
    for nth in range(4):
        sessions.observe(100 + nth, [QUIET], {"quiet": 5 * SECOND}, (8 + nth) * SECOND)
        found.append(sessions.silences([QUIET]))

    assert found == [[], [], [Silence("quiet", 5000, 5020)], [Silence("quiet", 6000, 4020)]]


def test_silence_of_a_member_without_any_heartbeat_counts_from_the_first_look() -> None:
    """Its lease was lost, and the storage's time is unknown."""
    sessions = Sessions(interval_s=1)
    for nth in range(3):
        sessions.observe(100 + nth, [QUIET], {}, None)

    assert sessions.silences([QUIET]) == [Silence("quiet", 2000, 8000)]


def test_silence_of_a_member_whose_session_is_over_is_not_told() -> None:
    """Another line says that it was removed."""
    sessions = Sessions(interval_s=5)
    for nth in range(3):
        sessions.observe(100 + 5 * nth, [QUIET], {"quiet": 7}, None)

    assert sessions.silences([QUIET]) == []
