"""Record batches of Kafka's wire protocol, as columns of Arrow in both directions."""
