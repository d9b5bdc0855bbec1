"""Each table commit names who made it: for people who look at the history."""

import json
import os
import re
from pathlib import Path

from deltalake import DeltaTable

from kafkalike.connect import connect
from kafkalike.version import user_and_host
from tests.tools.cli import call
from tests.tools.records import batch


def test_the_history_of_a_topic_names_user_host_and_process(root: str) -> None:
    """In words, as JSON, and to other programs that read Delta."""
    cluster = connect(root)
    cluster.create_topic("t", 1, {})
    cluster.log("t").append(batch("a"))
    user, host = user_and_host()
    who = f"{user}@{host}, process {os.getpid()}"

    told = call(cluster, "history", "t", "--kind", "append")
    as_json = [json.loads(line) for line in call(cluster, "history", "t", "--json").out.splitlines()]

    assert re.search(rf", {re.escape(who)}, append [0-9a-f]{{32}}\)$", told.out.rstrip())
    assert [event["who"] for event in as_json if event["version"] is not None] == [who, who]
    assert [entry["userName"] for entry in DeltaTable(str(Path(root, "t"))).history()] == [user, user]
