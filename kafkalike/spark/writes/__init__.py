"""DataFrames into topics: batches, streams and transactions, staged by tasks and committed by a Python process."""
