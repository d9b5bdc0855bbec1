"""The gateway answers as a Kafka broker, whose answers to the same requests are recorded, but for a list of reasons.

`python -m benchmarks.gateway_judges kafka` compares with a running broker, and records its answers anew.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafkalike.log.cluster.cluster import Cluster
from tests.tools.wire_group_cases import EVERY_CASE
from tests.tools.wire_transcript import RECORDED, differences, transcripts, unexpected

KAFKA: dict[str, Any] = json.loads(RECORDED.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("case", EVERY_CASE)
def test_answers_differ_from_kafka_only_for_listed_reasons(served: tuple[Cluster, str], case: str) -> None:
    found = transcripts(served[1], {case: EVERY_CASE[case]})

    wrong, _ = unexpected(differences({case: KAFKA[case]}, found))
    assert wrong == []
