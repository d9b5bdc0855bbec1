"""Records of a Spark job: put down by its tasks, numbered and committed by a Python process."""
