"""Pictures of README and site: small, in their places, and a recording that shows what a command printed."""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from scripts.demo_pictures import MOST_BYTES
from scripts.terminal_recording import COLUMNS, ROWS, Printed, record, svg, timeline
from tests.tools.blocks import PROJECT

PICTURES = PROJECT / "docs" / "pictures"
SVG = "{http://www.w3.org/2000/svg}"


def rows(drawn: str) -> list[str]:
    return ["".join(row.itertext()) for row in ET.fromstring(drawn).iter(f"{SVG}text")]  # noqa: S314 - our own


def test_readme_shows_the_model_the_demo_and_the_console() -> None:
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r'(?:\]\(|srcset="|src=")docs/pictures/([\w.-]+)', text)

    assert shown == ["topic.svg", "demo.svg", "delays.png", "console-dark.png", "console-light.png"]
    assert [name for name in shown if not (PICTURES / name).is_file()] == []
    assert len(text.split()) <= 1200


def test_pictures_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in PICTURES.iterdir()}

    assert {name: size for name, size in sizes.items() if size > MOST_BYTES} == {}


def test_recording_has_the_colors_and_the_text_of_the_command(tmp_path: Path) -> None:
    program = "print('\\x1b[32mok\\x1b[0m  a < b'); print(); print('\\x1b[1mStep\\x1b[0m')"
    drawn = svg("python steps.py", record([sys.executable, "-c", program], tmp_path))

    assert rows(drawn) == ["$ python steps.py", "ok  a < b", "Step"]
    assert '<tspan class="c2">ok</tspan>  a &lt; b' in drawn
    assert '<tspan class="b">Step</tspan>' in drawn


def test_recording_of_a_failed_command_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="returned non-zero exit status 3"):
        record([sys.executable, "-c", "raise SystemExit(3)"], tmp_path)


def test_recording_wraps_long_lines_and_ends_at_the_last_row() -> None:
    lines = [Printed(0.1 * number, "x" * (COLUMNS + 1)) for number in range(ROWS)]
    drawn = svg("ls", lines)

    assert [len(row) for row in rows(drawn)] == [4, *[COLUMNS, 1] * ROWS]
    assert f"#s{{transform:translateY(-{20 * (ROWS + 1)}px)}}" in drawn


def test_pauses_are_cut_and_stretched() -> None:
    assert timeline([0, 0, 30.0, 30.5], 1) == pytest.approx([1.06, 1.12, 2.02, 2.52])
