"""Commands about brokers, which are storage roots, and replicas."""
