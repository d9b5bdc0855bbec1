"""Topics and the cluster in SQL: views, range functions, live tables of the cluster, and read-only statements."""
