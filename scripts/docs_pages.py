"""Docs pages: a hook of mkdocs; README, CHANGELOG and the notebooks, which lie beside the pages, become pages too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter

ROOT: Final = Path(__file__).parents[1]

ABOVE: Final = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
"""Files at the top, and the pages that they become."""

BOOSTS: Final = {"reference/settings": 3, "reference/errors": 2, "notebooks/": 0.5, "decisions/": 0.1, "changelog": 0.1}
"""Weights of pages in the site's search, by the start of their names: what holds now comes first."""


def on_files(files: Files, config: Any) -> Files:  # noqa: ANN401 - of mkdocs
    """Add the pages."""
    for name, page in ABOVE.items():
        text = re.sub(r'(\]\(|(?:src|srcset)=")docs/', r"\1", (ROOT / name).read_text(encoding="utf-8"))
        files.append(File.generated(config, page, content=_linked(text, "")))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        own = {"unique_key": path.stem, "output_files_dir": path.stem}
        text, found = MarkdownExporter().from_filename(str(path), own)  # type: ignore[no-untyped-call]
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text.replace("](../docs/", "](../")))
        for picture, content in found["outputs"].items():
            files.append(File.generated(config, f"notebooks/{picture}", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:  # noqa: ANN401 - of mkdocs
    """Let links to those files lead to the pages, and let code in tables have bars, which GitHub wants escaped."""
    page.meta["search"] = {
        "boost": next((boost for start, boost in BOOSTS.items() if page.file.src_uri.startswith(start)), 1)
    }
    depth = page.file.src_uri.count("/")
    text = _linked(markdown, "../" * depth, above="../" * (depth + 1))
    return re.sub(r"`[^`\n]+`", lambda code: code[0].replace(r"\|", "|"), text)


def on_page_content(html: str, **_: object) -> str:
    """Mark the tables of settings: `site.css` stacks their cells on narrow screens."""
    return re.sub(r"<table>(?=\s*<thead>\s*<tr>\s*<th>setting</th>)", "<table data-stacked>", html)


def _linked(text: str, to: str, above: str = "") -> str:
    for name, page in ABOVE.items():
        text = text.replace(f"]({above}{name}", f"]({to}{page}")
    return re.sub(rf"\]\({re.escape(above)}notebooks/(\w+)\.ipynb", rf"]({to}notebooks/\1.md", text)
