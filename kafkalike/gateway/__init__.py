"""The gateway: Kafka's wire protocol over the topics of a cluster, without a broker and without state of its own."""
