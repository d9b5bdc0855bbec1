"""Pages: a page of the documents and a world in, its code blocks run one after the other, and what they print out.

What a page says of a place (`/data/log`, a port) is replaced by one of the test; everything else runs as it stands.
Blocks of one page share their variables, as cells of a notebook do. Commands run in this process, except those that
serve until they are ended: these are ended by SIGTERM once they have said that they serve.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from kafkalike.cli.app import run
from kafkalike.cli.environment import Environment
from tests.tools.blocks import Block, all_blocks

PLAIN: Final = (
    "coming-from.md",
    "concepts.md",
    "console.md",
    "guarantees.md",
    "operations.md",
    "queues.md",
    "reference/consumer-groups.md",
    "replicas.md",
    "retention.md",
)
"""Pages of docs/ that `tests/e2e/test_docs_pages.py` runs."""

WITH_SPARK: Final = ("exactly-once.md", "schemas.md", "spark.md", "sql.md", "tutorial.md")
"""Pages of docs/ that `tests/spark/test_docs_pages.py` runs, with one Spark for all."""

LANGUAGES: Final = ("python", "sh", "bash", "sql", "cron")
"""Languages that a page's blocks are run in. Blocks of others are files, which other tests check."""

_SERVES: Final = re.compile(r"^kafkalike (?:ui|schema-registry)\b|--every\b|metrics .*--port")


class EnoughError(Exception):
    """Raised by a world's function to end a loop that has no end."""


@dataclass(slots=True)
class World:
    """What the blocks of a page run in.

    Args:
        folder: the working directory.
        names: variables that the page does not define itself.
        replaced: words of the page, and what stands for them here.
    """

    folder: Path
    names: dict[str, Any] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict)
    codes: Mapping[str, int] = field(default_factory=dict)
    """Exit codes other than 0, by a part of the command."""

    settle: Callable[[], object] = lambda: None
    """Called after each block: ends what it has left running."""

    def run(self, page: str, heading: str | None = None) -> str:
        """Run the blocks of a page, or below a heading, and say what they print; clients left open are closed."""
        self.names["__name__"] = "__main__"
        told = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(told):
            patch.chdir(self.folder)
            try:
                for block in all_blocks(f"docs/{page}", heading):
                    if block.language in LANGUAGES and not (block.not_run or block.run_by):
                        self._run(block, patch)
                        self.settle()
            finally:
                for value in self.names.values():
                    if callable(getattr(value, "close", None)) and type(value).__module__.startswith("kafkalike"):
                        value.close()
        return told.getvalue()

    def _run(self, block: Block, patch: pytest.MonkeyPatch) -> None:
        text = re.sub(r"--port \d+", "--port 0", block.text)
        for word, other in self.replaced.items():
            text = text.replace(word, other)
        if block.language == "python":
            with contextlib.suppress(EnoughError):
                exec(compile(text, "<block>", "exec"), self.names)  # noqa: S102 - the page's own program
        elif block.language == "sql":
            for statement in filter(str.strip, text.split(";\n")):
                self.names["spark"].sql(statement).show()
        elif "<<" in text or "$(" in text:
            print(shell(text, self.folder))  # noqa: T201 - told to the test
        else:
            for line in text.replace("\\\n", " ").splitlines():
                self._command(line, patch)

    def _command(self, line: str, patch: pytest.MonkeyPatch) -> None:
        words = shlex.split(line, comments=True)
        if not words:
            return
        if words[0] == "export":
            patch.setenv(*words[1].split("=", 1))
        elif _SERVES.search(line):
            print(served(words, self.folder))  # noqa: T201
        elif words[0] != "kafkalike" or {"|", "&&"} & set(words):
            # A line of cron begins with when it runs.
            print(shell(line.removeprefix("*/5 * * * *"), self.folder))  # noqa: T201
        else:
            self._called(words[1:])

    def _called(self, words: list[str]) -> None:
        into = None
        if ">" in words:
            words, into = words[: words.index(">")], words[words.index(">") + 1]
        out, err, binary = io.StringIO(), io.StringIO(), io.BytesIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(words, Environment(stdin=io.BytesIO(), stdout=binary))
        printed = binary.getvalue().decode() + out.getvalue()
        line = " ".join(words)
        wanted = next((code for part, code in self.codes.items() if part in line), 0)
        assert code == wanted, f"kafkalike {line}: {code}\n{printed}\n{err.getvalue()}"
        if into is not None:
            (self.folder / into).write_text(printed)
        else:
            print(printed)  # noqa: T201


def shell(text: str, folder: Path) -> str:
    """What bash prints for a text that must end well, with this environment's programs."""
    done = subprocess.run(
        ["bash", "-euc", f'PATH="{Path(sys.executable).parent}:$PATH"\n{text}'],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def served(words: list[str], folder: Path) -> str:
    """The first line of a command that serves, which SIGTERM then ends in order."""
    command = [str(Path(sys.executable).with_name(words[0])), *words[1:]]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
        finally:
            process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
    assert process.returncode == 0, f"{words}: {line}{rest}"
    return line


def filled(folder: Path, *topics: str, records: int = 10, partitions: int = 1, root: str = "kafkalike-data") -> None:
    """Topics with records in a root below a folder; the one that pages take for granted is `./kafkalike-data`."""
    from kafkalike import KafkaAdminClient, KafkaProducer, NewTopic

    with KafkaAdminClient(bootstrap_servers=str(folder / root)) as admin:
        missing = set(topics) - set(admin.list_topics())
        if missing:
            admin.create_topics([NewTopic(name, partitions) for name in sorted(missing)])
    # One batch: a busy machine must not split it.
    with KafkaProducer(bootstrap_servers=str(folder / root), linger_ms=10_000) as producer:
        for number in range(records):
            for name in topics:
                producer.send(name, f"order {number}".encode(), key=b"tea", partition=number % partitions)


def read_by(folder: Path, group_id: str, *topics: str) -> None:
    """A group that has read and committed all of some topics of that root."""
    from kafkalike import KafkaConsumer

    for topic in topics:
        options: dict[str, Any] = {"group_id": group_id, "auto_offset_reset": "earliest", "consumer_timeout_ms": 100}
        with KafkaConsumer(topic, bootstrap_servers=str(folder / "kafkalike-data"), **options) as consumer:
            assert list(consumer)
