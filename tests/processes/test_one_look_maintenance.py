"""One look per run: maintenance with nothing due opens no file twice, as the files that it opens show.

In a process of its own: an audit hook stays for the life of a process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

SCRIPT = """
import json, os, sys
from kafkalike import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic
from kafkalike.connect import connect
from kafkalike.retention import maintain

root = sys.argv[1]
opened, listed = None, None

def hook(event, args):
    if opened is None or not isinstance(args[0] if args else None, (str, bytes)):
        return
    name = os.fsdecode(args[0])
    if name.startswith(root):
        if event == "open":
            opened.append(os.path.relpath(name, root))
        if event in ("os.listdir", "os.scandir"):
            listed.append(os.path.relpath(name, root))

sys.addaudithook(hook)
admin = KafkaAdminClient(bootstrap_servers=root)
admin.create_topics([NewTopic("a", 1, 1), NewTopic("b", 2, 1), NewTopic("gone", 1, 1)])
with KafkaProducer(bootstrap_servers=root) as producer:
    for topic in ("a", "b", "a"):
        producer.send(topic, b"v", key=b"k", partition=0).get(30)
with KafkaConsumer(
    "a", bootstrap_servers=root, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
) as consumer:
    while not consumer.poll(1000):
        pass
    consumer.commit()
admin.delete_topics(["gone"])

def traced(cluster=root):
    global opened, listed
    opened, listed = [], []
    report = maintain(cluster)
    found = {"opened": opened, "listed": listed, "report": report.as_dict()}
    opened = listed = None
    return found

maintain(root)
result = {"idle": traced(), "again": traced()}
with KafkaProducer(bootstrap_servers=root) as producer:
    producer.send("a", b"w", partition=0).get(30)
result["after an append"] = traced()
cluster = connect(root)
maintain(cluster)
result["of an open cluster"] = traced(cluster)
print(json.dumps(result))
"""


def runs(root: Path) -> dict[str, dict[str, list[str]]]:
    """What each run opens and lists, below the root, in its order."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(root)], check=True, capture_output=True, text=True, timeout=120
    )
    found: dict[str, dict[str, list[str]]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_run_with_nothing_due_opens_no_file_twice(tmp_path: Path) -> None:
    """And it lists no folder more than twice: to read the log, and to look for files that nobody needs."""
    found = runs(tmp_path)
    for name, run in found.items():
        again = {file.partition("/")[0] for file, times in Counter(run["opened"]).items() if times > 1}
        # A cluster that was open before asks for news of topics twice, where others begin with reading: when the run
        # begins, and after its work on them.
        known = {"__cluster_metadata"} if name == "of an open cluster" else set[str]()
        assert again == known, name
        lists = Counter(run["listed"])
        # Connecting lists that one as well: it checks whether there is a cluster.
        lists["__cluster_metadata/_delta_log"] -= name != "of an open cluster"
        assert [folder for folder, times in lists.items() if times > 2] == [], name
        assert {"a/_delta_log/00000000000000000001.json", "b/_delta_log/00000000000000000000.json"} <= {
            *run["opened"]
        }, name
