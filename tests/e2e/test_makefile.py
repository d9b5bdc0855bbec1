"""`make help`, with which a newcomer begins."""

import re
import subprocess

from tests.tools.blocks import PROJECT


def test_make_help_lists_every_target_once_with_a_sentence() -> None:
    makefile = (PROJECT / "Makefile").read_text()
    targets = re.findall(r"^([A-Za-z0-9_-]+):(?!=)", makefile, re.MULTILINE)

    shown = subprocess.run(["make", "help"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    listed = dict(re.findall(r"^  make (\S+) +(\S.*)$", shown, re.MULTILINE))

    assert sorted(listed) == sorted(targets)
    assert {"demo-s3", "setup-browser", "soak-replicas"} <= listed.keys()
    assert [target for target, text in listed.items() if not re.fullmatch(r"[A-Z].*\.", text)] == []


def test_no_target_of_the_makefile_is_mistaken_for_a_file() -> None:
    """A folder `docs` would make `make docs` do nothing."""
    makefile = (PROJECT / "Makefile").read_text()
    phony = " ".join(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)).split()

    assert sorted(name for name in phony if "$" not in name) == sorted(
        re.findall(r"^([A-Za-z0-9_-]+):(?!=)", makefile, re.MULTILINE)
    )
