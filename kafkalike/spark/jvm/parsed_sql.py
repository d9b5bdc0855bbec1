"""Parsed SQL: a statement in, what Spark's parser makes of it out; nothing is looked up or run."""

from __future__ import annotations

from pyspark.sql import SparkSession


def parsed(spark: SparkSession, text: str) -> str:
    """The plan of one statement, before anything of it is resolved, as JSON.

    Raises:
        pyspark.errors.ParseException: it is no statement of SQL, or more than one.
    """
    plan: str = spark._jsparkSession.sessionState().sqlParser().parsePlan(text).toJSON()  # noqa: SLF001 - no other way
    return plan


def has_parser(spark: SparkSession) -> bool:
    """Whether the session is one of this process: a client of Spark Connect has no parser."""
    return hasattr(spark, "_jsparkSession")
