"""SparkSessions with kafkalike's settings, and the Hadoop settings to read topic tables in S3."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote as is_remote_mode

from kafkalike.connect import named_root
from kafkalike.errors import KafkaConfigurationError
from kafkalike.model.config.storage_options import Address
from kafkalike.spark.jvm.jars import ARTIFACT, DELTA_VERSION, delta_jar_conf
from kafkalike.spark.jvm.java_class import java_class
from kafkalike.spark.jvm.spark_connect import REMOTE, REMOTE_VARIABLE, is_remote
from kafkalike.spark.jvm.spark_errors import SPARK_FAILURES
from kafkalike.storage.object_root import object_root
from kafkalike.storage.parquet import ROW_GROUP_BYTES

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


UTC_JVM: Final = "-Duser.timezone=UTC"

LOG4J: Final = Path(__file__).parents[2] / "conf" / "log4j2.properties"
"""Log settings for the JVM's standard error. spark-submit finds the file beside `spark-defaults.conf`."""

SESSION_CONF: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # In another time zone Delta verifies the files of a small table at every commit.
    "spark.sql.session.timeZone": "UTC",
    # One task rebuilds the state of a topic's log faster than fifty: 737 ms instead of 3,324 ms per append.
    "spark.databricks.delta.snapshotPartitions": "1",
    # Delta recognizes a commit that succeeded although the store reported a failure, instead of repeating it.
    "spark.databricks.delta.commit.idempotencyCheck.enabled": "true",
    # Both would move records to files that are not ordered by offset.
    "spark.databricks.delta.optimizeWrite.enabled": "false",
    "spark.databricks.delta.autoCompact.enabled": "false",
    # One open file per Kafka partition saves the writer's sort, which would also undo the order of the records.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    # INT96, Spark's default, has no statistics, so a look-up by time would read whole files.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A consumer decodes a row group at a time; the default of 128 MiB is too much to read a single record.
    "spark.hadoop.parquet.block.size": str(16 * 1024 * 1024),
    # Delta 4.4.0's parser loses the `args` of `spark.sql(text, args=...)` on Spark 4.2; bound after parsing, they stay.
    "spark.sql.legacy.parameterSubstitution.constantsOnly": "true",
    # Batches between the JVM and Python of 65,536 records instead of 10,000, or of 64 MiB, whichever comes first. Each
    # batch costs about a millisecond; with 10,000, a typed view of small records took a tenth longer.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Records of a small micro-batch go from the planner to a task through a serializer, which takes a quarter of the
    # time between its checkpoint files. The limit is nearly that of Java's serializer; with Kryo's default of 64 MiB,
    # large results of a task would fail.
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryoserializer.buffer.max": "2047m",
    # If Spark is killed while it writes the first offsets, it leaves a temporary file in the checkpoint, and would
    # refuse to start from that checkpoint. Sinks of topics notice a checkpoint that has lost its offsets.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""`kafkalike/conf/spark-defaults.conf` has the same settings for spark-submit; a test compares them."""

OPEN_COST: Final = "spark.sql.files.openCostInBytes"
FAR_OPEN_COST: Final = str(ROW_GROUP_BYTES)
"""Weight of opening an object store's file when Spark distributes files over tasks: three round trips, in which about
10 MB could be read. With Spark's default, made for disks of a cluster, one task would get all the files and the others
wait for it. It is not more than a row group, because smaller pieces of a file would be opened for nothing.
A read of 12 files of 28 MB took 1.26 s instead of 1.44 s with Spark's default, at 15 ms per GET (medians of seven)."""

QUERY_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark's loggers of query errors, which log an error that is also raised as JSON with all frames of the JVM."""

JAVA: Final = 17
"""The oldest Java that Spark 4.2 runs on."""

JAR_LISTS: Final = {"spark.jars", "spark.jars.packages", "spark.jars.excludes"}

CATALOG: Final = "spark.sql.catalog.spark_catalog"
EXTENSIONS: Final = "spark.sql.extensions"
DELTA_CONF: Final = {EXTENSIONS, CATALOG}
"""Settings whose classes are Delta's. With a class that the JVM lacks, no statement of SQL works."""

CONNECT_CONF: Final = {
    name: SESSION_CONF[name]
    for name in (
        "spark.sql.session.timeZone",
        "spark.sql.parquet.outputTimestampType",
        "spark.sql.legacy.parameterSubstitution.constantsOnly",
        "spark.sql.execution.arrow.maxRecordsPerBatch",
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart",
    )
}
"""Settings that a client of Spark Connect can set; the others belong to the server."""


def delta_session(
    app_name: str = "kafkalike",
    master: str | None = None,
    *,
    bootstrap_servers: Address | None = None,
    needs_delta: bool = True,
    **conf: str,
) -> SparkSession:
    """Build a SparkSession with Delta and kafkalike's settings, or configure the running one; it lacks the formats.

    Args:
        app_name: name shown by Spark.
        master: Spark's master URL. None: from spark-submit or `SPARK_MASTER`, otherwise `local[*]`.
        bootstrap_servers: a cluster to read as tables; for a cluster in S3, a JVM that starts now gets Hadoop's S3
            client. For any object store `spark.sql.files.openCostInBytes` is 16 MiB unless it is set. None for the
            environment variable `KAFKALIKE_BOOTSTRAP_SERVERS`.
        needs_delta: whether to refuse a running JVM without Delta; otherwise its session gets the other settings.
        **conf: more settings; they win over kafkalike's own, and jars are added to these. Pass dotted names as
            `**{"spark.x.y": "z"}`.

    Returns:
        The session. Errors of queries are raised, but not logged. Settings of the JVM have no effect on a running JVM.
        Warnings of the JVM go to standard error, without the meaningless ones (`LOG4J`). Name another log configuration
        with `-Dlog4j2.configurationFile=` in `spark.driver.extraJavaOptions`. With `spark.remote`, or if a session of
        Spark Connect runs, the session belongs to that server and its jars and static settings.

    Raises:
        KafkaConfigurationError: Java is missing or too old, or the running JVM has no Delta, or has started Spark
            without Delta's extension. Then no setting is changed.
    """
    connect = is_connect(conf)
    plain = not connect and _has_jvm() and not _has_delta()
    if needs_delta and not connect:
        _check_jvm(plain=plain)
    for name in QUERY_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    # Workers must run the same Python as the driver, because another one may lack the packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    if connect:
        return _connected(builder, conf)
    own = {name: value for name, value in SESSION_CONF.items() if not plain or name not in DELTA_CONF}
    settings, provider = {**own, **conf}, _provider(bootstrap_servers)
    if SparkSession.getActiveSession() is None:
        settings["spark.driver.extraJavaOptions"] = driver_options(settings.get("spark.driver.extraJavaOptions", ""))
        executors = [settings.get("spark.executor.extraJavaOptions", ""), UTC_JVM]
        settings["spark.executor.extraJavaOptions"] = " ".join(o for o in executors if o)
        if not _submitted():
            where = master or os.environ.get("SPARK_MASTER") or "local[*]"
            builder = builder.master(where)
            settings = with_jars(delta_jar_conf(s3=provider == "s3"), settings)
            _listen_here(where)
        else:
            _quiet_submitted(settings["spark.driver.extraJavaOptions"])
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        made = builder.getOrCreate()
    except PySparkRuntimeError as cause:
        if cause.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise KafkaConfigurationError(
            java_problem() or f"Spark did not start; what Java or the fetching of jars said stands above: {cause}"
        ) from cause
    if provider is not None and OPEN_COST not in made.conf.getAll:
        made.conf.set(OPEN_COST, FAR_OPEN_COST)
    return made


def _listen_here(master: str) -> None:
    """Have the pages of a Spark of this machine listen on the loopback only."""
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def check_delta(spark: SparkSession) -> None:
    """Refuse a session that cannot read tables; the server of Spark Connect has its own error.

    Raises:
        KafkaConfigurationError: the session's JVM has no Delta, or the session lacks Delta's catalog or extension.
    """
    if is_remote(spark):
        return
    catalog = spark.conf.get(CATALOG, None)
    is_builtin = catalog in {None, "builtin"}
    # A platform may have a class of its own for Delta's catalog.
    if not (_has_delta() if is_builtin else _has_class(str(catalog))):
        raise _without_delta()
    if is_builtin:
        raise KafkaConfigurationError(
            "this session lacks Delta's catalog, through which a topic is read as a table; nothing was changed. Start "
            "its JVM with SPARK_CONF_DIR=$(kafkalike conf-path), or make its first session by kafkalike.spark.session"
        )
    if catalog == SESSION_CONF[CATALOG]:
        _check_extension(spark.sparkContext)


def _check_jvm(*, plain: bool) -> None:
    """Refuse a running JVM without Delta, or with a Spark that does not use it."""
    if plain:
        raise _without_delta()
    _check_extension(SparkContext._active_spark_context)  # noqa: SLF001 - PySpark has no public name for it


def _check_extension(context: SparkContext | None) -> None:
    """Refuse a running Spark that was started without Delta's extension: Spark loads extensions at its start only.

    Raises:
        KafkaConfigurationError: its settings do not name the extension.
    """
    if context is None:
        return
    java: Any = context._jsc  # noqa: SLF001 - a copy of all settings in Python costs 20 ms
    loaded = str(java.sc().getConf().get(EXTENSIONS, ""))
    if SESSION_CONF[EXTENSIONS] not in map(str.strip, loaded.split(",")):
        raise KafkaConfigurationError(
            f"this Spark was started without Delta's extension ({EXTENSIONS}={SESSION_CONF[EXTENSIONS]}), which reads "
            "a topic as a table and cannot be added later; nothing was changed. Stop it with spark.stop() and call "
            "kafkalike.spark.session, or start it with SPARK_CONF_DIR=$(kafkalike conf-path). Without the extension, "
            'call kafkalike.spark.register_format(spark): format("kafkalike") and kafkalike.spark.write need none'
        )


def _has_jvm() -> bool:
    """Return whether this process has a JVM, whose class path is fixed: of a session, or of spark-submit."""
    return SparkContext._gateway is not None or _submitted()  # noqa: SLF001 - PySpark has no public name for it


def _has_delta() -> bool:
    return _has_class(SESSION_CONF[CATALOG])


def _has_class(name: str) -> bool:
    SparkContext._ensure_initialized()  # noqa: SLF001 - under spark-submit the session may not exist yet
    return bool(java_class("org.apache.spark.util.Utils").classIsLoadable(name))


def _without_delta() -> KafkaConfigurationError:
    return KafkaConfigurationError(
        "this JVM has no Delta, which reads a topic as a table; nothing was changed. Start it with "
        f"`--packages {ARTIFACT}:{DELTA_VERSION}`, or with SPARK_CONF_DIR=$(kafkalike conf-path). Without Delta, call "
        'kafkalike.spark.register_format(spark): format("kafkalike") and kafkalike.spark.write need none'
    )


def is_connect(conf: Mapping[str, str]) -> bool:
    """Return whether to open a session of Spark Connect: by setting, by `SPARK_REMOTE`, or because one is running."""
    return REMOTE in conf or bool(os.environ.get(REMOTE_VARIABLE)) or is_remote_mode()


def _connected(builder: SparkSession.Builder, conf: Mapping[str, str]) -> SparkSession:
    """Open a session of a Spark Connect server, which has its own jars, master and static settings."""
    active = SparkSession.getActiveSession()
    if active is None or REMOTE in conf:
        url = conf.get(REMOTE) or os.environ[REMOTE_VARIABLE]
        try:
            active = builder.remote(url).getOrCreate()
        except ImportError as cause:
            raise KafkaConfigurationError(
                f"Spark Connect needs more packages: pip install 'kafkalike[connect]' ({cause})"
            ) from cause
    for name, value in {**CONNECT_CONF, **{name: value for name, value in conf.items() if name != REMOTE}}.items():
        active.conf.set(name, value)
    return active


def with_jars(own: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Merge settings; lists of jars are joined, each jar once."""
    joined = {**own, **given}
    for name in JAR_LISTS & own.keys() & given.keys():
        both = f"{own[name]},{given[name]}".split(",")
        joined[name] = ",".join(dict.fromkeys(part.strip() for part in both if part.strip()))
    return joined


def java_problem() -> str | None:
    """Return why Spark cannot start Java, with advice; None if a suitable Java is installed."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    install = (
        f"install one, such as `apt-get install openjdk-{JAVA}-jre-headless` (Debian, Ubuntu) or "
        f"`brew install openjdk@{JAVA}` (macOS), and set JAVA_HOME to its folder"
    )
    asked = f"Spark needs Java {JAVA} or later"
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr  # noqa: S603 - the program that Spark would start
    except OSError:
        there = f"JAVA_HOME is {home}, where there is none" if home else "there is no java on the PATH"
        return f"{asked}, and {there}: {install}"
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None or int(found[1]) < JAVA:
        which = f"version {found[1]}" if found else "no Java that says its version"
        return f"{asked}, and {java} is {which}: {install}"
    return None


def _quiet_submitted(options: str) -> None:
    """Apply the log settings of `LOG4J` to the JVM of spark-submit.

    If spark-submit was started in another folder, a relative path to the settings is not found, and Spark's own
    settings would log hundreds of lines.
    """
    SparkContext._ensure_initialized()  # noqa: SLF001 - the session does not exist yet
    jvm: Any = SparkContext._jvm  # noqa: SLF001
    named = jvm.java.lang.System.getProperty("log4j2.configurationFile")
    if LOG4J.as_uri() not in options or (named and Path(str(named).removeprefix("file:")).exists()):
        return
    jvm.org.apache.logging.log4j.core.config.Configurator.reconfigure(jvm.java.net.URI.create(LOG4J.as_uri()))


def _provider(bootstrap_servers: Address | None) -> str | None:
    """Return the provider of a cluster's object store; None for folders."""
    root = object_root(named_root(bootstrap_servers))
    return None if root is None else root.provider


def driver_options(given: str) -> str:
    """Return options of the driver's JVM: the caller's, UTC, and `LOG4J` unless the caller configures the log.

    Without it, a session starts with a page of Spark's warnings about host names and native libraries.
    """
    quiet = "" if ".configurationFile=" in given else f"-Dlog4j2.configurationFile={LOG4J.as_uri()}"
    return " ".join(option for option in (given, UTC_JVM, quiet) if option)


def answers(spark: SparkSession) -> bool:
    """Return whether the JVM of a session runs; it stops when it is out of memory."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()  # noqa: SLF001 - Python does not ask the JVM
    except (*SPARK_FAILURES, OSError, AttributeError):
        # A stopped session has no SparkContext, or one without a JVM.
        return False


def end_jobs(spark: SparkSession, group: str) -> None:
    """Cancel the running and future jobs of a group."""
    spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(group)  # noqa: SLF001 - Python has no name for it


def session_at_hand(app_name: str) -> SparkSession | None:
    """Return the running session, or under spark-submit a new one, also without Delta; None without a JVM.

    Args:
        app_name: name of a new session.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    return delta_session(app_name, needs_delta=False) if _submitted() else None


def _submitted() -> bool:
    """Return whether spark-submit started this process and has set its master and jars."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


S3A_CLASS: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"


def tell_hadoop(spark: SparkSession, cluster: Cluster) -> None:
    """Give Hadoop the settings to read the tables of a cluster in S3; does nothing for folders.

    The settings are Hadoop's in this session's JVM. They are not Spark settings, which appear in its event log and UI;
    Spark sends them to its tasks with the files to read. A bucket for which the session names a credentials provider is
    left alone, and so is the server of a Spark Connect session. Hadoop keeps a client for each bucket as long as the
    JVM lives, so later settings do not reach a bucket that was read before.

    Args:
        spark: the session.
        cluster: the cluster to read.

    Raises:
        KafkaConfigurationError: Hadoop has no client for the object store, or does not support its credentials.
    """
    # Any of several roots may lead a topic.
    places = [place for root in cluster.root.split(",") if (place := urlsplit(root)).scheme == "s3"]
    if not places:
        return
    if is_remote(spark):
        # The server's own settings configure its Hadoop.
        return
    context: Any = spark.sparkContext
    # PySpark has no public access to it.
    java = context._jsc  # noqa: SLF001
    if not _has_class(S3A_CLASS):
        raise KafkaConfigurationError(
            f"{cluster.root}: this session's Hadoop has no client for S3; begin it with "
            'kafkalike.spark.session(bootstrap_servers=...) naming the root, or read with format("kafkalike"), which '
            "needs none"
        )
    # Spark's own settings count here, because Hadoop's may come from an earlier call. PySpark's copy of them costs a
    # call of the JVM for each setting, 20 ms.
    known, buckets = java.sc().getConf(), {place.netloc for place in places}
    left = {b for b in buckets if known.contains(f"spark.hadoop.fs.s3a.bucket.{b}.aws.credentials.provider")}
    if left == buckets:
        return
    hadoop = java.hadoopConfiguration()
    for name, value in cluster.store.tasks.hadoop_settings().items():
        if not any(name.startswith(f"fs.s3a.bucket.{bucket}.") for bucket in left):
            hadoop.set(name, value)
