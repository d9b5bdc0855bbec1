"""What the console's scripts add in a real browser: tables, times, charts, and parts that refresh themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalike.admin import KafkaAdminClient
from kafkalike.connect import connect
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import NewTopic, OffsetAndMetadata, TopicPartition
from kafkalike.ui.console_server import ConsoleServer
from tests.tools.browser import judge
from tests.tools.records import batch_now

ROWS = 14
"""Partitions of the large topic, and groups that read it; enough for a filter."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """A cluster with topics, three of which only one test uses, and groups that read one of them."""
    made = connect(str(tmp_path_factory.mktemp("root")))
    with KafkaAdminClient(bootstrap_servers=made) as admin:
        admin.create_topics([NewTopic("a-small", 1), NewTopic("b-large", ROWS), NewTopic("c-empty", 1)])
        admin.create_topics([NewTopic("sorted-many", 1), NewTopic("sorted-few", 1), NewTopic("sorted-none", 1)])
        write(made, "sorted-many", 40)
        write(made, "sorted-few", 5)
        write(made, "a-small", 3)
        write(made, "b-large", 1200)
        for number in range(ROWS):
            admin.alter_group_offsets(
                f"g{number:02}", {TopicPartition("b-large", 0): OffsetAndMetadata(number * 100 % 1300)}
            )
    return made


def write(cluster: Cluster, topic: str, count: int) -> None:
    """Append records to partition 0 in one commit."""
    log = cluster.log(topic)
    log.refresh()
    log.append(batch_now(*["value"] * count))


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """A page of a visitor in Berlin, whose scripts must not fail."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, timezone_id="Europe/Berlin")
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert errors == []


def first_column(page: Any) -> list[str]:
    """The visible rows' first cells."""
    cells = page.locator(".scroll tbody tr:visible > :first-child")
    return [str(text) for text in cells.all_inner_texts()]


def own_topics(page: Any) -> list[str]:
    """The topics of the test of sorting: other tests make topics and write to them, too."""
    return [name for name in first_column(page) if name.startswith("sorted-")]


def test_tables_with_pages_are_sorted_by_the_server(visit: Any, url: str) -> None:
    """By the keyboard, with the order in the address."""
    visit.goto(f"{url}/topics")
    visit.get_by_role("link", name="Records", exact=True).press("Enter")
    visit.wait_for_url("**sort=records&dir=desc**")

    assert own_topics(visit) == ["sorted-many", "sorted-few", "sorted-none"]
    assert visit.locator("th[aria-sort=descending]").inner_text() == "Records"
    visit.get_by_role("link", name="Records", exact=True).press("Enter")
    visit.wait_for_url("**dir=asc**")
    assert own_topics(visit) == ["sorted-none", "sorted-few", "sorted-many"]


def test_whole_tables_are_sorted_and_filtered_in_the_page(visit: Any, url: str) -> None:
    """By figures, not by their texts."""
    visit.goto(f"{url}/topics/b-large/groups")
    visit.get_by_role("button", name="Records").press("Enter")

    assert visit.locator("th[aria-sort=descending]").inner_text() == "Records"
    assert first_column(visit)[:3] == ["g00", "g13", "g01"]
    visit.get_by_role("button", name="Records").press("Enter")
    assert first_column(visit)[:3] == ["g12", "g11", "g10"]
    visit.get_by_label("Filter rows").fill("1\u202f100")
    assert first_column(visit) == ["g01"]


def test_chosen_columns_are_remembered(visit: Any, url: str) -> None:
    """On the next visit, too."""
    visit.goto(f"{url}/topics")
    visit.locator("summary", has_text="Columns").click()
    visit.get_by_role("checkbox", name="Size").uncheck()
    assert visit.get_by_role("columnheader", name="Size").count() == 0

    visit.goto(f"{url}/topics")

    assert visit.get_by_role("columnheader", name="Size").count() == 0
    assert visit.get_by_role("columnheader", name="Cleanup").count() == 1
    assert visit.locator("tbody tr").first.locator("td:visible").count() == 7


def test_figures_and_times_are_exact_when_copied(visit: Any, url: str) -> None:
    """Whatever is shown."""
    visit.goto(f"{url}/topics?q=b-large")
    shown = visit.locator("tbody tr").inner_text()
    copied = visit.evaluate(
        """() => {
            getSelection().selectAllChildren(document.querySelector("tbody tr"));
            const event = new ClipboardEvent("copy", {clipboardData: new DataTransfer(), cancelable: true});
            document.dispatchEvent(event);
            return event.clipboardData.getData("text/plain");
        }"""
    )

    name, records, size, _, written, *_ = copied.split("\t")
    assert (name, records) == ("b-large", "1200")
    assert size.isdecimal()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", written)
    assert "1\u202f200" in shown
    assert "ago" in shown or "now" in shown


def test_times_are_of_utc_or_of_the_place(visit: Any, url: str) -> None:
    """By one switch for all pages, with the exact time on each."""
    visit.goto(f"{url}/topics/a-small/records")
    time = visit.locator("tbody time").first
    exact, utc = time.get_attribute("title"), time.inner_text()
    visit.get_by_role("button", name="Times: UTC").click()
    local = time.inner_text()

    assert exact.replace("T", " ").replace("+00:00", " UTC") == utc
    hours = (int(local[11:13]) - int(utc[11:13])) % 24
    assert hours in {1, 2}
    visit.goto(f"{url}/topics/a-small/records")
    assert visit.locator("tbody time").first.inner_text() == local


def test_charts_have_axes_values_and_a_table(visit: Any, url: str) -> None:
    """The table has the figures without the script, too."""
    visit.goto(f"{url}/topics/b-large")
    chart = visit.locator("#chart-topic-records")
    chart.locator("canvas").wait_for()
    box = chart.locator(".u-over").bounding_box()
    visit.mouse.move(box["x"] + box["width"] - 3, box["y"] + 20)

    chart.locator(".u-legend .u-value", has_text="records/s").wait_for()
    chart.get_by_text("Figures as a table").click()
    assert chart.get_by_role("row").count() == 91
    figures = [float(value) for value in chart.locator("td[data-v]").evaluate_all("c => c.map(one => one.dataset.v)")]
    assert len([figure for figure in figures if figure > 0]) == 1


def edges(chart: Any, page: Any) -> tuple[str, str]:
    """The first and the last time that a chart shows, by its legend."""
    shown, box = chart.locator(".u-legend .u-value").first, chart.locator(".u-over").bounding_box()
    found = []
    for x in (1, box["width"] - 1):
        page.mouse.move(box["x"] + x, box["y"] + 20)
        found.append(shown.inner_text())
    return found[0], found[1]


def test_chart_is_zoomed_by_dragging_and_shows_all_after_a_double_click(visit: Any, url: str) -> None:
    visit.goto(f"{url}/topics/b-large")
    chart = visit.locator("#chart-topic-records")
    chart.locator("canvas").wait_for()
    first, last = edges(chart, visit)
    box = chart.locator(".u-over").bounding_box()

    visit.mouse.move(box["x"] + box["width"] / 4, box["y"] + 50)
    visit.mouse.down()
    visit.mouse.move(box["x"] + box["width"] * 3 / 4, box["y"] + 60, steps=5)
    visit.mouse.up()
    zoomed = edges(chart, visit)
    visit.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + 50)

    assert first < zoomed[0] < zoomed[1] < last
    assert edges(chart, visit) == (first, last)


def test_chart_is_read_and_zoomed_by_the_keyboard(visit: Any, url: str) -> None:
    """Arrows move through the times, which a screen reader gets, too; plus and minus zoom, Escape shows all."""
    visit.goto(f"{url}/topics/b-large")
    chart = visit.locator("#chart-topic-records")
    chart.locator("canvas").wait_for()
    plot, shown = chart.get_by_role("slider"), chart.locator(".u-legend .u-value").first

    def pressed(*keys: str) -> str:
        for key in keys:
            plot.press(key)
        assert plot.get_attribute("aria-valuetext").startswith(shown.inner_text())
        return str(shown.inner_text())

    plot.focus()
    first, second, last = pressed("Home"), pressed("ArrowRight"), pressed("End")
    before, zoomed = pressed("ArrowLeft"), pressed("+", "Home")
    end = pressed("End")
    wider = pressed("-", "Home")
    all_again = pressed("Escape", "Home")

    assert first < second < before < last
    assert first < zoomed < end == last
    assert first <= wider < zoomed
    assert all_again == first
    assert judge(visit) == []


def test_a_refresh_keeps_focus_scroll_and_order(visit: Any, url: str, cluster: Cluster) -> None:
    """And a paused page asks nothing."""
    visit.clock.install()
    visit.set_viewport_size({"width": 1280, "height": 300})
    visit.goto(f"{url}/topics")
    link = visit.get_by_role("link", name="c-empty")
    link.focus()
    visit.evaluate("scrollTo(0, 120)")
    at = visit.evaluate("scrollY")
    write(cluster, "c-empty", 7)
    row = visit.locator("tr", has=visit.get_by_role("link", name="c-empty"))
    for _ in range(500):  # until the console has looked at the topic again
        with visit.expect_response("**/topics?*"):
            visit.clock.fast_forward(6000)
        if row.locator("data[value='7']").count():
            break

    assert row.locator("data[value='7']").count() == 1
    assert visit.evaluate("document.activeElement.textContent") == "c-empty"
    assert visit.evaluate("scrollY") == at > 0
    visit.get_by_role("button", name="Pause refresh").click()
    asked: list[str] = []
    visit.on("request", lambda request: asked.append(request.url))
    visit.clock.fast_forward(60_000)
    visit.get_by_role("button", name="Resume refresh").click()
    assert asked == []


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_the_value_of_a_dead_letter_is_in_view(visit: Any, url: str, cluster: Cluster, width: int) -> None:
    """Beside its cause, or below it; no part is printed over another one."""
    cause = [
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.partition", b"0"),
        ("__connect.errors.offset", b"7"),
        ("__connect.errors.exception.class.name", b"shop.errors.AmountError"),
        ("__connect.errors.exception.message", b"the amount of the payment is negative, which is not allowed " * 4),
    ]
    name = f"letters-{width}.dlq"
    cluster.create_topic(name, 1, {})
    log = cluster.log(name)
    one = RecordBatch()
    for number in range(30):
        one.add(0, b"customer", b'{"id": %d, "city": "Bremen"}' % number, SYSTEM_CLOCK.now_ms(), cause)
    log.append(one)
    visit.set_viewport_size({"width": width, "height": 900})
    visit.goto(f"{url}/letters?topic={name}")
    boxes = [visit.locator("tbody tr").first.locator(part).bounding_box() for part in (".cause", ".clamp >> nth=1")]

    assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)
    (left, right) = boxes
    assert left["x"] + left["width"] <= right["x"] or left["y"] + left["height"] <= right["y"]
    if width == 390:
        assert visit.locator("tbody").bounding_box()["height"] < 6000


def test_empty_table_says_what_to_do_within_a_narrow_screen(visit: Any, url: str) -> None:
    """Though its columns are wider."""
    visit.set_viewport_size({"width": 390, "height": 800})
    visit.goto(f"{url}/share-groups")
    box = visit.locator("td.empty > div").bounding_box()

    assert visit.locator("table").bounding_box()["width"] > 390
    assert 0 <= box["x"] < box["x"] + box["width"] <= 390


def test_a_page_whose_server_is_gone_says_so(visit: Any, cluster: Cluster) -> None:
    """Old figures must not look like a quiet cluster; it refreshes when the server is back."""
    server = ConsoleServer(cluster, token="")
    server.start()
    visit.clock.install()
    visit.goto(f"{server.url}/groups")
    port = int(server.url.rpartition(":")[2])
    server.stop()
    visit.clock.fast_forward(6000)
    visit.get_by_role("button", name="Refresh failed, trying again").wait_for()

    again = ConsoleServer(cluster, token="", port=port)
    again.start()
    try:
        with visit.expect_response("**/groups?*"):
            visit.clock.fast_forward(6000)
        visit.get_by_role("button", name="Pause refresh").wait_for()
    finally:
        again.stop()
