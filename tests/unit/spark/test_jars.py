import zipfile
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pyspark
import pytest

from kafkalike.spark.jvm.jars import (
    ARTIFACT,
    DELTA_EXCLUDES,
    DELTA_VERSION,
    HADOOP_VERSION,
    IVY,
    JARS,
    S3_JARS,
    delta_jar_conf,
)
from kafkalike.spark.jvm.spark_session import java_problem, with_jars


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """What the resolver leaves in its folder."""
    folder = tmp_path / IVY / "jars"
    folder.mkdir(parents=True)
    for name in JARS:
        zipfile.ZipFile(folder / name, "w").close()
    return folder


def test_an_empty_cache_leaves_it_to_the_resolver(tmp_path: Path) -> None:
    assert delta_jar_conf(tmp_path) == {
        "spark.jars.packages": f"{ARTIFACT}:{DELTA_VERSION}",
        "spark.jars.excludes": ",".join(DELTA_EXCLUDES),
        "spark.jars.ivy": str(tmp_path / IVY),
    }


def test_a_full_cache_is_named_file_by_file(tmp_path: Path, cache: Path) -> None:
    assert delta_jar_conf(tmp_path) == {"spark.jars": ",".join(str(cache / name) for name in JARS)}


def test_a_torn_jar_is_fetched_again(tmp_path: Path, cache: Path) -> None:
    (cache / JARS[0]).write_bytes(b"PK\x03\x04 cut off")

    assert "spark.jars.packages" in delta_jar_conf(tmp_path)


def test_another_delta_is_left_to_the_resolver(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkalike.spark.jvm.jars.version", lambda _: "9.9.9")

    assert delta_jar_conf(tmp_path)["spark.jars.packages"] == f"{ARTIFACT}:9.9.9"


def test_without_deltas_package_the_pinned_delta_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a platform that brings its own Spark: `pip install kafkalike` installs none."""

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("kafkalike.spark.jvm.jars.version", missing)

    assert delta_jar_conf(tmp_path)["spark.jars.packages"] == f"{ARTIFACT}:{DELTA_VERSION}"


def test_only_jars_that_spark_has_are_not_fetched() -> None:
    jars = " ".join(jar.name for jar in (Path(pyspark.__file__).parent / "jars").iterdir())
    groups = {"org.apache.logging.log4j": "log4j-core", "com.fasterxml.jackson.core": "jackson-databind"}
    groups |= {"org.apache.parquet": "parquet-hadoop", "org.roaringbitmap": "RoaringBitmap"}
    names = [groups[group] if name == "*" else name for group, name in (x.split(":") for x in DELTA_EXCLUDES)]

    assert [name for name in names if f"{name}-" not in jars] == []


def test_tables_in_s3_want_more_jars_and_no_bundle(tmp_path: Path, cache: Path) -> None:
    """And nothing of them is asked for without such a root."""
    assert "spark.jars" in delta_jar_conf(tmp_path)
    wanted = delta_jar_conf(tmp_path, s3=True)

    assert wanted["spark.jars.packages"].split(",")[0] == f"{ARTIFACT}:{DELTA_VERSION}"
    assert f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}" in wanted["spark.jars.packages"].split(",")
    assert "software.amazon.awssdk:bundle" in wanted["spark.jars.excludes"].split(",")

    for name in S3_JARS:
        zipfile.ZipFile(cache / name, "w").close()

    assert delta_jar_conf(tmp_path, s3=True) == {"spark.jars": ",".join(str(cache / n) for n in (*JARS, *S3_JARS))}


def test_hadoops_client_is_of_the_hadoop_that_spark_has() -> None:
    """Another one would not find its classes."""
    jars = Path(pyspark.__file__).parent / "jars"

    assert [jar.name for jar in jars.glob("hadoop-client-api-*.jar")] == [f"hadoop-client-api-{HADOOP_VERSION}.jar"]


def test_jars_of_a_caller_are_added_to_deltas() -> None:
    """Each once; other settings of the caller's win."""
    own = {"spark.jars": "/a.jar,/b.jar", "spark.sql.extensions": "delta"}

    assert with_jars(own, {"spark.jars": "/c.jar, /a.jar", "spark.sql.extensions": "mine"}) == {
        "spark.jars": "/a.jar,/b.jar,/c.jar",
        "spark.sql.extensions": "mine",
    }
    assert with_jars(own, {"spark.jars.packages": "g:a:1"}) == {**own, "spark.jars.packages": "g:a:1"}


def test_java_that_is_missing_or_too_old_is_said_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    missing = java_problem()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    old = java_problem()
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.2\" 2024-01-16' >&2\n")

    assert java_problem() is None
    assert missing is not None
    assert f"JAVA_HOME is {tmp_path}, where there is none: install" in missing
    assert old is not None
    assert f"and {java} is version 8: install one" in old
    assert "\n" not in missing + old
