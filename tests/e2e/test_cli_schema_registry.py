"""`kafkalike schema-registry` as a process that other programs ask."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalike.schemas import Registry, Schema, open_registry
from kafkalike.schemas.registry_client import RegistryClient
from tests.e2e.conftest import MAIN, Run
from tests.tools.certificates import certificate


def test_schemas_are_served_until_a_signal(root: str, environ: dict[str, str], kafkalike: Run, tmp_path: Path) -> None:
    """Over TLS. Other writers of the root are seen; who trusts nobody, or has no token, gets nothing."""
    made = certificate(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "schema-registry", "--port", "0", "--tls-cert-file", made],
        env={**environ, "KAFKALIKE_REGISTRY_TOKEN": "open-sesame"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        found = re.search(r"https://127\.0\.0\.1:\d+", process.stderr.readline())
        assert found is not None
        with open_registry({"url": found[0], "bearer.auth.token": "open-sesame", "ssl.ca.location": made}) as client:
            assert client.register_schema("s", Schema('"long"')) == 1
            Registry(root).register_schema("t", Schema('"int"'))
            assert client.get_subjects() == ["s", "t"]
        listed = kafkalike("schemas", "list", "--url", found[0])
        assert (listed.returncode, "certificate" in listed.stderr) == (1, True)
        with open_registry({"url": found[0], "ssl.ca.location": made}) as stranger:
            assert "401" in str(_refusal(stranger))
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


def _refusal(client: RegistryClient) -> Exception:
    try:
        client.get_subjects()
    except Exception as error:  # noqa: BLE001 - looked at
        return error
    raise AssertionError


def test_a_service_that_cannot_begin_says_why_in_a_line(kafkalike: Run, tmp_path: Path) -> None:
    """An address of the network without a password; a file without a token, or without a certificate."""
    empty = tmp_path / "tokens"
    empty.write_text("# nobody\n")
    for args in (("--host", "192.0.2.1"), ("--token-file", str(empty)), ("--tls-cert-file", str(empty))):
        done = kafkalike("schema-registry", "--port", "0", *args)
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr


def test_a_schema_comes_from_standard_input(kafkalike: Run) -> None:
    """And goes to standard output."""
    done = kafkalike("schemas", "register", "--subject", "s", stdin=b'"long"')

    assert (done.returncode, done.stderr) == (0, "")
    assert kafkalike("schemas", "get", "--subject", "s").stdout == '"long"\n'


@pytest.mark.parametrize("service", ["ui", "schema-registry"])
def test_a_key_without_its_certificate_is_wrong_usage(kafkalike: Run, tmp_path: Path, service: str) -> None:
    """The same words and exit code for all that serve."""
    (tmp_path / "key.pem").write_text("")

    done = kafkalike(service, "--tls-key-file", "key.pem", "--port", "0")

    assert (done.returncode, "--tls-key-file needs --tls-cert-file" in done.stderr) == (2, True)
