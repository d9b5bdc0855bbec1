"""Browser: a headless Chromium, and axe-core, which judges whether everybody can use a page."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

CHROMIUM: Final = shutil.which("chromium")

CACHE: Final = Path(
    os.environ.get("KAFKALIKE_BROWSER")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafkalike" / "browser"
)

SERIOUS: Final = {"serious", "critical"}
"""What axe-core calls its worst findings."""


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A browser, as Playwright has it.

    It asks no address but those of its pages: its own services are off.
    """
    if CHROMIUM is None:
        pytest.skip("NOT TESTED: there is no chromium here; `make setup-browser` installs it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                "--no-sandbox",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-domain-reliability",
                "--disable-sync",
                "--no-first-run",
                "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
            ],
        )
        try:
            yield made
        finally:
            made.close()


def judge(page: Any, *rules: str) -> list[str]:
    """What axe-core finds serious in a page, a line each; nothing where axe-core is not there.

    The page's own rules let no script in that is not of the console, so it is put in past them.

    Args:
        page: as Playwright has it.
        rules: only these; none for all.
    """
    script = next(iter(sorted(CACHE.glob("axe-core-*/axe.min.js"))), None)
    if script is None:
        pytest.skip("NOT TESTED: there is no axe-core here; `make setup-browser` fetches it")
    page.evaluate(script.read_text(encoding="utf-8"))
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{one['id']}: {node['html'][:120]}"
        for one in found["violations"]
        if one["impact"] in SERIOUS
        for node in one["nodes"]
    ]
