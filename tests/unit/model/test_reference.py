"""The settings' types, help and page say what the tables of settings say."""

import re

import pytest

from kafkalike import KafkaAdminClient, KafkaConsumer, KafkaProducer, errors
from kafkalike.model.config.server_config import SERVER_PROPERTIES
from kafkalike.model.config.topic_config import TOPIC_PROPERTIES
from scripts import reference, reference_benchmarks, reference_commands, reference_errors

CLIENTS: dict[str, type[KafkaProducer | KafkaConsumer | KafkaAdminClient]] = {
    "KafkaProducer": KafkaProducer,
    "KafkaConsumer": KafkaConsumer,
    "KafkaAdminClient": KafkaAdminClient,
}


def test_the_files_are_what_the_tables_give() -> None:
    """`make reference` writes them anew."""
    assert reference.TYPED.read_text() == reference.typed()
    assert reference.PAGE.read_text() == reference.page()
    assert reference.ERRORS.read_text() == reference_errors.page()
    assert reference.BENCHMARKS.read_text() == reference_benchmarks.page()
    assert reference.COMMANDS.read_text() == reference_commands.page()


def test_each_figure_has_date_commit_machine_and_command() -> None:
    """In all rows of the page's tables."""
    rows = [reference_benchmarks.cells(row) for *_, rows in reference_benchmarks.SECTIONS for row in rows]

    assert len(rows) > 50
    assert [row for row in rows if not re.fullmatch(r"20\d\d-\d\d-\d\d", row[4])] == []
    assert [row for row in rows if not re.fullmatch(r"`[0-9a-f]{8}(\+changes)?`", row[5])] == []
    assert [row for row in rows if "cores" not in row[6]] == []
    assert [row for row in rows if not re.fullmatch(r"`.*(python -m benchmarks|make bench).*`", row[7])] == []


def test_every_error_that_is_raised_has_an_advice() -> None:
    """By the sources: `raise X` and `X(` outside of the errors themselves."""
    package = reference.ROOT / "kafkalike"
    sources = [file.read_text() for file in package.rglob("*.py") if not file.is_relative_to(package / "errors")]
    raised = {name for source in sources for name in re.findall(r"raise (\w+(?:Error|Exception))\(", source)}

    assert raised & vars(errors).keys() - reference_errors.ADVICE.keys() == set()


@pytest.mark.parametrize("client", reference.clients(), ids=lambda client: client.title)
def test_help_tells_every_setting(client: reference.Client) -> None:
    """With its type, default and unit; a client's defaults are those that it has."""
    kind = CLIENTS[client.title]
    told = " ".join((kind.__doc__ or "").split())

    assert {setting.name for setting in client.settings} == set(kind.DEFAULT_CONFIG)
    assert [
        s.name for s in client.settings if s.effect and f"{s.name} ({s.type}, default {s.default}" not in told
    ] == []
    assert [s.name for s in client.settings if not s.effect and s.name not in told] == []


def test_every_setting_says_what_it_means() -> None:
    """A field without a docstring would be a KeyError."""
    settings = [setting for client in reference.clients() for setting in client.settings]

    assert all(setting.meaning.endswith((".", ")")) for setting in settings)
    assert [s.name for s in settings if s.name.endswith("_ms") and s.unit != "ms"] == []


def test_the_page_has_every_setting_of_topics_and_servers() -> None:
    """Refused ones too, with the reason."""
    page = reference.page()

    assert all(f"| `{name}` |" in page for name in TOPIC_PROPERTIES.properties)
    assert all(f"| `{name}` |" in page for name in SERVER_PROPERTIES.properties)
    assert "`ssl_cafile`" in page
    assert "* `flush.ms`: " in page
