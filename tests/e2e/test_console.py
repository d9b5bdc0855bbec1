"""The web console in a real browser: what a newcomer does, and what an attacker tries."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit

import pytest

from kafkalike.admin import KafkaAdminClient
from kafkalike.connect import connect
from kafkalike.consumer import KafkaConsumer
from kafkalike.model.structs import NewTopic
from kafkalike.producer import KafkaProducer
from kafkalike.schemas.cluster_registry import Registry
from kafkalike.schemas.confluent_types import Schema
from tests.e2e.conftest import MAIN
from tests.tools.browser import judge

CANARY = '<script>window.broken = 1</script><img src=x onerror="window.broken = 1">'
"""As a part of a page it is refused by the page's rules, with a line on the browser's console, which fails too."""

SHOTS = os.environ.get("KAFKALIKE_SCREENSHOTS")
"""A folder for pictures of the pages, to be looked at."""


@contextlib.contextmanager
def serving(root: str, environ: dict[str, str], *args: str) -> Iterator[str]:
    """The address, with its token, that `kafkalike ui` prints; nothing else is said, but by a Spark that begins."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "ui", "--bootstrap-server", root, "--port", "0", *args],
        env=environ,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = ""
    try:
        assert process.stderr is not None
        while (found := re.search(r"Serving .* at (http://127\.0\.0\.1:\d+\S*)", said)) is None:
            line = process.stderr.readline()
            assert line, said
            said = said + line if "--spark" in args else line
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert err == "" or "--spark" in args


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """A page of a visitor of his own; it must say nothing on its console."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    yield page
    context.close()
    assert said == []


def picture(page: Any, name: str) -> None:
    """Keep a picture, where somebody wants to look at them."""
    if SHOTS:
        page.screenshot(path=str(Path(SHOTS) / f"{name}.png"), full_page=True)


def heading(page: Any) -> str:
    """What a page is about."""
    return str(page.locator("h1").inner_text())


def test_a_newcomer_creates_produces_finds_watches_and_resets(
    root: str,
    environ: dict[str, str],
    visit: Any,
) -> None:
    """From an empty root to a group that begins anew, by the mouse alone."""
    KafkaAdminClient(bootstrap_servers=root).create_topics([NewTopic("other", 1)])
    with serving(root, environ) as address:
        visit.goto(address)
        assert "token" not in visit.url
        assert heading(visit) == "Overview"
        visit.get_by_role("link", name="Topics", exact=True).click()
        visit.get_by_text("Create a topic").click()
        visit.get_by_label("Name", exact=True).fill("orders")
        visit.get_by_label("Partitions", exact=True).fill("2")
        visit.get_by_role("button", name="Create").click()
        visit.get_by_text("Created topic orders.").wait_for()

        visit.get_by_role("link", name="Produce").click()
        visit.get_by_label("Key", exact=True).fill("customer-7")
        visit.get_by_label("Value", exact=True).fill('{"city": "Bremen", "lines": [1, 2]}')
        visit.get_by_label("Headers").fill("source: shop")
        visit.get_by_role("button", name="Send").click()
        visit.get_by_text("Wrote the record").wait_for()
        assert "Bremen" in visit.locator(".json").first.inner_text()
        picture(visit, "record")

        visit.get_by_role("link", name="Records", exact=True).click()
        visit.get_by_label("Key is").fill("customer-7")
        visit.get_by_role("button", name="Show").click()
        visit.get_by_text("1 record with this key").wait_for()

        visit.get_by_role("link", name="Live").click()
        visit.get_by_text("waiting for records").wait_for()
        with KafkaProducer(bootstrap_servers=root) as producer:
            producer.send("orders", CANARY.encode(), b"live", [(CANARY, CANARY.encode())]).get()
        visit.locator("#tail").get_by_text("window.broken").first.wait_for()
        visit.get_by_text("1 record", exact=True).wait_for()
        assert visit.evaluate("window.broken") is None
        picture(visit, "live")

        with KafkaConsumer("orders", bootstrap_servers=root, group_id="bills", auto_offset_reset="earliest") as reader:
            read = 0
            while read < 2:
                read += sum(len(some) for some in reader.poll(500).values())
            reader.commit()
        visit.get_by_role("link", name="Groups").first.click()
        visit.get_by_role("link", name="bills").click()
        visit.get_by_text("Reset offsets").click()
        visit.get_by_label("Topic", exact=True).fill("orders")
        visit.get_by_role("button", name="Preview").click()
        visit.get_by_text("Nothing has changed yet").wait_for()
        visit.get_by_role("button", name="Set these offsets").click()
        visit.get_by_text("offsets of orders").wait_for()
    held = KafkaAdminClient(bootstrap_servers=root).list_group_offsets({"bills": None})["bills"]
    assert {tp.partition: at.offset for tp, at in held.items()} == {0: 0, 1: 0}


def test_no_record_becomes_a_part_of_a_page(root: str, environ: dict[str, str], visit: Any) -> None:
    """Keys, values, headers, settings and names of groups are text on every page."""
    admin = KafkaAdminClient(bootstrap_servers=root)
    admin.create_topics([NewTopic("orders", 1)])
    value = json.dumps({CANARY: [CANARY, {"x": CANARY}]}).encode()
    with KafkaProducer(bootstrap_servers=root) as producer:
        producer.send("orders", value, CANARY.encode(), [(CANARY, CANARY.encode())]).get()
    with KafkaConsumer("orders", bootstrap_servers=root, group_id=CANARY, auto_offset_reset="earliest") as reader:
        while not reader.poll(500):
            pass
        reader.commit()
    paths = (
        "/topics/orders",
        "/topics/orders/records",
        f"/topics/orders/records?key={quote(CANARY)}&text={quote(CANARY)}&header={quote(CANARY)}",
        "/topics/orders/records/0/0",
        "/topics/orders/produce?partition=0&offset=0",
        "/topics/orders/groups",
        "/topics/orders/history",
        "/groups",
        f"/groups?q={quote(CANARY)}",
        f"/group?id={quote(CANARY)}",
        f"/group/reset?id={quote(CANARY)}&topic=orders&to=earliest",
        f"/topics?q={quote(CANARY)}&said={quote(CANARY)}",
    )
    with serving(root, environ) as address:
        visit.goto(address)
        here = address.partition("/?")[0]
        for path in paths:
            visit.goto(here + path)
            visit.wait_for_load_state("networkidle")
            assert visit.evaluate("window.broken") is None, path
            assert visit.locator("img").count() == 0, path


@pytest.mark.full
@pytest.mark.timeout(400)
def test_everybody_can_use_the_pages(root: str, environ: dict[str, str], visit: Any) -> None:
    """In light and dark, at three widths, by axe-core's judgement; and on a phone nothing sticks out."""
    admin = KafkaAdminClient(bootstrap_servers=root)
    admin.create_topics([NewTopic("orders", 3)])
    with KafkaProducer(bootstrap_servers=root) as producer:
        for at in range(60):
            producer.send("orders", b'{"city": "Bremen", "number": 5, "none": null}', b"k%d" % at, [("h", b"v")])
        producer.send("orders.dlq", b"a" * 300, b"a-letter-with-a-long-key" * 4)
    Registry(connect(root)).register_schema("orders-value", Schema('{"type": "string"}', "AVRO"))
    with KafkaConsumer("orders", bootstrap_servers=root, group_id="g", auto_offset_reset="earliest") as reader:
        while not reader.poll(500):
            pass
        reader.commit()
    paths = [
        "",
        "topics",
        "topics/orders",
        "topics/orders/records",
        "topics/orders/records/0/0",
        "topics/orders/records?key=k7",
        "topics/orders/produce",
        "topics/orders/segments",
        "topics/orders/settings",
        "topics/orders/history",
        "topics/orders/tail",
        "groups",
        "share-groups",
        "group?id=g",
        "group/reset?id=g&topic=orders&to=earliest",
        "transactions",
        "schemas",
        "schema?subject=orders-value",
        "dead-letters",
        "letters?topic=orders.dlq",
        "sql",
        "checks",
        "cluster",
        "replicas",
    ]
    with serving(root, environ) as address:
        visit.goto(address)
        here = address.partition("?")[0]
        for path, width in product(paths, (1440, 768, 390)):
            visit.set_viewport_size({"width": width, "height": 900})
            visit.goto(here + path)
            if path == "dead-letters":
                visit.get_by_role("link", name="orders.dlq").wait_for()
            for colours in ("light", "dark"):
                visit.emulate_media(color_scheme=colours)
                # What a page is made of is the same in both.
                rules = ("color-contrast",) if colours == "dark" else ()
                assert judge(visit, *rules) == [], (path, width, colours)
                picture(visit, f"{width}-{colours}-{path.replace('/', '-').replace('?', '-')}")
            assert visit.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
        visit.set_viewport_size({"width": 360, "height": 700})
        for path in paths:
            visit.goto(here + path)
            assert visit.evaluate("document.documentElement.scrollWidth") <= 360, path
        # The keyboard alone: the first stop leads past the menu.
        visit.goto(here + "topics")
        visit.keyboard.press("Tab")
        visit.keyboard.press("Enter")
        assert visit.evaluate("document.activeElement.id") == "main"


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_statements_are_run_where_spark_is_at_hand(root: str, environ: dict[str, str], visit: Any) -> None:
    """What reads is shown, what writes is refused, and what does not end is cancelled."""
    KafkaAdminClient(bootstrap_servers=root).create_topics([NewTopic("orders", 1)])
    with KafkaProducer(bootstrap_servers=root) as producer:
        for at in range(3):
            producer.send("orders", CANARY.encode(), b"k%d" % at)
    box = "One statement without changes"
    with serving(root, environ, "--spark") as address:
        visit.goto(address)
        visit.get_by_role("link", name="SQL").click()
        visit.get_by_label(box).fill(
            "SELECT CAST(key AS STRING) AS k, CAST(value AS STRING) FROM orders ORDER BY offset"
        )
        visit.get_by_label(box).press("Tab")
        visit.keyboard.press("Enter")
        visit.get_by_text("3 rows, in").wait_for(timeout=120_000)
        assert visit.locator(".statement td").first.inner_text() == "k0"
        assert visit.evaluate("window.broken") is None
        for colours in ("light", "dark"):
            visit.emulate_media(color_scheme=colours)
            assert judge(visit) == [], colours
            picture(visit, f"{colours}-sql-rows")
        visit.set_viewport_size({"width": 360, "height": 700})
        assert visit.evaluate("document.documentElement.scrollWidth") <= 360

        visit.get_by_label(box).fill("INSERT INTO orders SELECT 1")
        visit.get_by_role("button", name="Run").click()
        visit.get_by_role("alert").get_by_text("only SELECT, a plain SHOW TABLES and DESCRIBE").wait_for(timeout=60_000)

        endless = "SELECT count(*) FROM range(1000000000) a CROSS JOIN range(1000000000) b WHERE a.id * b.id % 7 = 8"
        visit.get_by_label(box).fill(endless)
        visit.get_by_role("button", name="Run").click()
        visit.get_by_role("button", name="Cancel").click()
        visit.get_by_role("alert").get_by_text("it was cancelled").wait_for(timeout=60_000)
        # The other pages go on meanwhile and afterwards; on a phone the menu folds their links.
        visit.get_by_role("button", name="Menu").click()
        visit.get_by_role("link", name="Topics").click()
        assert heading(visit) == "Topics"


def status(address: str, **headers: str) -> int:
    """What an address answers."""
    request = urllib.request.Request(address, headers={k.replace("_", "-"): v for k, v in headers.items()})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - the loopback
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_a_stranger_gets_nothing_and_a_reader_changes_nothing(
    root: str,
    environ: dict[str, str],
    browser: Any,
) -> None:
    """Without the token, by another name, and on a read-only console."""
    KafkaAdminClient(bootstrap_servers=root).create_topics([NewTopic("orders", 1)])
    secret = {**environ, "KAFKALIKE_UI_TOKEN": "open-sesame"}
    with serving(root, secret, "--read-only") as address:
        here = address.partition("/?")[0]
        assert address.endswith("?token=open-sesame")
        assert status(here + "/topics") == 401
        assert status(here + "/metrics", Authorization="Bearer open-sesame") == 200
        assert status(here + "/topics", Authorization="Bearer open-sesame", Host="evil.example") == 403
        context = browser.new_context()
        page = context.new_page()
        page.goto(address)
        assert page.get_by_text("Create a topic").count() == 0
        page.goto(here + "/topics/orders")
        assert page.get_by_text("Change this topic").count() == 0
        page.goto(here + "/topics/orders/produce")
        assert page.get_by_text("This console is read-only.").count() == 1
        refused = page.evaluate(
            "fetch('/topics', {method: 'POST', body: new URLSearchParams({name: 'x'})}).then(answer => answer.status)"
        )
        assert refused == 403
        # Another site of the same browser: its forms bring no cookie, and its scripts see nothing.
        page.goto("data:text/html,<title>evil</title>")
        seen = page.evaluate(
            "(url) => fetch(url, {credentials: 'include'}).then(() => 'seen', () => 'nothing')", here + "/topics"
        )
        assert seen == "nothing"
        context.close()
    assert urlsplit(address).hostname == "127.0.0.1"


def test_a_console_that_cannot_begin_says_why_in_a_line(root: str, environ: dict[str, str]) -> None:
    """A root that is not there; everybody at an address of the network."""
    for args in (("--bootstrap-server", f"{root}-none"), ("--host", "192.0.2.1"), ("--host", "0.0.0.0", "--no-token")):  # noqa: S104
        if "--host" in args:
            KafkaAdminClient(bootstrap_servers=root).create_topics([NewTopic(f"t{len(args)}", 1)])
        done = subprocess.run(
            [sys.executable, "-c", MAIN, "ui", "--bootstrap-server", root, "--port", "0", *args],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
