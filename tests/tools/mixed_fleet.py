"""Mixed fleet: members of one group as processes, native ones and those of librdkafka and Java, and their histories."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.foreign_programs import fetched, java
from tests.jepsen.history import Recorder
from tests.tools.children import Child

TOOLS: Final = "4.3.1"
SESSION_MS: Final = 30_000
"""Longer than a gateway takes to start on a busy machine: a member whose session expires does not know it yet."""

LIBRDKAFKA: Final[Mapping[str, Mapping[str, Any]]] = {
    "librdkafka classic": {
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": 500,
    },
    "librdkafka consumer": {"group.protocol": "consumer"},
}

JAVA: Final[Mapping[str, tuple[str, ...]]] = {
    "Java classic": (
        "--group-protocol", "classic", "--session-timeout", str(SESSION_MS), "--assignment-strategy",
        "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    ),
    "Java consumer": ("--group-protocol", "consumer"),
}  # fmt: skip

KINDS: Final = ("native", *LIBRDKAFKA, *JAVA)


class JavaMember:
    """Java's VerifiableConsumer, which tells in lines of JSON what it owned, read and committed.

    Args:
        output: file of these lines.
        name: of the member.
        arguments: of the tool.
    """

    def __init__(self, output: Path, name: str, *arguments: str) -> None:
        self._output, self._name = output, name
        tools = fetched(f"kafka-tools-{TOOLS}", f"org.apache.kafka:kafka-tools:{TOOLS}")
        command = [*java(tools), "org.apache.kafka.tools.VerifiableConsumer", "--verbose", *arguments]
        with output.open("w") as told, output.with_suffix(".log").open("w") as errors:
            self._process = subprocess.Popen(command, stdout=told, stderr=errors)

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        self._process.wait(60)

    def write_history(self, recorder: Recorder, group: str) -> None:
        """Write what the tool has told as a history. Its clock is the machine's, in ms."""
        owned: set[str] = set()
        read: dict[int, list[tuple[int, str]]] = {}
        behind = time.time_ns() - time.monotonic_ns()
        begun = 0

        def note(f: str, value: object, at: int, *, begun: int = 0, kind: str = "ok", **extra: Any) -> None:
            recorder.event_at(begun or at, "invoke", f, [["poll"]] if f == "poll" else value, **extra)
            recorder.event_at(at, kind, f, value, **extra)

        for line in self._output.read_text(errors="replace").splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue  # cut off by a kill
            at, name = int(event["timestamp"]) * 1_000_000 - behind, event["name"]
            if name in {"partitions_assigned", "partitions_revoked"}:
                which = {f"{one['topic']}-{one['partition']}" for one in event["partitions"]}
                gains = name == "partitions_assigned"
                owned = owned | which if gains else owned - which
                how = "assigned" if gains else "revoked"
                # The time is rounded down, and no partition is assigned before it is revoked.
                at += gains * 1_000_000
                note("assign", sorted(owned), at, how=how, which=sorted(which), group=group)
            elif name == "record_data":
                read.setdefault(event["partition"], []).append((event["offset"], event["value"]))
            elif name == "records_consumed":
                begun = at
                note("poll", [["poll", {f"{recorder.topic}-{p}": records for p, records in read.items()}]], at)
                read = {}
            elif name == "offsets_committed":
                value = {f"{one['topic']}-{one['partition']}": one["offset"] for one in event["offsets"]}
                kind = "ok" if event["success"] else "info"
                note("commit", value, at, begun=begun, kind=kind, group=group)


class MixedFleet:
    """Members of the group `g` that read the topic `t`.

    Args:
        root: of the native members.
        addresses: gateways of the others.
        folder: gets the histories.
    """

    def __init__(self, root: Path, addresses: str, folder: Path) -> None:
        self._root, self._addresses, self._folder = root, addresses, folder
        self.histories = folder / "histories"
        self.histories.mkdir()
        self.live: dict[str, Child | JavaMember] = {}
        self.halted: dict[str, list[int]] = {}
        """When processes were killed, ns of the monotonic clock."""
        self.kinds: Counter[str] = Counter()
        """Members that have joined."""
        self._java: dict[str, JavaMember] = {}

    def join(self, kind: str) -> str:
        """Start a member, and return its name."""
        self.kinds[kind] += 1
        name = f"{kind.replace(' ', '-')}-{self.kinds[kind]}"
        given = {"topic": "t", "name": name, "group": "g", "history": str(self.histories / f"{name}.jsonl")}
        if kind in JAVA:
            self._java[name] = JavaMember(
                self._folder / f"{name}.json", name, "--bootstrap-server", self._addresses, "--topic", "t",
                "--group-id", "g", "--reset-policy", "earliest", *JAVA[kind],
            )  # fmt: skip
            self.live[name] = self._java[name]
            return name
        if kind in LIBRDKAFKA:
            settings = {"bootstrap.servers": self._addresses, **LIBRDKAFKA[kind]}
            child = Child("tests.processes.workers.foreign_member", {**given, "settings": settings}, {})
        else:
            own = {"root": str(self._root), "strategy": "cooperative-sticky", "session_ms": SESSION_MS}
            child = Child("tests.processes.workers.group_member", {**given, **own}, {})
        child.wait_ready()
        child.go()
        self.live[name] = child
        return name

    def leave(self, name: str) -> None:
        """Let a member leave its group and end."""
        member = self.live.pop(name)
        if isinstance(member, JavaMember):
            member.end(signal.SIGTERM)
        else:
            member.go()
            member.finish()

    def kill(self, name: str) -> None:
        """Kill a member by SIGKILL."""
        member = self.live.pop(name)
        self.halted.setdefault(name, []).append(time.monotonic_ns())
        if isinstance(member, JavaMember):
            member.end(signal.SIGKILL)
        else:
            os.kill(member.pid, signal.SIGKILL)
            member.finish(-signal.SIGKILL)

    def stop(self) -> None:
        """End all members, whatever they do."""
        for member in self.live.values():
            if isinstance(member, JavaMember):
                member.end(signal.SIGKILL)
            else:
                member.kill()

    def write_histories(self) -> None:
        """Write the histories of the Java members."""
        for name, member in self._java.items():
            with Recorder(str(self.histories / f"{name}.jsonl"), name, "t") as recorder:
                member.write_history(recorder, "g")
