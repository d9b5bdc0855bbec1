"""Records of a Spark job: staged by its tasks, then numbered and committed by a Python process."""
