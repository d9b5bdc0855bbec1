"""The command that gives figures of a cluster to Prometheus, or prints them."""
