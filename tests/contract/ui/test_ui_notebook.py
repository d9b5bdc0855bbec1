"""Tables that notebooks show."""

import httpx
import pytest

from kafkalike.consumer import KafkaConsumer
from kafkalike.errors import GroupIdNotFoundError, UnknownTopicOrPartitionError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.producer import KafkaProducer
from kafkalike.ui.notebook import console, group, lag, topic

NAME = "<b>g</b>"


def test_a_topic_a_group_and_all_lag_are_tables(cluster: Cluster) -> None:
    """As HTML with everything escaped, and as text."""
    cluster.create_topic("orders", 2, {})
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        for at in range(1500):
            producer.send("orders", b"v", partition=0, timestamp_ms=1_700_000_000_000 + at)
    with KafkaConsumer("orders", bootstrap_servers=cluster, group_id=NAME, auto_offset_reset="earliest") as reader:
        while not reader.poll(1000, max_records=500):
            pass
        reader.commit()

    assert [row[:4] for row in topic("orders", cluster).rows] == [(0, 0, 1500, 1500), (1, 0, 0, 0)]
    assert group(NAME, cluster).rows[0] == ("orders", 0, 500, 1500, 1000, 1000, 1.0)
    assert lag(cluster).rows == [(NAME, "orders", 1000, 1000, 1.0)]
    shown = group(NAME, cluster)._repr_html_()
    assert NAME not in shown
    assert "&lt;b&gt;g&lt;/b&gt;" in shown
    assert ">1\u202f500</td>" in shown
    assert repr(topic("orders", cluster)).splitlines()[0:2] == [
        "Topic orders",
        "partition  log start  log end  records  bytes  segments",
    ]
    with pytest.raises(UnknownTopicOrPartitionError):
        topic("none", cluster)
    with pytest.raises(GroupIdNotFoundError):
        group("none", cluster)


@pytest.mark.slow
def test_the_console_itself_is_served_from_a_notebook(cluster: Cluster) -> None:
    """In this process, until it is stopped."""
    shown = console(cluster, read_only=True)
    try:
        answer = httpx.get(f"{shown.url}/topics", headers={"authorization": f"Bearer {shown.token}"})
        assert "read-only" in answer.text
    finally:
        shown.stop()
    assert not shown.running
