import zipfile
from pathlib import Path

import pytest

from kafkalike.spark.jars import DELTA_VERSION, IVY_JARS, JARS, PACKAGE, delta_jar_conf


def fill_cache(home: Path) -> Path:
    """Stand in for what the resolver leaves in its cache."""
    folder = home / IVY_JARS
    folder.mkdir(parents=True)
    for name in JARS:
        zipfile.ZipFile(folder / name, "w").close()
    return folder


def test_an_empty_cache_leaves_it_to_the_resolver(tmp_path: Path) -> None:
    assert delta_jar_conf(tmp_path) == {"spark.jars.packages": PACKAGE}


def test_a_full_cache_is_named_file_by_file(tmp_path: Path) -> None:
    folder = fill_cache(tmp_path)

    assert delta_jar_conf(tmp_path) == {"spark.jars": ",".join(str(folder / name) for name in JARS)}


def test_a_torn_jar_is_fetched_again(tmp_path: Path) -> None:
    (fill_cache(tmp_path) / JARS[0]).write_bytes(b"PK\x03\x04 cut off")

    assert delta_jar_conf(tmp_path) == {"spark.jars.packages": PACKAGE}


def test_another_delta_is_left_to_the_resolver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_cache(tmp_path)
    monkeypatch.setattr("kafkalike.spark.jars.version", lambda _: "9.9.9")

    assert delta_jar_conf(tmp_path) == {"spark.jars.packages": PACKAGE.replace(DELTA_VERSION, "9.9.9")}
