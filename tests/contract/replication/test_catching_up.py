"""A replica that catches up: how often logs are listed does not depend on how many versions it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalike.model.replication import replica_effects
from kafkalike.replication.tables import published_log
from kafkalike.storage.local import LocalStorage
from tests.tools.clusters import on_three_disks
from tests.tools.consumer import texts
from tests.tools.records import batch_now


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that were listed."""
    seen: list[str] = []
    real = LocalStorage.list

    def list_(self: LocalStorage, folder: str = "", **rest: Any) -> Any:
        seen.append(f"{self.uri}/{folder}")
        return real(self, folder, **rest)

    monkeypatch.setattr(LocalStorage, "list", list_)
    return seen


@pytest.mark.slow
def test_a_log_is_opened_with_a_list_for_many_versions(
    tmp_path: Path, lists: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the newest checkpoint there may be thousands."""
    for module in (replica_effects, published_log):
        monkeypatch.setattr(module, "AHEAD", 20)
    cluster = on_three_disks(tmp_path)
    cluster.create_topic("t", 1, {})
    for number in range(90):
        cluster.log("t").append(batch_now(str(number)))
    lists.clear()

    assert on_three_disks(tmp_path).log("t").log_end(0) == 90

    assert len([name for name in lists if cluster.topic("t").location in name]) < 20


@pytest.mark.slow
def test_a_longer_log_is_listed_no_more_often(tmp_path: Path, lists: list[str]) -> None:
    """Each list takes the longer the more versions the log has: one for each version made it their square."""
    counts = []
    for commits in (20, 80):
        topic = f"t{commits}"
        cluster = on_three_disks(tmp_path)
        cluster.create_topic(topic, 1, {}, assignments={0: [1, 2]})
        for number in range(commits):
            cluster.log(topic).append(batch_now(str(number)))
        cluster.replication.reassign(topic, [1, 2, 3])
        lists.clear()

        assert not on_three_disks(tmp_path).replication.replicate([topic]).failed

        counts.append(len([name for name in lists if topic in name]))
    assert counts[0] == counts[1]
    on_three_disks(tmp_path).edit_defaults(lambda defaults: {**defaults, "replica.lag.time.max.ms": "1"})
    (tmp_path / "1").rename(tmp_path / "away")
    assert texts(on_three_disks(tmp_path), "t80") == [str(n) for n in range(80)]
