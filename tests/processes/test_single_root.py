"""What a process of a single root loads and writes, although there are clusters of several."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_single_root_is_as_it_was(tmp_path: Path) -> None:
    """Nothing of brokers is written there, and nothing of it is loaded."""
    program = (
        "import sys; from kafkalike.connect import connect; c = connect(sys.argv[1]); c.create_topic('t', 1, {});"
        "print([m for m in sys.modules if 'replicated' in m or 'table.replicas' in m])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "r")], capture_output=True, text=True, check=True
    )

    assert run.stdout.strip() == "[]"
    assert sorted(entry.name for entry in (tmp_path / "r").iterdir()) == ["__cluster_metadata", "__locks", "t"]
