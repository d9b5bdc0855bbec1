"""Six tasks of an operator, from the console's first page, by the mouse: their steps are counted, and stay few."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalike.admin import KafkaAdminClient
from kafkalike.connect import connect
from kafkalike.consumer import KafkaConsumer
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.structs import NewTopic
from kafkalike.producer import KafkaProducer
from kafkalike.schemas import Registry
from kafkalike.schemas.confluent_types import Schema
from tests.tools.browser import chromium, judge

ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}'


class Operator:
    """Somebody at the console who counts.

    Args:
        page: Playwright's page.
        url: the console's.
    """

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.clicks = 0
        self.fields = 0
        page.goto(url)

    def click(self, what: str, name: str) -> None:
        """Click a link or button in the page's own part, or in the navigation."""
        self.clicks += 1
        self.page.get_by_role(what, name=name, exact=True).first.click()

    def open(self, text: str) -> None:
        """Open a closed part of the page."""
        self.clicks += 1
        self.page.locator("summary", has_text=text).click()

    def fill(self, label: str, text: str) -> None:
        """Fill a field."""
        self.fields += 1
        self.page.get_by_label(label, exact=True).fill(text)

    def shows(self, text: str) -> None:
        """Wait for a text."""
        self.page.get_by_text(text).first.wait_for()

    @property
    def effort(self) -> tuple[int, int]:
        """Clicks and filled fields so far."""
        return self.clicks, self.fields


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Orders, of which a group has read some and could not read one, and a schema with two versions."""
    made = connect(str(tmp_path_factory.mktemp("root")))
    KafkaAdminClient(bootstrap_servers=made).create_topics([NewTopic("orders", 1), NewTopic("typed", 1)])
    with KafkaProducer(bootstrap_servers=made) as producer:
        for at in range(20):
            producer.send("orders", b"{" if at == 5 else json.dumps({"id": at}).encode(), b"customer-%d" % at)
    with KafkaConsumer(
        "orders",
        bootstrap_servers=made,
        group_id="billing",
        auto_offset_reset="earliest",
        value_deserializer=json.loads,
        errors_tolerance="all",
    ) as consumer:
        read = 0
        while read < 9:
            read += sum(len(some) for some in consumer.poll(500, max_records=9 - read).values())
        consumer.commit()
    registry = Registry(made)
    for schema in (ORDER + "]}", ORDER + ',{"name":"city","type":"string","default":""}]}'):
        registry.register_schema("typed-value", Schema(schema, "AVRO"))
    return made


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    """A page whose scripts must not fail."""
    with chromium() as browser:
        made = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        errors: list[str] = []
        made.on("pageerror", lambda error: errors.append(str(error)))
        yield made
        assert errors == []


def test_record_is_found_by_its_key(page: Any, url: str) -> None:
    """Topics, the topic, its records, the key; then the record itself."""
    operator = Operator(page, url)
    operator.click("link", "Topics")
    operator.click("link", "orders")
    operator.click("link", "Records")
    operator.fill("Key is", "customer-7")
    operator.click("button", "Show")
    operator.shows("1 record with this key")

    assert '{"id": 7}' in page.locator("table.records").inner_text()
    assert operator.effort == (4, 1)


def test_late_group_and_its_reason_are_seen(page: Any, url: str) -> None:
    """Which partition, how far, since when, and that nobody reads."""
    operator = Operator(page, url)
    operator.click("link", "Groups")
    operator.click("link", "billing")
    operator.shows("No consumer of this group is running.")

    assert operator.effort == (2, 0)


def test_group_is_reset_after_a_preview(page: Any, url: str, cluster: Cluster) -> None:
    """The topic is filled in, as the group has only one."""
    operator = Operator(page, url)
    operator.click("link", "Groups")
    operator.click("link", "billing")
    operator.open("Reset offsets")
    operator.click("button", "Preview")
    operator.shows("Nothing has changed yet")
    operator.click("button", "Set these offsets")
    operator.shows("offsets of orders")

    assert operator.effort == (5, 0)
    held = KafkaAdminClient(bootstrap_servers=cluster).list_group_offsets({"billing": None})["billing"]
    assert {tp.partition: at.offset for tp, at in held.items()} == {0: 0}


def test_dead_letter_is_replayed(page: Any, url: str) -> None:
    """After the plan."""
    operator = Operator(page, url)
    operator.click("link", "Dead letters")
    operator.click("link", "orders.dlq")
    operator.click("button", "Plan a replay")
    operator.click("button", "Replay")
    operator.shows("Letters replayed: 1.")

    assert operator.effort == (4, 0)


def test_two_versions_of_a_schema_are_compared(page: Any, url: str) -> None:
    """The newest two are compared at once."""
    operator = Operator(page, url)
    operator.click("link", "Schemas")
    operator.click("link", "typed-value")
    operator.shows("Version 2 reads records of version 1")

    assert "city" in " ".join(page.locator("td.add").all_inner_texts())
    assert operator.effort == (2, 0)
    assert judge(page) == []


def test_valid_avro_record_is_produced_after_a_wrong_one(page: Any, url: str) -> None:
    """An example of the newest schema is filled in; what was typed stays after an error."""
    operator = Operator(page, url)
    operator.click("link", "Topics")
    operator.click("link", "typed")
    operator.click("link", "Produce")
    assert json.loads(page.get_by_label("Value", exact=True).input_value()) == {"id": 0, "city": ""}
    operator.fill("Value", '{"id": 1.5}')
    operator.click("button", "Send")
    operator.shows("Nothing was sent")
    assert page.locator("#value-problem").inner_text() == "id: a whole number is needed, not 1.5"
    assert judge(page) == []
    operator.fill("Value", '{"id": 9007199254740993}')
    operator.click("button", "Send")
    operator.shows("Wrote the record")

    assert page.locator(".json .number").inner_text() == "9007199254740993"
    assert operator.effort == (5, 2)


def test_bytes_are_switched_and_copied(page: Any, url: str, cluster: Cluster) -> None:
    """In hexadecimal first; the copy is what is shown, without the dump's positions."""
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        sent = producer.send("orders", b"\x00\x01\xff", b"bytes").get()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    operator = Operator(page, f"{url}/topics/orders/records/{sent.partition}/{sent.offset}")
    copy = page.get_by_role("button", name="Copy", exact=True).nth(1)

    copy.click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "0001ff"
    operator.click("button", "Bytes: hex")
    page.get_by_role("button", name="Bytes: Base64").wait_for()
    page.get_by_role("button", name="Copy", exact=True).nth(1).click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "AAH/"
