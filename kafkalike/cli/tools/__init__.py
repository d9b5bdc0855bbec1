"""Kafka's test tools: commands that measure throughput, and commands for Kafka's system tests."""
