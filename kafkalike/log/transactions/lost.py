"""Lost: decisions that topics lack in, those whose staged files are gone or damaged out."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalike.log.topic.decided import StagedFileError
from kafkalike.log.transactions.driver import Driver
from kafkalike.log.transactions.layouts import check_part
from kafkalike.log.transactions.tables import Home
from kafkalike.model.clock import Deadline
from kafkalike.model.transactions.settling import looking
from kafkalike.model.transactions.unsettled import Due
from kafkalike.model.transactions.views import LostPart


def lost_parts(home: Home) -> Sequence[LostPart]:
    """See `Transactions.damaged`.

    Args:
        home: topics, groups and staged files.
    """
    known = home.look_at_groups()[1]
    driver = Driver(home, Deadline(home.cluster.clock, None))
    found = []
    for dues in known.unsettled.values():
        # One look at each topic, however many ids have written to it.
        topic = next(iter(dues)).part.topic
        last: int | None = driver.run(looking(topic))
        for due in () if last is None else dues.between(last, known.seq):
            why = _why(home, driver, due)
            if why is not None:
                found.append(
                    LostPart(
                        transactional_id=due.transactional_id,
                        seq=due.seq,
                        topic=topic.name,
                        topic_id=topic.topic_id,
                        counts=due.part.counts,
                        why=why,
                    )
                )
    return sorted(found, key=lambda lost: (lost.seq, lost.topic))


def _why(home: Home, driver: Driver, due: Due) -> str | None:
    try:
        check_part(home.staging, due.committed, due.part)
    except StagedFileError as error:
        last: int | None = driver.run(looking(due.part.topic))
        # Somebody may have brought it in, and cleaned up, just now.
        return None if last is None or last >= due.seq else str(error)
    return None
