"""One look per call: each table is looked at once by a call of a client, as the files that the call opens show.

In a process of its own: an audit hook stays for the life of a process. Files of other threads (heartbeats, the
producer's sender) are not counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import json, os, sys, threading
from kafkalike import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic, TopicPartition

root = sys.argv[1]
opened, caller = None, threading.get_ident()

def hook(event, args):
    if event == "open" and opened is not None and threading.get_ident() == caller:
        if isinstance(args[0], (str, bytes)) and os.fsdecode(args[0]).startswith(root):
            opened.append(os.path.relpath(os.fsdecode(args[0]), root))

sys.addaudithook(hook)
KafkaAdminClient(bootstrap_servers=root).create_topics([NewTopic("a", 1, 1), NewTopic("b", 2, 1)])
producer = KafkaProducer(bootstrap_servers=root)
for topic in ("a", "b"):
    producer.send(topic, b"v", partition=0).get(30)

def consumer(topics, group="g"):
    made = KafkaConsumer(
        *topics, bootstrap_servers=root, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    found = 0
    while found < len(topics):
        found += sum(map(len, made.poll(10_000).values()))
    for _ in range(3):
        made.poll(0)
    return made

def traced(call):
    global opened
    opened = []
    call()
    found, opened = opened, None
    return found

result = {}
member = consumer(["a"])
result["idle"] = traced(lambda: member.poll(0))
result["again"] = traced(lambda: member.poll(0))
producer.send("a", b"w").get(30)
result["record"] = traced(lambda: member.poll(0))
result["commit"] = traced(member.commit)
member.close()
several = consumer(["a", "b"], "h")
result["two topics"] = traced(lambda: several.poll(0))
several.close()
alone = consumer(["a"], None)
result["without a group"] = traced(lambda: alone.poll(0))
alone.close()
print(json.dumps(result))
"""


def opened_files(root: Path) -> dict[str, list[str]]:
    """The files that each call opens, below the root, in their order."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(root)], check=True, capture_output=True, text=True, timeout=120
    )
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def log_of(name: str) -> str:
    """The table that a file of a Delta log belongs to."""
    return name.split("/_delta_log/", maxsplit=1)[0]


def test_each_table_is_looked_at_once_per_call(tmp_path: Path) -> None:
    """An idle poll of a group's member asks for the next version of three tables, and of none twice."""
    found = opened_files(tmp_path)
    for call in ("idle", "again"):
        assert [log_of(name) for name in found[call]] == ["__cluster_metadata", "__consumer_offsets", "a"], call
    assert sorted(log_of(name) for name in found["two topics"]) == [
        "__cluster_metadata",
        "__consumer_offsets",
        "a",
        "b",
    ]
    assert [log_of(name) for name in found["without a group"]] == ["__cluster_metadata", "a"]
    # A poll that finds a commit asks for the next one, and reads the records.
    assert len(found["record"]) == len(set(found["record"])) == 5
    assert found["commit"].count("__cluster_metadata/_delta_log/00000000000000000002.json") <= 1
