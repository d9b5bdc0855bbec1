"""Google door: requests of Google's XML interface in, those of its JSON interface out, which fake-gcs-server knows.

obstore puts, copies and uploads in parts by XML. fake-gcs-server answers that with 400, "invalid uploadType"; reads,
lists and deletions it takes as they are. So the door only says the former in other words: what a condition on a
generation is worth, and who wins a race, fake-gcs-server decides.

    python -m tests.tools.google_door PORT FAKE_GCS_SERVER BUCKET

starts the program too, with one bucket, and ends it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

CONDITION: Final = "x-goog-if-generation-match"
SOURCE: Final = "x-goog-copy-source"
HOP: Final = frozenset({"connection", "transfer-encoding", "content-length", "host", "date", "server"})

_uploads: dict[str, dict[int, bytes]] = {}
"""Parts of uploads that are not completed, by upload and number."""


class Server(ThreadingHTTPServer):
    """Takes as many connections at once as come."""

    daemon_threads = True
    request_queue_size = 256


class Door(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    behind: ClassVar[int]
    """fake-gcs-server's port."""

    def setup(self) -> None:
        """Begin."""
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client = http.client.HTTPConnection("127.0.0.1", self.behind, timeout=60)

    def finish(self) -> None:
        """End."""
        self._client.close()
        super().finish()

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    # --- requests ------------------------------------------------------------------------------

    def do_GET(self) -> None:
        """As it is."""
        self._as_it_is()

    def do_HEAD(self) -> None:
        """As it is."""
        self._as_it_is()

    def do_DELETE(self) -> None:
        """As it is."""
        self._as_it_is()

    def do_PUT(self) -> None:
        """An object, a part of one, or a copy."""
        content = self._content()
        bucket, key, query = self._named()
        if "partNumber" in query:
            parts = _uploads[query["uploadId"]]
            parts[int(query["partNumber"])] = content
            self._answer(200, {"ETag": f'"part-{query["partNumber"]}"'})
        elif self.headers.get(SOURCE):
            there = unquote(self.headers[SOURCE]).lstrip("/")
            source_bucket, _, source = there.partition("/")
            path = (
                f"/storage/v1/b/{source_bucket}/o/{quote(source, safe='')}/rewriteTo/b/{bucket}/o/{quote(key, safe='')}"
            )
            self._told(*self._asked(path + self._condition("?"), b"{}"))
        else:
            self._told(*self._asked(self._upload(bucket, key), content))

    def do_POST(self) -> None:
        """The beginning or the end of an upload in parts."""
        self._content()
        bucket, key, query = self._named()
        if "uploads" in query:
            number = uuid.uuid4().hex
            _uploads[number] = {}
            self._xml("InitiateMultipartUploadResult", {"Bucket": bucket, "Key": key, "UploadId": number})
            return
        parts = _uploads.pop(query["uploadId"])
        status, found = self._asked(
            self._upload(bucket, key), b"".join(content for _, content in sorted(parts.items()))
        )
        if status != http.client.OK:
            self._told(status, found)
            return
        self._xml(
            "CompleteMultipartUploadResult",
            {"Bucket": bucket, "Key": key, "ETag": _etag(found)},
            {"x-goog-generation": str(found["generation"])},
        )

    # --- words ---------------------------------------------------------------------------------

    def _named(self) -> tuple[str, str, dict[str, str]]:
        """Bucket, key and parameters."""
        asked = urlsplit(self.path)
        bucket, _, key = unquote(asked.path).lstrip("/").partition("/")
        return bucket, key, {name: found[-1] for name, found in parse_qs(asked.query, keep_blank_values=True).items()}

    def _condition(self, sign: str) -> str:
        wanted = self.headers.get(CONDITION)
        return "" if wanted is None else f"{sign}ifGenerationMatch={wanted}"

    def _upload(self, bucket: str, key: str) -> str:
        return f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(key, safe='')}{self._condition('&')}"

    def _content(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    # --- answers -------------------------------------------------------------------------------

    def _asked(self, path: str, content: bytes) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        kind = "application/json" if content == b"{}" else "application/octet-stream"
        self._client.request("POST", path, content, {"Content-Type": kind})
        answer = self._client.getresponse()
        text = answer.read()
        found = json.loads(text) if text else {}
        return answer.status, found.get("resource", found) if isinstance(found, dict) else {}

    def _told(self, status: int, found: Any) -> None:
        """Answer a put or a copy."""
        if status != http.client.OK:
            code = {http.client.NOT_FOUND: "NoSuchBucket", http.client.PRECONDITION_FAILED: "PreconditionFailed"}.get(
                http.HTTPStatus(status), "Error"
            )
            self._answer(status, {}, f"<Error><Code>{code}</Code></Error>".encode())
        elif self.headers.get(SOURCE):
            self._xml("CopyObjectResult", {"ETag": _etag(found)}, {"x-goog-generation": str(found["generation"])})
        else:
            self._answer(200, {"ETag": _etag(found), "x-goog-generation": str(found["generation"])})

    def _xml(self, kind: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None) -> None:
        inside = "".join(f"<{name}>{_escaped(text)}</{name}>" for name, text in fields.items())
        text = f'<?xml version="1.0" encoding="UTF-8"?><{kind}>{inside}</{kind}>'
        self._answer(200, {**(headers or {}), "Content-Type": "application/xml"}, text.encode())

    def _answer(self, status: int, headers: Mapping[str, str], content: bytes = b"") -> None:
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _as_it_is(self) -> None:
        headers = {name: text for name, text in self.headers.items() if name.lower() not in HOP}
        self._client.request(self.command, self.path, self._content() or None, headers)
        answer = self._client.getresponse()
        content = _after(answer.read(), parse_qs(urlsplit(self.path).query).get("start-after", [""])[-1])
        self.send_response(answer.status)
        for name, text in answer.getheaders():
            if name.lower() not in HOP:
                self.send_header(name, text)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _after(listed: bytes, start: str) -> bytes:
    """A list of objects after a name, which fake-gcs-server takes for one of all."""
    if not start:
        return listed
    return _LISTED.sub(lambda one: b"" if unescape(one[1].decode()) <= start else one[0], listed)


_LISTED: Final = re.compile(rb"<Contents>.*?<Key>(.*?)</Key>.*?</Contents>", re.DOTALL)


def _etag(found: Mapping[str, Any]) -> str:
    return '"{}"'.format(re.sub('"', "", str(found.get("etag") or found["generation"])))


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


def main(port: int, program: str, bucket: str) -> None:
    """Serve until SIGTERM."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        behind = int(free.getsockname()[1])
    here = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(behind), "-public-host", f"127.0.0.1:{behind}"]
    with subprocess.Popen([program, *here, "-backend", "memory", "-log-level", "error"]) as fake:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            _make_bucket(behind, bucket)
            Server(("127.0.0.1", port), type("Door", (Door,), {"behind": behind})).serve_forever()
        finally:
            fake.kill()


def _make_bucket(port: int, bucket: str) -> None:
    while True:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        with contextlib.suppress(ConnectionError):
            client.request("POST", "/storage/v1/b?project=test", json.dumps({"name": bucket}))
            assert client.getresponse().status == http.client.OK
            return
        time.sleep(0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
