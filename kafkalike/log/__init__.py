"""The log: topics as Delta tables, the cluster, consumer groups, transactions, dead letters and snapshots."""
