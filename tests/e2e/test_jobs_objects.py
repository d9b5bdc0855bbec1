"""Jobs on a root in an object store, with the storage's options from a file and nothing in the environment."""

import json
from pathlib import Path

import pytest

from tests.tools.object_servers import S3, running
from tests.tools.submit import submit


@pytest.mark.objects
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_jobs_take_storage_options_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One writes files into a topic, one copies them as a stream: the driver, its tasks and the format all ask."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    source, file = tmp_path / "orders.csv", tmp_path / "client.properties"
    source.write_text("id,name\n1,ann\n2,ben\n3,cid\n")
    with running(S3, tmp_path / "server") as server:
        file.write_text("".join(f"storage.options.{name}={value}\n" for name, value in server.options.items()))
        named = ("--bootstrap-server", server.new_root(), "--command-config", str(file))

        made = submit("produce", *named, "--topic", "orders", "--format", "csv", "--key-column", "id", str(source))
        checkpoint = str(tmp_path / "checkpoint")
        copied = submit(
            "copy_topic",
            *named,
            "--from",
            "orders",
            "--to",
            "copy",
            "--checkpoint",
            checkpoint,
            "--available-now",
            "--json",
        )

    assert made.returncode == 0, made.stderr[-2000:]
    assert "records: 3" in made.stdout
    assert copied.returncode == 0, copied.stderr[-2000:]
    assert sum(json.loads(line)["rows"] for line in copied.stdout.splitlines()) == 3
    told = made.stdout + made.stderr + copied.stdout + copied.stderr
    assert server.options["secret_access_key"] not in told
