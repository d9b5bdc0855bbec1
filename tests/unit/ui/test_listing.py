"""Listings: rows sorted by a column of the address, in pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from kafkalike.errors import IllegalArgumentError
from kafkalike.ui.page_request import figure_text, listing, rate_text

Row = tuple[str, int | None]

ROWS: list[Row] = [("b", 2), ("a", None), ("c", 7), ("d", 2)]


def asked(query: str) -> Request:
    """A request with a query."""
    return Request({"type": "http", "query_string": query.encode(), "headers": []})


def names(query: str, most: int = 10) -> str:
    """The names of the rows of the page."""
    found = listing(asked(query), ROWS, {"name": lambda row: row[0], "size": lambda row: row[1]}, most)
    return "".join(name for name, _ in found.rows)


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", "abcd"),
        ("dir=desc", "dcba"),
        ("sort=size", "bdca"),
        ("sort=size&dir=desc", "cbda"),
        ("sort=size&page=2", "ca"),
        ("page=99", "cd"),
    ],
    ids=["first column", "descending", "unknown last", "unknown last descending", "second page", "past the end"],
)
def test_rows_are_sorted_by_the_column_of_the_address(query: str, shown: str) -> None:
    """Equal rows by the first column; those without a value come last in both directions."""
    assert names(query, 2 if "page" in query else 10) == shown


def test_an_unknown_column_is_refused() -> None:
    """With the names of the columns."""
    with pytest.raises(IllegalArgumentError, match="sort must be name, size, not 'moon'"):
        names("sort=moon")


@given(st.lists(st.integers(0, 9)), st.integers(1, 4))
def test_pages_have_each_row_once(rows: list[int], most: int) -> None:
    """Whatever their number."""
    pages = listing(asked(""), rows, {"value": lambda row: row}, most).pages

    shown = [
        row
        for at in range(1, pages + 1)
        for row in listing(asked(f"page={at}"), rows, {"value": lambda row: row}, most).rows
    ]

    assert shown == sorted(rows)


@pytest.mark.parametrize(
    ("rate", "text"),
    [(0, "0"), (0.004, "<0.01"), (0.0123, "0.0123"), (3.14159, "3.14"), (99.96, "100"), (12345.6, "12\u202f346")],
)
def test_rates_have_three_digits(rate: float, text: str) -> None:
    """And no exponents."""
    assert rate_text(rate) == text


def test_figures_have_their_unit() -> None:
    """Bytes with a prefix."""
    assert figure_text(2_500_000, "B/s") == "2.5 MB/s"
    assert figure_text(1200, "records/s") == "1\u202f200"
    assert figure_text(0.25, "records/s") == "0.25"
