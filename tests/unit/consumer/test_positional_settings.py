"""Settings as a dict, as confluent-kafka's clients take them, are refused with the keywords."""

from typing import Any

import pytest

from kafkalike import KafkaAdminClient, KafkaConsumer, KafkaProducer


@pytest.mark.parametrize("kind", [KafkaProducer, KafkaConsumer, KafkaAdminClient], ids=lambda kind: kind.__name__)
def test_dict_of_settings_is_refused_with_the_keywords_and_without_values(kind: Any) -> None:
    settings = {"bootstrap.servers": "./log", "sasl.password": "hunter2"}

    with pytest.raises(TypeError) as raised:
        kind(settings)

    assert str(raised.value) == (
        f"{kind.__name__} takes settings as keyword arguments, as in kafka-python, not as confluent-kafka's dict: "
        f"{kind.__name__}(bootstrap_servers=…, sasl_password=…). docs/coming-from.md translates confluent-kafka's names"
    )


@pytest.mark.parametrize("kind", [KafkaProducer, KafkaAdminClient], ids=lambda kind: kind.__name__)
def test_other_positional_argument_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match=rf"{kind.__name__} takes settings as keyword arguments, not './log'"):
        kind("./log")
