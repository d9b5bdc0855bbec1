"""Records with schemas as columns of Spark, and columns as records with schemas."""
