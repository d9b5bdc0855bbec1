"""Topic and server settings: units, precedence, lists, and names that are nearly right."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import InvalidConfigurationError
from kafkalike.model.config.properties import as_text
from kafkalike.model.config.server_config import SERVER_PROPERTIES, TOPIC_DEFAULTS, ServerProperties
from kafkalike.model.config.topic_config import TOPIC_PROPERTIES, TopicConfig

HOUR, MINUTE = 3_600_000, 60_000


def test_every_default_is_a_value_its_setting_allows() -> None:
    """For topics and for servers; Kafka's own."""
    for known in (TOPIC_PROPERTIES, SERVER_PROPERTIES):
        for setting in known.properties.values():
            known.check(setting.name, setting.default)
            assert setting.doc


def test_every_topic_setting_has_a_server_default() -> None:
    """So that each can be said for a whole cluster."""
    assert set(TOPIC_DEFAULTS) == set(TOPIC_PROPERTIES.properties)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", ""),
        ("retention.ms", "1.5"),
        ("retention.ms", "NaN"),
        ("retention.ms", "inf"),
        ("retention.ms", "seven days"),
        ("retention.ms", str(2**63)),
        ("retention.bytes", "-2"),
        ("segment.bytes", "13"),
        ("segment.bytes", str(2**31)),
        ("segment.ms", "0"),
        ("max.message.bytes", "-1"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("cleanup.policy", "none"),
        ("cleanup.policy", "delete,delete"),
        ("cleanup.policy", "remove"),
        ("compression.type", "brotli"),
        ("compression.type", "GZIP"),
        ("message.timestamp.type", "createtime"),
        ("min.insync.replicas", "0"),
    ],
)
def test_a_bad_value_is_refused_with_what_would_be_right(name: str, text: str) -> None:
    """Naming the setting."""
    with pytest.raises(InvalidConfigurationError, match=f"invalid value for topic setting '{name}'.*needed"):
        TOPIC_PROPERTIES.check(name, text)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("retention.msec", "retention.ms"), ("cleanup_policy", "cleanup.policy"), ("compresion.type", "compression.type")],
)
def test_an_unknown_setting_names_the_nearest_one(name: str, nearest: str) -> None:
    """A slip of the pen is told at once."""
    with pytest.raises(InvalidConfigurationError, match=f"unknown topic setting '{name}'; did you mean '{nearest}'"):
        TOPIC_PROPERTIES.check(name, "1")


@pytest.mark.parametrize("name", ["flush.ms", "remote.storage.enable", "segment.index.bytes"])
def test_a_setting_of_kafkas_without_meaning_here_says_why(name: str) -> None:
    """Instead of being taken in silence."""
    with pytest.raises(InvalidConfigurationError, match="has no meaning here: "):
        TOPIC_PROPERTIES.check(name, "1")


@pytest.mark.parametrize(
    ("value", "text"), [(True, "true"), (False, "false"), (1000, "1000"), (0.5, "0.5"), ("delete", "delete")]
)
def test_values_have_one_text_form(value: Any, text: str) -> None:
    """As Kafka prints them."""
    assert as_text(value) == text


@pytest.mark.parametrize("value", [None, b"1", ["delete"], {"a": 1}])
def test_a_value_without_text_form_is_refused(value: Any) -> None:
    """By its type."""
    with pytest.raises(InvalidConfigurationError, match=type(value).__name__):
        as_text(value)


# --- servers -----------------------------------------------------------------------------------


@given(
    ms=st.none() | st.integers(0, 10**9),
    minutes=st.none() | st.integers(0, 10**6),
    hours=st.none() | st.integers(0, 10**5),
)
def test_milliseconds_win_over_minutes_and_minutes_over_hours(
    ms: int | None, minutes: int | None, hours: int | None
) -> None:
    """The finest unit that is set, else Kafka's seven days."""
    given_values = {"log.retention.ms": ms, "log.retention.minutes": minutes, "log.retention.hours": hours}
    server = ServerProperties.from_properties({n: str(v) for n, v in given_values.items() if v is not None})

    found = int(server.effective({})["retention.ms"])

    in_ms = [ms, None if minutes is None else minutes * MINUTE, None if hours is None else hours * HOUR]
    assert found == next((value for value in in_ms if value is not None), 7 * 24 * HOUR)


@pytest.mark.parametrize("name", ["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
def test_minus_one_keeps_records_forever_in_every_unit(name: str) -> None:
    """It is not minus one hour."""
    assert ServerProperties.from_properties({name: "-1"}).effective({})["retention.ms"] == "-1"


def test_a_topics_own_setting_wins_over_the_servers() -> None:
    """And the server's over Kafka's."""
    server = ServerProperties.from_properties({"log.roll.hours": "2", "compression.type": "zstd"})

    found = server.effective({"compression.type": "gzip"})

    assert (found["compression.type"], found["segment.ms"]) == ("gzip", str(2 * HOUR))
    assert server.topic_default("segment.ms") == (str(2 * HOUR), True)
    assert server.topic_default("segment.bytes") == ("1073741824", False)


@pytest.mark.parametrize(("name", "ms"), [("log.roll.hours", HOUR), ("log.retention.hours", HOUR)])
def test_every_unit_gives_a_value_the_topic_setting_allows(name: str, ms: int) -> None:
    """Whatever a server may say, topics can be made with it."""
    for text in ("1", "168", str(2**31 - 1)):
        config = ServerProperties.from_properties({name: text}).effective({})
        setting = "segment.ms" if "roll" in name else "retention.ms"
        assert TOPIC_PROPERTIES.check(setting, config[setting]) == int(text) * ms


@pytest.mark.parametrize("text", ["0", "-1"])
def test_a_server_default_that_no_topic_could_have_is_refused(text: str) -> None:
    """At the server, not at the next topic."""
    with pytest.raises(InvalidConfigurationError):
        ServerProperties.from_properties({"log.roll.hours": text})


def test_an_unknown_server_setting_names_the_nearest_one() -> None:
    """As for topics; those of the broker's process say that there is none."""
    with pytest.raises(InvalidConfigurationError, match=r"did you mean 'num\.partitions'"):
        ServerProperties.from_properties({"num.partition": "3"})
    assert ServerProperties.from_properties({"offsets.topic.num.partitions": "1"}).settings
    with pytest.raises(InvalidConfigurationError, match="offsets of all groups are in one table"):
        ServerProperties.from_properties({"offsets.topic.num.partitions": "50"})
    with pytest.raises(InvalidConfigurationError, match="no broker process"):
        ServerProperties.from_properties({"zookeeper.connect": "x"})


def test_a_file_in_the_root_wins_over_the_environments(tmp_path: Path) -> None:
    """And without either, Kafka's defaults hold."""
    root, named = tmp_path / "root", tmp_path / "named.properties"
    root.mkdir()
    named.write_text("num.partitions=5\n")
    environ = {"KAFKALIKE_SERVER_PROPERTIES": str(named)}

    assert ServerProperties.load(str(root), {}).num_partitions == 1
    assert ServerProperties.load(str(root), environ).num_partitions == 5
    (root / "server.properties").write_text("# ours\nnum.partitions = 7\nauto.create.topics.enable:false\n")
    found = ServerProperties.load(str(root), environ)
    assert (found.num_partitions, found.auto_create_topics) == (7, False)


@pytest.mark.parametrize("content", [None, "num.partitions=0", "nonsense=1"])
def test_a_bad_server_file_is_named(tmp_path: Path, content: str | None) -> None:
    """Missing, or with a setting that cannot be."""
    path = tmp_path / "server.properties"
    if content is not None:
        path.write_text(content)

    with pytest.raises(InvalidConfigurationError, match=r"server\.properties"):
        ServerProperties.load(None, {"KAFKALIKE_SERVER_PROPERTIES": str(path)})


@pytest.mark.parametrize(
    ("file", "others", "found"),
    [
        pytest.param({"num.partitions": "2"}, [{}], ["num.partitions"], id="other value"),
        pytest.param({"num.partitions": "1"}, [{}], [], id="Kafka's default, set by name"),
        pytest.param({"num.partitions": "02"}, [{"num.partitions": "2"}], [], id="same value, other text"),
        pytest.param({"num.partitions": "2"}, [{}, {"num.partitions": "2"}], [], id="the seed's"),
        pytest.param({"broker.rack": "a", "controller.quorum.voters": "1"}, [{}], [], id="of one root"),
        pytest.param({"log.retention.hours": "1"}, [{"log.retention.ms": "3600000"}], [], id="same effect, other unit"),
        pytest.param({"log.retention.hours": "168"}, [{"log.retention.ms": "-1"}], ["log.retention.hours"], id="unit"),
        pytest.param(
            {"log.retention.hours": "168", "log.retention.ms": "-1"}, [{"log.retention.ms": "-1"}], [], id="ms win"
        ),
    ],
)
def test_a_file_contradicts_defaults_by_effect(
    file: dict[str, str], others: list[dict[str, str]], found: list[str]
) -> None:
    known = [ServerProperties.from_properties(other) for other in others]
    assert ServerProperties.from_properties(file).contradictions(*known) == found


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        pytest.param({"num.partitions": "2"}, {}, [], id="only one sets it"),
        pytest.param({"num.partitions": "2"}, {"num.partitions": "3"}, ["num.partitions"], id="both"),
        pytest.param({"log.retention.hours": "1"}, {"log.retention.ms": "5"}, ["log.retention.hours"], id="units"),
        pytest.param({"broker.rack": "a"}, {"broker.rack": "b"}, [], id="racks"),
        pytest.param(
            {"controller.quorum.voters": "1"},
            {"controller.quorum.voters": "2"},
            ["controller.quorum.voters"],
            id="voters",
        ),
    ],
)
def test_files_of_two_roots_conflict_where_both_set_something(
    one: dict[str, str], other: dict[str, str], found: list[str]
) -> None:
    assert ServerProperties.from_properties(one).conflicts(ServerProperties.from_properties(other)) == found


@pytest.mark.parametrize("kind", ["folder", "link to nothing"])
def test_a_server_file_that_is_there_and_cannot_be_read_is_an_error(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "server.properties"
    if kind == "folder":
        file.mkdir()
    else:
        file.symlink_to(tmp_path / "nowhere")

    with pytest.raises(InvalidConfigurationError, match=r"server\.properties' cannot be read"):
        ServerProperties.load(str(tmp_path), {})


def test_the_shipped_server_file_says_nothing_wrong() -> None:
    """`conf/server.properties`."""
    ServerProperties.from_file(Path(__file__).parents[3] / "conf" / "server.properties")


# --- topics ------------------------------------------------------------------------------------


def test_the_settings_of_the_append_path_are_typed() -> None:
    """From text to what the code compares with."""
    config = TopicConfig.from_properties(
        {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact, delete"}
    )

    assert (config.log_append_time, config.compacted) == (True, True)
    assert (config.max_message_bytes, config.compression_type) == (1_048_588, "producer")
    assert not TopicConfig.from_properties({}).compacted


def test_topic_settings_have_kafkas_words_and_defaults() -> None:
    """An empty cleanup.policy keeps all, `uncompressed` is no codec, and a time may lie an hour ahead."""
    config = TopicConfig.from_properties({"cleanup.policy": "", "compression.type": "uncompressed"})

    assert (config.cleanup_policy, config.compression_type) == ((), "none")
    assert config.timestamp_after_max_ms == 3_600_000


def test_topic_settings_of_ours_keep_their_names() -> None:
    """Written out: a script that renames modules must not rename settings, which users have in their configurations."""
    assert sorted(name for name in TOPIC_PROPERTIES.properties if name.startswith("kafkalike.")) == [
        "kafkalike.flush",
        "kafkalike.foreign.writes",
        "kafkalike.key.schema.validation",
        "kafkalike.key.subject.name.strategy",
        "kafkalike.merge.bytes",
        "kafkalike.merge.min.age.ms",
        "kafkalike.replaced.file.delay.ms",
        "kafkalike.retention.clock",
        "kafkalike.retention.wait.groups",
        "kafkalike.retention.wait.max.bytes",
        "kafkalike.retention.wait.max.ms",
        "kafkalike.value.schema.validation",
        "kafkalike.value.subject.name.strategy",
    ]
