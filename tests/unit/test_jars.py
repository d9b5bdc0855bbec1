import zipfile
from pathlib import Path

import pyspark
import pytest

from kafkalike.log.jvm.jars import ARTIFACT, DELTA_VERSION, HADOOP_VERSION, IVY, JARS, S3_JARS, delta_jar_conf


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
        "spark.jars.ivy": str(tmp_path / IVY),
    }


def test_a_full_cache_is_named_file_by_file(tmp_path: Path, cache: Path) -> None:
    assert delta_jar_conf(tmp_path) == {"spark.jars": ",".join(str(cache / name) for name in JARS)}


def test_a_torn_jar_is_fetched_again(tmp_path: Path, cache: Path) -> None:
    (cache / JARS[0]).write_bytes(b"PK\x03\x04 cut off")

    assert "spark.jars.packages" in delta_jar_conf(tmp_path)


def test_another_delta_is_left_to_the_resolver(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkalike.log.jvm.jars.version", lambda _: "9.9.9")

    assert delta_jar_conf(tmp_path)["spark.jars.packages"] == f"{ARTIFACT}:9.9.9"


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
