"""Folder: where the demo may write in, an empty folder marked as the demo's out."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kafkalike.errors import IllegalArgumentError

DEFAULT: Final = "kafkalike-demo"
MARK: Final = ".kafkalike-demo"
"""File that says: a demo made this folder, so the next one may remove it."""

_ABOUT: Final = "Made by `kafkalike demo`. The next demo removes this folder with all that is in it.\n"


def fresh_folder(root: str | None, *, keep: bool) -> Path:
    """Make the demo's folder, which is also the cluster's root.

    Args:
        root: a folder of this machine; None for `./kafkalike-demo`.
        keep: leave what an earlier demo made, and take the first free name behind it: `kafkalike-demo-2`.

    Raises:
        IllegalArgumentError: it is no local folder, or holds something that no demo made; nothing was removed.
    """
    named = DEFAULT if root is None else root
    if "://" in named:
        raise IllegalArgumentError(f"the demo writes to a folder of this machine, not to {named}")
    folder = Path(named).absolute()
    if keep:
        folder = _free(folder)
    if folder.is_symlink() or (folder.exists() and not _is_ours(folder)):
        raise IllegalArgumentError(f"{folder} exists and was not made by a demo; give the demo another folder")
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, mode=0o700)
    (folder / MARK).write_text(_ABOUT)
    return folder


@dataclass(frozen=True, slots=True)
class Place:
    """Where a demo works."""

    folder: Path
    """For plot and log."""
    root: str
    """Of the cluster."""
    storage_options: Any = field(default=None, repr=False)
    """Who asks an object store; the environment says what they do not."""

    @property
    def named(self) -> dict[str, Any]:
        """The cluster, as settings of a client."""
        return {"bootstrap_servers": self.root, "storage_options": self.storage_options}


def fresh_place(root: str | None, storage_options: Any = None, *, keep: bool) -> Place:  # noqa: ANN401 - see `connect`
    """Make the demo's folder, and say where its cluster is to be: there, or in an object store.

    Args:
        root: a folder of this machine, or the URI of a place in an object store that holds no cluster yet. Of such a
            root the folder, for plot and log, is `./kafkalike-demo`.
        storage_options: who asks an object store.
        keep: see `fresh_folder`.

    Raises:
        IllegalArgumentError: see `fresh_folder`; or there is a cluster, which the demo does not remove.
        KafkaError: see `connect`.
    """
    if root is None or "://" not in root:
        folder = fresh_folder(root, keep=keep)
        return Place(folder, str(folder))
    from kafkalike.connect import connect

    if connect(root, storage_options).topics():
        raise IllegalArgumentError(
            f"{root} has topics; the demo removes nothing in an object store: name another place"
        )
    return Place(fresh_folder(None, keep=keep), root, storage_options)


def _is_ours(folder: Path) -> bool:
    return folder.is_dir() and ((folder / MARK).is_file() or not any(folder.iterdir()))


def _free(folder: Path) -> Path:
    candidate, number = folder, 1
    while candidate.is_symlink() or candidate.exists():
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate
