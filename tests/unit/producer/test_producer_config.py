"""ProducerConfig: what is taken, what is refused, and what is said about settings without effect."""

import logging
import math
from collections.abc import Callable
from typing import Any

import pytest

from kafkalike.admin.testing import MemoryCluster
from kafkalike.errors import KafkaConfigurationError
from kafkalike.model.config.admin_config import AdminConfig
from kafkalike.model.config.consumer_config import ConsumerConfig
from kafkalike.model.config.producer_config import WITHOUT_EFFECT, ProducerConfig
from kafkalike.producer import KafkaProducer


def test_defaults_are_those_of_kafka_python() -> None:
    """Code that sets nothing gets what it got from kafka-python 3."""
    config = ProducerConfig.of({})

    assert (config.acks, config.enable_idempotence, config.retries) == (-1, True, math.inf)
    assert (config.delivery_timeout_ms, config.max_block_ms, config.linger_ms) == (120_000, 60_000, 0)
    assert (config.batch_size, config.max_request_size, config.buffer_memory) == (16_384, 1_048_576, 33_554_432)


def test_each_producer_gets_a_name_of_its_own() -> None:
    """Without client_id, log lines of two producers can be told apart."""
    names = {ProducerConfig.of({}).client_id for _ in range(3)}

    assert len(names) == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", "2"),
        ("acks", 2),
        ("acks", True),
        ("batch_size", -1),
        ("buffer_memory", 0),
        ("client_id", ""),
        ("compression_type", "brotli"),
        ("delivery_timeout_ms", 0),
        ("delivery_timeout_ms", math.inf),
        ("enable_idempotence", "yes"),
        ("key_serializer", 3),
        ("linger_ms", math.nan),
        ("linger_ms", True),
        ("max_block_ms", -1),
        ("max_request_size", 1.5),
        ("metric_reporters", ["a reporter"]),
        ("partitioner", "murmur2"),
        ("retries", -1),
        ("retries", 1.5),
        ("retries", math.nan),
        ("retry_backoff_ms", ""),
        ("security_protocol", "SSL"),
        ("transaction_timeout_ms", 0),
        ("transactional_id", ""),
        ("transactional_id", 7),
        ("linger_mss", 5),
    ],
    ids=repr,
)
def test_a_setting_that_cannot_be_meant_is_refused_by_name(name: str, value: Any) -> None:
    """A wrong setting is told when the producer is made, not when records are lost."""
    with pytest.raises(KafkaConfigurationError, match=name):
        KafkaProducer(bootstrap_servers=MemoryCluster(), **{name: value})


@pytest.mark.parametrize("acks", ["all", -1])
def test_all_is_minus_one(acks: object) -> None:
    """Both spellings of Kafka mean the same."""
    config = ProducerConfig.of({"acks": acks})

    assert config.acks == -1
    assert config.enable_idempotence


@pytest.mark.parametrize(
    ("name", "value"), [("acks", 0), ("acks", 1), ("retries", 0), ("max_in_flight_requests_per_connection", 6)]
)
def test_idempotence_gives_way_with_a_warning(name: str, value: int, caplog: pytest.LogCaptureFixture) -> None:
    """As in kafka-python, a default gives way to what was asked for by name."""
    config = ProducerConfig.of({name: value})

    assert not config.enable_idempotence
    assert f"{name}={value}" in caplog.text


def test_idempotence_that_was_asked_for_does_not_give_way() -> None:
    """Two wishes that exclude each other are an error."""
    with pytest.raises(KafkaConfigurationError, match="acks=1"):
        ProducerConfig.of({"acks": 1, "enable_idempotence": True})


def test_a_transactional_id_implies_idempotence() -> None:
    """Nothing else needs to be said."""
    config = ProducerConfig.of({"transactional_id": "orders"})

    assert (config.enable_idempotence, config.acks, config.transaction_timeout_ms) == (True, -1, 60_000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", 0),
        ("acks", 1),
        ("enable_idempotence", False),
        ("max_in_flight_requests_per_connection", 6),
        ("retries", 0),
    ],
)
def test_a_transactional_id_goes_with_nothing_that_excludes_idempotence(name: str, value: int) -> None:
    """Kafka's rule (KIP-679): here nothing gives way."""
    with pytest.raises(KafkaConfigurationError, match="transactional_id .*" + name):
        ProducerConfig.of({"transactional_id": "orders", name: value})


def test_settings_that_exclude_idempotence_are_named_together() -> None:
    """So that one run finds all of them."""
    with pytest.raises(KafkaConfigurationError, match="acks=1, retries=0"):
        ProducerConfig.of({"enable_idempotence": True, "acks": 1, "retries": 0})


def test_settings_without_effect_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is ignored silently."""
    caplog.set_level(logging.INFO)

    ProducerConfig.of({"connections_max_idle_ms": 1, "send_buffer_bytes": 5, "linger_ms": 3})

    assert "connections_max_idle_ms, send_buffer_bytes" in caplog.text
    assert "linger_ms" not in caplog.text


def test_every_setting_without_effect_is_a_setting() -> None:
    """The list names no setting that the class does not have."""
    assert set(ProducerConfig.__dataclass_fields__) >= WITHOUT_EFFECT


def test_the_time_to_deliver_holds_lingering_and_a_request() -> None:
    """Kafka's rule; a default that is too short is raised."""
    with pytest.raises(KafkaConfigurationError, match="delivery_timeout_ms=1000 must be at least"):
        ProducerConfig.of({"delivery_timeout_ms": 1000})
    assert ProducerConfig.of({"linger_ms": 100_000}).delivery_timeout_ms == 130_000
    assert ProducerConfig.of({"delivery_timeout_ms": 1000, "request_timeout_ms": 1000}).delivery_timeout_ms == 1000


Read = Callable[[dict[str, Any]], object]

READ: dict[str, Read] = {
    "producer": ProducerConfig.of,
    "consumer": ConsumerConfig.of,
    "admin": AdminConfig.from_configs,
}

NO_SECURITY = {
    "security_protocol": ("PLAINTEXT", "plaintext", None, ""),
    "ssl_context": (None,),
    "ssl_check_hostname": (True, "true", None),
    "ssl_cafile": (None, ""),
    "ssl_password": (None, ""),
    "sasl_mechanism": (None, ""),
    "sasl_plain_username": (None, ""),
    "sasl_plain_password": (None, ""),
    "sasl_kerberos_service_name": ("kafka", None),
    "sasl_oauth_token_provider": (None,),
    "socks5_proxy": (None, ""),
    "sock_chunk_bytes": (4096,),
    "socket_options": (None,),
}
"""Values in configuration files, kafka-python's defaults among them, that ask for no security of a broker."""


@pytest.mark.parametrize("read", READ.values(), ids=READ)
@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in NO_SECURITY.items() for value in values], ids=repr
)
def test_default_that_asks_for_no_broker_security_is_accepted(read: Read, name: str, value: object) -> None:
    assert read({name: value, "client_id": "c"}) == read({"client_id": "c"})


@pytest.mark.parametrize("read", READ.values(), ids=READ)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("security_protocol", "SASL_PLAINTEXT"),
        ("security_protocol", "SSL"),
        ("security_protocol", 0),
        ("ssl_check_hostname", False),
        ("ssl_cafile", "ca.pem"),
        ("sasl_mechanism", "PLAIN"),
        ("sasl_plain_username", "ann"),
        ("sock_chunk_bytes", 1),
        ("sock_chunk_buffer_count", True),
    ],
    ids=repr,
)
def test_setting_that_asks_for_broker_security_is_rejected(read: Read, name: str, value: object) -> None:
    with pytest.raises(KafkaConfigurationError, match=f"'{name}' has no meaning here"):
        read({name: value})
