"""Settings of a consumer: what is taken, what is refused, what is named as without effect."""

import logging
import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from kafkalike.admin.testing import MemoryCluster
from kafkalike.consumer import KafkaConsumer
from kafkalike.errors import KafkaConfigurationError
from kafkalike.model.config.consumer_config import WITHOUT_EFFECT, ConsumerConfig


def test_defaults_are_kafka_pythons() -> None:
    """The numbers that code written for kafka-python relies on."""
    config = ConsumerConfig()

    assert (config.auto_offset_reset, config.enable_auto_commit, config.auto_commit_interval_ms) == (
        "latest",
        True,
        5000,
    )
    assert (config.max_poll_records, config.fetch_max_bytes, config.max_partition_fetch_bytes) == (
        500,
        52_428_800,
        1_048_576,
    )
    assert (config.fetch_min_bytes, config.fetch_max_wait_ms, config.consumer_timeout_ms) == (1, 500, math.inf)
    assert (config.session_timeout_ms, config.default_api_timeout_ms, config.request_timeout_ms) == (
        45_000,
        60_000,
        30_000,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("group_idd", "g"),
        ("group_id", ""),
        ("group_id", 5),
        ("group_instance_id", "a b"),
        ("group_instance_id", ".."),
        ("client_id", ""),
        ("client_id", "\ud800"),
        ("client_rack", "\ud800"),
        ("auto_offset_reset", "sometimes"),
        ("auto_offset_reset", None),
        ("isolation_level", "x"),
        ("enable_auto_commit", 1),
        ("enable_auto_commit", "true"),
        ("auto_commit_interval_ms", -1),
        ("auto_commit_interval_ms", math.nan),
        ("auto_commit_interval_ms", math.inf),
        ("auto_commit_interval_ms", ""),
        ("max_poll_records", 0),
        ("max_poll_records", True),
        ("max_poll_records", 1.5),
        ("fetch_max_bytes", -1),
        ("consumer_timeout_ms", -2),
        ("consumer_timeout_ms", math.nan),
        ("default_offset_commit_callback", 5),
        ("metric_reporters", [object]),
        ("ssl_cafile", "ca.pem"),
        ("security_protocol", "SSL"),
        ("key_deserializer", 5),
        ("value_deserializer", (1, 2)),
        ("session_timeout_ms", 0),
        ("heartbeat_interval_ms", 45_000),
        ("max_poll_interval_ms", 0),
        ("partition_assignment_strategy", "rangee"),
        ("partition_assignment_strategy", []),
        ("partition_assignment_strategy", [int]),
        ("partition_assignment_strategy", ["range", "range"]),
    ],
)
def test_a_bad_setting_is_refused_at_construction(name: str, value: Any) -> None:
    """The message names the setting."""
    settings: dict[str, Any] = {"bootstrap_servers": MemoryCluster(), name: value}
    if name == "group_instance_id":
        settings["group_id"] = "g"

    with pytest.raises(KafkaConfigurationError, match=name):
        KafkaConsumer(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"fetch_max_wait_ms": 30_000},
        {"request_timeout_ms": 500},
        {"request_timeout_ms": 540_000},
        {"connections_max_idle_ms": 30_000},
    ],
)
def test_timeouts_that_contradict_each_other_are_refused(settings: dict[str, Any]) -> None:
    """fetch_max_wait_ms < request_timeout_ms < connections_max_idle_ms, as in kafka-python."""
    with pytest.raises(KafkaConfigurationError, match=r"'request_timeout_ms'.*must be above 'fetch_max_wait_ms'"):
        ConsumerConfig.of(settings)


def test_a_heartbeat_near_the_session_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """One late heartbeat would end the session."""
    ConsumerConfig.of({"group_id": "g", "session_timeout_ms": 9000, "heartbeat_interval_ms": 3000})
    assert not caplog.text

    ConsumerConfig.of({"group_id": "g", "session_timeout_ms": 9000, "heartbeat_interval_ms": 4000})
    assert "heartbeat_interval_ms=4000" in caplog.text


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 10_000),
        ({"session_timeout_ms": 30_000}, 10_000),
        ({"session_timeout_ms": 18_000}, 6000),
        ({"session_timeout_ms": 6000}, 3000),
        ({"heartbeat_interval_ms": 3000}, 3000),
        ({"heartbeat_interval_ms": 14_000}, 14_000),
    ],
)
def test_a_clusters_default_of_heartbeats_gives_way_to_the_user_and_to_a_short_session(
    given: dict[str, Any], expected: float
) -> None:
    """It is never below Kafka's own default: the same settings are right or wrong wherever the root lies."""
    config = ConsumerConfig.of(given).at(10_000, given)

    assert config.heartbeat_interval_ms == expected
    assert config.session_timeout_ms == given.get("session_timeout_ms", 45_000)


def test_a_near_clusters_default_of_heartbeats_is_kafkas() -> None:
    """Whatever the session is."""
    assert ConsumerConfig.of({}).at(3000, {}).heartbeat_interval_ms == 3000


def test_default_config_names_every_setting() -> None:
    """Ported code takes a copy of it and changes that."""
    settings = {**KafkaConsumer.DEFAULT_CONFIG, "bootstrap_servers": MemoryCluster(), "max_poll_records": 7}

    with KafkaConsumer(**settings) as consumer:
        assert consumer.config.max_poll_records == 7
    assert KafkaConsumer.DEFAULT_CONFIG["max_poll_records"] == 500


def test_a_static_member_needs_a_group() -> None:
    """As in kafka-python."""
    with pytest.raises(KafkaConfigurationError, match="group_id"):
        ConsumerConfig.of({"group_instance_id": "one"})


def test_old_names_of_resets_are_understood(caplog: pytest.LogCaptureFixture) -> None:
    """kafka-python maps them with a warning."""
    config = ConsumerConfig.of({"auto_offset_reset": "smallest"})

    assert config.auto_offset_reset == "earliest"
    assert "smallest" in caplog.text


@pytest.mark.parametrize(("given", "kept"), [(-1, math.inf), (math.inf, math.inf), (0, 0), (2.5, 2.5)])
def test_consumer_timeout_takes_minus_one_and_infinity_for_never(given: float, kept: float) -> None:
    """Both are in use."""
    assert ConsumerConfig.of({"consumer_timeout_ms": given}).consumer_timeout_ms == kept


def test_numpy_integers_become_pythons() -> None:
    """A count from a data frame is a count."""
    config = ConsumerConfig.of({"max_poll_records": np.int64(7)})

    assert type(config.max_poll_records) is int


def test_settings_without_effect_are_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Once, by name, and only those that were given."""
    with caplog.at_level(logging.INFO):
        ConsumerConfig.of({"net": None, "check_crcs": False, "client_rack": "r1", "group_id": "g"})

    assert "check_crcs, net" in caplog.text
    assert "client_rack" not in caplog.text
    assert "group_id" not in caplog.text


def test_every_setting_without_effect_exists() -> None:
    """The list cannot name what the class has not."""
    assert {field.name for field in fields(ConsumerConfig)} >= WITHOUT_EFFECT
