"""Object stores for tests: versitygw as S3, Azurite as Azure Blob, on the loopback, with dummy credentials.

fake-gcs-server stands for Google behind `google_door`. `make setup-stores` fetches them. Where one is missing, the
tests that need it are skipped.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path

import pytest

STORES = Path(os.environ.get("KAFKALIKE_STORES") or Path.home() / ".cache" / "kafkalike" / "stores")
BUCKET = "bucket"
START_SECONDS = 180.0

_UNTIL_STDIN_ENDS = ["sh", "-c", '"$@" & read -r _; kill $!; kill -CONT $!; wait', "sh"]
"""Runs a server that ends with the process that has started it, however that one ends, and if it was stopped."""

KEY_ID, KEY = "dummy-key-id", "dummy-secret-key"
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, which everybody knows."""

S3, AZURE, GOOGLE = "s3", "azure", "google"
KINDS = (S3, AZURE, GOOGLE)
SCHEMES = {S3: "s3", AZURE: "az", GOOGLE: "gs"}
PROGRAMS = {
    S3: ("versitygw (S3)", "versitygw-*/versitygw"),
    AZURE: ("Azurite (Azure Blob)", "azurite-*/node_modules/.bin/azurite-blob"),
    GOOGLE: ("fake-gcs-server (Google)", "fake-gcs-server-*/fake-gcs-server"),
}


@dataclass(frozen=True)
class ObjectServer:
    """A running object store with one bucket."""

    kind: str
    port: int
    through: int = 0
    """Port of a proxy to ask instead; 0 asks the server itself."""
    folder: Path | None = field(default=None, repr=False)
    """Where S3's objects lie."""

    @property
    def options(self) -> dict[str, str]:
        """What a client needs."""
        endpoint = f"http://127.0.0.1:{self.through or self.port}"
        if self.kind == S3:
            return {
                "access_key_id": KEY_ID,
                "secret_access_key": KEY,
                "region": "us-east-1",
                "endpoint": endpoint,
                "allow_http": "true",
            }
        if self.kind == GOOGLE:
            key = {"gcs_base_url": endpoint, "disable_oauth": True}
            return {
                "service_account_key": json.dumps({**key, "client_email": "", "private_key": "", "private_key_id": ""}),
                "allow_http": "true",
            }
        return {
            "account_name": AZURE_ACCOUNT,
            "account_key": AZURE_KEY,
            "endpoint": f"{endpoint}/{AZURE_ACCOUNT}",
            "allow_http": "true",
        }

    def new_root(self) -> str:
        """A root that nobody has used."""
        return f"{SCHEMES[self.kind]}://{BUCKET}/{uuid.uuid4().hex}/log"

    def behind(self, port: int) -> ObjectServer:
        """The same, asked through a proxy."""
        return ObjectServer(self.kind, self.port, port, self.folder)


def _program(kind: str) -> Path | None:
    return max(STORES.glob(PROGRAMS[kind][1]), default=None)


def check_fetched(kind: str) -> Path:
    """The server's program; the test is skipped when it was not fetched."""
    program = _program(kind)
    if program is None:
        pytest.skip(f"NOT TESTED: {PROGRAMS[kind][0]} is not in {STORES}; `make setup-stores` fetches it")
    return program


@contextmanager
def running(kind: str, folder: Path) -> Iterator[ObjectServer]:
    """A server for as long as the block runs; the test is skipped when it was not fetched."""
    program = check_fetched(kind)
    begin = {S3: _s3, AZURE: _azure, GOOGLE: _google}[kind]
    folder.mkdir(parents=True, exist_ok=True)
    process, port = _started(lambda free: begin(program, free, folder), folder)
    try:
        yield ObjectServer(kind, port, folder=folder)
    finally:
        _end(process)


class StoppableS3:
    """An S3 server that can be stopped, and started again with what it has, at the same port.

    Args:
        folder: where its objects lie.
    """

    def __init__(self, folder: Path) -> None:
        self._program = check_fetched(S3)
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._process, port = _started(lambda free: _s3(self._program, free, folder), folder)
        self.server = ObjectServer(S3, port, folder=folder)
        self.uri = self.server.new_root()

    @property
    def objects(self) -> Path:
        """Where the root's objects lie."""
        return self._folder / "data" / self.uri.partition("://")[2]

    def stop(self) -> None:
        """Nobody answers any more."""
        _end(self._process)

    def kill(self) -> None:
        """It ends at once, in the middle of what it does."""
        os.kill(self._pid(), signal.SIGKILL)
        _end(self._process)

    def hang(self) -> None:
        """It takes connections, as the system does that for it, and says nothing."""
        os.kill(self._pid(), signal.SIGSTOP)

    def go_on(self) -> None:
        """It answers again, also what was asked meanwhile."""
        os.kill(self._pid(), signal.SIGCONT)

    def _pid(self) -> int:
        shell = self._process.pid
        return int(Path(f"/proc/{shell}/task/{shell}/children").read_text(encoding="ascii").split()[0])

    def start(self) -> None:
        """It is there again."""
        self._process, _ = _started(lambda _: _s3(self._program, self.server.port, self._folder), self._folder)


@contextmanager
def stoppable(folder: Path, number: int) -> Iterator[list[StoppableS3]]:
    """Servers for as long as the block runs, each with a root that nobody has used."""
    servers: list[StoppableS3] = []
    try:
        servers.extend(StoppableS3(folder / str(n)) for n in range(1, number + 1))
        yield servers
    finally:
        for server in servers:
            server.stop()


def by_root(servers: Sequence[StoppableS3]) -> dict[str, Mapping[str, str]]:
    """Storage options of several roots."""
    return {each.uri: each.server.options for each in servers}


def _s3(program: Path, port: int, folder: Path) -> tuple[list[str], Mapping[str, str]]:
    (folder / "data" / BUCKET).mkdir(parents=True, exist_ok=True)
    command = [str(program), "--port", f"127.0.0.1:{port}", "--quiet", "posix", str(folder / "data")]
    return command, {"ROOT_ACCESS_KEY": KEY_ID, "ROOT_SECRET_KEY": KEY}


def _azure(program: Path, port: int, folder: Path) -> tuple[list[str], Mapping[str, str]]:
    # Every ten minutes Azurite throws away what nobody names, and makes an index anew for each piece of it: after some
    # thousands of puts it answers nobody for minutes. No test lives long enough to need that.
    constants = program.parent.parent / "azurite/dist/src/blob/utils/constants.js"
    script = folder / "no_sweep.js"
    script.write_text(f"require({json.dumps(str(constants))}).DEFAULT_GC_INTERVAL_MS = 2 ** 31 - 1;\n")
    command = [str(program), "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    options = {"NODE_OPTIONS": f"--require {json.dumps(str(script))}"}
    return [*command, "--blobHost", "127.0.0.1", "--blobPort", str(port)], options


def _google(program: Path, port: int, _folder: Path) -> tuple[list[str], Mapping[str, str]]:
    command = [sys.executable, "-m", "tests.tools.google_door", str(port), str(program), BUCKET]
    return command, {"PYTHONPATH": str(Path(__file__).parents[2])}


def _started(
    command_of: Callable[[int], tuple[list[str], Mapping[str, str]]], folder: Path
) -> tuple[subprocess.Popen[bytes], int]:
    for _ in range(3):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        command, env = command_of(port)
        port = _port_in(command, port)
        # Into a file: a pipe that nobody reads would stop it.
        with (folder / "server.log").open("wb") as log:
            process = subprocess.Popen(
                [*_UNTIL_STDIN_ENDS, *command],
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **env},
                start_new_session=True,
            )
        if _answers(process, port):
            if "azurite" in command[0]:
                _make_container(port)
            return process, port
        _end(process)
    raise AssertionError((folder / "server.log").read_text(errors="replace")[-3000:])


def _port_in(command: Sequence[str], free: int) -> int:
    """The port that a command names, where it is not the free one: a server that is started again."""
    named = next((part.rpartition(":")[2] for part in command if part.startswith("127.0.0.1:")), str(free))
    return int(named)


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    if not process.stdin.closed:
        process.stdin.close()
    process.wait(30)


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return True
        except OSError:
            time.sleep(0.05)
    return False


def _make_container(port: int) -> None:
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    signed = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    resource = f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{BUCKET}\nrestype:container"
    text = "PUT\n" + "\n" * 11 + signed + resource
    key = hmac.new(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256).digest()
    headers["Content-Length"] = "0"
    headers["Authorization"] = f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(key).decode()}"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(
        "PUT", f"/{AZURE_ACCOUNT}/{BUCKET}?restype=container", headers={**headers, "Content-Length": "0"}
    )
    answer = connection.getresponse()
    assert answer.status == http.client.CREATED, answer.read()
    connection.close()


def in_environment(server: ObjectServer) -> dict[str, str]:
    """The environment variables with which every process asks this server without being told more."""
    prefix = {S3: "AWS_", AZURE: "AZURE_STORAGE_", GOOGLE: "GOOGLE_"}[server.kind]
    return {f"{prefix}{name}".upper(): value for name, value in server.options.items()}
