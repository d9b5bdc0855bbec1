"""Segments: offsets and times in, a segment out, for tests that need no file."""

from kafkalike.model.segments import Segment


def segment(
    start: int, stop: int, *, partition: int = 0, records: int | None = None, times: tuple[int, int] = (0, 0)
) -> Segment:
    """A segment of one byte; without `records` it has a record for each offset. Its path is its start."""
    return Segment(
        partition=partition,
        start=start,
        stop=stop,
        num_records=stop - start if records is None else records,
        min_timestamp=times[0],
        max_timestamp=times[1],
        size_bytes=1,
        path=str(start),
    )
