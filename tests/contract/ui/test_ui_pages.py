"""The console's pages over a cluster, asked as a browser asks."""

import asyncio
import base64
import html
import json
import re
import shutil
import zlib
from collections.abc import Iterator, MutableMapping
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from kafkalike.admin import KafkaAdminClient
from kafkalike.admin.testing import MemoryCluster
from kafkalike.connect import connect
from kafkalike.consumer import KafkaConsumer
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.producer import KafkaProducer
from kafkalike.schemas import AvroSerializer, Registry
from kafkalike.schemas.confluent_types import Schema
from kafkalike.ui.access_control import HEADERS, AccessControl
from kafkalike.ui.app import CHANGE, READ, console, consoles
from kafkalike.ui.cluster_view import ConsoleView
from kafkalike.ui.pages.record_pages import places_text
from kafkalike.ui.record_query import Question, browse
from tests.tools.kinds import only_in_memory

CANARY = "<script>alert(1)</script>"

TOKEN = "open sesame"  # noqa: S105


BOMB = "z" + base64.urlsafe_b64encode(zlib.compress(b"[" + b"1," * 5_000_000 + b"1]")).decode()


class Browser:
    """A browser that has opened the address that the console prints."""

    def __init__(self, cluster: Cluster, *, read_only: bool = False) -> None:
        self.view = ConsoleView(cluster, SYSTEM_CLOCK, metrics=lambda: b"kafkalike_up 1.0\n", patience_seconds=60)
        self.access = AccessControl(token=TOKEN, port=80, read_only=read_only)
        self.client = TestClient(console(self.view, self.access), base_url="http://localhost")
        assert self.client.get("/", params={"token": TOKEN}).status_code == 200

    def get(self, path: str, status: int = 200, **query: object) -> str:
        """A page's text."""
        answer = self.client.get(path, params={name: str(value) for name, value in query.items()})
        assert answer.status_code == status, answer.text
        return answer.text

    def post(self, path: str, status: int = 200, /, **fields: object) -> str:
        """The page behind a form, with the secret of changes that each page holds."""
        given = {name.replace("__", "-"): str(value) for name, value in fields.items()}
        answer = self.client.post(path, data={"change_key": self.access.change_key(), **given})
        assert answer.status_code == status, answer.text
        return answer.text


@pytest.fixture
def browser(cluster: Cluster) -> Iterator[Browser]:
    """A browser of a cluster that the test may change."""
    yield from browsing(cluster)


@pytest.fixture(scope="module")
def visitor(shared_cluster: Cluster) -> Iterator[Browser]:
    """The same for tests that only look."""
    yield from browsing(shared_cluster)


def browsing(cluster: Cluster) -> Iterator[Browser]:
    """A cluster with a topic of 30 records, and a group that has read some of them."""
    cluster.create_topic("orders", 2, {"retention.ms": "-1"})
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        for at in range(30):
            value = json.dumps({"order": at, "note": CANARY, "lines": [{"sku": "a"}]}).encode()
            producer.send("orders", value, b"k%d" % (at % 3), [(CANARY, CANARY.encode())], partition=at % 2)
    consumer = KafkaConsumer("orders", bootstrap_servers=cluster, group_id=f"g/{CANARY}", auto_offset_reset="earliest")
    while not consumer.poll(1000, max_records=10):
        pass
    consumer.commit()
    consumer.close()
    made = Browser(cluster)
    yield made
    made.view.close()


GROUP = f"g/{CANARY}"


@pytest.mark.parametrize(
    ("path", "query", "holds"),
    [
        ("/topics", {}, "1 of 1 topic"),
        ("/topics", {"q": "none"}, "No topics."),
        ("/topics", {"sort": "records", "dir": "desc"}, "30</data></td>"),
        ("/", {}, "Groups by lag"),
        ("/", {"span": "24h"}, "Largest topics"),
        ("/overview/letters", {}, "No dead letters"),
        ("/topics/orders/writes", {"span": "1h"}, "Records written"),
        ("/topics/orders", {}, "15</data></td>"),
        ("/topics/orders/segments", {"partition": 1}, "1 segment in partition 1"),
        ("/topics/orders/settings", {}, "Age (ms) above which a segment is deleted"),
        ("/topics/orders/settings", {}, "<code>604800000</code> <small>7 days</small>"),
        ("/topics/orders/settings", {"edit": "retention.ms"}, 'placeholder="7 days"'),
        ("/cluster/settings", {}, "Defaults of all topics"),
        ("/topics/orders/history", {}, "created"),
        ("/topics/orders/groups", {}, "g/&lt;script"),
        ("/topics/orders/records", {}, "30 records of 30"),
        ("/topics/orders/records", {"key": "k1"}, "10 records with this key"),
        ("/topics/orders/records", {"key": "k1", "limit": 3}, "Older records"),
        ("/topics/orders/records", {"key": "k1", "text": "order"}, "10 records of 30"),
        ("/topics/orders/records", {"header": CANARY, "limit": 4}, "4 records"),
        ("/topics/orders/records", {"text": '"order": 17,'}, "1 record of 30"),
        ("/topics/orders/records", {"from": "offset", "partition": 0, "offset": 12}, "3 records"),
        ("/topics/orders/records", {"from": "time", "time": "2001-01-01"}, "30 records"),
        ("/topics/orders/records", {"from": "newest", "partition": 0, "offset": 12}, "3 records"),
        ("/topics/orders/records", {"from": "newest", "time": "2999-01-01"}, "0 records"),
        ("/topics/orders/records/0/3", {}, "&#34;&lt;script&gt;alert(1)&lt;/script&gt;&#34;"),
        ("/topics/orders/produce", {"partition": 0, "offset": 3}, "&lt;script&gt;"),
        ("/topics/orders/tail", {}, 'data-events="/topics/orders/tail/events"'),
        ("/groups", {}, "g/&lt;script"),
        ("/group", {"id": GROUP}, "Committed"),
        ("/group/lag", {"id": GROUP}, "<"),
        ("/group/reset", {"id": GROUP, "topic": "orders", "to": "earliest"}, "Nothing has changed yet"),
        ("/transactions", {}, "No transactional ids"),
        ("/schemas", {}, "No subjects"),
        ("/dead-letters/all", {}, "No dead letters"),
        ("/letters", {"topic": "orders"}, "orders"),
        ("/checks", {}, "No checks yet"),
        ("/cluster", {}, "Root"),
    ],
)
def test_each_page_shows_what_is_there_and_escapes_it(
    visitor: Browser, path: str, query: dict[str, object], holds: str
) -> None:
    """Keys, values, headers and names of groups are somebody's; none becomes a part of the page."""
    answer = visitor.client.get(path, params={name: str(value) for name, value in query.items()})

    assert answer.status_code == 200, answer.text
    assert holds in answer.text
    assert CANARY not in answer.text
    assert all(answer.headers[name] == value for name, value in HEADERS.items())


@only_in_memory("shared_cluster")
def test_settings_of_a_new_cluster_of_one_root_have_no_changes(visitor: Browser) -> None:
    """Tests over three roots open them with settings of the server, which count as changes."""
    assert "No setting was changed." in visitor.get("/cluster/settings")


@only_in_memory("shared_cluster")
@pytest.mark.parametrize(
    ("path", "query", "status", "says"),
    [
        ("/topics/none", {}, 404, "UnknownTopicOrPartition"),
        ("/topics/none/records", {}, 404, "UnknownTopicOrPartition"),
        ("/topics/none/tail", {}, 404, "UnknownTopicOrPartition"),
        ("/topics/orders/records", {"partition": 2}, 404, "orders-2 does not exist"),
        ("/topics/orders/records", {"from": "time", "partition": 2, "time": "0"}, 404, "orders-2 does not exist"),
        ("/topics/orders/records/0/99", {}, 404, "no record at offset 99"),
        ("/topics/orders/records/9/0", {}, 404, "orders-9 does not exist"),
        ("/", {"span": "9y"}, 400, "span must be 30min, 3h, 24h"),
        ("/topics/orders/writes", {"span": "9y"}, 400, "span must be 1h, 3h, 24h, 7d"),
        ("/topics", {"sort": "moon"}, 400, "sort must be topic, partitions"),
        ("/topics/orders/records", {"from": "x"}, 400, "newest, oldest, offset or time"),
        ("/topics/orders/records", {"from": "time", "time": "noon"}, 400, "a time such as"),
        ("/topics/orders/records", {"limit": "many"}, 400, "a whole number from 0 to 500"),
        ("/topics/orders/records", {"limit": "9" * 30}, 400, "a whole number"),
        ("/topics/orders/records", {"key": "hex:xyz"}, 400, "not hexadecimal"),
        ("/topics/orders/records", {"start": "{"}, 400, "start is malformed"),
        ("/topics/orders/records", {"start": "[1]"}, 400, "start is malformed"),
        ("/topics/orders/records", {"start": '{"0": 1e999}'}, 400, "start is malformed"),
        ("/topics/orders/records", {"start": "zä"}, 400, "start is malformed"),
        ("/topics/orders/records", {"start": "zAAAA"}, 400, "start is malformed"),
        ("/topics/orders/records", {"start": BOMB}, 400, "start is malformed"),
        ("/topics/orders/records", {"start": "[" * 20_000}, 400, "start is malformed"),
        ("/topics/orders/records/0/" + "9" * 5000, {}, 400, "ValueError"),
        ("/topics/orders/records/0/0/" + "9" * 5000, {}, 400, "unknown part"),
        ("/topics/rows", {}, 404, "UnknownTopicOrPartition"),
        ("/group/reset", {"id": "g", "topic": "orders", "to": "time", "value": "1969-12-31T23:59:59.999"}, 400, "1970"),
        ("/topics/orders/records/0/0/9", {}, 400, "unknown part"),
        ("/topics/orders/settings", {"edit": "moon"}, 400, "unknown setting"),
        ("/topics/orders/segments", {"partition": 7}, 400, "no partition 7"),
        ("/group", {"id": "nobody"}, 404, "does not exist"),
        ("/group/reset", {"id": "g", "topic": "orders", "to": "shift", "value": "-1"}, 400, "Cannot shift offset"),
        ("/group/reset", {"id": "g", "topic": "orders", "to": "moon"}, 400, "earliest"),
        ("/schema", {"subject": "none"}, 400, "not found"),
        ("/checks/none", {}, 400, "unknown check"),
        ("/nowhere", {}, 404, "Not Found"),
        ("/static/../app.py", {}, 404, "Not Found"),
    ],
)
def test_what_cannot_be_shown_is_said(
    visitor: Browser, path: str, query: dict[str, object], status: int, says: str
) -> None:
    """In a page, with the name of the error."""
    assert says in visitor.get(path, status, **query)


@only_in_memory("shared_cluster")
@pytest.mark.parametrize(
    ("field", "typed", "reason"),
    [
        ("offset", "twelve", "a whole number from 0 to 9223372036854775807 is needed, not &#39;twelve&#39;"),
        ("time", "noon", "a time such as 2026-01-31T12:00:00 is needed, not &#39;noon&#39;"),
        ("partition", "x", "a whole number from 0 to 9223372036854775807 is needed, not &#39;x&#39;"),
        ("key", "hex:xyz", "&#39;hex:xyz&#39; is not hexadecimal"),
        ("text", "hex:1", "&#39;hex:1&#39; is not hexadecimal"),
        ("limit", "501", "a whole number from 0 to 500 is needed, not &#39;501&#39;"),
    ],
)
def test_bad_value_in_the_form_of_records_keeps_the_form_with_the_error_beside_the_field(
    visitor: Browser, field: str, typed: str, reason: str
) -> None:
    shown = visitor.get("/topics/orders/records", 400, **{"header": "tier: gold", field: typed})

    (described,) = re.findall(rf'name="{field}"[^>]* aria-describedby="([^"]+)"', shown)
    assert f'role="alert" id="{described}">{reason}<' in shown
    assert 'name="header" placeholder="name: content" value="tier: gold"' in shown
    assert field == "partition" or f'value="{typed}"' in shown
    assert "records of" not in shown


@only_in_memory("shared_cluster")
@pytest.mark.parametrize(
    ("field", "typed", "reason"),
    [
        ("name", "orders", "topic &#39;orders&#39; already exists"),
        ("partitions", "two", "a whole number from 0 to 9223372036854775807 is needed, not &#39;two&#39;"),
        ("partitions", "0", "number of partitions must be from 1 to 10000, not 0"),
        ("configs", "retention.ms", "a line NAME=VALUE is needed, not &#39;retention.ms&#39;"),
        ("configs", "no.such=1", "unknown topic setting &#39;no.such&#39;"),
    ],
)
def test_bad_value_in_the_form_of_a_new_topic_keeps_the_form_with_the_error_beside_the_field(
    visitor: Browser, field: str, typed: str, reason: str
) -> None:
    fields = {"name": "fresh", "partitions": "3", "configs": "retention.ms=5"} | {field: typed}

    shown = visitor.post("/topics", 400, **fields)

    (described,) = re.findall(rf'name="{field}"[^>]* aria-describedby="([^"]+)"', shown)
    assert f'role="alert" id="{described}">{reason}<' in shown
    assert '<details class="change" open>' in shown
    assert re.findall(r'name="(?:name|partitions)"[^>]* value="([^"]*)"', shown) == [
        fields["name"],
        fields["partitions"],
    ]
    assert f">{fields['configs']}</textarea>" in shown
    assert "1 of 1 topic" in re.sub(r"\s", " ", shown)


@only_in_memory("shared_cluster")
@pytest.mark.parametrize("path", ["/topics/orders/settings", "/cluster/settings"])
@pytest.mark.parametrize(
    ("typed", "reason"),
    [("2 moons", "&#39;moons&#39; is not a unit; "), ("x", "a whole number from")],
    ids=["unit", "number"],
)
def test_bad_value_of_a_setting_keeps_the_form_with_the_error_beside_the_field(
    visitor: Browser, path: str, typed: str, reason: str
) -> None:
    setting = "retention.ms" if "orders" in path else "log.retention.ms"

    shown = visitor.post(path, 400, setting=setting, value=typed, action="set")

    (described,) = re.findall(rf'name="value" value="{typed}"[^>]* aria-describedby="([^"]+)"', shown)
    assert reason in shown.partition(f'role="alert" id="{described}">')[2].partition("<")[0]
    assert f'type="hidden" name="setting" value="{setting}"' in shown


@only_in_memory("shared_cluster")
@pytest.mark.parametrize(
    ("fields", "wrong", "reason"),
    [
        ({"action": "add-partitions", "partitions": "two"}, "partitions", "a whole number from 0 to"),
        ({"action": "add-partitions", "partitions": "1"}, "partitions", "topic &#39;orders&#39; "),
        ({"action": "delete-records", "partition": "x", "offset": "4"}, "partition", "a whole number from 0 to"),
        ({"action": "delete-records", "partition": "7", "offset": "4"}, "partition", "orders has no partition 7"),
        ({"action": "delete-records", "partition": " ", "offset": "4"}, "partition", "a whole number from 0 to"),
        ({"action": "delete-records", "partition": "0", "offset": "x"}, "offset", "a whole number from 0 to"),
        ({"action": "delete-records", "partition": "0", "offset": ""}, "offset", "a whole number from 0 to"),
        ({"action": "delete-records", "partition": "0", "offset": "999999"}, "offset", ""),
        ({"action": "delete", "confirm": "order"}, "confirm", "to delete the topic, type its name"),
    ],
)
def test_bad_value_in_a_form_of_a_topics_changes_keeps_the_form_with_the_error_beside_the_field(
    visitor: Browser, fields: dict[str, str], wrong: str, reason: str
) -> None:
    shown = visitor.post("/topics/orders", 400, **fields)

    (described,) = re.findall(rf'name="{wrong}"[^>]* aria-describedby="([^"]+)"', shown)
    assert f'role="alert" id="{described}">{reason}' in shown
    assert '<details class="change" open>' in shown
    for field, text in fields.items():
        assert field == "action" or f'value="{text}"' in re.findall(rf'<input[^>]* name="{field}"[^>]*>', shown)[0]
    assert 'hx-get="/topics/orders?"' in shown


@only_in_memory("shared_cluster")
@pytest.mark.parametrize(
    ("typed", "wrong", "reason"),
    [
        ({"topic": "orders", "to": "offset", "value": "x"}, "value", "a whole number from 0 to"),
        ({"topic": "orders", "to": "offset", "value": ""}, "value", "a whole number from 0 to"),
        ({"topic": "orders", "to": "shift", "value": "-"}, "value", "a whole number from 0 to"),
        ({"topic": "orders", "to": "time", "value": "noon"}, "value", "a time such as"),
        ({"topic": "nothing", "to": "earliest", "value": "4"}, "topic", "topic &#39;nothing&#39; does not exist"),
        ({"topic": "no/thing", "to": "earliest", "value": "4"}, "topic", ""),
        ({"topic": "orders", "to": "moon", "value": "4"}, "to", "choose earliest, latest, time, offset, shift"),
    ],
)
def test_bad_value_in_the_form_of_a_reset_keeps_the_form_with_the_error_beside_the_field(
    visitor: Browser, typed: dict[str, str], wrong: str, reason: str
) -> None:
    shown = visitor.get("/group/reset", 400, id=GROUP, **typed)

    (described,) = re.findall(rf'name="{wrong}"[^>]* aria-describedby="([^"]+)"', shown)
    assert f'role="alert" id="{described}">{reason}' in shown
    assert re.findall(r'name="(?:topic|value)"[^>]* value="([^"]*)"', shown) == [typed["topic"], typed["value"]]
    assert "Nothing has changed yet" not in shown


@pytest.mark.slow
def test_the_next_page_of_many_partitions_fits_into_an_address() -> None:
    """The server takes heads of 64 KiB."""
    cluster = MemoryCluster()
    cluster.create_topic("t", 30, {})
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        for at in range(60):
            producer.send("t", b"number%d." % at, partition=at % 30, timestamp_ms=1000 + at)
    browser = Browser(cluster)
    page = browser.get("/topics/t/records", limit=40)
    following = re.findall(r'href="(\?[^"]*start=z[^"]*)"', page)[0]
    older = browser.client.get("/topics/t/records" + html.unescape(following)).text
    assert sorted(map(int, re.findall(r"number(\d+)\.", older))) == list(range(20))
    many = places_text({p: 1_000_000 + p * p * 7919 % 9_000_000 for p in range(10_000)})
    assert len(many) < 60_000
    browser.view.close()


@pytest.mark.slow
def test_a_record_is_sent_and_downloaded_as_it_is(browser: Browser) -> None:
    """Text, bytes, null and headers; what was sent can be sent again."""
    shown = browser.post(
        "/topics/orders/produce",
        key="a2I=",
        key_as="base64",
        value="ff 00",
        value_as="hex",
        headers="one: 1\r\ntwo: 2: 3\r\n",
        partition=1,
    )
    assert "00000000  ff 00" in shown
    path = "/topics/orders/records/1/15"
    assert browser.client.get(f"{path}/key").content == b"kb"
    value = browser.client.get(f"{path}/value")
    assert (value.content, value.headers["content-type"]) == (b"\xff\x00", "application/octet-stream")
    assert value.headers["content-disposition"].startswith("attachment")
    assert browser.client.get(f"{path}/1").content == b"2: 3"
    again = browser.get("/topics/orders/produce", partition=1, offset=15)
    assert "/wA=" in again
    assert "two: 2: 3" in again

    browser.post("/topics/orders/produce", key="k", value="", value_as="null", partition=1)
    assert browser.client.get("/topics/orders/records/1/16/value").content == b""
    assert ">null<" in browser.get("/topics/orders/records/1/16")
    for field, says in (
        ({"value_as": "hex", "value": "xy"}, "value is not valid hex"),
        ({"key": "k", "key_as": "moon"}, "key must be schema, text"),
        ({"headers": "nothing"}, "headers must be lines"),
        ({"partition": "9"}, "orders"),
        ({"value": ""}, "the value is empty"),
        ({"value_as": "null"}, "it is null, but there is text"),
    ):
        answer = browser.post("/topics/orders/produce", 400, **{"value": "kept text", **field})
        assert says in answer
        assert 'role="alert"' in answer
        assert "kept text" in answer or "value" in field
    assert "Request failed" in browser.get("/topics/orders/records/1/17", 404)


@pytest.mark.slow
@pytest.mark.parametrize("value", [None, b"", b" a\r\nb\r", b"\nfirst", b"\xff", b"\x00a", "\ufeffä\u2028".encode()])
def test_what_is_sent_again_is_the_same_record(value: bytes | None) -> None:
    """As a browser sends the form: with CR LF at the ends of lines."""
    cluster = MemoryCluster()
    cluster.create_topic("t", 1, {})
    headers = [("a", value), ("b b", b"hex:1"), ("c", b"null:"), ("d", b" x\ny "), ("a", b"plain: text")]
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        producer.send("t", value, value or b"k", headers).get()
        producer.send("t", b"v", headers=[("a:b", b"")]).get()
    browser = Browser(cluster)
    page = browser.get("/topics/t/produce", partition=0, offset=0)
    fields = {
        name: re.sub("\r\n|\r|\n", "\r\n", html.unescape(text).removeprefix("\n"))
        for name, text in re.findall(r'<textarea[^>]* name="(\w+)"[^>]*>(.*?)</textarea>', page, re.DOTALL)
    }
    kinds = dict(zip(("key_as", "value_as"), re.findall('<option value="([a-z0-9]+)" selected>', page), strict=True))
    browser.post("/topics/t/produce", **fields, **kinds)

    first, _, again = browse(cluster.log("t"), Question(newest_first=False)).records
    assert (again.key, again.value, list(again.headers)) == (first.key, first.value, list(first.headers))
    assert "the form cannot represent the header" in browser.get("/topics/t/produce", 400, partition=0, offset=1)
    browser.view.close()


@pytest.mark.slow
def test_records_with_a_schema_are_shown_by_their_fields(browser: Browser) -> None:
    """And bytes that only look so as bytes."""
    cluster = browser.view.cluster
    cluster.create_topic("typed", 1, {})
    registry = Registry(cluster)
    schema = '{"type":"record","name":"R","fields":[{"name":"city","type":"string"}]}'
    with KafkaProducer(bootstrap_servers=cluster, value_serializer=AvroSerializer(registry, schema)) as producer:
        producer.send("typed", {"city": "Bremen"}).get()
    with KafkaProducer(bootstrap_servers=cluster) as plain:
        plain.send("typed", b"\x00\x00\x00\x00\x01\xff").get()
        plain.send("typed", b"\x00\x00\x00\x09\x01abc").get()

    assert ">avro<" in browser.get("/topics/typed/records/0/0")
    assert "Bremen" in browser.get("/topics/typed/records")
    damaged = browser.get("/topics/typed/records/0/1")
    assert ">binary<" in damaged
    assert "SerializationError" in damaged
    assert ">binary<" in browser.get("/topics/typed/records/0/2")
    assert "Bremen" not in browser.get("/schemas")
    assert "typed-value" in browser.get("/schemas")
    assert "version 1" in browser.get("/schema", subject="typed-value").lower()


PAYMENT = (
    '{"type":"record","name":"Payment","fields":[{"name":"id","type":"long"},'
    '{"name":"note","type":["null","string"],"default":null}]}'
)


@pytest.mark.slow
def test_value_of_a_topic_with_a_schema_is_encoded_by_it(browser: Browser) -> None:
    """A wrong field is named, and nothing is sent; a right one has the wire format, with all of its digits."""
    view = browser.view
    view.cluster.create_topic("payments", 1, {})
    view.registry.register_schema("payments-value", Schema(PAYMENT, "AVRO"))
    fresh = browser.get("/topics/payments/produce")
    assert '<option value="schema" selected>' in fresh
    assert "&#34;note&#34;: null" in fresh

    fields = {"value_as": "schema", "value_schema": 1}
    wrong = browser.post("/topics/payments/produce", 400, value='{"id": 1.5, "nite": "x"}', **fields)
    assert "<code>id</code>: a whole number is needed, not 1.5" in wrong
    assert "<code>nite</code>: Payment has no such field" in wrong
    assert "nite&#34;: &#34;x" in wrong
    lost = browser.post("/topics/payments/produce", 400, value="{}", value_as="schema", value_schema=9)
    assert "Schema 9 not found" in lost
    assert view.partitions("payments")[0].log_end == 0

    shown = browser.post("/topics/payments/produce", value='{"id": 9007199254740993}', **fields)
    assert '<span class="number">9007199254740993</span>' in shown
    (sent,) = browse(view.cluster.log("payments"), Question()).records
    assert (sent.key, sent.value) == (None, b"\x00\x00\x00\x00\x01\x82\x80\x80\x80\x80\x80\x80\x20\x00")


@pytest.mark.slow
def test_empty_key_is_null_unless_it_is_chosen(browser: Browser) -> None:
    """Kafka tells them apart: only null goes to any partition."""
    view = browser.view
    view.cluster.create_topic("keys", 1, {})
    for kind in ("text", "empty", "null"):
        browser.post("/topics/keys/produce", key="", key_as=kind, value="v")
    browser.post("/topics/keys/produce", key="", key_as="text", value="", value_as="empty")

    found = browse(view.cluster.log("keys"), Question(newest_first=False)).records

    assert [(one.key, one.value) for one in found] == [(None, b"v"), (b"", b"v"), (None, b"v"), (None, b"")]


@pytest.mark.slow
def test_record_is_edited_by_the_schema_it_was_written_with(browser: Browser) -> None:
    """An older version than the newest; unknown fields of the newest are not needed."""
    view = browser.view
    view.cluster.create_topic("payments", 1, {})
    first = PAYMENT.replace(',{"name":"note","type":["null","string"],"default":null}', "")
    with KafkaProducer(bootstrap_servers=view.cluster, value_serializer=AvroSerializer(view.registry, first)) as made:
        made.send("payments", {"id": 5}, b"k").get()
    view.registry.register_schema("payments-value", Schema(PAYMENT, "AVRO"))

    form = browser.get("/topics/payments/produce", partition=0, offset=0)

    assert '<option value="1" selected>payments-value version 1' in form
    browser.post("/topics/payments/produce", key="k", value='{"id": 6}', value_as="schema", value_schema=1, partition=0)
    assert [one.value for one in browse(view.cluster.log("payments"), Question(newest_first=False)).records] == [
        b"\x00\x00\x00\x00\x01\x0a",
        b"\x00\x00\x00\x00\x01\x0c",
    ]


@pytest.mark.slow
def test_clusters_of_one_console_are_separate() -> None:
    """Pages, changes and permissions; each address says its cluster, and a missing one hides no other."""
    views = {}
    for name in ("one", "two"):
        cluster = MemoryCluster()
        cluster.create_topic(f"of-{name}", 1, {})
        views[name] = ConsoleView(cluster, SYSTEM_CLOCK)
    access = AccessControl(token=TOKEN, port=80)
    client = TestClient(consoles(views, access, read_only=["two"]), base_url="http://localhost")
    opened = client.get("/", params={"token": TOKEN})
    assert str(opened.url) == "http://localhost/clusters/one/"

    first, second = (client.get(f"/clusters/{name}/topics").text for name in views)
    assert ("of-one" in first, "of-two" in first) == (True, False)
    assert ("of-one" in second, "of-two" in second) == (False, True)
    assert 'href="/clusters/one/topics/of-one"' in first
    assert '<a href="/clusters/two/">two</a>' in first
    assert ("Create a topic" in first, "Create a topic" in second) == (True, False)
    links = set(re.findall(r'(?:href|action|hx-get)="(/[^"]*)"', first))
    assert {link for link in links if not link.startswith(("/clusters/", "/static/"))} == set()

    form = {"change_key": access.change_key(), "name": "new", "partitions": "1"}
    made = client.post("/clusters/one/topics", data=form)
    assert (made.status_code, str(made.url).partition("?")[0]) == (200, "http://localhost/clusters/one/topics/new")
    assert client.post("/clusters/two/topics", data=form).status_code == 403
    assert ("new" in views["one"].topics(), "new" in views["two"].topics()) == (True, False)
    assert client.get("/clusters/three/topics").status_code == 404
    assert client.get("/clusters/one/nowhere").status_code == 404
    assert client.post("/clusters/one/topics", data={"name": "x"}).status_code == 403
    assert client.get("/static/console.css").status_code == 200
    client.cookies.clear()
    assert client.get("/clusters/one/topics").status_code == 401
    assert client.get("/clusters/two/").status_code == 401
    for view in views.values():
        view.close()


@pytest.mark.slow
def test_two_versions_of_a_schema_are_shown_side_by_side(browser: Browser) -> None:
    """Pretty-printed, with the fields that differ, and which version reads which."""
    registry = browser.view.registry
    first = '{"type":"record","name":"R","fields":[{"name":"id","type":"int"},{"name":"old","type":"string"}]}'
    added = '{"name":"new","type":"string","default":"x"}'
    second = f'{{"type":"record","name":"R","fields":[{{"name":"id","type":"long"}},{added}]}}'
    for text in (first, second):
        registry.register_schema("r-value", Schema(text, "AVRO"))

    newest = browser.get("/schema", subject="r-value")
    words = " ".join(re.sub("<[^>]+>", " ", html.unescape(newest)).split())
    assert "changed id int → long" in words
    assert "removed old string" in words
    assert 'added new string, default "x"' in words
    assert "yes Version 2 reads records of version 1 no Version 1 reads records of version 2" in words
    assert re.search(
        '<td class="remove">.*&#34;type&#34;: &#34;int&#34;</td><td class="add">.*&#34;long&#34;</td>', newest
    )
    alone = browser.get("/schema", subject="r-value", a=1, b=1)
    assert "  &#34;name&#34;: &#34;R&#34;" in alone
    assert "reads records" not in alone
    assert "Version 1</h2>" in browser.get("/schema", id=1)
    assert "Version 9 of r-value not found" in browser.get("/schema", 400, subject="r-value", a=9)
    assert "Schema 9 not found" in browser.get("/schema", 400, id=9)


@pytest.mark.slow
def test_versions_of_protobuf_and_json_schemas_are_compared(browser: Browser) -> None:
    """Protobuf as the text of its file, also where it was registered as a descriptor."""
    registry = browser.view.registry
    head = 'syntax = "proto3"; package shop; message Order { int64 id = 1;'
    for text in (head + " }", head + " repeated string lines = 2; }"):
        registry.register_schema("p-value", Schema(text, "PROTOBUF"))
    for age in ('{"type": "integer"}', '{"type": "number"}'):
        registry.register_schema("j-value", Schema(f'{{"type": "object", "properties": {{"age": {age}}}}}', "JSON"))

    protobuf, json_schema = (
        " ".join(re.sub("<[^>]+>", " ", html.unescape(browser.get("/schema", subject=subject))).split())
        for subject in ("p-value", "j-value")
    )

    assert "added shop.Order.lines repeated string = 2" in protobuf
    assert "added repeated string lines = 2;" in protobuf
    assert 'changed age {"type": "integer"} → {"type": "number"}' in json_schema


@pytest.mark.slow
def test_schemas_are_checked_before_they_are_registered(browser: Browser) -> None:
    """The check says what is wrong and changes nothing."""
    first = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'
    second = '{"type":"record","name":"R","fields":[{"name":"b","type":"int"}]}'
    fields = {"subject": "s/1", "type": "AVRO"}
    assert "The schema can be" in browser.post("/schema", **fields, schema=first, action="check")
    assert "Registered the schema with id 1" in browser.post("/schema", **fields, schema=first, action="register")
    for subject, schema, reason in (
        ("s/1", second, "the new schema cannot read what version 1 wrote"),
        ("new", '"none"', "<li>Invalid schema: the type &#39;none&#39; is not defined</li>"),
    ):
        for action, status in (("check", 200), ("register", 400)):
            shown = browser.post("/schema", status, **fields | {"subject": subject}, schema=schema, action=action)
            assert "The schema cannot be the next version" in shown
            assert reason in shown
            assert f"{html.escape(schema, quote=True).replace('&quot;', '&#34;')}</textarea>" in shown
    assert browser.view.registry.get_versions("s/1") == [1]


@pytest.mark.slow
def test_topics_are_made_changed_and_deleted(browser: Browser) -> None:
    """Each change is one of Kafka's administration, with its errors."""
    made = browser.post("/topics", name="new", partitions=2, configs="retention.ms=5\r\ncleanup.policy=delete\r\n")
    assert "Created topic new." in made
    info = browser.view.cluster.topic("new")
    assert (info.num_partitions, dict(info.configs)["retention.ms"]) == (2, "5")
    assert "has characters other than letters" in browser.post("/topics", 400, name="../x", partitions=1)

    browser.post("/topics/new", action="add-partitions", partitions=3)
    browser.post("/topics/new/settings", setting="retention.ms", value=7, action="set")
    assert "Request failed" in browser.post("/topics/new/settings", 400, setting="no.such", value="x", action="set")
    info = browser.view.cluster.topic("new")
    assert (info.num_partitions, dict(info.configs)["retention.ms"]) == (3, "7")
    browser.post("/topics/new/settings", setting="retention.ms", action="reset")
    assert "retention.ms" not in browser.view.cluster.topic("new").configs

    browser.post("/topics/new", action="delete", confirm="new")
    assert "new" not in browser.view.topics()
    browser.post("/topics/orders", action="delete-records", partition=0, offset=5)
    assert browser.view.partitions("orders")[0].log_start == 5


@pytest.mark.slow
def test_settings_show_what_was_changed_and_take_units(browser: Browser) -> None:
    """Of the topic, and of the cluster, whose values are the topics' defaults."""

    def words(path: str) -> str:
        return " ".join(re.sub("<[^>]+>", " ", html.unescape(browser.get(path))).split())

    said = browser.post("/topics/orders/settings", setting="retention.ms", value="2 days", action="set")
    assert "Set retention.ms to 172800000, which is 2 days." in said
    assert "retention.ms -1 no limit 172800000 2 days" in words("/topics/orders/settings")
    browser.post("/topics/orders/settings", setting="retention.ms", action="reset")
    browser.post("/cluster/settings", setting="log.retention.ms", value="3 h", action="set")
    assert "log.retention.ms default 10800000 3 hours" in words("/cluster/settings")
    of_topic = words("/topics/orders/settings")
    assert "keeps it forever. 10800000 3 hours the cluster 604800000 7 days" in of_topic
    assert "retention.ms 172800000 2 days default" in of_topic


@pytest.mark.slow
def test_offsets_are_reset_as_the_preview_has_shown(browser: Browser) -> None:
    """And a group is deleted by its name."""
    preview = browser.get("/group/reset", id=GROUP, topic="orders", to="offset", value=4)
    offsets = dict(re.findall(r'name="(offset-\d+)" value="(\d+)"', preview))
    assert offsets == {"offset-0": "4", "offset-1": "4"}
    assert [lag.committed.position.offset for lag in browser.view.lags_of(GROUP)] != [4, 4]

    browser.post("/group/reset", id=GROUP, topic="orders", **{k.replace("-", "__"): v for k, v in offsets.items()})
    assert [lag.committed.position.offset for lag in browser.view.lags_of(GROUP)] == [4, 4]
    shifted = browser.get("/group/reset", id=GROUP, topic="orders", to="shift", value=-3)
    assert set(re.findall(r'name="offset-\d+" value="(\d+)"', shifted)) == {"1"}
    assert "no offsets to set" in browser.post("/group/reset", 400, id=GROUP, topic="orders")
    wrong = browser.post(f"/group?id={GROUP}", 400, confirm="x")
    assert 'value="x" autofocus aria-invalid="true" aria-describedby="confirm-problem">' in wrong
    assert 'role="alert" id="confirm-problem">to delete the group, type its name<' in wrong
    browser.post(f"/group?id={GROUP}", confirm=GROUP)
    assert "does not exist" in browser.get("/group", 404, id=GROUP)


@pytest.mark.slow
def test_members_of_a_group_keep_their_offsets(browser: Browser) -> None:
    """As Kafka refuses it; the page says why."""
    with KafkaConsumer("orders", bootstrap_servers=browser.view.cluster, group_id="live") as consumer:
        while not consumer.assignment():
            consumer.poll(100)
        shown = browser.get("/group", id="live")
        assert "orders: 0, 1" in shown
        refused = browser.post("/group/reset", 400, id="live", topic="orders", to="offset", value=3, offset__0=3)
        assert re.search(r'role="alert" id="offsets-problem">[^<]*stop the group', refused)
        assert 'name="offset-1" value="3"' in refused


@pytest.mark.slow
def test_the_token_opens_the_console_once_and_stands_in_no_address(cluster: Cluster) -> None:
    """It becomes a cookie that scripts cannot read and other sites do not send."""
    view = ConsoleView(cluster, SYSTEM_CLOCK)
    client = TestClient(
        console(view, AccessControl(token=TOKEN, port=80)), base_url="http://localhost", follow_redirects=False
    )
    assert client.get("/topics").status_code == 401
    assert client.get("/static/console.css").status_code == 401
    assert client.get("/topics", params={"token": "wrong"}).status_code == 401
    assert client.get("/topics", params={"token": TOKEN}, headers={"host": "evil.example"}).status_code == 403

    opened = client.get("http://localhost//evil.example/topics", params={"token": TOKEN, "q": "a"})
    assert (opened.status_code, opened.headers["location"]) == (303, "/evil.example/topics?q=a")
    held = opened.headers["set-cookie"].lower()
    assert "httponly" in held
    assert "samesite=strict" in held
    assert TOKEN not in held
    assert client.get("/topics").status_code == 200
    assert client.get("/topics", headers={"host": "evil.example"}).status_code == 403
    view.close()


@pytest.mark.slow
def test_every_change_is_refused_without_its_secret_and_on_a_read_only_console(cluster: Cluster) -> None:
    """All of them, also those that a later page adds."""
    cluster.create_topic("orders", 1, {})
    open_one, closed = Browser(cluster), Browser(cluster, read_only=True)
    for path in CHANGE:
        here = path.replace("{name}", "orders")
        assert open_one.client.post(here, data={"name": "x"}).status_code == 403
        assert (
            open_one.client.post(here, content=b"{}", headers={"content-type": "application/json"}).status_code == 415
        )
        assert closed.client.post(here, data={"change_key": closed.access.change_key()}).status_code == 403
    for path in READ:
        here = path.replace("{name}", "orders").replace("{id}", "x")
        if "{" not in here:
            assert open_one.client.post(here, data={"change_key": "x"}).status_code == 403
    assert set(closed.view.topics()) == {"orders"}
    assert 'method="post"' not in "".join(
        closed.get(path) for path in ("/topics", "/topics/orders", "/topics/orders/settings", "/checks", "/schemas")
    )
    for one in (open_one, closed):
        one.view.close()


@pytest.mark.slow
def test_checks_run_beside_the_pages_and_tell_their_end(browser: Browser) -> None:
    """A verification, then what maintenance would do."""
    for what, says in (("verify", "sound"), ("maintain", "No maintenance is due")):
        browser.post("/checks", what=what, topic="orders")
        job = browser.view.jobs.all()[0]
        job.thread.join()
        assert says in browser.get(f"/checks/{job.id}")
        assert says in browser.get("/checks")
    assert "verify or maintain" in browser.post("/checks", 400, what="x")


@pytest.mark.slow
def test_metrics_are_served_beside_the_pages(browser: Browser) -> None:
    """To those who know the token."""
    assert browser.get("/metrics") == "kafkalike_up 1.0\n"


@pytest.mark.slow
def test_a_form_has_an_end(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too long, or no form, is refused."""
    monkeypatch.setattr("kafkalike.ui.app.MOST_BODY", 1000)
    assert browser.client.post("/topics", data={"name": "x" * 2000}).status_code == 413
    fields = {"content-type": "application/x-www-form-urlencoded"}
    assert browser.client.post("/topics", content="name=ä".encode(), headers=fields).status_code == 400


@pytest.mark.slow
def test_groups_have_pages(browser: Browser) -> None:
    """Only those of the page are looked at."""
    with KafkaAdminClient(bootstrap_servers=browser.view.cluster) as admin:
        for number in range(120):
            admin.alter_group_offsets(f"many-{number:03}", {TopicPartition("orders", 0): OffsetAndMetadata(1)})

    first, last = browser.get("/groups", q="many"), browser.get("/groups", q="many", page=3)

    assert "120 groups" in first
    assert "page 1 of 3" in first
    assert ("many-049" in first, "many-050" in first) == (True, False)
    assert ("many-099" in last, "many-119" in last) == (False, True)


def test_group_with_blanks_around_its_name_is_deleted_and_its_namesake_stays(browser: Browser) -> None:
    with KafkaAdminClient(bootstrap_servers=browser.view.cluster) as admin:
        for name in ("blank", " blank "):
            admin.alter_group_offsets(name, {TopicPartition("orders", 0): OffsetAndMetadata(1)})

        browser.post("/group?id=%20blank%20", confirm=" blank ")

        assert [name for name, _ in admin.list_consumer_groups() if "blank" in name] == ["blank"]


@pytest.mark.slow
def test_pages_of_a_key_go_on(browser: Browser) -> None:
    """Below the last record that was shown, by the files and not by a scan."""
    first = browser.get("/topics/orders/records", key="k1", limit=4)
    (link,) = set(re.findall(r'href="([^"]+)">Older records', first))
    rest = browser.client.get("/topics/orders/records" + html.unescape(link)).text

    assert "4 records with this key" in first
    assert "4 records with this key" in rest
    shown = [set(re.findall(r"records/(\d+/\d+)\"", text)) for text in (first, rest)]
    assert (len(shown[0]), len(shown[1]), shown[0] & shown[1]) == (4, 4, set())


@pytest.mark.slow
def test_a_root_that_is_gone_is_said_on_every_page(tmp_path: Path) -> None:
    """Not old figures, nor empty tables, as if all were well."""
    cluster = connect(str(tmp_path / "root"))
    cluster.create_topic("orders", 1, {})
    browser = Browser(cluster)
    browser.get("/topics")
    shutil.rmtree(tmp_path / "root")

    for path in READ:
        if "{" not in path.replace("{name}", "") and path != "/metrics":
            assert "does not exist" in browser.get(path.replace("{name}", "orders"), 502), path


@pytest.mark.slow
def test_a_form_that_does_not_come_is_not_waited_for(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that sends no form would be held for ever."""
    monkeypatch.setattr("kafkalike.ui.app.FORM_SECONDS", 0.05)
    gate, told = console(browser.view, browser.access), []
    headers = {
        "host": "localhost",
        "authorization": f"Bearer {TOKEN}",
        "content-type": "application/x-www-form-urlencoded",
    }
    scope = {"type": "http", "method": "POST", "path": "/topics", "query_string": b"", "scheme": "http"}
    scope["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def receive() -> dict[str, object]:
        await asyncio.sleep(3600)
        return {}

    async def send(message: MutableMapping[str, object]) -> None:
        await asyncio.sleep(0)
        told.append(message)

    asyncio.run(gate(scope, receive, send))

    assert told[0]["status"] == 408


@pytest.mark.slow
def test_replicas_are_shown_with_those_that_give_no_answer(tmp_path: Path) -> None:
    """Of a cluster with several roots; one root has no replicas."""
    roots = [str(tmp_path / f"root-{number}") for number in range(3)]
    for root in roots:
        Path(root).mkdir()
    cluster = connect(",".join(roots))
    cluster.create_topic("orders", 1, {}, replication_factor=3)
    browser = Browser(cluster)
    browser.get("/topics")

    sound = browser.get("/replicas", q="orders")
    Path(roots[2]).rename(tmp_path / "gone")
    broken = browser.get("/replicas", q="orders")

    assert "in sync" in sound
    assert "no answer" not in sound
    assert "no answer" in broken
    assert "has one root" in Browser(MemoryCluster()).get("/replicas")


@pytest.mark.slow
def test_overview_counts_letters_in_topics_of_any_name(cluster: Cluster, browser: Browser) -> None:
    """A consumer's setting names the topic, so its first record tells, which the part with the letters has read."""
    with KafkaConsumer(
        "orders",
        bootstrap_servers=cluster,
        group_id="billing",
        auto_offset_reset="earliest",
        value_deserializer=int,
        errors_tolerance="all",
        errors_deadletterqueue_topic_name="unbilled",
    ) as consumer:
        while sum(map(consumer.position, consumer.assignment())) < 30:
            assert consumer.poll(2000) == {}
        consumer.commit()
    # The look of the browser's first page is not old yet where each request is paid for.
    browser.view.sampler.expire()

    letters = browser.get("/overview/letters")
    shown = browser.get("/")

    assert "unbilled" in letters
    assert re.findall("([0-9]+)</data> new</a><small>in 24 hours; ([0-9]+) kept", shown) == [("30", "30")]
