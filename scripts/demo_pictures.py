"""Demo pictures: the demo's terminal and plot, and the web console, for README and site.

    python -m scripts.demo_pictures

It runs `kafkalike demo` and `kafkalike ui` as a user does, in a temporary folder. The console needs Chromium (`make
setup-browser`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from PIL import Image

from scripts import terminal_recording
from scripts.pictures import SOURCES
from tests.tools.browser import chromium

PROGRAM: Final = Path(sys.executable).with_name("kafkalike")

MOST_BYTES: Final = 150_000
"""Size of a picture, at most."""

WINDOW: Final = {"width": 1440, "height": 900}
PAGE: Final = "/?span=30min"
"""Page of the console that is shown."""


def demo(folder: Path) -> None:
    """Run the demo in a folder, and draw its terminal and its plot."""
    # The demo prints how to call its programs: by their names alone, if the search path has them.
    places = [str(PROGRAM.parent), f"{os.environ['JAVA_HOME']}/bin", os.environ["PATH"]]
    lines = terminal_recording.record([PROGRAM.name, "demo"], folder, {"PATH": os.pathsep.join(places)})
    lines = [replace(line, text=line.text.replace(str(folder), "~")) for line in lines]
    drawn = terminal_recording.svg("kafkalike demo", lines)
    (SOURCES / "demo.svg").write_text(drawn, encoding="utf-8")
    _small(folder / "kafkalike-demo" / "delays.png", SOURCES / "delays.png")


def console(root: Path, folder: Path) -> None:
    """Take the console's picture over a cluster, light and dark.

    Args:
        root: the cluster's.
        folder: for temporary files.
    """
    with _served(root) as address, chromium() as browser:
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport=WINDOW, color_scheme=scheme)
            page.goto(address)
            page.goto(re.sub(r"(?<=\d)/.*", PAGE, address))
            page.wait_for_load_state("networkidle")
            taken = folder / f"{scheme}.png"
            page.screenshot(path=str(taken))
            _small(taken, SOURCES / f"console-{scheme}.png")
            page.close()


@contextmanager
def _served(root: Path) -> Iterator[str]:
    """Start `kafkalike ui` over a cluster, and return the address that it prints."""
    command = [str(PROGRAM), "ui", "--bootstrap-server", root.name, "--port", "0"]
    with subprocess.Popen(command, cwd=root.parent, stderr=subprocess.PIPE, text=True) as running:  # noqa: S603 - our own command
        assert running.stderr is not None
        address = next(found[0] for line in running.stderr if (found := re.search(r"http://\S+", line)))
        try:
            yield address
        finally:
            running.terminate()


def _small(picture: Path, target: Path) -> None:
    """Write a picture with a palette, which is a third of its size."""
    with Image.open(picture) as whole:
        whole.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(target, optimize=True)
    size = target.stat().st_size
    assert size <= MOST_BYTES, f"{target.name} has {size:,} bytes; pictures have at most {MOST_BYTES:,}"


def main() -> int:
    """Draw all of them."""
    with tempfile.TemporaryDirectory(prefix="kafkalike-") as folder:
        demo(Path(folder))
        console(Path(folder) / "kafkalike-demo", Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
