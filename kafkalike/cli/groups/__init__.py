"""`kafkalike consumer-groups` with its reports and resets."""
