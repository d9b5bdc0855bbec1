"""Handlers: the answers to the requests of Kafka's protocol, a module for each group of requests."""
