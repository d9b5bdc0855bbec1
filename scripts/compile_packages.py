"""Compile packages: folders in; their bytecode, that of all installed packages, and that in Spark's zips, out.

Spark's Python processes import PySpark from a zip that comes without bytecode. Python cannot cache what it compiles
from a zip, so each of them, one for each streaming query, would compile PySpark anew.
"""

from __future__ import annotations

import compileall
import importlib.util
import marshal
import os
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Final

UNCHECKED_HASH: Final = (1).to_bytes(4, "little")
"""Flags of a `.pyc` that is valid whatever the time of its source; the form is that of PEP 552."""


def with_bytecode(archive: Path, packages: Path) -> bool:
    """Put compiled modules beside the sources in a zip of modules.

    Args:
        archive: the zip; it is replaced as a whole.
        packages: where the same packages are installed and compiled.

    Returns:
        Whether there was anything to do.

    Raises:
        OSError, SyntaxError: it could not be done; the zip is as it was.
    """
    with zipfile.ZipFile(archive) as given:
        if any(name.endswith(".pyc") for name in given.namelist()):
            return False
        made = archive.with_suffix(f".{os.getpid()}")
        try:
            with zipfile.ZipFile(made, "w") as wanted:
                for info in given.infolist():
                    content = given.read(info)
                    wanted.writestr(info, content)
                    if info.filename.endswith(".py"):
                        wanted.writestr(f"{info.filename}c", _bytecode(content, info.filename, archive, packages))
            made.replace(archive)
        finally:
            made.unlink(missing_ok=True)
    return True


def _bytecode(content: bytes, name: str, archive: Path, packages: Path) -> bytes:
    code = _installed(packages / name, content)
    if code is None:
        code = marshal.dumps(compile(content, f"{archive}/{name}", "exec", dont_inherit=True))
    return importlib.util.MAGIC_NUMBER + UNCHECKED_HASH + importlib.util.source_hash(content) + code


def _installed(source: Path, content: bytes) -> bytes | None:
    """Bytecode of an installed module, if its source is the one given."""
    if not source.is_file() or source.read_bytes() != content:
        return None
    cached = Path(importlib.util.cache_from_source(str(source)))
    return cached.read_bytes()[16:] if cached.is_file() else None


def main() -> None:
    """Compile; what cannot be compiled stays as it is, and runs as before."""
    packages = Path(sysconfig.get_path("purelib"))
    for folder in (str(packages), *sys.argv[1:]):
        compileall.compile_dir(folder, quiet=2, workers=0)
    for archive in packages.glob("pyspark/python/lib/*.zip"):
        try:
            with_bytecode(archive, packages)
        except (OSError, SyntaxError) as problem:
            sys.stderr.write(f"{archive.name} is left without bytecode: {problem}\n")


if __name__ == "__main__":
    main()
