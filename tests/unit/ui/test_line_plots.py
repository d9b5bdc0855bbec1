"""Layout of line plots."""

from hypothesis import given
from hypothesis import strategies as st

from kafkalike.ui.page_request import HEIGHT, WIDTH, line, thinned


def test_a_line_runs_from_edge_to_edge() -> None:
    """Zero is in the picture, and the largest value touches its top."""
    found = line([(1000, 5.0), (2000, 10.0), (3000, 0.0)])

    assert found is not None
    assert found.points == "0.0,60.0 300.0,0.0 600.0,120.0"
    assert (found.lowest, found.highest, found.latest) == (0.0, 10.0, 0.0)


def test_a_line_needs_two_moments() -> None:
    """Otherwise there is nothing to draw."""
    assert line([]) is None
    assert line([(1, 2.0)]) is None
    assert line([(1, 2.0), (1, 3.0)]) is None


@given(st.lists(st.tuples(st.integers(0, 2**42), st.floats(0, 1e15)), min_size=2, max_size=50))
def test_no_point_leaves_the_picture(points: list[tuple[int, float]]) -> None:
    """Whatever the values."""
    found = line(sorted(points))

    if found is not None:
        for pair in found.points.split():
            x, y = (float(part) for part in pair.split(","))
            assert 0 <= x <= WIDTH
            assert 0 <= y <= HEIGHT


@given(st.integers(0, 2000), st.integers(2, 500))
def test_thinned_points_keep_their_ends_and_order(count: int, most: int) -> None:
    """And are no more than asked for."""
    points = [(at, float(at)) for at in range(count)]
    found = list(thinned(points, most))

    assert len(found) <= max(most, 0) or count <= most
    assert found == sorted(found)
    assert found[:1] == points[:1]
    assert found[-1:] == points[-1:]
