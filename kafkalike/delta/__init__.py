"""Delta tables: their logs and checkpoints, their state, the one loop that changes them, and control tables."""
