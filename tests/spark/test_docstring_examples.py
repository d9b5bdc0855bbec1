"""The examples in the docstrings of Spark's main entry points run, and print what they say."""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
from typing import TYPE_CHECKING, Any

import kafkalike.spark as ks

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

ENTRY_POINTS = (ks.write, ks.read, ks.read_stream, ks.write_stream)


def example_of(function: Any) -> str:
    (found,) = re.findall(r"    Example:\n        ```python\n(.*?)        ```", function.__doc__, re.DOTALL)
    return textwrap.dedent(found)


def test_examples_print_what_their_comments_say(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after another, over the same topic."""
    monkeypatch.chdir(tmp_path)
    names = {"spark": spark, "ks": ks}
    # The JVM has a working directory of its own.
    examples = [example_of(function).replace("/checkpoints", str(tmp_path)) for function in ENTRY_POINTS]

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for example in examples:
            exec(example, names)  # noqa: S102 - our own text

    said = [line.partition("  # ")[2] for example in examples for line in example.splitlines() if "  # " in line]
    assert printed.getvalue().splitlines() == said
    assert len(said) == len(ENTRY_POINTS)
