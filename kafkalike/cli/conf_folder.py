"""Settings for spark-submit in; a folder with them that names Delta's jars file by file, where these are fetched, out.

`spark.jars.packages` in spark-defaults.conf asks Ivy at each start, and copies 33 jars, most of which Spark has itself.
Once Spark has fetched them, ten files are enough.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from kafkalike.spark.jvm.jars import delta_jar_conf

_PACKAGES: Final = "spark.jars.packages"
_DEFAULTS: Final = "spark-defaults.conf"


def conf_folder(packaged: Path, home: Path, cache: Path) -> Path:
    """The folder that spark-submit is to take its settings from.

    Args:
        packaged: the one in the package.
        home: the folder that holds Spark's Ivy folder.
        cache: where a folder may be made.

    Returns:
        A copy of the packaged folder with `spark.jars`; the packaged one where a jar is not there, or no copy can be
        made. The copy is named after its content, and complete as soon as it can be seen.
    """
    jars = delta_jar_conf(home).get("spark.jars")
    # The file's own format: a blank ends a name, and a line its value.
    if jars is None or any(sign in jars for sign in "\n\r\\"):
        return packaged
    lines = (packaged / _DEFAULTS).read_text().splitlines()
    text = "".join(f"spark.jars {jars}\n" if line.startswith(_PACKAGES) else f"{line}\n" for line in lines)
    digest = hashlib.sha256(text.encode())
    others = sorted(file for file in packaged.iterdir() if file.is_file() and file.name != _DEFAULTS)
    for file in others:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    made = cache / f"conf-{digest.hexdigest()[:16]}"
    try:
        if not made.is_dir():
            _make(made, text, others)
    except OSError:
        return packaged
    return made


def _make(folder: Path, text: str, others: list[Path]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="conf-", suffix=".draft", dir=folder.parent))
    try:
        (draft / _DEFAULTS).write_text(text)
        for file in others:
            shutil.copyfile(file, draft / file.name)
        draft.chmod(0o755)
        # Another process may have made the same meanwhile.
        with contextlib.suppress(OSError):
            os.rename(draft, folder)  # noqa: PTH104 - a folder that may be there is an error here
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    if not folder.is_dir():
        raise FileNotFoundError(folder)
