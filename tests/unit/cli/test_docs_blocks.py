"""Code blocks of all pages: commands have the flags that are shown, programs the names and keywords that they use.

The blocks are run by `tests/e2e/test_readme.py`, `tests/e2e/test_docs_pages.py` and `tests/spark/test_docs_pages.py`.
"""

import ast
import inspect
import re
import shlex
from importlib import import_module
from pathlib import Path
from types import ModuleType

import click
import pytest

import kafkalike
import kafkalike.spark as ks
from kafkalike.cli.app import app, hoisted
from kafkalike.cli.paths import JOBS
from tests.tools.blocks import PROJECT, Block, all_blocks, blocks
from tests.tools.pages import LANGUAGES, PLAIN, WITH_SPARK

DOCS = sorted(page for folder in ("docs", "docs/reference") for page in (PROJECT / folder).glob("*.md"))
PAGES = ["README.md", *(str(page.relative_to(PROJECT)) for page in DOCS if page.name != "benchmarks.md")]
HELP = {"--help", "--version"}

FILES = {"ini", "json", "yaml", "mermaid", "properties"}
"""Languages of blocks that are files; `tests/e2e/test_recipes.py` checks them."""

MOST_NOT_RUN = 9


def shell_lines(page: str) -> list[str]:
    """Lines of the blocks for a shell; those that end in a backslash go on in the next one."""
    texts = [text for language, text in blocks(None, page) if language in {"sh", "bash", "cron"}]
    return [line for text in texts for line in text.replace("\\\n", " ").splitlines()]


def commands(page: str) -> list[list[str]]:
    """What stands behind `kafkalike` or a job, up to the end of the command."""
    found = []
    for line in shell_lines(page):
        words = shlex.split(line, comments=True)
        for at, word in enumerate(words):
            if word in {"kafkalike", "/opt/kafkalike/bin/kafkalike"} and (
                at == 0 or words[at - 1] not in {"install", "load"}
            ):
                rest = words[at + 1 :]
                ends = [n for n, other in enumerate(rest) if other in {"|", "&&", ">", ">>", ";", "2>"}]
                found.append(rest[: min(ends, default=len(rest))])
    return found


def parse(args: list[str]) -> None:
    """Read a command line as `kafkalike` would, without doing anything; files that it names need not be there."""
    with app.make_context("kafkalike", hoisted(args)) as context:
        words = [*context._protected_args, *context.args]
        command: click.Command = app
        parent = context
        # A group may do something by itself, as `mirror` does.
        while isinstance(command, click.Group) and (words or not command.invoke_without_command):
            name, found, words = command.resolve_command(parent, words)
            assert found is not None
            if HELP & set(words):
                return
            parent = found.make_context(name, words, parent=parent)
            command, words = found, [*parent._protected_args, *parent.args]


@pytest.mark.parametrize("page", PAGES)
def test_commands_on_the_pages_have_the_flags_that_are_shown(page: str) -> None:
    wrong = []
    for args in commands(page):
        try:
            parse(args)
        except click.ClickException as error:
            if not re.search(r"does not exist|No such file", error.format_message()):
                wrong.append((args, error.format_message()))

    assert wrong == []


def test_the_pages_show_commands() -> None:
    """So the test above has something to look at."""
    assert sum(len(commands(page)) for page in PAGES) > 60
    with pytest.raises(click.ClickException, match="No such option"):
        parse(["topics", "--list", "--topik", "t"])


@pytest.mark.parametrize("page", PAGES)
def test_jobs_that_pages_name_are_there(page: str) -> None:
    named = set(re.findall(r"kafkalike job-path (\w+)", (PROJECT / page).read_text()))

    assert {name for name in named if not (JOBS / f"{name}.py").is_file()} == set()


def missing(tree: ast.AST) -> list[str]:
    """Names of kafkalike that a program uses and that are not there, and keywords that a function does not take."""
    wrong: list[str] = []
    known: dict[str, object] = {"ks": ks, "kafkalike": kafkalike}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kafkalike"):
            home = import_module(node.module or "")
            for name in node.names:
                if not hasattr(home, name.name):
                    wrong.append(f"{node.module}.{name.name}")
                else:
                    known[name.asname or name.name] = getattr(home, name.name)
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=place), attr=attr) if isinstance(known.get(place), ModuleType):
                if not hasattr(known[place], attr):
                    wrong.append(f"{place}.{attr}")
            case ast.Call(func=func, keywords=keywords):
                called = _called(func, known)
                if callable(called):
                    wrong += _unknown(called, [word.arg for word in keywords if word.arg])
    return wrong


def _called(func: ast.expr, known: dict[str, object]) -> object:
    match func:
        case ast.Name(id=name):
            return known.get(name)
        case ast.Attribute(value=ast.Name(id=place), attr=attr) if isinstance(known.get(place), ModuleType):
            return getattr(known[place], attr, None)
    return None


def _unknown(called: object, keywords: list[str]) -> list[str]:
    assert callable(called)
    settings = getattr(called, "DEFAULT_CONFIG", None)
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):
        return []
    names = {parameter.name for parameter in parameters}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        if settings is None:
            return []
        names |= set(settings)
    return [f"{getattr(called, '__name__', called)}({word}=)" for word in keywords if word not in names]


@pytest.mark.parametrize("page", PAGES)
def test_programs_on_the_pages_use_names_and_keywords_that_are_there(page: str) -> None:
    programs = [text for language, text in blocks(None, page) if language == "python"]

    assert [wrong for text in programs for wrong in missing(ast.parse(text))] == []


@pytest.mark.parametrize(
    "program",
    ["from kafkalike import Nothing", "import kafkalike.spark as ks\nks.nothing(1)", "ks.write(f, 't', rooot=1)"],
)
def test_a_wrong_name_on_a_page_is_seen(program: str) -> None:
    assert missing(ast.parse(program))


def test_a_page_is_where_it_is_said_to_be() -> None:
    """The list of pages is not empty by mistake."""
    assert len(PAGES) > 15
    assert all(Path(PROJECT, page).is_file() for page in PAGES)


def every_block() -> list[tuple[str, Block]]:
    return [(page, block) for page in PAGES for block in all_blocks(page)]


def test_every_block_is_run_or_says_why_not() -> None:
    """Each page with programs is in one of the lists of pages that run; what does not run is little."""
    pages = {page for page, block in every_block() if not (block.not_run or block.run_by or block.language in FILES)}
    not_run = [(page, block.not_run) for page, block in every_block() if block.not_run]

    assert pages - {"README.md"} <= {f"docs/{page}" for page in (*PLAIN, *WITH_SPARK)}
    assert {block.language for _, block in every_block()} <= {*LANGUAGES, *FILES}
    assert len(not_run) <= MOST_NOT_RUN, not_run


def test_a_test_that_is_said_to_run_a_block_names_its_page() -> None:
    for page, block in every_block():
        if block.run_by:
            assert page in (PROJECT / block.run_by).read_text()


def test_the_tests_of_the_readme_run_all_of_its_headings() -> None:
    """Each heading with a block that is to run stands in one of them."""
    text = (PROJECT / "README.md").read_text()
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    tests = "".join((PROJECT / "tests/e2e" / name).read_text() for name in ("test_readme.py", "test_wheel.py"))

    runs = {h for h in headings if any(not block.not_run for block in all_blocks("README.md", h))}
    assert runs
    assert {heading for heading in runs if f'"{heading}"' not in tests} == set()


def test_marks_are_read() -> None:
    """In the line before a block, whatever the block is indented by."""
    reasons = [block.not_run for _, block in every_block() if block.not_run]

    assert any("Kafka broker" in reason for reason in reasons)
    assert all_blocks("docs/operations.md", "Permissions")[0].text.startswith("mkdir")
