"""Spark: sessions, jobs and their errors; the only folder that imports PySpark."""
