"""Charts: rates by step, the largest lines by name, and what is unknown."""

from hypothesis import given
from hypothesis import strategies as st

from kafkalike.log.topic.write_history import WriteVolume
from kafkalike.ui.charts import MINUTE_MS, MOST_LINES, POINTS, Chart, levels, rates, starts_of, step_of, write_charts

HOUR = 60 * MINUTE_MS


def chart(counts: dict[str, list[float]], now_ms: int, **since: int) -> Chart:
    """Rates of counts by minutes that end now."""
    starts = starts_of(now_ms, max(map(len, counts.values()), default=1) * MINUTE_MS)
    return rates(counts, starts, now_ms=now_ms, title="t", unit="records/s", nothing="Nothing.", since_ms=since)


def test_counts_of_a_step_are_shown_per_second() -> None:
    """The last step has not ended: it is averaged over the time that has passed."""
    made = chart({"orders": [120, 0, 60]}, now_ms=10 * MINUTE_MS + 30_000)

    assert list(made.times) == [8 * MINUTE_MS, 9 * MINUTE_MS, 10 * MINUTE_MS]
    assert [(line.name, list(line.values)) for line in made.lines] == [("orders", [2.0, 0.0, 2.0])]
    assert (made.kind, made.step_seconds) == ("bars", 60.0)


def test_small_lines_are_added_up_and_silent_ones_left_out() -> None:
    """The largest keep their names, ordered by their sums."""
    made = chart({f"t{number}": [number] for number in range(8)}, now_ms=MINUTE_MS)

    assert [line.name for line in made.lines] == ["t7", "t6", "t5", "t4", "t3", "all others (2)"]
    assert made.lines[-1].values == [3.0]


def test_steps_before_the_known_commits_are_unknown() -> None:
    """Which is not nothing."""
    made = chart({"t": [0, 0, 60]}, now_ms=3 * MINUTE_MS - 1, t=MINUTE_MS + 1)

    assert made.lines[0].values == [None, 0.0, 60 / 59.999]


def test_without_counts_there_is_nothing_to_draw() -> None:
    """Only a sentence."""
    made = chart({"t": [0, 0]}, now_ms=HOUR)

    assert (list(made.times), made.nothing) == ([], "Nothing.")


def test_records_and_bytes_have_a_chart_each() -> None:
    """Of the same steps."""
    starts = starts_of(2 * MINUTE_MS - 1, 2 * MINUTE_MS)

    records, size = write_charts({"t": [WriteVolume(60, 600), WriteVolume(0, 0)]}, {}, starts, 2 * MINUTE_MS)

    assert [(one.unit, list(one.lines[0].values)) for one in (records, size)] == [
        ("records/s", [1.0, 0.0]),
        ("B/s", [10.0, 0.0]),
    ]


def test_levels_share_their_times() -> None:
    """A line without a figure at a time has a gap there."""
    made = levels({"a": {1: 5.0, 2: 6.0}, "b": {2: 9.0}}, step_ms=1, title="Lag", unit="offsets")

    assert list(made.times) == [1, 2]
    assert [(line.name, list(line.values)) for line in made.lines] == [("b", [None, 9.0]), ("a", [5.0, 6.0])]


@given(st.integers(1, 8 * 24 * 60), st.integers(8 * 24 * 60 * MINUTE_MS, 2**42))
def test_a_chart_has_few_steps_of_whole_minutes_up_to_now(minutes: int, now_ms: int) -> None:
    """Whatever its span is."""
    starts = starts_of(now_ms, minutes * MINUTE_MS)

    assert starts.step == step_of(minutes * MINUTE_MS)
    assert (starts.step % MINUTE_MS, starts[0] % starts.step) == (0, 0)
    assert 1 <= len(starts) <= POINTS
    assert starts[-1] <= now_ms < starts[-1] + starts.step


@given(
    st.integers(1, 9).flatmap(
        lambda n: st.dictionaries(
            st.text(max_size=3), st.lists(st.integers(0, 99), min_size=n, max_size=n), min_size=1, max_size=9
        )
    )
)
def test_no_count_is_lost(counts: dict[str, list[float]]) -> None:
    """The rates times the length of the steps are all counts."""
    steps = len(next(iter(counts.values())))
    made = chart(counts, now_ms=99 * MINUTE_MS - 1)

    shown = sum(value or 0 for line in made.lines for value in line.values) * made.step_seconds
    assert len(made.lines) <= MOST_LINES + 1
    assert abs(shown - sum(sum(row) for row in counts.values())) < 1
    assert len(made.times) in {0, steps}
