"""What asks an object store is never shown or stored by what works on it: mirrors, corrections, console, registry."""

from __future__ import annotations

import contextlib
import io
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from kafkalike import ForgetOptions, KafkaAdminClient, KafkaProducer, forget, fork, undo
from kafkalike.admin.cluster_mirror import Mirror, describe, promote
from kafkalike.cli import main
from kafkalike.connect import connect
from kafkalike.errors import KafkaError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.schemas import Registry, Schema, open_registry
from kafkalike.ui.access_control import AccessControl
from kafkalike.ui.app import READ, console
from kafkalike.ui.cluster_view import ConsoleView
from tests.tools.object_servers import AZURE_KEY, KEY, KEY_ID, S3, ObjectServer
from tests.tools.registries import served

WRONG = "Y2FuYXJ5LWNhbmFyeQ=="
SECRETS = (KEY_ID, KEY, AZURE_KEY, WRONG, "canary-token")

TOKEN = "open sesame"  # noqa: S105


class Shown:
    """All that anybody could see."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self.texts: list[str] = []

    def tried(self, call: Callable[[], Any]) -> None:
        """What a call returns, or raises with all that caused it."""
        try:
            made = call()
        except (KafkaError, OSError, SystemExit) as error:
            self.texts.append("".join(traceback.format_exception(error)) + repr(error))
        else:
            self.texts.append(f"{made!r} {made}")

    def commanded(self, root: str, *line: str, folder: Path) -> None:
        """What a command prints, with the options in a file."""
        conf = folder / "client.properties"
        conf.write_text("".join(f"storage.options.{name}={value}\n" for name, value in self.options.items()))
        out = io.TextIOWrapper(io.BytesIO(), write_through=True)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            self.tried(lambda: main([*line, "--bootstrap-server", root, "--command-config", str(conf)]))
        out.seek(0)
        self.texts.append(out.read())


def filled(server: ObjectServer, root: str) -> None:
    """A topic with records, a letter topic and a schema."""
    cluster = connect(root, server.options)
    cluster.create_topic("t", 1, {})
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        for key in (b"a", b"b", b"c"):
            producer.send("t", b"v", key=key).get()
    open_registry(root, storage_options=server.options).register_schema("t-value", Schema('"string"'))


def all_doors(shown: Shown, root: str, folder: Path) -> None:
    """Everything that came after the log itself."""
    options = shown.options
    shown.tried(lambda: fork("t", "forked", root, storage_options=options))
    shown.tried(
        lambda: forget(
            "t",
            root,
            keys=b"a",
            dry_run=False,
            storage_options=options,
            options=ForgetOptions(certificate=folder / "c"),
        )
    )
    shown.tried(lambda: undo("t", "0" * 32, root, dry_run=False, storage_options=options))
    shown.tried(
        lambda: Mirror(root, f"{root}-copy", "t", source_storage_options=options, target_storage_options=options).run()
    )
    shown.tried(lambda: describe(connect(f"{root}-copy", options)))
    shown.tried(lambda: promote(f"{root}-copy", "t", storage_options=options))
    shown.tried(lambda: maintain(connect(root, options, access="spark"), clock=SYSTEM_CLOCK))
    shown.tried(lambda: Registry(root, storage_options=options).latest("t-value"))
    shown.tried(lambda: KafkaAdminClient(bootstrap_servers=root, storage_options=options).describe_cluster())
    for line in (
        ("topics", "--describe"),
        ("verify",),
        ("history", "--topic", "t"),
        ("brokers",),
        ("replicas",),
        ("metadata-quorum", "describe", "--status"),
        ("metrics", "--once"),
    ):
        shown.commanded(root, *line, folder=folder)


def pages(shown: Shown, cluster: Cluster) -> None:
    """All pages of the console, and some of the registry's service."""
    desk = ConsoleView(cluster, SYSTEM_CLOCK, metrics=lambda: b"kafkalike_up 1.0\n")
    client = TestClient(console(desk, AccessControl(token=TOKEN, port=80)), base_url="http://localhost")
    client.get("/", params={"token": TOKEN})
    for path in READ:
        made = path.replace(":int", "").format(name="t", partition=0, offset=0, part="value", id="1")
        query = {"id": "g", "subject": "t-value", "topic": "t", "group": "g"}
        shown.texts.append(client.get(made, params=query).text)
    desk.close()
    shown.texts.append(f"{desk!r} {vars(desk)}")
    with served(cluster) as url:
        for path in ("/subjects", "/subjects/t-value/versions/1", "/schemas/ids/1", "/config", "/nothing"):
            shown.texts.append(httpx.get(url + path).text)


def test_no_secret_is_shown_or_stored_by_what_works_on_a_root(
    server: ObjectServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Right ones, and wrong ones that the storage refuses."""
    caplog.set_level(logging.DEBUG)
    root = server.new_root()
    filled(server, root)
    shown = Shown(server.options)
    all_doors(shown, root, tmp_path)
    cluster = connect(root, server.options, access="spark")
    pages(shown, cluster)
    key = "secret_access_key" if server.kind == S3 else "account_key"
    wrong = {**server.options, key: WRONG}
    if server.kind == S3:
        wrong["session_token"] = "canary-token"  # noqa: S105 - of nobody
    refused = Shown(wrong)
    all_doors(refused, root, tmp_path)
    with contextlib.suppress(KafkaError):
        pages(refused, connect(root, wrong, access="spark"))

    files = [cluster.store.read(entry.name) for entry in cluster.store.list(deep=True)]
    for folder in cluster.store.folders():
        log = cluster.store.at(f"{folder}/_delta_log")
        files += [log.read(entry.name) for entry in log.list()]
    text = "\n".join([*shown.texts, *refused.texts, caplog.text]) + str(files) + (tmp_path / "c").read_text()
    assert [secret for secret in SECRETS if secret in text] == []
    assert "InvalidToken" in text if server.kind == S3 else "403" in text
    assert "AttributeError" not in text
    assert len(files) > 10
