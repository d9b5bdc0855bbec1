"""Charts: rates by step, the largest lines by name, and what is unknown."""

from hypothesis import given
from hypothesis import strategies as st

from kafkalike.ui.charts import MINUTE_MS, MOST_LINES, POINTS, levels, rates, step_of

HOUR = 60 * MINUTE_MS


def test_counts_of_a_step_are_shown_per_second() -> None:
    """The last step has not ended: it is averaged over the time that has passed."""
    now = 10 * MINUTE_MS + 30_000

    made = rates(
        {"orders": {8 * MINUTE_MS: 120, 10 * MINUTE_MS: 60}},
        now_ms=now,
        span_ms=3 * MINUTE_MS,
        title="Records written",
        unit="records/s",
    )

    assert list(made.times) == [8 * MINUTE_MS, 9 * MINUTE_MS, 10 * MINUTE_MS]
    assert [(line.name, list(line.values)) for line in made.lines] == [("orders", [2.0, 0.0, 2.0])]
    assert (made.kind, made.step_seconds) == ("bars", 60.0)


def test_a_topic_written_in_one_commit_has_one_bar() -> None:
    """However old its records are: nothing is drawn between their times."""
    made = rates({"t": {5 * MINUTE_MS: 6000}}, now_ms=9 * MINUTE_MS, span_ms=HOUR, title="t", unit="records/s")

    assert [value for value in made.lines[0].values if value] == [100.0]


def test_small_lines_are_added_up_and_silent_ones_left_out() -> None:
    """The largest keep their names, ordered by their sums."""
    counts = {f"t{number}": {0: number} for number in range(8)}

    made = rates(counts, now_ms=MINUTE_MS - 1, span_ms=MINUTE_MS, title="t", unit="records/s")

    assert [line.name for line in made.lines] == ["t7", "t6", "t5", "t4", "t3", "all others (2)"]
    assert made.lines[-1].values == [3 / 59.999]


def test_steps_before_the_known_commits_are_unknown() -> None:
    """Which is not nothing."""
    made = rates(
        {"t": {2 * MINUTE_MS: 60}},
        now_ms=3 * MINUTE_MS - 1,
        span_ms=3 * MINUTE_MS,
        title="t",
        unit="records/s",
        known_since_ms={"t": MINUTE_MS + 1},
    )

    assert made.lines[0].values == [None, 0.0, 60 / 59.999]


def test_without_counts_there_is_nothing_to_draw() -> None:
    """Only a sentence."""
    made = rates({"t": {}}, now_ms=HOUR, span_ms=HOUR, title="t", unit="B/s", nothing="No commit wrote records.")

    assert (list(made.times), made.nothing) == ([], "No commit wrote records.")


def test_levels_share_their_times() -> None:
    """A line without a figure at a time has a gap there."""
    made = levels({"a": {1: 5.0, 2: 6.0}, "b": {2: 9.0}}, step_ms=1, title="Lag", unit="offsets")

    assert list(made.times) == [1, 2]
    assert [(line.name, list(line.values)) for line in made.lines] == [("b", [None, 9.0]), ("a", [5.0, 6.0])]


@given(st.integers(1, 8 * 24 * 60))
def test_a_chart_has_few_points(minutes: int) -> None:
    """Whatever its span is, and whole minutes between them."""
    step = step_of(minutes * MINUTE_MS)

    assert step % MINUTE_MS == 0
    assert minutes * MINUTE_MS / step <= POINTS


@given(st.dictionaries(st.text(max_size=3), st.dictionaries(st.integers(0, 89), st.integers(1, 99)), max_size=9))
def test_no_count_is_lost(by_minute: dict[str, dict[int, int]]) -> None:
    """The rates times the length of the steps are all counts of the span."""
    counts = {name: {at * MINUTE_MS: float(n) for at, n in found.items()} for name, found in by_minute.items()}

    made = rates(counts, now_ms=90 * MINUTE_MS - 1, span_ms=90 * MINUTE_MS, title="t", unit="records/s")

    shown = sum(value or 0 for line in made.lines for value in line.values) * made.step_seconds
    assert len(made.lines) <= MOST_LINES + 1
    assert abs(shown - sum(n for found in by_minute.values() for n in found.values())) < 1
