"""The service: a real server on the loopback, asked by Confluent's client, by another one, and by nobody's friends."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import confluent_kafka.schema_registry as confluent
import httpx
import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError as ConfluentError
from confluent_kafka.serialization import MessageField, SerializationContext
from schema_registry.client import SchemaRegistryClient as OtherClient
from schema_registry.client import schema as other_schemas

from kafkalike.admin.testing import MemoryCluster
from kafkalike.errors import KafkaConfigurationError, KafkaConnectionError, SchemaRegistryError
from kafkalike.model.schemas.schema import Schema as SchemaValue
from kafkalike.schemas import Registry, RemoteRegistry, Schema, open_registry
from kafkalike.schemas.remote_registry import MAX_ANSWER, Access
from kafkalike.schemas.service import http_server as serving
from kafkalike.schemas.service.credentials import credentials
from kafkalike.schemas.service.registry_service import ROUTES
from tests.tools.registries import served

V1 = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
V2 = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"n","type":"int","default":0}]}'
BAD = '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}'
SENT = "application/vnd.schemaregistry.v1+json"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A service for tests that have subjects of their own."""
    with served() as where:
        yield where


@pytest.fixture(scope="module")
def http(url: str) -> Iterator[httpx.Client]:
    """Asks that service whatever comes to mind."""
    with httpx.Client(base_url=url) as made:
        yield made


@pytest.fixture
def client(url: str) -> Iterator[confluent.SchemaRegistryClient]:
    """Confluent's client."""
    with confluent.SchemaRegistryClient({"url": url, "max.retries": 0}) as made:
        yield made


def refused(act: Callable[[], object]) -> tuple[int, int]:
    """Status and code of what Confluent's client raises."""
    with pytest.raises(ConfluentError) as caught:
        act()
    return caught.value.http_status_code, caught.value.error_code


def test_confluents_client_finds_all_it_asks_for(client: confluent.SchemaRegistryClient) -> None:
    """Names with slashes and blanks, too."""
    subject = "a/b c%ü-value"
    v1, v2 = confluent.Schema(V1, "AVRO"), confluent.Schema(V2, "AVRO")

    first = client.register_schema(subject, v1)
    second = client.register_schema_full_response(subject, v2)

    assert second.version == 2
    client.clear_caches()  # type: ignore[no-untyped-call]
    assert client.get_schema(first).schema_str == V1
    assert client.get_schema_by_guid(str(second.guid)).schema_str == V2
    assert client.lookup_schema(subject, v1).version == 1
    assert client.get_latest_version(subject).schema_id == second.schema_id
    assert client.get_version(subject, 1).schema.schema_str == V1
    assert client.get_versions(subject) == [1, 2]
    assert subject in client.get_subjects()
    assert client.get_subjects(subject_prefix="a/b") == [subject]
    assert subject in client.get_subjects_by_schema_id(first)
    assert [(v.subject, v.version) for v in client.get_schema_versions(first, subject)] == [(subject, 1)]
    assert client.get_schema_types() == ["AVRO", "JSON", "PROTOBUF"]
    assert client.get_contexts() == ["."]
    assert client.get_referenced_by(subject, 1) == []
    assert client.get_associations_by_resource_name("t", "-") == []
    assert client.test_compatibility(subject, v2, verbose=True)
    assert not client.test_compatibility_all_versions(subject, confluent.Schema(BAD, "AVRO"))
    assert refused(lambda: client.register_schema(subject, confluent.Schema(BAD, "AVRO"))) == (409, 409)


@pytest.mark.slow
def test_confluents_client_deletes_and_sets(client: confluent.SchemaRegistryClient) -> None:
    """With the codes that it knows."""
    subject = "set-value"
    client.register_schema(subject, confluent.Schema(V1, "AVRO"))
    level = confluent.ConfigCompatibilityLevel.FULL

    assert refused(lambda: client.get_compatibility(subject)) == (404, 40408)
    assert refused(lambda: client.get_mode(subject)) == (404, 40409)
    client.set_compatibility(subject, "forward")
    assert client.get_compatibility(subject) == "FORWARD"
    client.set_config(subject, confluent.ServerConfig(compatibility=level))
    assert client.get_config(subject).compatibility_level == level
    assert client.delete_config(subject).compatibility_level == level
    assert client.get_global_mode() == "READWRITE"
    assert client.update_mode(subject, "READONLY") == "READONLY"
    assert refused(lambda: client.delete_subject(subject)) == (422, 42205)
    assert client.delete_mode(subject) == "READONLY"
    assert refused(lambda: client.update_mode(subject, "IMPORT")) == (422, 42205)
    assert refused(lambda: client.update_mode(subject, "SOMETIMES")) == (422, 42204)
    assert refused(lambda: client.delete_version(subject, 1, permanent=True)) == (404, 40407)
    assert client.delete_version(subject, 1) == 1
    assert refused(lambda: client.get_version(subject, 1)) == (404, 40401)
    assert client.get_versions(subject, deleted=True) == [1]
    assert client.delete_subject(subject, permanent=True) == [1]
    assert refused(lambda: client.get_versions(subject, deleted=True)) == (404, 40401)
    assert refused(lambda: client.get_schema(99_999)) == (404, 40403)
    assert refused(lambda: client.register_schema(subject, confluent.Schema("{", "AVRO"))) == (422, 42201)


@pytest.mark.slow
def test_confluents_serializers_work_over_the_service(client: confluent.SchemaRegistryClient) -> None:
    """The bytes are those that they make with an embedded registry."""
    context = SerializationContext("wire", MessageField.VALUE)
    embedded = Registry(MemoryCluster())
    sent = AvroSerializer(client, V1)({"id": 7}, context)

    assert AvroDeserializer(client, V2)(sent, context) == {"id": 7, "n": 0}
    alone = AvroSerializer(embedded, V1)({"id": 7}, context)
    assert alone is not None
    assert sent is not None
    assert sent[5:] == alone[5:]
    assert AvroDeserializer(embedded)(alone, context) == {"id": 7}


@pytest.mark.slow
def test_another_client_finds_what_it_asks_for(url: str) -> None:
    """python-schema-registry-client."""
    client = OtherClient(url)
    v1, bad = other_schemas.AvroSchema(V1), other_schemas.AvroSchema(BAD)

    number = client.register("other", v1)

    assert client.get_by_id(number) is not None
    found, checked = client.get_schema("other"), client.check_version("other", v1)
    assert found is not None
    assert checked is not None
    assert (found.version, found.schema_id, checked.version) == (1, number, 1)
    assert client.get_versions("other") == [1]
    assert client.test_compatibility("other", bad) is False
    assert client.update_compatibility("FULL", "other")
    assert client.get_compatibility("other") == "FULL"
    assert client.delete_version("other", 1) == 1
    assert client.get_schema("other") is None


def test_our_own_client_says_the_same_over_http_as_without(url: str) -> None:
    """Schemas, refusals, and what stands against a schema."""
    remote, embedded = RemoteRegistry(url), Registry(MemoryCluster())
    with remote:
        for registry in (remote, embedded):
            registry.register_schema("mine", Schema(V1))
        answers = []
        for registry in (remote, embedded):
            latest = registry.latest("mine")
            assert latest is not None
            assert registry.schema_by_id(latest.id) == latest.schema
            assert registry.ids_of("mine") == [latest.id]
            with pytest.raises(SchemaRegistryError) as caught:
                registry.register_schema("mine", Schema(BAD))
            answers.append(
                (latest.schema, registry.latest("nobody"), registry.problems("mine", Schema(BAD)), str(caught.value))
            )
    assert answers[0] == answers[1]


@pytest.mark.parametrize("remote", [False, True])
def test_the_first_version_of_a_subject_is_made_once(remote: bool) -> None:  # noqa: FBT001
    """Not by a schema that would be a compatible second one either; where all versions were deleted there is a next."""
    cluster = MemoryCluster()
    with served(cluster) as url:
        client = RemoteRegistry(url) if remote else Registry(cluster)
        client.set_compatibility(level="NONE")
        first, other = (SchemaValue("PROTOBUF", f'syntax = "proto3"; message M {{ int64 {n} = 1; }}') for n in "ab")

        assert client.register_first("s", first)
        assert not client.register_first("s", other)
        assert not client.register_first("s", first)
        assert client.get_versions("s") == [1]
        assert client.latest("s").schema == first  # type: ignore[union-attr]
        client.delete_subject("s")
        assert client.register_first("s", other)
        assert client.get_versions("s") == [2]
        client.update_mode("t", "READONLY")
        with pytest.raises(SchemaRegistryError, match="read-only mode"):
            client.register_first("t", first)


def test_associations_are_refused_by_name(http: httpx.Client) -> None:
    """Nobody has one, so that strategies which ask for them go by the topic's name."""
    for path in ("subjects/s", "resources/t", "resources/-/t"):
        assert http.get(f"/associations/{path}").json() == []
    answers = [http.post("/associations", json={}), http.put("/associations", json={})]
    for answer in (*answers, http.delete("/associations/resources/t")):
        assert (answer.status_code, answer.json()["error_code"]) == (422, 42205)
        assert "associations of topics with subjects are not kept here" in answer.json()["message"]
    registry = Registry(MemoryCluster())
    for act in (registry.create_association, registry.delete_associations):
        with pytest.raises(SchemaRegistryError, match="are not kept here"):
            act("t")


@pytest.mark.slow
def test_only_who_is_known_is_answered() -> None:
    """By a token or a user; what is compared is not shown."""
    allowed = credentials(["", "# nobody", "secret-token"], ["ann:pass:word"])
    assert "secret" not in repr(allowed)
    with served(allowed=allowed) as url:
        for header in (None, "Bearer wrong", "Basic !", "Digest x", basic("ann", "x"), basic("bob", "x")):
            answer = httpx.get(f"{url}/subjects", headers={} if header is None else {"Authorization": header})
            assert (answer.status_code, answer.json()["error_code"]) == (401, 401)
            assert answer.headers["www-authenticate"].startswith("Basic")
        assert open_registry({"url": url, "bearer.auth.token": "secret-token"}).get_subjects() == []
        assert open_registry({"url": url, "basic.auth.user.info": "ann:pass:word"}).get_subjects() == []
        assert open_registry(url.replace("//", "//ann:pass%3Aword@")).get_subjects() == []
    for wrong in ("ann", ":x", "ann:"):
        with pytest.raises(KafkaConfigurationError):
            credentials([], [wrong])


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_a_read_only_service_answers_and_changes_nothing() -> None:
    """Looking up and checking are no changes."""
    cluster = MemoryCluster()
    Registry(cluster).register_schema("s", Schema(V1))
    with served(cluster, read_only=True) as url, RemoteRegistry(url) as client:
        assert client.lookup_schema("s", Schema(V1)).version == 1
        assert client.test_compatibility("s", Schema(V2))
        for act in (
            lambda: client.register_schema("s", Schema(V2)),
            lambda: client.delete_subject("s"),
            lambda: client.set_compatibility("s", "NONE"),
            lambda: client.update_global_mode("READONLY"),
        ):
            with pytest.raises(SchemaRegistryError) as caught:
                act()
            assert caught.value.error_code == 42205


BODIES: list[tuple[bytes, str, int]] = [
    (b"{", SENT, 400),
    (b"[" * 50_000, SENT, 400),
    (b"\xff\xfe", SENT, 400),
    (b"[]", SENT, 422),
    (b'"x"', SENT, 422),
    (b"{}", "text/plain", 415),
    (b"{}", "", 415),
    (b"x" * 100_001, SENT, 413),
    (b'{"schema": 5}', SENT, 422),
    (b'{"schema": "1", "schemaType": "XML"}', SENT, 422),
    (b'{"schema": "1", "schemaType": {}}', SENT, 422),
    (b'{"schema": "{}", "references": 7}', SENT, 422),
    (b'{"schema": "{}", "references": [7]}', SENT, 422),
    (b'{"schema": "{}", "references": [{"name": "a", "subject": "b", "version": "1"}]}', SENT, 422),
    (b'{"schema": "\\"long\\"", "id": 1e9}', SENT, 422),
    (b'{"schema": "\\"long\\"", "version": true}', SENT, 422),
    (b'{"schema": "\\"long\\"", "ruleSet": {"domainRules": [{}]}}', SENT, 422),
    (b'{"schema": "\\"\\ud800\\""}', SENT, 422),
    (b'{"mode": [], "compatibility": {}}', SENT, 422),
    (b'{"mode": "x", "compatibility": "x", "normalize": "x"}', SENT, 422),
    (b'{"compatibility": "FULL", "alias": "x"}', SENT, 422),
]


@pytest.mark.parametrize(("body", "kind", "status"), BODIES, ids=[str(n) for n in range(len(BODIES))])
def test_a_bad_body_is_refused_by_each_route_that_reads_one(
    http: httpx.Client, body: bytes, kind: str, status: int
) -> None:
    """With a code and a message, and nothing is written."""
    before = http.get("/subjects").json()
    for pattern, methods in ROUTES.items():
        for method in {"POST", "PUT"} & methods.keys():
            path = pattern.replace("{subject}", "bad").replace("{version}", "latest")
            answer = http.request(method, f"/{path}", content=body, headers={"content-type": kind})
            assert answer.status_code == status, (method, path, answer.text)
            assert set(answer.json()) == {"error_code", "message"}
    assert http.get("/subjects").json() == before


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("nothing", 404, 404),
        ("subjects/%ff", 404, 404),
        ("subjects/a/versions/0", 422, 42202),
        ("subjects/a/versions/x", 422, 42202),
        ("subjects/a/versions/99999999999", 422, 42202),
        ("subjects/a/versions/1", 404, 40401),
        ("subjects/%0a/versions", 422, 42208),
        ("subjects/:.ctx:a/versions", 422, 42208),
        ("subjects?limit=x", 422, 422),
        ("schemas/ids/x", 404, 40403),
        ("schemas/ids/99999999999999999999", 404, 40403),
        ("schemas/guids/x", 404, 40403),
        ("config/a", 404, 40408),
        ("mode/a", 404, 40409),
        ("contexts/.ctx/subjects", 404, 404),
        ("subjects?" + "&".join(f"a{n}=1" for n in range(65)), 400, 400),
    ],
)
def test_a_bad_path_is_refused_by_name(http: httpx.Client, path: str, status: int, code: int) -> None:
    """The codes are Confluent's."""
    answer = http.get(f"/{path}")

    assert (answer.status_code, answer.json()["error_code"]) == (status, code), answer.text


def test_methods_and_content_types_are_those_of_the_interface(http: httpx.Client) -> None:
    """What a client takes it gets; else it is told."""
    assert http.put("/subjects").status_code == 405
    assert http.get("/subjects", headers={"accept": "text/html"}).status_code == 406
    assert http.get("/subjects", headers={"accept": "application/json"}).headers["content-type"] == ("application/json")
    assert http.get("/subjects").headers["content-type"] == SENT
    assert http.get("/contexts/:.:/schemas/types").json() == ["AVRO", "JSON", "PROTOBUF"]
    assert http.get("/").json() == {}


def test_pages_of_other_hosts_are_not_answered(http: httpx.Client, url: str) -> None:
    """A browser on this machine reaches the loopback for whatever page it shows."""
    port = url.rpartition(":")[2]
    for headers in ({"host": f"evil.example:{port}"}, {"origin": "http://evil.example"}, {"origin": "http://["}):
        assert http.get("/subjects", headers=headers).status_code == 403
    assert http.get("/subjects", headers={"host": f"localhost:{port}"}).status_code == 200


def test_a_client_that_hangs_up_leaves_the_service_well(http: httpx.Client, url: str) -> None:
    """Before its body is there, or instead of a request."""
    host, port = url.removeprefix("http://").split(":")
    for said in (
        b"POST /subjects/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{",
        b"\x16\x03\x01\x00",
        b"",
    ):
        with socket.create_connection((host, int(port)), timeout=5) as raw:
            raw.sendall(said)

    assert http.get("/subjects").status_code == 200


def test_what_answers_and_is_no_registry_is_named() -> None:
    """A page instead of JSON, and a redirection, to which no password goes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        for answer, said in (
            (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n<a/>", "does not come from a schema registry"),
            (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "status 302"),
        ):
            with RemoteRegistry(address) as client, pytest.raises(SchemaRegistryError, match=said):
                _ask_beside(server, answer, client.get_subjects)


@pytest.mark.slow
def test_a_server_that_sends_byte_by_byte_holds_nobody_for_long() -> None:
    """Each byte comes in time, the answer never does."""
    ended = threading.Event()

    def trickle() -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not ended.wait(0.05):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=trickle)
        thread.start()
        access = Access(urls=(f"http://127.0.0.1:{server.getsockname()[1]}",), timeout_s=0.5, retries=0)
        try:
            refused = pytest.raises(KafkaConnectionError, match="no complete answer in 1 s")
            with RemoteRegistry(access) as client, refused:
                client.get_subjects()
        finally:
            ended.set()
            thread.join()


def _ask_beside(server: socket.socket, answer: bytes, act: Callable[[], object]) -> None:
    def reply() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(answer)

    thread = threading.Thread(target=reply)
    thread.start()
    try:
        act()
    finally:
        thread.join()


def test_the_json_of_an_answer_is_what_confluent_sends(http: httpx.Client) -> None:
    """An Avro schema without its type, others with it."""
    body = json.dumps({"schema": '{"type": "object"}', "schemaType": "JSON"})
    made = http.post("/subjects/shape/versions", content=body, headers={"content-type": SENT}).json()
    found = http.get("/subjects/shape/versions/1").json()
    by_id = http.get(f"/schemas/ids/{made['id']}?fetchMaxId=true").json()

    assert found == {
        "subject": "shape",
        "version": 1,
        "id": made["id"],
        "guid": made["guid"],
        "schemaType": "JSON",
        "schema": '{"type":"object"}',
    }
    assert (by_id["schema"], by_id["schemaType"], by_id["maxId"] >= made["id"]) == ('{"type":"object"}', "JSON", True)
    assert http.get(f"/schemas/ids/{made['id']}/schema").json() == {"type": "object"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("timeout", "nan"), ("timeout", "inf"), ("timeout", 0), ("timeout", -3), ("max.retries", -1)],
)
def test_a_setting_without_meaning_is_refused_before_anything_is_asked(name: str, value: object) -> None:
    with pytest.raises(KafkaConfigurationError, match=name):
        open_registry({"url": "http://127.0.0.1:9", name: value})


@pytest.mark.slow
@pytest.mark.parametrize("parts", [[], [b"GET /subj"], [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /subj"]])
def test_who_sends_no_whole_request_is_not_waited_for(parts: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent connections would use up all that there may be, without a password."""
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.1)
    with served() as where, socket.create_connection(("127.0.0.1", httpx.URL(where).port)) as connection:
        connection.settimeout(20)
        for part in parts:
            connection.sendall(part)
            if part.endswith(b"\n"):
                answer = b""
                while not answer.endswith(b"{}"):
                    answer += connection.recv(4096)

        assert connection.recv(4096) == b""


def answering(encoding: str, content: bytes) -> ThreadingHTTPServer:
    """A service on the loopback that gives the same answer to each request."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Encoding", encoding)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


SUBJECTS = b'["a","b"]'
BOMB = gzip.compress(b" " * (MAX_ANSWER + 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoding", "content", "error"),
    [
        ("gzip, gzip", gzip.compress(BOMB), "encoding 'gzip, gzip'"),
        ("gzip", BOMB, "more than 67108864 bytes"),
        ("br", b"x", "encoding 'br'"),
        ("deflate", b"x", "encoding 'deflate'"),
    ],
    ids=["gzip in gzip", "gzip of too much", "br", "deflate"],
)
def test_answer_that_would_inflate_past_the_bound_is_rejected(encoding: str, content: bytes, error: str) -> None:
    server = answering(encoding, content)
    url = f"http://127.0.0.1:{server.server_port}"
    with RemoteRegistry(url) as client, pytest.raises(SchemaRegistryError, match=error):
        client.get_subjects()
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("encoding", "content"),
    [("gzip", gzip.compress(SUBJECTS)), ("identity", SUBJECTS), ("", SUBJECTS)],
    ids=["gzip", "identity", "none"],
)
def test_answer_of_one_encoding_is_read(encoding: str, content: bytes) -> None:
    server = answering(encoding, content)
    with RemoteRegistry(f"http://127.0.0.1:{server.server_port}") as client:
        assert client.get_subjects() == ["a", "b"]
    server.shutdown()
    server.server_close()
