from kafkalike.cli import paths
from kafkalike.spark.jvm.jars import ARTIFACT, DELTA_VERSION
from kafkalike.spark.jvm.spark_session import LOG4J, SESSION_CONF, driver_options

CONF = paths.CONF / "spark-defaults.conf"


def spark_defaults() -> dict[str, str]:
    lines = (line.split(maxsplit=1) for line in CONF.read_text().splitlines() if line and not line.startswith("#"))
    return {name: value.strip() for name, value in lines}


def test_spark_submit_gets_the_settings_of_a_session() -> None:
    assert {name: value for name, value in spark_defaults().items() if name in SESSION_CONF} == SESSION_CONF


def test_spark_submit_fetches_the_delta_that_is_installed() -> None:
    assert spark_defaults()["spark.jars.packages"] == f"{ARTIFACT}:{DELTA_VERSION}"


def test_spark_submit_logs_what_a_session_logs() -> None:
    """It is one file, which spark-submit finds in SPARK_CONF_DIR."""
    assert CONF.with_name("log4j2.properties") == LOG4J
    assert LOG4J.is_file()


def test_a_session_is_quiet() -> None:
    """The JVM of a session gets the package's own log settings."""
    assert driver_options("-Xss4m") == f"-Xss4m -Duser.timezone=UTC -Dlog4j2.configurationFile={LOG4J.as_uri()}"


def test_log_settings_of_the_caller_win() -> None:
    """A caller who names log settings keeps them."""
    assert driver_options("-Dlog4j2.configurationFile=mine") == "-Dlog4j2.configurationFile=mine -Duser.timezone=UTC"
