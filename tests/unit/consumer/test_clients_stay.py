"""Clients belong to the process that made them, and say so."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from kafkalike import KafkaAdminClient, KafkaConsumer, KafkaProducer


@pytest.mark.parametrize("kind", [KafkaProducer, KafkaConsumer, KafkaAdminClient], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("act", [pickle.dumps, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
def test_pickling_a_client_names_it_and_says_what_to_do(root: str, kind: Any, act: Callable[[Any], object]) -> None:
    with kind(bootstrap_servers=root) as client:
        message = rf"a {kind.__name__} cannot be pickled .* {kind.__name__}\(bootstrap_servers=…\)"
        with pytest.raises(TypeError, match=message):
            act(client)
