"""Commands of Kafka's system tests: a line of JSON for each event."""
