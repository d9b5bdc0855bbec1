from pathlib import Path

from kafkalike.log.jars import ARTIFACT, DELTA_VERSION
from kafkalike.log.session import SESSION_CONF

CONF = Path(__file__).parents[2] / "conf" / "spark-defaults.conf"


def spark_defaults() -> dict[str, str]:
    lines = (line.split(maxsplit=1) for line in CONF.read_text().splitlines() if line and not line.startswith("#"))
    return {name: value.strip() for name, value in lines}


def test_spark_submit_gets_the_settings_of_a_session() -> None:
    assert {name: value for name, value in spark_defaults().items() if name in SESSION_CONF} == SESSION_CONF


def test_spark_submit_fetches_the_delta_that_is_installed() -> None:
    assert spark_defaults()["spark.jars.packages"] == f"{ARTIFACT}:{DELTA_VERSION}"
