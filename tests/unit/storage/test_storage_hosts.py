"""Whoever answers a client with another address does not send it there, and no header of its gets there."""

from collections.abc import Iterator
from contextlib import contextmanager

import obstore
import pytest
from obstore.exceptions import BaseError

from kafkalike.model.clock import SYSTEM_CLOCK, Deadline, within
from kafkalike.model.config.storage_option_names import Provider
from kafkalike.model.config.storage_options import NOBODY, StorageOptions, no_others
from kafkalike.storage.object_client import ObjectClient, make_client
from tests.tools.answers import answering, asking
from tests.tools.object_servers import AZURE, GOOGLE, S3, ObjectServer

ELSEWHERE = "127.0.0.2"


@contextmanager
def sending_on(status: int) -> Iterator[tuple[int, list[str], list[str]]]:
    """A store that sends everybody to another host: its port, what it was asked, and what the other one was."""
    with answering(ELSEWHERE, 200, lambda _: {"ETag": '"x"'}) as (port, elsewhere):
        away = f"http://{ELSEWHERE}:{port}"
        with answering("127.0.0.1", status, lambda path: {"Location": away + path}) as (here, asked):
            yield here, asked, elsewhere


@pytest.mark.parametrize("kind", [S3, AZURE, GOOGLE])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_request_goes_where_an_answer_sends_it(kind: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with sending_on(status) as (here, asked, elsewhere):
        client = make_client(*asking(ObjectServer(kind, here)), retries=0)
        for ask in (
            lambda: obstore.get(client, "a"),
            lambda: obstore.head(client, "a"),
            lambda: obstore.list(client).collect(),
            lambda: obstore.put(client, "a", b"content", mode="create"),
            lambda: obstore.put(client, "a", b"content", use_multipart=False),
            lambda: obstore.delete(client, "a"),
        ):
            with pytest.raises((BaseError, OSError)):
                ask()

    assert elsewhere == []
    assert len(asked) == 6


@pytest.mark.slow
def test_who_is_sent_on_is_told_so() -> None:
    with sending_on(307) as (here, _, elsewhere):
        client = ObjectClient(*asking(ObjectServer(S3, here), session_token="a-token"))  # noqa: S106 - of nobody

        with within(Deadline(SYSTEM_CLOCK, 100)), pytest.raises(OSError, match="sent on to another address") as told:
            client.get("a")

    assert not isinstance(told.value, TimeoutError)
    assert elsewhere == []


@pytest.mark.parametrize(
    ("provider", "given", "hosts"),
    [
        ("s3", {}, "amazonaws.com,amazonaws.com.cn"),
        ("s3", {"endpoint": "https://store.example:9000/x"}, "store.example"),
        ("s3", {"endpoint": "http://[::1]:9000"}, "::1"),
        ("s3", {"endpoint": "no url"}, ""),
        (
            "s3",
            {"endpoint": "https://store.example", "role_arn": "a", "sts_endpoint": "https://sts.example"},
            "store.example,sts.example",
        ),
        ("s3", {"endpoint": "https://store.example", "role_arn": "a"}, "amazonaws.com,amazonaws.com.cn,store.example"),
        ("s3", {"container_credentials_relative_uri": "/x"}, "169.254.170.2,amazonaws.com,amazonaws.com.cn"),
        (
            "s3",
            {"endpoint": "https://s.example", "container_credentials_full_uri": "http://127.0.0.1:1/x"},
            "127.0.0.1,s.example",
        ),
        ("azure", {}, "core.windows.net"),
        ("azure", {"tenant_id": "a"}, "core.windows.net,login.microsoftonline.com"),
        ("azure", {"tenant_id": "a", "authority_host": "https://login.example"}, "core.windows.net,login.example"),
        ("azure", {"use_emulator": "true"}, "127.0.0.1,core.windows.net,localhost"),
        ("google", {}, "accounts.google.com,googleapis.com"),
        (
            "google",
            {"service_account_key": '{"gcs_base_url": "http://127.0.0.1:2"}'},
            "127.0.0.1,accounts.google.com,googleapis.com",
        ),
        ("google", {"service_account_key": "[1]"}, "accounts.google.com,googleapis.com"),
        ("google", {"service_account": "/no/such/file"}, "accounts.google.com,googleapis.com"),
        ("google", {"base_url": "http://g.example"}, "accounts.google.com,g.example,googleapis.com"),
    ],
)
def test_the_hosts_of_a_client_follow_from_its_options(provider: Provider, given: dict[str, str], hosts: str) -> None:
    assert no_others(provider, StorageOptions(given), {}) == {"proxy_url": NOBODY, "proxy_excludes": hosts}


def test_a_proxy_of_the_users_decides_who_is_asked() -> None:
    assert no_others("s3", StorageOptions({"proxy_url": "http://proxy"}), {}) == {}
    assert no_others("s3", StorageOptions(), {"HTTPS_PROXY": "http://proxy"}) == {}
    assert no_others("s3", StorageOptions(), {"all_proxy": "http://proxy"}) == {}
    assert no_others("s3", StorageOptions(), {"HTTPS_PROXY": ""}) != {}
