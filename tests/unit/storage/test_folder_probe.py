"""Folder probe: a network file system that a root may lie on is tried out before anything rests on it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalike.admin.testing import ManualClock
from kafkalike.errors import KafkaConnectionError, UnsafeStorageError
from kafkalike.storage.probe import probe_folder
from kafkalike.storage.root_uri import allowed_network

MOUNTS = "36 35 98:0 / / rw - ext4 /dev/sda1 rw\n37 36 0:32 / /srv rw - nfs4 host:/share rw\n"


def overwrites(file: Path, name: Path) -> None:
    name.unlink(missing_ok=True)
    os.link(file, name)


def copies_the_name(file: Path, name: Path) -> None:
    if name.exists():
        raise FileExistsError(errno.EEXIST, "exists", str(name))
    name.write_bytes(b"else")


def fails(number: int) -> Callable[[Path, Path], None]:
    def link(file: Path, name: Path) -> None:
        raise OSError(number, os.strerror(number), str(file), None, str(name))

    return link


def test_a_sound_folder_is_taken_and_left_as_it_was(tmp_path: Path) -> None:
    """A root that is not there yet, by the folder above it, and nothing is made."""
    probe_folder(str(tmp_path / "to" / "come"))

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("link", "seen"),
    [
        (overwrites, "took the place of a file"),
        (copies_the_name, "held something else"),
        (fails(errno.EPERM), "no hard links"),
        (fails(errno.ENOTSUP), "no hard links"),
    ],
    ids=["overwrites", "another", "not permitted", "not supported"],
)
def test_a_folder_that_would_lose_records_is_refused_with_what_was_seen(
    tmp_path: Path, link: Callable[[Path, Path], None], seen: str
) -> None:
    with pytest.raises(UnsafeStorageError, match=seen):
        probe_folder(str(tmp_path), link)

    assert list(tmp_path.iterdir()) == []


def test_a_clock_that_is_far_off_is_refused(tmp_path: Path) -> None:
    """Maintenance goes by both."""
    with pytest.raises(UnsafeStorageError, match=r"clock is \d+ s from"):
        probe_folder(str(tmp_path), clock=ManualClock())


def test_a_folder_that_does_not_answer_is_no_connection(tmp_path: Path) -> None:
    with pytest.raises(KafkaConnectionError, match="gives no answer"):
        probe_folder(str(tmp_path), fails(errno.EIO))


def test_only_what_the_user_allows_on_a_network_is_tried() -> None:
    allowed = {"KAFKALIKE_ALLOW_NETWORK_FILE_SYSTEM": "1"}

    assert allowed_network("/srv/log", allowed, MOUNTS)
    assert not allowed_network("/net/log", allowed, MOUNTS)
    assert not allowed_network("/srv/log", {}, MOUNTS)
