"""Docs pages: a hook of mkdocs; README and CHANGELOG, which lie above the folder of pages, become pages of the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[1]

ABOVE: Final = {"README.md": "readme.md", "CHANGELOG.md": "changelog.md"}
"""Files at the top, and the pages that they become."""


def on_files(files: Files, config: Any) -> Files:  # noqa: ANN401 - of mkdocs
    """Add the pages."""
    for name, page in ABOVE.items():
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=_linked(text, "")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:  # noqa: ANN401 - of mkdocs
    """Let links to those files lead to the pages."""
    depth = page.file.src_uri.count("/")
    return _linked(markdown, "../" * depth, above="../" * (depth + 1))


def _linked(text: str, to: str, above: str = "") -> str:
    for name, page in ABOVE.items():
        text = text.replace(f"]({above}{name}", f"]({to}{page}")
    return text
