"""Latest worker: brings a table up to the newest row of each key of the topic `orders`, once."""

from typing import Any

from pyspark.sql import SparkSession

import kafkalike.spark as ks
from tests.tools.orders import obey


def refresh(spark: SparkSession, orders: dict[str, Any]) -> None:
    ks.maintain_latest(spark, "orders", orders["target"], orders["root"], group_id="follower", value_format="string")


if __name__ == "__main__":
    obey(refresh)
