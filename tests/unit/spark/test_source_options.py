"""Options of format("kafkalike"): what a user gives in, checked settings or a named refusal out."""

import logging
from typing import Any

import pytest

from kafkalike.errors import IllegalArgumentError, InvalidGroupIdError, InvalidTopicError
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.format.option_values import MAX_LONG
from kafkalike.spark.format.positions import AtOffsets, AtTime, AtTimes, CommittedPosition, Everywhere
from kafkalike.spark.format.source_options import (
    SourceOptions,
    check_batch,
    check_stream,
    parse_options,
    warn_without_meaning,
)

ROOT = {"kafka.bootstrap.servers": "/data/log"}


def options(**given: str) -> SourceOptions:
    return parse_options({**ROOT, "subscribe": "t"} | {name.replace("__", "."): value for name, value in given.items()})


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    """Everything that may be left out, left out."""
    made = options()

    assert made.root == "/data/log"
    assert made.choice.topics == ("t",)
    assert made.starting is None
    assert made.ending == Everywhere(-1)
    assert (made.fail_on_data_loss, made.include_headers, made.or_latest) == (True, False, False)
    assert (made.min_partitions, made.max_records_per_partition) == (None, None)
    assert (made.max_offsets_per_trigger, made.min_offsets_per_trigger) == (None, None)
    assert made.max_trigger_delay_ms == 15 * 60_000
    assert made.group_id is None


def test_behaviour_06_exactly_one_way_of_choosing_topics_is_needed() -> None:
    """None, and two: both name the options."""
    with pytest.raises(IllegalArgumentError, match=r"assign, subscribe, subscribePattern .* none is"):
        parse_options(ROOT)
    with pytest.raises(IllegalArgumentError, match="assign and subscribe are: only one of them can be specified"):
        parse_options({**ROOT, "subscribe": "t", "assign": '{"t":[0]}'})


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("assign", "", "no topic-partitions to assign"),
        ("assign", " ", "no topic-partitions to assign"),
        ("subscribe", "", "no topics to subscribe to"),
        ("subscribe", " , ", "no topics to subscribe to"),
        ("subscribePattern", "", "pattern to subscribe to is empty"),
        ("subscribePattern", "a(", "not a regular expression"),
        ("subscribePattern", "a" * 1_025, "1025 bytes"),
        ("assign", '{"t":0}', "is needed, not"),
        ("assign", '{"t":[-1]}', "is needed, not"),
        ("assign", '{"t":[true]}', "is needed, not"),
        ("assign", "t", "is needed, not 't'"),
    ],
)
def test_behaviour_07_a_choice_of_nothing_is_refused(option: str, text: str, said: str) -> None:
    with pytest.raises(IllegalArgumentError, match=said):
        parse_options({**ROOT, option: text})


def test_behaviour_08_topics_are_chosen_by_list_json_or_pattern() -> None:
    """A pattern is looked for anywhere in the name, as Spark's connector does; spaces around it do not count."""
    assigned = parse_options({**ROOT, "assign": '{"a":[0,1],"b":[4]}'}).choice
    listed = parse_options({**ROOT, "subscribe": "b, a,b"}).choice
    patterned = parse_options({**ROOT, "subscribePattern": "a.*|c"}).choice

    assert assigned.assign == {TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 4)}
    assert listed.topics == ("a", "b")
    anchored = parse_options({**ROOT, "subscribePattern": "^(a|c)$ "}).choice
    assert [name for name in ("a", "ab", "ba", "c", "b") if patterned.matches(name)] == ["a", "ab", "ba", "c"]
    assert [name for name in ("a", "ab", "ba", "c", "b") if anchored.matches(name)] == ["a", "c"]


def test_behaviour_09_names_and_words_count_in_any_case_but_topics_do_not() -> None:
    """`t` and `T` are two topics."""
    made = parse_options(
        {
            "KAFKA.bootstrap.SERVERS": "/data/log",
            "SubScribe": "T",
            "startingoffsets": "earLiEst",
            "FAILONDATALOSS": "False",
        }
    )

    assert made.choice.topics == ("T",)
    assert not made.choice.matches("t")
    assert made.starting == Everywhere(-2)
    assert made.fail_on_data_loss is False


@pytest.mark.parametrize(
    "name",
    [
        "kafka.auto.offset.reset",
        "kafka.enable.auto.commit",
        "kafka.interceptor.classes",
        "kafka.key.deserializer",
        "kafka.value.deserializer",
        "kafka.key.serializer",
        "Kafka.Value.Serializer",
    ],
)
def test_behaviour_10_settings_that_would_break_the_bookkeeping_are_refused(name: str) -> None:
    with pytest.raises(IllegalArgumentError, match="not supported"):
        parse_options({**ROOT, "subscribe": "t", name: "x"})


def test_behaviour_11_an_unknown_isolation_level_is_refused() -> None:
    """The two of Kafka are taken."""
    options(kafka__isolation__level="read_committed")
    options(kafka__isolation__level="read_uncommitted")

    with pytest.raises(IllegalArgumentError, match=r"isolation.level must be read_committed"):
        options(kafka__isolation__level="serializable")


def test_behaviour_12_offsets_are_words_or_json() -> None:
    """-2 and -1 stay marks; Kafka's checkpoints have the same form."""
    assert options(startingOffsets="earliest").starting == Everywhere(-2)
    assert options(startingOffsets=" LATEST ").starting == Everywhere(-1)
    given = options(startingOffsets='{"t":{"0":23,"1":-1},"u":{"0":-2}}').starting
    assert given == AtOffsets({TopicPartition("t", 0): 23, TopicPartition("t", 1): -1, TopicPartition("u", 0): -2})


def test_behaviour_13_a_stream_has_no_end() -> None:
    """Whatever the form of the end."""
    for name, value in (
        ("endingOffsets", "latest"),
        ("endingOffsetsByTimestamp", '{"t":{"0":5}}'),
        ("endingTimestamp", "5"),
    ):
        with pytest.raises(IllegalArgumentError, match=f"{name} is not valid in streaming queries"):
            check_stream(options(**{name: value}))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets: latest is not supported for batch"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "t-0: latest"),
        ({"startingOffsets": '{"t":"latest"}'}, "t: latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets: earliest is not supported for batch"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "t-0: earliest"),
    ],
)
def test_behaviour_14_a_batch_neither_begins_at_latest_nor_ends_at_earliest(given: dict[str, str], said: str) -> None:
    with pytest.raises(IllegalArgumentError, match=said):
        check_batch(options(**given))


def test_behaviour_16_literal_offsets_must_name_the_same_partitions_and_not_cross() -> None:
    """Said before a log is looked at, with both numbers."""
    with pytest.raises(IllegalArgumentError, match="t-0 and t-0, t-1"):
        check_batch(options(startingOffsets='{"t":{"0":1}}', endingOffsets='{"t":{"0":1,"1":1}}'))
    with pytest.raises(IllegalArgumentError, match="t-0: the start 5 is above the end 4"):
        check_batch(options(startingOffsets='{"t":{"0":5}}', endingOffsets='{"t":{"0":4}}'))


def test_behaviour_17_a_global_time_beats_times_by_partition_which_beat_offsets() -> None:
    """On each side by itself; start and end may be of different kinds."""
    by_time = {"startingOffsetsByTimestamp": '{"t":{"0":7}}', "startingOffsets": "earliest"}

    assert options(startingTimestamp="5", **by_time).starting == AtTime(5)
    assert options(**by_time).starting == AtTimes({TopicPartition("t", 0): 7})
    mixed = options(startingTimestamp="5", endingOffsets='{"t":{"0":9}}')
    assert (mixed.starting, mixed.ending) == (AtTime(5), AtOffsets({TopicPartition("t", 0): 9}))


def test_behaviour_19_a_topic_may_have_a_word_instead_of_offsets() -> None:
    """One topic so, another so."""
    given = options(startingOffsets='{"a":"Earliest","b":{"0":23}}').starting

    assert given == AtOffsets({TopicPartition("b", 0): 23}, {"a": -2})


@pytest.mark.parametrize(
    "text",
    [
        '{"t":{"0":1},"t":"latest"}',
        '["t"]',
        "23",
        "now",
        "",
        '{"t":"now"}',
        '{"t":{"x":1}}',
        '{"t":{"0":"1"}}',
        '{"t":{"0":1.5}}',
        '{"t":{"0":true}}',
        '{"t":{"-1":1}}',
        '{"t":{"0":-3}}',
        '{"t":{"0":9223372036854775808}}',
        '{"t":[0]}',
    ],
)
def test_behaviour_19_what_is_no_offset_is_quoted(text: str) -> None:
    with pytest.raises(IllegalArgumentError) as refused:
        options(startingOffsets=text)

    assert repr(text) in str(refused.value)


@pytest.mark.parametrize("text", ["0", "-1", "a", "1.0", "", "1e3", "٣", "1000001"])
def test_behaviour_21_min_partitions_is_a_positive_whole_number(text: str) -> None:
    with pytest.raises(IllegalArgumentError, match="minPartitions must be a positive whole number"):
        options(minPartitions=text)


def test_there_cannot_be_more_partitions_at_least_than_at_most() -> None:
    """And the most is a positive whole number too."""
    made = options(minPartitions="2", maxPartitions="2")

    assert (made.min_partitions, made.max_partitions) == (2, 2)
    with pytest.raises(IllegalArgumentError, match=r"minPartitions \(3\) is above maxPartitions \(2\)"):
        options(minPartitions="3", maxPartitions="2")
    with pytest.raises(IllegalArgumentError, match="maxPartitions must be a positive whole number"):
        options(maxPartitions="0")


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxRecordsPerPartition"])
def test_limits_are_positive_whole_numbers_up_to_a_long(name: str) -> None:
    """The largest of them included."""
    options(**{name: str(MAX_LONG)})

    for text in ("0", "-5", "5.5", "many", str(MAX_LONG + 1)):
        with pytest.raises(IllegalArgumentError, match=f"{name} must be a positive whole number"):
            options(**{name: text})


def test_behaviour_27_a_minimum_above_the_maximum_is_refused() -> None:
    """At load, with both numbers."""
    with pytest.raises(IllegalArgumentError, match=r"minOffsetsPerTrigger \(6\) is above maxOffsetsPerTrigger \(5\)"):
        options(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")


@pytest.mark.parametrize(
    ("text", "expected"), [("15m", 900_000), ("90s", 90_000), ("1h", 3_600_000), ("250ms", 250), ("2 d", 172_800_000)]
)
def test_a_delay_has_a_unit(text: str, expected: int) -> None:
    assert options(maxTriggerDelay=text).max_trigger_delay_ms == expected


@pytest.mark.parametrize("text", ["soon", "-5s", "5 fortnights", "1.5h", ""])
def test_what_is_no_delay_is_refused(text: str) -> None:
    with pytest.raises(IllegalArgumentError, match="maxTriggerDelay must be a duration"):
        options(maxTriggerDelay=text)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"kafka__bootstrap__servers": " "}, IllegalArgumentError, "must name the cluster's root"),
        ({"includeHeaders": "yes"}, IllegalArgumentError, "must be true or false"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, IllegalArgumentError, "error, latest"),
        ({"startingTimestamp": "-5"}, IllegalArgumentError, "ms since 1970"),
        ({"startingTimestamp": "yesterday"}, IllegalArgumentError, "ms since 1970"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, IllegalArgumentError, "not in"),
        ({"kafka__group__id": ""}, InvalidGroupIdError, "group_id"),
        ({"subscribe": "../t"}, InvalidTopicError, "characters"),
        ({"startingOffset": "earliest"}, IllegalArgumentError, "did you mean 'startingOffsets'"),
        ({"startingOffset": "earliest"}, IllegalArgumentError, "unknown option startingOffset.*startingOffsets"),
        ({"group_id": "a", "kafka__group__id": "b"}, IllegalArgumentError, "are the same and name a and b"),
        ({"startingOffsets": "committed"}, IllegalArgumentError, "need kafka.group.id"),
        ({"endingOffsets": "committed"}, IllegalArgumentError, "need kafka.group.id"),
        (
            {"startingOffsets": "committed", "group_id": "g", "kafka__auto__offset__reset": "x"},
            IllegalArgumentError,
            "kafka.auto.offset.reset must be one of earliest, latest, none",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(given: dict[str, str], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        options(**given)


def test_options_that_change_nothing_are_named_in_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Those of Spark's source that are about brokers, and every other Kafka setting."""
    given = {**ROOT, "subscribe": "t", "GroupIdPrefix": "p", "kafka.security.protocol": "SSL", "minPartitions": "2"}

    with caplog.at_level(logging.WARNING):
        parse_options(given)
        warn_without_meaning(given)

    assert [record.getMessage().split(" has no effect")[0] for record in caplog.records] == [
        "option groupIdPrefix",
        "option kafka.security.protocol",
    ]


def test_limits_in_a_batch_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """As Spark's Kafka source does."""
    with caplog.at_level(logging.WARNING):
        check_batch(options(maxOffsetsPerTrigger="5", maxTriggerDelay="1s", kafka__group__id="g"))

    assert [record.getMessage() for record in caplog.records] == [
        "option maxOffsetsPerTrigger has no effect in a batch query",
        "option maxTriggerDelay has no effect in a batch query",
        "option kafka.group.id has no effect in a batch query",
    ]


def test_a_value_is_never_taken_for_a_name(caplog: pytest.LogCaptureFixture) -> None:
    """A password among Kafka's settings is not repeated in the log."""
    given: dict[str, Any] = {**ROOT, "subscribe": "t", "kafka.sasl.jaas.config": 'password="canary"'}

    with caplog.at_level(logging.WARNING):
        parse_options(given)
        warn_without_meaning(given)

    assert "canary" not in caplog.text


def test_assigning_nothing_is_an_empty_choice() -> None:
    """As Spark's Kafka source takes it."""
    choice = parse_options({**ROOT, "assign": "{}"}).choice

    assert choice.named == ()
    assert not choice.matches("t")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("group.id", "option group.id has no effect without kafka. in front: kafka.group.id"),
        (
            "auto.offset.reset",
            "option auto.offset.reset has no effect without kafka. in front: kafka.auto.offset.reset",
        ),
        ("path", None),
        ("provider", None),
        ("option.subscribe", None),
        ("inferSchema", "option inferSchema has no effect: the format has no such option"),
        ("checkpointLocation", "option checkpointLocation has no effect: the format has no such option"),
        ("maxFilesPerTrigger", "option maxFilesPerTrigger has no effect: the format has no such option"),
    ],
)
def test_what_sparks_connector_ignores_is_ignored_with_a_warning(
    name: str, said: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is said of what Spark's catalog adds to a table's options."""
    given = {**ROOT, "subscribe": "t", name: "x"}

    parse_options(given)
    with caplog.at_level(logging.WARNING):
        warn_without_meaning(given)

    assert [record.message for record in caplog.records] == ([] if said is None else [said])


def test_a_table_is_read_by_the_name_that_it_is_written_by() -> None:
    """Unless another option says what to read."""
    assert parse_options({**ROOT, "topic": "t"}).choice.topics == ("t",)
    assert parse_options({**ROOT, "topic": "t", "subscribe": "u"}).choice.topics == ("u",)


def test_where_a_group_stands_can_be_a_start_and_an_end() -> None:
    """The group goes by either name; without a word, the reset is that of a new query."""
    made = options(startingOffsets="Committed", endingOffsets="committed", group_id="g")
    latest = options(startingOffsets="committed", kafka__group__id="g", kafka__auto__offset__reset="latest")

    assert (made.starting, made.ending, made.group_id) == (CommittedPosition(), CommittedPosition(), "g")
    assert latest.starting == CommittedPosition("latest")
