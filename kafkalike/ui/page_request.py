"""Page requests: read and check parameters of a request, render templates, and lay out line plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.clock import utc_text
from kafkalike.ui.access_control import AccessControl
from kafkalike.ui.cluster_view import ConsoleView
from kafkalike.ui.value_tree import shown, shown_briefly
from kafkalike.version import __version__

MOST: Final = 500
"""Rows of a page, whatever a request asks for."""

Row = TypeVar("Row")

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_STEP: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What all pages need."""

    view: ConsoleView
    access: AccessControl
    templates: Environment


def templates() -> Environment:
    """Templates that escape whatever is put into them."""
    made = Environment(
        loader=PackageLoader("kafkalike.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(time=time_text, size=size_text, number=number_text, seconds=seconds_text)
    made.filters.update(shown=shown, brief=shown_briefly)
    return made


def site(request: Request) -> Site:
    """The console that a request has come to."""
    found: Site = request.app.state.site
    return found


def page(request: Request, template: str, status: int = 200, /, **values: Any) -> Response:  # noqa: ANN401
    """A page.

    Args:
        request: which asks for it.
        template: its file.
        status: of the answer.
        values: what the template needs.
    """
    here = site(request)
    text = here.templates.get_template(template).render(
        change_key=here.access.change_key(),
        read_only=here.access.read_only,
        root=here.view.cluster.root,
        path=request.url.path,
        sql_here=here.view.queries is not None,
        version=__version__,
        query=lambda **changed: _query(request, changed),
        **values,
    )
    return HTMLResponse(text, status, headers={"cache-control": "no-store"})


def moved(path: str, said: str = "", **query: object) -> Response:
    """A redirect to another page, after a change.

    Args:
        path: of this console.
        said: what that page tells the user was done.
        query: of the address.
    """
    told = {name: str(value) for name, value in query.items()} | ({"said": said} if said else {})
    return RedirectResponse(f"{path}?{urlencode(told)}" if told else path, 303)


def query_parameter(request: Request, name: str, default: str = "") -> str:
    """A value of the address."""
    return request.query_params.get(name, default).strip()


def number(request: Request, name: str, default: int, most: int = 2**63 - 1) -> int:
    """A whole number of the address, from 0 on.

    Raises:
        IllegalArgumentError: it is none, or too large.
    """
    return whole(name, query_parameter(request, name), default, most)


def paged(request: Request, rows: Sequence[Row], most: int, default: int = 1) -> tuple[Sequence[Row], int, int]:
    """The rows of the page that the address asks for, its number, and how many pages there are.

    Args:
        request: has the number as `page`; one that is too large is the last one.
        rows: of all pages.
        most: rows of a page.
        default: the page where the address names none.
    """
    pages = max(1, -(-len(rows) // most))
    at = min(max(1, number(request, "page", default)), pages)
    return rows[(at - 1) * most : at * most], at, pages


def optional(request: Request, name: str) -> int | None:
    """A whole number of the address, from 0 on; None when it is not given.

    Raises:
        IllegalArgumentError: it is none.
    """
    text = query_parameter(request, name)
    return None if not text else whole(name, text, 0)


def whole(name: str, text: str, default: int, most: int = 2**63 - 1) -> int:
    """A text as a whole number from 0 on.

    Args:
        name: of the field, for the error.
        text: what the user gave; empty takes the default.
        default: see `text`.
        most: the largest.

    Raises:
        IllegalArgumentError: it is none, or too large.
    """
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= most):  # noqa: PLR2004 - 64 bits
        raise IllegalArgumentError(f"{name}: a whole number from 0 to {most} is needed, not {text[:40]!r}")
    return int(text)


def form(request: Request) -> Mapping[str, str]:
    """The fields of a form that was sent; of several with one name, the last."""
    found: Mapping[str, str] = request.scope["kafkalike.form"]
    return found


def moment(name: str, text: str) -> int:
    """A moment that a user gave, in ms since the epoch.

    Args:
        name: of the field, for the error.
        text: ISO 8601, UTC where it does not say; or milliseconds.

    Raises:
        IllegalArgumentError: it is neither, or before the epoch: numbers below 0 mean other things than times.
    """
    if text.isascii() and text.isdecimal() and len(text) < 16:  # noqa: PLR2004 - years that can be shown
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise IllegalArgumentError(f"{name}: a time such as 2026-01-31T12:00:00 is needed, not {text[:40]!r}") from None
    ms = int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
    if ms < 0:
        raise IllegalArgumentError(f"{name}: a time from 1970 on is needed, not {text[:40]!r}")
    return ms


def _query(request: Request, changed: Mapping[str, object]) -> str:
    """The query of a request with some values changed; None takes one away."""
    kept = {name: value for name, value in request.query_params.items() if name != "said"}
    kept.update({name: "" if value is None else str(value) for name, value in changed.items()})
    return "?" + urlencode({name: value for name, value in kept.items() if value != ""})


def time_text(ms: int | None) -> str:
    """A time in UTC; a dash for none."""
    if ms is None:
        return "-"
    try:
        return utc_text(ms)
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def size_text(count: float) -> str:
    """Bytes in the unit that suits them."""
    unit = 0
    while count >= _STEP and unit < len(_UNITS) - 1:
        count, unit = count / _STEP, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def number_text(count: float) -> str:
    """A number with thin spaces between thousands."""
    return f"{count:,}".replace(",", "\u202f")


def seconds_text(ms: float) -> str:
    """A span of time for people."""
    seconds = ms / 1000
    for unit, span in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= span * 2:
            return f"{seconds / span:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds else "0 s"


WIDTH: Final = 600.0
HEIGHT: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePlot:
    """A line in a picture of `WIDTH` x `HEIGHT`, with the values at its edges."""

    points: str
    """As the `points` of an SVG polyline."""
    lowest: float
    highest: float
    first_ms: int
    last_ms: int
    latest: float


def line(points: Sequence[tuple[int, float]]) -> LinePlot | None:
    """The line through points.

    Args:
        points: time (ms) and value, in order of time.

    Returns:
        None for fewer than two moments: there is nothing to draw.
    """
    if len(points) < 2 or points[0][0] == points[-1][0]:  # noqa: PLR2004 - a line has two ends
        return None
    first, last = points[0][0], points[-1][0]
    lowest, highest = min(0.0, *(value for _, value in points)), max(value for _, value in points)
    span = (highest - lowest) or 1.0
    drawn = " ".join(
        f"{(time - first) / (last - first) * WIDTH:.1f},{HEIGHT - (value - lowest) / span * HEIGHT:.1f}"
        for time, value in points
    )
    return LinePlot(points=drawn, lowest=lowest, highest=highest, first_ms=first, last_ms=last, latest=points[-1][1])


def thinned(points: Sequence[tuple[int, float]], most: int = 400) -> Sequence[tuple[int, float]]:
    """At most so many of the points, evenly taken, the last one always."""
    if len(points) <= most:
        return points
    step = len(points) / (most - 1)
    return [points[int(at * step)] for at in range(most - 1)] + [points[-1]]
