"""`make arch` and `make lint`: the figures of the package and of its language do not rise."""

import json
from pathlib import Path

import pytest

from scripts import english, ratchet
from scripts.house import House

SOUND = {
    "__init__": "",
    "log/__init__": "",
    "log/reader": "from kafkalike.log.segment import Segment\n\n\nclass Reader:\n    held: Segment\n",
    "log/writer": "from kafkalike.log.segment import Segment\n\n\nclass Writer:\n    held: Segment\n",
    "log/segment": '"""Segment."""\n\n\nclass Segment:\n    size = 1\n',
}
"""Modules of a package without a flaw, and their source."""

SOUND_COUNTS = {
    "rooms": 1,
    "methods of the largest port": 0,
    "class names used more than once": 0,
    "module names used more than once": 0,
    "modules imported by one sibling only": 0,
    "modules named by no noun": 0,
    "broad excepts": 0,
}

CODE = '''"""A module."""
# A comment
# of two lines.
NAME = "a plain string"
log.info("a log line")  # a second one
raise ValueError(f"an error {NAME}")
'''

PORT = (
    "class Port(Protocol[T]):\n    def __init_subclass__(cls): ...\n    def read(self): ...\n    def write(self): ...\n"
)
NAKED = "try:\n    pass\nexcept (OSError, BaseException):\n    pass\n"


def house(root: Path, modules: dict[str, str]) -> House:
    """A package of these modules."""
    for name, source in modules.items():
        path = root / "kafkalike" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    return House(root)


def counts(measured: House) -> dict[str, int]:
    """How many places each figure has."""
    return {name: len(found) for name, found in measured.places().items()}


def test_package_without_a_flaw_has_only_its_rooms_counted(tmp_path: Path) -> None:
    measured = house(tmp_path, SOUND)

    assert counts(measured) == SOUND_COUNTS
    assert measured.import_share() == 25  # 2 of 8 lines
    assert measured.biggest_room() == 100


@pytest.mark.parametrize(
    ("figure", "module", "source", "place"),
    [
        ("rooms", "spark/__init__", "", "spark"),
        ("methods of the largest port", "log/port", PORT, "kafkalike.log.port.Port.read"),
        (
            "class names used more than once",
            "log/batch",
            "class Reader: ...\n",
            "Reader: kafkalike.log.batch, kafkalike.log.reader",
        ),
        (
            "module names used more than once",
            "log/group/reader",
            "",
            "reader: kafkalike.log.group.reader, kafkalike.log.reader",
        ),
        (
            "modules imported by one sibling only",
            "log/cleaner",
            "def clean():\n    from kafkalike.log import writer\n",
            "kafkalike.log.writer",
        ),
        ("modules named by no noun", "log/segments_kept", "", "kafkalike.log.segments_kept"),
        ("modules named by no noun", "log/reading", "", "kafkalike.log.reading"),
        ("broad excepts", "log/cleaner", NAKED, "kafkalike/log/cleaner.py:3"),
        ("broad excepts", "log/cleaner", NAKED.replace("(OSError, BaseException)", ""), "kafkalike/log/cleaner.py:3"),
    ],
    ids=["room", "port", "class", "module", "importer", "adverb", "participle", "base-exception", "bare-except"],
)
def test_planted_flaw_is_counted_with_its_place(
    tmp_path: Path, figure: str, module: str, source: str, place: str
) -> None:
    measured = house(tmp_path, {**SOUND, module: source})
    changed = {name: count for name, count in counts(measured).items() if count != SOUND_COUNTS[name]}

    assert list(changed) == [figure]
    assert place in measured.places()[figure]


def test_private_and_nested_classes_may_share_a_name(tmp_path: Path) -> None:
    more = {
        "log/batch": "class _Part: ...\n\n\nclass Batch:\n    class Reader: ...\n",
        "log/group": "class _Part: ...\n",
    }

    assert house(tmp_path, {**SOUND, **more}).repeated_classes() == []


def test_figure_above_its_limit_is_named(tmp_path: Path) -> None:
    limits = tmp_path / "limits.json"
    limits.write_text('{"house": {"rooms": 16, "broad excepts": 20}}', encoding="utf-8")

    assert ratchet.complaints("house", {"rooms": 16, "broad excepts": 19}, limits) == []
    assert ratchet.complaints("house", {"rooms": 17, "broad excepts": 20}, limits) == [
        "rooms: 17 is above the recorded limit of 16 (limits.json)"
    ]
    assert ratchet.complaints("house", {"ports": 0}, limits) == [
        "ports: limits.json has no limit; run the script with --record"
    ]


def test_recorded_limits_fall_and_never_rise(tmp_path: Path) -> None:
    limits = tmp_path / "limits.json"
    limits.write_text('{"english": {"per 1,000 words": 2.5}, "house": {"rooms": 16, "ports": 3}}', encoding="utf-8")

    ratchet.record("house", {"rooms": 17, "ports": 2, "broad excepts": 9}, limits)

    assert json.loads(limits.read_text(encoding="utf-8")) == {
        "english": {"per 1,000 words": 2.5},
        "house": {"rooms": 16, "ports": 2, "broad excepts": 9},
    }


@pytest.mark.parametrize(
    ("kind", "text", "pattern"),
    [
        ("docs", "What waits is written first.", "a noun clause at the start (What, Who, Where …)"),
        ("docs", "It returns what is left.", "a noun clause inside (what is, what it has …)"),
        ("messages", "the lock is held by the one before, and who waits is told", "who, of a process"),
        ("docs", "The member is no leader.", "is no X, are no X"),
        ("docs", "The client begins anew.", "anew, by now, for ever, till"),
        ("docs", "The files are gone.", "begin again, go on, go out, are gone"),
        ("docstrings", "Return the one that is newest.", "one that, those that, ones that"),
        (
            "docstrings",
            "The same for groups of members.",
            "a docstring that points at a neighbor (The same …, See …, As …)",
        ),
        ("docstrings", "Its size.", "a docstring of three words or fewer"),
    ],
    ids=["subject", "object", "who", "is-no", "anew", "gone", "one-that", "neighbor", "short"],
)
def test_unidiomatic_phrase_is_counted_once(kind: str, text: str, pattern: str) -> None:
    found = english.matches([english.Text(kind, "page.md:1", text)])

    assert {name: len(places) for name, places in found.items() if places} == {pattern: 1}


def test_texts_are_pages_docstrings_comments_and_messages(tmp_path: Path) -> None:
    """Code blocks and plain strings are not read; lines of comments that follow each other are one text."""
    (tmp_path / "kafkalike").mkdir()
    (tmp_path / "README.md").write_text("A page.\n\n```\nits code\n```\n", encoding="utf-8")
    (tmp_path / "kafkalike" / "log.py").write_text(CODE, encoding="utf-8")

    assert list(english.texts(tmp_path)) == [
        ("docs", "README.md:1", "A page."),
        ("docstrings", "kafkalike/log.py:1", "A module."),
        ("messages", "kafkalike/log.py:6", "an error "),
        ("messages", "kafkalike/log.py:5", "a log line"),
        ("comments", "kafkalike/log.py:2", "A comment of two lines."),
        ("comments", "kafkalike/log.py:5", "a second one"),
    ]
