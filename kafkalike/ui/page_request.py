"""Page requests: read and check parameters of a request, sort and page its rows, and render templates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from kafkalike.errors import AuthorizationError, BrokerResponseError, IllegalArgumentError, RetriableError
from kafkalike.model.clock import utc_text
from kafkalike.model.names import counted
from kafkalike.ui.access_control import AccessControl
from kafkalike.ui.cluster_view import ConsoleView
from kafkalike.ui.value_tree import shown, shown_briefly
from kafkalike.version import __version__

MOST: Final = 500
"""Maximum number of rows of a page."""

Row = TypeVar("Row")

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_STEP: Final = 1000


NAVIGATION: Final = (
    ("Cluster", (("Overview", "/", ()), ("Cluster", "/cluster", ("/replicas",)), ("Checks", "/checks", ()))),
    (
        "Data",
        (
            ("Topics", "/topics", ()),
            ("Schemas", "/schemas", ("/schema",)),
            ("Dead letters", "/dead-letters", ("/letters",)),
            ("SQL", "/sql", ()),
        ),
    ),
    (
        "Clients",
        (
            ("Groups", "/groups", ("/group",)),
            ("Share groups", "/share-groups", ()),
            ("Transactions", "/transactions", ()),
        ),
    ),
)
"""Links of the menu by group: text, path, and further paths that belong to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """State that all pages share."""

    view: ConsoleView
    access: AccessControl
    templates: Environment
    name: str = ""
    """Name of the cluster; empty in a console of one cluster."""
    clusters: Mapping[str, str] = field(default_factory=dict)
    """Addresses of all clusters of the console, by name."""

    @property
    def base(self) -> str:
        """Return the prefix of the paths of the cluster's pages."""
        return cluster_path(self.name) if self.name else ""


def cluster_path(name: str) -> str:
    """Return the prefix of the paths of a cluster, in a console of several."""
    return f"/clusters/{name}"


def templates() -> Environment:
    """Load the templates, with autoescape and filters."""
    made = Environment(
        loader=PackageLoader("kafkalike.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(time=time_text, size=size_text, number=number_text, seconds=seconds_text)
    made.filters.update(shown=shown, brief=shown_briefly, rate=rate_text, figure=figure_text)
    made.filters.update(counted=lambda count, noun: counted(count, noun, "\u202f"))
    return made


def site(request: Request) -> Site:
    """Return the state of the console of a request."""
    found: Site = request.app.state.site
    return found


def page(request: Request, template: str, status: int = 200, /, **values: Any) -> Response:  # noqa: ANN401
    """Render a page.

    Args:
        request: the request.
        template: file of the template.
        status: HTTP status.
        values: variables of the template.
    """
    here = site(request)
    path = request.url.path.removeprefix(here.base) or "/"
    text = here.templates.get_template(template).render(
        change_key=here.access.change_key(),
        read_only=here.access.read_only,
        root=here.view.cluster.root,
        base=here.base,
        cluster_name=here.name,
        clusters=here.clusters,
        path=path,
        navigation=_navigation(path, sql_here=here.view.queries is not None),
        version=__version__,
        query=lambda **changed: _query(request, changed),
        **values,
    )
    return HTMLResponse(text, status, headers={"cache-control": "no-store"})


def _navigation(path: str, *, sql_here: bool) -> list[tuple[str, list[dict[str, Any]]]]:
    return [
        (
            group,
            [
                {"text": text, "href": href, "here": _is_below(path, href) or any(_is_below(path, one) for one in more)}
                for text, href, more in links
                if sql_here or href != "/sql"
            ],
        )
        for group, links in NAVIGATION
    ]


def _is_below(path: str, href: str) -> bool:
    return path == href or (href != "/" and path.startswith(f"{href}/"))


def moved(path: str, said: str = "", **query: object) -> Response:
    """Redirect to another page after a change.

    Args:
        path: path of the page.
        said: message for the user about the change.
        query: parameters of the address.
    """
    told = {name: str(value) for name, value in query.items()} | ({"said": said} if said else {})
    return RedirectResponse(f"{path}?{urlencode(told)}" if told else path, 303)


def query_parameter(request: Request, name: str, default: str = "") -> str:
    """Return a query parameter of the address, without surrounding blanks."""
    return request.query_params.get(name, default).strip()


def group_id(request: Request) -> str:
    """Return the group that the address names; its name may begin or end with blanks."""
    return request.query_params.get("id", "")


class InvalidFieldError(IllegalArgumentError):
    """Input that a field of a form, or a parameter of an address, cannot have.

    Args:
        field: name of the field.
        reason: the expected value, and the given one.
    """

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        self.reason = reason
        super().__init__(f"{field}: {reason}")


REFUSED: Final = (IllegalArgumentError, BrokerResponseError)
"""Errors that may be of the input of a form, which the page shows again with the error beside a field."""


def field_error(error: Exception, field: str) -> InvalidFieldError:
    """Return an error of `REFUSED` as that of a field, by default of the named one.

    Raises:
        BrokerResponseError: the given one, if it is the storage's or refuses the user, so that no input mends it.
    """
    if isinstance(error, (AuthorizationError, RetriableError)):
        raise error
    return error if isinstance(error, InvalidFieldError) else InvalidFieldError(field, str(error))


def number(request: Request, name: str, default: int, most: int = 2**63 - 1) -> int:
    """Return a query parameter as a whole number from 0.

    Raises:
        InvalidFieldError: the text is not a number, or too large.
    """
    return whole(name, query_parameter(request, name), default, most)


def paged(request: Request, rows: Sequence[Row], most: int, default: int = 1) -> tuple[Sequence[Row], int, int]:
    """Return the rows of the requested page, its number, and the number of pages.

    Args:
        request: its parameter `page` is the number; a larger number means the last page.
        rows: rows of all pages.
        most: rows of a page.
        default: page without the parameter.
    """
    pages = max(1, -(-len(rows) // most))
    at = min(max(1, number(request, "page", default)), pages)
    return rows[(at - 1) * most : at * most], at, pages


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[Row]):
    """Rows of a table that is sorted by the parameters `sort` and `dir` of a request, and has pages."""

    rows: Sequence[Row]
    """Rows of the page."""
    count: int
    """Rows of all pages."""
    page: int
    pages: int
    sort: str
    descending: bool


def listing(
    request: Request,
    rows: Iterable[Row],
    columns: Mapping[str, Callable[[Row], Any]],
    most: int,
    *,
    descending: bool = False,
) -> Listing[Row]:
    """Sort rows by a column and return the requested page.

    Args:
        request: its parameter `sort` names a column; the first one is the default, and sorts equal rows.
        rows: rows of all pages.
        columns: value to sort by, by name. Rows without a value (None) come last.
        most: rows of a page.
        descending: order of the default column.

    Raises:
        IllegalArgumentError: the column does not exist, or the page is not a number.
    """
    first = next(iter(columns))
    sort = query_parameter(request, "sort", first) or first
    if sort not in columns:
        raise IllegalArgumentError(f"sort must be {', '.join(columns)}, not {sort[:40]!r}")
    backwards = query_parameter(request, "dir", "desc" if descending and sort == first else "asc") == "desc"
    value = columns[sort]
    ordered = sorted(rows, key=columns[first])
    known = sorted((row for row in ordered if value(row) is not None), key=value, reverse=backwards)
    known += [row for row in ordered if value(row) is None]
    some, at, pages = paged(request, known, most)
    return Listing(rows=some, count=len(known), page=at, pages=pages, sort=sort, descending=backwards)


def optional(request: Request, name: str) -> int | None:
    """Return a query parameter as a whole number from 0; None if it is missing.

    Raises:
        InvalidFieldError: the text is not a number.
    """
    text = query_parameter(request, name)
    return whole(name, text) if text else None


def whole(name: str, text: str, default: int | None = None, most: int = 2**63 - 1) -> int:
    """Parse a whole number from 0.

    Args:
        name: name of the field, for the error.
        text: input.
        default: value of an empty text; None if the field must be filled in.
        most: largest value.

    Raises:
        InvalidFieldError: the text is not a number, or too large.
    """
    if not text and default is not None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= most):  # noqa: PLR2004 - 64 bits
        raise InvalidFieldError(name, f"a whole number from 0 to {most} is needed, not {text[:40]!r}")
    return int(text)


def form(request: Request) -> Mapping[str, str]:
    """Return the fields of the form; the last value of a repeated name."""
    found: Mapping[str, str] = request.scope["kafkalike.form"]
    return found


def moment(name: str, text: str) -> int:
    """Parse a time, and return ms since 1970.

    Args:
        name: name of the field, for the error.
        text: ISO 8601, by default in UTC; or milliseconds.

    Raises:
        InvalidFieldError: the text is neither, or before 1970, because negative numbers have other meanings.
    """
    if text.isascii() and text.isdecimal() and len(text) < 16:  # noqa: PLR2004 - years that can be shown
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidFieldError(name, f"a time such as 2026-01-31T12:00:00 is needed, not {text[:40]!r}") from None
    ms = int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
    if ms < 0:
        raise InvalidFieldError(name, f"a time from 1970 on is needed, not {text[:40]!r}")
    return ms


def _query(request: Request, changed: Mapping[str, object]) -> str:
    """Return the query of a request with changed values; None removes a parameter."""
    kept = {name: value for name, value in request.query_params.items() if name != "said"}
    kept.update({name: "" if value is None else str(value) for name, value in changed.items()})
    return "?" + urlencode({name: value for name, value in kept.items() if value != ""})


def time_text(ms: int | None) -> str:
    """Format a time in UTC; None as a dash."""
    if ms is None:
        return "-"
    try:
        return utc_text(ms)
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def size_text(count: float) -> str:
    """Format bytes with a suitable unit."""
    unit = 0
    while count >= _STEP and unit < len(_UNITS) - 1:
        count, unit = count / _STEP, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def number_text(count: float) -> str:
    """Format a number with thin spaces between thousands."""
    return f"{count:,}".replace(",", "\u202f")


def rate_text(count: float) -> str:
    """Format a number per second with up to three digits."""
    if count >= 100:  # noqa: PLR2004 - digits behind the point say nothing
        return number_text(round(count))
    return f"{count:.3g}" if count == 0 or count >= 0.01 else "<0.01"  # noqa: PLR2004 - no exponents


def figure_text(count: float, unit: str) -> str:
    """Format a figure of a chart in its unit; bytes with a suitable prefix."""
    if unit.startswith("B"):
        return size_text(count) + unit[1:]
    return number_text(count) if count == int(count) else rate_text(count)


def seconds_text(ms: float) -> str:
    """Format a duration with a suitable unit."""
    seconds = ms / 1000
    for unit, span in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= span * 2:
            return f"{seconds / span:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds == int(seconds) else f"{seconds:.1f} s"
