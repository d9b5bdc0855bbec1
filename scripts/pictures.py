"""Pictures: draw the SVG files of the documentation from their PlantUML sources in `docs/pictures`.

    python -m scripts.pictures [--check]

Spark's resolver fetches PlantUML once. With `--check` nothing is drawn; the exit code is 1 if a picture is missing or
older than its source, which the checksum at its end tells.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

SOURCES: Final = Path(__file__).parents[1] / "docs" / "pictures"
THEME: Final = "theme.iuml"
ARTIFACT: Final = "net.sourceforge.plantuml:plantuml-mit:1.2026.2"


def stale() -> list[Path]:
    """Return the sources whose picture is missing or was drawn from another text."""
    return [
        source
        for source in sorted(SOURCES.glob("*.puml"))
        if not source.with_suffix(".svg").is_file()
        or not source.with_suffix(".svg").read_text(encoding="utf-8").endswith(_mark(source))
    ]


def _mark(source: Path) -> str:
    text = source.read_bytes() + (SOURCES / THEME).read_bytes()
    return f"<!-- {source.name} {hashlib.sha256(text).hexdigest()[:16]} -->\n"


def plantuml() -> Path:
    """Return PlantUML's jar; Spark fetches it if it is not in Ivy's cache."""
    name = "_".join(ARTIFACT.split(":")[:2]) + f"-{ARTIFACT.split(':')[2]}.jar"
    cached = sorted(Path.home().glob(f".ivy*/jars/{name}"))
    if not cached:
        builder = SparkSession.builder.appName("pictures").master("local[1]").config("spark.ui.enabled", "false")
        builder.config("spark.jars.packages", ARTIFACT).getOrCreate().stop()
        cached = sorted(Path.home().glob(f".ivy*/jars/{name}"))
    return cached[-1]


def draw(sources: list[Path]) -> None:
    """Draw these sources beside them, and note in each picture what it was drawn from."""
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else Path("java")
    subprocess.run(  # noqa: S603 - our own sources
        [java, "-Djava.awt.headless=true", "-jar", plantuml(), "-tsvg", "-nometadata", "-failfast2", *sources],
        check=True,
    )
    for source in sources:
        picture = source.with_suffix(".svg")
        picture.write_text(picture.read_text(encoding="utf-8").rstrip() + "\n" + _mark(source), encoding="utf-8")


def main() -> int:
    """Draw what is stale, or with `--check` only name it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="end with 1 when a picture is older than its source")
    options = parser.parse_args()
    found = stale()
    if options.check:
        for source in found:
            print(f"{source.with_suffix('.svg').name} is not drawn from {source.name}: run make pictures")
        return bool(found)
    if found:
        draw(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
