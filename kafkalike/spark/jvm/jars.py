"""Settings that put Delta's jars, and Hadoop's for S3, on a session's class path.

`spark.jars.packages` asks Ivy at each session start, even if all jars are in its cache. Naming the cached
files skips that: a session on two cores started in 6.9 s instead of 12.3 s (medians of six).
"""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final
from zipfile import is_zipfile

try:
    from kafkalike.spark.jvm import spark_version

    DELTA_MINOR, MINOR = spark_version.DELTA_MINOR, spark_version.MINOR
except ModuleNotFoundError:
    # Without PySpark, `kafkalike conf-path` prints the settings for the newest Spark of which Delta has jars.
    DELTA_MINOR = MINOR = "4.2"

DELTA_VERSION = "4.4.0"
"""Version that pyproject.toml pins. A platform that brings its own Spark has the package of Delta or not."""
ARTIFACT = f"io.delta:delta-spark_{DELTA_MINOR}_2.13"
IVY = ".ivy2.5.2"
"""Name of the folder of Spark's resolver, below the user's home."""

JARS = (
    f"io.delta_delta-spark_{DELTA_MINOR}_2.13-{DELTA_VERSION}.jar",
    f"io.delta_delta-storage-{DELTA_VERSION}.jar",
    f"io.delta_delta-kernel-api-{DELTA_VERSION}.jar",
    f"io.delta_delta-kernel-defaults-{DELTA_VERSION}.jar",
    f"io.delta_delta-kernel-unitycatalog-{DELTA_VERSION}.jar",
    "io.unitycatalog_unitycatalog-client-0.6.0.jar",
    "io.unitycatalog_unitycatalog-hadoop-0.6.0.jar",
    "com.fasterxml.jackson.datatype_jackson-datatype-jdk8-2.13.5.jar",
)
"""Jars of that version that Spark lacks. Others that the resolver may bring are in Spark, in another version."""

DELTA_EXCLUDES: Final = (
    "com.fasterxml.jackson.core:*",
    "com.github.luben:zstd-jni",
    "com.google.code.findbugs:jsr305",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.logging.log4j:*",
    "org.apache.parquet:*",
    "org.locationtech.jts:jts-core",
    "org.roaringbitmap:*",
    "org.slf4j:slf4j-api",
    "org.xerial.snappy:snappy-java",
)
"""Dependencies of Delta that Spark includes: 75 of 90 MB to fetch."""

HADOOP_VERSION, SDK_VERSION = {"4.0": ("3.4.1", "2.24.6"), "4.1": ("3.4.2", "2.29.52")}.get(MINOR, ("3.5.0", "2.35.4"))
"""Versions of Spark's Hadoop, with which the S3 client must match, and of Amazon's SDK with which that client was
built."""

S3_ARTIFACTS: Final = (
    f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}",
    *(f"software.amazon.awssdk:{name}:{SDK_VERSION}" for name in ("s3", "s3-transfer-manager", "sts")),
)

S3_EXCLUDES: Final = (
    # All of Amazon's services in one jar of 600 MB. The client uses the three named above.
    "software.amazon.awssdk:bundle",
    # Spark has newer versions of these.
    "commons-codec:commons-codec",
    "org.apache.httpcomponents:httpclient",
    "org.apache.httpcomponents:httpcore",
    *(
        f"io.netty:netty-{name}"
        for name in (
            "buffer",
            "codec",
            "codec-http",
            "codec-http2",
            "common",
            "handler",
            "resolver",
            "transport",
            "transport-classes-epoll",
            "transport-native-unix-common",
        )
    ),
    # Another TLS implementation, used only if a setting names it.
    "org.wildfly.openssl:wildfly-openssl",
)

_SDK: Final = (
    "annotations",
    "apache-client",
    "arns",
    "auth",
    "aws-core",
    "aws-query-protocol",
    "aws-xml-protocol",
    "checksums",
    "checksums-spi",
    "crt-core",
    "endpoints-spi",
    "http-auth",
    "http-auth-aws",
    "http-auth-aws-eventstream",
    "http-auth-spi",
    "http-client-spi",
    "identity-spi",
    "json-utils",
    "metrics-spi",
    "netty-nio-client",
    "profiles",
    "protocol-core",
    "regions",
    "retries",
    "retries-spi",
    "s3",
    "s3-transfer-manager",
    "sdk-core",
    "sts",
    "third-party-jackson-core",
    "utils",
    "utils-lite",
)

S3_JARS: Final = (
    f"org.apache.hadoop_hadoop-aws-{HADOOP_VERSION}.jar",
    *(f"software.amazon.awssdk_{name}-{SDK_VERSION}.jar" for name in _SDK),
    "software.amazon.eventstream_eventstream-1.0.1.jar",
    "software.amazon.s3.analyticsaccelerator_analyticsaccelerator-s3-1.3.1.jar",
    "org.reactivestreams_reactive-streams-1.0.4.jar",
)
"""Jars that the resolver fetches for them: 14 MB."""


def delta_jar_conf(home: Path | None = None, *, s3: bool = False) -> dict[str, str]:
    """Return the settings through which Spark finds Delta.

    Args:
        home: the folder that holds Spark's Ivy folder; the user's own when `None`.
        s3: whether to add the jars for tables in S3, which Spark lacks.

    Returns:
        `spark.jars` with the cached files if all of them exist, are complete and match the version of delta-spark;
        otherwise `spark.jars.packages`, which fetches them, and the cache folder.
    """
    ivy = (home or Path.home()) / IVY
    jars = [ivy / "jars" / name for name in (*JARS, *(S3_JARS if s3 else ()))]
    try:
        installed = version("delta-spark")
    except PackageNotFoundError:
        installed = DELTA_VERSION
    # An interrupted download leaves a file without the end of a zip file.
    if installed == DELTA_VERSION and all(is_zipfile(jar) for jar in jars):
        return {"spark.jars": ",".join(map(str, jars))}
    # Spark gets the folder too, because Java does not look at HOME, but Python does.
    return {
        "spark.jars.packages": ",".join((f"{ARTIFACT}:{installed}", *(S3_ARTIFACTS if s3 else ()))),
        "spark.jars.excludes": ",".join((*DELTA_EXCLUDES, *(S3_EXCLUDES if s3 else ()))),
        "spark.jars.ivy": str(ivy),
    }
