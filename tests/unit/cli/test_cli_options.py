"""The options of each command: what click reads fits the fields of the command's dataclass."""

import runpy
from dataclasses import fields, is_dataclass
from importlib import import_module
from inspect import Parameter, signature, unwrap
from pathlib import Path
from typing import Any, get_type_hints

import click
import pytest

from kafkalike.cli import paths
from kafkalike.cli.app import COMMANDS, app
from kafkalike.cli.groups.consumer_groups import ALLOWED, ConsumerGroupsOptions
from kafkalike.cli.topics import topic_commands

PYTHON = {"boolean": bool, "float": float, "float range": float, "integer": int, "integer range": int}
"""The Python type of click's types; str for all others."""


def command(name: str) -> click.Command:
    """A command of the command line."""
    found = app.get_command(click.Context(app), name)
    assert found is not None
    return found


def options_of(found: click.Command) -> Any | None:
    """The dataclass that a command takes its options as; None for one that takes keyword arguments."""
    assert found.callback is not None
    function = unwrap(found.callback)
    kind = function.__annotations__.get("options")
    return vars(import_module(function.__module__)).get(kind) if isinstance(kind, str) else kind


def read_as(parameter: click.Parameter) -> Any:
    """The type of the values that click makes for an option."""
    kind: Any = PYTHON.get(parameter.type.name, str)
    if parameter.multiple or parameter.nargs == -1:
        return tuple[kind, ...]
    is_flag = isinstance(parameter, click.Option) and parameter.is_flag
    if is_flag or parameter.required or isinstance(parameter.default, str | int | float):
        return kind
    return kind | None


def options_named(found: click.Command) -> set[str]:
    """All names of the options of a command."""
    return {name for parameter in found.params for name in parameter.opts}


def command_of_job(path: Path) -> click.Command:
    """The command of a script that is run by spark-submit."""
    scope = runpy.run_path(str(path))
    (found,) = (value for value in scope.values() if isinstance(value, click.Command))
    return found


JOBS = [paths.JOBS / f"{name}.py" for name in paths.job_names() if name != "retention"]
"""All but the one that is `kafkalike maintain`."""


@pytest.mark.parametrize(
    "name", COMMANDS.keys() - {"completion", "demo", "job-path", "conf-path", "docs-path", "notebooks"}
)
def test_every_command_that_has_a_root_takes_settings_from_a_file(name: str) -> None:
    """So storage options have one way into all of them: before the name of a subcommand, or behind it."""
    found, wanted = command(name), {"--bootstrap-server", "--command-config"}
    parts = found.commands.values() if isinstance(found, click.Group) and not options_named(found) & wanted else [found]

    assert [part.name for part in parts if not wanted <= options_named(part)] == []


@pytest.mark.parametrize("path", JOBS, ids=lambda path: str(path.stem))
def test_so_does_every_job(path: Path) -> None:
    assert {"--bootstrap-server", "--command-config"} <= options_named(command_of_job(path))


TYPED = sorted(name for name in COMMANDS if is_dataclass(options_of(command(name))))


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_takes_options_without_a_name(name: str) -> None:
    """Neither as `**given` nor in a dict: mypy could not check them."""
    found = command(name)
    assert found.callback is not None
    parameters = signature(unwrap(found.callback)).parameters.values()

    assert [p.name for p in parameters if p.kind in {Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL}] == []


@pytest.mark.parametrize("name", TYPED)
def test_each_field_has_the_type_of_what_click_reads(name: str) -> None:
    """No more and no fewer fields than options, and None only where an option may be left out."""
    found = command(name)
    hints = get_type_hints(options_of(found))
    exposed = [parameter for parameter in found.params if parameter.expose_value and parameter.name != "help"]

    assert {parameter.name: read_as(parameter) for parameter in exposed} == hints


@pytest.mark.parametrize(
    ("allowed", "kind"),
    [
        (ALLOWED, ConsumerGroupsOptions),
        (topic_commands.ALLOWED, topic_commands.TopicsOptions),
    ],
    ids=["consumer-groups", "topics"],
)
def test_the_rule_about_actions_names_options_only(allowed: dict[str, object], kind: Any) -> None:
    """It names them as text."""
    assert set(allowed) <= {field.name for field in fields(kind)}
