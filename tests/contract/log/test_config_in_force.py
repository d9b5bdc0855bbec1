"""`TopicLog.config`: the settings of a topic follow the metadata and the cluster's defaults."""

from __future__ import annotations

from pathlib import Path

from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.cluster.server_defaults import ServerFiles
from kafkalike.model.brokers import Defaults
from kafkalike.model.cluster_state import defaults_row
from kafkalike.model.config.server_config import ServerProperties
from kafkalike.storage.local import LocalStorage


class TwoFiles(Cluster):
    """A cluster whose other root may not answer when its `server.properties` is read."""

    files = ServerFiles()

    def _server_files(self) -> ServerFiles:
        return self.files


def test_config_of_a_log_follows_a_root_that_answers_again(tmp_path: Path) -> None:
    """No change of the metadata announces its `server.properties`."""
    first = TwoFiles(LocalStorage(str(tmp_path)))
    first.create_topic("t", 1, {})
    first.metadata.transact(lambda state: [defaults_row(state.seq + 1, 1, Defaults(), "none are set")])
    cluster = TwoFiles(LocalStorage(str(tmp_path)))
    cluster.files = ServerFiles(silent=["other"])
    log = cluster.log("t")
    assert [log.config.max_message_bytes for _ in range(3)] == [1_048_588] * 3

    cluster.files = ServerFiles(
        found={"other/server.properties": ServerProperties(settings={"message.max.bytes": "7"})}
    )

    assert log.config.max_message_bytes == 7


def test_config_of_a_log_follows_changed_defaults_at_its_next_refresh(tmp_path: Path) -> None:
    cluster = Cluster(LocalStorage(str(tmp_path)))
    cluster.create_topic("t", 1, {})
    log = cluster.log("t")
    assert [log.config.max_message_bytes for _ in range(3)] == [1_048_588] * 3

    Cluster(LocalStorage(str(tmp_path))).edit_defaults(lambda _: {"message.max.bytes": "9"})
    log.refresh()

    assert [log.config.max_message_bytes for _ in range(3)] == [9] * 3
