"""Connect server worker: a Spark Connect server on the loopback; prints its port, and ends with its standard input."""

import socket
import sys
from typing import Any

from kafkalike.spark.jvm.spark_session import delta_session


def main() -> None:
    """Serve until the caller closes the pipe."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    conf: dict[str, Any] = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": sys.argv[1],
    }
    spark = delta_session("connect", "local[2]", **conf)
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    spark.stop()


if __name__ == "__main__":
    main()
