"""Spark's processes: sessions, jars, Python workers, Spark Connect, checkpoint folders, and the errors of jobs."""
