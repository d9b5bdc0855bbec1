"""Spark's side: sessions, jars, Python workers, checkpoints and errors of jobs; nothing here knows topics."""
