"""Progress of a query: offsets of its batches in, committed offsets of a group out; without Spark."""

from kafkalike.log.connect import connect
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.progress import GroupProgress

T0 = TopicPartition("t", 0)


def test_progress_does_not_count_for_a_topic_created_while_the_batch_was_written(root: str) -> None:
    """The batch has read the topic before: its offsets would point past the end of the new one."""
    cluster = connect(root)
    cluster.create_topic("t", 1, {})
    progress = GroupProgress("g", root)
    ends = progress.plan({T0: 100})
    read = cluster.topic("t").topic_id
    cluster.delete_topic("t")
    cluster.create_topic("t", 1, {})

    progress.commit(ends, client_id="stream")

    known = cluster.groups.refresh().group("g").offsets[T0]
    assert (known.position.offset, known.topic_id) == (100, read)
    assert read != cluster.topic("t").topic_id
