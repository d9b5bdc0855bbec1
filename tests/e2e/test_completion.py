"""Completion in real shells: keys are typed at a terminal, and the line that comes of them is looked at."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import sys
from pathlib import Path

import pytest

SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(kafkalike completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -Uz compinit; compinit -u -D; eval "$(kafkalike completion zsh)"'),
    "fish": (["fish", "--no-config", "--interactive"], "kafkalike completion fish | source"),
}
SCREEN = re.compile(r"\x1b(?:\[[0-9;?<>=]*[a-zA-Z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()=>][A-Z0-9]?)|\r")
TAB, LINE_START, TRIES = "\t", "\x01", 200


class Terminal:
    """A shell that believes that a person types."""

    def __init__(self, command: list[str], folder: Path) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "HOME": str(folder), "TERM": "xterm", "PS1": "$ "}
        self.process, self._keys = pty.fork()
        if not self.process:
            os.chdir(folder)
            os.execvpe(command[0], command, environment)  # noqa: S606 - the shell of the test
        self.shown = ""

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._keys, keys.encode())

    def until(self, pattern: str) -> re.Match[str]:
        """What the screen shows, once it does."""
        for _ in range(TRIES):
            found = re.search(pattern, SCREEN.sub("", self.shown))
            if found:
                return found
            if select.select([self._keys], [], [], 0.1)[0]:
                text = os.read(self._keys, 65_536).decode(errors="replace")
                if "\x1b[c" in text or "\x1b[0c" in text:
                    # fish asks what the terminal is, and waits for the answer.
                    self.type("\x1b[?62;c")
                self.shown += text
        raise AssertionError(self.shown)

    def close(self) -> None:
        """End the shell."""
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self._keys)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_commands_options_and_values(shell: str, tmp_path: Path) -> None:
    """What is typed in part, and a tab, is the whole word."""
    command, load = SHELLS[shell]
    if shutil.which(command[0]) is None:
        pytest.skip(f"NOT TESTED: completion in {shell}, which is not on this machine (apt-get install {shell})")
    terminal = Terminal(command, tmp_path)
    try:
        terminal.type(f"{load}; echo loa''ded\n")
        terminal.until(r"(?m)^loaded")
        for part, whole in {
            "kafkalike get-off": "kafkalike get-offsets",
            "kafkalike topics --desc": "kafkalike topics --describe",
            "kafkalike --log-format js": "kafkalike --log-format json",
        }.items():
            terminal.type(f"{part}{TAB}{LINE_START}echo got''ten \n")
            assert terminal.until(rf"(?m)^gotten {whole.split()[0]} .*$")[0].strip() == f"gotten {whole}"
            terminal.shown = ""
    finally:
        terminal.close()
