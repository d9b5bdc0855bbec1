"""Topics as DataFrames: in batches, as streams, and as conditions on the rows of their tables."""
